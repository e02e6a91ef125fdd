"""Result layouts of expanding, slicing, reshaping, permuting, joining, splitting, concatenating and broadcasting a tile.

None of these operations moves data between threads: the result's layout describes where its elements already are. Each
function takes a layout object and the shape of its tile, and returns a layout of the same class if that can express the
result, otherwise a DistributedLinearLayout. Unresolved layouts stay unresolved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import TileLayout, check_order, check_reshaped, check_tile_shape, tile_dims, whole_shape
from weft.layout.distributed.layouts import (
    AutoLayout,
    BlockedLayout,
    DistributedLayout,
    DistributedLinearLayout,
    SliceLayout,
)
from weft.layout.linear.ends import end_alike
from weft.layout.linear.f2 import is_power_of_two, next_power_of_two
from weft.layout.linear.maps import LinearLayout

P = ParamSpec("P")
R = TypeVar("R")


def _memoised(function: Callable[P, R]) -> Callable[P, R]:
    """Cache results; shapes and orders may be lists."""
    cached: Callable[..., Any] = lru_cache(maxsize=1 << 14)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return cached(*map(_hashable, args), **{name: _hashable(value) for name, value in kwargs.items()})

    return call


def _hashable(value: Any) -> Any:
    return value if isinstance(value, TileLayout | LinearLayout | int) else tuple(value)


@_memoised
def as_spelling(linear: LinearLayout, shape: Sequence[int]) -> DistributedLinearLayout:
    """A distributed linear layout, spelled by its bases over a tile of this shape."""
    whole = whole_shape(shape)
    reshaped = linear.reshape_outs(tile_dims(whole))
    registers, lanes, warps, blocks = (reshaped.bases(d) for d in ("register", "lane", "warp", "block"))
    return DistributedLinearLayout(registers, lanes, warps, blocks, whole)


def slice_of(layout: DistributedLayout, axis: int) -> SliceLayout:
    """The layout of the result of a reduction along `axis`. A negative axis counts from the end."""
    if layout.is_resolved:
        axis = _axis(axis, layout.rank)
    return SliceLayout(axis, layout)


@_memoised
def expand_dims(layout: DistributedLayout, shape: Sequence[int], axis: int) -> DistributedLayout:
    """A tile of this shape with a dimension of size 1 put in before `axis`.

    A slice along that axis becomes its parent; any other layout becomes a linear one.
    """
    axis = _axis(axis, len(shape) + 1)
    if isinstance(layout, SliceLayout) and layout.dim == axis:
        return layout.parent
    if not layout.is_resolved:
        return AutoLayout()
    return as_spelling(layout.to_linear(shape), (*shape[:axis], 1, *shape[axis:]))


@_memoised
def reshape(layout: DistributedLayout, src_shape: Sequence[int], dst_shape: Sequence[int]) -> DistributedLayout:
    """The same elements in row-major order, in another shape."""
    check_reshaped(dst_shape)
    numels = prod(src_shape), prod(dst_shape)
    if numels[0] != numels[1]:
        src, dst = list(src_shape), list(dst_shape)
        raise fail(errors.RESHAPE, src=src, dst=dst, src_numel=numels[0], dst_numel=numels[1])
    if not end_alike(src_shape, dst_shape):
        raise fail(errors.RESHAPE_END, src=list(src_shape), dst=list(dst_shape))
    if src_shape == dst_shape or not layout.is_resolved:
        return layout
    return as_spelling(layout.to_linear(src_shape), dst_shape)


@_memoised
def permute(layout: DistributedLayout, shape: Sequence[int], order: Sequence[int]) -> DistributedLayout:
    """Dimension i of the result is dimension `order[i]` of the tile."""
    check_order("order", order, len(shape))
    if list(order) == sorted(order) or not layout.is_resolved:
        return layout
    if isinstance(layout, BlockedLayout):
        return _permute_blocked(layout, order)
    linear = layout.to_linear(shape).permute_outs([f"dim{d}" for d in order])
    return as_spelling(linear, [shape[d] for d in order])


@_memoised
def join(layout: DistributedLayout, shape: Sequence[int]) -> DistributedLayout:
    """Two tiles of this shape and layout side by side in a new last dimension of size 2, a pair in neighbouring registers."""
    if not layout.is_resolved:
        return layout
    if isinstance(layout, BlockedLayout):
        return _blocked_with_last(layout, 2)
    linear = layout.to_linear(shape)
    registers, lanes, warps, blocks = ([(*basis, 0) for basis in linear.bases(d)] for d in linear.in_dims)
    pair = (*(0 for _ in shape), 1)
    return DistributedLinearLayout([pair, *registers], lanes, warps, blocks, (*linear.out_sizes, 2))


@_memoised
def split(layout: DistributedLayout, shape: Sequence[int]) -> DistributedLayout:
    """The layout of both halves along a last dimension of size 2, which one register bit must tell apart."""
    if not shape or shape[-1] != 2:
        raise fail(errors.SPLIT_SHAPE, shape=list(shape))
    if not layout.is_resolved:
        return layout
    linear = layout.to_linear(shape)
    registers = linear.columns["register"]
    if registers.count(1) != 1 or sum(column & 1 for column in linear.flat_columns) != 1:
        raise fail(errors.SPLIT_LAYOUT, layout=layout)
    if isinstance(layout, BlockedLayout) and _last_sizes(layout) == (2, 1, 1):
        return _blocked_without_last(layout)
    half = linear.with_columns("register", (column for column in registers if column != 1))
    outer = [f"dim{d}" for d in range(len(shape) - 1)]
    return as_spelling(half.sublayout(half.in_dims, outer), shape[:-1])


@_memoised
def extract(
    layout: DistributedLayout, shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]
) -> DistributedLayout:
    """The part of a tile that starts at `offsets` and has shape `sizes`: each thread keeps its elements of the part.

    The result is the tile's own layout if that puts a tile of the part's shape at these places. Raises LayoutError
    (layout-slice) for offsets and sizes that are no multiples of the dimension's `grain`.
    """
    check_tile_shape(sizes)
    if not layout.is_resolved or sizes == shape:
        return layout
    for dim, start, size, unit in _cuts(layout, shape, offsets, sizes):
        if start % unit or size % unit:
            fix = _cut_instead(layout, shape, dim, unit)
            raise fail(
                errors.SLICE,
                start=start,
                end=start + size,
                dim=dim,
                layout=layout,
                unit=unit,
                whole=shape[dim],
                fix=fix,
            )
    linear = layout.to_linear(shape)
    registers, lanes, warps, blocks = (linear.bases(d) for d in linear.in_dims)
    kept = [basis for basis in registers if all(c < n for c, n in zip(basis, sizes, strict=True))]
    part = DistributedLinearLayout(kept, lanes, warps, blocks, whole_shape(sizes))
    same = layout.accepts(sizes) and layout.to_linear(sizes) is part.to_linear(sizes)
    return layout if same else part


@_memoised
def cat(layout: DistributedLayout, shape: Sequence[int], dim: int) -> DistributedLayout:
    """Two tiles of this shape and layout one after the other along `dim`, the second in registers that follow the first one's.

    The result is the tiles' own layout if that puts a tile of the new shape at these places, in any order of registers."""
    whole = tuple(2 * n if d == dim else n for d, n in enumerate(shape))
    check_tile_shape(whole)
    if not layout.is_resolved:
        return layout
    if keeps_parts(layout, whole, (0,) * len(shape), shape):
        return layout
    linear = layout.to_linear(shape)
    registers, lanes, warps, blocks = (linear.bases(d) for d in linear.in_dims)
    second = tuple(size if d == dim else 0 for d, size in enumerate(linear.out_sizes))
    return DistributedLinearLayout([*registers, second], lanes, warps, blocks, whole_shape(whole))


