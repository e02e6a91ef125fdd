"""Block-scaled matmul on Blackwell: the roles of `weft.kernels.device.tensor_memory` for operands with scales.

Scales are loaded by TMA with the blocks and copied to tensor memory ahead of each MMA.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import Batch, Given, Operand, Ring, load_both
from weft.kernels.device.specialised import SIZES
from weft.kernels.device.tensor_memory import run_roles
from weft.kernels.plan import Plan
from weft.language.nvidia.blackwell import (
    allocate_tensor_memory,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tensor_memory_descriptor,
    tma,
)  # fmt: skip


@gl.aggregate
class WithScales:
    """Operands with their scales: buffers in shared memory, and the place in tensor memory from which MMAs read scales."""

    ring: Ring
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    a_tensor: tensor_memory_descriptor
    b_tensor: tensor_memory_descriptor

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """An empty ring."""
        a, b = buffers_of_scales(plan.a_scales, plan.stages), buffers_of_scales(plan.b_scales, plan.stages)
        a_tensor, b_tensor = place_of_scales(plan.a_scales), place_of_scales(plan.b_scales)
        return WithScales(Ring.make(plan, plan.pairs), a, b, a_tensor, b_tensor)

    @jit
    def load_block(self, at, sources, row, column, block, part, batch):
        """Issue the loads of operands and scales for a tile's block along K."""
        plan: gl.constexpr = self.ring.plan
        a, b, a_scales, b_scales = sources
        load_both(self.ring, at, a, b, row * plan.rows, column * plan.columns, block * plan.block_k)
        bar = self.ring.ready.index(at.slot)
        load_scales(a_scales, row, block, bar, self.a.index(at.slot), plan.a_scales)
        load_scales(b_scales, column, block, bar, self.b.index(at.slot), plan.b_scales)

    @jit
    def multiply(self, at, acc, use_acc):
        """Issue the MMA of a slot's blocks. tcgen05.cp and tcgen05.mma execute in issue order, so the copy of scales waits for
        the MMA that reads the previous ones."""
        plan: gl.constexpr = self.ring.plan
        tcgen05_copy(matrix_of_scales(self.a.index(at.slot), plan.a_scales), self.a_tensor)
        tcgen05_copy(matrix_of_scales(self.b.index(at.slot), plan.b_scales), self.b_tensor)
        tcgen05_mma_scaled(
            self.ring.left(at.slot), self.ring.right(at.slot), acc, self.a_tensor, self.b_tensor, plan.a_type, plan.b_type,
            use_acc=use_acc,
        )  # fmt: skip


@jit
def buffers_of_scales(side: gl.constexpr, stages: gl.constexpr):
    """Shared-memory buffers of an operand's scales, one per stage."""
    return gl.allocate_shared_memory(side.dtype, [stages, *side.block], side.layout)


@jit
def place_of_scales(side: gl.constexpr):
    """Tensor memory for the scales of one block."""
    return allocate_tensor_memory(side.dtype, [side.rows, side.runs], side.tensor_layout)


@jit
def load_scales(desc, tile, block, bar, memory, side: gl.constexpr):
    """Issue the TMA load of the scales of a tile's rows (or columns) for a block along K."""
    tma.async_load(desc, [tile * side.block[0], block * side.block[1], 0, 0], bar, memory)


@jit
def matrix_of_scales(memory, side: gl.constexpr):
    """Scales in memory order, [rows / 128, runs / 4, 32, 16], as a matrix view [rows, runs]."""
    apart = memory.reshape([side.block[0], side.block[1], 32, 4, 4])
    return apart.permute([0, 3, 2, 1, 4]).reshape([side.rows, side.runs])


@jit(do_not_specialize=SIZES)
def matmul_with_scales(
    a: Operand, b: Operand, a_scales: Operand, b_scales: Operand, out: gl.tensor, given: Given, batch: Batch,
    row_stride: int, column_stride: int, M: int, N: int, K: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The matmul. K counts stored bytes, so a pair of fp4 is one."""
    sources = (a, b, a_scales, b_scales)
    run_roles(WithScales.make(plan), sources, out, given, batch, row_stride, column_stride, M, N, K, plan)
