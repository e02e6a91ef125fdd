"""Specialisation: the properties of an argument for which a kernel is compiled.

Array: dtype, and whether its address is a multiple of 16 bytes. Integer: width, whether it is 1 (then it is folded), and
whether 16 divides it. A float is fp32, a bool one bit, None a constant. Tensor descriptor: everything except address, extents
and strides. View: the static part of its layout; its address and run-time extents count as those of an array and of integers.
Tuple: its length, its class if it is a named tuple, and that of each item. Constexpr: its value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from weft.errors import fail
from weft.errors.launch import ARGUMENT_KIND, ARGUMENT_RANGE, CONSTEXPR_KIND, TYPE_TEXT
from weft.plain import array_of, as_number
from weft.runtime.arguments import array
from weft.runtime.descriptor import Descriptor, HostDescriptor
from weft.runtime.dtypes import canonical, dtype_name, short_name

ALIGNMENT = 16
"""The widest access of one thread in bytes, and the divisor of integers that lets rows start at such an address."""

_FLOAT32_LIMIT = 2.0**128 - 2.0**103
"""The smallest number that rounds to infinity in float32."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An array. `dtype` is a canonical name (see `weft.runtime.dtypes`), `aligned` means to 16 bytes."""

    dtype: str
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number by value: `int32`, `int64`, `uint64`, `float32` or `bool`."""

    dtype: str
    divisible_by_16: bool = False


@dataclass(frozen=True, slots=True)
class Constexpr:
    """A value known at compile time. Equal when type and value agree, so 1, True and 1.0 are three values."""

    value: object = field(compare=False)
    key: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", freeze(self.value))


@dataclass(frozen=True, slots=True)
class View:
    """A view of an array: pointer to its first element, static part (`key`), and run-time extents and strides (`numbers`). A
    symmetric tensor is a view whose numbers include the addresses of other ranks.

    `names` has a name for each number ("dim_0", "stride_1"). Unlike an integer argument, a number that is 1 is not folded: the
    layout decides what is static.
    """

    pointer: Pointer
    key: Hashable
    numbers: tuple[Scalar | Pointer, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """The canonical name of the elements' type."""
        return self.pointer.dtype


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of run-time arguments, `form` being its class if it is a named tuple."""

    items: tuple[ArgumentType, ...]
    form: Any = None

    def named(self, name: str) -> tuple[tuple[str, ArgumentType], ...]:
        """The items with the names of their parameters.

        >>> Tuple((Scalar("int32"), Constexpr(1))).named("shape")[0]
        ('shape.0', Scalar(dtype='int32', divisible_by_16=False))
        """
        return tuple((f"{name}.{index}", item) for index, item in enumerate(self.items))


ArgumentType = Pointer | Scalar | View | Descriptor | Constexpr | Tuple


@dataclass(frozen=True, slots=True)
class Specialization:
    """What a kernel is compiled for, as `jit(repr=)` sees it, by parameter: `constants` has the values that are known at
    compile time, `signature` the types: '*fp32', 'i32', 'constexpr'."""

    constants: Mapping[str, object]
    signature: Mapping[str, object]

    @classmethod
    def of(cls, arguments: Mapping[str, ArgumentType]) -> Specialization:
        """That of a request's arguments."""
        signature = {name: _spelled(kind) for name, kind in arguments.items()}
        return cls({name: kind.value for name, kind in arguments.items() if isinstance(kind, Constexpr)}, signature)


def _spelled(kind: ArgumentType) -> object:
    if isinstance(kind, Tuple):
        return tuple(map(_spelled, kind.items))
    if isinstance(kind, Constexpr):
        return "constexpr"
    if isinstance(kind, Descriptor):
        return f"tensordesc<{short_name(kind.dtype)}{list(kind.block_shape)}>"
    return f"{'' if isinstance(kind, Scalar) else '*'}{short_name(kind.dtype)}"


def leaves(name: str, kind: ArgumentType) -> Iterator[tuple[str, ArgumentType]]:
    """A type with its parameter's name; instead of a tuple its items, also those of tuples in it."""
    if not isinstance(kind, Tuple):
        yield name, kind
        return
    for called, item in kind.named(name):
        yield from leaves(called, item)


def constants(arguments: Mapping[str, ArgumentType]) -> Iterator[tuple[str, object]]:
    """What of the arguments is known at compile time, by parameter: of a tuple its class and a tuple of the items."""
    for name, kind in arguments.items():
        if isinstance(kind, (Constexpr, Tuple)):
            yield name, _constant_of(kind)


def _constant_of(kind: ArgumentType) -> object:
    if isinstance(kind, Tuple):
        return kind.form, *map(_constant_of, kind.items)
    return kind.value if isinstance(kind, Constexpr) else None