@_memoised
def keeps_parts(layout: DistributedLayout, shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the part of a tile in this layout has this layout too, as with most blocked layouts."""
    if not layout.accepts(shape) or not layout.accepts(sizes):
        return False
    if any(start % unit or size % unit for _, start, size, unit in _cuts(layout, shape, offsets, sizes)):
        return False
    return extract(layout, shape, offsets, sizes).to_linear(sizes) is layout.to_linear(sizes)


@_memoised
def grain(layout: DistributedLayout, shape: Sequence[int], dim: int) -> int:
    """The unit in which a dimension can be cut without moving data: the lowest coordinate bits, up to this power of two, may
    depend on lane, warp and block; each higher bit is one bit of the register's number."""
    linear = layout.to_linear(shape)
    mixed = [basis[dim] for d in ("lane", "warp", "block") for basis in linear.bases(d)]
    mixed += [linear.coordinates(column)[dim] for column in linear.columns["register"] if not is_power_of_two(column)]
    return 1 << max(value.bit_length() for value in (0, *mixed))


@_memoised
def broadcast(layout: DistributedLayout, src_shape: Sequence[int], dst_shape: Sequence[int]) -> DistributedLayout:
    """The tile repeated along dimensions of size 1. A layout made for one shape repeats in registers, last dimension first."""
    check_reshaped(dst_shape)
    if len(src_shape) != len(dst_shape):
        raise fail(errors.RANK, layout=layout, rank=len(src_shape), shape=list(dst_shape), got=len(dst_shape))
    for d, (have, want) in enumerate(zip(src_shape, dst_shape, strict=True)):
        if have not in (1, want):
            raise fail(errors.BROADCAST, src=list(src_shape), dst=list(dst_shape), dim=d, size=have)
    if not layout.is_resolved or layout.accepts(dst_shape):
        return layout
    linear = layout.to_linear(src_shape)
    for d in reversed(range(len(dst_shape))):
        repeats = next_power_of_two(dst_shape[d]) if src_shape[d] == 1 else 1
        linear *= LinearLayout.identity(repeats, "register", f"dim{d}")
    return as_spelling(linear, dst_shape)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise fail(errors.AXIS, axis=axis, rank=rank, first=-rank, last=rank - 1)
    return axis % rank


def _cuts(
    layout: DistributedLayout, shape: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, int, int, int]]:
    """The dimensions that a part does not have whole: each with its start, its size and its grain."""
    parts = enumerate(zip(offsets, sizes, strict=True))
    return [(d, start, size, grain(layout, shape, d)) for d, (start, size) in parts if size < shape[d]]


