"""Gradients of attention for head sizes above 128: a warpgroup for scores and queries, and two for keys and values.

A program has 64 keys. Gradients of 256 columns leave registers for half of those of keys and values in a warpgroup, and for no
others. So a third one computes scores, their weights and the gradients of both, which it hands on through shared memory, and
the gradients of queries. It is up to two blocks of queries ahead, so that the tensor core works for the others while it
computes exponentials.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.attend_backward_parts import gradient_of, weights_of
from weft.kernels.device.attend_backward_results import PIECE, Turns, add_piece, store_gradients
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

ROWS = 64
"""Keys of a program, and queries of a block."""
SLOTS = 2
"""Slots of blocks of queries, of all that is kept of them."""
READERS = 3
"""Warpgroups that read queries and gradients of results."""


@gl.aggregate
class WideMemory:
    """Shared memory: halves of the columns of keys and values, and two slots each of queries with statistics, gradients of
    results, weights, and gradients of scores. Barriers: for slots that are full (`ready`, `g_ready`) and free; for weights that
    are stored (`weighed`), gradients of scores (`exchanged`), and both that have been read (`consumed`); for the end of all
    reads of keys (`closing`); and turns, in order."""

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
    weighed: gl.shared_memory_descriptor
    exchanged: gl.shared_memory_descriptor
    consumed: gl.shared_memory_descriptor
    closing: gl.shared_memory_descriptor
    turns: Turns | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """Everything free."""
        keys: gl.constexpr = [ROWS, plan.width // 2]
        values: gl.constexpr = [ROWS, plan.v_width // 2]
        square: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
        return WideMemory(
            gl.allocate_shared_memory(plan.dtype, [2, *keys], plan.layout(keys)),
            gl.allocate_shared_memory(plan.dtype, [2, *values], plan.layout(values)),
            gl.allocate_shared_memory(plan.dtype, [SLOTS * 2, *keys], plan.layout(keys)),
            gl.allocate_shared_memory(plan.dtype, [SLOTS * 2, *values], plan.layout(values)),
            gl.allocate_shared_memory(gl.float32, [SLOTS, 1, ROWS], plan.vector_layout),
            gl.allocate_shared_memory(gl.float32, [SLOTS, 1, ROWS], plan.vector_layout),
            gl.allocate_shared_memory(plan.dtype, [SLOTS, ROWS, ROWS], square),
            gl.allocate_shared_memory(plan.dtype, [SLOTS, ROWS, ROWS], square),
            barriers_of(1, 1), barriers_of(SLOTS, 1), barriers_of(SLOTS, READERS), barriers_of(SLOTS, 1),
            barriers_of(SLOTS, READERS), barriers_of(SLOTS, 1), barriers_of(SLOTS, 1), barriers_of(SLOTS, 2),
            barriers_of(1, READERS), Turns.make(1) if plan.ordered else None, plan,
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
        slot, phase = i % SLOTS, (i // SLOTS & 1) ^ 1
        mbarrier.wait(memory.free.index(slot), phase)
        bar = memory.ready.index(slot)
        mbarrier.expect(bar, 2 * (q.block_type.nbytes + scaled.block_type.nbytes))
        for half in gl.static_range(2):
            rows = memory.q.index(slot * 2 + half).reshape(q.block_type.shape)
            tma.async_load(q, share.queries_at(member, query, half * (plan.width // 2)), bar, rows)
        tma.async_load(scaled, [share.line(member), share.base + query], bar, memory.scaled.index(slot))
        tma.async_load(delta, [share.line(member), share.base + query], bar, memory.delta.index(slot))
        mbarrier.wait(memory.g_free.index(slot), phase)
        bar = memory.g_ready.index(slot)
        mbarrier.expect(bar, 2 * g.block_type.nbytes)
        for half in gl.static_range(2):
            rows = memory.g.index(slot * 2 + half).reshape(g.block_type.shape)
            tma.async_load(g, share.queries_at(member, query, half * (plan.v_width // 2)), bar, rows)
        member, query = share.following(member, query)


@jit
def weigh(memory, total, share, factor):
    """The warpgroup of scores and of the gradients of queries."""
    mbarrier.wait(memory.kv_ready.index(0), 0)
    tiles = share.tiles()
    if tiles > 0:
        member, query = 0, share.start()
        s = wide_scores_of(memory, 0)
        for i in range(tiles):
            slot = i % SLOTS
            s = warpgroup_mma_wait(0, s)
            exchange(memory, share, i, member, query, s, factor)
            first, second = part_of_queries(memory, slot, 0), part_of_queries(memory, slot, 1)
            first = warpgroup_mma_wait(1, first)
            if memory.plan.ordered:
                mbarrier.wait(memory.turns.allowed.index(slot), i // SLOTS & 1)
            add_half(total, share, member, query, 0, first)
            # The last block's scores are computed once more, for nothing.
            s = wide_scores_of(memory, gl.minimum(i + 1, tiles - 1))
            second = warpgroup_mma_wait(1, second)
            add_half(total, share, member, query, 1, second)
            if memory.plan.ordered:
                memory.turns.done(i)
            member, query = share.following(member, query)
        warpgroup_mma_wait(0, s)
    mbarrier.arrive(memory.closing.index(0), count=1)


@jit
def wide_scores_of(memory, i):
    """Issue the scores of block number `i` of the program, keys by queries."""
    slot = i % SLOTS
    mbarrier.wait(memory.ready.index(slot), i // SLOTS & 1)
    s = gl.zeros([ROWS, ROWS], gl.float32, memory.plan.s_registers)
    for half in gl.static_range(2):
        q = memory.q.index(slot * 2 + half).permute([1, 0])
        s = warpgroup_mma(memory.k.index(half), q, s, use_acc=half > 0, is_async=True)
    return s


@jit
def exchange(memory, share, i, member, query, s, factor):
    """Store the weights of a block's scores, and their gradients."""
    plan: gl.constexpr = memory.plan
    vector: gl.constexpr = gl.SliceLayout(0, plan.s_registers)
    slot, phase = i % SLOTS, i // SLOTS & 1
    mbarrier.wait(memory.g_ready.index(slot), phase)
    dp = gl.zeros([ROWS, ROWS], gl.float32, plan.s_registers)
    for half in gl.static_range(2):
        g = memory.g.index(slot * 2 + half).permute([1, 0])
        dp = warpgroup_mma(memory.v.index(half), g, dp, use_acc=half > 0, is_async=True)
    gl.schedule_barrier()
    scaled = memory.scaled.index(slot).reshape([ROWS]).load(vector)
    p, slopes = weights_of(share, member, share.key, query, s, scaled, factor)
    mbarrier.wait(memory.consumed.index(slot), phase ^ 1)
    memory.weights.index(slot).store(p.to(plan.dtype))
    fence_async_shared()
    mbarrier.arrive(memory.weighed.index(slot), count=1)
    dp = warpgroup_mma_wait(0, dp)
    mbarrier.arrive(memory.g_free.index(slot), count=1)
    delta = memory.delta.index(slot).reshape([ROWS]).load(vector)
    ds = gradient_of(p, dp, delta, slopes, plan)
    memory.scores.index(slot).store(ds)
    fence_async_shared()
    mbarrier.arrive(memory.exchanged.index(slot), count=1)
    mbarrier.arrive(memory.free.index(slot), count=1)


