"""Shape operations. No data moves: the layout of the result is derived from the operand's."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any, cast

from weft.errors import fail
from weft.errors import language as errors
from weft.errors import layout as layout_errors
from weft.ir.types import int1
from weft.language.broadcast import TileForm, common_form, fit
from weft.language.creation import check_int, check_shape
from weft.language.layouts import check_tile
from weft.language.marks import builtin
from weft.language.promote import common_dtype, to_tensor, unify
from weft.language.runtime_value import name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.layout import SliceLayout, check_tile_shape
from weft.layout.base import check_reshaped
from weft.ops import tile


@builtin
def expand_dims(x: tensor, axis: int | Sequence[int]) -> tensor:
    """Insert an axis of length 1, or several (positions in the result). A tile in `SliceLayout(axis, parent)` gets `parent`.

    Other layouts give a linear layout. Raises tile-expand-slice for a slice that removed another dimension.
    """
    check_tile("expand_dims", x)
    axes = [axis] if hasattr(axis, "__index__") else list(check_shape("expand_dims", axis))
    rank = x.rank + len(axes)
    for position in sorted(check_axis(a, rank) for a in axes):
        x = _expand(x, position)
    return x


@builtin
def broadcast(x: tensor, y: tensor) -> tuple[tensor, tensor]:
    """Broadcast two values to one shape and layout; element types are unchanged."""
    left, right = to_tensor(x), to_tensor(y)
    form = common_form("broadcast", (left, right))
    return fit(left, form), fit(right, form)


@builtin
def broadcast_to(x: tensor, *shape: int | Sequence[int]) -> tensor:
    """Repeat a tile along its axes of length 1. Raises LayoutError (layout-broadcast) if another axis has a different
    length."""
    check_tile("broadcast_to", x)
    sizes = _sizes("broadcast_to", shape)
    check_tile_shape(sizes)
    if len(sizes) != x.rank:
        raise fail(errors.TILE_RANK_MISMATCH, what="broadcast_to", left=name_of(x), right=f"shape {list(sizes)}")
    for dim, (old, new) in enumerate(zip(x.shape, sizes, strict=True)):
        if old not in (1, new):
            raise fail(layout_errors.BROADCAST, src=x.shape, dst=list(sizes), dim=dim, size=old)
    return fit(x, TileForm(sizes, x.layout))


@builtin
def reshape(x: tensor, *shape: int | Sequence[int]) -> tensor:
    """Reshape in row-major order; the shape is a list or arguments, and `[]` gives the only element as a scalar."""
    check_tile("reshape", x)
    sizes = _sizes("reshape", shape)
    if not sizes and x.numel == 1:
        return item(x)
    check_reshaped(sizes)
    if math.prod(sizes) != x.numel:
        raise fail(layout_errors.RESHAPE, src=x.shape, src_numel=x.numel, dst=list(sizes), dst_numel=math.prod(sizes))
    return x if sizes == x.tile.shape else apply(tile.reshape, x, shape=sizes)


@builtin
def ravel(x: tensor) -> tensor:
    """Flatten to one dimension in row-major order."""
    return reshape(x, [x.numel])


@builtin
def permute(x: tensor, *order: int | Sequence[int]) -> tensor:
    """Permute axes: axis `i` of the result is axis `order[i]` of `x`. The order is a list or arguments."""
    check_tile("permute", x)
    axes = tuple(check_axis(a, x.rank) for a in _sizes("permute", order))
    if sorted(axes) != list(range(x.rank)):
        example = list(reversed(range(x.rank)))
        raise fail(layout_errors.ORDER, field="permute's order", order=list(axes), last=x.rank - 1, example=example)
    return apply(tile.permute, x, order=axes)


@builtin
def trans(x: tensor, *order: int | Sequence[int]) -> tensor:
    """Transpose the last two axes; `permute` if an order is given."""
    check_tile("trans", x)
    if order:
        return permute(x, *order)
    if x.rank < 2:
        raise fail(errors.TILE_TRANSPOSE, value=name_of(x))
    return permute(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@builtin
def join(a: tensor, b: tensor) -> tensor:
    """Stack two tiles, promoted and broadcast, along a new last axis of length 2, which is held in registers."""
    left, right = unify("join", a, b, dtype=common_dtype("join", (a, b)))
    check_tile("join", left)
    return apply(tile.join, left, right)


@builtin
def split(x: tensor) -> tuple[tensor, tensor]:
    """The inverse of `join`; a tile [2] gives two scalars. Raises LayoutError if the last axis is not of length 2
    (layout-split-shape) or is distributed over threads (layout-split)."""
    check_tile("split", x)
    if x.shape[-1] != 2:
        raise fail(layout_errors.SPLIT_SHAPE, shape=x.shape)
    if x.rank == 1:
        left, right = apply_many(tile.split, [expand_dims(x, 0)])
        return item(left), item(right)
    left, right = apply_many(tile.split, [x])
    return left, right


@builtin
def slice(source: tensor, shape: Sequence[int], offsets: Sequence[int]) -> tensor:
    """The part of a tile that starts at `offsets` and has this shape, all compile-time integers. With 64 rows, `x[:, 32:64]` is
    `slice(x, [64, 32], [0, 32])`.

    Each thread keeps those of its elements that lie in the part, so no instruction is needed: along a dimension that is cut,
    offset and size are multiples of the runs that lanes and warps divide it into (layout-slice otherwise). The result has the
    tile's layout if that puts a tile of its shape at the same places, as blocked layouts do, and otherwise a linear one.

    Raises tile-slice for a part that is empty or not inside of the tile.
    """
    check_tile("slice", source)
    sizes, starts = check_shape("slice", shape), check_shape("slice", offsets)
    if not len(sizes) == len(starts) == source.rank:
        raise fail(
            errors.TILE_SLICE_RANK, value=name_of(source), rank=source.rank, shape=list(sizes), offsets=list(starts)
        )
    for axis, (start, size, whole) in enumerate(zip(starts, sizes, source.shape, strict=True)):
        if start < 0 or size < 1 or start + size > whole:
            raise fail(errors.TILE_SLICE, start=start, end=start + size, axis=axis, value=name_of(source), size=whole)
    return source if sizes == source.tile.shape else apply(tile.slice_, source, offsets=starts, shape=sizes)


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    """Two tiles of one shape, promoted, one after the other along `dim`. No data moves: slices of the result are the operands.

    The result has the operands' layout if that puts the tile of twice the size at the same places; otherwise the registers of
    `other` follow those of `input`. Elements are never reordered, whatever `can_reorder`. Raises tile-cat.
    """
    left, right = to_tensor(input), to_tensor(other)
    check_tile("cat", left)
    check_tile("cat", right)
    axis = check_axis(dim, left.rank)
    if left.shape != right.shape:
        raise fail(errors.TILE_CAT, left=name_of(left), right=name_of(right))
    left, right = unify("cat", left, right, dtype=common_dtype("cat", (left, right)))
    return apply(tile.cat, left, right, axis=axis)


@builtin
def item(x: tensor) -> tensor:
    """The only element of a tile of size one, as a scalar. Raises tile-item otherwise."""
    check_tile("item", x)
    if x.numel != 1:
        raise fail(errors.TILE_ITEM, value=name_of(x))
    return apply(tile.extract, x)


def index(x: tensor, key: object) -> tensor:
    """Implements `x[key]`: a colon keeps a dimension, `start:end` with compile-time bounds a part of it (see `slice`), and None
    adds one. `x[0]` of a scalar is the scalar, so that code for vectors also works for vectors of size 1, which are scalars."""
    if x.is_scalar and isinstance(key, int) and key in (0, -1):
        return x
    keys = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    check_tile("indexing", x)
    for k in keys:
        if k is not None and not _is_range(k):
            raise fail(errors.TILE_INDEX, key=shown_key(k), value=name_of(x), instead=_instead_of_key(k, x))
    ranges = [k for k in keys if k is not None]
    if len(ranges) > x.rank:
        raise fail(errors.TILE_INDEX_RANK, colons=len(ranges), value=name_of(x))
    whole = list(x.shape)
    bounds = [_range_of(k, size) for k, size in zip(ranges, whole, strict=False)]
    bounds += [(0, size) for size in whole[len(bounds) :]]
    x = slice(x, [end - start for start, end in bounds], [start for start, _ in bounds])
    for axis, k in enumerate(keys):
        if k is None:
            x = _expand(x, axis)
    return x


def _is_range(key: Any) -> bool:
    """Whether an index is `:`, or `start:end` with bounds that are no run-time values."""
    if type(key) is not builtins.slice:
        return False
    start, stop, step = _bounds(key)
    return step in (None, 1) and not any(isinstance(part, tensor) for part in (start, stop))


def _range_of(key: Any, size: int) -> tuple[int, int]:
    """First element and end; negative bounds count from the end of the dimension, as in Python."""
    start, stop, _ = _bounds(key)
    first = 0 if start is None else check_int("an index", start)
    end = size if stop is None else check_int("an index", stop)
    return first + size * (first < 0), end + size * (end < 0)


def shown_key(key: Any) -> str:
    """An index in source notation."""
    if type(key) is builtins.slice:
        parts = ["" if part is None else shown_key(part) for part in _bounds(key)]
        return ":".join(parts if key.step is not None else parts[:2])
    return (key.handle.name or "a run-time value") if isinstance(key, tensor) else str(key)


def _bounds(key: Any) -> tuple[Any, Any, Any]:
    return key.start, key.stop, key.step


def _instead_of_key(key: Any, x: tensor) -> str:
    """A replacement of an index that extracts elements of a tile."""
    name = x.handle.name or "x"
    if isinstance(key, builtins.slice):
        return "take whole ranges with bounds that are known at compile time, as in x[:, 0:32]; load other parts from memory"
    if isinstance(key, tensor) and not key.is_scalar:
        if key.element == int1:
            return f"keep the tile whole and choose with gl.where(condition, {name}, other)"
        return f"write gl.gather({name}, index, axis)"
    if isinstance(key, (int, tensor)):
        chosen = f"gl.sum(gl.where(index == {shown_key(key)}, {name}, 0))"
        return f"one element is {chosen}, with the positions index = gl.arange(...)"
    return "use : to keep a dimension and None to add one"


def check_axis(axis: Any, rank: int) -> int:
    """A normalized axis; negative ones count from the end. Raises LayoutError (layout-axis)."""
    number = check_int("axis", axis)
    if not -rank <= number < rank:
        raise fail(layout_errors.AXIS, axis=number, rank=rank, first=-rank, last=rank - 1)
    return number % rank


def _expand(x: tensor, axis: int) -> tensor:
    layout = x.layout
    if isinstance(layout, SliceLayout) and layout.dim != axis:
        raise fail(
            errors.TILE_EXPAND_SLICE, axis=axis, value=name_of(x), layout=layout, dim=layout.dim, parent=layout.parent
        )
    return apply(tile.expand_dims, x, axis=axis)


def _sizes(what: str, shape: tuple[Any, ...]) -> tuple[int, ...]:
    return check_shape(what, shape[0] if len(shape) == 1 else shape)
