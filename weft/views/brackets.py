"""Methods with brackets: `t.tile[32, 32](i, j)`, with compile-time arguments in brackets and run-time ones in parentheses.

Python has no such methods, so a property returns a `Brackets`. `t.tile[32, 32]` and `t.tile(32, 32)` both return a function of
the run-time arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Generic, TypeVar, cast

UNFINISHED = "a method that lacks its last parentheses, as t.tile[4, 4] lacks (i, j),"
"""What messages call the value of a call that is not finished."""
FINISH = "write them first, as in t.tile[4, 4](i, j)[row, column] and t.vectorize[1, 4]()"
F = TypeVar("F", bound="Callable[..., Any]")
R = TypeVar("R")


class Brackets(Generic[F]):
    """A method that expects its compile-time arguments, in brackets or (with keywords) in parentheses.

    `first` takes the owner and these arguments, and returns the function of the run-time ones.
    """

    __slots__ = ("_first", "_owner")

    def __init__(self, owner: Any, first: Callable[..., F]) -> None:
        self._owner = owner
        self._first = first

    def __getitem__(self, key: Any) -> F:
        return self._first(self._owner, *_arguments(key))

    def __call__(self, *arguments: Any, **named: Any) -> F:
        """The function of the run-time arguments."""
        return self._first(self._owner, *arguments, **named)


class Complete(Generic[R]):
    """A method with compile-time arguments only: `t.vectorize[1, 4]()`, or in one call `t.vectorize(1, 4)`."""

    __slots__ = ("_function", "_owner")

    def __init__(self, owner: Any, function: Callable[..., R]) -> None:
        self._owner = owner
        self._function = function

    def __getitem__(self, key: Any) -> Callable[[], R]:
        arguments = _arguments(key)

        def finish() -> R:
            return self._function(self._owner, *arguments)

        return finish

    def __call__(self, *arguments: Any, **named: Any) -> R:
        """The method's result."""
        return self._function(self._owner, *arguments, **named)


class Direct(Brackets[F]):
    """A method whose compile-time arguments may be left out: `t.store(i, j, v)`, `t.store[4](i, j, v)`, and with names alone
    in the first parentheses `t.store(width=4)(i, j, v)`."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The method's result; with names alone the function of the run-time arguments."""
        function = self._first(self._owner, **named)
        return function(*arguments) if arguments else function


class Loading(Brackets[F]):
    """`t.load[4](i, j)`, `t.load(width=4)(i, j)`; and of a coordinate alone one number, `t.load(gl.Coord(i, j))`."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The number at a coordinate, or the function of the run-time arguments."""
        if len(arguments) == 1 and isinstance(arguments[0], tuple):
            return self._first(self._owner, 1, **named)(*arguments)
        return self._first(self._owner, *arguments, **named)


class Size(int):
    """A size known at compile time, as an int that also takes the empty parentheses of `t.shape[0]()`."""

    __slots__ = ()

    def __call__(self) -> int:
        """The size."""
        return int(self)


class Axes:
    """A method of an axis: `t.dim(0)` or `t.dim[0]()`."""

    __slots__ = ("_get", "_owner")

    def __init__(self, owner: Any, get: Callable[[Any, int], Any]) -> None:
        self._owner = owner
        self._get = get

    def __call__(self, axis: int) -> Any:
        """The method's value for an axis."""
        return self._get(self._owner, axis)

    def __getitem__(self, axis: int) -> Callable[[], Any]:
        def read() -> Any:
            return self._get(self._owner, axis)

        return read


def is_unfinished(x: object) -> bool:
    """Whether a call of a method with brackets lacks its last parentheses: `t.tile`, `t.tile[4, 4]`, `row_major[4, 8]`."""
    made = isinstance(x, FunctionType) and x.__module__.startswith("weft.views.") and "<locals>" in x.__qualname__
    return made or isinstance(x, (Brackets, Complete))


def _arguments(key: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
