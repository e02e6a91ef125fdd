"""Following an access path from a function to a value, without running any of the author's Python.

A path is a tuple of steps: first a variable of the function, then attributes and items. From a module or a class the first step
is an attribute. A step that would run the author's Python (a property, a module's `__getattr__`) raises `Opened`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from weft.runtime import hooks, origin

NAME, ATTRIBUTE, ITEM, LENGTH = "name", "attribute", "item", "length"
KEYS = (int, str, bool, bytes, type(None))
"""Types of keys in a path."""
CONTAINERS = (tuple, list, dict)
"""Types whose items are steps of paths."""


class Step(NamedTuple):
    """One step: its kind, and a name or a key."""

    kind: str
    key: Any


Path = tuple[Step, ...]


class Opened(Exception):
    """A step would run the author's Python; `ran` lists the functions known to be called, each with its first argument."""

    def __init__(self, ran: tuple[tuple[Any, Any], ...] = ()) -> None:
        super().__init__()
        self.ran = ran


def path(steps: Iterable[tuple[str, Any]]) -> Path:
    """A path of steps given as tuples or lists."""
    return tuple([Step(kind, key) for kind, key in steps])


def path_of(text: str) -> Path:
    """The path of a dotted name.

    >>> path_of("cfg.block")
    (Step(kind='name', key='cfg'), Step(kind='attribute', key='block'))
    """
    name, *attributes = text.split(".")
    return Step(NAME, name), *(Step(ATTRIBUTE, each) for each in attributes)


def values(owner: Any, path: Path) -> list[Any]:
    """The value after each step of a path. Raises LookupError or AttributeError when one does not exist, and Opened."""
    value, found = owner, list[Any]()
    for step in path:
        value = follow(value, step)
        found.append(value)
    return found


def resolve(owner: Any, path: Path) -> Any:
    """The value at the end of a path. Raises as `values` does."""
    return values(owner, path)[-1] if path else owner


def scope(owner: Any, path: Path) -> int | None:
    """The identity of the globals in which a path begins; None where it begins elsewhere."""
    if type(owner) is not FunctionType or not path or path[0].key in owner.__code__.co_freevars:
        return None
    return id(owner.__globals__)


def follow(value: Any, step: Step) -> Any:
    """One step from a value."""
    if step.kind == NAME:
        return variable(value, step.key)
    if step.kind == ATTRIBUTE:
        return attribute(value, step.key)
    if type(value) not in CONTAINERS:
        raise Opened
    return len(value) if step.kind == LENGTH else value[step.key]


def variable(function: FunctionType, name: str) -> Any:
    """A variable of a function: from its closure, else its globals, else the builtins."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            raise LookupError(name) from None
    if name in function.__globals__:
        return function.__globals__[name]
    return vars(builtins)[name]


def attribute(owner: Any, name: str) -> Any:
    """An attribute of a value. Raises AttributeError and Opened."""
    if isinstance(owner, ModuleType):
        return _of_module(owner, name)
    if type(owner) is FunctionType:
        return getattr(owner, name)
    if not origin.ours(owner):
        ran = tuple((function, owner) for function in _runs(owner, name))
        if ran:
            raise Opened(ran)
    return getattr(owner, name)


def _of_module(module: ModuleType, name: str) -> Any:
    space = vars(module)
    if origin.of_module(module) is not origin.OURS and type(module) is not ModuleType:
        raise Opened
    if name in space:
        return space[name]
    if origin.of_module(module) is not origin.OURS and "__getattr__" in space:
        raise Opened(((space["__getattr__"], None),))
    return getattr(module, name)


def _runs(owner: Any, name: str) -> list[Any]:
    """The author's functions that an attribute lookup may call."""
    found: list[Any] = []
    for cls in origin.foreign_bases(origin.class_of(owner)):
        found += [vars(cls)[special] for special in ("__getattribute__", "__getattr__") if special in vars(cls)]
    kind = origin.class_of(owner)
    places: list[type[Any]] = [kind, owner] if isinstance(owner, type) else [kind]
    for place in places:
        entry = origin.entry(place, name)
        is_own_property = place is owner and isinstance(entry, property)
        if entry is not origin.ABSENT and not is_own_property and hooks.binds(entry):
            found.append(function_in(entry))
    return found


def function_in(entry: Any) -> Any:
    """The function that a descriptor calls."""
    known = (getattr(entry, name, None) for name in ("fget", "func"))
    return next((each for each in known if each is not None), getattr(origin.class_of(entry), "__get__", entry))
