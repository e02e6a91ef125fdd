"""Block-scaled products of Blackwell: what `weft.kernels.device.tensor_memory` does, for operands of which each run of elements
along K has a scale. Scales come with the blocks, and are copied to tensor memory ahead of each product.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import Operand, Ring, Scale, request_both
from weft.kernels.device.specialised import SIZES
from weft.kernels.device.tensor_memory import divide_work
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
    """Operands with their scales: buffers of these, and where tensor cores find those of the product at hand."""

    ring: Ring
    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    a_tensor: tensor_memory_descriptor
    b_tensor: tensor_memory_descriptor

    @staticmethod
    @jit
    def make(plan: gl.constexpr):
        """A ring whose slots are empty."""
        a, b = buffers_of_scales(plan.a_scales, plan.stages), buffers_of_scales(plan.b_scales, plan.stages)
        a_tensor, b_tensor = place_of_scales(plan.a_scales), place_of_scales(plan.b_scales)
        return WithScales(Ring.make(plan, plan.pairs), a, b, a_tensor, b_tensor)

    @jit
    def bring(self, at, sources, row, column, block):
        """Ask for what a tile needs of a block along K."""
        plan: gl.constexpr = self.ring.plan
        a, b, a_scales, b_scales = sources
        request_both(self.ring, at, a, b, row * plan.block_m, column * plan.block_n, block * plan.block_k)
        bar = self.ring.ready.index(at.slot)
        request_scales(a_scales, row, block, bar, self.a.index(at.slot), plan.a_scales)
        request_scales(b_scales, column, block, bar, self.b.index(at.slot), plan.b_scales)

    @jit
    def multiply(self, at, acc, use_acc):
        """Start the product of the blocks in a slot. Tensor cores copy the scales when they are done with the last ones."""
        plan: gl.constexpr = self.ring.plan
        tcgen05_copy(matrix_of_scales(self.a.index(at.slot), plan.a_scales), self.a_tensor)
        tcgen05_copy(matrix_of_scales(self.b.index(at.slot), plan.b_scales), self.b_tensor)
        tcgen05_mma_scaled(
            self.ring.left(at.slot), self.ring.right(at.slot), acc, self.a_tensor, self.b_tensor, plan.a_type, plan.b_type,
            use_acc=use_acc,
        )  # fmt: skip


@jit
def buffers_of_scales(side: gl.constexpr, stages: gl.constexpr):
    """A slot for each stage."""
    return gl.allocate_shared_memory(side.dtype, [stages, *side.block], side.layout)


@jit
def place_of_scales(side: gl.constexpr):
    """Tensor memory for the scales of a block."""
    return allocate_tensor_memory(side.dtype, [side.rows, side.runs], side.tensor_layout)


@jit
def request_scales(desc, tile, block, bar, memory, side: gl.constexpr):
    """Have TMA bring the scales of a tile's rows (or columns) and a block along K."""
    tma.async_load(desc, [tile * side.block[0], block * side.block[1], 0, 0], bar, memory)


@jit
def matrix_of_scales(memory, side: gl.constexpr):
    """Scales as they come, [rows / 128, runs / 4, 32, 16], seen as the matrix [rows, runs]."""
    apart = memory.reshape([side.block[0], side.block[1], 32, 4, 4])
    return apart.permute([0, 3, 2, 1, 4]).reshape([side.rows, side.runs])


@jit(do_not_specialize=SIZES)
def matmul_with_scales(
    a: Operand, b: Operand, a_scales: Operand, b_scales: Operand, out: gl.tensor, scale_a: Scale, scale_b: Scale,
    row_stride: int, column_stride: int, M: int, N: int, K: int, plan: gl.constexpr[Plan],
) -> None:  # fmt: skip
    """The product; `scale_a` and `scale_b` multiply it as a whole. K counts what is stored: pairs of four bits are one."""
    sources = (a, b, a_scales, b_scales)
    divide_work(WithScales.make(plan), sources, out, scale_a, scale_b, row_stride, column_stride, M, N, K, plan)
