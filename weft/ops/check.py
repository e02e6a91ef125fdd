"""Checks of operand types that typing rules share.

Typing rules are strict: equal types, no promotion, no broadcasting. The public functions in `weft.language` convert operands
and explain mistakes to authors; a `TypingError` here is an error inside weft.
"""

from __future__ import annotations

from weft.errors import WeftError
from weft.ir.core import Region, Value
from weft.ir.types import (
    DescriptorType,
    DType,
    Element,
    Pointer,
    RegsType,
    ScalarType,
    SharedArrayType,
    SharedType,
    TensorType,
    TileType,
    Type,
)
from weft.layout import MBarrierLayout
from weft.layout.linear.maps import LinearLayout


class TypingError(WeftError):
    """The typing rule of an operation rejects its operands or attributes."""


def require(condition: bool, message: str, *parts: object) -> None:
    """Raise TypingError unless `condition` holds. `message` is formatted with `parts` only then, as printing types is slow."""
    if not condition:
        raise TypingError(message.format(*parts))


def same_type(*values: Value) -> Type:
    """All operands have one type; returns it."""
    first = values[0].type
    for value in values[1:]:
        if value.type is not first and value.type != first:
            raise TypingError(f"operands differ: {first} and {value.type}")
    return first


def same_form(first: Value, *values: Value | None) -> None:
    """All present operands are scalars, or tiles of one shape and layout, or register arrays of one length."""
    for value in values:
        if value is not None and form(value.type) != form(first.type):
            raise TypingError(f"operands have different forms: {first.type} and {value.type}")


def form(type: Type) -> object:
    """The shape and layout of a type, or the length of an array: the type without its element."""
    if isinstance(type, TileType):
        return (type.shape, type.linear if type.resolved else type.layout)
    if isinstance(type, RegsType):
        return type.count
    return None


def dtype_of(value: Value) -> DType:
    """The element type, which must not be a pointer."""
    element = value.type.element
    if isinstance(element, Pointer):
        raise TypingError(f"a pointer where a number is needed: {value.type}")
    return element


def pointer_of(value: Value) -> Pointer:
    """The pointer type of an address operand."""
    element = value.type.element
    if not isinstance(element, Pointer):
        raise TypingError(f"a number where a pointer is needed: {value.type}")
    return element


def numeric(value: Value) -> None:
    """Integers and floats, not bool and not pointers."""
    require(not dtype_of(value).is_bool(), "a bool where a number is needed: {}", value.type)


def integer(value: Value) -> None:
    """Integers and bool."""
    require(dtype_of(value).is_int(), "a float where an integer is needed: {}", value.type)


def floating(value: Value) -> None:
    """Floats."""
    require(dtype_of(value).is_floating(), "an integer where a float is needed: {}", value.type)


def boolean(value: Value | None) -> None:
    """int1, where the operand is present."""
    require(value is None or dtype_of(value).is_bool(), "a mask or condition must be int1")


def scalar(value: Value, element: Element | None = None) -> None:
    """A scalar, of the given element type if one is given."""
    require(isinstance(value.type, ScalarType), "a scalar is needed: {}", value.type)
    require(element is None or value.type.element == element, "{} is needed: {}", element, value.type)


def tile(value: Value) -> TileType:
    """A tile with a resolved or unresolved layout; returns its type."""
    if not isinstance(value.type, TileType):
        raise TypingError(f"a tile is needed: {value.type}")
    return value.type


def linear_of(value: Value | None) -> LinearLayout:
    """The linear layout of a tile whose layout is resolved."""
    assert value is not None and isinstance(value.type, TileType) and value.type.linear is not None
    return value.type.linear


def regs(value: Value) -> RegsType:
    """A register array; returns its type."""
    if not isinstance(value.type, RegsType):
        raise TypingError(f"a register array is needed: {value.type}")
    return value.type


def shared(value: Value) -> SharedType:
    """A handle to shared memory; returns its type."""
    if not isinstance(value.type, SharedType):
        raise TypingError(f"a handle to shared memory is needed: {value.type}")
    return value.type


def tensor_memory(value: Value) -> TensorType:
    """A handle to tensor memory; returns its type."""
    if not isinstance(value.type, TensorType):
        raise TypingError(f"a handle to tensor memory is needed: {value.type}")
    return value.type


def shared_array(value: Value) -> SharedArrayType:
    """An array in shared memory; returns its type."""
    if not isinstance(value.type, SharedArrayType):
        raise TypingError(f"an array in shared memory is needed: {value.type}")
    return value.type


def barrier(value: Value) -> None:
    """A handle to one mbarrier; in lowered IR its 8 bytes of memory."""
    t = value.type
    if isinstance(t, SharedArrayType):
        require((t.element.code, t.count) == ("i64", 1), "one mbarrier is needed: {}", t)
        return
    t = shared(value)
    require(isinstance(t.layout, MBarrierLayout) and len(t.shape) == 1, "one mbarrier is needed: {}", t)


def descriptor(value: Value) -> DescriptorType:
    """A TMA descriptor; returns its type."""
    if not isinstance(value.type, DescriptorType):
        raise TypingError(f"a tensor descriptor is needed: {value.type}")
    return value.type


def yields(region: Region, types: tuple[Type, ...], what: str) -> None:
    """The region's terminator yields exactly these types."""
    got = tuple(value.type for value in region.terminator.uses)
    require(got == types, "{} yields {}, not {}", what, got, types)
