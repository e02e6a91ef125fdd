"""Tiles: making them, giving the same values other shapes and layouts, and operations across their elements (reductions,
scans, histogram, gather, dot). All of it is gone after `lower_tiles`."""

from __future__ import annotations

import math

from weft.ir.core import Region, Value
from weft.ir.define import op
from weft.ir.types import ScalarType, TileType, Type, int32, tile_type
from weft.layout import DistributedLayout
from weft.layout.base import is_tile_size
from weft.layout.distributed import infer
from weft.layout.reduction import check_ordered_reduction, check_scan
from weft.ops.check import boolean, dtype_of, integer, require, same_form, same_type, scalar, tile, yields

LOWER = "lower_tiles"


@op("tile.arange", stage="tile", removed_by=LOWER)
def arange(start: int, end: int, layout: DistributedLayout) -> Type:
    """An int32 tile `[start, start + 1, ..., end - 1]`."""
    require(is_tile_size(end - start), "no tile has {} elements", end - start)
    return tile_type(int32, (end - start,), layout)


@op("tile.splat", stage="tile", removed_by=LOWER)
def splat(x: Value, shape: tuple[int, ...], layout: DistributedLayout) -> Type:
    """A tile whose elements are all equal to the scalar `x`."""
    scalar(x)
    return tile_type(x.type.element, shape, layout)


@op("tile.expand_dims", stage="tile", removed_by=LOWER)
def expand_dims(x: Value, axis: int) -> Type:
    """Insert an axis of length one. A tile in `SliceLayout(axis, parent)` gets layout `parent`."""
    t = tile(x)
    shape = (*t.shape[:axis], 1, *t.shape[axis:])
    return tile_type(t.element, shape, infer.expand_dims(t.layout, t.shape, axis))


@op("tile.broadcast", stage="tile", removed_by=LOWER)
def broadcast(x: Value, shape: tuple[int, ...]) -> Type:
    """Repeat along axes of length one. The layout stays the same object, unless it is specific to one shape."""
    t = tile(x)
    require(len(shape) == len(t.shape), "broadcast cannot change the rank of {}", t.shape)
    require(
        all(a in (1, b) for a, b in zip(t.shape, shape, strict=True)), "{} does not broadcast to {}", t.shape, shape
    )
    return tile_type(t.element, shape, infer.broadcast(t.layout, t.shape, shape))


@op("tile.reshape", stage="tile", removed_by=LOWER)
def reshape(x: Value, shape: tuple[int, ...]) -> Type:
    """The same elements in row-major order with another shape; no data moves, and the layout is derived from the old one."""
    t = tile(x)
    require(math.prod(shape) == math.prod(t.shape), "{} and {} differ in size", t.shape, shape)
    return tile_type(t.element, shape, infer.reshape(t.layout, t.shape, shape))


@op("tile.permute", stage="tile", removed_by=LOWER)
def permute(x: Value, order: tuple[int, ...]) -> Type:
    """Axes in another order: axis `i` of the result is axis `order[i]` of `x`; no data moves."""
    t = tile(x)
    require(sorted(order) == list(range(len(t.shape))), "{} is no permutation of {} axes", order, len(t.shape))
    return tile_type(t.element, tuple(t.shape[i] for i in order), infer.permute(t.layout, t.shape, order))


@op("tile.join", stage="tile", removed_by=LOWER)
def join(lhs: Value, rhs: Value) -> Type:
    """Stack two tiles along a new last axis of length two, which lies in registers."""
    t = tile(lhs)
    same_type(lhs, rhs)
    return tile_type(t.element, (*t.shape, 2), infer.join(t.layout, t.shape))


@op("tile.split", stage="tile", removed_by=LOWER)
def split(x: Value) -> tuple[Type, Type]:
    """Undo `join`: the two halves along the last axis, which has length two and lies in registers."""
    t = tile(x)
    require(t.shape[-1] == 2, "split needs a last axis of length 2, not {}", t.shape)
    half = tile_type(t.element, t.shape[:-1], infer.split(t.layout, t.shape))
    return half, half


@op("tile.slice", stage="tile", removed_by=LOWER)
def slice_(x: Value, offsets: tuple[int, ...], shape: tuple[int, ...]) -> Type:
    """The part of `x` that starts at `offsets` and has this shape; each thread keeps its elements, and no data moves.

    Raises LayoutError (layout-slice) for a dimension that is cut where lanes, warps or blocks divide it."""
    t = tile(x)
    require(len(offsets) == len(shape) == len(t.shape), "a slice of {} gives each dimension", t.shape)
    inside = all(o >= 0 and 1 <= n <= own - o for o, n, own in zip(offsets, shape, t.shape, strict=True))
    require(inside, "{} elements from {} are not inside of {}", shape, offsets, t.shape)
    return tile_type(t.element, shape, infer.extract(t.layout, t.shape, offsets, shape))


@op("tile.cat", stage="tile", removed_by=LOWER)
def cat(lhs: Value, rhs: Value, axis: int) -> Type:
    """Two tiles of one type, one after the other along an axis; no data moves, and slices are the operands again."""
    t = tile(lhs)
    same_type(lhs, rhs)
    shape = tuple(2 * n if d == axis else n for d, n in enumerate(t.shape))
    return tile_type(t.element, shape, infer.cat(t.layout, t.shape, axis))


