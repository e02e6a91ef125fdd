"""Matmul on Hopper without warp specialization: the same warps issue TMA loads, issue MMAs, and store.

One kernel in three variants. `pipelined` has a program per tile. `persistent` has as many programs as are resident, each of
which computes several tiles. `persistent_pipelined` also issues the next tile's first loads during this tile's last MMAs.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device import chain
from weft.kernels.device.epilogue import Sums, Target
from weft.kernels.device.rings import (
    Batch,
    Given,
    Operand,
    Operands,
    Position,
    Ring,
    blocks_of,
    issue_mma,
    load_both,
    of_batch,
)
from weft.kernels.device.schedules import Schedule
from weft.kernels.device.specialised import SIZES
from weft.kernels.plan import Plan
from weft.language.nvidia.hopper import mbarrier, warpgroup_mma_layout, warpgroup_mma_wait


@gl.aggregate
class Cursor:
    """The next load: its slot, tile number, the tile's row and column (in elements), the block along K, the end of K, and in a
    batch the tile's part."""

    at: Position
    index: gl.tensor
    row: gl.tensor
    column: gl.tensor
    k: gl.tensor
    end: gl.tensor
    part: gl.tensor | None

    @staticmethod
    @jit
    def make(at, index, schedule, K, plan: gl.constexpr):
        """The first block of a tile."""
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        return Cursor(at, index, row * plan.rows, column * plan.columns, first, end, part if plan.batched else None)

    @jit
    def load(self, ring, schedule, count, a, b, K, batch):
        """Issue the loads of the cursor's block and advance. Past the end the loads are predicated off; without overlap the end
        is that of the tile."""
        plan: gl.constexpr = ring.plan
        exists = self.index < count if plan.overlap else self.k < self.end
        left, right = of_batch(a, batch, 1, self.part, plan.a, plan), of_batch(b, batch, 2, self.part, plan.b, plan)
        load_both(ring, self.at, left, right, self.row, self.column, self.k * plan.block_k, exists)
        following = Cursor(self.at.next(), self.index, self.row, self.column, self.k + 1, self.end, self.part)
        if plan.overlap and following.k == following.end:
            following = Cursor.make(following.at, self.index + 1, schedule, K, plan)
        return following


@jit(do_not_specialize=SIZES)
def matmul_uniform(
    a: Operand, b: Operands, out: gl.tensor, given: Given, batch: Batch, row_stride: int, column_stride: int, M: int, N: int,
    K: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The matmul of operands that both have descriptors; see the module."""
    ring = Ring.make(plan)
    target = Target.make(out, given, row_stride, column_stride, M, N, batch, plan)
    chain.join(plan)
    schedule = Schedule.make(M, N, batch, plan)
    count = schedule.count()
    shape: gl.constexpr = [plan.block_m, plan.block_n]
    acc = gl.zeros(shape, plan.acc_type, warpgroup_mma_layout(plan.a.dtype, shape, gl.num_warps()))
    at = ring.start()
    cursor = Cursor.make(at, 0, schedule, K, plan)
    if plan.overlap:
        for _ in gl.static_range(plan.stages - 1):
            cursor = cursor.load(ring, schedule, count, a, b, K, batch)
    for index in range(count):
        row, column, part = schedule.tile(index)
        first, end = blocks_of(K, part, plan)
        if not plan.overlap:
            cursor = Cursor.make(at, index, schedule, K, plan)
            for _ in gl.static_range(plan.stages - 1):
                cursor = cursor.load(ring, schedule, count, a, b, K, batch)
        target.begin(row * plan.rows, column)
        for k in range(first, end):
            mbarrier.wait(ring.ready.index(at.slot), at.phase)
            acc = issue_mma(ring.left(at.slot), ring.right(at.slot), acc, k > first, plan)
            # The previous MMA is complete, so the slot that it read is free; the cursor loads into it.
            acc = warpgroup_mma_wait(1, acc)
            cursor = cursor.load(ring, schedule, count, a, b, K, batch)
            at = at.next()
        acc = warpgroup_mma_wait(0, acc)
        target.store(Sums(acc), plan.rows, row * plan.rows, column, part, index)
    target.wait()
