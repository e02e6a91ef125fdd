"""Broadcasting of operands to one shape and layout: scalars are splat, axes of length 1 are broadcast, layouts must be equal.

No layout is converted implicitly. Two tiles in different layouts are an error, whose message shows the required conversion and
its cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from weft.errors import UserError, fail
from weft.errors import language as errors
from weft.errors import thread as thread_errors
from weft.errors.memory import SHARED_HANDLE_OPERAND
from weft.ir.types import DType, Element, RegsType, ScalarType, TileType, Type, tile_type
from weft.language.runtime_value import RuntimeValue, name_of
from weft.language.tensor import Number, apply, tensor
from weft.layout import AutoLayout, DistributedLayout
from weft.layout.convert.plans import describe as describe_plan
from weft.layout.convert.plans import plan_conversion
from weft.layout.distributed import infer
from weft.ops import arith, regs, tile


@dataclass(frozen=True, slots=True)
class TileForm:
    """Shape and layout of a tile, without its element type."""

    shape: tuple[int, ...]
    layout: DistributedLayout


@dataclass(frozen=True, slots=True)
class VectorForm:
    """The form of a thread-private vector: its number of elements."""

    size: int


AnyForm = TileForm | VectorForm | None
"""The common form of operands: tiles of a form, vectors of a size, or (None) scalars."""


def common_form(what: str, operands: Sequence[object]) -> AnyForm:
    """The form to which an operation called `what` broadcasts its tile or vector operands; None if all are scalars.

    Raises CompilationError for incompatible ranks and shapes (tile-rank-mismatch, tile-shape-mismatch), layouts
    (tile-layout-mismatch) or vector sizes (thread-vector-size), and for tiles mixed with vectors (thread-vector-tile).
    """
    tiles = [x for x in operands if isinstance(x, tensor) and not x.is_scalar]
    if not tiles:
        return None
    first = tiles[0]
    form = first.handle.type
    if isinstance(form, TileType) and all(_alike(form, x.handle.type) for x in tiles[1:]):
        return TileForm(form.shape, form.layout)
    if any(isinstance(x.handle.type, RegsType) for x in tiles):
        return _vector_form(what, tiles)
    shape, owner = tuple(first.shape), first
    for x in tiles[1:]:
        shape = _broadcast_shape(what, shape, first, x)
        if _resolution_rank(x.layout) < _resolution_rank(owner.layout):
            owner = x
    layout = infer.broadcast(owner.layout, owner.shape, shape)
    for x in tiles:
        _check_layout(what, TileForm(shape, layout), owner, x)
    return TileForm(shape, layout)


def _alike(form: TileType, type: Type) -> bool:
    """Whether a type is a tile's of the same shape and layout, which needs no broadcast."""
    return type is form or (isinstance(type, TileType) and type.shape == form.shape and type.layout == form.layout)


def _vector_form(what: str, operands: Sequence[tensor]) -> VectorForm:
    first = operands[0]
    for x in operands:
        type, wanted = x.handle.type, first.handle.type
        if not isinstance(type, RegsType) or not isinstance(wanted, RegsType):
            raise fail(thread_errors.VECTOR_TILE, what=what, left=name_of(first), right=name_of(x))
        if type.count != wanted.count:
            raise fail(thread_errors.VECTOR_SIZE, what=what, left=name_of(first), right=name_of(x))
    return VectorForm(len(first))


def fit(x: tensor, form: AnyForm) -> tensor:
    """Convert a value to a form from `common_form`: splat it, set its layout, or broadcast it. None leaves it unchanged."""
    if form is None:
        return x
    if isinstance(form, VectorForm):
        return apply(regs.splat, x, count=form.size) if x.is_scalar else x
    if x.is_scalar:
        return apply(tile.splat, x, shape=form.shape, layout=form.layout)
    type = x.tile
    if not type.resolved and type.layout != form.layout:
        x = apply(tile.set_layout, x, layout=form.layout)
    return x if type.shape == form.shape else apply(tile.broadcast, x, shape=form.shape)


def constant(value: Number | RuntimeValue, dtype: DType, form: AnyForm = None) -> tensor:
    """A constant scalar, or a tile or vector filled with it. Raises CompilationError: language-literal-range, language-operand,
    shared-handle-operand.
    """
    if isinstance(value, RuntimeValue):
        raise fail(SHARED_HANDLE_OPERAND, what="this line", got=name_of(value))
    if not isinstance(cast("object", value), (int, float)):
        raise no_operand("this line", value)
    return apply(arith.constant, value=literal(value, dtype), type=_type(dtype, form))


def _type(dtype: DType, form: AnyForm) -> Type:
    if form is None:
        return ScalarType(dtype)
    if isinstance(form, VectorForm):
        return RegsType(dtype, form.size)
    return tile_type(dtype, form.shape, form.layout)


def literal(value: Number, dtype: DType) -> Number:
    """`value` converted to an element type, as a Python number; integers are range-checked."""
    if dtype.is_floating():
        return float(value)
    if dtype.is_bool():
        return bool(value)
    whole = int(value)
    if not dtype.min_value <= whole <= dtype.max_value:
        raise fail(errors.LITERAL_RANGE, value=value, dtype=dtype.name, low=dtype.min_value, high=dtype.max_value)
    return whole


def conversion_cost(
    element: Element, shape: tuple[int, ...], source: DistributedLayout, target: DistributedLayout
) -> str:
    """The cost of converting a tile between two resolved layouts, for messages."""
    src, dst = tile_type(element, shape, source).linear, tile_type(element, shape, target).linear
    if src is None or dst is None:
        return "decided when the layout is resolved"
    return describe_plan(plan_conversion(src, dst, element.bits))


def _resolution_rank(layout: DistributedLayout) -> int:
    if layout.is_resolved:
        return 0
    return 2 if isinstance(layout, AutoLayout) else 1


def _broadcast_shape(what: str, shape: tuple[int, ...], first: tensor, x: tensor) -> tuple[int, ...]:
    other = tuple(x.shape)
    if len(shape) != len(other):
        raise fail(errors.TILE_RANK_MISMATCH, what=what, left=name_of(first), right=name_of(x))
    for dim, (a, b) in enumerate(zip(shape, other, strict=True)):
        if a != b and 1 not in (a, b):
            raise fail(
                errors.TILE_SHAPE_MISMATCH,
                what=what,
                left=name_of(first),
                right=name_of(x),
                dim=dim,
                left_size=a,
                right_size=b,
            )
    return tuple(max(a, b) for a, b in zip(shape, other, strict=True))


def _check_layout(what: str, form: TileForm, owner: tensor, x: tensor) -> None:
    if x.layout == owner.layout or not x.layout.is_resolved:
        return
    stretched = infer.broadcast(x.layout, x.shape, form.shape)
    if stretched.to_linear(form.shape) == form.layout.to_linear(form.shape):
        return
    raise fail(
        errors.TILE_LAYOUT_MISMATCH,
        what=what,
        left=name_of(owner),
        left_layout=owner.layout,
        right=name_of(x),
        right_layout=x.layout,
        value=x.handle.name or "value",
        cost=conversion_cost(x.element, form.shape, stretched, form.layout),
    )


def no_operand(what: str, x: object) -> UserError:
    """The error (language-operand) for an operand that is neither a number nor a run-time value."""
    several = isinstance(x, (tuple, list))
    got = f"{len(cast('Sequence[object]', x))} values" if several else repr(x)
    hint = "; x[0] is the first item of a tuple x, and an array is a pointer to add offsets to" if several else ""
    return fail(errors.OPERAND, what=what, got=got, kind=type(x).__name__, hint=hint)