@op("tile.convert", stage="tile", removed_by=LOWER)
def convert(x: Value, layout: DistributedLayout) -> Type:
    """The same tile in another layout; `weft.layout.convert` plans how data moves."""
    t = tile(x)
    return tile_type(t.element, t.shape, layout)


@op("tile.set_layout", stage="tile", removed_by="resolve_layouts")
def set_layout(x: Value, layout: DistributedLayout) -> Type:
    """Set the layout of a tile whose layout is to be inferred; no data moves."""
    t = tile(x)
    return tile_type(t.element, t.shape, layout)


@op("tile.extract", stage="tile", removed_by=LOWER)
def extract(x: Value) -> Type:
    """The only element of a tile of size one, as a scalar."""
    t = tile(x)
    require(math.prod(t.shape) == 1, "only a tile of one element is a scalar, not {}", t.shape)
    return ScalarType(t.element)


@op("tile.reduce", stage="tile", removed_by=LOWER, needs="block")
def reduce(*values: Value, axis: int, in_order: bool = False, combine: Region) -> tuple[Type, ...]:
    """Combine all elements along `axis`, in the order of `layout.reduction.plan_reduction`, or with `in_order`, for functions
    that may not commute, in increasing order (`plan_ordered_reduction`).

    `combine` takes two scalars per operand (all left ones, then all right ones) and yields one per operand. A result has the
    shape without the axis and layout `SliceLayout(axis, layout)`; the results of one-dimensional tiles are scalars.

    Raises LayoutError (layout-reduce-order) with `in_order` for a layout that mixes the axis with others."""
    types = tuple(tile(value) for value in values)
    same_form(*values)
    if in_order and types[0].linear is not None:
        check_ordered_reduction(types[0].linear, axis)
    elements = tuple(ScalarType(t.element) for t in types)
    yields(combine, elements, "the combine function")
    if len(types[0].shape) == 1:
        return elements
    shape = types[0].shape[:axis] + types[0].shape[axis + 1 :]
    layout = infer.slice_of(types[0].layout, axis)
    return tuple(tile_type(t.element, shape, layout) for t in types)


@op("tile.scan", stage="tile", removed_by=LOWER, needs="block")
def scan(*values: Value, axis: int, reverse: bool, combine: Region) -> tuple[Type, ...]:
    """Inclusive prefix combination along `axis` (from the end when `reverse`), in the order of `plan_scan`.

    Raises LayoutError (layout-scan) for a layout that mixes the axis with others."""
    types = tuple(tile(value) for value in values)
    same_form(*values)
    if types[0].linear is not None:
        check_scan(types[0].linear, axis)
    yields(combine, tuple(ScalarType(t.element) for t in types), "the combine function")
    return types


@op("tile.sort_step", stage="tile", removed_by=LOWER, needs="block")
def sort_step(x: Value, axis: int, stride: int, flip: int, descending: bool) -> Type:
    """One step of a bitonic sort of integers: elements `i` and `i ^ stride` along `axis` are put in order, the smaller first
    unless `descending`; the other way round where `i & flip` is set."""
    integer(x)
    size = tile(x).shape[axis]
    inside = 0 < stride < size and 0 <= flip < size and flip & stride == 0
    require(inside and not stride & (stride - 1) and not flip & (flip - 1), "one bit each of an index below {}", size)
    return x.type


@op("tile.histogram", stage="tile", removed_by=LOWER, needs="block")
def histogram(x: Value, mask: Value | None, bins: int, layout: DistributedLayout) -> Type:
    """An int32 tile of `bins` counts: how often each value 0 ... bins - 1 occurs in the one-dimensional integer tile `x`."""
    integer(x)
    boolean(mask)
    same_form(x, mask)
    require(len(tile(x).shape) == 1, "histogram takes a one-dimensional tile")
    return tile_type(int32, (bins,), layout)


@op("tile.gather", stage="tile", removed_by=LOWER, needs="block")
def gather(src: Value, index: Value, axis: int) -> Type:
    """`out[..., i, ...] = src[..., index[..., i, ...], ...]` along `axis`; shape and layout are the index tile's."""
    s, i = tile(src), tile(index)
    integer(index)
    require(len(s.shape) == len(i.shape), "source and index of a gather have one rank")
    require(
        all(a == b for d, (a, b) in enumerate(zip(s.shape, i.shape, strict=True)) if d != axis),
        "gather along {} needs equal other axes: {} and {}",
        axis,
        s.shape,
        i.shape,
    )
    return TileType(s.element, i.shape, i.linear, i.layout)


@op("tile.dot_fma", stage="tile", removed_by=LOWER)
def dot_fma(a: Value, b: Value, acc: Value) -> Type:
    """`acc + a @ b` in `acc`'s type by fused multiply-adds along k in increasing order, in each thread.

    `acc` is `[M, N]` in a layout; `a` is `[M, K]` in `DotOperandLayout(0, layout, 0)`, `b` is `[K, N]` in
    `DotOperandLayout(1, layout, 0)`. All three may have a leading dimension, along which they are independent."""
    ta, tb, tc = tile(a), tile(b), tile(acc)
    batch, rows, columns = tc.shape[:-2], *tc.shape[-2:]
    require(ta.shape == (*batch, rows, ta.shape[-1]) and tb.shape == (*batch, ta.shape[-1], columns), "dot shapes")
    require(dtype_of(acc).is_floating() and ta.element == tb.element == tc.element, "dot_fma needs one float type")
    return acc.type
