"""Gradients of attention on Hopper: a producer warp, and two consumer warpgroups with 64 keys each.

A program has 128 keys of one head, and visits the blocks of queries that see one of them, of all query heads that share the
head. Scores are computed transposed, keys by queries, so that weights and their gradients are in registers the left operands of
the products for the gradients of values and keys, which stay in registers to the end:

    S = K Q^T, dP = V dO^T        P = exp2(S - lse), dS = P (dP - delta)
    dV += P dO, dK += dS Q        dQ += dS^T K

For dQ the consumers exchange dS through shared memory, and each computes 64 x 64 elements of the product and adds them to
float32 in global memory by vectors, in the order of its registers. They exchange dS a block later, so that they need not be in
step. At head size 128 they take turns: one computes weights and their gradients while the other's MMAs run. The scores of the
next block are issued before dQ is waited for, so that the tensor core has work while it is added up. `delta` is the sum of O dO
over a row; `prepare` computes it before, and `convert` rounds dQ after.
"""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.kernel import jit
from weft.kernels.attend_backward_plan import BackwardPlan
from weft.kernels.device.attend_backward_parts import Extents, gradient_of, sequence_of, weights_of
from weft.kernels.device.attend_backward_results import (
    PIECE,
    SLOTS,
    Turns,
    add_piece,
    loaded_piece,
    publish,
    store_gradients,
    watch,
)
from weft.kernels.device.attend_backward_wide import WideMemory, consume_wide, produce_wide, weigh
from weft.kernels.device.rings import barriers_of
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

ROWS = 64
"""Rows of a program of `prepare` and `convert`."""
HALF = 64
"""Keys of a consumer."""


