"""Decode attention on Hopper: few queries of each sequence, and a cache of keys and values, which is read once.

The queries of a tile are those of the query heads that share a head of keys: few, as a rule. So they are the columns of both
products, [keys, queries] and [columns of values, queries], whose rows fill an MMA whatever the number of queries. What bounds
the rate is memory, so all multiprocessors have to load all the time: programs have runs of blocks (`decode_schedule`), which
begin and end within a tile as a rule. A program then stores its part of the tile's result, in float32 with the logarithm of its
sum, and the program that is the last to finish a part combines them. A counter of the tile tells which one that is; it is zero
again at the end.
"""

from __future__ import annotations

from typing import TypeAlias

from weft import language as gl
from weft.kernel import jit
from weft.kernels.decode_plan import CachePlan
from weft.kernels.device.attend import (
    LOWEST,
    Buffers,
    await_tile,
    place,
    release,
    wait_for_queries,
)
from weft.kernels.device.attend_parts import Problem, Tile, published
from weft.kernels.device.attend_scores import LN_2, LOG2_E, Scoring
from weft.kernels.device.decode_schedule import LANES, Cache, Share, member_of, share_of, walk_of, zeros_at
from weft.language.extra.cuda import gdc_launch_dependents, gdc_wait
from weft.language.nvidia.hopper import (
    CachePolicy,
    FractionalEvictionPolicy,
    async_copy,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

Pointer: TypeAlias = "gl.tensor | None"
Source: TypeAlias = "gl.tensor | tma.tensor_descriptor"
Steps: TypeAlias = "tuple[int, int, int] | None"
"""From one page, head and position to the next, in elements, of a cache that threads copy."""


ONCE = CachePolicy(l2=FractionalEvictionPolicy("evict_first", 1.0))
"""Of keys and values that are copied, and read once, or by the programs of a team at one time: they leave L2 before whatever
else is in it. On an H200 one sequence of 134 MB takes 4 % less time, five random calls 2 to 7 % (also two tiles of queries for
the same keys), and caches of 8 bits, which go through registers, 2 % more."""

# The producer


@jit
def produce(buffers, q, k, v, k_steps, v_steps, cache, problem):
    """Publish the parts of the program, and load the queries of each and the blocks of keys and values that it visits."""
    plan: gl.constexpr = buffers.plan
    gdc_wait()
    n, index = 0, 0
    walk = walk_of(cache, problem)
    while walk.at < walk.stop:
        tile, share, walk = walk.part(cache, problem)
        if plan.narrow:
            keys = fetch(k, k_steps, tile, tile.end - 1, cache, plan.size, plan.size)
            values = fetch(v, v_steps, tile, tile.end - 1, cache, plan.v_size, plan.v_room)
        else:
            pages = pages_of(cache, tile, tile.end - 1)
        for i in range(tile.end - tile.first):
            slot, phase, block = n % plan.stages, (n // plan.stages & 1) ^ 1, tile.end - 1 - i
            bars = buffers.k_ready.index(slot), buffers.k_free.index(slot)
            if plan.narrow:
                put(keys, bars, phase, buffers.k.index(slot), plan)
                keys = fetch(k, k_steps, tile, block - 1, cache, plan.size, plan.size)
            else:
                # Those of the next block are on their way while this one waits for its slot.
                here, pages = pages, pages_of(cache, tile, block - 1)
                gather(k, k_steps, bars, phase, buffers.k.index(slot), tile, block, here, plan.size, plan)
            if i == 0:
                # Behind the first keys, since it may have to wait until the results of an earlier tile are stored.
                load_queries(buffers, q, index, tile, problem, share)
            bars = buffers.v_ready.index(slot), buffers.v_free.index(slot)
            if plan.narrow:
                put(values, bars, phase, buffers.v.index(slot), plan)
                values = fetch(v, v_steps, tile, block - 1, cache, plan.v_size, plan.v_room)
            else:
                gather(v, v_steps, bars, phase, buffers.v.index(slot), tile, block, here, plan.v_size, plan)
            n += 1
        index += 1
    finish_parts(buffers, index)


@jit
def finish_parts(buffers, index):
    """Publish that there are no more parts."""
    plan: gl.constexpr = buffers.plan
    wait_for_queries(buffers, index)
    nothing = Tile(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    Share(0, 0, 0, 0).publish(buffers.tiles.index(index % plan.q_stages), nothing)
    mbarrier.arrive(buffers.q_ready.index(index % plan.q_stages), count=1)


@jit
def load_queries(buffers, q, index, tile, problem, share):
    """Publish a part and issue the TMA load of its queries, when their slot is free."""
    plan: gl.constexpr = buffers.plan
    slot = index % plan.q_stages
    wait_for_queries(buffers, index)
    share.publish(buffers.tiles.index(slot), tile)
    bar = buffers.q_ready.index(slot)
    mbarrier.expect(bar, q.block_type.nbytes)
    at = place(tile, tile.member, tile.query, problem, plan)
    tma.async_load(q, at, bar, buffers.queries(index, 0).reshape(plan.q_box))


@jit
def pages_of(cache, tile, block):
    """The pages of the positions of a block; of a block before the first one none."""
    plan: gl.constexpr = cache.plan
    rows: gl.constexpr = gl.SliceLayout(1, plan.line_registers(8, plan.size))
    return cache.page(tile, block * plan.block_n + gl.arange(0, plan.block_n, rows))


@jit
def places_of(source, steps, first, row, tile, spread: gl.constexpr, size: gl.constexpr):
    """The addresses of rows of pages, or of the batch."""
    by_first, by_head, by_row = steps
    unit: gl.constexpr = 16 // source.dtype.element_ty.itemsize
    at = first.to(gl.int64) * gl.multiple_of(by_first, unit) + row.to(gl.int64) * gl.multiple_of(by_row, unit)
    at += tile.head.to(gl.int64) * gl.multiple_of(by_head, unit)
    column = gl.arange(0, size, gl.SliceLayout(0, spread))
    return gl.multiple_of(source, 16) + at[:, None] + column[None, :]


@jit
def fetch(source, steps, tile, block, cache, size: gl.constexpr, room: gl.constexpr):
    """Issue the loads of a block of 8-bit keys or values to registers, of `room` columns; zeros for positions without keys and
    behind `size` columns, and nothing before the first block of the part."""
    plan: gl.constexpr = cache.plan
    spread: gl.constexpr = plan.line_registers(16, room)
    position = block * plan.block_n + gl.arange(0, plan.block_n, gl.SliceLayout(1, spread))
    there = (position < tile.keys) & (block >= tile.first)
    first, row = tile.batch, position
    if plan.page > 0:
        first, row = cache.page(tile, gl.where(there, position, -1)), position % plan.page
        there = first >= 0
    places = places_of(source, steps, first, row, tile, spread, room)
    return gl.load(places, mask=inside(there, size, spread, room), other=0.0)


@jit
def inside(there, size: gl.constexpr, spread: gl.constexpr, room: gl.constexpr):
    """The mask of the first `size` of `room` columns, in some rows."""
    if size == room:
        return there[:, None]
    return there[:, None] & (gl.arange(0, room, gl.SliceLayout(0, spread)) < size)[None, :]


@jit
def put(values, bars, phase, memory, plan: gl.constexpr):
    """Store a block that has been fetched, in the type of the queries, when its slot is free."""
    ready, free = bars
    mbarrier.wait(free, phase)
    memory.store(values.to(plan.dtype))
    fence_async_shared()
    mbarrier.arrive(ready, count=1)


@jit
def gather(
    source, steps, bars, phase, memory, tile, block, page, size: gl.constexpr, plan: gl.constexpr
):  # fmt: skip
    """Copy a block position by position, when its slot is free; zeros for positions without keys."""
    ready, free = bars
    mbarrier.wait(free, phase)
    copy_rows(source, steps, memory, tile, block, page, size, plan, ONCE)
    async_copy.mbarrier_arrive(ready, increment_count=False)


@jit
def copy_rows(
    source, steps, memory, tile, block, page, size: gl.constexpr, plan: gl.constexpr, policy: gl.constexpr = None
):  # fmt: skip
    """Issue the copies of the rows of a block, whose pages are known; zeros behind the first `size` columns."""
    room: gl.constexpr = memory.shape[1]
    spread: gl.constexpr = plan.line_registers(8, room)
    page = gl.convert_layout(page, gl.SliceLayout(1, spread))
    row = block * plan.block_n + gl.arange(0, plan.block_n, gl.SliceLayout(1, spread))
    if plan.page > 0:
        row = row % plan.page
    places = places_of(source, steps, page, row, tile, spread, room)
    async_copy.async_load(memory, places, mask=inside(page >= 0, size, spread, room), cache_policy=policy)


# The consumer


@jit
def guess(k, v, k_steps, v_steps, cache, problem):
    """Bring to L2 the block that the producer probably reads first, ahead of `gdc_wait`.

    Otherwise memory has nothing to do for 5 us: while the launch before combines its parts, and this one finds where its runs
    begin (H200, of 36 us for 134 MB; 2 % of them are saved, and more blocks save less). Numbers read early may not fit
    together, so whatever follows from them is kept inside of the cache."""
    plan: gl.constexpr = cache.plan
    walk = walk_of(cache, problem)
    if walk.at < walk.stop:
        tile, _, _ = walk.part(cache, problem)
        row = gl.arange(0, plan.block_n, gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0]))
        # Positions without keys stand for the last one with keys.
        position = within((tile.end - 1) * plan.block_n + row, tile.keys)
        head, first = within(tile.head, problem.kv_heads), within(cache.page(tile, position), cache.pages)
        if plan.page > 0:
            position = position % plan.page
        bring(k, k_steps, first, head, position, plan.size)
        bring(v, v_steps, first, head, position, plan.v_size)


@jit
def within(index, count):
    """An index, moved to the nearest one of `count`."""
    return gl.maximum(gl.minimum(index, count - 1), 0)


@jit
def bring(source, steps, first, head, row, size: gl.constexpr):
    """Prefetch rows of pages, or of the batch, to L2."""
    by_first, by_head, by_row = steps
    at = first.to(gl.int64) * by_first + row.to(gl.int64) * by_row + head.to(gl.int64) * by_head
    prefetch: gl.constexpr = prefetch_text(size * source.dtype.element_ty.itemsize)
    gl.inline_asm_elementwise(prefetch, "=r,l", [(source + at).to(gl.int64)], gl.int32, False, 1, sim=zeros_at)


@gl.constexpr_function
def prefetch_text(count):
    """The PTX that prefetches `count` bytes, which is one instruction whatever the number of lines of L2."""
    return f"cp.async.bulk.prefetch.L2.global [$1], {count}; mov.u32 $0, 0;"


@jit
def consume(buffers, weights, out, lse, partials, counters, scales, problem, scoring, ahead):
    """The results of all parts of the program."""
    plan: gl.constexpr = buffers.plan
    guessed, *cached = ahead
    if guessed:
        guess(*cached, problem)
    gdc_wait()
    n, index = 0, 0
    tile = await_tile(buffers, index)
    while tile.end > 0:
        inner = problem.whole(tile, plan.length)
        q = buffers.queries(index, 0)
        o = gl.zeros([plan.v_room, plan.columns], gl.float32, plan.o_registers)
        top = gl.full([plan.columns], LOWEST, gl.float32, gl.SliceLayout(0, plan.s_registers))
        totals = gl.zeros([plan.block_n, plan.columns], gl.float32, plan.s_registers)
        scored = scaled(scoring, scales, tile, plan)
        for i in range(tile.end - tile.first):
            block = tile.end - 1 - i
            mask = (block >= inner.end) | (block < inner.first)
            o, top, totals = visit(
                buffers, weights, q, o, top, totals, n, block * plan.block_n, mask, problem, tile, scored
            )  # fmt: skip
            n += 1
        if plan.narrow:
            o = o * (scales[2] if scales[1] is None else gl.load(scales[1] + tile.head))
        share = share_of(buffers.tiles.index(index % plan.q_stages))
        total, o = gl.sum(totals, axis=0), gl.permute(o, [1, 0])
        if plan.v_room == plan.v_size and share.count == 1:
            conclude(0, buffers, out, lse, problem, scoring, index, o, top * scored.scale, total, 0)
            store_tile(0, buffers, out, problem, index)
            release(buffers, index)
        else:
            finish_part(
                0,
                buffers,
                out,
                lse,
                partials,
                counters,
                problem,
                scoring,
                index,
                share,
                o,
                top,
                total,
                scored.scale,
            )
        index += 1
        tile = await_tile(buffers, index)


@jit
def visit(buffers, weights, q, o, top, totals, n, key, mask, problem, tile, scoring):
    """Block number `n` of the program, at `key`. `top` are the maxima of the scores of each query, and `totals` the sums of
    weights, of which each thread has those of its keys."""
    plan: gl.constexpr = buffers.plan
    slot, phase = n % plan.stages, n // plan.stages & 1
    mbarrier.wait(buffers.k_ready.index(slot), phase)
    if plan.gathered:
        # wgmma reads through the async proxy. A fence of the producer would have to come when its copies are complete.
        fence_async_shared()
    s = gl.zeros([plan.block_n, plan.columns], gl.float32, plan.s_registers)
    s = warpgroup_mma(buffers.k.index(slot), q.permute([1, 0]), s, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, s)
    mbarrier.arrive(buffers.k_free.index(slot), count=1)
    s, _ = scoring.modified(s, problem, tile, 0, key)
    if mask:
        s = masked(s, problem, tile, key, plan)
    before, factor = top, scoring.scale
    top = gl.maximum(before, gl.max(s, axis=0))
    p = gl.exp2(s * factor - (top * factor)[None, :])
    old = gl.exp2((before - top) * factor)
    weights.permute([1, 0]).store(p.to(plan.dtype))
    totals = totals * old[None, :] + p
    o = o * gl.convert_layout(old, gl.SliceLayout(0, plan.o_registers))[None, :]
    mbarrier.wait(buffers.v_ready.index(slot), phase)
    fence_async_shared()
    o = warpgroup_mma(buffers.v.index(slot).permute([1, 0]), weights.permute([1, 0]), o, is_async=True)
    o = warpgroup_mma_wait(0, o)
    mbarrier.arrive(buffers.v_free.index(slot), count=1)
    return o, top, totals


@jit
def masked(s, problem, tile, key, plan: gl.constexpr):
    """Scores of keys from `key` on; -inf where a query does not see a key."""
    at = key + gl.arange(0, plan.block_n, gl.SliceLayout(1, plan.s_registers))
    query = gl.arange(0, plan.columns, gl.SliceLayout(0, plan.s_registers)) % plan.length
    position = query + (tile.keys - tile.queries)
    seen = at[:, None] < gl.minimum(position + 1, tile.keys)[None, :]
    if plan.parts.left:
        seen = seen & (at[:, None] >= (position - problem.left)[None, :])
    return gl.where(seen, s, -float("inf"))


@jit
def scaled(scoring, scales, tile, plan: gl.constexpr):
    """Scoring with the scale of the keys."""
    if scales[0] is None:
        return scoring
    scale = gl.load(scales[0] + tile.head)
    if plan.parts.softcap:
        return gl.aggregate_replace(scoring, inner=scoring.inner * scale)
    return gl.aggregate_replace(scoring, scale=scoring.scale * scale)


@jit
def finish_part(
    which: gl.constexpr, buffers, out, lse, partials, counters, problem, scoring, index, share, o, top, total, factor
):  # fmt: skip
    """Store the result of a part, [queries, columns], and the logarithm of its sum; the program that is the last to do so
    combines all parts."""
    plan: gl.constexpr = buffers.plan
    size: gl.constexpr = plan.used * plan.v_size
    nothing = total == 0.0
    o = o * gl.convert_layout(gl.where(nothing, 0.0, 1.0 / total), gl.SliceLayout(1, o.layout))[:, None]
    # A member of a team, and each of its consumers that have different columns, has its own.
    lane, slots = member_of()[0] * plan.shares + which % plan.shares, 2 * gl.num_programs(2)
    partials += gl.cast(lane, gl.int64) * slots * (size + plan.used)
    sums = partials + gl.cast(slots, gl.int64) * size
    slot = share.slot(share.index)
    row = gl.arange(0, o.shape[0], gl.SliceLayout(1, o.layout))
    column = gl.arange(0, o.shape[1], gl.SliceLayout(0, o.layout))[None, :]
    there = inside(row < plan.used, plan.v_size, o.layout, o.shape[1])
    gl.store(partials + gl.cast(slot, gl.int64) * size + (row[:, None] * plan.v_size + column), o, mask=there)
    row = gl.arange(0, o.shape[0], top.layout)
    found = gl.where(nothing, -float("inf"), top * factor + gl.log2(total))
    gl.store(sums + slot * plan.used + row, found, mask=row < plan.used)
    counter = counters + share.unit * plan.shares + which % plan.shares
    # Releases this part, and acquires those that have been finished before.
    if gl.atomic_add(counter, 1, sem="acq_rel") == share.count - 1:
        combine(which, buffers, out, lse, partials, sums, problem, scoring, index, share)
        gl.store(counter, 0)
    mbarrier.arrive(buffers.q_free.index(index % plan.q_stages), count=1)


@jit
def combine(which: gl.constexpr, buffers, out, lse, partials, sums, problem, scoring, index, share):
    """Store the result of all parts of a tile, each weighted by its sum."""
    plan: gl.constexpr = buffers.plan
    layout: gl.constexpr = plan.line_registers(4, plan.wide)
    row = gl.arange(0, plan.used, gl.SliceLayout(1, layout))
    for column in gl.static_range(0, plan.v_size, plan.wide):
        at = row[:, None] * plan.v_size + (column + gl.arange(0, plan.wide, gl.SliceLayout(0, layout)))[None, :]
        top = gl.full([plan.used], LOWEST, gl.float32, gl.SliceLayout(1, layout))
        total = gl.zeros([plan.used], gl.float32, gl.SliceLayout(1, layout))
        o = gl.zeros([plan.used, plan.wide], gl.float32, layout)
        for first in range(0, share.count, plan.many):
            # All loads are issued before the first one is waited for.
            found, parts = (), ()
            for i in gl.static_range(plan.many):
                there = first + i < share.count
                slot = share.slot(first + i)
                found = (*found, gl.load(sums + slot * plan.used + row, mask=there, other=-float("inf")))
                places = partials + gl.cast(slot, gl.int64) * (plan.used * plan.v_size) + at
                parts = (*parts, gl.load(places, mask=there, other=0.0))
            old = top
            for each in found:
                top = gl.maximum(top, each)
            scale = gl.exp2(old - top)
            o, total = o * scale[:, None], total * scale
            for i in gl.static_range(plan.many):
                weight = gl.exp2(found[i] - top)
                o, total = o + parts[i] * weight[:, None], total + weight
        conclude(which, buffers, out, lse, problem, scoring, index, o, top, total, column)
    store_tile(which, buffers, out, problem, index)


@jit
def conclude(which: gl.constexpr, buffers, out, lse, problem, scoring, index, o, top, total, column: gl.constexpr):
    """Divide columns of a tile's results, from `column` on, by the sums of weights, which `top`, exponents of 2, are too small
    by, and put them where the queries were; store the logarithms of the sums."""
    plan: gl.constexpr = buffers.plan
    layout: gl.constexpr = gl.SliceLayout(1, o.layout)
    top, total = gl.convert_layout(top, layout), gl.convert_layout(total, layout)
    tile = published(buffers.tiles.index(index % plan.q_stages))
    row = gl.arange(0, o.shape[0], layout)
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
    # The queries are not needed any more. Rows behind those of `o` lie outside of the result.
    memory = buffers.results(index, which).slice(0, o.shape[0]).slice(column, o.shape[1], dim=1)
    memory.store(o.to(plan.dtype))
    if plan.parts.lse and column == 0 and which % plan.shares == 0:
        at = (gl.cast(tile.batch, gl.int64) * (problem.kv_heads * problem.members) + head) * problem.queries + query
        logarithm = gl.where(nothing, -float("inf"), (top + gl.log2(total)) * LN_2)
        gl.store(lse + at, logarithm, mask=(member < problem.members) & (query < tile.queries))


@jit
def store_tile(which: gl.constexpr, buffers, out, problem, index):
    """Store a consumer's columns of a tile's results from shared memory."""
    plan: gl.constexpr = buffers.plan
    fence_async_shared()
    tile = published(buffers.tiles.index(index % plan.q_stages))
    batch, head, member, query, _ = place(tile, tile.member, tile.query, problem, plan)
    at = [batch, head, member, query, which % plan.shares * plan.v_size]
    tma.async_store(out, at, buffers.results(index, which).reshape(plan.o_box))
    tma.store_wait(0)


SIZES = [
    "k_steps", "v_steps", "batch", "kv_heads", "members", "queries", "keys", "width", "pages", "groups", "guessed", "left",
    "v_scale", "scale", "inner",
]  # fmt: skip
"""Arguments that are not specialised on, so that all sizes share one compiled kernel."""


@jit(fast_math=["exp2", "div"], do_not_specialize=SIZES)
def decode(
    q: tma.tensor_descriptor, k: Source, v: Source, out: tma.tensor_descriptor, lse: Pointer, k_steps: Steps, v_steps: Steps,
    lengths: Pointer, table: Pointer, partials: gl.tensor, counters: gl.tensor, sinks: Pointer,
    k_scales: Pointer, v_scales: Pointer, v_scale: float, scale: float, inner: float,
    batch: int, kv_heads: int, members: int, queries: int, keys: int, width: int, pages: int,
    groups: int, guessed: int, left: int,
    plan: gl.constexpr[CachePlan],
) -> None:  # fmt: skip
    """Decode attention; see the module. `counters` of tiles are zero, and are so afterwards.

    The next launch may start on multiprocessors that this one has left (programmatic dependent launch). It waits for this one
    when its barriers are ready, the cost of a launch is behind, and memory is busy again."""
    buffers = Buffers.make(plan)
    gdc_launch_dependents()
    problem = Problem(batch, kv_heads, members, queries, keys, 0, 0, left, 0, None, None, None, None, None, (), plan)
    scoring = Scoring(scale, inner, None, sinks, (), (), (), plan)
    cache = Cache(lengths, table, width, pages, groups, plan, False)
    weights = gl.allocate_shared_memory(plan.dtype, plan.p_block, plan.layout(plan.p_block))
    # Of numbers that are read ahead of `gdc_wait`.
    early = Cache(lengths, table, width, pages, groups, plan, True)
    ahead = guessed > 0, k, v, k_steps, v_steps, early
    roles = [
        (
            consume,
            (
                buffers,
                weights,
                out,
                lse,
                partials,
                counters,
                (k_scales, v_scales, v_scale),
                problem,
                scoring,
                ahead,
            ),
        ),
        (produce, (buffers, q, k, v, k_steps, v_steps, cache, problem)),
    ]
    gl.warp_specialize(roles, plan.warps, plan.registers)
