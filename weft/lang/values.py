"""Distinguishing run-time values from constants, and converting constants to run-time values by Python's rules."""

from __future__ import annotations

from enum import Enum
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard, cast

from weft.errors import fail
from weft.errors import source as errors
from weft.errors.memory import SHARED_HANDLE_OPERAND
from weft.ir.build import Builder
from weft.ir.core import Value
from weft.ir.types import (
    DType,
    Element,
    LocalType,
    RegsType,
    ScalarType,
    SharedArrayType,
    SharedType,
    TensorType,
    TileType,
    Type,
    int1,
    int64,
    with_element,
)  # fmt: skip
from weft.language import tensor
from weft.language.aggregate import is_aggregate
from weft.language.broadcast import literal
from weft.language.casts import convert
from weft.language.debug import Text
from weft.language.promote import literal_dtype, promote
from weft.language.runtime_value import RuntimeValue, describe, is_handle, name_of
from weft.language.tree import Structure, flatten
from weft.ops import arith
from weft.ops.tensor_memory import reinterpret
from weft.ops.tile import set_layout
from weft.views.brackets import UNFINISHED, is_unfinished

PASS_CONSTANT = "pass a constant or a constexpr parameter"
DROP_ANNOTATION = f"{PASS_CONSTANT}, or drop the annotation gl.constexpr"
_ATOMS = frozenset(
    (bool, int, float, complex, str, bytes, range, slice, type(None), type(Ellipsis), type(NotImplemented))
)
_CONTAINERS = (tuple, list, dict, set, frozenset)
_KINDS = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def is_runtime(value: object) -> bool:
    """True for a run-time value, and for a sequence or aggregate that contains one."""
    if isinstance(value, (RuntimeValue, Text)):
        return True
    if is_sequence(value) or is_aggregate(value):
        return any(isinstance(leaf, (RuntimeValue, Text)) for leaf in flatten(value)[0])
    return False


def is_memory(value: object) -> bool:
    """True for memory that threads address (shared or local). It is not carried by loops unless the body replaces it."""
    return isinstance(value, RuntimeValue) and isinstance(value.handle.type, (SharedArrayType, LocalType))


def class_of(value: object) -> type[Any]:
    """`type(value)`, with a type that strict type checkers accept."""
    return type(value)


def is_plain(value: object) -> bool:
    """True for run-time values, values of weft's classes, and constants whose text, order and hash depend on their value
    alone, not on their address."""
    kind = class_of(value)
    if kind in _CONTAINERS:
        parts: Any = cast("dict[Any, Any]", value).items() if kind is dict else value
        return all(map(is_plain, parts))
    return kind in _ATOMS or kind.__module__.partition(".")[0] == "weft"


def is_identity(value: object) -> bool:
    """True for objects that compare by identity: functions, and instances of classes other than plain constants."""
    return not is_plain(value) and not isinstance(value, (type, Enum))


def is_sequence(value: object) -> TypeGuard[tuple[Any, ...] | list[Any]]:
    """True for tuples and lists."""
    return isinstance(value, (tuple, list))


def is_number(leaf: object) -> bool:
    """True for Python numbers and bools."""
    return isinstance(leaf, (int, float))


def is_tile(value: object) -> bool:
    """True for run-time tiles."""
    return isinstance(value, tensor) and not value.is_scalar


