"""Watches: each launch checks that the values its kernel read at compile time are unchanged.

A watch is `(get, name, value)` and holds while `get(name) is value`; a launch has no time for a more expensive test. For a path
every variable, attribute and item on it is watched; for a list, dictionary or set that a kernel reads as a whole, its items.
Objects of weft and of the standard library are not watched, nor is external state: the environment, files, the clock. Those are
read once per compilation, and again after `kernel.forget()`.

It is unknown what the author's Python that a compilation called has read. So everything that it names is watched: its globals
and captured variables, attributes of modules and objects among those, and recursively the functions among them.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from operator import attrgetter, is_not
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from weft.runtime import fingerprint as fp
from weft.runtime import hooks, origin, paths
from weft.runtime.compiled import CompiledKernel
from weft.runtime.origin import class_of
from weft.runtime.paths import Path
from weft.runtime.specialise import constants

Watch = tuple[Any, Any, Any]
Watches = dict[tuple[int, Any], Watch]
"""Watches by the identity of the object that they read and the name in it."""

GONE = (AttributeError, LookupError, ValueError, TypeError)
"""Exceptions of `get(name)` when the variable, attribute or item no longer exists."""
_ATOMS = frozenset((int, str, float, bool, bytes, complex, type(None), type(Ellipsis), range, slice))


def changed(watched: Iterable[Watch]) -> bool:
    """True when some watch no longer holds."""
    try:
        # A loop, because each launch runs it, and `any` of a generator takes twice as long.
        for get, name, value in watched:
            if get(name) is not value:
                return True
    except GONE:
        return True
    return False


def find(compiled: CompiledKernel, found: Watches) -> list[Watch]:
    """Add the watches of a compiled kernel to `found`, and return the new ones."""
    seen = len(found)
    surroundings = Surroundings(found)
    for entry in compiled.reads:
        surroundings.read(entry.owner, entry.path, unknown=entry.fingerprint is None, values=entry.values)
    for function, arguments in compiled.ran:
        surroundings.ran(function, arguments)
    for _, value in constants(compiled.request.arguments):
        surroundings.argument(value)
    return list(found.values())[seen:]


class Whole:
    """A watch on the contents of a container: the test returns itself while the items are the same objects."""

    __slots__ = ("items", "keys")

    def __init__(self, container: Any) -> None:
        self.keys: tuple[Any, ...] = ()
        self.items = tuple(container)
        if hasattr(container, "keys"):
            self.keys, self.items = self.items, tuple(container.values())

    def sequence(self, container: Any) -> Any:
        """The test of a list or a set."""
        if len(container) != len(self.items) or any(map(is_not, container, self.items)):
            return None
        return self

    def mapping(self, container: Any) -> Any:
        """The test of a dictionary."""
        if len(container) != len(self.keys) or any(map(is_not, container, self.keys)):
            return None
        return None if any(map(is_not, container.values(), self.items)) else self


class _Equal:
    """A watch on a value that is computed at each test and compared by equality: a length, the bytes of an array."""

    __slots__ = ("first", "make")

    def __init__(self, make: Any, owner: Any) -> None:
        self.make, self.first = make, make(owner)

    def test(self, owner: Any) -> Any:
        """The test itself while the value is equal."""
        return self if self.make(owner) == self.first else None


class Surroundings:
    """Collects watches in `found`. Objects that were visited before are skipped."""

    def __init__(self, found: Watches) -> None:
        self.found = found
        self._deep: set[int] = set()
        self._ran: set[object] = set()
        self._alive: list[object] = []
        self._seen: set[tuple[int | None, Path, bool]] = set()

    def read(self, owner: Any, path: Path, *, unknown: bool, values: Sequence[Any] = ()) -> None:
        """Watch the steps of a read (see `weft.runtime.manifest.Read`); for an unknown value also what its code names."""
        place = paths.scope(owner, path), path, unknown
        if place in self._seen:
            return
        if place[0] is not None:
            self._seen.add(place)
        value: Any = owner
        for number, step in enumerate(path):
            try:
                after = values[number] if values else paths.follow(value, step)
            except paths.Opened as opened:
                self._opened(value, step, opened)
                return
            except (LookupError, AttributeError):
                self._absent(value, step)
                return
            self._step(value, step, after)
            value = after
        self.contents(value)
        if unknown:
            self.used(value, frozenset())

    def _opened(self, owner: Any, step: paths.Step, opened: paths.Opened) -> None:
        """Watch what the author's Python behind a step may read."""
        if isinstance(owner, ModuleType):
            self._absent(owner, step)
            self._attribute(owner, "__getattr__", vars(owner).get("__getattr__"))
        else:
            self.used(owner if isinstance(owner, type) else type(owner), frozenset())
        for function, first in opened.ran:
            self.ran(function, (first,))

    def argument(self, value: Any) -> None:
        """Watch the state of an object that is a constexpr argument; its identity is part of the launch's key."""
        if _is_authors(value):
            self.contents(value)

    def _step(self, owner: Any, step: paths.Step, value: Any) -> None:
        if step.kind == paths.NAME:
            self._variable(owner, step.key, value)
        elif step.kind == paths.ATTRIBUTE:
            self._attribute(owner, step.key, value)
        elif not isinstance(owner, tuple):
            if step.kind == paths.LENGTH:
                self._equal(owner, len, "length")
            else:
                self._add(owner, step.key, owner.__getitem__, step.key, value)

    def _add(self, place: Any, name: Any, get: Any, given: Any, value: Any) -> None:
        self.found.setdefault((id(place), name), (get, given, value))
        self._alive.append(place)

    def _equal(self, owner: Any, make: Any, name: str) -> None:
        test = _Equal(make, owner)
        self._add(owner, ("equal", name), test.test, owner, test)

    def _variable(self, function: FunctionType, name: str, value: Any) -> None:
        code, space = function.__code__, function.__globals__
        if name in code.co_freevars:
            cell = (function.__closure__ or ())[code.co_freevars.index(name)]
            self._add(cell, name, _OF_CELL, cell, value)
        elif name not in space:
            self._add(space, name, space.get, name, None)  # A builtin, as long as no global shadows it.
        elif not (isinstance(value, ModuleType) and origin.ours(value)) and not origin.ours(function):
            self._add(space, name, space.get, name, value)

    def _attribute(self, owner: Any, name: str, value: Any) -> None:
        if origin.ours(owner) or not (isinstance(owner, (type, ModuleType)) or _is_authors(owner)):
            return
        if isinstance(owner, ModuleType):
            self._add(vars(owner), name, vars(owner).get, name, value)
            return
        get = attrgetter(name)
        if get(owner) is value:
            self._add(owner, name, get, owner, value)
            return
        # The attribute is created at each access, as bound methods are: the class's entry is watched instead.
        for base in origin.foreign_bases(owner if isinstance(owner, type) else type(owner)):
            if name in vars(base):
                self._add(base, ("entry", name), vars(base).get, name, vars(base)[name])

    def _absent(self, owner: Any, step: paths.Step) -> None:
        if isinstance(owner, ModuleType):
            self._attribute(owner, step.key, None)
        elif step.kind == paths.ATTRIBUTE and not origin.ours(owner):
            self._equal(owner, functools.partial(_has, step.key), f"has {step.key}")

    def contents(self, value: Any) -> None:
        """Watch the mutable parts of a value that is read as a whole."""
        kind = class_of(value)
        if kind in _ATOMS or id(value) in self._deep or isinstance(value, (type, ModuleType, Enum)):
            return
        if isinstance(value, FunctionType) and fp.is_ours(value):
            return
        self._deep.add(id(value))
        self._alive.append(value)
        if isinstance(value, (tuple, frozenset)):
            self._each(cast("tuple[Any, ...]", value))
        elif isinstance(value, (list, set, dict)):
            if isinstance(value, dict):
                self._mapping(value)
                self._each(cast("dict[Any, Any]", value).values())
            else:
                same = Whole(value)
                self._add(value, "contents", same.sequence, value, same)
                self._each(same.items)
        elif isinstance(value, bytearray) or (kind.__module__ == "numpy" and hasattr(value, "tobytes")):
            self._equal(value, bytes if isinstance(value, bytearray) else kind.tobytes, "bytes")
        elif isinstance(value, FunctionType) or fp.function_of(value) is not None:
            function = cast("FunctionType", fp.function_of(value))
            self._each((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        if _is_authors(value):
            frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
            owner = cast("object", value)
            space = fp.space_of(owner)
            if space is not None and not frozen:
                self._mapping(space)
            for name, part in fp.state_of(owner):
                if not frozen and name not in (space or ()):
                    self._add(value, name, attrgetter(name), value, part)
                self.contents(part)

    def _mapping(self, value: Any) -> None:
        """Watch the keys of a dictionary and their values."""
        same = Whole(value)
        self._add(value, "contents", same.mapping, value, same)

    def _each(self, items: Iterable[Any]) -> None:
        for item in items:
            if type(item) not in _ATOMS:
                self.contents(item)

    def ran(self, function: Any, arguments: Iterable[Any] = ()) -> None:
        """Watch what one of the author's functions names, and the contents of its arguments."""
        self.used(function, frozenset())
        for argument in arguments:
            self.contents(argument)
            self.used(argument, frozenset())

    def used(self, value: Any, names: frozenset[str]) -> None:
        """Watch what code that has this value, and mentions these names, may read from it. Each object is visited once."""
        waiting = [(value, names)]
        while waiting:
            value, names = waiting.pop()
            waiting += self._look(value, names)

    def _look(self, value: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
        kind = class_of(value)
        if kind in _ATOMS or (origin.ours(value) and not hasattr(value, "__wrapped__")):
            return
        if isinstance(value, ModuleType):
            yield from self._of_module(value, names)
            return
        if id(value) in self._ran:
            return
        self._ran.add(id(value))
        self._alive.append(value)
        if isinstance(value, FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, type):
            yield from self._of_class(value)
        elif isinstance(value, MethodType):
            yield value.__func__, names
            yield value.__self__, names
        elif isinstance(value, functools.partial):
            part = cast("functools.partial[Any]", value)
            yield part.func, names
            yield from ((each, names) for each in (*part.args, *part.keywords.values()))
        elif isinstance(value, (tuple, list, set, frozenset, dict)):
            self.contents(value)
            items = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
            yield from ((item, names) for item in items if type(item) not in _ATOMS)
        elif _is_authors(value):
            self.contents(value)
            yield kind, names
            yield from ((part, names) for _, part in fp.state_of(value))
        else:
            self.contents(value)

    def _of_module(self, module: ModuleType, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
        if not names.isdisjoint(_BY_TEXT) and not origin.ours(module):
            self._mapping(vars(module))
        if "__getattr__" in vars(module):
            names |= {"__getattr__"}
        for name in names & vars(module).keys():
            if (id(vars(module)), name) not in self.found:
                found = vars(module)[name]
                self._attribute(module, name, found)
                yield found, names

    def _of_function(self, function: FunctionType) -> Iterator[tuple[Any, frozenset[str]]]:
        wrapped = vars(function).get("__wrapped__")
        if wrapped is not None:
            yield wrapped, frozenset()
        if origin.of_function(function) is not origin.AUTHORS:
            return
        names = frozenset(_names(function.__code__))
        if not names.isdisjoint(_OF_GLOBALS):
            self._mapping(function.__globals__)
        for name in (*function.__code__.co_freevars, *sorted(names)):
            if name in function.__code__.co_freevars or name in function.__globals__ or name in vars(builtins):
                try:
                    found = paths.variable(function, name)
                except LookupError:
                    continue
                self._variable(function, name, found)
                yield found, names
            for imported in (name, f"{function.__globals__.get('__package__')}.{name}"):
                if imported in sys.modules and name not in function.__globals__:
                    yield sys.modules[imported], names  # A module that the function imports itself.
        yield from ((default, names) for default in function.__defaults__ or ())

    def _of_class(self, cls: type) -> Iterator[tuple[Any, frozenset[str]]]:
        for base in (*origin.foreign_bases(cls), *origin.foreign_bases(type(cls))):
            if origin.of_class(base) is origin.INSTALLED:
                continue
            for name, entry in list(vars(base).items()):
                inner = getattr(entry, "__func__", None) or (paths.function_in(entry) if hooks.binds(entry) else entry)
                if isinstance(inner, FunctionType):
                    yield inner, frozenset()
                if not name.startswith("__"):
                    self.contents(entry)
            self._mapping(vars(base))


_BY_TEXT = ("getattr", "hasattr", "vars", "dir", "__dict__", "eval", "exec")
_OF_GLOBALS = ("globals", "eval", "exec")
"""Functions that mention these may look up any name: all of the modules that they name, or of their own, is watched."""
_OF_CELL = attrgetter("cell_contents")


def _has(name: str, owner: Any) -> bool:
    return hasattr(owner, name)


def _is_authors(value: Any) -> bool:
    kind = class_of(value)
    return kind.__name__ == "SimpleNamespace" or (
        not isinstance(value, (type, ModuleType, FunctionType, CellType)) and origin.of_class(kind) is origin.AUTHORS
    )


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names
