"""Fragments: the distribution of tensor core operands over the registers and lanes of a warp, as data rows.

All fragments follow one scheme (PTX ISA, "Matrix Fragments" of mma.m16n8*, "Register Fragments" of wgmma). Along the contiguous
(inner) dimension a thread holds `width` neighbours, and four lanes are adjacent; eight such groups of lanes follow along the
outer dimension. Further registers repeat that, first along the outer dimension, then along the inner one. Instructions differ
only in the numbers, and in the dimension of the operand that is the inner one.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.layout.base import Step, cover
from weft.layout.linear.columns import combinations
from weft.layout.linear.ends import pieces
from weft.layout.linear.maps import LinearLayout

K_BITS = 256
"""Bits of an operand along k per instruction."""
WARPGROUP_ROWS = 64
"""Rows of the accumulator of one wgmma instruction."""
LANES_INNER = 4
LANES_OUTER = 8


@dataclass(frozen=True, slots=True)
class Fragment:
    """One operand of one instruction: tile dimensions counted from the end (-1 is the last), sizes in elements."""

    inner: int
    inner_size: int
    outer: int
    outer_size: int
    width: int

    def steps(self, rank: int) -> tuple[Step, ...]:
        """Steps that build the operand of one warp in a tile of `rank` dimensions."""
        inner, outer = rank + self.inner, rank + self.outer
        return (
            ("register", inner, self.width),
            ("lane", inner, LANES_INNER),
            ("lane", outer, LANES_OUTER),
            ("register", outer, self.outer_size // LANES_OUTER),
            ("register", inner, self.inner_size // (LANES_INNER * self.width)),
        )


# mma.sync.m16n8k*, accumulators c and d.
MMA_ACCUMULATOR = Fragment(inner=-1, inner_size=8, outer=-2, outer_size=16, width=2)

# Operand a of mma.sync.m16n8k*, and of wgmma when it comes from registers, by k_width: elements of 32, 16 and 8 bits
# fill a 32-bit register with 1, 2 and 4; wider groups hold operands that are converted on the way.
MMA_LEFT = {w: Fragment(inner=-1, inner_size=8 * w, outer=-2, outer_size=16, width=w) for w in (1, 2, 4, 8)}

# Operand b of mma.sync.m16n8k*, by k_width; it is contiguous along k, its first dimension.
MMA_RIGHT = {w: Fragment(inner=-2, inner_size=8 * w, outer=-1, outer_size=8, width=w) for w in (1, 2, 4, 8)}

# Accumulators of wgmma.m64nNk*, one warp's 16 rows, by N.
WGMMA_ACCUMULATOR = {
    n: Fragment(inner=-1, inner_size=n, outer=-2, outer_size=16, width=2) for n in (8, 16, 32, 64, 128, 256)
}
WGMMA_COLUMNS = range(8, 257, 8)
"""Columns of a wgmma. For integers, those above 32 are multiples of 16 (PTX ISA, wgmma.mma_async, "Matrix Shape")."""


def wgmma_accumulator(n: int) -> Fragment:
    """The accumulator of `n` columns, or for other numbers than powers of two the largest that repeats in its registers."""
    return WGMMA_ACCUMULATOR[n & -n]


def fragment_starts(linear: LinearLayout, fragment: Fragment) -> dict[tuple[int, int], int] | None:
    """First register of each instruction's fragment that warp 0 holds of a matrix, by its first row and column.

    None if the lowest registers and the lanes do not form a fragment. Registers that repeat elements are left out.
    """
    if linear.is_whole:
        return _piece_starts(linear, fragment)
    parts = pieces(linear)
    within = _piece_starts(parts.layout, fragment)
    if within is None:
        return None
    starts: dict[tuple[int, int], int] = {}
    for (down, right), registers in zip(parts.starts, parts.registers, strict=True):
        for (row, column), first in within.items():
            starts[down + row, right + column] = registers[first]
    return starts


def joined_starts(starts: dict[tuple[int, int], int], columns: int, n: int) -> dict[tuple[int, int], int] | None:
    """The starts of accumulators of `n` columns, from those of parts of them of `columns` columns; None if registers of the
    parts do not follow one another."""
    each = n // columns
    found: dict[tuple[int, int], int] = {}
    for row in dict.fromkeys(row for row, _ in starts):
        line = sorted((column, register) for (r, column), register in starts.items() if r == row)
        for first in range(0, len(line), each):
            column, register = line[first]
            wanted = [(column + i * columns, register + i * columns // 2) for i in range(each)]
            if line[first : first + each] != wanted:
                return None
            found[row, column] = register
    return found


def _piece_starts(linear: LinearLayout, fragment: Fragment) -> dict[tuple[int, int], int] | None:
    shape = [1, 1]
    shape[fragment.inner], shape[fragment.outer] = fragment.inner_size, fragment.outer_size
    wanted = cover(fragment.steps(2), shape, ("register", "lane"))
    within = len(wanted["register"])
    registers, lanes = linear.bases("register"), linear.bases("lane")
    if [*map(list, registers[:within]), *map(list, lanes)] != [*wanted["register"], *wanted["lane"]]:
        return None
    starts: dict[tuple[int, int], int] = {}
    for index, flat in enumerate(combinations(linear.columns["register"][within:])):
        row, column = linear.coordinates(flat)
        starts.setdefault((row, column), index << within)
    return starts
