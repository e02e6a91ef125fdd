"""The type of kernel functions in the body of an aggregate, for type checkers: a method.

It has no run-time behaviour: the reader of kernels binds the function, Python never does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class Method(Generic[P, R]):
    """Base class of objects that replace a function of these parameters and result."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: Any) -> Self: ...
        @overload
        def __get__(self: Method[Concatenate[Any, Q], R], instance: object, owner: Any) -> Callable[Q, R]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...
