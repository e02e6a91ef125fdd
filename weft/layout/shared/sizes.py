"""Sizes and alignment of tiles in shared memory.

The hardware determines the alignment: a swizzle is a function of address bits, so a buffer starts where those bits are 0;
TMA needs 128 bytes, vector accesses 16, a barrier 8. The stages of a buffer are one aligned tile apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft.layout.cost import element_bytes
from weft.layout.linear.ends import extent
from weft.layout.shared.layouts import (
    NVMMASharedLayout,
    SharedLayout,
    SharedLinearLayout,
    padded,
)
from weft.layout.shared.mbarrier import MBarrierLayout

VECTOR_BYTES = 16
BARRIER_BYTES = 8
LEAST_BYTES = 8  # of the widest element
TMA_BYTES = 128
SWIZZLE_ROWS = 8


def alignment(layout: SharedLayout) -> int:
    """The alignment, in bytes, of the start of a tile in this layout."""
    match layout:
        case NVMMASharedLayout():
            return max(TMA_BYTES, SWIZZLE_ROWS * layout.swizzle_byte_width)
        case SharedLinearLayout():
            return max(layout.alignment, LEAST_BYTES)
        case MBarrierLayout():
            return BARRIER_BYTES
        case _:
            return VECTOR_BYTES


def tile_bytes(layout: SharedLayout, tile_shape: Sequence[int], bits: int) -> int:
    """Bytes of one tile of elements of `bits` bits in a block, padding included.

    Raises LayoutError if layout and shape do not fit.
    """
    last = extent(layout.to_linear(tile_shape)) - 1
    return (padded(last, layout.pads_of(tile_shape)) + 1) * element_bytes(bits)


def stage_bytes(layout: SharedLayout, tile_shape: Sequence[int], bits: int) -> int:
    """Bytes from one tile to the next in an allocation of several."""
    step = alignment(layout)
    return -(-tile_bytes(layout, tile_shape, bits) // step) * step


def allocation_bytes(layout: SharedLayout, shape: Sequence[int], bits: int) -> int:
    """Bytes of an allocation: the trailing dimensions of `shape` are the tile, the others count stages."""
    leading = len(shape) - layout.rank
    return prod(shape[:leading]) * stage_bytes(layout, shape[leading:], bits)
