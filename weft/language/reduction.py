"""Reductions along an axis, with any combine function of scalars.

The order of combination is a function of the layout (`weft.layout.reduction`), so a float sum is the same on every back end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from weft.analysis.commute import commutes
from weft.errors import fail
from weft.errors import language as errors
from weft.ir.core import Region
from weft.ir.types import DType, ScalarType, float32, int32, uint32
from weft.language import advice, logic, shape
from weft.language.arith import add, maximum, minimum
from weft.language.broadcast import TileForm, common_form, constant, fit
from weft.language.casts import check_dtype
from weft.language.context import current
from weft.language.creation import arange
from weft.language.layouts import check_tile
from weft.language.marks import builtin, is_builtin, jit_of
from weft.language.promote import convert
from weft.language.runtime_value import describe
from weft.language.tensor import apply_many, tensor
from weft.language.unrolled import unrolled
from weft.layout import SliceLayout
from weft.ops import control, tile

Combine = Callable[..., Any]


@builtin
def reduce(input: Any, axis: int | None, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Reduce one tile, or a tuple of tiles jointly, along `axis` (over all elements if None).

    `combine_fn` is a `@jit` function (or one of the language, such as `maximum`) of two scalars per tile, all left operands
    first, that returns one scalar per tile; it must be associative. Results have `SliceLayout(axis, layout)`; for a
    one-dimensional tile and for `axis=None` they are scalars. `keep_dims` keeps the axis with length 1.

    A combine function that is not known to commute is applied in increasing order along the axis. A commutative one reduces
    over registers first, then lanes, then warps, which takes the fewest shuffles. The compiler proves commutativity if the
    operations are the same after the left and right arguments are exchanged, as those of sums, products, extrema and bitwise
    operations are; `max`, `argmax` and similar functions are treated as commutative. Either order depends on the layout alone.

    Raises tile-combine-function, tile-combine-result, language-tile-needed, layout-axis, and layout-reduce-order for a layout
    that interleaves the axis with others, so that it has no order.
    """
    single = isinstance(input, tensor)
    results = _reduce((input,) if single else tuple(input), axis, callable_of("reduce", combine_fn), keep_dims)
    return results[0] if single else results


