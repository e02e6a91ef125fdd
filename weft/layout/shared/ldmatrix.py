"""Plans of `ldmatrix` and `stmatrix`: accesses that move 8x8 matrices of 16-bit elements, a row of 16 bytes per lane.

Without `.trans`, lane l holds the 4 bytes at 4 * (l % 4) of row l // 4. With it, the lane holds the 16-bit elements at l // 4
of the rows 2 * (l % 4) and 2 * (l % 4) + 1. One instruction moves up to four matrices; lane l supplies the address of row
l % 8 of matrix l // 8. The data are those of a vector access, so a matrix access fits if the lanes and the registers of a
32-bit word are arranged in this way. (PTX ISA, "Warp-level matrix load instruction: ldmatrix".)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.layout import cost
from weft.layout.base import WARP_SIZE
from weft.layout.linear import f2
from weft.layout.linear.columns import basis, combinations
from weft.layout.linear.f2 import Span, solved
from weft.layout.shared.layouts import Pads
from weft.layout.shared.vectors import Side, VectorAccess

ROW_BYTES = 16
WORD_BYTES = 4
HALF_BYTES = 2
MOST_MATRICES = 4
ROW_BITS = 3


@dataclass(frozen=True, slots=True)
class MatrixAccess:
    """Accesses of a warp by `ldmatrix` or `stmatrix`, `.x1`, `.x2` or `.x4` as `matrices` says, `.trans` if `transposed`.

    In `rows`, an offset is that of the row whose address a lane supplies (bases of lanes that supply none are in `lane_mask`),
    and `vec` is the row's elements. Instruction i moves `registers[i]`, the elements of the 32-bit word of matrix 0 first.
    """

    matrices: int
    transposed: bool
    rows: VectorAccess


@dataclass(frozen=True, slots=True)
class _Fit:
    """A side in terms of a matrix: register positions of the bits of a word, and the offsets of its row bits."""

    transposed: bool
    word: tuple[int, ...]
    rows: tuple[int, ...]


def plan_matrix(side: Side, bits: int, start: int, pads: Pads) -> MatrixAccess | None:
    """The cheapest matrix access of a side, its offsets XORed with `start`, or None if matrices do not fit.

    A matrix store has no inactive lanes, so a side with such lanes does not fit.
    """
    size = cost.element_bytes(bits)
    row = ROW_BYTES // size
    whole = all(pad % row == 0 for pair in pads for pad in pair)
    if len(side.lane) != f2.log2(WARP_SIZE) or side.lane_mask or not whole or size > WORD_BYTES:
        return None
    if any(offset % row for offset in (start, *side.warp)):
        return None
    plans = [plan for fit in _fits(side, size, row) if (plan := _spell(side, fit, row, start, pads))]
    return min(plans, key=lambda plan: plan.rows.quarters(bits), default=None)


def _fits(side: Side, size: int, row: int) -> Iterator[_Fit]:
    held = Span(side.registers.columns)
    lane = side.lane
    word = [1 << bit for bit in range(f2.log2(WORD_BYTES // size))]
    inner = (WORD_BYTES // size, 2 * WORD_BYTES // size)
    if lane[:2] == inner and all(column in held for column in word):
        yield _Fit(False, tuple(solved(held, column) for column in word), lane[2:])
    if size == HALF_BYTES and lane[2:] == (1, 2, 4):
        # Any register bit that steps between rows can be the one within a word.
        for bit, column in enumerate(side.registers.columns):
            if column % row == 0:
                yield _Fit(True, (1 << bit,), (column, *lane[:2]))


def _spell(side: Side, fit: _Fit, row: int, start: int, pads: Pads) -> MatrixAccess | None:
    columns, numbers = side.registers.columns, side.registers.numbers
    bits: list[int] = []
    for bit in basis([1 << i for i in range(len(columns))], fit.word):
        # Registers of the word itself bring a word that begins inside of one to its front.
        within = 0 if fit.transposed else f2.apply(columns, bit) % (1 << len(fit.word))
        bits.append(bit ^ f2.apply(fit.word, within))
    offsets = [f2.apply(columns, bit) for bit in bits]
    if any(offset % row for offset in (*offsets, *fit.rows)):
        return None
    count = min(len(bits), f2.log2(MOST_MATRICES))
    matrices, others = combinations(bits[:count]), combinations(bits[count:])
    words = combinations(fit.word)
    unused = f2.log2(MOST_MATRICES) - count
    rows = VectorAccess(
        vec=row,
        lane_bases=(*fit.rows, *offsets[:count], *(0,) * unused),
        warp_bases=side.warp,
        offsets=tuple(start ^ offset for offset in combinations(offsets[count:])),
        registers=tuple(tuple(numbers[o ^ m ^ w] for m in matrices for w in words) for o in others),
        lane_mask=WARP_SIZE - (1 << ROW_BITS + count),
        warp_mask=side.warp_mask,
        pads=pads,
    )
    return MatrixAccess(1 << count, fit.transposed, rows)
