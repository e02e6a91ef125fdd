"""The split of a descriptor's block into TMA boxes, and the offset of each box in shared memory.

A box has at most 256 elements in any dimension and, when swizzled, exactly the swizzle's width in its last. Its rows follow
one another with the last dimension contiguous, so `NVMMASharedLayout` describes the boxes of a block together. Every box
starts at a period of the swizzle: at a multiple of 8 rows of its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.cluster import block_shape as part_of_block
from weft.layout.cluster import split_of
from weft.layout.shared.layouts import NVMMASharedLayout

MOST_DIMS = 5
LEAST_INNER_BYTES = 16
GRANULE = 16
"""The alignment, in bytes, of a tensor's address and strides, and of the column at which a request starts."""
FP4_GRANULE, FP4_ROW = 32, 64
"""With `fp4_padded`: the alignment of addresses and strides, and the bytes (two fp4 each) of a box's row, of which extents and
the columns at which requests start are multiples."""
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


def check(block_shape: Sequence[int], layout: NVMMASharedLayout, bits: int) -> None:
    """Reject blocks that TMA cannot move: raises LayoutError (layout-tma-*), and the errors of `layout.to_linear`."""
    if layout.element_bitwidth != bits:
        raise fail(errors.TMA_ELEMENT, layout=layout, own=layout.element_bitwidth, bits=bits)
    layout.to_linear(_tile(block_shape, layout))
    if not 1 <= layout.rank <= MOST_DIMS:
        raise fail(errors.TMA_RANK, shape=list(block_shape))
    if layout.order[0] != layout.rank - 1:
        raise fail(errors.TMA_TRANSPOSED, layout=layout, inner=layout.order[0])
    part = part_of_block(layout.cga, block_shape)
    row_bytes = part[-1] * bits // 8
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


def boxes(block_shape: Sequence[int], layout: NVMMASharedLayout, bits: int) -> Boxes:
    """The boxes of a descriptor's block, in memory order. Raises as `check` does."""
    check(block_shape, layout, bits)
    part = part_of_block(layout.cga, block_shape)
    box = layout.box(part)
    box_bytes = prod(box) * layout.element_bytes
    # The slowest dimension first, as `product` counts.
    dims = layout.box_order[::-1]
    starts = product(*(range(0, part[d], box[d]) for d in dims))
    by_dim = (tuple(start[dims.index(d)] for d in range(layout.rank)) for start in starts)
    return Boxes(box, box_bytes, tuple(Placement(start, i * box_bytes) for i, start in enumerate(by_dim)))
