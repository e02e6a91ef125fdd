"""Tensor memory layouts: the lane and column of a multiprocessor's tensor memory of each element of a tile.

Tensor memory is 128 lanes by 512 columns of 32 bits. The meaning of a layout for a tile is `to_linear(shape)`, a linear layout
from ("row", "column", "block") to ("dim0", "dim1"): rows are lanes, columns count *elements* (two of 16 bits in each 32-bit
column, say), and an unused place repeats element 0. Leading dimensions of an allocation are not part of a layout.
(PTX ISA, "Tensor Memory" and "Data Path Layout Organization" of the tcgen05 instructions.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import TileLayout, check_powers_of_two, ints, tile_dims, vectors
from weft.layout.cluster import BLOCK, Cga, Spelling, block_bases, block_shape, cga_fields
from weft.layout.linear.f2 import log2
from weft.layout.linear.maps import LinearLayout

LANES = 128
"""Lanes of tensor memory; warp w of a warpgroup can access lanes 32 w to 32 w + 31."""
COLUMN_BITS = 32
ROW, COLUMN = "row", "column"
SCALE_ROWS, SCALES_PER_COLUMN = 32, 4


class TensorLayout(TileLayout):
    """Base of the layouts of tiles in tensor memory."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return 2

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles; () for a single block."""
        return ()

    @property
    def two_ctas(self) -> bool:
        """Whether two neighbouring blocks of a cluster execute MMAs as a pair (cta_group::2)."""
        return False

    @property
    def has_copies(self) -> bool:
        """Whether lanes that hold no element of their own hold a copy of another's."""
        return False

    def columns(self, shape: Sequence[int], bits: int) -> int:
        """32-bit columns of one tile of elements of `bits` bits in each block."""
        return max(self.to_linear(shape).in_size(COLUMN) * bits // COLUMN_BITS, 1)

    def column_step(self, tile: Sequence[int], count: int) -> int | None:
        """How far apart neighbouring columns of a tile are in memory, in elements, if each run of `count` of them lies as a
        tile of [rows, count] of its own; else None."""
        if any(column for _, column in self.cga):
            return None
        whole, own = self.to_linear(tile), self.to_linear((tile[0], count))
        columns = list(whole.bases(COLUMN))
        apart = next((bit for bit, vector in enumerate(columns) if any(vector)), 0)
        in_order = columns[apart : apart + log2(tile[1])] == _bits(1, 1, tile[1])
        alike = own.bases(ROW) == whole.bases(ROW) and list(own.bases(COLUMN)) == columns[: apart + log2(count)]
        return 1 << apart if in_order and alike else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorMemoryLayout(TensorLayout):
    """Accumulators and operands: blocks of `block` = (rows, columns) elements, one instruction's part of the tile in a block.

    Rows are lanes and columns lie side by side, `col_stride` elements apart (of 16 bits: 1 packs two into a 32-bit column, 2
    gives each its own). Blocks of a tile follow each other along the columns, those below each other first. Blocks are 64 or
    128 rows high. Of 64 rows, each 16 stand in lanes 32 apart; the lanes between hold the next block. With `two_ctas`, two
    neighbouring blocks of the cluster hold the halves of a product's rows; of 64 rows each then, the right half of the columns
    stands in lanes 64 to 127.

    `cga_layout` says how blocks of a cluster share the tile, as in other layouts; so does `cta_split_num`, over how many of
    them the rows and the columns are split (kept as `cga_layout`).

    With `fp4_padded` it is an operand of e2m1 beside another format: a tile of [M, K / 2] bytes, each of which stands for two
    elements and takes two bytes of tensor memory, one for each element, in bits 2 to 5. It is the `reinterpret` of a tile of
    [M, K] bytes, through which it is written. (PTX ISA, tcgen05, packing formats of matrix A in tensor memory.)
    """

    block: Sequence[int]
    col_stride: int = 1
    cga_layout: Sequence[Sequence[int]] | None = None
    two_ctas: bool = False  # pyright: ignore[reportIncompatibleMethodOverride] a field stands for the property
    cta_split_num: Sequence[int] | None = None
    fp4_padded: bool = False

    def _complete(self) -> None:
        block = ints(self.block)
        if len(block) != 2 or block[0] not in (64, LANES):
            raise fail(errors.TMEM_BLOCK, block=list(block))
        check_powers_of_two("block", block)
        check_powers_of_two("col_stride", (self.col_stride,))
        bases = _cga(self.cga_layout, self.cta_split_num)
        if self.two_ctas and not bases:
            raise fail(errors.TMEM_TWO_CTAS_BLOCKS, layout=f"block={list(block)}")
        self._freeze(
            block=block,
            cga_layout=bases,
            cta_split_num=None,
        )

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles."""
        return vectors(self.cga_layout or ())

    @property
    def unpadded(self) -> TensorMemoryLayout:
        """The layout of the bytes of a tile with `fp4_padded`, of which there are twice as many columns."""
        rows, columns = self.block
        return replace(self, block=(rows, 2 * columns), fp4_padded=False)

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over all blocks of a cluster. Raises LayoutError (tmem-block-shape) for a tile not made of blocks."""
        part = block_shape(self.cga, shape)
        rows, columns = self.block[0], min(self.block[1], part[1])
        if part[0] % rows:
            raise fail(errors.TMEM_BLOCK_SHAPE, shape=list(part), block=list(self.block), layout=self)
        down, along = _bits(0, 1, rows), _bits(1, 1, columns)
        beyond = [*_bits(0, rows, part[0]), *_bits(1, columns, part[1])]
        if rows == LANES:
            lanes = down
        elif self.two_ctas:
            lanes, along = [*down, (0, columns >> 1)], along[:-1]
        else:
            lanes = [*down[:4], beyond.pop(0) if beyond else (0, 0), *down[4:]]
        stride = [(0, 0)] * (log2(self.col_stride) + self.fp4_padded)
        return _linear(lanes, [*stride, *along, *beyond], self.cga, shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TensorMemoryScalesLayout(TensorLayout):
    """Scales of an MMA: row r of the tile has the scales of row r of a (column r of b), one byte per 16 or 32 elements along k.

    32 rows are lanes, and every warp's 32 lanes hold a copy; four scales of a row share a 32-bit column, the next 32 rows use
    the next column, and the scales after the first four follow after all rows. They start in even columns, so with 32 rows or
    fewer every other column is unused. (PTX ISA, tcgen05, "Scale Factor A ID" and "Scale Factor B ID".)
    """

    cga_layout: Sequence[Sequence[int]] | None = None
    cta_split_num: Sequence[int] | None = None

    def _complete(self) -> None:
        self._freeze(cga_layout=_cga(self.cga_layout, self.cta_split_num), cta_split_num=None)

    @property
    def cga(self) -> Cga:
        """One vector per block bit, in block tiles."""
        return vectors(self.cga_layout or ())

    @property
    def has_copies(self) -> bool:
        """True: MMAs read scales from every quarter of the lanes."""
        return True

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout over all blocks of a cluster."""
        rows, scales = block_shape(self.cga, shape)
        lanes = [*_padded(_bits(0, 1, min(rows, SCALE_ROWS)), SCALE_ROWS), (0, 0), (0, 0)]
        word = _padded(_bits(1, 1, min(scales, SCALES_PER_COLUMN)), SCALES_PER_COLUMN)
        pair = _padded(_bits(0, SCALE_ROWS, rows), 2)
        beyond = [*pair, *_bits(1, SCALES_PER_COLUMN, scales)]
        return _linear(lanes, [*word, *beyond], self.cga, shape)


Bases = list[tuple[int, ...]]


def _cga(cga_layout: Sequence[Sequence[int]] | None, split: Sequence[int] | None) -> Cga | None:
    """`cga_layout` in the form that layouts store. The other spelling counts blocks along rows first, then along columns."""
    spelled = Spelling(split, split, None if split is None else (0, 1), cga_layout)
    return cga_fields(spelled, 2)["cga_layout"]


def _bits(dim: int, first: int, end: int) -> Bases:
    """Vectors of the powers of two from `first` to below `end` along a dimension."""
    return [(0, 1 << bit) if dim else (1 << bit, 0) for bit in range(log2(first), log2(max(end, first)))]


def _padded(bases: Bases, size: int) -> Bases:
    return [*bases, *[(0, 0)] * (log2(size) - len(bases))]


def _linear(rows: Bases, columns: Bases, cga: Cga, shape: tuple[int, ...]) -> LinearLayout:
    assert len(rows) == log2(LANES) and prod(shape) > 0
    bases = {ROW: rows, COLUMN: columns, BLOCK: block_bases(cga, shape)}
    return LinearLayout.make(bases, tile_dims(shape))
