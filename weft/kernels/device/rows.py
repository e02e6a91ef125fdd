"""Rows of a block or a cluster: where their elements lie, how they are read and written, and sums over a row.

All row kernels are written over `Rows`. A block has its columns in one tile or several, [lines, columns] each, as many as the
row needs: a row is a list of tiles. Without a cluster a line is a row of the program; in a cluster a line is the part of one
row that a block holds. What all warps have to know about a row are a few numbers of each of them: a warp stores its own to
shared memory, in a cluster to that of all blocks (st.async), which count the bytes on their own mbarriers, so that no warp
waits at a barrier of the cluster.

With `ahead` the next rows are copied to shared memory meanwhile: each thread copies what it will hold, so threads do not wait
for each other there.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import async_store, cluster, mbarrier


@gl.aggregate
class Stream:
    """The rows of an array, and shared memory for those that are copied ahead."""

    base: gl.tensor
    stride: gl.tensor
    buffer: gl.shared_memory_descriptor | None


@gl.aggregate
class Rows:
    """The rows of a program: `line` [lines, 1] and `column` [.., part] are the places of its first tile; the next ones follow,
    `plan.part` columns further each. `end` is the column behind the last one that the block has.

    The blocks of a cluster have `portion` columns each of a row, so that all have about as many; their tiles may have more.

    With `plan.align` rows begin anywhere, and the first tile `skew` elements before its row, where addresses are aligned
    (`beginning`): columns there are negative. `place_in` [.., part] counts from where the tile begins."""

    line: gl.tensor
    column: gl.tensor
    place_in: gl.tensor
    skew: gl.tensor
    end: gl.tensor
    portion: gl.tensor
    count: gl.tensor
    cols: gl.tensor
    sent: gl.shared_memory_descriptor | None
    bars: gl.shared_memory_descriptor | None
    counter: gl.tensor | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(count, cols, plan: gl.constexpr, counter=None):
        """`count` rows of `cols` columns. `ready` has to be called before blocks exchange numbers. `counter` is for tickets."""
        line = gl.arange(0, plan.lines, gl.SliceLayout(1, plan.layout))[:, None]
        column = gl.arange(0, plan.part, gl.SliceLayout(0, plan.layout))[None, :]
        sent, bars = None, None
        if plan.blocks * plan.across > 1:
            # Two buffers: a warp that sends for one exchange has got all of the one before, so all have read the one before
            # that.
            sent = gl.allocate_shared_memory(gl.float32, [2, plan.lines, plan.across, plan.numbers], plan.sent)
        if not plan.align:
            cols = gl.multiple_of(cols, plan.vec)
        portion, end = gl.to_tensor(plan.part * plan.tiles), cols
        if plan.blocks > 1:
            if not plan.whole:
                each = gl.cdiv(cols + max(plan.align - 1, 0), plan.blocks * plan.unit)
                portion = each * plan.unit
                end = end_of_block(cols, portion, 0)
            column = line * portion + column
            bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
            mbarrier.init(bars.index(0), count=1)
            mbarrier.init(bars.index(1), count=1)
            cluster.arrive()
        return Rows(line, column, column, gl.to_tensor(0), end, portion, count, cols, sent, bars, counter, plan)

    @jit
    def beginning(self, base, row, stride):
        """These rows for an array's row, whose columns are counted from where its accesses begin. Other arrays of the program
        have their rows at the same distance from aligned addresses."""
        align: gl.constexpr = self.plan.align
        if not align:
            return self
        itemsize: gl.constexpr = base.dtype.element_ty.primitive_bitwidth // 8
        place = (base.to(gl.int64) // itemsize + row.to(gl.int64) * stride).to(gl.int32)
        skew = gl.uniform(place & (align - 1))
        end = self.cols
        if self.plan.blocks > 1:
            end = end_of_block(self.cols, self.portion, skew)
        return gl.aggregate_replace(self, column=self.place_in - skew, skew=skew, end=end)

    @jit
    def ready(self):
        """The barriers of all blocks are initialised."""
        if self.plan.blocks > 1:
            cluster.wait()

    @jit
    def first(self):
        """The program's first row; its next ones are `step()` rows further."""
        return gl.program_id(0) * self.own()

    @jit
    def step(self):
        """Distance from rows of the program to its next ones."""
        return gl.num_programs(0) * self.own()

    # Which rows a program has. Multiprocessors copy at different rates, so programs that stay draw a ticket for the row after
    # the next one whenever they begin one: one warp draws, and the others get the number with those that all warps exchange.

    @jit
    def draw(self):
        """A ticket, [lines, across]: a number for the first warp, and 0 for the others. Nothing without tickets."""
        plan: gl.constexpr = self.plan
        if not plan.tickets:
            return ()
        spread: gl.constexpr = self.parts(gl.zeros([plan.lines, plan.part], gl.float32, plan.layout)).type.layout
        layout: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(1, spread))
        warp = gl.arange(0, plan.across, gl.SliceLayout(0, layout))[None, :]
        line = gl.arange(0, plan.lines, gl.SliceLayout(1, layout))[:, None]
        first = (warp == 0) & (line == 0)
        place = self.counter + warp * 0 + line * 0
        ticket = gl.atomic_add(place, 1, mask=first, sem="relaxed")
        # As many are drawn as programs take rows: whoever draws the last one sets the counter back for the next launch.
        last = first & (ticket == gl.cdiv(self.count, self.own()) - 1)
        gl.atomic_xchg(place, 0, mask=last, sem="relaxed")
        return (gl.where(first, ticket.to(gl.float32), 0.0),)

    @jit
    def after(self, following, tickets):
        """The row after the next one, `following`, by what was exchanged of a `draw`."""
        if not self.plan.tickets:
            return following + self.step()
        number = gl.sum(gl.sum(tickets[0], axis=0), axis=0).to(gl.int32)
        return gl.uniform(number + 2 * gl.num_programs(0)) * self.own()

    @jit
    def own(self):
        """Rows of a program at a time."""
        return self.plan.lines if self.plan.blocks == 1 else 1

    @jit
    def place(self, base, row, stride):
        """Addresses of the elements of rows that begin at `row`."""
        if self.plan.align:
            return self.aligned(base + (row.to(gl.int64) * stride - self.skew)) + self.place_in
        stride = gl.multiple_of(stride, self.plan.vec)
        start = self.aligned(base) + row.to(gl.int64) * stride
        if self.plan.blocks == 1 and self.plan.lines > 1:
            return start + (self.line.to(gl.int64) * stride + self.column)
        return start + self.column

    @jit
    def aligned(self, address):
        """An address at which accesses are aligned, as the plan says that rows and vectors are (`width_of`)."""
        if self.plan.vec == 1:
            return address
        return gl.multiple_of(address, min(self.plan.vec * address.dtype.element_ty.primitive_bitwidth // 8, 16))

    @jit
    def inside(self, row, i: gl.constexpr = 0):
        """Which elements of tile `i` of rows that begin at `row` there are; None if all of them."""
        mask = self.inside_columns(i)
        if self.plan.even:
            return mask
        there = self.line < self.count - row
        return there if mask is None else mask & there

    @jit
    def inside_columns(self, i: gl.constexpr = 0):
        """Which columns of tile `i` there are; None if all of them. All tiles but the last ones are full, and where rows begin
        anywhere, but the first one."""
        begins: gl.constexpr = self.plan.align and i == 0
        if i < self.plan.full:
            return self.column >= 0 if begins else None
        within = self.column < self.end - i * self.plan.part
        return (self.column >= 0) & within if begins else within

    @jit
    def real_columns(self, x, other: gl.constexpr = 0.0):
        """The tiles of rows, with `other` where there are no columns."""
        return [self.selected(self.inside_columns(i), x[i], other) for i in gl.static_range(self.plan.tiles)]

    @jit
    def selected(self, mask, x, other: gl.constexpr):
        """The elements of a tile that there are, by a mask or None, and `other` for the rest."""
        return x if mask is None else gl.where(mask, x, gl.full_like(x, other))

    @jit
    def load(self, base, row, stride, other: gl.constexpr = 0.0):
        """The tiles of rows that begin at `row`, and `other` where there are no elements."""
        at = self.place(base, row, stride)
        return [loaded(at + i * self.plan.part, self.inside(row, i), other) for i in gl.static_range(self.plan.tiles)]

    @jit
    def store(self, base, row, stride, x):
        """Store the tiles of rows that begin at `row`, in the type of the array."""
        at = self.place(base, row, stride)
        for i in gl.static_range(self.plan.tiles):
            gl.store(at + i * self.plan.part, x[i].to(base.dtype.element_ty), mask=self.inside(row, i))

    @jit
    def load_shared(self, base, i: gl.constexpr):
        """Tile `i` of a vector of the length of a row, such as a weight; 0 beyond its end. It has another alignment than rows
        that begin anywhere."""
        if not self.plan.align:
            base = self.aligned(base)
        return loaded(base + self.column + i * self.plan.part, self.inside_columns(i), 0.0)

    @jit
    def vector(self, base):
        """The tiles of a vector as `load_shared` gives them, for all rows of the program. If rows are copied ahead they lie in
        shared memory, copied by the same group, so that they take no registers."""
        if not self.plan.ahead:
            return [self.load_shared(base, i) for i in gl.static_range(self.plan.tiles)]
        shape: gl.constexpr = (self.plan.tiles, self.plan.lines, self.plan.part)
        buffer = gl.allocate_shared_memory(base.dtype.element_ty, shape, self.plan.held)
        at = self.aligned(base) + (
            self.column + gl.zeros([self.plan.lines, self.plan.part], gl.int32, self.plan.layout)
        )
        for i in gl.static_range(self.plan.tiles):
            async_copy.async_copy_global_to_shared(
                buffer.index(i), at + i * self.plan.part, mask=self.inside_columns(i)
            )
        return buffer

    @jit
    def element(self, vector, i: gl.constexpr):
        """Tile `i` of a `vector`."""
        if self.plan.ahead:
            return vector.index(i).load(self.plan.layout)
        return vector[i]

    @jit
    def store_numbers(self, base, row, x):
        """Store a number of each row at its place in a vector, in the type of the vector."""
        if self.plan.blocks > 1:
            # Each line has the row's number: the first block stores it.
            at = gl.arange(0, self.plan.lines, gl.SliceLayout(1, self.plan.layout))
            gl.store(base + row + at * 0, x.to(base.dtype.element_ty), mask=at == 0)
        else:
            at = row + gl.arange(0, self.plan.lines, gl.SliceLayout(1, self.plan.layout))
            gl.store(base + at, x.to(base.dtype.element_ty), mask=at < self.count)

    @jit
    def load_numbers(self, base, row):
        """A number of each row from a vector."""
        at = gl.arange(0, self.plan.lines, gl.SliceLayout(1, self.plan.layout))
        if self.plan.blocks > 1:
            return gl.load(base + row + at * 0)
        if self.plan.even:
            return gl.load(base + row + at)
        return gl.load(base + row + at, mask=row + at < self.count, other=0)

    @jit
    def number(self, value, row, EACH: gl.constexpr):
        """A float32 number of each row: from a vector if EACH, else the same for all."""
        if EACH:
            return self.load_numbers(value, row)
        return gl.full([self.plan.lines], value, gl.float32, gl.SliceLayout(1, self.plan.layout))

    # Rows that are copied to shared memory ahead

    @jit
    def stream(self, base, stride):
        """The rows of an array, with shared memory for as many as are copied ahead."""
        return Stream(base, stride, self.buffer(base))

    @jit
    def buffer(self, base):
        """Shared memory for rows that are copied ahead; None if none are."""
        if not self.plan.ahead:
            return None
        shape: gl.constexpr = (self.plan.ahead * self.plan.tiles, self.plan.lines, self.plan.part)
        return gl.allocate_shared_memory(base.dtype.element_ty, shape, self.plan.held)

    @jit
    def begin(self, streams):
        """Start to copy the program's first rows."""
        for i in gl.static_range(self.plan.ahead):
            self.fetch(streams, i, self.first() + i * self.step())

    @jit
    def fetch(self, streams, slot, row):
        """Start to copy rows that begin at `row`, if there are any, and close the group of copies."""
        if row < self.count:
            rows = self.beginning(streams[0].base, row, streams[0].stride)
            for stream in streams:
                at = rows.place(stream.base, row, stream.stride)
                for i in gl.static_range(self.plan.tiles):
                    # Copies of rows that begin anywhere also read the bytes before a row in its first aligned 16. These are in
                    # the same page, so they cannot fault, and nothing uses them, whoever writes them meanwhile.
                    async_copy.async_copy_global_to_shared(
                        stream.buffer.index(slot * self.plan.tiles + i), at + i * self.plan.part, mask=rows.inside(row, i),
                        zeros=not self.plan.align,
                    )  # fmt: skip
        async_copy.commit_group()

    @jit
    def take(self, stream, slot, row, other: gl.constexpr = 0.0):
        """The tiles of rows that begin at `row`, copied ahead to a slot or loaded; 0 where there are no elements, or if they
        begin anywhere `other`."""
        if not self.plan.ahead:
            return self.load(stream.base, row, stream.stride, other if self.plan.align else 0.0)
        first, layout = slot * self.plan.tiles, self.plan.layout
        x = [stream.buffer.index(first + i).load(layout) for i in gl.static_range(self.plan.tiles)]
        return self.real_columns(x, other) if self.plan.align else x

    @jit
    def arrived(self):
        """Wait for the next rows that are copied ahead."""
        if self.plan.ahead:
            async_copy.wait_group(self.plan.ahead - 1)

    @jit
    def refill(self, streams, slot, row, following=None):
        """Start to copy rows into a slot whose rows, which begin at `row`, have been taken. Returns the next slot. With tickets
        `following` is the next row of the program."""
        if not self.plan.ahead:
            return slot
        self.fetch(streams, slot, following if self.plan.tickets else row + self.plan.ahead * self.step())
        if self.plan.ahead == 1:
            return slot
        return gl.where(slot + 1 == self.plan.ahead, 0, slot + 1)

    # Numbers of a row: tiles [lines, across] have one of each warp that a line lies in

    @jit
    def parts(self, x):
        """A tile of rows as [lines, pieces, across, elements]: the second and the last axis lie within a warp."""
        plan: gl.constexpr = self.plan
        return gl.reshape(x, [plan.lines, plan.part // (plan.across * plan.span), plan.across, plan.span])

    @jit
    def together(self, x):
        """The inverse of `parts` and `accesses`."""
        return gl.convert_layout(
            gl.reshape(x, [self.plan.lines, self.plan.part]), self.plan.layout, assert_trivial=True
        )

    @jit
    def accesses(self, x):
        """A tile of rows as [lines, pieces, across, lanes, elements of an access]."""
        plan: gl.constexpr = self.plan
        pieces: gl.constexpr = plan.part // (plan.across * plan.span)
        return gl.reshape(x, [plan.lines, pieces, plan.across, plan.span // plan.vec, plan.vec])

    @jit
    def real(self, like, i: gl.constexpr):
        """Which accesses [lines, pieces, across, lanes] of tile `i` are of columns that there are, as a tile of the layout of
        `like`. Rows that begin anywhere cut accesses."""
        plan: gl.constexpr = self.plan
        gl.static_assert(not plan.align)
        lane = gl.arange(0, like.shape[3], nested(like.layout, 3)) * plan.vec
        warp = gl.arange(0, like.shape[2], nested(like.layout, 2)) * plan.span
        piece = gl.arange(0, like.shape[1], nested(like.layout, 1)) * (plan.across * plan.span) + i * plan.part
        column = piece[None, :, None, None] + warp[None, None, :, None] + lane[None, None, None, :]
        if plan.blocks > 1:
            return column < self.end - gl.block_rank_in_cluster() * self.portion
        return column < self.cols

    @jit
    def part_sums(self, x):
        """Sums of the tiles of rows, of each warp."""
        total = gl.sum(self.parts(x[0]), axis=1)
        for i in gl.static_range(1, self.plan.tiles):
            total += gl.sum(self.parts(x[i]), axis=1)
        return gl.sum(total, axis=2)

    @jit
    def part_sizes(self, like):
        """How many columns each warp has, as a tile of the layout of `like`."""
        plan: gl.constexpr = self.plan
        line = gl.arange(0, plan.lines, gl.SliceLayout(1, like.layout))[:, None]
        warp = gl.arange(0, plan.across, gl.SliceLayout(0, like.layout))[None, :]
        own = self.cols + self.skew + line * 0
        if plan.blocks > 1:
            # `like` may have the numbers of all blocks.
            own = gl.minimum(own - line * self.portion, self.portion)
        rest = gl.clamp((own - warp * plan.span).to(gl.float32), 0.0, plan.part * plan.tiles * 1.0).to(gl.int32)
        step: gl.constexpr = plan.across * plan.span
        size = rest // step * plan.span + gl.minimum(rest % step, plan.span)
        if plan.align:
            size -= gl.where((line == 0) & (warp == 0), self.skew, 0)
        return size.to(gl.float32)

    @jit
    def exchanged(self, turn, values):
        """The numbers of all warps that have a line or, in a cluster, the row, a tile [lines, across] for each of `values`.
        `turn` counts the exchanges."""
        plan: gl.constexpr = self.plan
        if plan.blocks * plan.across == 1:
            return values
        part = self.sent.index(turn & 1)
        if plan.blocks > 1:
            bar = self.bars.index(turn & 1)
            mbarrier.expect(bar, part.nbytes_per_cta)
            async_store(part, packed(values, plan.numbers), bar)
            mbarrier.wait(bar, (turn >> 1) & 1)
        else:
            part.store(packed(values, plan.numbers))
        return unpacked(part.load(plan.gathered), plan.numbers)

    @jit
    def lined(self, x):
        """A number of the row of a cluster, for each line."""
        return gl.full([self.plan.lines], x, x.dtype, gl.SliceLayout(1, self.plan.layout))

    @jit
    def for_lines(self, x):
        """A number of each line, [lines], in the layout of `line`."""
        return gl.convert_layout(x, gl.SliceLayout(1, self.plan.layout))

    @jit
    def for_warps(self, x, like):
        """A number of each line, for each warp: as a tile of the layout of `like`."""
        return gl.convert_layout(x, gl.SliceLayout(1, like.layout))[:, None] + gl.zeros_like(like).to(x.dtype)

    @jit
    def total(self, found):
        """Sums [lines] of numbers that have been exchanged."""
        if self.plan.blocks > 1:
            return self.lined(gl.sum(gl.sum(found, axis=0), axis=0))
        return self.for_lines(gl.sum(found, axis=1))

    @jit
    def largest(self, found):
        """The largest [lines] of numbers that have been exchanged."""
        if self.plan.blocks > 1:
            return self.lined(gl.max(gl.max(found, axis=0), axis=0))
        return self.for_lines(gl.max(found, axis=1))

    @jit
    def sum(self, x, turn):
        """Sums over rows, a tile [lines]."""
        return self.total(self.exchanged(turn, (self.part_sums(x),))[0])

    @jit
    def sums(self, x, y, turn):
        """Sums over rows of two numbers of each element."""
        found = self.exchanged(turn, (self.part_sums(x), self.part_sums(y)))
        return self.total(found[0]), self.total(found[1])

    @jit
    def max(self, x, turn):
        """Largest elements of rows; NaNs are ignored."""
        top = gl.max(self.parts(x[0]), axis=1)
        for i in gl.static_range(1, self.plan.tiles):
            top = gl.maximum(top, gl.max(self.parts(x[i]), axis=1))
        return self.largest(self.exchanged(turn, (gl.max(top, axis=2),))[0])

    # Sums over the rows of a program

    @jit
    def store_columns(self, base, x):
        """Store the program's sums over its rows, as row `program_id` of a matrix [programs, columns]."""
        for i in gl.static_range(self.plan.tiles):
            start = base + (gl.program_id(0).to(gl.int64) * self.cols + i * self.plan.part)
            if self.plan.blocks > 1:
                gl.store(start + self.column, x[i], mask=self.inside_columns(i))
            else:
                column = gl.arange(0, self.plan.part, gl.SliceLayout(0, self.plan.layout))
                gl.store(start + column, gl.sum(x[i], axis=0), mask=column < self.cols - i * self.plan.part)


@jit
def loaded(addresses, mask, other: gl.constexpr):
    """The elements at these addresses, and `other` where `mask` is false; with None for a mask, all of them."""
    return gl.load(addresses, mask=mask, other=None if mask is None else other)


@jit
def end_of_block(cols, portion, skew):
    """The column behind the last one of this block of a cluster, whose tile begins `skew` columns before the row."""
    return gl.minimum((gl.block_rank_in_cluster() + 1) * portion - skew, cols)


@gl.constexpr_function
def nested(layout, axis):
    """The layout of one axis of four."""
    for i in (3, 2, 1, 0):
        if i != axis:
            layout = gl.SliceLayout(i, layout)
    return layout


@jit
def each(x):
    """Numbers of warps, [lines, across], for the elements of `Rows.parts`."""
    return x[:, :, None][:, None, :, :]


@jit
def packed(values, numbers: gl.constexpr):
    """Numbers [lines, across] as one tile [lines, across, numbers]; the last is repeated."""
    last: gl.constexpr = len(values) - 1
    if numbers == 1:
        return gl.expand_dims(values[0], 2)
    if numbers == 2:
        return gl.join(values[0], values[min(1, last)])
    pairs = gl.join(
        gl.join(values[0], values[min(2, last)]), gl.join(values[min(1, last)], values[min(3, last)])
    )  # fmt: skip
    return gl.reshape(pairs, [values[0].shape[0], values[0].shape[1], 4])


@jit
def unpacked(x, numbers: gl.constexpr):
    """The inverse of `packed`."""
    if numbers == 1:
        return (gl.reshape(x, [x.shape[0], x.shape[1]]),)
    if numbers == 2:
        return gl.split(x)
    even, odd = gl.split(gl.reshape(x, [x.shape[0], x.shape[1], 2, 2]))
    first, third = gl.split(even)
    second, fourth = gl.split(odd)
    return first, second, third, fourth


@jit(do_not_specialize=["count", "cols"])
def add_programs(
    src: gl.tensor, dst: gl.tensor, count: int, cols: int, LINES: gl.constexpr, PART: gl.constexpr, layout: gl.constexpr
) -> None:
    """Sums over `count` rows of float32 [count, cols], added in a fixed order."""
    i = gl.arange(0, LINES, gl.SliceLayout(1, layout))[:, None]
    column = gl.program_id(0) * PART + gl.arange(0, PART, gl.SliceLayout(0, layout))
    total = gl.zeros([LINES, PART], gl.float32, layout)
    for first in range(0, count, LINES):
        at = (first + i).to(gl.int64) * cols + column[None, :]
        total += gl.load(src + at, mask=(first + i < count) & (column[None, :] < cols), other=0.0)
    gl.store(dst + column, gl.sum(total, axis=0).to(dst.dtype.element_ty), mask=column < cols)
