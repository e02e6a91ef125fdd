"""Decode attention with a latent cache (multi-head latent attention, DeepSeek-V2): one head of keys, whose first elements are
the values, so that a block is loaded once for both products.

Results of 64 rows and 512 columns do not fit in the registers of one warpgroup. So two consumers share the rows: each computes
the scores of half of a block's keys and half of the columns of the results, and they exchange row maxima and weights through
shared memory. The block of the next step is loaded meanwhile.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.decode_plan import LatentPlan
from weft.kernels.device.attend import LOWEST, Softmax, await_tile
from weft.kernels.device.attend_parts import FIELDS, Problem
from weft.kernels.device.attend_scores import LN_2, Scoring
from weft.kernels.device.decode import SIZES, Pointer, Source, Steps, finish_part, follow, produce, store_tile
from weft.kernels.device.decode_schedule import Cache, share_of
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    named_barrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

MET, WEIGHED, SUMMED = 1, 2, 3
"""Named barriers of both consumers: row maxima, weights, and sums are in shared memory."""


@gl.aggregate
class LatentBuffers:
    """Shared memory: tiles with their queries, a ring of blocks of the cache, the weights of a block, and what the consumers
    tell each other of rows: maxima and sums."""

    tiles: gl.shared_memory_descriptor
    q: gl.shared_memory_descriptor
    k: gl.shared_memory_descriptor
    p: gl.shared_memory_descriptor
    tops: gl.shared_memory_descriptor
    totals: gl.shared_memory_descriptor
    q_ready: gl.shared_memory_descriptor
    q_free: gl.shared_memory_descriptor
    k_ready: gl.shared_memory_descriptor
    k_free: gl.shared_memory_descriptor
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """All slots free."""
        numbers: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        weights: gl.constexpr = plan.rows, plan.block_n
        return LatentBuffers(
            gl.allocate_shared_memory(gl.int32, [plan.q_stages, FIELDS], numbers),
            gl.allocate_shared_memory(plan.dtype, [plan.q_stages, *plan.q_block], plan.layout(plan.q_block)),
            gl.allocate_shared_memory(plan.dtype, [plan.stages, *plan.k_block], plan.layout(plan.k_block)),
            gl.allocate_shared_memory(plan.dtype, weights, plan.layout(weights)),
            gl.allocate_shared_memory(gl.float32, [plan.consumers, plan.rows], numbers),
            gl.allocate_shared_memory(gl.float32, [plan.consumers, plan.rows], numbers),
            barriers_of(plan.q_stages, 1), barriers_of(plan.q_stages, plan.consumers),
            barriers_of(plan.stages, plan.arrivals), barriers_of(plan.stages, plan.consumers),
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
def exchanged(memory, which: gl.constexpr, mine, barrier: gl.constexpr):
    """What the other consumer has stored of the rows, when this one has stored its own."""
    memory.index(which).store(mine)
    named_barrier.sync(barrier, 8)
    return memory.index(1 - which).load(mine.layout)


@jit
def consume_latent(which: gl.constexpr, buffers, out, lse, partials, slots, counters, problem, scoring):
    """A consumer's columns of all parts of the program."""
    plan: gl.constexpr = buffers.plan
    n, index = 0, 0
    tile = await_tile(buffers, index)
    while tile.end > 0:
        q = buffers.queries(index, which)
        o = gl.zeros([plan.rows, plan.v_size], gl.float32, plan.o_registers)
        top = gl.full([plan.rows], LOWEST, gl.float32, gl.SliceLayout(1, plan.s_registers))
        softmax = Softmax(top, gl.zeros_like(top), top, plan)
        for i in range(tile.end - tile.first):
            o, softmax = visit(which, buffers, q, o, softmax, n, (tile.end - 1 - i) * plan.block_n, tile, scoring)
            n += 1
        total = softmax.total + exchanged(buffers.totals, which, softmax.total, SUMMED)
        softmax = Softmax(softmax.top, total, softmax.old, plan)
        share = share_of(buffers.tiles.index(index % plan.q_stages))
        if share.count == 1:
            finish_latent(which, buffers, out, lse, problem, scoring, index, tile, o, softmax)
        else:
            finish_part(
                which, buffers, out, lse, partials, slots, counters, problem, scoring, index, share, o, softmax,
                scoring.scale,
            )  # fmt: skip
        index += 1
        tile = await_tile(buffers, index)


