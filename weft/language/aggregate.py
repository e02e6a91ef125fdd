"""`aggregate`: classes of kernel values.

    @aggregate
    class Accumulator:
        value: gl.tensor
        scale: gl.constexpr

        @weft.jit
        def add(self, x):
            return Accumulator(self.value + x * self.scale, self.scale)

Calling the class creates instances, in kernels or (of constants) on the host. Control flow flattens them into leaves
(`weft.language.tree`). Methods are `@jit` or `@constexpr_function` functions.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from weft.errors import fail
from weft.errors import language as errors
from weft.language.annotations import meaning, missing
from weft.language.context import current
from weft.language.marks import JIT, annotates_constexpr, anywhere, constexpr, jit_of, unwrap
from weft.language.promote import to_tensor
from weft.language.runtime_value import AGGREGATE, RuntimeValue, describe
from weft.language.tensor import tensor
from weft.language.tree import Structure

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[C], C]:
        """A no-op at run time: `typing.dataclass_transform` is new in Python 3.11."""
        return lambda decorator: decorator


A = TypeVar("A")
C = TypeVar("C", bound=type)
_scopes: WeakKeyDictionary[type, dict[str, Any]] = WeakKeyDictionary()
"""The namespace of each class's module, in which its annotations are resolved. It is kept because another module may take the
name in `sys.modules` later."""


@dataclass_transform(eq_default=False)
def aggregate(cls: C) -> C:
    """Turn a class with annotated fields into one whose instances are kernel values.

    The type of a field is `tensor`, `constexpr`, another aggregate, a tuple, any other type of the language, or a union of
    these. Methods such as `__add__` define operators. Without an `__init__` the class takes its fields in order. `__init__` may
    be plain Python, a `@constexpr_function` or a `@jit` function; it sets every field. Raises CompilationError:
    language-aggregate-fields here, language-field-missing, language-field-type, language-field-annotation and
    language-field-arguments when an instance is created.
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


@anywhere
def aggregate_replace(instance: A, **changes: Any) -> A:
    """A copy of an aggregate with other values of some fields; its `__init__` does not run.

    Raises CompilationError: language-aggregate-needed, language-field-arguments, language-field-type."""
    cls = type(instance)
    if not is_aggregate(instance):
        raise fail(errors.AGGREGATE_NEEDED, got=describe(instance))
    names = tuple(fields_of(cls))
    for name in changes:
        if name not in names:
            reason = f"it has no field {name!r}"
            raise fail(errors.FIELD_ARGUMENTS, cls=cls.__name__, reason=reason, fields=", ".join(names))
    made: A = object.__new__(cls)
    for name in names:
        setattr(made, name, changes[name] if name in changes else getattr(instance, name))
    return seal(made)


def is_aggregate(value: object) -> bool:
    """True for instances of aggregate classes."""
    return hasattr(type(value), AGGREGATE)


def fields_of(cls: type) -> dict[str, Any]:
    """The fields of an aggregate class, with their annotations resolved as far as possible."""
    scope = _scope(cls)
    return {name: meaning(kind, scope) for name, kind in getattr(cls, AGGREGATE).items()}


def _scope(cls: type) -> dict[str, Any]:
    return next((_scopes[base] for base in cls.__mro__ if base in _scopes), dict[str, Any]())


def declared_constexpr(structure: Structure) -> Iterator[bool]:
    """For each leaf of a structure, whether it is part of a field that an aggregate declares `constexpr`."""
    if structure.kind is None:
        yield False
        return
    kinds = fields_of(structure.kind) if hasattr(structure.kind, AGGREGATE) else {}
    for i, part in enumerate(structure.parts):
        declared = bool(kinds) and kinds[structure.names[i]] is constexpr
        yield from (declared or leaf for leaf in declared_constexpr(part))


def seal(instance: Any) -> Any:
    """Check that every field is set and has its declared type; convert Python numbers in tensor fields to scalars. Returns the
    instance."""
    cls = instance.__class__
    for name, kind in fields_of(cls).items():
        if not hasattr(instance, name):
            raise fail(errors.FIELD_MISSING, cls=cls.__name__, field=name)
        setattr(instance, name, _checked(cls, name, kind, unwrap(getattr(instance, name))))
    return instance


def _checked(cls: type, name: str, kind: Any, value: Any) -> Any:
    lacking = missing(kind, _scope(cls)) if isinstance(kind, str) else None
    if lacking is not None:
        raise _no_type(f"{cls.__name__}.{name}", kind, *lacking)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if any(_fits(each, value) for each in kinds):
        return value
    if tensor in kinds and isinstance(value, (int, float)):
        return to_tensor(value)
    wanted = " or ".join(getattr(each, "__name__", str(each)) for each in kinds)
    raise fail(errors.FIELD_TYPE, cls=cls.__name__, field=name, want=wanted, got=describe(value))


def _no_type(field: str, kind: str, module: ModuleType, name: str) -> Exception:
    close = get_close_matches(name, [each for each in dir(module) if not each.startswith("_")], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return fail(errors.FIELD_ANNOTATION, field=field, kind=kind, module=module.__name__, name=name, hint=hint)


def _fits(kind: Any, value: Any) -> bool:
    if annotates_constexpr(kind):
        return not isinstance(value, RuntimeValue)
    if not inspect.isclass(kind):
        return True
    if issubclass(kind, tensor):
        # The result of a loop or a branch is a plain tensor, also where the value is an accumulator.
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
    """The Python method that implements an operator by inlining a `@jit` method such as `__add__`."""

    def call(self: Any, *operands: Any) -> Any:
        return current().inline(method, [self, *operands], {})

    setattr(call, JIT, jit_of(method))
    return call


def _annotations(cls: type) -> dict[str, Any]:
    # inspect.get_annotations evaluates nothing. Annotations may name classes that are defined later.
    return {} if cls is object else dict(inspect.get_annotations(cls))


def _describe(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name, '?')!r}" for name in getattr(self, AGGREGATE))
    return f"{type(self).__name__}({fields})"
