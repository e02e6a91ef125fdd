"""Gradients of attention for head sizes above 128: two consumer warpgroups with half of the columns each.

A program has 64 keys. Gradients of 256 columns leave registers for half of them in a warpgroup, so that scores are what
consumers share: each computes those of half of a block's 64 queries, and both exchange weights and their gradients through
shared memory. All products for gradients then have 64 rows, and half of the columns.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_backward_parts import gradient_of, weights_of
from weft.kernels.device.attend_backward_results import PIECE, Handed, add_piece, store_gradients
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

ROWS = 64
"""Keys of a program, and queries of a block."""
HALF = 32
"""Queries of a consumer's scores."""


@gl.aggregate
class WideMemory:
    """Shared memory: halves of the columns of keys and values, a ring of queries with statistics, gradients of results, weights
    and gradients of scores (two buffers each), and barriers; in order also pieces of dQ on their way to global memory."""

    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q: gl.shared_memory_descriptor
    g: gl.shared_memory_descriptor
    scaled: gl.shared_memory_descriptor
    delta: gl.shared_memory_descriptor
    weights: gl.shared_memory_descriptor
    scores: gl.shared_memory_descriptor
    kv_ready: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    free: gl.shared_memory_descriptor
    g_ready: gl.shared_memory_descriptor
    g_free: gl.shared_memory_descriptor
    exchanged: gl.shared_memory_descriptor
    closing: gl.shared_memory_descriptor
    handed: Handed | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """Everything free."""
        keys: gl.constexpr = [ROWS, plan.width // 2]
        values: gl.constexpr = [ROWS, plan.v_width // 2]
        stages: gl.constexpr = plan.stages
        square: gl.constexpr = gl.NVMMASharedLayout(64, 16, 2)
        return WideMemory(
            gl.allocate_shared_memory(plan.dtype, [2, *keys], plan.layout(keys)),
            gl.allocate_shared_memory(plan.dtype, [2, *values], plan.layout(values)),
            gl.allocate_shared_memory(plan.dtype, [stages * 2, *keys], plan.layout(keys)),
            gl.allocate_shared_memory(plan.dtype, [2, *values], plan.layout(values)),
            gl.allocate_shared_memory(gl.float32, [stages, 1, ROWS], plan.vector_layout),
            gl.allocate_shared_memory(gl.float32, [stages, 1, ROWS], plan.vector_layout),
            gl.allocate_shared_memory(plan.dtype, [2, ROWS, ROWS], square),
            gl.allocate_shared_memory(plan.dtype, [2, ROWS, ROWS], square),
            barriers_of(1, 1), barriers_of(stages, 1), barriers_of(stages, 2), barriers_of(1, 1), barriers_of(1, 2),
            barriers_of(1, 2), barriers_of(1, 2), Handed.make(plan) if plan.ordered else None, plan,
        )  # fmt: skip


@jit
def produce_wide(memory, q, k, v, g, scaled, delta, share):
    """Load the program's keys and values, and all blocks of queries that see them, half of the columns at a time."""
    plan: gl.constexpr = memory.plan
    bar = memory.kv_ready.index(0)
    mbarrier.expect(bar, 2 * (k.block_type.nbytes + v.block_type.nbytes))
    for half in gl.static_range(2):
        keys, values = (share.keys_at(share.key, half * (width // 2)) for width in (plan.width, plan.v_width))
        tma.async_load(k, keys, bar, memory.k.index(half).reshape(k.block_type.shape))
        tma.async_load(v, values, bar, memory.v.index(half).reshape(v.block_type.shape))
    member, query = 0, share.start()
    for i in range(share.tiles()):
        slot = i % plan.stages
        mbarrier.wait(memory.free.index(slot), (i // plan.stages & 1) ^ 1)
        bar = memory.ready.index(slot)
        mbarrier.expect(bar, 2 * (q.block_type.nbytes + scaled.block_type.nbytes))
        for half in gl.static_range(2):
            rows = memory.q.index(slot * 2 + half).reshape(q.block_type.shape)
            tma.async_load(q, share.queries_at(member, query, half * (plan.width // 2)), bar, rows)
        tma.async_load(scaled, [share.line(member), share.base + query], bar, memory.scaled.index(slot))
        tma.async_load(delta, [share.line(member), share.base + query], bar, memory.delta.index(slot))
        mbarrier.wait(memory.g_free.index(0), (i & 1) ^ 1)
        bar = memory.g_ready.index(0)
        mbarrier.expect(bar, 2 * g.block_type.nbytes)
        for half in gl.static_range(2):
            rows = memory.g.index(half).reshape(g.block_type.shape)
            tma.async_load(g, share.queries_at(member, query, half * (plan.v_width // 2)), bar, rows)
        member, query = share.following(member, query)


@jit
def consume_wide(which: gl.constexpr, memory, total, dk, dv, share, factor, scale):
    """A consumer: half of the columns of the gradients of keys and values, and of those of queries."""
    plan: gl.constexpr = memory.plan
    of_k: gl.constexpr = plan.registers_of(plan.width // 2)
    of_v: gl.constexpr = plan.registers_of(plan.v_width // 2)
    # As in `consume`, two zeros in different registers.
    grad_k = gl.full([ROWS, plan.width // 2], -0.0, gl.float32, of_k)
    grad_v = gl.zeros([ROWS, plan.v_width // 2], gl.float32, of_v)
    mbarrier.wait(memory.kv_ready.index(0), 0)
    tiles = share.tiles()
    if tiles > 0:
        member, query = 0, share.start()
        s = wide_scores_of(memory, which, 0)
        for i in range(tiles):
            slot = i % plan.stages
            s = warpgroup_mma_wait(0, s)
            exchange(which, memory, share, i, member, query, s, factor)
            weights, scores = memory.weights.index(i & 1), memory.scores.index(i & 1)
            grad_v = warpgroup_mma(weights, memory.g.index(which), grad_v, is_async=True)
            grad_k = warpgroup_mma(scores, memory.q.index(slot * 2 + which), grad_k, is_async=True)
            dq = gl.zeros([ROWS, plan.width // 2], gl.float32, of_k)
            dq = warpgroup_mma(scores.permute([1, 0]), memory.k.index(which), dq, use_acc=False, is_async=True)
            grad_v = warpgroup_mma_wait(2, grad_v)
            mbarrier.arrive(memory.g_free.index(0), count=1)
            # The last block's scores are computed once more, for nothing.
            s = wide_scores_of(memory, which, gl.minimum(i + 1, tiles - 1))
            grad_k, dq = warpgroup_mma_wait(1, (grad_k, dq))
            mbarrier.arrive(memory.free.index(slot), count=1)
            for half in gl.static_range(2):
                piece = gl.convert_layout(dq[:, half * PIECE : half * PIECE + PIECE], plan.registers_of(PIECE))
                if plan.ordered:
                    memory.handed.put(which, half, piece)
                else:
                    add_piece(total, share.piece(member, query, which * 2 + half), piece)
            member, query = share.following(member, query)
        warpgroup_mma_wait(0, s)
    keys, values = (share.keys_at(share.key, which * (width // 2)) for width in (plan.width, plan.v_width))
    store_gradients(memory, which, grad_k * scale, grad_v, dk, dv, keys, values)


@jit
def wide_scores_of(memory, which: gl.constexpr, i):
    """Issue the scores of a consumer's queries of block number `i` of the program, keys by queries."""
    plan: gl.constexpr = memory.plan
    slot = i % plan.stages
    mbarrier.wait(memory.ready.index(slot), i // plan.stages & 1)
    s = gl.zeros([ROWS, HALF], gl.float32, plan.s_registers)
    for half in gl.static_range(2):
        q = memory.q.index(slot * 2 + half).slice(which * HALF, HALF, dim=0).permute([1, 0])
        s = warpgroup_mma(memory.k.index(half), q, s, use_acc=half > 0, is_async=True)
    return s


@jit
def exchange(which: gl.constexpr, memory, share, i, member, query, s, factor):
    """Store the weights of a consumer's scores and their gradients, and wait for those of the other's."""
    plan: gl.constexpr = memory.plan
    vector: gl.constexpr = gl.SliceLayout(0, plan.s_registers)
    slot = i % plan.stages
    mbarrier.wait(memory.g_ready.index(0), i & 1)
    dp = gl.zeros([ROWS, HALF], gl.float32, plan.s_registers)
    for half in gl.static_range(2):
        g = memory.g.index(half).slice(which * HALF, HALF, dim=0).permute([1, 0])
        dp = warpgroup_mma(memory.v.index(half), g, dp, use_acc=half > 0, is_async=True)
    gl.schedule_barrier()
    scaled = memory.scaled.index(slot).reshape([ROWS]).slice(which * HALF, HALF).load(vector)
    p, tangents = weights_of(share, member, share.key, query + which * HALF, s, scaled, factor)
    memory.weights.index(i & 1).slice(which * HALF, HALF, dim=1).store(p.to(plan.dtype))
    dp = warpgroup_mma_wait(0, dp)
    delta = memory.delta.index(slot).reshape([ROWS]).slice(which * HALF, HALF).load(vector)
    ds = gradient_of(p, dp, delta, tangents, plan)
    memory.scores.index(i & 1).slice(which * HALF, HALF, dim=1).store(ds)
    fence_async_shared()
    mbarrier.arrive(memory.exchanged.index(0), count=1)
    mbarrier.wait(memory.exchanged.index(0), i & 1)
