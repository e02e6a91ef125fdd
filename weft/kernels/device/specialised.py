"""Warp-specialized matmul on Hopper: a producer, and two consumer warpgroups, which also execute the epilogue.

In the variant `cooperative` the consumers split each tile by rows. In `ping_pong` they alternate between tiles, so that one
executes its epilogue while the other runs its mainloop. In both, the producer already loads blocks of the next tile meanwhile.
With one consumer a tile is not split.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device import chain
from weft.kernels.device.arrivals import Gathered
from weft.kernels.device.epilogue import Sums, Target
from weft.kernels.device.producer import produce
from weft.kernels.device.rings import Batch, Given, Operands, Ring, barriers_of, blocks_of, free_of, issue_mma, release
from weft.kernels.device.schedules import Schedule
from weft.kernels.device.shares import Shares
from weft.kernels.plan import Plan
from weft.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)  # fmt: skip


@jit
def multiply(ring, at, acc, first_row: gl.constexpr, use_acc: gl.constexpr):
    """Wait for the blocks of a slot and issue their MMA, for a consumer's part of the rows of a."""
    plan: gl.constexpr = ring.plan
    mbarrier.wait(ring.ready.index(at.slot), at.phase)
    if plan.copies:
        # cp.async writes through the generic proxy, wgmma reads through the async proxy. The producer's fence would not
        # suffice: it would have to come after completion of the copies, which only the barrier signals.
        fence_async_shared()
    part: gl.constexpr = first_row // acc.shape[0] if plan.parts > 1 else 0
    left = ring.left(at.slot, part)
    if left.shape[0] != acc.shape[0]:
        left = left.slice(first_row, acc.shape[0], dim=0)
    return issue_mma(left, ring.right(at.slot), acc, use_acc, plan)


@jit
def accumulate(ring, free, at, acc, blocks, first_row: gl.constexpr, target, row, column):
    """The mainloop: issue the MMAs of all blocks of a tile, each while the previous one still runs, and release slots after
    them.

    Returns the accumulator with the last MMA in flight, the position of that MMA's slot, and the position after it.
    """
    acc = multiply(ring, at, acc, first_row, False)
    target.begin(row, column)
    last, at = at, at.next()
    for _ in range(1, blocks):
        acc = multiply(ring, at, acc, first_row, True)
        acc = warpgroup_mma_wait(1, acc)
        release(free, last, ring.plan)
        last, at = at, at.next()
    return acc, last, at


@jit
def finish(free, last, acc, plan: gl.constexpr):
    """Wait for the last MMA and release its slot."""
    acc = warpgroup_mma_wait(0, acc)
    release(free, last, plan)
    return acc


@jit
def zeros_of(rows: gl.constexpr, plan: gl.constexpr):
    """A partition's accumulator."""
    shape: gl.constexpr = [rows, plan.block_n]
    return gl.zeros(shape, plan.acc_type, warpgroup_mma_layout(plan.a.dtype, shape, gl.num_warps(), plan.split_rows))


