"""Decode attention with a latent cache (multi-head latent attention, DeepSeek-V2): one head of keys, whose first elements are
the values, so that a block is loaded once for both products.

Results of 64 rows and 512 columns do not fit in the registers of one warpgroup. So two consumers share the rows, and each has
half of the columns of the results, left or right. They visit blocks in pairs: the first consumer computes the scores of the
first block of a pair, the second one those of the second block.

    first consumer                              second consumer
    S0 = Q K0                                   S1 = Q K1
    maxima of S0 -> shared memory    (MET)      maxima of both
    P0; left += P0 V0                           P1 -> shared memory
    left += P1 V1                 (WEIGHED)     right += P1 V1
    P0, by the maxima of both, -> memory (FADED)
                                                right += P0 V0

So each reads the weights of one block from its registers and of the other one from shared memory, where they take the place of
the last 64 columns of the keys, which are no values. The memory of a block is free in two parts: that of the columns which only
the consumer reads that has its scores, `early`, and the rest, `late`; each is loaded again as soon as it is free.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.decode_plan import LatentPlan
from weft.kernels.device.attend import LOWEST, Softmax, await_tile
from weft.kernels.device.attend_parts import FIELDS, Problem
from weft.kernels.device.attend_scores import Scoring
from weft.kernels.device.decode import (
    SIZES,
    Pointer,
    Source,
    Steps,
    conclude,
    copy_rows,
    finish_part,
    finish_parts,
    load_queries,
    pages_of,
    store_tile,
)
from weft.kernels.device.decode_schedule import LANES, Cache, share_of, walk_of
from weft.kernels.device.rings import barriers_of
from weft.language.extra.cuda import gdc_launch_dependents, gdc_wait
from weft.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    named_barrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

MET, WEIGHED, FADED, SUMMED = 1, 2, 3, 4
"""Named barriers of both consumers: in shared memory are the row maxima of the first block of a pair, the weights of the second
one with the maxima of both, the weights of the first one, and sums."""


@gl.aggregate
class LatentBuffers:
    """Shared memory: tiles with their queries, a ring of pairs of blocks of the cache, with barriers for both parts of a block,
    and what the consumers tell each other of rows: maxima and sums."""

    tiles: gl.shared_memory_descriptor
    q: gl.shared_memory_descriptor
    k: gl.shared_memory_descriptor
    tops: gl.shared_memory_descriptor
    totals: gl.shared_memory_descriptor
    q_ready: gl.shared_memory_descriptor
    q_free: gl.shared_memory_descriptor
    early_ready: gl.shared_memory_descriptor
    early_free: gl.shared_memory_descriptor
    late_ready: gl.shared_memory_descriptor
    late_free: gl.shared_memory_descriptor
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """All slots free."""
        numbers: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        slots: gl.constexpr = 2 * plan.pairs
        return LatentBuffers(
            gl.allocate_shared_memory(gl.int32, [plan.q_stages, FIELDS], numbers),
            gl.allocate_shared_memory(plan.dtype, [plan.q_stages, *plan.q_block], plan.layout(plan.q_block)),
            gl.allocate_shared_memory(plan.dtype, [slots, *plan.k_block], plan.layout(plan.k_block)),
            gl.allocate_shared_memory(gl.float32, [plan.consumers, plan.rows], numbers),
            gl.allocate_shared_memory(gl.float32, [plan.consumers, plan.rows], numbers),
            barriers_of(plan.q_stages, 1), barriers_of(plan.q_stages, plan.consumers),
            barriers_of(slots, plan.arrivals), barriers_of(slots, 1),
            barriers_of(slots, plan.arrivals), barriers_of(slots, 1),
            plan,
        )  # fmt: skip

    @jit
    def queries(self, index, which: gl.constexpr):
        """The queries of tile number `index` of the program, for both consumers."""
        return self.q.index(index % self.plan.q_stages)

    @jit
    def results(self, index, which: gl.constexpr):
        """The same memory, for a consumer's columns of the results."""
        plan: gl.constexpr = self.plan
        shape: gl.constexpr = [plan.consumers, *plan.o_block]
        return self.queries(index, which).reinterpret(plan.dtype, shape, plan.layout(plan.o_block)).index(which)

    @jit
    def slot(self, pair, which):
        """The slot of a block of a pair."""
        return pair % self.plan.pairs * 2 + which

    @jit
    def values(self, pair, which: gl.constexpr, block: gl.constexpr):
        """A consumer's columns of the values of a block."""
        return self.k.index(self.slot(pair, block)).slice(which * self.plan.v_size, self.plan.v_size, dim=1)

    @jit
    def weights(self, pair, block: gl.constexpr):
        """The weights of a block, [rows, keys], in place of the columns behind the values."""
        plan: gl.constexpr = self.plan
        shape: gl.constexpr = plan.rows, plan.block_n
        return self.tiles_of(self.slot(pair, block), plan.block_n).index(TILES - 1).reinterpret(
            plan.dtype, shape, plan.layout(shape)
        )  # fmt: skip

    @jit
    def tiles_of(self, slot, rows: gl.constexpr):
        """A block as the tiles it is made of, of 64 columns and some rows: first those of the first columns."""
        plan: gl.constexpr = self.plan
        shape: gl.constexpr = rows, plan.size // TILES
        memory = self.k.index(slot)
        return memory.reinterpret(plan.dtype, [TILES * (plan.block_n // rows), *shape], plan.layout(shape))


TILES = 9
"""Tiles of 64 columns in a block."""


# The producer


@jit
def produce_latent(buffers, q, k, k_steps, cache, problem):
    """Publish the parts of the program, and load the queries of each and the pairs of blocks that it visits."""
    plan: gl.constexpr = buffers.plan
    pair, index = 0, 0
    walk = walk_of(cache, problem)
    while walk.at < walk.stop:
        tile, share, walk = walk.part(cache, problem)
        entries = gl.zeros([LANES], gl.int32, gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0]))
        for i in range(0, tile.end - tile.first, 2):
            if plan.page > 0 and not plan.gathered and i % (LANES // plan.pieces) == 0:
                entries = cache.entries(tile, tile.end - 1 - i)
            for late in gl.static_range(2):
                for which in gl.static_range(2):
                    load_part(buffers, k, k_steps, pair, i + which, which, late, tile, entries, cache)
                if late == 0 and i == 0:
                    # Behind the first keys, since it may have to wait until the results of an earlier tile are stored.
                    load_queries(buffers, q, index, tile, problem, share)
            pair += 1
        index += 1
    finish_parts(buffers, index)


@jit
def load_part(
    buffers, k, k_steps, pair, number, which: gl.constexpr, late: gl.constexpr, tile, entries, cache
):  # fmt: skip
    """Load the columns of block `number` of a part that belong together, when their memory is free; zeros instead of a second
    block behind the last one."""
    plan: gl.constexpr = buffers.plan
    slot, phase = buffers.slot(pair, which), (pair // plan.pairs & 1) ^ 1
    block = block_of(tile, number)
    ready = (buffers.late_ready if late else buffers.early_ready).index(slot)
    free = (buffers.late_free if late else buffers.early_free).index(slot)
    columns: gl.constexpr = parts_of(which, late, plan)
    if plan.gathered:
        page = pages_of(cache, tile, block)
        mbarrier.wait(free, phase)
        for first, size in columns:
            memory = buffers.k.index(slot).slice(first, size, dim=1)
            copy_rows(k + first, k_steps, memory, tile, block, page, size, plan)
        async_copy.mbarrier_arrive(ready, increment_count=False)
    else:
        mbarrier.wait(free, phase)
        mbarrier.expect(ready, plan.block_n * sum_of(columns) * plan.dtype.itemsize)
        memory = buffers.tiles_of(slot, plan.piece)
        for piece in gl.static_range(plan.pieces):
            first, row = tile.batch, block * plan.block_n
            if plan.page > 0:
                first = page_of(entries, number, piece, plan)
                first = gl.where(block < 0, -1, first)
                row = (row + piece * plan.piece) % plan.page
            for start, size in columns:
                for column in gl.static_range(start, start + size, plan.size // TILES):
                    part = memory.index(column // (plan.size // TILES) * plan.pieces + piece)
                    tma.async_load(k, [first, tile.head, row, column], ready, part.reshape(k.block_type.shape))


@jit
def page_of(entries, i, piece: gl.constexpr, plan: gl.constexpr):
    """The page of a piece of block `i` of a part."""
    behind = i % (LANES // plan.pieces) * plan.pieces + plan.pieces - 1 - piece
    return gl.sum(gl.where(gl.arange(0, LANES, entries.layout) == behind, entries, 0))


@gl.constexpr_function
def parts_of(which, late, plan):
    """First columns and sizes of the parts of a block of a pair that are loaded together."""
    size = plan.v_size
    return ((size - which * size, size), (2 * size, plan.size - 2 * size)) if late else ((which * size, size),)


@gl.constexpr_function
def sum_of(columns):
    """Columns of all parts."""
    return sum(size for _, size in columns)


@jit
def block_of(tile, number):
    """The block that a part visits as `number`; -1 behind the last one."""
    return gl.where(number < tile.end - tile.first, tile.end - 1 - number, -1)


# The consumers


@jit
def consume_latent(which: gl.constexpr, buffers, out, lse, partials, counters, problem, scoring):
    """A consumer's columns of all parts of the program."""
    plan: gl.constexpr = buffers.plan
    pair, index = 0, 0
    tile = await_tile(buffers, index)
    while tile.end > 0:
        q = buffers.queries(index, which)
        o = gl.zeros([plan.rows, plan.v_size], gl.float32, plan.o_registers)
        top = gl.full([plan.rows], LOWEST, gl.float32, gl.SliceLayout(1, plan.s_registers))
        softmax = Softmax(top, gl.zeros_like(top), top, plan)
        for i in range(0, tile.end - tile.first, 2):
            s = masked(scores(which, buffers, q, pair), tile, block_of(tile, i + which) * plan.block_n, plan)
            behind = tile.keys - (tile.end - 1 - i) * plan.block_n
            visit: gl.constexpr = second if which else first
            o, softmax = visit(buffers, s, o, softmax, pair, behind, scoring.scale)
            pair += 1
        buffers.totals.index(which).store(softmax.total)
        named_barrier.sync(SUMMED, 8)
        total = softmax.total + buffers.totals.index(1 - which).load(softmax.total.layout)
        share = share_of(buffers.tiles.index(index % plan.q_stages))
        if share.count == 1:
            # Both consumers have read the queries.
            conclude(which, buffers, out, lse, problem, scoring, index, o, softmax.top * scoring.scale, total, 0)
            store_tile(which, buffers, out, problem, index)
            mbarrier.arrive(buffers.q_free.index(index % plan.q_stages), count=1)
        else:
            finish_part(
                which, buffers, out, lse, partials, counters, problem, scoring, index, share, o, softmax.top, total,
                scoring.scale,
            )  # fmt: skip
        index += 1
        tile = await_tile(buffers, index)


@jit
def scores(which: gl.constexpr, buffers, q, pair):
    """The scores of a consumer's block of a pair, with the early columns first."""
    plan: gl.constexpr = buffers.plan
    slot, phase = buffers.slot(pair, which), pair // plan.pairs & 1
    memory = buffers.k.index(slot)
    s = gl.zeros([plan.rows, plan.block_n], gl.float32, plan.s_registers)
    for late in gl.static_range(2):
        mbarrier.wait((buffers.late_ready if late else buffers.early_ready).index(slot), phase)
        if plan.gathered:
            fence_async_shared()
        for start, size in parts_of(which, late, plan):
            keys = memory.slice(start, size, dim=1).permute([1, 0])
            s = warpgroup_mma(q.slice(start, size, dim=1), keys, s, use_acc=late > 0, is_async=True)
    return warpgroup_mma_wait(0, s)


@jit
def first(buffers, s, o, softmax, pair, behind, factor):
    """The first consumer's way through a pair of blocks, the first one having `behind` keys or more: from its scores to the
    left columns of the results."""
    plan: gl.constexpr = buffers.plan
    top = gl.maximum(softmax.top, gl.max(s, axis=1))
    buffers.tops.index(0).store(top)
    named_barrier.arrive(MET, 8)
    softmax, weights = weighed(softmax, s, top, factor)
    values = buffers.values(pair, 0, 0)
    clear_latent(values, behind, plan)
    o = warpgroup_mma(softmax.as_operand(weights), values, softmax.scaled(o), is_async=True)
    named_barrier.sync(WEIGHED, 8)
    top = buffers.tops.index(1).load(top.layout)
    old = gl.exp2((softmax.top - top) * factor)
    buffers.weights(pair, 0).store((weights * old[:, None]).to(plan.dtype))
    fence_async_shared()
    named_barrier.arrive(FADED, 8)
    softmax = Softmax(top, softmax.total * old, old, plan)
    o = warpgroup_mma_wait(0, o)
    mbarrier.arrive(buffers.early_free.index(buffers.slot(pair, 0)), count=1)
    o = softmax.scaled(o)
    other = buffers.slot(pair, 1)
    await_other(buffers, other, pair)
    o = warpgroup_mma(buffers.weights(pair, 1), buffers.values(pair, 0, 1), o, is_async=True)
    o = warpgroup_mma_wait(0, o)
    mbarrier.arrive(buffers.late_free.index(other), count=1)
    return o, softmax


@jit
def second(buffers, s, o, softmax, pair, behind, factor):
    """The second consumer's way: from the scores of the second block to the right columns of the results."""
    plan: gl.constexpr = buffers.plan
    mine = gl.max(s, axis=1)
    named_barrier.sync(MET, 8)
    top = gl.maximum(buffers.tops.index(0).load(mine.layout), mine)
    buffers.tops.index(1).store(top)
    softmax, weights = weighed(softmax, s, top, factor)
    buffers.weights(pair, 1).store(weights.to(plan.dtype))
    fence_async_shared()
    named_barrier.arrive(WEIGHED, 8)
    o = warpgroup_mma(softmax.as_operand(weights), buffers.values(pair, 1, 1), softmax.scaled(o), is_async=True)
    named_barrier.sync(FADED, 8)
    other = buffers.slot(pair, 0)
    await_other(buffers, other, pair)
    values = buffers.values(pair, 1, 0)
    clear_latent(values, behind, plan)
    o = warpgroup_mma(buffers.weights(pair, 0), values, o, is_async=True)
    o = warpgroup_mma_wait(1, o)
    mbarrier.arrive(buffers.early_free.index(buffers.slot(pair, 1)), count=1)
    o = warpgroup_mma_wait(0, o)
    mbarrier.arrive(buffers.late_free.index(other), count=1)
    return o, softmax


@jit
def weighed(softmax, s, top, factor):
    """The softmax with new maxima, and the weights of scores."""
    weights = gl.exp2(s * factor - (top * factor)[:, None])
    old = gl.exp2((softmax.top - top) * factor)
    return Softmax(top, softmax.total * old + gl.sum(weights, axis=1), old, softmax.plan), weights


@jit
def await_other(buffers, slot, pair):
    """Wait for the part of the other consumer's block that has this one's values."""
    plan: gl.constexpr = buffers.plan
    mbarrier.wait(buffers.late_ready.index(slot), pair // plan.pairs & 1)
    if plan.gathered:
        fence_async_shared()


@jit
def masked(s, tile, key, plan: gl.constexpr):
    """Scores of keys from `key` on, which is negative behind the last block; -inf where a row does not see a key."""
    if (key + s.shape[1] > tile.keys - tile.queries + 1) | (key < 0):
        row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers)) % plan.length
        column = key + gl.arange(0, s.shape[1], gl.SliceLayout(0, plan.s_registers))
        last = gl.minimum(row + (tile.keys - tile.queries), tile.keys - 1)
        s = gl.where((column[None, :] <= last[:, None]) & (column >= 0)[None, :], s, -float("inf"))
    return s


@jit
def clear_latent(values, count, plan: gl.constexpr):
    """Set a consumer's columns of the values behind the first `count` of a block to zero."""
    if not plan.gathered and count < plan.block_n:
        layout: gl.constexpr = plan.line_registers(8)
        step: gl.constexpr = 16
        for first in gl.static_range(0, plan.block_n, step):
            if count < first + step:
                part = values.slice(first, step)
                row = first + gl.arange(0, step, gl.SliceLayout(1, layout))
                part.store(gl.where((row < count)[:, None], part.load(layout), 0.0))
        fence_async_shared()


UNKNOWN = [name for name in SIZES if name not in ("v_steps", "guessed", "left", "v_scale", "inner")]
"""Arguments that are not specialised on."""


@jit(fast_math=["exp2", "div"], do_not_specialize=UNKNOWN)
def decode_latent(
    q: tma.tensor_descriptor, k: Source, out: tma.tensor_descriptor, lse: Pointer, k_steps: Steps, lengths: Pointer,
    table: Pointer, partials: gl.tensor, counters: gl.tensor, scale: float, batch: int, kv_heads: int, members: int,
    queries: int, keys: int, width: int, pages: int, groups: int, plan: gl.constexpr[LatentPlan],
) -> None:  # fmt: skip
    """Decode attention with a latent cache; see the module, and `decode`."""
    buffers = LatentBuffers.make(plan)
    gdc_launch_dependents()
    gdc_wait()
    problem = Problem(batch, kv_heads, members, queries, keys, 0, 0, 0, 0, None, None, None, None, None, (), plan)
    scoring = Scoring(scale, 0.0, None, None, (), (), (), plan)
    cache = Cache(lengths, table, width, pages, groups, plan, False)
    given = buffers, out, lse, partials, counters, problem, scoring
    roles = [(consume_latent, (which, *given)) for which in range(plan.consumers)]
    roles = [*roles, (produce_latent, (buffers, q, k, k_steps, cache, problem))]
    gl.warp_specialize(roles, plan.warps, plan.registers)
