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
from typing import Literal, NamedTuple

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import whole_shape
from weft.layout.cluster import block_bases, receivers, split_of
from weft.layout.cluster import block_shape as part_of_block
from weft.layout.linear.f2 import apply, is_power_of_two
from weft.layout.shared.layouts import NVMMASharedLayout, padded
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
    one (`reach`). Raises as `check` does."""
    box, own = box_of(block_shape, layout, bits, im2col), part_of_block(layout.cga, block_shape)
    box_bytes = prod(box) * layout.element_bytes
    # The slowest dimension first, as `product` counts.
    dims = layout.box_order[::-1]
    starts = product(*(range(0, own[d], box[d]) for d in dims))
    by_dim = [tuple(start[dims.index(d)] for d in range(layout.rank)) for start in starts]
    if part is None and whole_shape(own) == tuple(own):
        return Boxes(box, box_bytes, tuple(Placement(start, i * box_bytes) for i, start in enumerate(by_dim)))
    tile_shape, first = part or Slice(tuple(block_shape), (0,) * layout.rank)
    inverse, pads = layout.to_linear(tile_shape).pseudo_invert(), layout.pads_of(tile_shape)
    found: list[Placement] = []
    for start in by_dim:
        at = dict(zip(inverse.in_dims, map(add, first, start), strict=True))
        found.append(Placement(start, padded(inverse(**at)[0], pads) * bits // 8))
    return Boxes(box, box_bytes, tuple(found))


Reach = Literal["own", "pair", "no block", "no box"]


class Crossing(NamedTuple):
    """Where the blocks of a cluster load the parts of a slice whose memory is in other places than its coordinates say.

    `blocks`: bit r is set if block r loads to the memory of the other block of its pair (rank r ^ 1). `offsets`: for each bit
    of a block's rank, the bytes by which its part is further on in the buffer."""

    blocks: int
    offsets: tuple[int, ...]


def crossing(block_shape: Sequence[int], layout: NVMMASharedLayout, bits: int, part: Slice, num_ctas: int) -> Crossing:
    """Where blocks load their parts of a `part` of a tile whose `reach` is "pair"."""
    inverse, pads = layout.to_linear(part.tile_shape).pseudo_invert(), layout.pads_of(part.tile_shape)

    def place(at: Sequence[int]) -> tuple[int, int]:
        offset, block = inverse(**dict(zip(inverse.in_dims, at, strict=True)))
        return padded(offset, pads), block

    bases = block_bases(layout.cga, block_shape)
    places = [place(basis) for basis in bases]
    own = [any(basis) << bit for bit, basis in enumerate(bases)]
    others = [(block ^ rank) & 1 for (_, block), rank in zip(places, own, strict=True)]
    first = place(part.start)[1] & 1
    blocks = sum((first ^ apply(others, rank)) << rank for rank in range(num_ctas))
    return Crossing(blocks, tuple([offset * bits // 8 for offset, _ in places]))


@lru_cache(maxsize=1024)
def reach(block_shape: tuple[int, ...], layout: NVMMASharedLayout, bits: int, tile_shape: tuple[int, ...]) -> Reach:
    """Where the memory of slices of a tile lies that have the shape of a descriptor's block, for any start of the slice.

    It consists of the block's boxes, and each block of a cluster finds its part in its "own" memory, or in that of its "pair"
    (blocks 2n and 2n + 1). "no block": one block's part is in that of some other block, or of several. "no box": it does not
    consist of boxes."""
    tile_layout, block_layout = (layout.to_linear(shape) for shape in (tile_shape, block_shape))
    tile, block = tile_layout.pseudo_invert(), block_layout.pseudo_invert()
    part = part_of_block(layout.cga, block_shape)
    box = layout.box(part)
    box_bytes = prod(box) * layout.element_bytes
    step, pads = max(box_bytes & -box_bytes, TMA_BYTES) * 8 // bits, layout.pads_of(tile_shape)
    found: Reach = "own"
    for dim, own, mine, size in zip(tile.in_dims, box, part, block_shape, strict=True):
        for bit, column in enumerate(tile.columns[dim]):
            offset, others = divmod(column, tile.out_size("block"))
            before, blocks = divmod(block.columns[dim][bit], block.out_size("block")) if 1 << bit < size else (0, 0)
            if padded(offset, pads) % step if 1 << bit >= own else offset != before:
                return "no box"
            if others ^ blocks > int(1 << bit >= mine):
                return "no block"
            found = "pair" if others != blocks else found
    copied = [receivers(linear, linear.in_size("block")) for linear in (tile_layout, block_layout)]
    return "no block" if found == "pair" and copied[0] != copied[1] else found