def same_constant(a: object, b: object) -> bool:
    """True when two constants are indistinguishable: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def same_leaf(a: object, b: object) -> bool:
    """True when two leaves are the same run-time value or indistinguishable constants."""
    if isinstance(a, RuntimeValue) or isinstance(b, RuntimeValue):
        return isinstance(a, RuntimeValue) and isinstance(b, RuntimeValue) and a.handle is b.handle
    return same_constant(a, b)


def number_type(number: int | float | bool) -> ScalarType:
    """The scalar type of a Python number."""
    return ScalarType(literal_dtype(number))


def accepts(type: Type, leaf: object) -> bool:
    """True when a leaf has a type, is a tile that can gain its layout, tensor memory that can be seen as a tile of its own, or
    a number that converts to a scalar of the type.

    A float does not convert to an integer type, an int not to bool."""
    if isinstance(leaf, RuntimeValue):
        own = leaf.handle.type
        return own == type or gains_layout(own, type) or is_columns_of(own, type)
    if not isinstance(leaf, (int, float)) or not isinstance(type, ScalarType) or not isinstance(type.element, DType):
        return False
    own, element = literal_dtype(leaf), type.element
    if element.is_floating() or own.is_bool():
        return True
    return _KINDS[own.kind] == _KINDS[element.kind] and element.min_value <= leaf <= element.max_value


def gains_layout(type: Type | None, other: Type) -> bool:
    """True when the first is a tile type with an unresolved layout, and the other is the same type with a layout."""
    if not isinstance(type, TileType) or not isinstance(other, TileType) or type.resolved or not other.resolved:
        return False
    return (type.element, type.shape) == (other.element, other.shape)


def is_columns_of(type: Type | None, other: Type) -> bool:
    """True when the first is the type of some columns of a tile in tensor memory, and the other that of a tile which these are
    by themselves, as slices from any column on are."""
    if not isinstance(type, TensorType) or not isinstance(other, TensorType):
        return False
    alike = (type.element, type.shape, type.layout) == (other.element, other.shape, other.layout)
    whole_rows = len(type.shape) == 2 and type.shape[0] == type.alloc_shape[0] and other.alloc_shape == other.shape
    return alike and whole_rows and type.layout.column_step(type.alloc_shape, type.shape[1]) is not None


def common_type(a: Any, b: Any) -> Type | None:
    """The type that two leaves have in common or can both convert to; None when there is none."""
    if is_number(a) and is_number(b):
        return ScalarType(promote(literal_dtype(a), literal_dtype(b)))
    types = [x.handle.type for x in (a, b) if isinstance(x, RuntimeValue)]
    return next((type for type in types if accepts(type, a) and accepts(type, b)), None)


def materialise(builder: Builder, leaf: Any, type: Type) -> Value:
    """The IR value of a leaf that a type accepts. Emits a constant for a number, and a layout for an unresolved tile."""
    if isinstance(leaf, RuntimeValue):
        if gains_layout(leaf.handle.type, type):
            assert isinstance(type, TileType)
            return builder.emit(set_layout, leaf.handle, layout=type.layout)
        if leaf.handle.type != type:
            assert isinstance(type, TensorType)
            return builder.emit(reinterpret, leaf.handle, element=type.element, shape=type.shape, layout=type.layout)
        return leaf.handle
    assert isinstance(type, ScalarType)
    assert isinstance(type.element, DType)
    return builder.emit(arith.constant, value=literal(leaf, type.element), type=type)


def has_placeholder(type: Type) -> bool:
    """True for types that have a placeholder: scalars, tiles and vectors."""
    return isinstance(type, (ScalarType, TileType, RegsType))


def placeholder(builder: Builder, type: Type) -> Value:
    """A value of a type whose contents are never used: zeros, or the null pointer."""
    element = type.element
    if isinstance(element, DType):
        return builder.emit(arith.constant, value=literal(0, element), type=type)
    zero = builder.emit(arith.constant, value=0, type=with_element(type, int64))
    return builder.emit(arith.bitcast, zero, element=element)


def truth(value: Any, where: str) -> bool | tensor:
    """The truth value of a condition: a Python bool for a constant, an int1 scalar for a run-time scalar.

    `where` names the construct in messages. Raises CompilationError: lang-tile-condition for a tile, lang-truth for an
    aggregate, shared-handle-operand for a handle.
    """
    if isinstance(value, tensor):
        if not value.is_scalar:
            raise fail(errors.TILE_CONDITION, where=where, got=name_of(value))
        return convert(value, int1)
    if is_handle(value):
        raise fail(SHARED_HANDLE_OPERAND, what=where, got=name_of(value))
    if is_aggregate(value):
        raise fail(errors.TRUTH, got=show(value))
    return bool(value)


def show(value: Any) -> str:
    """A value for a message: name and kind of a run-time value, the text of a constant."""
    if isinstance(value, RuntimeValue):
        return name_of(value)
    if is_runtime(value):
        return f"a {type(value).__name__} of run-time values"
    if is_unfinished(value):
        return UNFINISHED
    if isinstance(value, FunctionType):
        return f"the function {value.__name__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, MethodType):
        return f"the method {value.__name__} of {name_of(value.__self__)}"
    return repr(value)


def show_type(leaf: Any, other: Any = None) -> str:
    """A leaf's type for a message; with its layout when only the layout distinguishes it from `other`."""
    if not isinstance(leaf, RuntimeValue):
        return repr(leaf)
    mine, theirs = leaf.handle.type, other.handle.type if isinstance(other, RuntimeValue) else None
    kind = describe(leaf)
    if isinstance(mine, TileType) and isinstance(theirs, TileType):
        return f"{kind} in {mine.layout!r}" if (mine.element, mine.shape) == (theirs.element, theirs.shape) else kind
    if isinstance(mine, (SharedType, TensorType)) and isinstance(theirs, type(mine)) and kind == describe(other):
        return f"{kind} in {mine.layout!r}" if mine.layout != theirs.layout else f"{kind} of {list(mine.alloc_shape)}"
    return kind


