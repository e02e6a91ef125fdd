"""What a kernel for the gradients of attention is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft import language as gl
from weft.kernels.attend_plan import Parts
from weft.kernels.plan import DTYPES

BLOCK_M = {64: 128, 128: 64, 256: 64}
"""Queries of a block by width, the columns that products have: of other head sizes they are filled up with zeros."""
SIZES = {
    (64, 64): (64, 64),
    (96, 96): (128, 128),
    (128, 128): (128, 128),
    (192, 128): (256, 128),
    (256, 256): (256, 256),
}
"""Head sizes of queries and keys, and of values, with their widths."""
STAGES = 2
BUFFERS = 3
ROWS = 64
"""Rows of an MMA."""


@dataclass(frozen=True, slots=True, eq=False)
class BackwardPlan:
    """Everything that the kernel is specialised on. `ordered`: the programs add to the gradients of queries in one
    order."""

    dtype: Any
    size: int
    v_size: int
    parts: Parts
    ordered: bool

    @property
    def width(self) -> int:
        """Columns of queries and keys."""
        return SIZES[self.size, self.v_size][0]

    @property
    def v_width(self) -> int:
        """Columns of values."""
        return SIZES[self.size, self.v_size][1]

    @property
    def wide(self) -> bool:
        """Consumers have half of the columns each, not half of the keys."""
        return self.width > 128

    @property
    def block_by_block(self) -> bool:
        """All query heads of a group have their turn at a block of queries before the next block. In order, programs whose keys
        few queries see are then through early; head after head, each would begin a head behind the program with the keys before
        its own, and take as long as that one.

        Not above head size 128: with one query head for each of keys, for which both orders are one, the kernel took 1.05
        times as long on an H200 (16 heads, 8,192 positions, causal)."""
        return self.ordered and not self.wide

    @property
    def block_m(self) -> int:
        """Queries of a block."""
        return BLOCK_M[self.width]

    @property
    def block_n(self) -> int:
        """Keys of a program."""
        return ROWS if self.wide else 2 * ROWS

    @property
    def rows(self) -> int:
        """Keys of a consumer's scores."""
        return ROWS

    @property
    def rounds(self) -> int:
        """Rounds in which a consumer's part of the gradient of queries is stored, 64 columns each."""
        return 2 if self.wide else 1

    @property
    def q_box(self) -> tuple[int, int, int, int]:
        """Queries, as TMA loads them."""
        return 1, 1, self.block_m, self.width // self.rounds

    @property
    def g_box(self) -> tuple[int, int, int, int]:
        """Gradients of results, as TMA loads them."""
        return 1, 1, self.block_m, self.v_width // self.rounds

    @property
    def k_box(self) -> tuple[int, int, int, int]:
        """Keys, as TMA loads and stores them."""
        return 1, 1, ROWS, self.width // self.rounds

    @property
    def v_box(self) -> tuple[int, int, int, int]:
        """Values, as TMA loads and stores them."""
        return 1, 1, ROWS, self.v_width // self.rounds

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
        """Slots of queries: as many as there is room for."""
        return STAGES + (self.width == 2 * ROWS)

    @property
    def buffers(self) -> int:
        """Slots of gradients of scores."""
        return BUFFERS

    @property
    def early(self) -> bool:
        """Logarithms are loaded before the scores are waited for. At head size 64 a block has 128 queries, whose scores and
        their gradients leave no registers for that."""
        return self.width == 2 * ROWS

    @property
    def turns(self) -> bool:
        """Consumers take turns. At head size 64 that was slower by a tenth on an H200: exponentials take as long as MMAs, and
        those of both consumers overlap by themselves."""
        return self.width == 2 * ROWS

    def layout(self, block: Any) -> Any:
        """The shared-memory layout of a block."""
        return gl.NVMMASharedLayout.get_default_for(tuple(block), self.dtype)

    @property
    def vector_layout(self) -> Any:
        """The shared-memory layout of a number for each query."""
        return gl.NVMMASharedLayout(0, 32, 2)

    def registers_of(self, columns: int) -> Any:
        """The layout of a consumer's accumulator."""
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])


@lru_cache(maxsize=256)
def make_backward_plan(dtype: str, size: int, v_size: int, parts: Parts, ordered: bool) -> BackwardPlan:
    """The plan; equal plans are one object."""
    return BackwardPlan(DTYPES[dtype], size, v_size, parts, ordered)
