"""What type checkers see of a kernel function in the body of an aggregate: a method.

At run time there is nothing to it: the reader of kernels binds the function, and Python never does.
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
    """Base of objects that stand for a function of these parameters and result."""

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: Any) -> Self: ...
        @overload
        def __get__(self: Method[Concatenate[Any, Q], R], instance: object, owner: Any) -> Callable[Q, R]: ...
        def __get__(self, instance: Any, owner: Any) -> Any: ...
