"""Methods with brackets: `t.tile[32, 32](i, j)`, with compile-time arguments in brackets and run-time ones in parentheses.

Python has no such methods, so a property returns a `Brackets`. `t.tile[32, 32]` and `t.tile(32, 32)` both return a function of
the run-time arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

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
        arguments = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
        return self._first(self._owner, *arguments)

    def __call__(self, *arguments: Any, **named: Any) -> F:
        """The function of the run-time arguments."""
        return self._first(self._owner, *arguments, **named)


def complete(function: Callable[..., R]) -> Callable[..., Callable[[], R]]:
    """A function with compile-time arguments only, as a method with brackets: `t.vectorize[1, 4]()`."""

    def first(*arguments: Any, **named: Any) -> Callable[[], R]:
        def finish() -> R:
            return function(*arguments, **named)

        return finish

    return first


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
