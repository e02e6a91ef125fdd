"""What type checkers see in place of `constexpr`. Nothing imports this file at run time.

A parameter `n: gl.constexpr[int]` is to its kernel a plain int, which no class can say of its instances: so `constexpr[T]` is
an alias of T, and `constexpr` alone one of Any. `gl.constexpr(4)` is a call of what the alias stands for. Type checkers refuse
such a call of an alias that is made of a special form, here `Annotated`, and allow it of an alias of that alias.
"""

from typing import Annotated, Any, TypeAlias

from typing_extensions import TypeVar

_T = TypeVar("_T", bound=Any, default=Any)
_K = TypeVar("_K", bound=Any, default=Any)
_Known = Annotated[_T, "known at compile time"]
constexpr: TypeAlias = _Known[_K]  # noqa: PYI042 - the name of the language