@jit
def part_of_queries(memory, slot, half: gl.constexpr):
    """Issue the product for half of the columns of the gradients of queries."""
    plan: gl.constexpr = memory.plan
    dq = gl.zeros([ROWS, plan.width // 2], gl.float32, plan.registers_of(plan.width // 2))
    scores = memory.scores.index(slot).permute([1, 0])
    return warpgroup_mma(scores, memory.k.index(half), dq, use_acc=False, is_async=True)


@jit
def add_half(total, share, member, query, half: gl.constexpr, dq):
    """Add half of the columns of the gradients of a block's queries."""
    for part in gl.static_range(2):
        piece = gl.convert_layout(dq[:, part * PIECE : part * PIECE + PIECE], share.extents.plan.registers_of(PIECE))
        add_piece(total, share.piece(member, query, half * 2 + part), piece)


@jit
def consume_wide(which: gl.constexpr, memory, dk, dv, share, scale):
    """A warpgroup of half of the columns of the gradients of keys and values."""
    plan: gl.constexpr = memory.plan
    of_k: gl.constexpr = plan.registers_of(plan.width // 2)
    of_v: gl.constexpr = plan.registers_of(plan.v_width // 2)
    # As in `consume`, two zeros in different registers.
    grad_k = gl.full([ROWS, plan.width // 2], -0.0, gl.float32, of_k)
    grad_v = gl.zeros([ROWS, plan.v_width // 2], gl.float32, of_v)
    # Also without blocks: gradients are stored where keys and values arrive.
    mbarrier.wait(memory.kv_ready.index(0), 0)
    for i in range(share.tiles()):
        slot, phase = i % SLOTS, i // SLOTS & 1
        mbarrier.wait(memory.weighed.index(slot), phase)
        grad_v = warpgroup_mma(memory.weights.index(slot), memory.g.index(slot * 2 + which), grad_v, is_async=True)
        mbarrier.wait(memory.exchanged.index(slot), phase)
        grad_k = warpgroup_mma(memory.scores.index(slot), memory.q.index(slot * 2 + which), grad_k, is_async=True)
        grad_v = warpgroup_mma_wait(1, grad_v)
        mbarrier.arrive(memory.g_free.index(slot), count=1)
        grad_k = warpgroup_mma_wait(0, grad_k)
        mbarrier.arrive(memory.free.index(slot), count=1)
        mbarrier.arrive(memory.consumed.index(slot), count=1)
    keys, values = (share.keys_at(share.key, which * (width // 2)) for width in (plan.width, plan.v_width))
    store_gradients(memory, which, grad_k * scale, grad_v, dk, dv, keys, values)