@dataclass(frozen=True, slots=True)
class MockTensor:
    """Stand-in for an array of a dtype in `kernel.warmup`, where nothing is launched.

    `dtype` is that of any framework, or a string such as 'fp32'; `aligned` means an address that is a multiple of 16.
    """

    dtype: object
    aligned: bool = True

    @property
    def name(self) -> str:
        """The canonical name of the dtype. Raises LaunchError (launch-array-dtype)."""
        return dtype_name(self.dtype)


def stand_in(value: Any) -> Any:
    """The value itself, or a `MockTensor` for a dtype; of a tuple those of its items."""
    if isinstance(value, tuple):
        items, form = map(stand_in, cast("tuple[Any, ...]", value)), form_of(cast("object", value))
        return tuple(items) if form is None else form._make(items)
    return MockTensor(value) if _is_dtype(value) else value


def _is_dtype(value: Any) -> bool:
    """True for a dtype of weft, NumPy or PyTorch, and for NumPy's scalar classes such as `np.float32`."""
    if isinstance(value, type):
        return any(kind.__name__ == "generic" for kind in value.__mro__)
    return any(kind.__name__ in ("dtype", "DType") for kind in type(value).__mro__)


def freeze(value: object) -> Hashable:
    """A key of a constexpr value that includes its type. Raises TypeError for unhashable values.

    >>> freeze(1) == freeze(True), freeze((1, 2)) == freeze((1, 2)), freeze(0.0) == freeze(-0.0)
    (False, True, False)
    """
    if isinstance(value, float):
        return (type(value), value.hex())
    if isinstance(value, (tuple, list)):
        items = cast("tuple[object, ...]", value)
        return (type(items), tuple(freeze(item) for item in items))
    hash(value)
    return (type(value), value)


def _constant(value: object) -> str:
    """The fix for a value that a compile-time parameter does not accept."""
    if any(hasattr(value, protocol) for protocol in ("__array_interface__", "__cuda_array_interface__", "__dlpack__")):
        return "pass arrays to parameters without gl.constexpr: is the order of the arguments that of the parameters?"
    return "pass a number, a string, a dtype, a layout, a function, or a tuple of those"


def passable(parameter: str, value: object) -> str:
    """The fix for a value that a run-time parameter does not accept."""
    instead = array_of(parameter, value)
    parameter = parameter.partition("[")[0]
    if isinstance(value, (list, range)):
        return (
            f"pass a tuple, as in tuple({parameter}), an array, as in {instead}, or annotate {parameter}: gl.constexpr"
        )
    if isinstance(value, (tuple, bytes)):
        return f"make an array of it, as in {instead}, or annotate {parameter}: gl.constexpr"
    if instead is not None:
        return f"pass {instead}"
    return (
        "pass an array, a number, a bool or None; if the kernel must know it at compile time, "
        f"annotate the parameter: {parameter}: gl.constexpr"
    )


def constexpr(kernel: str, parameter: str, value: object) -> Constexpr:
    """The type of a compile-time argument. Raises LaunchError (launch-constexpr-kind) for unhashable values."""
    try:
        return Constexpr(value)
    except TypeError:
        raise fail(
            CONSTEXPR_KIND, name=kernel, parameter=parameter, value=_describe(value), instead=_constant(value)
        ) from None


def specialise(kernel: str, parameter: str, value: Any, *, facts: bool = True) -> ArgumentType:
    """The type of a run-time argument; `facts=False` keeps only its dtype (`do_not_specialize`).

    Raises LaunchError: launch-argument-kind for objects a kernel cannot take, launch-argument-range for integers beyond
    64 bits and floats beyond fp32, and what `weft.runtime.arguments.array` raises.
    """
    if value is None:
        return Constexpr(None)
    if isinstance(value, bool):
        return Scalar("bool")
    if isinstance(value, tuple):
        items = items_of(parameter, cast("tuple[Any, ...]", value))
        return Tuple(
            tuple(specialise(kernel, name, item, facts=facts) for name, item in items), form_of(cast("object", value))
        )
    if isinstance(value, HostDescriptor):
        return value.tensor_map.kind
    if isinstance(value, str):
        return parse_type(value)
    if is_constant(value):
        return constexpr(kernel, parameter, plain(value))
    argument = view_argument(value)
    if argument is not None:
        return view_type(kernel, parameter, argument, facts=facts)
    pointer = _pointer(value, 0, facts)
    if pointer is not None:
        return pointer
    number = as_number(value)
    if number is None:
        raise fail(
            ARGUMENT_KIND, name=kernel, parameter=parameter, value=_describe(value), instead=passable(parameter, value)
        )
    if isinstance(number, bool):
        return Scalar("bool")
    if isinstance(number, float):
        if _FLOAT32_LIMIT <= abs(number) < math.inf:
            fix = "scale it down, or compute it in the kernel"
            raise fail(ARGUMENT_RANGE, name=kernel, parameter=parameter, value=value, limit="float32", fix=fix)
        return Scalar("float32")
    return _integer(kernel, parameter, number, facts)


