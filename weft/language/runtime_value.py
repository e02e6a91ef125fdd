"""The base class of run-time values, and the mapping from IR types to front-end classes.

The front end passes `RuntimeValue`s through calls, branches and loops independently of their classes. `wrap` wraps an IR value
in the class registered for its type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from weft.errors import fail
from weft.errors import memory as errors
from weft.ir.core import Value
from weft.ir.types import RegsType, ScalarType, TileType
from weft.views.brackets import is_unfinished

K = TypeVar("K", bound="type[RuntimeValue]")
AGGREGATE = "__weft_aggregate__"
"""The attribute of aggregate classes: the declared types of the fields, by name."""


class RuntimeValue:
    """A value that exists on the GPU only. `handle` is its IR value.

    The conversions defined here are those of memory handles: they raise, since a handle is not a number.
    """

    __slots__ = ("handle",)
    in_flight: ClassVar[bool] = False
    """True for the accumulator of an asynchronous MMA that has not been waited for: only a wait or the next MMA may use it."""

    def __init__(self, handle: Value) -> None:
        self.handle = handle

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.handle!r})"

    def describe(self) -> str:
        """What it is, for messages: `a float32 tile [128, 64]`."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise fail(errors.SHARED_HANDLE_OPERAND, what="a condition", got=name_of(self))

    def __index__(self) -> NoReturn:
        raise fail(errors.SHARED_HANDLE_OPERAND, what="a constant number", got=name_of(self))

    def __iter__(self) -> NoReturn:
        raise fail(errors.SHARED_HANDLE_BRACKETS, got=name_of(self))

    def __getitem__(self, key: object) -> Any:
        raise fail(errors.SHARED_HANDLE_BRACKETS, got=name_of(self))


CLASSES: dict[type, type[RuntimeValue]] = {}


def represents(*types: type) -> Callable[[K], K]:
    """Register a class for values of these IR types."""

    def enter(cls: K) -> K:
        CLASSES.update(dict.fromkeys(types, cls))
        return cls

    return enter


def wrap(value: Value) -> Any:
    """The front-end object of an IR value, by its type."""
    return CLASSES[type(value.type)](value)


def is_handle(x: object) -> bool:
    """True for run-time values that are not numbers: memory handles and descriptors."""
    return isinstance(x, RuntimeValue) and not isinstance(x.handle.type, (ScalarType, TileType, RegsType))


def name_of(x: object) -> str:
    """The name of a value in messages: the author's name if it has one, else its description."""
    kind = describe(x)
    return f"{x.handle.name!r} ({kind})" if isinstance(x, RuntimeValue) and x.handle.name else kind


def describe(x: object) -> str:
    """A description of a value: `a float32 tile [128, 64]`, `an int32 scalar`, `the constant 3`; for a view, its history."""
    if isinstance(x, RuntimeValue):
        return x.describe()
    if hasattr(type(x), AGGREGATE):
        history = getattr(x, "history", "")
        return f"the view {history}" if history else f"an aggregate ({type(x).__name__})"
    if is_unfinished(x) or isinstance(x, MethodType):
        return "a method that lacks its last parentheses"
    if isinstance(x, FunctionType):
        return f"the function {x.__name__}"
    if isinstance(x, (tuple, list)) and any(isinstance(item, RuntimeValue) for item in cast("Sequence[object]", x)):
        return f"a {type(cast('object', x)).__name__} of {len(cast('Sequence[object]', x))} values"
    return f"the constant {x!r}"


def article(noun: str) -> str:
    """The noun with its article, `a` or `an`.

    >>> article("int32"), article("uint8")
    ('an int32', 'a uint8')
    """
    return f"an {noun}" if noun.startswith("int") else f"a {noun}"
