"""Rows of a block or a cluster: where their elements lie, how they are read and written, and sums over a row.

All row kernels are written over `Rows`. Its tiles are [lines, columns of a block]. Without a cluster a line is a row of the
program; in a cluster a line is the part of one row that a block holds. What all blocks have to know about a row are a few
numbers: each block sends its own to all (st.async), and counts the bytes of the others on its own mbarrier, so no block waits
at a barrier of the cluster. With `ahead` the next rows are copied to shared memory meanwhile: each thread copies what it will
hold, so threads do not wait for each other there.
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
    """The rows of a program: `line` [lines, 1] and `column` [.., part] are the places of its tile."""

    line: gl.tensor
    column: gl.tensor
    count: gl.tensor
    cols: gl.tensor
    sent: gl.shared_memory_descriptor | None
    bars: gl.shared_memory_descriptor | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(count, cols, plan: gl.constexpr):
        """`count` rows of `cols` columns. `ready` has to be called before blocks exchange numbers."""
        line = gl.arange(0, plan.lines, gl.SliceLayout(1, plan.layout))[:, None]
        column = gl.arange(0, plan.part, gl.SliceLayout(0, plan.layout))[None, :]
        sent, bars = None, None
        if plan.blocks > 1:
            column = line * plan.part + column
            # Two buffers: a block that sends for one exchange has got all of the one before, so all have read the one before
            # that.
            sent = gl.allocate_shared_memory(gl.float32, [2, plan.blocks, plan.numbers], plan.sent)
            bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
            mbarrier.init(bars.index(0), count=1)
            mbarrier.init(bars.index(1), count=1)
            cluster.arrive()
        return Rows(line, column, count, gl.multiple_of(cols, plan.vec), sent, bars, plan)

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

    @jit
    def own(self):
        """Rows of a program at a time."""
        return self.plan.lines if self.plan.blocks == 1 else 1

    @jit
    def place(self, base, row, stride):
        """Addresses of the elements of rows that begin at `row`."""
        stride = gl.multiple_of(stride, self.plan.vec)
        start = base + row.to(gl.int64) * stride
        if self.plan.blocks == 1 and self.plan.lines > 1:
            return start + (self.line.to(gl.int64) * stride + self.column)
        return start + self.column

    @jit
    def inside(self, row):
        """Which elements of rows that begin at `row` there are; None if all of them."""
        if self.plan.whole and self.plan.even:
            return None
        if self.plan.even:
            return self.column < self.cols
        if self.plan.whole:
            return self.line < self.count - row
        return (self.column < self.cols) & (self.line < self.count - row)

    @jit
    def load(self, base, row, stride, other: gl.constexpr = 0.0):
        """The elements of rows that begin at `row`, and `other` where there are none."""
        mask = self.inside(row)
        if mask is None:
            return gl.load(self.place(base, row, stride), cache_modifier=self.plan.load_cache)
        return gl.load(self.place(base, row, stride), mask=mask, other=other, cache_modifier=self.plan.load_cache)

    @jit
    def store(self, base, row, stride, x):
        """Store rows that begin at `row`, in the type of the array."""
        mask = self.inside(row)
        if mask is None:
            gl.store(self.place(base, row, stride), x.to(base.dtype.element_ty), cache_modifier=self.plan.store_cache)
        else:
            gl.store(self.place(base, row, stride), x.to(base.dtype.element_ty), mask=mask, cache_modifier=self.plan.store_cache)

    @jit
    def load_shared(self, base):
        """A vector of the length of a row, such as a weight; 0 beyond its end."""
        if self.plan.whole:
            return gl.load(base + self.column)
        return gl.load(base + self.column, mask=self.column < self.cols, other=0.0)

    @jit
    def vector(self, base):
        """A vector as `load_shared` gives it, for all rows of the program. If rows are copied ahead it lies in shared memory,
        copied by the same group, so that it takes no registers."""
        if not self.plan.ahead:
            return self.load_shared(base)
        buffer = gl.allocate_shared_memory(base.dtype.element_ty, [self.plan.lines, self.plan.part], self.plan.held)
        if self.plan.whole:
            async_copy.async_copy_global_to_shared(buffer, base + self.spread())
        else:
            async_copy.async_copy_global_to_shared(buffer, base + self.spread(), mask=self.spread() < self.cols)
        return buffer

    @jit
    def spread(self):
        """The column of each element."""
        return self.column + gl.zeros([self.plan.lines, self.plan.part], gl.int32, self.plan.layout)

    @jit
    def element(self, vector):
        """The elements of a `vector`."""
        if self.plan.ahead:
            return vector.load(self.plan.layout)
        return vector

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
    def later_numbers(self, base, row, steps: gl.constexpr):
        """A number of each row from a vector, for the rows that the program has `steps` steps after `row`; 0 if it has none."""
        row += steps * self.step()
        at = gl.arange(0, self.plan.lines, gl.SliceLayout(1, self.plan.layout))
        at = row + (at * 0 if self.plan.blocks > 1 else at)
        return gl.load(base + at, mask=at < self.count, other=0)

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
        shape: gl.constexpr = (self.plan.ahead, self.plan.lines, self.plan.part)
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
            mask = self.inside(row)
            for i in gl.static_range(len(streams)):
                buffer, addresses = streams[i].buffer.index(slot), self.place(streams[i].base, row, streams[i].stride)
                if mask is None:
                    async_copy.async_copy_global_to_shared(buffer, addresses)
                else:
                    async_copy.async_copy_global_to_shared(buffer, addresses, mask=mask)
        async_copy.commit_group()

    @jit
    def take(self, stream, slot, row, other: gl.constexpr = 0.0):
        """The rows that begin at `row` in float32, copied ahead to a slot or loaded, and `other` where there are no elements."""
        if not self.plan.ahead:
            return self.load(stream.base, row, stream.stride, other).to(gl.float32)
        x = stream.buffer.index(slot).load(self.plan.layout).to(gl.float32)
        # Copies fill up with zeros.
        if self.plan.whole or other == 0:
            return x
        return gl.where(self.column < self.cols, x, other)

    @jit
    def arrived(self):
        """Wait for the next rows that are copied ahead."""
        if self.plan.ahead:
            async_copy.wait_group(self.plan.ahead - 1)

    @jit
    def refill(self, streams, slot, row):
        """Start to copy rows into a slot whose rows, which begin at `row`, have been taken. Returns the next slot."""
        if not self.plan.ahead:
            return slot
        self.fetch(streams, slot, row + self.plan.ahead * self.step())
        if self.plan.ahead == 1:
            return slot
        return gl.where(slot + 1 == self.plan.ahead, 0, slot + 1)

    # Numbers of a row

    @jit
    def exchanged(self, turn, values):
        """The numbers of all blocks, a tile [blocks] for each of `values`. `turn` counts the exchanges."""
        bar, part = self.bars.index(turn & 1), self.sent.index(turn & 1)
        mbarrier.expect(bar, part.nbytes_per_cta)
        async_store(part, packed(values, self.plan.numbers), bar)
        mbarrier.wait(bar, (turn >> 1) & 1)
        return unpacked(part.load(self.plan.gathered), self.plan.numbers)

    @jit
    def lined(self, x):
        """A number of the row of a cluster, for each line."""
        return gl.full([self.plan.lines], x, x.dtype, gl.SliceLayout(1, self.plan.layout))

    @jit
    def sum(self, x, turn):
        """Sums over rows, a tile [lines]."""
        part = gl.sum(x, axis=1)
        if self.plan.blocks > 1:
            found = self.exchanged(turn, (part,))
            return self.lined(gl.sum(found[0], axis=0))
        return part

    @jit
    def sums(self, x, y, turn):
        """Sums over rows of two tiles."""
        one, other = gl.sum(x, axis=1), gl.sum(y, axis=1)
        if self.plan.blocks > 1:
            found = self.exchanged(turn, (one, other))
            return self.lined(gl.sum(found[0], axis=0)), self.lined(gl.sum(found[1], axis=0))
        return one, other

    @jit
    def max(self, x, turn):
        """Largest elements of rows; NaNs are ignored."""
        part = gl.max(x, axis=1)
        if self.plan.blocks > 1:
            found = self.exchanged(turn, (part,))
            return self.lined(gl.max(found[0], axis=0))
        return part

    # Sums over the rows of a program

    @jit
    def store_columns(self, base, x):
        """Store the program's sums over its rows, as row `program_id` of a matrix [programs, columns]."""
        start = base + gl.program_id(0).to(gl.int64) * self.cols
        if self.plan.blocks > 1:
            gl.store(start + self.column, x, mask=self.column < self.cols)
        else:
            column = gl.arange(0, self.plan.part, gl.SliceLayout(0, self.plan.layout))
            gl.store(start + column, gl.sum(x, axis=0), mask=column < self.cols)


@jit
def packed(values, numbers: gl.constexpr):
    """Numbers [lines] as one tile [lines, numbers]; the last is repeated."""
    if numbers == 1:
        return gl.expand_dims(values[0], 1)
    if numbers == 2:
        return gl.join(values[0], values[min(1, len(values) - 1)])
    last: gl.constexpr = len(values) - 1
    pairs = gl.join(
        gl.join(values[0], values[min(2, last)]), gl.join(values[min(1, last)], values[min(3, last)])
    )  # fmt: skip
    return gl.reshape(pairs, [values[0].shape[0], 4])


@jit
def unpacked(x, numbers: gl.constexpr):
    """The inverse of `packed`."""
    if numbers == 1:
        return (gl.reshape(x, [x.shape[0]]),)
    if numbers == 2:
        return gl.split(x)
    even, odd = gl.split(gl.reshape(x, [x.shape[0], 2, 2]))
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