@jit
def visit(which: gl.constexpr, buffers, q, o, softmax, n, key, tile, scoring):
    """Block number `n` of the program, at `key`: the scores of half of its keys, and the results of half of the columns."""
    plan: gl.constexpr = buffers.plan
    slot, half, factor = n % plan.stages, plan.block_n // plan.consumers, scoring.scale
    mbarrier.wait(buffers.k_ready.index(slot), n // plan.stages & 1)
    if plan.gathered:
        fence_async_shared()
    memory = buffers.k.index(slot)
    zeros = gl.zeros([plan.rows, half], gl.float32, plan.s_registers)
    s = warpgroup_mma(q, memory.slice(which * half, half).permute([1, 0]), zeros, use_acc=False, is_async=True)
    s = masked(warpgroup_mma_wait(0, s), tile, key + which * half, plan)
    mine = gl.max(s, axis=1)
    top = gl.maximum(softmax.top, gl.maximum(mine, exchanged(buffers.tops, which, mine, MET)))
    weights = gl.exp2(s * factor - (top * factor)[:, None])
    old = gl.exp2((softmax.top - top) * factor)
    softmax = Softmax(top, softmax.total * old + gl.sum(weights, axis=1), old, plan)
    buffers.p.slice(which * half, half, dim=1).store(weights.to(plan.dtype))
    values = memory.slice(which * plan.v_size, plan.v_size, dim=1)
    # Both consumers have their scores.
    clear_latent(values, tile.keys - key, plan)
    fence_async_shared()
    o = softmax.scaled(o)
    named_barrier.sync(WEIGHED, 8)
    o = warpgroup_mma_wait(0, warpgroup_mma(buffers.p, values, o, is_async=True))
    mbarrier.arrive(buffers.k_free.index(slot), count=1)
    return o, softmax


@jit
def masked(s, tile, key, plan: gl.constexpr):
    """Scores of keys from `key` on; -inf where a row does not see a key."""
    if key + s.shape[1] > tile.keys - tile.queries + 1:
        row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers)) % plan.length
        column = key + gl.arange(0, s.shape[1], gl.SliceLayout(0, plan.s_registers))
        last = gl.minimum(row + (tile.keys - tile.queries), tile.keys - 1)
        s = gl.where(column[None, :] <= last[:, None], s, -float("inf"))
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


@jit
def finish_latent(which: gl.constexpr, buffers, out, lse, problem, scoring, index, tile, o, softmax):
    """Divide a consumer's columns by the sums of weights, and store them; the first one stores the logarithms of the sums."""
    plan: gl.constexpr = buffers.plan
    nothing = softmax.total == 0.0
    o = Softmax(softmax.top, softmax.total, gl.where(nothing, 0.0, 1.0 / softmax.total), plan).scaled(o)
    # Both consumers have read the queries.
    memory = buffers.results(index, which)
    memory.store(o.to(plan.dtype))
    if plan.parts.lse and which == 0:
        row = gl.arange(0, plan.rows, gl.SliceLayout(1, plan.s_registers))
        member, query = tile.member + row // plan.length, row % plan.length
        head = (gl.cast(tile.batch, gl.int64) * problem.kv_heads + tile.head) * problem.members + member
        found = gl.where(nothing, -float("inf"), (softmax.top * scoring.scale + gl.log2(softmax.total)) * LN_2)
        gl.store(lse + head * problem.queries + query, found, mask=(member < problem.members) & (query < tile.queries))
    store_tile(which, buffers, out, memory, tile, problem)
    mbarrier.arrive(buffers.q_free.index(index % plan.q_stages), count=1)


UNKNOWN = [name for name in SIZES if name not in ("v_steps", "left", "v_scale", "inner")]
"""Arguments that are not specialised on."""


@jit(fast_math=["exp2", "div"], do_not_specialize=UNKNOWN)
def decode_latent(
    q: tma.tensor_descriptor, k: Source, out: tma.tensor_descriptor, lse: Pointer, k_steps: Steps, lengths: Pointer,
    table: Pointer, partials: gl.tensor, counters: gl.tensor, scale: float, batch: int, kv_heads: int, members: int,
    queries: int, keys: int, width: int, pages: int, plan: gl.constexpr[LatentPlan],
) -> None:  # fmt: skip
    """Decode attention with a latent cache; see the module, and `decode`."""
    buffers = LatentBuffers.make(plan)
    follow()
    problem = Problem(batch, kv_heads, members, queries, keys, 0, 0, 0, None, None, None, None, None, (), plan)
    scoring = Scoring(scale, 0.0, None, None, (), (), (), plan)
    cache = Cache(lengths, table, width, pages, plan)
    slots = 2 * (gl.num_programs(0) // gl.cdiv(members, plan.tile_heads))
    given = buffers, out, lse, partials, slots, counters, problem, scoring
    roles = [(consume_latent, (which, *given)) for which in range(plan.consumers)]
    roles = [*roles, (produce, (buffers, q, k, None, k_steps, None, cache, problem))]
    gl.warp_specialize(roles, plan.warps, plan.registers)
