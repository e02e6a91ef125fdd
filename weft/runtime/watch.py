"""What a launch looks at again before it trusts its tables: the variables that its kernel read when it was compiled.

A watch is `(space, name, value)` and holds while `space.get(name) is value`, for that test is all a launch has time for.
Modules themselves, and what belongs to weft, are not watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, cast

Watch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    """The closure of a function, with `get` as dictionaries have it."""

    owner: FunctionType

    def get(self, name: str) -> Any:
        cell = (self.owner.__closure__ or ())[self.owner.__code__.co_freevars.index(name)]
        return cell.cell_contents


@dataclass(frozen=True, slots=True, eq=False)
class _Attributes:
    """The attributes of a class or an object."""

    owner: Any

    def get(self, name: str) -> Any:
        return getattr(self.owner, name, None)


@dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """A list, dictionary or set: `get` answers the contents it began with while they are equal to those it has."""

    owner: Any
    first: Any

    def get(self, name: str) -> Any:
        return self.first if _frozen(self.owner) == self.first else None


def watches(owner: FunctionType, path: str) -> Iterator[Watch]:
    """What to watch of a read (see `weft.runtime.manifest.Read`): each variable on the way that can be bound anew."""
    name, *attributes = path.split(".")
    space: Any = _Captured(owner) if name in owner.__code__.co_freevars else owner.__globals__
    if isinstance(space, dict) and name not in space:
        return
    for attribute in (*attributes, ""):
        value = cast("Any", space).get(name)
        if _may_change(space, name, value):
            yield space, name, value
        if isinstance(value, (list, dict, set)) and space.get(name) is value:
            contents = _Contents(cast("object", value), _frozen(value))
            yield contents, "contents", contents.first
        space, name = vars(value) if isinstance(value, ModuleType) else _Attributes(value), attribute


def key(watch: Watch) -> tuple[int, str]:
    """Equal for two watches of one variable."""
    space, name, _ = watch
    return id(getattr(space, "owner", space)), name


def changed(watched: Iterable[Watch]) -> bool:
    """True when a watch does not hold any more."""
    return any(space.get(name) is not value for space, name, value in watched)


def _may_change(space: Any, name: str, value: Any) -> bool:
    if isinstance(value, ModuleType) or (isinstance(space, dict) and _is_ours(space.get("__name__"))):
        return False
    if isinstance(value, (type, FunctionType)) and _is_ours(value.__module__):
        return False
    # What is made at each look, as by a property, cannot be watched by identity.
    return space.get(name) is value


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "weft"


def _frozen(value: Any) -> Any:
    """Contents to compare later: containers as tuples, and leaves with their types, for 1 and True are equal."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return dict, tuple((name, _frozen(item)) for name, item in items)
    if isinstance(value, (list, tuple, set)):
        return type(cast("object", value)), tuple(_frozen(item) for item in cast("list[Any]", value))
    return type(value), value
