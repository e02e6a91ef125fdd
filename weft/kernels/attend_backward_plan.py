"""What a kernel for the gradients of attention is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft import language as gl
from weft.kernels.plan import DTYPES

BLOCK_M = {64: 128, 128: 64}
"""Queries of a block by head size. Two consumers compute 64 x 64 elements each of a block's gradient."""
BLOCK_N = 128
STAGES = 2


@dataclass(frozen=True, slots=True, eq=False)
class BackwardPlan:
    """Everything that the kernel is specialised on. `right` and `left`: the window has such a side. `ordered`: the programs add
    to the gradients of queries in one order."""

    dtype: Any
    size: int
    right: bool
    left: bool
    ordered: bool

    @property
    def block_m(self) -> int:
        """Queries of a block."""
        return BLOCK_M[self.size]

    @property
    def block_n(self) -> int:
        """Keys of a program."""
        return BLOCK_N

    @property
    def rows(self) -> int:
        """Keys of a consumer."""
        return BLOCK_N // 2

    @property
    def axes(self) -> tuple[int, int, int]:
        """The axes of a block's queries in registers, in lanes, and again in registers."""
        return self.block_m // 8, 4, 2

    @property
    def s_registers(self) -> Any:
        """The layout of a consumer's scores, keys by queries."""
        return self.registers_of(self.block_m)

    @property
    def stages(self) -> int:
        """Slots of queries."""
        return STAGES

    def layout(self, block: Any) -> Any:
        """The shared-memory layout of a block."""
        return gl.NVMMASharedLayout.get_default_for(tuple(block), self.dtype)

    @property
    def vector_layout(self) -> Any:
        """The shared-memory layout of a number for each query."""
        return gl.NVMMASharedLayout(0, 32, 2)

    @property
    def piece_layout(self) -> Any:
        """The shared-memory layout of a part of the gradient of queries."""
        return gl.NVMMASharedLayout.get_default_for((64, 64), gl.float32)

    def registers_of(self, columns: int) -> Any:
        """The layout of a consumer's accumulator."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])


@lru_cache(maxsize=256)
def make_backward_plan(dtype: str, size: int, right: bool, left: bool, ordered: bool) -> BackwardPlan:
    """The plan; equal plans are one object."""
    return BackwardPlan(DTYPES[dtype], size, right, left, ordered)
