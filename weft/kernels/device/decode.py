"""Decode attention on Hopper: few queries of each sequence, and a cache of keys and values, which is read once.

The rows of a tile are the queries of the query heads that share a head of keys. What bounds the rate is memory, so all
multiprocessors have to load all the time: the blocks of all tiles stand in one row, and each program has an equal piece of it.
The piece ends within a tile as a rule. A program then stores its part of the tile's result, in float32 with the logarithm of
its sum, and the program that is the last to finish a part combines them. Which one that is a counter of the tile tells; it is
zero again when the launch ends.

Lengths stay on the GPU: the producer of each program adds up the blocks of all sequences and finds the piece of its program.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import language as gl
from weft.kernel import jit
from weft.kernels.decode_plan import DecodePlan
from weft.kernels.device.attend import (
    LOWEST,
    Buffers,
    Softmax,
    await_tile,
    begin,
    finish,
    place,
    proceed,
    wait_for_queries,
)
from weft.kernels.device.attend_parts import FIELDS, NUMBERS, Problem, Tile, published
from weft.kernels.device.attend_scores import LN_2, LOG2_E, Scoring
from weft.language.nvidia.hopper import async_copy, fence_async_shared, mbarrier, tma, warpgroup_mma_wait

CHUNK = 128
"""Lengths that a producer reads at a time."""
LANES = 32
Pointer: TypeAlias = "gl.tensor | None"
Source: TypeAlias = "gl.tensor | tma.tensor_descriptor"
Steps: TypeAlias = "tuple[int, int, int] | None"
"""From one page, head and position to the next, in elements, of a cache that threads copy."""


# The schedule


@gl.aggregate
class Cache:
    """The lengths of sequences, None where all are as long as the cache; of a paged cache the table of its pages, with `width`
    entries for each sequence, and the number of pages."""

    lengths: gl.tensor | None
    table: gl.tensor | None
    width: gl.tensor
    pages: gl.tensor
    plan: gl.constexpr

    @jit
    def keys(self, problem, batch, mask):
        """The number of keys of sequences."""
        if self.lengths is None:
            return problem.keys
        keys = gl.load(self.lengths + batch, mask=mask, other=0)
        inside = (keys >= 0) & (keys <= problem.keys)
        gl.device_assert(inside, "decode_attention: an element of cache_seqlens is negative or beyond the cache")
        return gl.minimum(gl.maximum(keys, 0), problem.keys)

    @jit
    def page(self, tile, position):
        """The pages of positions of a sequence; -1 for those without keys."""
        there = (position >= 0) & (position < tile.keys)
        at = tile.batch.to(gl.int64) * self.width + gl.maximum(position, 0) // self.plan.page
        found = gl.load(self.table + at, mask=there, other=-1)
        inside = (found >= 0) & (found < self.pages)
        gl.device_assert(inside, "decode_attention: an entry of block_table is no page of the cache", mask=there)
        return gl.where(inside, found, -1)

    @jit
    def entries(self, tile, last):
        """The pages of the pieces that end with the last one of block `last`, one in each lane, from there backwards. TMA makes
        zeros of what lies on page -1."""
        behind = gl.arange(0, LANES, gl.BlockedLayout([1], [LANES], [1], [0]))
        return self.page(tile, ((last + 1) * self.plan.pieces - 1 - behind) * self.plan.piece)


@jit
def blocks_of(problem, keys):
    """The first block of a sequence that a query sees, and the number of blocks."""
    first, end = problem.blocks(Tile(0, 0, 0, 0, 0, 0, problem.queries, keys, 0, 0, 0))
    return first, end - first


@jit
def chunk_of(cache, problem, chunk):
    """The numbers of blocks of the sequences of a chunk, and which of these there are."""
    batch = chunk * CHUNK + gl.arange(0, CHUNK, gl.BlockedLayout([CHUNK // LANES], [LANES], [gl.num_warps()], [0]))
    there = batch < problem.batch
    _, count = blocks_of(problem, cache.keys(problem, batch, there))
    return gl.where(there, count, 0), there


@gl.aggregate
class Share:
    """What a program has of a tile: part number `index` of `count`, of tile number `unit`. Programs from `owner` on have one
    part each."""

    unit: gl.tensor
    owner: gl.tensor
    index: gl.tensor
    count: gl.tensor

    @jit
    def publish(self, memory):
        """Write it to shared memory, behind the tile."""
        gl.static_assert(NUMBERS + 4 <= FIELDS, "a published tile leaves room for four more numbers")
        layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0])
        numbers = (self.unit, self.owner, self.index, self.count)
        for i in gl.static_range(4):
            memory.slice(NUMBERS + i, 1).store(gl.full([1], numbers[i], gl.int32, layout))

    @jit
    def slot(self, index):
        """The place of a part among the partial results. A program has two: for the tile that it begins in the middle of, and
        for the one that it does not end."""
        return 2 * (self.owner + index) + gl.where(index == 0, 1, 0)


@jit
def share_of(memory):
    """The share that the producer has written to shared memory."""
    numbers = memory.load(gl.BlockedLayout([FIELDS], [LANES], [gl.num_warps()], [0]))
    return Share(*[gl.uniform(numbers[i : i + 1].item()) for i in range(NUMBERS, NUMBERS + 4)])


@gl.aggregate
class Walk:
    """The program's piece of all blocks, each program having `each`: the next one is number `at`, the one behind the last
    `stop`. It belongs to sequence `batch`, whose blocks begin with number `before`."""

    at: gl.tensor
    stop: gl.tensor
    each: gl.tensor
    batch: gl.tensor
    before: gl.tensor

    @jit
    def next(self, cache, problem):
        """The next part, as tile and share, and the walk behind it."""
        plan: gl.constexpr = cache.plan
        parts = gl.cdiv(problem.members, plan.tile_heads)
        keys = cache.keys(problem, self.batch, True)
        low, count = blocks_of(problem, keys)
        tile = (self.at - self.before) // count
        start = self.before + tile * count
        end = gl.minimum(start + count, self.stop)
        owner = start // self.each
        share = Share(
            self.batch * (problem.kv_heads * parts) + tile, owner, gl.program_id(0) - owner,
            (start + count - 1) // self.each - owner + 1,
        )  # fmt: skip
        head = tile // parts
        found = Tile(
            self.batch, head, (tile - head * parts) * plan.tile_heads, 0, low + self.at - start, low + end - start,
            problem.queries, keys, 0, 0, 0,
        )  # fmt: skip
        over = end - self.before == problem.kv_heads * parts * count
        walk = Walk(end, self.stop, self.each, self.batch + over.to(gl.int32), gl.where(over, end, self.before))
        return found, share, walk


@jit
def walk_of(cache, problem):
    """The piece of this program."""
    tiles = problem.kv_heads * gl.cdiv(problem.members, cache.plan.tile_heads)
    if cache.lengths is None:
        _, count = blocks_of(problem, problem.keys)
        total = problem.batch * count * tiles
        each = gl.cdiv(total, gl.num_programs(0))
        at = gl.program_id(0) * each
        batch = at // (count * tiles)
        return Walk(at, gl.minimum(at + each, total), each, batch, batch * count * tiles)
    chunks = gl.cdiv(problem.batch, CHUNK)
    total = 0
    for chunk in range(chunks):
        count, _ = chunk_of(cache, problem, chunk)
        total += gl.sum(count) * tiles
    each = gl.cdiv(total, gl.num_programs(0))
    at = gl.program_id(0) * each
    batch, before, passed = 0, 0, 0
    for chunk in range(chunks):
        count, there = chunk_of(cache, problem, chunk)
        ends = passed + gl.cumsum(count) * tiles
        over = there & (ends <= at)
        batch += gl.sum(over.to(gl.int32))
        before = gl.maximum(before, gl.max(gl.where(over, ends, 0)))
        passed += gl.sum(count) * tiles
    return Walk(at, gl.minimum(at + each, total), each, batch, before)


# The producer


@jit
def produce(buffers, q, k, v, k_steps, v_steps, cache, problem):
    """Publish the parts of the program, and load the queries of each and the blocks of keys and values that it visits."""
    plan: gl.constexpr = buffers.plan
    n, index = 0, 0
    walk = walk_of(cache, problem)
    while walk.at < walk.stop:
        tile, share, walk = walk.next(cache, problem)
        entries = gl.zeros([LANES], gl.int32, gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0]))
        for i in range(tile.end - tile.first):
            slot, phase, block = n % plan.stages, (n // plan.stages & 1) ^ 1, tile.end - 1 - i
            if plan.page > 0 and not plan.gathered and i % (LANES // plan.pieces) == 0:
                entries = cache.entries(tile, block)
            bar = buffers.k_ready.index(slot), buffers.k_free.index(slot)
            load_block(k, k_steps, bar, phase, buffers.k.index(slot), tile, block, i, entries, cache)
            if i == 0:
                # Behind the first keys, since it may have to wait until the results of an earlier tile are stored.
                load_queries(buffers, q, index, tile, problem, share)
            bar = buffers.v_ready.index(slot), buffers.v_free.index(slot)
            load_block(v, v_steps, bar, phase, buffers.v.index(slot), tile, block, i, entries, cache)
            n += 1
        index += 1
    wait_for_queries(buffers, index)
    Tile(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0).publish(buffers.tiles.index(index % plan.q_stages))
    mbarrier.arrive(buffers.q_ready.index(index % plan.q_stages), count=1)


@jit
def load_queries(buffers, q, index, tile, problem, share):
    """Publish a part and issue the TMA load of its queries, when their slot is free."""
    plan: gl.constexpr = buffers.plan
    slot = index % plan.q_stages
    wait_for_queries(buffers, index)
    tile.publish(buffers.tiles.index(slot))
    share.publish(buffers.tiles.index(slot))
    bar = buffers.q_ready.index(slot)
    mbarrier.expect(bar, q.block_type.nbytes)
    at = place(tile, tile.member, tile.query, problem, plan)
    tma.async_load(q, at, bar, buffers.queries(index, 0).reshape(plan.q_box))


@jit
def load_block(source, steps, bars, phase, memory, tile, block, i, entries, cache):
    """Load a block of keys or values, number `i` of its part, when its slot is free."""
    plan: gl.constexpr = cache.plan
    ready, free = bars
    if plan.gathered:
        gather(source, steps, ready, free, phase, memory, tile, block, cache)
    else:
        mbarrier.wait(free, phase)
        mbarrier.expect(ready, memory.shape[0] * memory.shape[1] * plan.dtype.itemsize)
        if plan.page == 0:
            at = [tile.batch, tile.head, block * plan.block_n, 0]
            tma.async_load(source, at, ready, memory.reshape(source.block_type.shape))
        else:
            load_pieces(source, ready, memory, tile, block, i, entries, plan)


@jit
def load_pieces(desc, bar, memory, tile, block, i, entries, plan: gl.constexpr):
    """Issue the TMA loads of a block: of each page a piece."""
    lane = gl.arange(0, LANES, entries.layout)
    # A swizzled block is made of boxes of all its rows, and a piece of some rows of each.
    box: gl.constexpr = desc.block_type.shape[2:]
    parts: gl.constexpr = memory.shape[1] // box[1]
    memory = memory.reinterpret(plan.dtype, [parts * plan.pieces, *box], plan.layout(box))
    for piece in gl.static_range(plan.pieces):
        behind = i % (LANES // plan.pieces) * plan.pieces + plan.pieces - 1 - piece
        page = gl.sum(gl.where(lane == behind, entries, 0))
        row = (block * plan.block_n + piece * plan.piece) % plan.page
        for column in gl.static_range(parts):
            part = memory.index(column * plan.pieces + piece).reshape(desc.block_type.shape)
            tma.async_load(desc, [page, tile.head, row, column * box[1]], bar, part)


@jit
def gather(source, steps, ready, free, phase, memory, tile, block, cache):
    """Copy a block position by position; zeros for positions without keys."""
    plan: gl.constexpr = cache.plan
    spread: gl.constexpr = plan.line_registers(8, memory.shape[1])
    position = block * plan.block_n + gl.arange(0, plan.block_n, gl.SliceLayout(1, spread))
    page = cache.page(tile, position)
    by_page, by_head, by_row = steps
    row = page.to(gl.int64) * gl.multiple_of(by_page, 8) + (position % plan.page).to(gl.int64) * gl.multiple_of(
        by_row, 8
    )
    row += tile.head.to(gl.int64) * gl.multiple_of(by_head, 8)
    column = gl.arange(0, memory.shape[1], gl.SliceLayout(0, spread))
    places = gl.multiple_of(source, 16) + row[:, None] + column[None, :]
    mbarrier.wait(free, phase)
    async_copy.async_load(memory, places, mask=(page >= 0)[:, None])
    async_copy.mbarrier_arrive(ready, increment_count=False)


# The consumer


@jit
def consume(buffers, out, lse, partials, counters, problem, scoring):
    """The rows of all parts of the program."""
    plan: gl.constexpr = buffers.plan
    n, index = 0, 0
    tile = await_tile(buffers, index)
    while tile.end > 0:
        whole, stop = problem.whole(tile, 0)
        q = buffers.queries(index, 0)
        # Number `n` of the program is block number `back - n` of the keys.
        back = tile.end - 1 + n
        behind = back - tile.first + 1
        o = gl.zeros([plan.rows, plan.v_size], gl.float32, plan.o_registers)
        arrived(buffers, n, True, False)
        p, softmax, factor = begin(buffers, 0, q, n, (tile.end - 1) * plan.block_n, problem, tile, scoring)
        clear_behind(buffers, n, tile.keys - (tile.end - 1) * plan.block_n)
        n += 1
        while n < behind:
            block = back - n
            mask = (block >= stop) | (block < whole)
            key = block * plan.block_n
            arrived(buffers, n, True, True)
            p, o, softmax = proceed(buffers, 0, q, p, o, softmax, n, key, mask, problem, tile, scoring, factor)
            n += 1
        if plan.config.rescale_first:
            o = softmax.scaled(o)
        arrived(buffers, n, False, True)
        o = warpgroup_mma_wait(0, buffers.weighted(p, o, n - 1))
        mbarrier.arrive(buffers.v_free.index((n - 1) % plan.stages), count=1)
        share = share_of(buffers.tiles.index(index % plan.q_stages))
        if share.count == 1:
            finish(0, buffers, out, lse, problem, scoring, index, o, softmax, factor)
        else:
            finish_part(buffers, out, lse, partials, counters, problem, scoring, index, share, o, softmax, factor)
        index += 1
        tile = await_tile(buffers, index)


@jit
def arrived(buffers, n, keys: gl.constexpr, values: gl.constexpr):
    """Of copies by threads, make the keys of block number `n` and the values of the one before visible to the tensor cores:
    wgmma reads through the async proxy. A fence of the producer would have to come when its copies are complete."""
    plan: gl.constexpr = buffers.plan
    if plan.gathered:
        if keys:
            mbarrier.wait(buffers.k_ready.index(n % plan.stages), n // plan.stages & 1)
        if values:
            mbarrier.wait(buffers.v_ready.index((n - 1) % plan.stages), (n - 1) // plan.stages & 1)
        fence_async_shared()


@jit
def clear_behind(buffers, n, count):
    """Set the values behind the first `count` of block number `n` of the program to zero: what the cache has there may be NaN,
    of which a weight of zero makes NaN."""
    plan: gl.constexpr = buffers.plan
    if not plan.gathered and count < plan.block_n:
        mbarrier.wait(buffers.v_ready.index(n % plan.stages), n // plan.stages & 1)
        memory = buffers.v.index(n % plan.stages)
        step: gl.constexpr = 16
        for first in gl.static_range(0, plan.block_n, step):
            if count < first + step:
                part = memory.slice(first, step)
                layout: gl.constexpr = plan.line_registers(8)
                row = first + gl.arange(0, step, gl.SliceLayout(1, layout))
                part.store(gl.where((row < count)[:, None], part.load(layout), 0.0))
        fence_async_shared()


@jit
def finish_part(buffers, out, lse, partials, counters, problem, scoring, index, share, o, softmax, factor):
    """Store the result of a part and the logarithm of its sum; the program that is the last to do so combines all parts."""
    plan: gl.constexpr = buffers.plan
    size: gl.constexpr = plan.used * plan.v_size
    nothing = softmax.total == 0.0
    scale = gl.where(nothing, 0.0, 1.0 / softmax.total)
    o = Softmax(softmax.top, softmax.total, scale, plan).scaled(o)
    slot = share.slot(share.index)
    row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.o_registers))[:, None]
    column = gl.arange(0, plan.v_size, gl.SliceLayout(0, plan.o_registers))[None, :]
    gl.store(partials + slot * size + (row * plan.v_size + column), o, mask=row < plan.used)
    sums = partials + 2 * gl.num_programs(0) * size
    row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))
    found = gl.where(nothing, -float("inf"), softmax.top * factor + gl.log2(softmax.total))
    gl.store(sums + slot * plan.used + row, found, mask=row < plan.used)
    # Releases this part, and acquires those that have been finished before.
    if gl.atomic_add(counters + share.unit, 1, sem="acq_rel") == share.count - 1:
        combine(buffers, out, lse, partials, sums, problem, scoring, index, share)
        gl.store(counters + share.unit, 0)
    mbarrier.arrive(buffers.q_free.index(index % plan.q_stages), count=1)


@jit
def combine(buffers, out, lse, partials, sums, problem, scoring, index, share):
    """Store the result of all parts of a tile, each weighted by its sum."""
    plan: gl.constexpr = buffers.plan
    layout: gl.constexpr = plan.line_registers(4)
    tile = published(buffers.tiles.index(index % plan.q_stages))
    row = gl.arange(0, plan.used, gl.SliceLayout(1, layout))
    inside = row[:, None] * plan.v_size + gl.arange(0, plan.v_size, gl.SliceLayout(0, layout))[None, :]
    top = gl.full([plan.used], LOWEST, gl.float32, gl.SliceLayout(1, layout))
    total = gl.zeros([plan.used], gl.float32, gl.SliceLayout(1, layout))
    o = gl.zeros([plan.used, plan.v_size], gl.float32, layout)
    for first in range(0, share.count, plan.many):
        # All loads are issued before the first one is waited for.
        found, parts = (), ()
        for i in gl.static_range(plan.many):
            there = first + i < share.count
            slot = share.slot(first + i)
            found = (*found, gl.load(sums + slot * plan.used + row, mask=there, other=-float("inf")))
            at = partials + slot * (plan.used * plan.v_size) + inside
            parts = (*parts, gl.load(at, mask=there, other=0.0))
        old = top
        for each in found:
            top = gl.maximum(top, each)
        scale = gl.exp2(old - top)
        o, total = o * scale[:, None], total * scale
        for i in gl.static_range(plan.many):
            weight = gl.exp2(found[i] - top)
            o, total = o + parts[i] * weight[:, None], total + weight
    member, query = tile.member + row // plan.length, tile.query + row % plan.length
    head = tile.head * problem.members + gl.minimum(member, problem.members - 1)
    weight = 1.0
    if plan.parts.sinks:
        sink = gl.load(scoring.sinks + head).to(gl.float32) * LOG2_E
        old = top
        top = gl.maximum(top, sink)
        weight = gl.exp2(old - top)
        total = total * weight + gl.exp2(sink - top)
    nothing = total == 0.0
    o = o * gl.where(nothing, 0.0, weight / total)[:, None]
    # The queries are not needed any more. Rows behind those that are used lie outside of the result.
    memory = buffers.results(index, 0)
    memory.slice(0, plan.used).store(o.to(plan.dtype))
    fence_async_shared()
    tma.async_store(out, place(tile, tile.member, tile.query, problem, plan), memory.reshape(plan.o_box))
    if plan.parts.lse:
        at = (gl.cast(tile.batch, gl.int64) * (problem.kv_heads * problem.members) + head) * problem.queries + query
        logarithm = gl.where(nothing, -float("inf"), (top + gl.log2(total)) * LN_2)
        gl.store(lse + at, logarithm, mask=(member < problem.members) & (query < tile.queries))
    tma.store_wait(0)


SIZES = [
    "k_steps",
    "v_steps",
    "batch",
    "kv_heads",
    "members",
    "queries",
    "keys",
    "width",
    "pages",
    "left",
    "scale",
    "inner",
]
"""Arguments that are not specialised on, so that all sizes share one compiled kernel."""


@jit(fast_math=["exp2", "div"], do_not_specialize=SIZES)
def decode(
    q: tma.tensor_descriptor, k: Source, v: Source, out: tma.tensor_descriptor, lse: Pointer, k_steps: Steps, v_steps: Steps,
    lengths: Pointer, table: Pointer, partials: gl.tensor, counters: gl.tensor, sinks: Pointer, scale: float, inner: float,
    batch: int, kv_heads: int, members: int, queries: int, keys: int, width: int, pages: int, left: int,
    plan: gl.constexpr[DecodePlan],
) -> None:  # fmt: skip
    """Decode attention; see the module. `counters` are zero, and are so afterwards."""
    buffers = Buffers.make(plan)
    problem = Problem(batch, kv_heads, members, queries, keys, 0, left, 0, None, None, None, None, None, (), plan)
    scoring = Scoring(scale, inner, None, sinks, (), (), plan)
    cache = Cache(lengths, table, width, pages, plan)
    roles = [
        (consume, (buffers, out, lse, partials, counters, problem, scoring)),
        (produce, (buffers, q, k, v, k_steps, v_steps, cache, problem)),
    ]
    gl.warp_specialize(roles, plan.warps, plan.registers)
