"""The split of a descriptor's block into TMA boxes, and the offset of each box in shared memory.

A tiled box has at most 256 elements in any dimension and, when swizzled, exactly the swizzle's width in its last. Its rows
follow one another with the last dimension contiguous, so `NVMMASharedLayout` describes the boxes of a block together. Every box
starts at a period of the swizzle: at a multiple of 8 rows of its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from operator import add
from typing import NamedTuple

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import whole_shape
from weft.layout.cluster import block_shape as part_of_block
from weft.layout.cluster import split_of
from weft.layout.linear.f2 import is_power_of_two
from weft.layout.shared.layouts import NVMMASharedLayout
from weft.layout.shared.sizes import TMA_BYTES

MOST_DIMS = 5
LEAST_INNER_BYTES = 16
GRANULE = 16
"""The alignment, in bytes, of a tensor's address and strides, and of the column at which a request starts."""
FP4_GRANULE, FP4_ROW = 32, 64
"""With `fp4_padded`: the alignment of addresses and strides, and the bytes (two fp4 each) of a box's row, of which extents and
the columns at which requests start are multiples."""
MOST_PIXELS = 1024
"""The pixels of an im2col box (CUDA driver API, cuTensorMapEncodeIm2col, pixelsPerColumn)."""
MOST_STRIDE_BYTES = 1 << 40
"""The exclusive limit of strides, in bytes."""


class Placement(NamedTuple):
    """One box: its first coordinate within the block's part of the tile, and its byte offset in the buffer."""

    start: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Boxes:
    """The split of a descriptor's block: the shape of a box, in elements, its bytes of shared memory, and all boxes.

    With `fp4_padded` an element is a byte (two fp4) and the bytes of a box include the padding.
    """

    box: tuple[int, ...]
    box_bytes: int
    placements: tuple[Placement, ...]


class Slice(NamedTuple):
    """A part of a tile: the shape of the tile, and the first coordinates of the part."""

    tile_shape: tuple[int, ...]
    start: tuple[int, ...]


def check(block_shape: Sequence[int], layout: NVMMASharedLayout, bits: int) -> None:
    """Reject blocks that TMA cannot move: raises LayoutError (layout-tma-*), and the errors of `layout.check`."""
    if layout.element_bitwidth != bits:
        raise fail(errors.TMA_ELEMENT, layout=layout, own=layout.element_bitwidth, bits=bits)
    layout.check(_tile(block_shape, layout))
    if not 1 <= layout.rank <= MOST_DIMS:
        raise fail(errors.TMA_RANK, shape=list(block_shape))
    if layout.order[0] != layout.rank - 1:
        raise fail(errors.TMA_TRANSPOSED, layout=layout, inner=layout.order[0])
    part = part_of_block(layout.cga, block_shape)
    row_bytes = part[-1] * bits // 8
    if not layout.swizzle_byte_width and not is_power_of_two(part[-1]):
        raise fail(errors.TMA_ROW_END, shape=list(part), row_bytes=row_bytes)
    if row_bytes < LEAST_INNER_BYTES:
        least = LEAST_INNER_BYTES * 8 // bits * (block_shape[-1] // part[-1])
        raise fail(errors.TMA_INNER, shape=list(part), got=row_bytes, least=least)


def _tile(block_shape: Sequence[int], layout: NVMMASharedLayout) -> Sequence[int]:
    """The smallest tile that must fit the layout: several rows if the block is one row, which is then one of several."""
    rows, *others = block_shape
    if rows > 1 or len(others) != 1:
        return block_shape
    blocks, _ = split_of(layout.cga, 2)
    return layout.ROWS * blocks, *others


def box_of(block_shape: Sequence[int], layout: NVMMASharedLayout, bits: int, im2col: bool = False) -> tuple[int, ...]:
    """The shape of the boxes of a descriptor's block. An `im2col` box has up to `MOST_PIXELS` rows, which follow one another in
    memory like those of tiled boxes of fewer rows. Raises as `check` does."""
    check(block_shape, layout, bits)
    own = part_of_block(layout.cga, block_shape)
    box = layout.box(own)
    return (min(own[0], MOST_PIXELS), *box[1:]) if im2col else box


def boxes(
    block_shape: Sequence[int], layout: NVMMASharedLayout, bits: int, part: Slice | None = None, im2col: bool = False
) -> Boxes:
    """The boxes of a descriptor's block, in memory order; offsets count from the tile that the block is a `part` of, if it is
    one (`writes_slice`). Raises as `check` does."""
    box, own = box_of(block_shape, layout, bits, im2col), part_of_block(layout.cga, block_shape)
    box_bytes = prod(box) * layout.element_bytes
    # The slowest dimension first, as `product` counts.
    dims = layout.box_order[::-1]
    starts = product(*(range(0, own[d], box[d]) for d in dims))
    by_dim = [tuple(start[dims.index(d)] for d in range(layout.rank)) for start in starts]
    if part is None and whole_shape(own) == tuple(own):
        return Boxes(box, box_bytes, tuple(Placement(start, i * box_bytes) for i, start in enumerate(by_dim)))
    tile_shape, first = part or Slice(tuple(block_shape), (0,) * layout.rank)
    inverse = layout.to_linear(tile_shape).pseudo_invert()
    found: list[Placement] = []
    for start in by_dim:
        at = dict(zip(inverse.in_dims, map(add, first, start), strict=True))
        found.append(Placement(start, inverse(**at)[0] * bits // 8))
    return Boxes(box, box_bytes, tuple(found))


@lru_cache(maxsize=1024)
def writes_slice(
    block_shape: tuple[int, ...], layout: NVMMASharedLayout, bits: int, tile_shape: tuple[int, ...]
) -> bool:
    """Whether the memory of every slice of a tile that has the shape of a descriptor's block consists of its boxes."""
    tile, block = (layout.to_linear(shape).pseudo_invert() for shape in (tile_shape, block_shape))
    box = layout.box(part_of_block(layout.cga, block_shape))
    box_bytes = prod(box) * layout.element_bytes
    step = max(box_bytes & -box_bytes, TMA_BYTES) * 8 // bits
    for dim, own, size in zip(tile.in_dims, box, block_shape, strict=True):
        for bit, column in enumerate(tile.columns[dim]):
            offset, others = divmod(column, tile.out_size("block"))
            before, blocks = divmod(block.columns[dim][bit], block.out_size("block")) if 1 << bit < size else (0, 0)
            if others != blocks or (offset % step if 1 << bit >= own else offset != before):
                return False
    return True
