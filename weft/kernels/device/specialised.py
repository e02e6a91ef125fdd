"""Warp-specialized matrix products: some warps load blocks, two groups of four warps multiply and store.

In the variant `cooperative` the two share each tile, half of its rows each; in `ping_pong` they take tiles in turn, and one
stores while the other multiplies. Either way the next tile's blocks arrive meanwhile. With one group of consumers a tile is
all its own.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.epilogue import buffers_of, store_tile
from weft.kernels.device.feeding import produce
from weft.kernels.device.rings import Operand, Ring, Scale, barriers_of, blocks_of, start_product
from weft.kernels.device.schedules import Schedule
from weft.kernels.plan import Plan
from weft.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)  # fmt: skip


@jit
def multiply(ring, at, acc, first_row: gl.constexpr, use_acc: gl.constexpr):
    """Start the product of the blocks in a slot, once they are there. A part of the rows of a is multiplied."""
    plan: gl.constexpr = ring.plan
    mbarrier.wait(ring.ready.index(at.slot), at.phase)
    if plan.copies:
        # cp.async writes as threads do, and tensor cores read as TMA does.
        fence_async_shared()
    part: gl.constexpr = first_row // acc.shape[0] if plan.parts > 1 else 0
    left = ring.left(at.slot, part)
    if left.shape[0] != acc.shape[0]:
        left = left.slice(first_row, acc.shape[0], dim=0)
    return start_product(left, ring.right(at.slot), acc, use_acc, plan)


@jit
def accumulate(ring, free, at, acc, blocks, first_row: gl.constexpr):
    """Start the products of all blocks of a tile, each while the one before still runs, and give slots back behind them.

    Gives the accumulator, of which the last product is under way, and the positions of that one and after it.
    """
    acc = multiply(ring, at, acc, first_row, False)
    last, at = at, at.next()
    for _ in range(1, blocks):
        acc = multiply(ring, at, acc, first_row, True)
        acc = warpgroup_mma_wait(1, acc)
        mbarrier.arrive(free.index(last.slot), count=1)
        last, at = at, at.next()
    return acc, last, at


@jit
def finish(free, last, acc):
    """Wait for the last product, and give its slot back."""
    acc = warpgroup_mma_wait(0, acc)
    mbarrier.arrive(free.index(last.slot), count=1)
    return acc


@jit
def zeros_of(rows: gl.constexpr, plan: gl.constexpr):
    """An accumulator of a partition."""
    shape: gl.constexpr = [rows, plan.block_n]
    return gl.zeros(shape, plan.sums, warpgroup_mma_layout(plan.a.dtype, shape, gl.num_warps(), plan.split_rows))


@jit
def share_tiles(
    number: gl.constexpr,
    ring,
    free,
    out,
    buffers,
    scale_a,
    scale_b,
    row_stride,
    column_stride,
    M,
    N,
    K,
    plan: gl.constexpr,
):
    """A consumer that multiplies its part of the rows of every tile."""
    rows: gl.constexpr = plan.block_m // plan.consumers
    first_row: gl.constexpr = number * rows
    schedule = Schedule.make(M, N, plan)
    acc = zeros_of(rows, plan)
    at = ring.start()
    for index in range(schedule.count()):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        acc, last, at = accumulate(ring, free, at, acc, end - first, first_row)
        acc = finish(free, last, acc)
        store_tile(
            out, buffers, acc, row * plan.block_m + first_row, column * plan.block_n, part, scale_a, scale_b, row_stride,
            column_stride, M, N, plan,
        )  # fmt: skip
    if plan.out.described:
        tma.store_wait(pendings=0)


@jit
def take_turns(
    number: gl.constexpr, ring, free, turn, out, buffers, scale_a, scale_b, row_stride, column_stride, M, N, K,
    plan: gl.constexpr,
):  # fmt: skip
    """A consumer that multiplies every other tile, while the other one stores.

    The turn passes on when all products of a tile have been started. It also keeps a consumer from waiting for a slot two
    rounds too early, which the parity of a round cannot tell from the right one.
    """
    schedule = Schedule.make(M, N, plan)
    count = schedule.count()
    acc = zeros_of(plan.block_m, plan)
    at = ring.start()
    if number == 1:
        _, _, part = schedule.tile(0)
        first, end = blocks_of(K, part, plan)
        at = at.skip(end - first)
    # The first consumer begins: the phase before a barrier's first counts as complete.
    parity = 1 - number
    for index in range(number, count, 2):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        mbarrier.wait(turn.index(number), parity)
        acc, last, at = accumulate(ring, free, at, acc, end - first, 0)
        mbarrier.arrive(turn.index(1 - number), count=1)
        acc = finish(free, last, acc)
        store_tile(
            out, buffers, acc, row * plan.block_m, column * plan.block_n, part, scale_a, scale_b, row_stride, column_stride,
            M, N, plan,
        )  # fmt: skip
        parity = parity ^ 1
        _, _, following = schedule.tile(index + 1)
        first, end = blocks_of(K, following, plan)
        at = at.skip(end - first)
    if plan.out.described:
        tma.store_wait(pendings=0)


SIZES = ["M", "N", "K", "row_stride", "column_stride"]
"""Arguments whose values the compiled text does not depend on."""


@jit(do_not_specialize=SIZES)
def matmul_cooperative(
    a: Operand, b: Operand, out: gl.tensor, scale_a: Scale, scale_b: Scale, row_stride: int, column_stride: int,
    M: int, N: int, K: int, a_row: int, a_k: int, b_row: int, b_k: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The product, each tile shared by `plan.consumers` groups of warps; see the module."""
    ring = Ring.make(plan)
    free = barriers_of(plan.stages, plan.consumers)
    both_free = barriers_of(plan.stages, plan.cluster) if plan.cluster > 1 else None
    outputs = (out, scale_a, scale_b, row_stride, column_stride, M, N, K, plan)
    first = (ring, free, out, buffers_of(plan), *outputs[1:])
    source = (produce, (ring, free, both_free, a, b, a_row, a_k, b_row, b_k, M, N, K, plan))
    if plan.consumers == 1:
        gl.warp_specialize([(share_tiles, (0, *first)), source], [plan.producers])
    else:
        second = (ring, free, out, buffers_of(plan), *outputs[1:])
        work = [(share_tiles, (0, *first)), (share_tiles, (1, *second)), source]
        gl.warp_specialize(work, [4, plan.producers], plan.registers)


@jit(do_not_specialize=SIZES)
def matmul_ping_pong(
    a: Operand, b: Operand, out: gl.tensor, scale_a: Scale, scale_b: Scale, row_stride: int, column_stride: int,
    M: int, N: int, K: int, a_row: int, a_k: int, b_row: int, b_k: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The product, each tile computed by one of two groups of warps in turn; see the module."""
    ring = Ring.make(plan)
    free = barriers_of(plan.stages, 1)
    turn = barriers_of(2, 1)
    rest = (scale_a, scale_b, row_stride, column_stride, M, N, K, plan)
    gl.warp_specialize(
        [
            (take_turns, (0, ring, free, turn, out, buffers_of(plan), *rest)),
            (take_turns, (1, ring, free, turn, out, buffers_of(plan), *rest)),
            (produce, (ring, free, None, a, b, a_row, a_k, b_row, b_k, M, N, K, plan)),
        ],
        [4, plan.producers],
        plan.registers,
    )