def _full(tile: tensor, value: object) -> str:
    layout = tile.layout if tile.layout.is_resolved else "layout"
    return f"gl.full({tile.shape}, {value}, gl.{tile.dtype.name}, {layout})"


def conversion(path: str, wanted: Any, got: Any) -> str:
    """The fix that gives `got` the type of `wanted`."""
    if isinstance(wanted, tensor) and isinstance(got, tensor):
        want, have = wanted.handle.type, got.handle.type
        if isinstance(want, TileType) and isinstance(have, TileType) and want.shape == have.shape:
            if want.element == have.element:
                return f"convert it: gl.convert_layout({path}, {want.layout!r})"
            return _common_type(want.element, have.element)
        if isinstance(want, ScalarType) and isinstance(have, ScalarType):
            return _common_type(want.element, have.element)
        tile, scalar = (wanted, got) if isinstance(want, TileType) else (got, wanted)
        if tile.dtype == scalar.dtype and isinstance(scalar.handle.type, ScalarType):
            return f"make a tile of the scalar: {_full(tile, scalar.handle.name or 'value')}"
        return "keep its shape, or use another name"
    tile = next((x for x in (wanted, got) if is_tile(x)), None)
    if tile is not None and (is_number(wanted) or is_number(got)):
        return f"use a tile in both places: {_full(tile, got if tile is wanted else wanted)}"
    run_time = next((x for x in (wanted, got) if isinstance(x, tensor)), None)
    if run_time is not None and (is_number(wanted) or is_number(got)):
        return f"write a number of type {run_time.dtype.name}, or convert with .to(...)"
    return "keep it the same, or use another name"


def _common_type(one: Element, other: Element) -> str:
    """The fix that gives two values a common element type, that of arithmetic between them."""
    if not isinstance(one, DType) or not isinstance(other, DType):
        return "keep it the same, or use another name"
    common = promote(one, other)
    narrower = [dtype.name for dtype in (one, other) if dtype != common]
    which = f"the {narrower[0]} one" if len(narrower) == 1 else "both"
    return f"convert {which} with .to(gl.{common.name})"


def require_constexpr(value: Any, what: str, instead: str = PASS_CONSTANT) -> Any:
    """Returns a constant unchanged. Raises CompilationError (lang-not-constexpr) for a run-time value; `instead` is the fix."""
    if is_runtime(value):
        raise fail(errors.NOT_CONSTEXPR, what=what, got=show(value), instead=instead)
    return value


def difference(path: str, one: Any, other: Any) -> tuple[str, str, str]:
    """A description of each of two values that differ, and the fix."""
    (first, *more), structure = _leaves(one)
    (second, *others), other_structure = _leaves(other)
    if structure == other_structure and not more and not others:
        return show_type(first, second), show_type(second, first), conversion(path, first, second)
    return show(one), show(other), "keep it the same kind of value, or use another name"


def _leaves(value: Any) -> tuple[list[Any], Structure]:
    leaves, structure = flatten(value)
    return leaves or [value], structure
