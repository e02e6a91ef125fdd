"""The definition of `constexpr` for type checkers. Nothing imports this file at run time.

In a kernel a parameter `n: gl.constexpr[int]` is a plain int, which no class can express for its instances. `constexpr[T]` is
therefore an alias of T, and `constexpr` alone an alias of Any. `gl.constexpr(4)` calls the aliased type. Type checkers reject
the call of an alias of a special form, here `Annotated`, but accept it for an alias of that alias.
"""

from typing import Annotated, Any, TypeAlias

from typing_extensions import TypeVar

_T = TypeVar("_T", bound=Any, default=Any)
_K = TypeVar("_K", bound=Any, default=Any)
_Known = Annotated[_T, "known at compile time"]
constexpr: TypeAlias = _Known[_K]  # noqa: PYI042 - the name of the language
