"""Copies from shared to tensor memory as instructions: pieces of 32 or 128 lanes.

A plan describes one block. (PTX ISA, tcgen05.cp and tcgen05, "Shared memory descriptor".)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from weft.layout.base import Unreadable
from weft.layout.cluster import BLOCK
from weft.layout.linear import f2
from weft.layout.linear.columns import combinations
from weft.layout.shared.layouts import PaddedSharedLayout
from weft.layout.shared.sizes import alignment
from weft.layout.tensor_cores.shared_operands import (
    Operand,
    OperandOffsets,
    SharedSide,
    forms,
    misaligned,
    swizzle_alignment,
    swizzled,
)
from weft.layout.tensor_cores.tcgen05 import TensorPlaces, linear_of
from weft.layout.tensor_memory.layouts import (
    COLUMN,
    COLUMN_BITS,
    LANES,
    ROW,
    SCALE_ROWS,
    SCALES_PER_COLUMN,
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
)
from weft.layout.tensor_memory.load_store import TensorSide, cut

CopyStep = tuple[int, int]
"""One copy: byte of the source, and address of the destination."""
COPIES = ((LANES, 256, "128x256b"), (LANES, 128, "128x128b"), (SCALE_ROWS, 128, "32x128b.warpx4"))
"""Lanes, bits per lane and names of the instructions that copy to tensor memory; the last one multicasts to all warps."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The instructions of a copy, as `tcgen05.copy_shared` takes them."""

    shape: str
    operand: Operand
    steps: tuple[CopyStep, ...]


@lru_cache(maxsize=1024)
def plan_copy(src: SharedSide, dst: TensorSide, bits: int) -> CopyPlan | Unreadable:
    """The instructions that copy a tile of elements of `bits` bits from shared to tensor memory.

    Offsets count from where each tile begins, starts of views included."""
    if isinstance(src.layout, PaddedSharedLayout):
        return Unreadable("padding lies between the elements of the source", _copy_fix(src, dst))
    source, target = linear_of(src).bases(BLOCK), linear_of(dst).bases(BLOCK)
    if any(mine != its for mine, its in zip_longest(target, source, fillvalue=(0, 0))) or cut(
        target, dst.tile, dst.shape
    ):
        reason = f"blocks of the cluster hold what begins at {list(source)} and take what begins at {list(target)}"
        return Unreadable(reason, "split both by the same cga_layout, and slice along another dimension")
    has, needed = alignment(src.layout), 0
    reach = _Reach(src, dst, bits)
    for lanes, wide, shape in COPIES:
        piece = reach.piece(lanes, wide)
        if piece is None:
            continue
        for swizzle, (leading, stride) in forms(piece.contiguous, piece.lines, piece.others, bits // 8, reach.closed):
            if has < swizzle_alignment(swizzle):
                needed = needed or swizzle_alignment(swizzle)
                continue
            sources = combinations([swizzled(offset, swizzle) for offset in piece.others])
            start, targets = swizzled(reach.start, swizzle), combinations(piece.columns)
            steps = tuple(
                (reach.closed(start ^ at), reach.first ^ column) for at, column in zip(sources, targets, strict=True)
            )
            return CopyPlan(shape, Operand(swizzle, False, leading, stride, ()), steps)
    reason = misaligned(has, needed) if needed else f"no instruction copies {src.layout} to {dst.layout}"
    return Unreadable(reason, _copy_fix(src, dst))


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one instruction copies, and others do: bytes of the source by bit of the column within a piece and of the lane, and
    by bit that leads to other pieces, with the columns that these are in."""

    contiguous: list[int]
    lines: list[int]
    others: list[int]
    columns: list[int]


class _Reach:
    """Bytes of a block's shared memory by bits of addresses in tensor memory; 0 for a bit that leads out of the view."""

    def __init__(self, src: SharedSide, dst: TensorSide, bits: int) -> None:
        source, linear = OperandOffsets(src, bits // 8), linear_of(dst)
        self.closed = source.closed
        self.start, self.first, self._bits = source.start, TensorPlaces(dst, bits).address(0, 0), bits

        def byte(basis: Sequence[int]) -> int:
            return source.byte(basis) if all(at < size for at, size in zip(basis, dst.shape, strict=True)) else 0

        self._lanes, self._columns = (list(map(byte, linear.bases(dim))) for dim in (ROW, COLUMN))

    def piece(self, lanes: int, wide: int) -> _Piece | None:
        """An instruction's piece of this number of lanes (repeated in the others) and bits per lane; None if none fits."""
        across, down = f2.log2(wide // self._bits), f2.log2(lanes)
        contiguous, lines = self._columns[:across], self._lanes[:down]
        if len(contiguous) < across or 0 in (*contiguous, *lines) or any(self._lanes[down:]):
            return None
        others = [(at, 1 << bit) for bit, at in enumerate(self._columns) if bit >= across and at]
        columns = [element * self._bits // COLUMN_BITS for _, element in others]
        return _Piece(contiguous, lines, [at for at, _ in others], columns)


def _copy_fix(src: SharedSide, dst: TensorSide) -> str:
    """The fix for a source that cannot be copied."""
    if isinstance(dst.layout, TensorMemoryScalesLayout):
        rows, scales = dst.shape
        if rows % LANES or scales % SCALES_PER_COLUMN:
            return f"copy scales of a multiple of {LANES} rows by {SCALES_PER_COLUMN} columns, or store them from registers"
        shape = [1, rows // LANES, scales // SCALES_PER_COLUMN, 2, 256]
        return (
            f"keep the scales as {shape} in NVMMASharedLayout(0, 8, rank=5), and pass their reshape({[*shape[1:3], 32, 4, 4]})"
            f".permute((0, 3, 2, 1, 4)).reshape({[rows, scales]})"
        )
    if isinstance(dst.layout, TensorMemoryLayout) and (dst.layout.block[0] != LANES or dst.layout.col_stride != 1):
        return f"copy to TensorMemoryLayout([{LANES}, N], col_stride=1)"
    return f"allocate the source in NVMMASharedLayout.get_default_for({list(src.tile)}, dtype)"
