"""Attention forward on Hopper: a scheduler warp, a producer warp, and one to three consumer warpgroups with 64 rows of queries
each.

A program computes tile after tile. The scheduler finds the next one while the producer loads the last blocks of the one before:
a ticket and the loads by which a tile's sequence is found take more than a microsecond, as long as a block of keys.

Blocks of keys are visited from the last one to the first one that a query of the tile sees. For each block a consumer

    issues    S = Q K(n)
    issues    O += P(n-1) V(n-1)
    waits for S            one MMA stays in flight
    P(n) = softmax(S)      meanwhile; the wait for O stands behind the row maxima, or with `late` behind the exponentials
    O is scaled to the new maxima

With `rescale_first` O is scaled before its MMA is issued, while that of the scores runs, so that S and O are not both live.

Maxima start at a finite number far below any score, so that rows without keys need no special case: their weights are
exp2(-inf) = 0, and so is their sum.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from weft import language as gl
from weft.kernel import jit
from weft.kernels.attend_plan import ONES, AttentionPlan
from weft.kernels.device.attend_narrow import exponents, faded, highest, in_order, weights_of
from weft.kernels.device.attend_parts import (
    FIELDS,
    Problem,
    Tile,
    blank,
    by_axes,
    inner_of,
    published,
    rows_by_lane,
)
from weft.kernels.device.attend_scores import LN_2, LOG2_E, Scoring
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from weft.nvidia.ragged_tma import to_ragged_indices

LOWEST = -(2.0**100)
"""Where row maxima start: below all scores of 16-bit operands, and finite when it is scaled."""


@gl.aggregate
class Buffers:
    """Shared memory: rings of tiles, of their queries, of keys and of values, with barriers for slots that are full (`ready`)
    and free. A scheduler has published a tile when `tile_ready` completes, and finds the next one when `tile_wanted` does.
    `keys` are the first keys of blocks that a block mask lists."""

    tiles: gl.shared_memory_descriptor
    tile_ready: gl.shared_memory_descriptor | None
    tile_wanted: gl.shared_memory_descriptor | None
    keys: gl.shared_memory_descriptor | None
    q: gl.shared_memory_descriptor
    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q_ready: gl.shared_memory_descriptor
    q_free: gl.shared_memory_descriptor
    k_ready: gl.shared_memory_descriptor
    k_free: gl.shared_memory_descriptor
    v_ready: gl.shared_memory_descriptor
    v_free: gl.shared_memory_descriptor
    turn: gl.shared_memory_descriptor | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr, scheduler: gl.constexpr = False):
        """All slots free. A scheduler publishes a tile before its queries have a slot: there is one more of tiles then."""
        consumers: gl.constexpr = plan.consumers
        numbers: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        return Buffers(
            gl.allocate_shared_memory(gl.int32, [plan.q_stages + scheduler, FIELDS], numbers),
            barriers_of(1, 1) if scheduler else None, barriers_of(1, 1) if scheduler else None,
            gl.allocate_shared_memory(gl.int32, [plan.k_stages, 1], numbers) if plan.parts.blocks else None,
            gl.allocate_shared_memory(plan.q_dtype, [plan.q_stages * consumers, *plan.q_room], plan.q_layout),
            gl.allocate_shared_memory(plan.dtype, [plan.k_stages, *plan.k_block], plan.layout(plan.k_block)),
            gl.allocate_shared_memory(plan.dtype, [plan.stages, *plan.v_block], plan.layout(plan.v_block)),
            barriers_of(plan.q_stages, 1), barriers_of(plan.q_stages, consumers),
            barriers_of(plan.k_stages, plan.arrivals), barriers_of(plan.k_stages, consumers),
            barriers_of(plan.stages, plan.arrivals), barriers_of(plan.stages, consumers),
            barriers_of(consumers, 1) if plan.config.turns else None,
            plan,
        )  # fmt: skip

    @jit
    def queries(self, index, which: gl.constexpr):
        """A consumer's queries of tile number `index` of the program, [rows, head size]."""
        plan: gl.constexpr = self.plan
        memory = self.q.index(index % plan.q_stages * plan.consumers + which)
        return memory.reinterpret(plan.dtype, plan.q_block, plan.layout(plan.q_block)) if plan.float8 else memory

    @jit
    def results(self, index, which: gl.constexpr):
        """The same memory, for the results, [rows, head size of the values]."""
        plan: gl.constexpr = self.plan
        memory = self.q.index(index % plan.q_stages * plan.consumers + which)
        if plan.v_size != plan.size and not plan.float8:
            memory = memory.reinterpret(plan.dtype, plan.o_block, plan.layout(plan.o_block))
        return memory

    @jit
    def scores(self, q, n):
        """Issue the scores of block number `n` of the program."""
        plan: gl.constexpr = self.plan
        mbarrier.wait(self.k_ready.index(n % plan.k_stages), n // plan.k_stages & 1)
        zeros = gl.zeros([plan.rows, plan.block_n], gl.float32, plan.s_registers)
        return warpgroup_mma(q, self.k.index(n % plan.k_stages).permute([1, 0]), zeros, use_acc=False, is_async=True)

    @jit
    def weighted(self, p, o, n):
        """Issue the addition of the values of block number `n` to the results, by their weights."""
        plan: gl.constexpr = self.plan
        mbarrier.wait(self.v_ready.index(n % plan.stages), n // plan.stages & 1)
        memory = self.v.index(n % plan.stages)
        return warpgroup_mma(p, memory.permute([1, 0]) if plan.float8 else memory, o, is_async=True)

    @jit
    def visited(self, n):
        """The first key of block number `n` of the program, which is listed, and whether it needs the mask function."""
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        key = gl.uniform(self.keys.index(n % self.plan.k_stages).load(layout).item())
        return key & ~1, key & 1 == 1

    @jit
    def my_turn(self, which: gl.constexpr, n):
        """Wait until the consumer before this one has issued its MMAs.

        The first consumer starts: a wait for parity 1 on a fresh barrier returns at once."""
        if self.plan.config.turns:
            mbarrier.wait(self.turn.index(which), (n & 1) ^ (1 if which == 0 else 0))

    @jit
    def next_turn(self, which: gl.constexpr):
        """Let the next consumer issue its MMAs."""
        if self.plan.config.turns:
            mbarrier.arrive(self.turn.index((which + 1) % self.plan.consumers), count=1)


# The scheduler


LEAD = 3
"""Blocks before the end of a tile at which the next one is drawn: time for the ticket, for loads, and for the queries to come.
Drawn at a tile's begin, programs would decide on their last tiles long before they are free, and end at different times."""


@jit
def schedule(buffers, q, problem):
    """Publish the program's tiles, each when the producer wants it, and load their queries; behind the last one a tile without
    blocks.

    The slot of a tile is free then: that of the queries of the tile before has been waited for."""
    plan: gl.constexpr = buffers.plan
    tiles = problem.heads() * problem.columns()
    index, number = 0, gl.program_id(0)
    while number < tiles:
        tile = problem.tile(number)
        if tile.end > tile.first:
            inner = problem.whole(tile, plan.tile_queries)
            tile.publish(tile_memory(buffers, index), (inner.first, inner.end))
            mbarrier.arrive(buffers.tile_ready.index(0), count=1)
            load_queries(buffers, q, index, tile, problem)
            mbarrier.wait(buffers.tile_wanted.index(0), index & 1)
            index += 1
        number = problem.behind(number, tiles)
    nothing = Tile(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    nothing.publish(tile_memory(buffers, index), ())
    mbarrier.arrive(buffers.tile_ready.index(0), count=1)
    if plan.ahead:
        # Its scores are computed like those of any tile.
        load_queries(buffers, q, index, nothing, problem)
    else:
        wait_for_queries(buffers, index)
        mbarrier.arrive(buffers.q_ready.index(index % plan.q_stages), count=1)


# The producer


@jit
def produce(buffers, k, v, problem):
    """Load the blocks of keys and values that the program's tiles visit, the keys of each before the values of the one before,
    in the order in which consumers need them."""
    plan: gl.constexpr = buffers.plan
    n, index = 0, 0
    tile = scheduled(buffers, index)
    while tile.end > 0:
        count = tile.end - tile.first
        key = problem.key(tile, tile.end - 1)
        following = problem.key(tile, gl.maximum(tile.end - 2, 0))
        load_keys(buffers, k, n, tile, key)
        for i in range(count):
            here, key = key, following
            if i + 1 < count:
                load_keys(buffers, k, n + 1, tile, key)
            if i == gl.maximum(count - LEAD, 0):
                mbarrier.arrive(buffers.tile_wanted.index(0), count=1)
            # A listed block comes from memory, and is known when the slot of its keys is free.
            following = problem.key(tile, gl.maximum(tile.end - 3 - i, 0))
            load_values(buffers, v, n, tile, here)
            n += 1
        index += 1
        tile = scheduled(buffers, index)
    if plan.ahead:
        load_keys(buffers, k, n, tile, 0)


@jit
def scheduled(buffers, index):
    """Tile number `index` of the program, when the scheduler has published it."""
    mbarrier.wait(buffers.tile_ready.index(0), index & 1)
    return published(tile_memory(buffers, index))


@jit
def load_keys(buffers, k, n, tile, key):
    """Issue the TMA load of the keys of block number `n` of the program, when their slot is free. Where a block mask lists
    blocks, `key` is a block's entry, which consumers read."""
    plan: gl.constexpr = buffers.plan
    slot = n % plan.k_stages
    mbarrier.wait(buffers.k_free.index(slot), (n // plan.k_stages & 1) ^ 1)
    if plan.parts.blocks:
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        buffers.keys.index(slot).store(gl.full([1], key, gl.int32, layout))
        key = key & ~1
    load(k, keys_at(tile, key, plan), buffers.k_ready.index(slot), buffers.k.index(slot))


@jit
def load_values(buffers, v, n, tile, key):
    """Issue the TMA load of the values of block number `n` of the program, when their slot is free."""
    plan: gl.constexpr = buffers.plan
    slot = n % plan.stages
    mbarrier.wait(buffers.v_free.index(slot), (n // plan.stages & 1) ^ 1)
    if plan.parts.blocks:
        key = key & ~1
    at = [tile.batch, tile.head, 0, key] if plan.float8 else keys_at(tile, key, plan)
    load(v, at, buffers.v_ready.index(slot), buffers.v.index(slot))


@jit
def place(tile, member, query, problem, plan: gl.constexpr):
    """The coordinates of queries or results: of a dense array, or of a ragged descriptor of a sequence's positions."""
    if plan.parts.sequences:
        first, second, position = to_ragged_indices(tile.q_start, tile.queries, query)
        return [first, second, tile.head * problem.members + member, position, 0]
    return [tile.batch, tile.head, member, query, 0]


@jit
def keys_at(tile, key, plan: gl.constexpr):
    """The coordinates of keys or values."""
    if plan.parts.sequences:
        first, second, position = to_ragged_indices(tile.k_start, tile.keys, key)
        return [first, second, tile.head, position, 0]
    return [tile.batch, tile.head, key, 0]


@jit
def load(desc, at, bar, memory):
    """Issue the TMA load of a block of keys or values."""
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load(desc, at, bar, memory.reshape(desc.block_type.shape))


@jit
def wait_for_queries(buffers, index):
    """Wait until the slot of the queries of tile number `index` of the program is free."""
    plan: gl.constexpr = buffers.plan
    mbarrier.wait(buffers.q_free.index(index % plan.q_stages), (index // plan.q_stages & 1) ^ 1)


@jit
def load_queries(buffers, q, index, tile, problem):
    """Issue the TMA loads of a tile's queries, when their slot is free."""
    plan: gl.constexpr = buffers.plan
    slot = index % plan.q_stages
    wait_for_queries(buffers, index)
    bar = buffers.q_ready.index(slot)
    mbarrier.expect(bar, plan.consumers * q.block_type.nbytes)
    for which in gl.static_range(plan.consumers):
        member, query = tile.member + which * plan.heads_step, tile.query + which * plan.queries_step
        at = place(tile, member, query, problem, plan)
        tma.async_load(q, at, bar, buffers.queries(index, which).reshape(plan.q_box))


# Consumers


@gl.aggregate
class Softmax:
    """The running softmax of a consumer's rows: `top` their maxima, `total` the sums of weights, first those of each lane, and
    `old` the factor of the results so far.

    Where values have columns of ones, `total` has these columns, and misses the weights of the last block. Their products are
    sums of one block each, which are added in float32: in an accumulator of 8-bit products, which has 13 bits, the sum of all
    would lose most of what is added to it."""

    top: gl.tensor
    total: gl.tensor
    old: gl.tensor
    plan: gl.constexpr

    @jit
    def scaled(self, o):
        """Results scaled to the maxima, and columns of ones set to zero."""
        plan: gl.constexpr = self.plan
        old = gl.convert_layout(self.old, gl.SliceLayout(1, plan.o_registers))[:, None]
        if plan.ones:
            column = gl.arange(0, plan.o_columns, gl.SliceLayout(0, plan.o_registers))
            # Not 0.0: for accumulators that begin as constants ptxas takes other registers, and waits for each MMA.
            old = gl.where((column < plan.v_size)[None, :], old, old * 0.0)
        return o * old

    @jit
    def with_results(self, o):
        """With the sums of weights that are results."""
        if not self.plan.ones:
            return self
        total = self.total + gl.convert_layout(ones_of(o, self.plan), self.total.layout)
        return gl.aggregate_replace(self, total=total)

    @jit
    def advanced(self, top, weights, old, o):
        """Of a further block, behind the wait for the results before."""
        plan: gl.constexpr = self.plan
        if plan.ones:
            total = self.with_results(o).total
            total = total * gl.convert_layout(old, gl.SliceLayout(1, total.layout))[:, None]
        else:
            total = self.total * of_lanes(old, plan) + sums(weights, plan)
        return Softmax(top, total, old, plan)

    @jit
    def of_rows(self):
        """With the sums of rows, at the end of a tile."""
        if self.plan.ones:
            total = gl.max(self.total, axis=1)
            return gl.aggregate_replace(self, total=gl.convert_layout(total, gl.SliceLayout(1, self.plan.s_registers)))
        total = gl.convert_layout(gl.sum(self.total, axis=1), gl.SliceLayout(1, self.plan.s_registers))
        return gl.aggregate_replace(self, total=total)

    @jit
    def as_operand(self, weights):
        """Weights as the left operand of an MMA."""
        if self.plan.float8:
            # In order before they are rounded: then 4 that are packed in a register are rounded together.
            return gl.convert_layout(in_order(weights), self.plan.p_registers).to(self.plan.dtype)
        return gl.convert_layout(weights.to(self.plan.dtype), self.plan.p_registers)


@jit
def ones_of(o, plan: gl.constexpr):
    """The columns of ones of results, [rows, 8]."""
    return o[:, plan.v_size :]


@jit
def sums(weights, plan: gl.constexpr):
    """The sums of each lane's weights of a block, [rows, lanes of a row]: lanes are added up at the end of a tile."""
    return gl.sum(gl.sum(by_axes(weights, plan), axis=3), axis=1)


@jit
def of_lanes(x, plan: gl.constexpr):
    """Numbers of rows for each lane, [rows, 1]."""
    return gl.convert_layout(x, rows_by_lane(blank(plan).layout))[:, None]


@jit
def first_scores(buffers, which: gl.constexpr, q, n):
    """The scores of the first block of a tile."""
    buffers.my_turn(which, n)
    s = buffers.scores(q, n)
    buffers.next_turn(which)
    return warpgroup_mma_wait(0, s)


@jit
def begin(buffers, which: gl.constexpr, s, n, key, problem, tile, rows, scoring):
    """The first block of a tile, which may reach beyond the last key: its weights, the softmax, and the factor of scores in
    exponents of 2."""
    plan: gl.constexpr = buffers.plan
    if plan.parts.blocks:
        key, _ = buffers.visited(n)
    mbarrier.arrive(buffers.k_free.index(n % plan.k_stages), count=1)
    s, natural = scoring.modified(s, problem, tile, which, key)
    s = problem.masked(s, tile, tile.query + which * plan.queries_step, rows, key)
    if plan.parts.mask_mod is not None:
        s = scoring.allowed(s, problem, tile, which, key)
    factor = LOG2_E if natural else scoring.scale
    if plan.float8:
        factor = scoring.of_rows(problem, tile, which)
    here = factor
    if plan.parts.key_scales:
        here = factor * scoring.of_keys(problem, tile, key)
    top = highest(LOWEST, s, here, plan)
    weights = weights_of(s, top, here, plan)
    if plan.ones:
        total = gl.zeros([plan.rows, ONES], gl.float32, plan.sums_of(ONES))
    else:
        total = sums(weights, plan)
    softmax = Softmax(top, total, gl.full_like(top, 1.0), plan)
    return softmax.as_operand(weights), softmax, factor


@jit
def proceed(buffers, which: gl.constexpr, q, p, o, softmax, n, key, mask, problem, tile, rows, scoring, factor):
    """A further block: its scores, the MMA of the weights before, and its weights."""
    plan: gl.constexpr = buffers.plan
    buffers.my_turn(which, n)
    s = buffers.scores(q, n)
    if plan.config.rescale_first:
        o = softmax.scaled(o)
    o = buffers.weighted(p, o, n - 1)
    buffers.next_turn(which)
    if plan.parts.blocks:
        key, mask = buffers.visited(n)
    s = warpgroup_mma_wait(1, s)
    mbarrier.arrive(buffers.k_free.index(n % plan.k_stages), count=1)
    s, _ = scoring.modified(s, problem, tile, which, key)
    if plan.parts.bounded and mask:
        s = problem.masked(s, tile, tile.query + which * plan.queries_step, rows, key)
    if plan.parts.mask_mod is not None and (not plan.parts.blocks or mask):
        s = scoring.allowed(s, problem, tile, which, key)
    if plan.parts.key_scales:
        factor = factor * scoring.of_keys(problem, tile, key)
    top = highest(softmax.top, s, factor, plan)
    if not plan.config.late:
        o = warpgroup_mma_wait(0, o)
    weights = weights_of(s, top, factor, plan)
    old = faded(softmax.top, top, factor, plan)
    if plan.config.late:
        o = warpgroup_mma_wait(0, o)
    softmax = softmax.advanced(top, weights, old, o)
    mbarrier.arrive(buffers.v_free.index((n - 1) % plan.stages), count=1)
    if not plan.config.rescale_first:
        o = softmax.scaled(o)
    return softmax.as_operand(weights), o, softmax


@jit
def consume(which: gl.constexpr, buffers, out, lse, problem, scoring):
    """A consumer: its rows of all tiles of the program."""
    plan: gl.constexpr = buffers.plan
    n, index = 0, 0
    tile = await_tile(buffers, index)
    if plan.ahead:
        s = first_scores(buffers, which, buffers.queries(index, which), n)
    while tile.end > 0:
        rows = problem.rows(tile, tile.query + which * plan.queries_step)
        q = buffers.queries(index, which)
        # Number `n` of the program is block number `back - n` of the keys.
        back = tile.end - 1 + n
        behind = back - tile.first + 1
        o = gl.zeros([plan.rows, plan.o_columns], gl.float32, plan.o_registers)
        if not plan.ahead:
            s = first_scores(buffers, which, q, n)
        p, softmax, factor = begin(buffers, which, s, n, (tile.end - 1) * plan.block_n, problem, tile, rows, scoring)
        if plan.q_stages > 1 and index > 0:
            release(buffers, index - 1)
        inner = inner_of(tile_memory(buffers, index))
        n += 1
        while n < behind:
            block = back - n
            mask = (block >= inner.end) | (block < inner.first)
            key = block * plan.block_n
            p, o, softmax = proceed(
                buffers, which, q, p, o, softmax, n, key, mask, problem, tile, rows, scoring, factor
            )  # fmt: skip
            n += 1
        if plan.config.rescale_first:
            o = softmax.scaled(o)
        if not plan.ones:
            softmax = softmax.of_rows()
        if plan.ahead:
            tile = await_tile(buffers, index + 1)
            buffers.my_turn(which, n)
            o = buffers.weighted(p, o, n - 1)
            s = buffers.scores(buffers.queries(index + 1, which), n)
            buffers.next_turn(which)
            o = warpgroup_mma_wait(1, o)
            mbarrier.arrive(buffers.v_free.index((n - 1) % plan.stages), count=1)
            finish(which, buffers, out, lse, problem, scoring, index, o, softmax, factor)
            s = warpgroup_mma_wait(0, s)
            index += 1
        else:
            o = warpgroup_mma_wait(0, buffers.weighted(p, o, n - 1))
            mbarrier.arrive(buffers.v_free.index((n - 1) % plan.stages), count=1)
            finish(which, buffers, out, lse, problem, scoring, index, o, softmax, factor)
            if plan.q_stages == 1:
                release(buffers, index)
            index += 1
            tile = await_tile(buffers, index)
    tma.store_wait(0)


@jit
def tile_memory(buffers, index):
    """Where tile number `index` of the program is published."""
    return buffers.tiles.index(index % buffers.tiles.shape[0])


@jit
def await_tile(buffers, index):
    """Tile number `index` of the program, when its queries have arrived."""
    plan: gl.constexpr = buffers.plan
    mbarrier.wait(buffers.q_ready.index(index % plan.q_stages), index // plan.q_stages & 1)
    return published(tile_memory(buffers, index))


@jit
def finish(which: gl.constexpr, buffers, out, lse, problem, scoring, index, o, softmax, factor):
    """Divide the results by the sums of weights, and store them, and the logarithms of the sums."""
    plan: gl.constexpr = buffers.plan
    tile = published(tile_memory(buffers, index))
    member, query = tile.member + which * plan.heads_step, tile.query + which * plan.queries_step
    if plan.ones:
        softmax = softmax.with_results(o).of_rows()
    top, total, weight = exponents(softmax.top, factor, plan), softmax.total, 1.0
    if plan.parts.sinks:
        top, total, weight = scoring.with_sinks(top, total, problem, tile, which)
    if plan.float8:
        weight = weight * scoring.of_values(problem, tile)
    nothing = total == 0.0
    o = Softmax(top, total, gl.where(nothing, 0.0, weight / total), plan).scaled(o)
    # The consumer's queries are not needed any more.
    memory = buffers.results(index, which)
    memory.store((o[:, : plan.v_size] if plan.ones else o).to(plan.out_dtype))
    fence_async_shared()
    tma.async_store(out, place(tile, member, query, problem, plan), memory.reshape(plan.o_box))
    if plan.parts.lse:
        row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))
        member, query = member + row // plan.length, query + row % plan.length
        batch = 0 if plan.parts.sequences else tile.batch
        head = (gl.cast(batch, gl.int64) * problem.kv_heads + tile.head) * problem.members + member
        found = gl.where(nothing, -float("inf"), (top + gl.log2(total)) * LN_2)
        at = head * problem.queries + tile.q_start + query
        gl.store(lse + at, found, mask=(member < problem.members) & (query < tile.queries))


@jit
def release(buffers, index):
    """Free the slot of the queries of tile number `index` of the program, when its results are stored. With two slots that is
    during the next tile, and no one waits for the store."""
    plan: gl.constexpr = buffers.plan
    tma.store_wait(0)
    mbarrier.arrive(buffers.q_free.index(index % plan.q_stages), count=1)


SIZES = [
    "batch", "kv_heads", "members", "queries", "keys", "band", "banded", "left", "right", "scale", "inner",
]  # fmt: skip
"""Arguments that are not specialised on, so that all sizes share one compiled kernel."""
Pointer: TypeAlias = "gl.tensor | None"


@jit(fast_math=["exp2", "div"], do_not_specialize=SIZES)
def attend(
    q: tma.tensor_descriptor, k: tma.tensor_descriptor, v: tma.tensor_descriptor, out: tma.tensor_descriptor, lse: Pointer,
    prefix: Pointer, q_starts: Pointer, k_starts: Pointer, spans: Pointer, counter: Pointer, slopes: Pointer, sinks: Pointer,
    score_args: Any, mask_args: Any, listed: Any, scales: Any, scale: float, inner: float, batch: int, kv_heads: int, members:
    int, queries: int, keys: int, band: int, banded: int, left: int, right: int, plan: gl.constexpr[AttentionPlan],
) -> None:  # fmt: skip
    """Attention forward; see the module, `Problem` and `Scoring`."""
    buffers = Buffers.make(plan, True)
    problem = Problem(
        batch,
        kv_heads,
        members,
        queries,
        keys,
        band,
        banded,
        left,
        right,
        prefix,
        q_starts,
        k_starts,
        spans,
        counter,
        listed,
        plan,
    )
    scoring = Scoring(scale, inner, slopes, sinks, score_args, mask_args, scales, plan)
    roles = [(consume, (which, buffers, out, lse, problem, scoring)) for which in range(plan.consumers)]
    roles = [*roles, (produce, (buffers, k, v, problem)), (schedule, (buffers, q, problem))]
    gl.warp_specialize(roles, plan.warps, plan.registers)


SEARCHES = 32
"""Positions of a program that looks up documents."""


@jit(do_not_specialize=["length", "steps"])
def find_spans(documents: gl.tensor, spans: gl.tensor, length: int, steps: int) -> None:
    """The first position of each position's document, and the one behind its last: `documents` [batch, length] never decrease
    along a row, `spans` is [batch, 2, length]. `steps` halve `length` positions down to none.

    Both searches are one loop, since each step waits for memory."""
    at = gl.program_id(0) * SEARCHES + gl.arange(0, SEARCHES, gl.BlockedLayout([1], [32], [1], [0]))
    ids = documents + gl.program_id(1) * length
    inside = at < length
    mine = gl.load(ids + at, mask=inside, other=0)
    first, first_end = gl.zeros_like(at), at
    last, last_end = at + 1, gl.zeros_like(at) + length
    for _ in range(steps):
        middle, far = (first + first_end) // 2, (last + last_end) // 2
        near_id = gl.load(ids + middle, mask=inside & (first < first_end), other=0)
        far_id = gl.load(ids + far, mask=inside & (last < last_end), other=0)
        before = (near_id < mine) & (first < first_end)
        first, first_end = gl.where(before, middle + 1, first), gl.where(before, first_end, middle)
        before = (far_id <= mine) & (last < last_end)
        last, last_end = gl.where(before, far + 1, last), gl.where(before, last_end, far)
    gl.store(spans + 2 * gl.program_id(1) * length + at, first, mask=inside)
    gl.store(spans + (2 * gl.program_id(1) + 1) * length + at, last, mask=inside)
