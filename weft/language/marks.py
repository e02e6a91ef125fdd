"""Attributes by which the front end classifies the objects that kernel code names.

    __weft_jit__                 on a `@jit` function object: the raw Python function, inlined at calls
    __weft_constexpr_function__  True: plain Python, executed at compile time
    __weft_builtin__             True: a function of the language, called with values and plain Python objects
    __weft_must_use__            True: a function whose result must be used
    __weft_aggregate__           on a class: its fields (see `weft.language.aggregate`)
    __weft_computed__            True: an object whose attributes are run-time values, emitted again at each use

In a kernel, constants are plain Python objects; `constexpr` is used in annotations and in host code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from types import GenericAlias
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_origin, overload

from weft.language.context import current
from weft.plain import own

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F")

JIT = "__weft_jit__"
CONSTEXPR_FUNCTION = "__weft_constexpr_function__"
BUILTIN = "__weft_builtin__"
COMPUTED = "__weft_computed__"
MUST_USE = "__weft_must_use__"


class constexpr:
    """A compile-time value: an annotation of kernel parameters, and a wrapper of host constants.

    `constexpr(constexpr(3)).value` is 3. Operators apply to the wrapped value and return a `constexpr`. The annotation
    `constexpr[int]` is for type checkers and readers; weft treats it like `constexpr`.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value!r}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __eq__(self, other: object) -> constexpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return constexpr(self.value == unwrap(other))

    def __ne__(self, other: object) -> constexpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return constexpr(self.value != unwrap(other))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped function or class."""
        return self.value(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.value[unwrap(key)]

    def __class_getitem__(cls, kind: Any) -> GenericAlias:
        return GenericAlias(cls, (kind,))


def _forward(name: str) -> Callable[..., constexpr]:
    apply = getattr(operator, name)

    def forward(self: constexpr, *others: Any) -> constexpr:
        return constexpr(apply(self.value, *map(unwrap, others)))

    return forward


def _forward_reflected(name: str) -> Callable[..., constexpr]:
    apply = getattr(operator, name)

    def forward(self: constexpr, other: Any) -> constexpr:
        return constexpr(apply(unwrap(other), self.value))

    return forward


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
for _name in (*_BINARY, "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert"):
    setattr(constexpr, f"__{_name}__", _forward(f"__{_name}__"))
for _name in _BINARY:
    setattr(constexpr, f"__r{_name}__", _forward_reflected(f"__{_name}__"))


def unwrap(value: Any) -> Any:
    """The value of a `constexpr`, also inside tuples and lists, and the Python number of a NumPy scalar. Any other object is
    returned unchanged."""
    if isinstance(value, constexpr):
        return value.value
    if type(value) in (tuple, list):
        items = cast("tuple[Any, ...] | list[Any]", value)
        return type(items)(unwrap(item) for item in items)
    return own(value)


def annotates_constexpr(annotation: object) -> bool:
    """True for `constexpr` and `constexpr[...]` as objects."""
    return annotation is constexpr or get_origin(annotation) is constexpr


def jit_of(value: object) -> Callable[..., Any] | None:
    """The raw Python function of a `@jit` function object, or None for anything else."""
    return getattr(value, JIT, None)


def is_builtin(value: object) -> bool:
    """True for functions of the language."""
    return getattr(value, BUILTIN, False) is True


def is_computed(value: object) -> bool:
    """True for objects such as `thread_idx`, whose attributes are computed at each use."""
    return getattr(value, COMPUTED, False) is True


def is_constexpr_function(value: object) -> bool:
    """True for functions made by `constexpr_function`."""
    return getattr(value, CONSTEXPR_FUNCTION, False) is True


def must_use(value: object) -> bool:
    """True for functions whose result must be used."""
    return any(getattr(function, MUST_USE, False) is True for function in (value, jit_of(value)))


def must_use_result(function: F) -> F:
    """Mark a `@jit` or `@constexpr_function` function without side effects, whose result must be used.

    A statement that drops the result is an error (lang-result-dropped). The order of the decorators does not matter.
    """
    setattr(function, MUST_USE, True)
    return function


def constexpr_function(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs as plain Python, on the host and at compile time in kernels; `constexpr` arguments are unwrapped.

    Run-time values pass through it unchanged, so the `__init__` of an aggregate may be one.
    """
    wrapper = _unwrapping(function)
    setattr(wrapper, CONSTEXPR_FUNCTION, True)
    return wrapper


def anywhere(function: Callable[P, R]) -> Callable[P, R]:
    """A function of the language that is also callable on the host, with constants."""
    wrapper = _unwrapping(function)
    setattr(wrapper, BUILTIN, True)
    return wrapper


def builtin(function: Callable[P, R]) -> Callable[P, R]:
    """A function of the language. Raises CompilationError (language-host-call) outside of a kernel."""

    call: Callable[..., R] = function

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        current(function.__name__)
        return call(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})

    setattr(wrapper, BUILTIN, True)
    return wrapper


class WithParameters(Protocol[P, R_co]):
    """A function that also takes its parameters first, for type checkers."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, **parameters: Any) -> Callable[..., R_co]: ...


def with_parameters(*names: str) -> Callable[[Callable[P, R]], WithParameters[P, R]]:
    """Let a function of the language also take compile-time parameters first, by these names, as Mojo's brackets do:
    `prefix_sum(exclusive=True)(x)` is `prefix_sum(x, exclusive=True)`."""

    def enter(function: Callable[P, R]) -> WithParameters[P, R]:
        call: Callable[..., Any] = function

        @wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if args or not kwargs or not kwargs.keys() <= set(names):
                return call(*args, **kwargs)

            @wraps(call)
            def rest(*more: Any, **others: Any) -> Any:
                return call(*more, **kwargs, **others)

            return rest

        return cast("WithParameters[P, R]", wrapper)

    return enter


def _unwrapping(function: Callable[P, R]) -> Callable[P, R]:
    call: Callable[..., R] = function

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return call(*map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()})

    return wrapper
