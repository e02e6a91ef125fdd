"""Creation of tiles: ranges and constants."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType
from weft.language.advice import constant_instead
from weft.language.broadcast import TileForm, constant, fit
from weft.language.casts import check_dtype
from weft.language.layouts import check_layout, check_tile
from weft.language.marks import builtin
from weft.language.promote import convert
from weft.language.runtime_value import describe
from weft.language.tensor import Operand, apply, tensor
from weft.layout import AutoLayout, DistributedLayout
from weft.layout.base import is_tile_size, shortened
from weft.ops import tile


@builtin
def arange(start: int, end: int, layout: DistributedLayout | None = None) -> tensor:
    """int32 tile `[start, ..., end - 1]` in a one-dimensional layout; the compiler chooses one if none is given.

    Raises tile-arange if the length is neither a power of two nor a multiple of 8, tile-arange-range beyond int32, and
    LayoutError if the layout does not fit the shape.
    """
    low, high = check_int("arange", start), check_int("arange", end)
    length = high - low
    if not is_tile_size(length):
        raise fail(errors.TILE_ARANGE, start=low, end=high, length=length)
    form = _layout(layout, (length,))
    if low < -(1 << 31) or high > 1 << 31:
        raise fail(errors.TILE_ARANGE_RANGE, start=low, end=high, length=length)
    return apply(tile.arange, start=low, end=high, layout=form)


@builtin
def full(shape: Sequence[int], value: Operand, dtype: DType, layout: DistributedLayout | None = None) -> tensor:
    """A tile filled with a number or a run-time scalar, converted to `dtype`; a scalar if the shape is empty."""
    check_dtype(dtype)
    sizes = check_shape("full", shape)
    form = TileForm(sizes, _layout(layout, sizes)) if sizes else None
    if not isinstance(value, tensor):
        return constant(value, dtype, form)
    if not value.is_scalar:
        raise fail(errors.SCALAR_NEEDED, what="full", got=describe(value))
    return fit(convert(value, dtype), form)


@builtin
def zeros(shape: Sequence[int], dtype: DType, layout: DistributedLayout | None = None) -> tensor:
    """A tile of zeros."""
    return full(shape, 0, dtype, layout)


@builtin
def full_like(
    input: tensor, value: Operand, shape: Sequence[int] | None = None, dtype: DType | None = None,
    layout: DistributedLayout | None = None,
) -> tensor:  # fmt: skip
    """A tile filled with one value; shape, element type and layout default to those of `input`."""
    check_tile("full_like", input)
    return full(shape or input.shape, value, dtype or input.dtype, layout or input.layout)


@builtin
def zeros_like(
    input: tensor,
    shape: Sequence[int] | None = None,
    dtype: DType | None = None,
    layout: DistributedLayout | None = None,
) -> tensor:
    """A tile of zeros; shape, element type and layout default to those of `input`."""
    return full_like(input, 0, shape, dtype, layout)


def check_int(what: str, value: Any) -> int:
    """A compile-time integer of at most 64 bits. Raises language-constexpr-needed or language-integer-range."""
    if isinstance(value, tensor) or not hasattr(value, "__index__"):
        raise fail(errors.CONSTEXPR_NEEDED, what=what, got=describe(value), instead=constant_instead(value))
    number = index(value)
    if not -(1 << 63) <= number < 1 << 64:
        raise fail(errors.INTEGER_RANGE, value=shortened(number))
    return number


def check_shape(what: str, shape: Any) -> tuple[int, ...]:
    """A shape as a tuple of compile-time integers."""
    if isinstance(shape, tensor):
        raise fail(errors.CONSTEXPR_NEEDED, what=what, got=describe(shape), instead=constant_instead(shape))
    return tuple(check_int(what, size) for size in ([shape] if hasattr(shape, "__index__") else shape))


def _layout(layout: DistributedLayout | None, shape: tuple[int, ...]) -> DistributedLayout:
    return check_layout(AutoLayout() if layout is None else layout, shape)
