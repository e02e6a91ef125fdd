"""Builtin functions of Python in kernels: the meaning of `min`, `len`, `print` and others for run-time values.

Builtins that are not in the table are refused, as any plain Python function is.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from weft.errors import UserError, fail
from weft.errors import source as errors
from weft.ir.types import DType, float32, int1, int32
from weft.lang.expressions import items
from weft.lang.frame import Frame, Unusable
from weft.lang.names import attribute, is_of_scalars, record
from weft.lang.otherwise import instead
from weft.lang.values import class_of, is_runtime, is_sequence, require_constexpr, show
from weft.language import LayoutTensor, cast, constexpr, device_print, maximum, minimum, static_print, tensor
from weft.language.debug import Text
from weft.language.runtime_value import RuntimeValue
from weft.language.storages import opened
from weft.language.tree import fields_of, flatten, parts_of
from weft.ops import debug

Handler = Callable[..., Any]
HANDLERS: dict[Any, Handler] = {}
_MISSING = object()


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the handler of these builtins in kernels. It takes the frame and the arguments."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return enter


def _as_it_is(function: Any) -> Handler:
    """Handler that calls the builtin itself. An iterator as the result becomes a list."""

    def run(frame: Frame, *args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        return list(found) if hasattr(found, "__next__") else found

    return run


# `abs` calls the tile's `__abs__`; the others accept any value.
for _function in (abs, type, callable, slice):
    HANDLERS[_function] = _as_it_is(_function)


@handles(len)
def length(frame: Frame, values: Any) -> int:
    """`len(values)`: for a tile the size of its first dimension."""
    if hasattr(values, "__len__"):
        return len(values)
    advice = (
        "write t.dim(axis), which counts along one axis" if hasattr(values, "dim") else "use a tuple, a list or a tile"
    )
    raise fail(errors.PYTHON_FUNCTION, function="len", got=show(values), instead=advice)


def _refused(function: Any, value: Any) -> UserError:
    """The error (lang-python-function) for a builtin applied to a run-time value, with its fix."""
    name = function.__name__
    advice = instead(name, value) or "compute it on the host and pass the result as an argument"
    if isinstance(value, tensor) and value.is_scalar and name in _OF_TILES:
        advice = (
            f"a scalar needs no {name}; pass it several values, as in {name}(a, b)"
            if name in _EXTREMES
            else (f"a scalar needs no {name}, which combines several values")
        )
    return fail(errors.PYTHON_FUNCTION, function=name, got=show(value), instead=advice)


_EXTREMES = ("max", "min")
_OF_TILES = (*_EXTREMES, "sum", "any", "all")
"""Builtins of sequences that have an equivalent for tiles."""


def _sequence(function: Any, value: Any) -> list[Any]:
    """The items of a builtin's sequence argument. Raises lang-python-function for a tile, a scalar or a pointer."""
    if isinstance(value, RuntimeValue):
        raise _refused(function, value)
    return items(value)


def _of_sequences(function: Any) -> Handler:
    def run(frame: Frame, *args: Any, **kwargs: Any) -> Any:
        return list(function(*[_sequence(function, value) for value in args], **kwargs))

    return run


HANDLERS[zip] = _of_sequences(zip)


@handles(enumerate)
def numbered(frame: Frame, values: Any, start: int = 0) -> list[Any]:
    """`enumerate(values, start)`."""
    return list(enumerate(_sequence(enumerate, values), start))