@builtin
def sum(input: tensor, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> tensor:
    """Sum along an axis, in `dtype`; integers narrower than 32 bits are summed in 32 bits by default."""
    check_tile("sum", input)
    return reduce_one(convert(input, sum_dtype(input, dtype)), axis, add, keep_dims)


@builtin
def max(
    input: tensor, axis: int | None = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:  # fmt: skip
    """Largest element along an axis, in at least 32 bits; with `return_indices` a pair of values and int32 positions.

    The position of equal elements is the first one, or any of them without `return_indices_tie_break_left`. NaNs are ignored.
    """
    if return_indices:
        return _with_indices("max", input, axis, "gt", return_indices_tie_break_left, keep_dims)
    _check_extreme("max", input)
    return reduce_one(_widened(input), axis, maximum, keep_dims)


@builtin
def min(
    input: tensor, axis: int | None = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:  # fmt: skip
    """Smallest element along an axis; otherwise as `max`."""
    if return_indices:
        return _with_indices("min", input, axis, "lt", return_indices_tie_break_left, keep_dims)
    _check_extreme("min", input)
    return reduce_one(_widened(input), axis, minimum, keep_dims)


@builtin
def argmax(input: tensor, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """int32 position of the largest element along an axis; of equal ones the first, or any without `tie_break_left`."""
    return _with_indices("argmax", input, axis, "gt", tie_break_left, keep_dims)[1]


@builtin
def argmin(input: tensor, axis: int, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """int32 position of the smallest element along an axis; of equal ones the first, or any without `tie_break_left`."""
    return _with_indices("argmin", input, axis, "lt", tie_break_left, keep_dims)[1]


@builtin
def xor_sum(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """Bitwise XOR of integers along an axis."""
    return reduce_one(_integers("xor_sum", input), axis, logic.bit_xor, keep_dims)


@builtin
def reduce_or(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """Bitwise OR of integers or bools along an axis."""
    return reduce_one(_integers("reduce_or", input), axis, logic.bit_or, keep_dims)


def _check_extreme(what: str, value: object) -> None:
    """Raises language-extreme for a number, as Python's function of the same name takes, and language-tile-needed."""
    if isinstance(value, (int, float)) or (isinstance(value, tensor) and value.is_scalar):
        raise fail(errors.EXTREME, what=what, got=describe(value), name=advice.author_name(value))
    check_tile(what, value)


def sum_dtype(input: tensor, dtype: DType | None) -> DType:
    """The element type of a sum: the given one; by default at least 32 bits for integers, and float32 for fp8."""
    if dtype is not None:
        check_dtype(dtype)
        return dtype
    own: DType = input.dtype
    if own.is_int() and own.bits < 32:
        return uint32 if own.is_int_unsigned() else int32
    return float32 if own.is_fp8() else own


def callable_of(what: str, function: Any) -> Combine:
    """A Python callable for a combine or element function: it inlines a `@jit` function and calls one of the language."""
    if jit_of(function) is not None:
        return lambda *args: current().inline(function, list(args), {})
    if not is_builtin(function):
        raise fail(errors.TILE_COMBINE_FUNCTION, what=what, got=getattr(function, "__name__", repr(function)))
    return function


def combine_region(what: str, values: Sequence[tensor], combine: Combine) -> Region:
    """The region of a reduction or scan: it takes two scalars per value and yields the result of `combine`."""
    builder = current().builder
    types = [ScalarType(value.element) for value in values]
    with builder.region(types * 2) as body:
        outputs = parts_of(combine(*map(tensor, body.args)))
        if len(outputs) != len(values):
            raise fail(errors.TILE_COMBINE_COUNT, what=what, got=len(outputs), want=len(values))
        checked = [_combined(what, out, value) for out, value in zip(outputs, values, strict=True)]
        builder.emit(control.yield_, *(value.handle for value in checked))
    return unrolled(builder, body.done)


def parts_of(result: Any) -> tuple[Any, ...]:
    """A function's result, one value or several, as a tuple."""
    return tuple(cast("Sequence[Any]", result)) if isinstance(result, (tuple, list)) else (result,)


def _combined(what: str, result: Any, value: tensor) -> tensor:
    if isinstance(result, (int, float)):
        result = constant(result, value.dtype)
    if not isinstance(result, tensor) or not result.is_scalar or result.element != value.element:
        raise fail(errors.TILE_COMBINE_RESULT, what=what, got=describe(result), want=value.element.name)
    return result


def reduce_one(input: tensor, axis: int | None, combine: Combine, keep_dims: bool = False) -> tensor:
    """The reduction of one tile by a Python function of two scalars."""
    (result,) = _reduce((input,), axis, combine, keep_dims)
    return result


def _reduce(
    inputs: tuple[tensor, ...], axis: int | None, combine: Combine, keep_dims: bool, any_order: bool = False
) -> tuple[tensor, ...]:
    for x in inputs:
        check_tile("reduce", x)
    form = common_form("reduce", inputs)
    tiles = tuple(fit(x, form) for x in inputs)
    rank = tiles[0].rank
    if axis is None:
        results = _along(tuple(shape.ravel(x) for x in tiles), 0, combine, any_order)
        whole = TileForm((1,) * rank, tiles[0].layout)
        return tuple(fit(x, whole) for x in results) if keep_dims else results
    position = shape.check_axis(axis, rank)
    results = _along(tiles, position, combine, any_order)
    return tuple(_restored(r, x, position) for r, x in zip(results, tiles, strict=True)) if keep_dims else results


def _along(inputs: tuple[tensor, ...], axis: int, combine: Combine, any_order: bool) -> tuple[tensor, ...]:
    """`any_order`: the function is commutative, although its operations do not prove it."""
    region = combine_region("reduce", inputs, combine)
    return apply_many(tile.reduce, inputs, (region,), axis=axis, in_order=not (any_order or commutes(region)))


def _restored(result: tensor, input: tensor, axis: int) -> tensor:
    if result.is_scalar:
        return fit(result, TileForm((1,), input.layout))
    return shape.expand_dims(result, axis)


def _widened(input: tensor) -> tensor:
    dtype: DType = input.dtype
    if dtype.bits >= 32:
        return input
    return convert(input, float32 if dtype.is_floating() else int32)


def _integers(what: str, input: tensor) -> tensor:
    check_tile(what, input)
    if not input.dtype.is_int():
        raise fail(errors.INTEGER_NEEDED, what=what, got=describe(input))
    return input


def _with_indices(what: str, input: tensor, axis: int | None, better: Any, left: bool, keep_dims: bool) -> Any:
    check_tile(what, input)
    if axis is None:
        raise fail(errors.TILE_INDEX_AXIS, what=what)
    position = shape.check_axis(axis, input.rank)
    indices = _positions(input, position)

    def combine(value: tensor, index: tensor, other: tensor, other_index: tensor) -> tuple[tensor, tensor]:
        wins = logic.compare(better, value, other)
        if left:
            tie = logic.bit_and(logic.compare("eq", value, other), logic.compare("lt", index, other_index))
            wins = logic.bit_or(wins, tie)
        return logic.where(wins, value, other), logic.where(wins, index, other_index)

    return _reduce((input, indices), position, combine, keep_dims, any_order=True)


def _positions(input: tensor, axis: int) -> tensor:
    """The index along `axis` of each element, in the shape and layout of `input`."""
    layout, others = input.layout, [d for d in range(input.rank) if d != axis]
    if layout.is_resolved:
        for dim in reversed(others):
            layout = SliceLayout(dim, layout)
    index = arange(0, input.shape[axis], layout)
    for dim in others:
        index = shape.expand_dims(index, dim)
    return fit(index, TileForm(tuple(input.shape), input.layout))