def _cut_instead(layout: DistributedLayout, shape: Sequence[int], dim: int, unit: int) -> str:
    """What to write instead of a cut between multiples of `unit`."""
    if unit < shape[dim]:
        return f"cut at multiples of {unit}"
    if len(shape) == 1 or layout.num_ctas > 1:
        return "load the part that is wanted, with other offsets or a mask"
    along = max((d for d in range(len(shape)) if d != dim), key=lambda d: shape[d])
    sizes = ((dim, shape[dim]), (along, 32), (along, layout.num_warps or 1))
    own, lanes, warps = ([n if d == at else 1 for d in range(len(shape))] for at, n in sizes)
    order = [dim, *(d for d in reversed(range(len(shape))) if d != dim)]
    instead = BlockedLayout(own, lanes, warps, order)
    return f"convert_layout first, to a layout that holds the dimension in registers, such as gl.{instead}"


def _permute_blocked(layout: BlockedLayout, order: Sequence[int]) -> BlockedLayout:
    place = {d: index for index, d in enumerate(order)}
    sizes = (layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta, *layout.cga)
    threads, lanes, warps, *cga = ([values[d] for d in order] for values in sizes)
    return BlockedLayout(threads, lanes, warps, [place[d] for d in layout.order], cga_layout=cga)


def _last_sizes(layout: BlockedLayout) -> tuple[int, int, int]:
    return layout.size_per_thread[-1], layout.threads_per_warp[-1], layout.warps_per_cta[-1]


def _blocked_with_last(layout: BlockedLayout, size: int) -> BlockedLayout:
    return BlockedLayout(
        [*layout.size_per_thread, size],
        [*layout.threads_per_warp, 1],
        [*layout.warps_per_cta, 1],
        [layout.rank, *layout.order],
        cga_layout=[[*basis, 0] for basis in layout.cga],
    )


def _blocked_without_last(layout: BlockedLayout) -> BlockedLayout:
    return BlockedLayout(
        layout.size_per_thread[:-1],
        layout.threads_per_warp[:-1],
        layout.warps_per_cta[:-1],
        [d for d in layout.order if d != layout.rank - 1],
        cga_layout=[basis[:-1] for basis in layout.cga],
    )
