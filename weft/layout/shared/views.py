"""Layouts of views: the same bytes seen with dimensions in another order, in another shape, or as other elements.

A view moves no element, so its layout follows from the layout of the tile. The result is the class that an author would write
if there is one: a transposed `NVMMASharedLayout`, or a `SwizzledSharedLayout` of another order. Otherwise the view is a
`SharedLinearLayout`, with the alignment of the tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import tile_dims, whole_shape
from weft.layout.linear.ends import end_alike
from weft.layout.linear.f2 import log2, rank
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared.layouts import (
    NVMMASharedLayout,
    PaddedSharedLayout,
    Pads,
    SharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared.sizes import alignment


def permuted(layout: SharedLayout, order: Sequence[int], shape: Sequence[int]) -> SharedLayout:
    """The layout of a tile of this shape seen with its dimensions in another order: new dimension i is old `order[i]`.

    Raises LayoutError where the layout does not fit the shape.
    """
    if tuple(order) == tuple(range(layout.rank)):
        return layout
    linear = layout.to_linear(shape).permute_outs([f"dim{d}" for d in order])
    sizes = [shape[d] for d in order]
    names = (name for name, _ in tile_dims(sizes))
    view = linear.rename_outs(dict(zip(linear.out_dims, names, strict=True))).ending(sizes)
    cga = [[vector[d] for d in order] for vector in layout.cga]
    return _spelled(layout, layout.pads_of(shape), view, _permuted_candidates(layout, order, cga))


def reshaped(layout: SharedLayout, shape: Sequence[int], new_shape: Sequence[int]) -> SharedLayout:
    """The layout of a tile of this shape read row by row in another shape of as many elements.

    Raises LayoutError where the layout does not fit the shape, or the shapes do not go together.
    """
    linear = layout.to_linear(shape)
    if tuple(shape) == tuple(new_shape):
        return layout
    if not end_alike(shape, new_shape):
        raise fail(errors.RESHAPE_END, src=list(shape), dst=list(new_shape))
    view = linear.reshape_outs(tile_dims(whole_shape(new_shape))).ending(new_shape)
    return _spelled(layout, layout.pads_of(shape), view, _reshaped_candidates(layout, len(new_shape)))


def reinterpreted(layout: SharedLayout, target: SharedLayout, part_bytes: int | None = None) -> SharedLayout:
    """`target`, for the bytes of a tile in `layout` read as other elements, or for the `part_bytes` of a slice of the tile.

    Any target is valid whose tiles need no larger alignment; the allocation checks the number of bytes. Raises LayoutError
    (layout-reinterpret) otherwise.
    """
    has, needs = alignment(layout), alignment(target)
    # Slices are aligned to their size, so a contiguous one is aligned to its bytes.
    has = has if part_bytes is None else min(has, part_bytes)
    if needs > has:
        raise fail(errors.REINTERPRET, layout=layout, has=has, target=target, needs=needs)
    return target


@lru_cache(maxsize=4096)
def contiguous(layout: SharedLayout, tile_shape: tuple[int, ...], part: tuple[int, ...]) -> int:
    """The number of elements that a slice of this shape of a tile holds in each block, if they are contiguous in memory;
    otherwise 0. The slice then starts at a multiple of that number."""
    if (isinstance(layout, PaddedSharedLayout) and part != tile_shape) or whole_shape(part) != part:
        return 0
    pads = layout.pads_of(tile_shape)
    inverse = layout.to_linear(tile_shape).pseudo_invert()
    blocks = inverse.out_size("block")
    inside = [
        divmod(column, blocks)
        for dim, size in zip(inverse.in_dims, part, strict=True)
        for column in inverse.columns[dim][: log2(size)]
    ]
    count = 1 << sum(not block for _, block in inside)
    in_order = all(not offset if block else offset < count for offset, block in inside)
    # A slice that cuts through a dimension split over blocks lies in some of them only.
    everywhere = rank([block for _, block in inside]) == log2(blocks)
    undivided = part == tile_shape or all(not value % count for pair in pads for value in pair)
    return count if in_order and everywhere and undivided else 0


def _permuted_candidates(
    layout: SharedLayout, order: Sequence[int], cga: Sequence[Sequence[int]]
) -> Iterator[SharedLayout]:
    """The layouts that an author might write for a permuted tile."""
    match layout:
        case SwizzledSharedLayout():
            yield replace(layout, order=[order.index(d) for d in layout.order], cga_layout=cga)
        case NVMMASharedLayout():
            yield replace(layout, transposed=not layout.transposed, cga_layout=cga)
            yield replace(layout, cga_layout=cga)
        case _:
            pass


def _reshaped_candidates(layout: SharedLayout, rank: int) -> Iterator[SharedLayout]:
    """The layouts that an author might write for a reshaped tile; none if the reshape cuts through blocks."""
    if layout.cga:
        return
    match layout:
        case SwizzledSharedLayout():
            yield replace(layout, order=range(rank)[::-1])
        case NVMMASharedLayout():
            yield replace(layout, rank=rank)
            yield replace(layout, rank=rank, transposed=not layout.transposed)
        case _:
            pass


def _spelled(layout: SharedLayout, pads: Pads, view: LinearLayout, candidates: Iterator[SharedLayout]) -> SharedLayout:
    """The first candidate that equals `view`, otherwise a layout by its bases."""
    shape = view.sizes
    for candidate in candidates:
        if _fits(candidate, shape) and candidate.to_linear(shape) == view and candidate.pads_of(shape) == pads:
            return candidate
    offsets, blocks = view.bases("offset"), view.bases("block")
    if pads:
        return PaddedSharedLayout(pads, offsets, blocks, view.out_sizes)
    # A tile of one element has no basis to tell its rank; a zero basis repeats it within its alignment.
    return SharedLinearLayout(offsets or [[0] * len(shape)], blocks, alignment(layout))


def _fits(candidate: SharedLayout, shape: Sequence[int]) -> bool:
    if not isinstance(candidate, NVMMASharedLayout):
        return True
    return candidate.rank > 0 and candidate.swizzle_byte_width <= candidate.widest(shape)