@jit
def consume_cooperatively(number: gl.constexpr, ring, free, target, shares, K, gathered, across: gl.constexpr):
    """The cooperative consumer: it computes its part of the rows of every tile."""
    plan: gl.constexpr = ring.plan
    chain.join(plan)
    rows: gl.constexpr = plan.block_m // plan.consumers
    schedule = Schedule.make(target.M, target.N, target.batch, plan, gathered, across)
    acc = zeros_of(rows, plan)
    at = ring.start()
    for index in range(schedule.count()):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        row = row * plan.rows + number * (plan.rows // plan.consumers)
        acc, last, at = accumulate(ring, free, at, acc, end - first, number * rows, target, row, column)
        acc = finish(free, last, acc, plan)
        shares.store(target, acc, row, column, part, index)
    target.wait()


@jit
def consume_ping_pong(number: gl.constexpr, ring, free, turn, target, K, gathered, across: gl.constexpr):
    """The ping-pong consumer: it computes every other tile, with its mainloop during the other consumer's epilogue.

    The turn is passed on when all MMAs of a tile have been issued. The turn also keeps a consumer from waiting on a slot's
    barrier two phases early: a wait by parity cannot distinguish phases that are two apart.
    """
    plan: gl.constexpr = ring.plan
    chain.join(plan)
    schedule = Schedule.make(target.M, target.N, target.batch, plan, gathered, across)
    count = schedule.count()
    acc = zeros_of(plan.block_m, plan)
    at = ring.start()
    if number == 1:
        _, _, part = schedule.tile(0)
        first, end = blocks_of(K, part, plan)
        at = at.skip(end - first)
    # The first consumer starts: waiting for parity 1 on a fresh barrier returns at once, as the phase before its first counts
    # as complete (PTX ISA, mbarrier.test_wait).
    parity = 1 - number
    for index in range(number, count, 2):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        mbarrier.wait(turn.index(number), parity)
        acc, last, at = accumulate(ring, free, at, acc, end - first, 0, target, row * plan.rows, column)
        mbarrier.arrive(turn.index(1 - number), count=1)
        acc = finish(free, last, acc, plan)
        target.store(Sums(acc), plan.rows, row * plan.rows, column, part, index // 2)
        parity = parity ^ 1
        _, _, following = schedule.tile(index + 1)
        first, end = blocks_of(K, following, plan)
        at = at.skip(end - first)
    target.wait()


SIZES = ["given", "batch", "M", "N", "K", "row_stride", "column_stride"]
"""Arguments that are not specialised on, so that all sizes share one compiled kernel."""


@jit(do_not_specialize=[*SIZES, "gathered"])
def matmul_cooperative(
    a: Operands, b: Operands, out: gl.tensor, given: Given, batch: Batch, row_stride: int, column_stride: int, M: int, N: int,
    K: int, a_row: int, a_k: int, b_row: int, b_k: int, plan: gl.constexpr[Plan], gathered: Gathered = None,
    across: gl.constexpr[bool] = False,
) -> None:  # fmt: skip
    """The cooperative matmul with `plan.consumers` consumers; see the module."""
    ring = Ring.make(plan)
    free = free_of(plan)
    outputs = (out, given, row_stride, column_stride, M, N, batch, plan)
    source = (produce, (ring, free, a, b, a_row, a_k, b_row, b_k, M, N, K, batch, gathered, across, plan))
    work = ()
    for number in gl.static_range(plan.consumers):
        work = (
            *work,
            (
                consume_cooperatively,
                (number, ring, free, Target.make(*outputs), Shares.make(plan), K, gathered, across),
            ),
        )
    gl.warp_specialize([*work, source], [4] * (plan.consumers - 1) + [plan.producers], plan.registers)


@jit(do_not_specialize=[*SIZES, "gathered"])
def matmul_ping_pong(
    a: Operands, b: Operands, out: gl.tensor, given: Given, batch: Batch, row_stride: int, column_stride: int, M: int, N: int,
    K: int, a_row: int, a_k: int, b_row: int, b_k: int, plan: gl.constexpr[Plan], gathered: Gathered = None,
    across: gl.constexpr[bool] = False,
) -> None:  # fmt: skip
    """The ping-pong matmul; see the module."""
    ring = Ring.make(plan)
    free = barriers_of(plan.stages, 1)
    turn = barriers_of(2, 1)
    outputs = (out, given, row_stride, column_stride, M, N, batch, plan)
    gl.warp_specialize(
        [
            (consume_ping_pong, (0, ring, free, turn, Target.make(*outputs), K, gathered, across)),
            (consume_ping_pong, (1, ring, free, turn, Target.make(*outputs), K, gathered, across)),
            (produce, (ring, free, a, b, a_row, a_k, b_row, b_k, M, N, K, batch, gathered, across, plan)),
        ],
        [4, plan.producers],
        plan.registers,
    )