@jit
def position_of(row, starts, sequences, queries, block_m: gl.constexpr):
    """The positions of rows of statistics, which are those of one sequence, and which of them there are."""
    if starts is None:
        return row, row < queries
    column = gl.program_id(0) * ROWS // block_m
    sequence = sequence_of(starts, sequences, column, block_m)
    start = gl.load(starts + sequence)
    query = row - (start // block_m + sequence) * block_m
    return start + query, query < gl.load(starts + sequence + 1) - start


@jit(do_not_specialize=["heads", "queries", "padded", "sequences"])
def prepare(
    out: gl.tensor, grad: gl.tensor, lse: gl.tensor, lse_grad: gl.tensor | None, scaled: gl.tensor, delta: gl.tensor,
    total: gl.tensor, turns: gl.tensor | None, sinks: gl.tensor | None, sink_parts: gl.tensor | None,
    starts: gl.tensor | None, o_batch: int, o_head: int, o_row: int, g_batch: int,
    g_head: int, g_row: int, heads: int, queries: int, padded: int, sequences: int, size: gl.constexpr[int],
    width: gl.constexpr[int], block_m: gl.constexpr[int],
) -> None:  # fmt: skip
    """`delta` and the logarithms in base 2, `scaled`, of rows padded to whole blocks; and dQ, `total`, set to zero.

    Rows without keys, and those behind the last one, get infinite logarithms, so that their weights are 0. `sink_parts` are
    the sums over a program's rows of the gradient of the head's sink, the key without a value."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows: gl.constexpr = gl.SliceLayout(1, layout)
    head = gl.program_id(1)
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, rows)
    position, inside = position_of(row, starts, sequences, queries, block_m)
    delta_of_row = gl.zeros([ROWS], gl.float32, rows)
    batch, member = gl.cast(head // heads, gl.int64), gl.cast(head % heads, gl.int64)
    for piece in gl.static_range((size + 63) // 64):
        column = piece * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))
        there = inside[:, None] & (column < size)[None, :]
        at = (gl.cast(position, gl.int64) * o_row)[:, None] + column[None, :]
        other = (gl.cast(position, gl.int64) * g_row)[:, None] + column[None, :]
        o = gl.load(out + (batch * o_batch + member * o_head) + at, mask=there, other=0)
        g = gl.load(grad + (batch * g_batch + member * g_head) + other, mask=there, other=0)
        delta_of_row += gl.sum(o.to(gl.float32) * g.to(gl.float32), axis=1)
    for piece in gl.static_range(width // 64):
        column = piece * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))
        start = total + (gl.cast(head, gl.int64) * padded) * width
        at = (gl.cast(row, gl.int64) * width)[:, None] + column[None, :]
        gl.store(start + at, gl.zeros([ROWS, 64], gl.float32, layout))
    first = gl.cast(head, gl.int64)
    logarithm = gl.load(lse + first * queries + position, mask=inside, other=-float("inf"))
    if lse_grad is not None:
        delta_of_row -= gl.load(lse_grad + first * queries + position, mask=inside, other=0)
    logarithm = gl.where(logarithm == -float("inf"), float("inf"), logarithm * 1.4426950408889634)
    if turns is not None:
        # The first counts programs.
        gl.store(turns + (gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)), 0)
        gl.store(turns + gl.num_programs(0) * gl.num_programs(1), 0)
    if sinks is not None:
        weight = gl.exp2(gl.load(sinks + head % heads) * 1.4426950408889634 - logarithm)
        gl.store(sink_parts + head * gl.num_programs(0) + gl.program_id(0), -gl.sum(weight * delta_of_row, axis=0))
    gl.store(scaled + first * padded + row, logarithm)
    gl.store(delta + first * padded + row, delta_of_row)


@jit(do_not_specialize=["heads", "queries", "padded", "sequences", "scale"])
def convert(
    total: gl.tensor, grad: gl.tensor, starts: gl.tensor | None, batch_stride: int, head_stride: int, row_stride: int,
    heads: int, queries: int, padded: int, sequences: int, scale: float, size: gl.constexpr[int], width: gl.constexpr[int],
    block_m: gl.constexpr[int],
) -> None:  # fmt: skip
    """The gradient of queries: the sums in float32 times the scale, rounded."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    head = gl.program_id(1)
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    position, inside_rows = position_of(row, starts, sequences, queries, block_m)
    start = grad + gl.cast(head // heads, gl.int64) * batch_stride + gl.cast(head % heads, gl.int64) * head_stride
    pieces: gl.constexpr = width // PIECE
    for piece in gl.static_range((size + PIECE - 1) // PIECE):
        column = piece * PIECE + gl.arange(0, PIECE, gl.SliceLayout(0, layout))
        inside = inside_rows[:, None] & (column < size)[None, :]
        number = (head * padded // ROWS + gl.program_id(0)) * pieces + piece
        x = gl.convert_layout(loaded_piece(total, number), layout) * scale
        gl.store(
            start + (gl.cast(position, gl.int64) * row_stride)[:, None] + column[None, :],
            x.to(grad.dtype.element_ty),
            mask=inside,
        )


@jit(do_not_specialize=["batch", "blocks"])
def add_sink_parts(parts: gl.tensor, grad: gl.tensor, batch: int, blocks: int) -> None:
    """The gradient of the sink of each head: the sum of the parts that programs of `prepare` have stored, in their order."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    total = gl.zeros([32], gl.float32, layout)
    for i in range(batch):
        first = (i * gl.num_programs(0) + gl.program_id(0)) * blocks
        for block in range(0, blocks, 32):
            at = block + gl.arange(0, 32, layout)
            total += gl.load(parts + first + at, mask=at < blocks, other=0)
    gl.store(grad + gl.program_id(0), gl.sum(total, axis=0))


@gl.aggregate
class Memory:
    """Shared memory: keys and values, a ring of queries with their gradients of results and statistics, one of gradients of
    scores, and barriers: for slots of queries that are full (`ready`) and free, for gradients of scores that both consumers
    have stored (`exchanged`) and read (`consumed`), for the turns of consumers, and for the end of all reads of keys
    (`closing`); and turns, in order."""

    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q: gl.shared_memory_descriptor
    g: gl.shared_memory_descriptor
    scaled: gl.shared_memory_descriptor
    delta: gl.shared_memory_descriptor
    scores: gl.shared_memory_descriptor
    kv_ready: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    free: gl.shared_memory_descriptor
    exchanged: gl.shared_memory_descriptor
    consumed: gl.shared_memory_descriptor
    turn: gl.shared_memory_descriptor | None
    closing: gl.shared_memory_descriptor
    turns: Turns | None
    plan: gl.constexpr

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """Everything free."""
        keys: gl.constexpr = [HALF, plan.width]
        queries: gl.constexpr = [plan.block_m, plan.width]
        stages: gl.constexpr = plan.stages
        buffers: gl.constexpr = plan.buffers
        return Memory(
            gl.allocate_shared_memory(plan.dtype, [2, *keys], plan.layout(keys)),
            gl.allocate_shared_memory(plan.dtype, [2, *keys], plan.layout(keys)),
            gl.allocate_shared_memory(plan.dtype, [stages, *queries], plan.layout(queries)),
            gl.allocate_shared_memory(plan.dtype, [stages, *queries], plan.layout(queries)),
            gl.allocate_shared_memory(gl.float32, [stages, 1, plan.block_m], plan.vector_layout),
            gl.allocate_shared_memory(gl.float32, [stages, 1, plan.block_m], plan.vector_layout),
            gl.allocate_shared_memory(plan.dtype, [2 * buffers, HALF, plan.block_m], plan.layout([HALF, plan.block_m])),
            barriers_of(1, 1), barriers_of(stages, 1), barriers_of(stages, 2), barriers_of(buffers, 2), barriers_of(buffers, 2),
            barriers_of(2, 1) if plan.turns else None, barriers_of(1, 2), Turns.make(2) if plan.ordered else None, plan,
        )  # fmt: skip

    @jit
    def statistics(self, vectors, slot):
        """A number for each query of a slot, as columns of scores."""
        return vectors.index(slot).reshape([self.plan.block_m]).load(gl.SliceLayout(0, self.plan.s_registers))


@jit
def produce(memory, q, k, v, g, scaled, delta, share):
    """Load the program's keys and values, and all blocks of queries that see them."""
    plan: gl.constexpr = memory.plan
    bar = memory.kv_ready.index(0)
    mbarrier.expect(bar, 4 * k.block_type.nbytes)
    for half in gl.static_range(2):
        at = share.keys_at(share.key + half * HALF, 0)
        tma.async_load(k, at, bar, memory.k.index(half).reshape(k.block_type.shape))
        tma.async_load(v, at, bar, memory.v.index(half).reshape(k.block_type.shape))
    member, query = 0, share.start()
    for i in range(share.tiles()):
        slot, at = i % plan.stages, share.queries_at(member, query, 0)
        mbarrier.wait(memory.free.index(slot), (i // plan.stages & 1) ^ 1)
        bar = memory.ready.index(slot)
        mbarrier.expect(bar, 2 * (q.block_type.nbytes + scaled.block_type.nbytes))
        tma.async_load(q, at, bar, memory.q.index(slot).reshape(q.block_type.shape))
        tma.async_load(g, at, bar, memory.g.index(slot).reshape(q.block_type.shape))
        tma.async_load(scaled, [share.line(member), share.base + query], bar, memory.scaled.index(slot))
        tma.async_load(delta, [share.line(member), share.base + query], bar, memory.delta.index(slot))
        member, query = share.following(member, query)


@jit
def consume(which: gl.constexpr, memory, total, dk, dv, share, factor, scale):
    """A consumer: the gradients of its 64 keys and values, and a part of those of queries."""
    plan: gl.constexpr = memory.plan
    sums: gl.constexpr = plan.registers_of(plan.width)
    # Two zeros, which are not the same registers: the loop would begin with a copy, during the first MMA.
    grad_k, grad_v = gl.full([HALF, plan.width], -0.0, gl.float32, sums), gl.zeros([HALF, plan.width], gl.float32, sums)
    mbarrier.wait(memory.kv_ready.index(0), 0)
    tiles = share.tiles()
    if tiles > 0:
        member, query = 0, share.start()
        # Those of the block before the first, which no one adds up.
        exchange(memory, which, 0, gl.zeros([HALF, plan.block_m], plan.dtype, plan.s_registers))
        s = scores_of(memory, which, 0)
        number = share.piece(member, query, which)
        for i in range(tiles):
            slot = i % plan.stages
            # While the scores are waited for: a load right before its use stalls the exponentials.
            scaled = memory.statistics(memory.scaled, slot) if plan.early else None
            if plan.turns:
                mbarrier.wait(memory.turn.index(which), (i & 1) ^ (1 - which))
            # Of all MMAs: ptxas does not see that those before the loop's end are complete, and serialises behind another wait.
            s = warpgroup_mma_wait(0, s)
            grad_k, grad_v, dq = tile_of(which, memory, share, i, member, query, s, scaled, grad_k, grad_v, factor)
            # The last block's scores are computed once more, for nothing.
            s = scores_of(memory, which, gl.minimum(i + 1, tiles - 1))
            dq = warpgroup_mma_wait(1, dq)
            mbarrier.arrive(memory.free.index(slot), count=1)
            mbarrier.arrive(memory.consumed.index(i % plan.buffers), count=1)
            if i > 0:
                add(memory, which, total, number, i - 1, dq)
            number = share.piece(member, query, which)
            member, query = share.following(member, query)
        warpgroup_mma_wait(0, s)
        dq = warpgroup_mma_wait(0, part_of_queries(memory, which, tiles))
        add(memory, which, total, number, tiles - 1, dq)
    at = share.keys_at(share.key + which * HALF, 0)
    store_gradients(memory, which, grad_k * scale, grad_v, dk, dv, at, at)


@jit
def scores_of(memory, which: gl.constexpr, i):
    """Issue the scores of block number `i` of the program, keys by queries."""
    plan: gl.constexpr = memory.plan
    slot = i % plan.stages
    mbarrier.wait(memory.ready.index(slot), i // plan.stages & 1)
    zeros = gl.zeros([HALF, plan.block_m], gl.float32, plan.s_registers)
    q = memory.q.index(slot).permute([1, 0])
    return warpgroup_mma(memory.k.index(which), q, zeros, use_acc=False, is_async=True)


@jit
def tile_of(which: gl.constexpr, memory, share, i, member, query, s, scaled, grad_k, grad_v, factor):
    """Add a block of queries, whose scores are `s`, to the gradients of keys and values, and issue the part of dQ of the block
    before, whose gradients of scores the other consumer has stored by then.

    Before that is issued the MMAs whose left operands are in registers are waited for: these registers are needed."""
    plan: gl.constexpr = memory.plan
    operand: gl.constexpr = gl.DotOperandLayout(0, plan.registers_of(plan.width), 2)
    slot = i % plan.stages
    q, g = memory.q.index(slot), memory.g.index(slot)
    zeros = gl.zeros([HALF, plan.block_m], gl.float32, plan.s_registers)
    dp = warpgroup_mma(memory.v.index(which), g.permute([1, 0]), zeros, use_acc=False, is_async=True)
    # Exponentials between its instructions would keep the tensor core waiting.
    gl.schedule_barrier()
    if not plan.early:
        scaled = memory.statistics(memory.scaled, slot)
    p, slopes = weights_of(share, member, share.key + which * HALF, query, s, scaled, factor)
    weights = gl.convert_layout(p.to(plan.dtype), operand)
    dp = warpgroup_mma_wait(0, dp)
    grad_v = warpgroup_mma(weights, g, grad_v, is_async=True)
    gl.schedule_barrier()
    ds = gradient_of(p, dp, memory.statistics(memory.delta, slot), slopes, plan)
    mbarrier.wait(memory.consumed.index((i + 1) % plan.buffers), ((i + 1) // plan.buffers & 1) ^ 1)
    exchange(memory, which, i + 1, ds)
    if plan.turns:
        mbarrier.arrive(memory.turn.index(1 - which), count=1)
    grad_k = warpgroup_mma(gl.convert_layout(ds, operand), q, grad_k, is_async=True)
    grad_v = warpgroup_mma_wait(1, grad_v)
    dq = part_of_queries(memory, which, i)
    grad_k = warpgroup_mma_wait(2, grad_k)
    return grad_k, grad_v, dq


@jit
def exchange(memory, which: gl.constexpr, i, ds):
    """Store a consumer's gradients of scores, for both consumers."""
    buffer = i % memory.plan.buffers
    memory.scores.index(buffer * 2 + which).store(ds)
    fence_async_shared()
    mbarrier.arrive(memory.exchanged.index(buffer), count=1)


@jit
def part_of_queries(memory, which: gl.constexpr, i):
    """Issue the product for a consumer's part of the gradient of the queries before block number `i` of the program. Parts are
    of 64 queries, or of 64 columns."""
    plan: gl.constexpr = memory.plan
    buffer = i % plan.buffers
    mbarrier.wait(memory.exchanged.index(buffer), i // plan.buffers & 1)
    dq = gl.zeros([HALF, PIECE], gl.float32, plan.registers_of(PIECE))
    for half in gl.static_range(2):
        scores, k = memory.scores.index(buffer * 2 + half), memory.k.index(half)
        if plan.width == HALF:
            scores = scores.slice(which * HALF, HALF, dim=1)
        else:
            k = k.slice(which * HALF, HALF, dim=1)
        dq = warpgroup_mma(scores.permute([1, 0]), k, dq, use_acc=half > 0, is_async=True)
    return dq


@jit
def add(memory, which: gl.constexpr, total, number, i, dq):
    """Add a consumer's part of the gradient of the queries of block number `i` of the program, piece `number` of all."""
    if memory.plan.ordered:
        memory.turns.add(total, number, i, dq)
        memory.turns.done(i)
    else:
        add_piece(total, number, dq)


@jit(
    fast_math=["exp2", "div"],
    do_not_specialize=[
        "members", "kv_heads", "heads", "band", "banded", "queries", "keys", "padded", "left", "right", "sequences", "factor",
        "inner", "scale",
    ],
)  # fmt: skip
def attend_backward(
    q: tma.tensor_descriptor, k: tma.tensor_descriptor, v: tma.tensor_descriptor, g: tma.tensor_descriptor,
    scaled: tma.tensor_descriptor, delta: tma.tensor_descriptor, total: gl.tensor, dk: tma.tensor_descriptor,
    dv: tma.tensor_descriptor, turns: gl.tensor | None, slopes: gl.tensor | None, prefix: gl.tensor | None,
    spans: gl.tensor | None, q_starts: gl.tensor | None, k_starts: gl.tensor | None, score_args: tuple[Any, ...],
    mask_args: tuple[Any, ...], factor: float, inner: float, scale: float, members: int, kv_heads: int, heads: int, band: int,
    banded: int, queries: int, keys: int, padded: int, left: int, right: int, sequences: int,
    plan: gl.constexpr[BackwardPlan],
) -> None:  # fmt: skip
    """Gradients of attention; see the module. `factor` and `inner` are those of `Scoring`, `scale` that of scores."""
    memory = WideMemory.make(plan) if plan.wide else Memory.make(plan)
    number = gl.program_id(0)
    extents = Extents(
        members, kv_heads, heads, band, banded, queries, keys, padded, left, right, inner, slopes, prefix, spans, q_starts,
        k_starts, sequences, score_args, mask_args, plan,
    )  # fmt: skip
    if plan.ordered:
        # A program with a lower number from here runs; one with a lower program_id may not have started.
        number = gl.atomic_add(turns, 1, sem="relaxed")
    share = extents.share(number)
    load = (produce_wide if plan.wide else produce, (memory, q, k, v, g, scaled, delta, share))
    if plan.wide:
        halves = [(consume_wide, (which, memory, dk, dv, share, scale)) for which in range(2)]
        work = [(weigh, (memory, total, share, factor)), *halves]
        warps: gl.constexpr = [4, 4]
        registers: gl.constexpr = [160, 160]
    else:
        work = [(consume, (which, memory, total, dk, dv, share, factor, scale)) for which in range(2)]
        warps: gl.constexpr = [4]
        registers: gl.constexpr = [240]
    if plan.ordered:
        given = (memory.turns, turns + 1, share)
        in_turn = [(watch, given), *[(publish, (slot, *given)) for slot in range(SLOTS)]]
        gl.warp_specialize([*work, load, *in_turn], [*warps, 1, 1, 1, 1], [*registers, 24, 24, 24, 24])
    else:
        gl.warp_specialize([*work, load], [*warps, 1], [*registers, 24])