def items_of(name: str, value: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The items of a tuple argument, with names for messages."""
    return ((f"{name}[{index}]", item) for index, item in enumerate(value))


def spread(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Run-time arguments by name; instead of a tuple its items, also those of tuples in it."""
    for name, value in arguments:
        if isinstance(value, tuple):
            yield from spread(items_of(name, cast("tuple[Any, ...]", value)))
        else:
            yield name, value


def form_of(value: object) -> Any:
    """The class of a named tuple, None for other tuples (`torch.Size` among them)."""
    return type(value) if hasattr(type(value), "_fields") else None


def is_constant(value: object) -> bool:
    """True for arguments that are constants also where the parameter is not annotated so: `gl.constexpr(...)`, functions."""
    return type(value).__name__ == "constexpr" or hasattr(value, "__weft_jit__")


def plain(value: Any) -> Any:
    """The plain value of a `gl.constexpr(...)` object; any other value itself."""
    return value.value if type(value).__name__ == "constexpr" else value


def is_view(value: object) -> bool:
    """True for objects that are passed as views of arrays."""
    return hasattr(type(value), "__weft_view__")


def view_argument(value: Any) -> Any:
    """The `weft.runtime.views.ViewArgument` of a view, or None for other objects."""
    return value.__weft_view__() if is_view(value) else None


def view_type(kernel: str, parameter: str, argument: Any, *, facts: bool = True) -> View:
    """The type of a view from its description. Raises LaunchError (launch-argument-kind) if it is not a view of an array."""
    pointer = _pointer(argument.array, argument.byte_offset, facts)
    if pointer is None:
        raise fail(
            ARGUMENT_KIND,
            name=kernel,
            parameter=parameter,
            value=f"a view of {_describe(argument.array)}",
            instead=passable(parameter, argument.array),
        )
    dtype = "int64" if argument.wide else "int32"
    kinds = argument.kinds
    if kinds is None:
        kinds = tuple(Scalar(dtype, facts and number % ALIGNMENT == 0) for number in argument.numbers)
    return View(pointer, argument.key, kinds, argument.names)


def integer_dtype(value: int) -> str | None:
    """The narrowest of int32, int64 and uint64 that holds a Python integer, or None."""
    if -(1 << 31) <= value < 1 << 31:
        return "int32"
    if -(1 << 63) <= value < 1 << 63:
        return "int64"
    return "uint64" if 0 <= value < 1 << 64 else None


def parse_type(text: str) -> ArgumentType:
    """The type that a string denotes: `*fp32:16` an aligned array, `i32:16` a multiple of 16, `i32:1` the constant 1.

    Raises LaunchError (launch-type-text) for anything else.
    """
    spelled, _, fact = text.partition(":")
    name = canonical(spelled.lstrip("*"))
    if name is None or fact not in ("", "16", "1") or spelled.count("*") > 1:
        raise fail(TYPE_TEXT, text=text)
    if spelled.startswith("*"):
        return Pointer(name, fact == "16")
    return Constexpr(1) if fact == "1" else Scalar(name, fact == "16")


def _pointer(value: Any, byte_offset: int, facts: bool) -> Pointer | None:
    """The type of an address at `byte_offset` from an array's first element; None if the value is not an array."""
    if isinstance(value, MockTensor):
        return Pointer(value.name, facts and value.aligned and byte_offset % ALIGNMENT == 0)
    found = array(value)
    if found is None:
        return None
    return Pointer(found.dtype, facts and (found.pointer + byte_offset) % ALIGNMENT == 0)


def _integer(kernel: str, parameter: str, value: int, facts: bool) -> ArgumentType:
    if facts and value == 1:
        return Constexpr(1)
    dtype = integer_dtype(value)
    if dtype is None:
        limit = "64 bits, the widest integer of a kernel"
        fix = "pass it in parts, or as a float"
        raise fail(ARGUMENT_RANGE, name=kernel, parameter=parameter, value=value, limit=limit, fix=fix)
    return Scalar(dtype, facts and value % ALIGNMENT == 0)


def _describe(value: object) -> str:
    text = repr(value)
    return f"a {type(value).__name__} ({text if len(text) <= 60 else text[:57] + '...'})"
