"""`aggregate`: classes of kernel values.

    @aggregate
    class Accumulator:
        value: gl.tensor
        scale: gl.constexpr

        @weft.jit
        def add(self, x):
            return Accumulator(self.value + x * self.scale, self.scale)

Instances are made by calling the class, in kernels or (of constants) on the host. Control flow takes them apart into leaves
(`weft.language.tree`); methods are `@jit` or `@constexpr_function` functions.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from weft.errors import fail
from weft.errors import language as errors
from weft.language.annotations import meaning
from weft.language.context import current
from weft.language.marks import JIT, annotates_constexpr, constexpr, jit_of, unwrap
from weft.language.promote import to_tensor
from weft.language.runtime_value import AGGREGATE, RuntimeValue, describe
from weft.language.tensor import tensor
from weft.language.tree import Structure

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[C], C]:
        """Say nothing at run time; Python has it from 3.11 on only."""
        return lambda decorator: decorator


C = TypeVar("C", bound=type)
_scopes: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()
"""By class the names of its module, those of its annotations, even where another module of that name is loaded later."""


@dataclass_transform(eq_default=False)
def aggregate(cls: C) -> C:
    """Turn a class with annotated fields into one whose instances are kernel values.

    A field is a `tensor`, a `constexpr`, another aggregate, a tuple, of any type that the language has, or of a union of such.
    Methods such as `__add__` are what operators mean. Without an `__init__` of its own the class takes its fields in order.
    `__init__` may be plain Python, a `@constexpr_function` or a `@jit` function; it sets every field. Raises CompilationError:
    language-aggregate-fields here, language-field-missing, language-field-type and language-field-arguments when an instance
    is made.
    """
    fields = {name: kind for base in reversed(cls.__mro__) for name, kind in _annotations(base).items()}
    if not fields:
        raise fail(errors.AGGREGATE_FIELDS, name=cls.__name__)
    setattr(cls, AGGREGATE, fields)
    _scopes[cls] = vars(sys.modules.get(cls.__module__, sys))
    for name, method in list(vars(cls).items()):
        if jit_of(method) is not None and name.startswith("__") and name != "__init__":
            setattr(cls, name, _operator(method))
    own = cls.__dict__.get("__init__")
    cls.__init__ = _by_position(cls, tuple(fields)) if own is None else _by_function(cls, own)
    if "__repr__" not in cls.__dict__:
        setattr(cls, "__repr__", _describe)  # noqa: B010 an assignment would have to know the class
    return cls


def is_aggregate(value: object) -> bool:
    """True for instances of aggregate classes."""
    return hasattr(type(value), AGGREGATE)


def fields_of(cls: type) -> dict[str, Any]:
    """The fields of an aggregate class and what their annotations mean, as far as that is known."""
    known = getattr(cls, AGGREGATE)
    scope = next((_scopes[base] for base in cls.__mro__ if base in _scopes), dict[str, Any]())
    return {name: meaning(kind, scope) for name, kind in known.items()}


def declared_constexpr(structure: Structure) -> Iterator[bool]:
    """For each leaf of a structure, whether an aggregate declares the field that it lies in as `constexpr`."""
    if structure.kind is None:
        yield False
        return
    kinds = fields_of(structure.kind) if hasattr(structure.kind, AGGREGATE) else {}
    for i, part in enumerate(structure.parts):
        declared = bool(kinds) and kinds[structure.names[i]] is constexpr
        yield from (declared or leaf for leaf in declared_constexpr(part))


def seal(instance: Any) -> Any:
    """Check that every field is set and of its kind; Python numbers in tensor fields become scalars. Returns the instance."""
    cls = instance.__class__
    for name, kind in fields_of(cls).items():
        if not hasattr(instance, name):
            raise fail(errors.FIELD_MISSING, cls=cls.__name__, field=name)
        setattr(instance, name, _checked(cls, name, kind, unwrap(getattr(instance, name))))
    return instance


def _checked(cls: type, name: str, kind: Any, value: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if any(_fits(each, value) for each in kinds):
        return value
    if tensor in kinds and isinstance(value, (int, float)):
        return to_tensor(value)
    wanted = " or ".join(getattr(each, "__name__", str(each)) for each in kinds)
    raise fail(errors.FIELD_TYPE, cls=cls.__name__, field=name, want=wanted, got=describe(value))


def _fits(kind: Any, value: Any) -> bool:
    if annotates_constexpr(kind):
        return not isinstance(value, RuntimeValue)
    if not inspect.isclass(kind):
        return True
    if issubclass(kind, tensor):
        # What comes out of a loop or a branch is a plain tensor, even where it is an accumulator.
        return isinstance(value, tensor)
    is_checked = hasattr(kind, AGGREGATE) or issubclass(kind, (RuntimeValue, NoneType))
    return isinstance(value, kind) if is_checked else True


def _by_position(cls: type, names: tuple[str, ...]) -> Callable[..., None]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise fail(errors.FIELD_ARGUMENTS, cls=cls.__name__, reason=error, fields=", ".join(names)) from None
        for name, value in bound.arguments.items():
            setattr(self, name, value)
        # A subclass's `__init__` may call this one before its own fields are set.
        if type(self) is cls:
            seal(self)

    return init


def _by_function(cls: type, function: Any) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if jit_of(function) is not None:
            current().inline(function, [self, *args], kwargs)
        else:
            function(self, *args, **kwargs)
        if type(self) is cls:
            seal(self)

    return wraps(function)(init) if inspect.isfunction(function) else init


def _operator(method: Any) -> Callable[..., Any]:
    """What an operator calls for a `@jit` method such as `__add__`, which is inlined as others are."""

    def call(self: Any, *operands: Any) -> Any:
        return current().inline(method, [self, *operands], {})

    setattr(call, JIT, jit_of(method))
    return call


def _annotations(cls: type) -> dict[str, Any]:
    # inspect.get_annotations evaluates nothing; fields may name classes that do not exist yet.
    return {} if cls is object else dict(inspect.get_annotations(cls))


def _describe(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name, '?')!r}" for name in getattr(self, AGGREGATE))
    return f"{type(self).__name__}({fields})"