def _of_constants(function: Any) -> Handler:
    def run(frame: Frame, *args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if is_runtime(value):
                raise _refused(function, value)
        return _as_it_is(function)(frame, *args, **kwargs)

    return run


for _function in (
    range, str, repr, format, round, pow, divmod, sorted, set, frozenset, dict, complex, hash, ord, chr, bin, hex, oct, bytes,
    map, filter,
):  # fmt: skip
    HANDLERS[_function] = _of_constants(_function)


def _extreme(choose: Any, combine: Any) -> Handler:
    def run(frame: Frame, *args: Any, **kwargs: Any) -> Any:
        if not is_runtime(args):
            return choose(*args, **kwargs)
        values = _sequence(choose, args[0]) if len(args) == 1 else args
        if kwargs:
            require_constexpr(args, f"what {choose.__name__} compares with {next(iter(kwargs))}")
        return functools.reduce(combine, values)

    return run


HANDLERS[min] = _extreme(min, minimum)
HANDLERS[max] = _extreme(max, maximum)


@handles(sum)
def total(frame: Frame, values: Any, start: Any = 0) -> Any:
    """`sum` of a sequence. A tile is reduced by `gl.sum` instead."""
    found = _sequence(sum, values)
    return functools.reduce(operator.add, found, start) if start or not found else functools.reduce(operator.add, found)


def _quantifier(function: Any) -> Handler:
    def run(frame: Frame, values: Any) -> bool:
        found = _sequence(function, values)
        return function(require_constexpr(value, f"what {function.__name__} looks at") for value in found)

    return run


HANDLERS[any] = _quantifier(any)
HANDLERS[all] = _quantifier(all)


@handles(tuple)
def to_tuple(frame: Frame, values: Any = ()) -> tuple[Any, ...]:
    """`tuple(values)`."""
    return tuple(items(values))


@handles(list)
def to_list(frame: Frame, values: Any = ()) -> list[Any]:
    """`list(values)`."""
    return items(values)


@handles(reversed)
def backwards(frame: Frame, values: Any) -> list[Any]:
    """`reversed(values)`."""
    return _sequence(reversed, values)[::-1]


def _number(function: Any, dtype: DType, keeps: Callable[[DType], bool]) -> Handler:
    def run(frame: Frame, value: Any = 0) -> Any:
        if not isinstance(value, tensor) or not value.is_scalar:
            if isinstance(value, RuntimeValue):
                raise _refused(function, value)
            return function(value)
        return value if isinstance(value.dtype, DType) and keeps(value.dtype) else cast(value, dtype)

    return run


HANDLERS[float] = _number(float, float32, DType.is_floating)
HANDLERS[int] = _number(int, int32, lambda dtype: dtype.is_int() and not dtype.is_bool())
HANDLERS[bool] = _number(bool, int1, DType.is_bool)


@handles(isinstance)
def is_instance(frame: Frame, value: Any, kinds: Any) -> bool:
    """`isinstance`. Every compile-time value is an instance of `gl.constexpr`."""
    wanted: tuple[Any, ...] = tuple(kinds) if is_sequence(kinds) else (kinds,)
    if constexpr in wanted and not is_runtime(value):
        return True
    return isinstance(value, tuple(kind for kind in wanted if kind is not constexpr))


@handles(getattr)
def get_attribute(frame: Frame, owner: Any, name: str, default: Any = _MISSING) -> Any:
    """`getattr(owner, "name")`."""
    if default is _MISSING or has_attribute(frame, owner, name):
        return attribute(frame, owner, name)
    return default


@handles(hasattr)
def has_attribute(frame: Frame, owner: Any, name: str) -> bool:
    """`hasattr(owner, "name")`."""
    if isinstance(owner, ModuleType):
        record(frame, owner, name)
    return hasattr(owner, name) or is_of_scalars(owner, name)


@handles(issubclass)
def is_subclass(frame: Frame, kind: Any, kinds: Any) -> bool:
    """`issubclass`."""
    return issubclass(kind, kinds)


@handles(print)
def say(frame: Frame, *args: Any, sep: str = " ", end: str = "\n") -> None:
    """`print`: at compile time when all arguments are constants, else on the device, with constants as text before values."""
    if not is_runtime(args):
        static_print(*args, sep=sep, end=end)
        return
    if any(isinstance(arg, Text) for arg in args):
        device_print(Text(tuple(part for arg in args for part in (*_parts(arg), sep))[:-1]))
        return
    texts: list[Any] = [arg for arg in args if not is_runtime(arg)]
    values = [leaf for arg in args if is_runtime(arg) for leaf in flatten(arg)[0] if isinstance(leaf, RuntimeValue)]
    device_print(sep.join(map(str, texts)), *values)


def _parts(arg: Any) -> tuple[Any, ...]:
    if isinstance(arg, Text):
        return arg.parts
    return (arg,) if isinstance(arg, RuntimeValue) else (str(arg),)


@handles(builtins.breakpoint)
def stop_here(frame: Frame) -> None:
    """`breakpoint()`: shows every scalar, tile and view of the environment by its name; fields as `mma.acc`."""
    found: list[tuple[str, tensor | LayoutTensor]] = []
    for name, binding in frame.env.items():
        if not isinstance(binding.value, Unusable) and name.isidentifier():
            found += _shown(name, binding.value)
    values = [(name, value) for name, value in found if isinstance(value, tensor)]
    views = [(name, *opened(value)) for name, value in found if isinstance(value, LayoutTensor)]
    operands = [*(value for _, value in values), *(operand for _, given, _ in views for operand in given)]
    frame.builder.emit(
        debug.breakpoint_, *(each.handle for each in operands), names=tuple(name for name, _ in values),
        views=tuple(name for name, _, _ in views), axes=tuple(axes for _, _, axes in views),
    )  # fmt: skip


def _shown(name: str, value: Any) -> Iterator[tuple[str, tensor | LayoutTensor]]:
    """The tensors and views in a value, with their paths."""
    if isinstance(value, (tensor, LayoutTensor)):
        yield name, value
        return
    parts = parts_of(value) or ()
    fields = fields_of(class_of(value))
    for i, part in enumerate(parts):
        yield from _shown(f"{name}.{fields[i]}" if fields else f"{name}[{i}]", part)
