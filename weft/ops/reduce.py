"""Operations across the elements of a tile: reductions, scans, histogram, gather, dot, and elementwise functions."""

from __future__ import annotations

from weft.ir.core import Region, Value
from weft.ir.define import op
from weft.ir.types import ScalarType, TileType, Type, int32, tile_type, with_element
from weft.layout import DistributedLayout
from weft.layout.distributed import infer
from weft.layout.reduction import plan_ordered_reduction, plan_scan
from weft.ops.check import boolean, dtype_of, integer, require, same_form, tile, yields
from weft.ops.tile import LOWER


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
        plan_ordered_reduction(types[0].linear, axis)
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
        plan_scan(types[0].linear, axis, reverse)
    yields(combine, tuple(ScalarType(t.element) for t in types), "the combine function")
    return types


@op("elements.map")
def map_elements(*values: Value, pack: int, body: Region) -> tuple[Type, ...]:
    """Apply a function of scalars to each element, or to the elements of `pack` consecutive registers at once.

    The region takes `pack` scalars per operand, operand by operand, and yields `pack` scalars per result."""
    same_form(*values)
    outputs = tuple(body.terminator.uses)
    require(len(outputs) % pack == 0, "the function yields {} values, not a multiple of pack={}", len(outputs), pack)
    return tuple(with_element(values[0].type, v.type.element) for v in outputs[::pack])


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
    `DotOperandLayout(1, layout, 0)`."""
    ta, tb, tc = tile(a), tile(b), tile(acc)
    require(ta.shape[0] == tc.shape[0] and tb.shape[1] == tc.shape[1] and ta.shape[1] == tb.shape[0], "dot shapes")
    require(dtype_of(acc).is_floating() and ta.element == tb.element == tc.element, "dot_fma needs one float type")
    return acc.type
