"""Where an object comes from: weft or Python's own library, an installed package, or the author.

The question is answered by the file that a module was loaded from, never by its name: an author's `profile.py` is the author's.
Only what a module really holds under its name counts as that module's, since a class may claim any module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast
from weakref import WeakKeyDictionary

_INSTALLED = ("site-packages", "dist-packages")
_origins: WeakKeyDictionary[ModuleType, tuple[Any, str]] = WeakKeyDictionary()
_homes: WeakKeyDictionary[type, str] = WeakKeyDictionary()

OURS, INSTALLED, AUTHORS = "ours", "installed", "author's"
"""`ours` is what `weft.runtime.toolchain` stands for: weft, and Python with its library."""


@cache
def _root() -> str:
    # As the import system spells it: a path within an archive where weft is imported from one.
    return str(Path(__file__).parent.parent) + "/"


@cache
def _library() -> tuple[str, ...]:
    # What `sysconfig` answers for "stdlib" and "platstdlib"; it reads all of Python's build variables first, for 2 ms.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    known = {Path(os.__file__).parent, Path(sys.base_exec_prefix, sys.platlibdir, version)}
    found = {str(path) for path in known} | {str(path.resolve()) for path in known}
    return tuple(path + "/" for path in found)


def of_module(module: ModuleType) -> str:
    """Whose a module is."""
    file: Any = getattr(getattr(module, "__spec__", None), "origin", None) or vars(module).get("__file__")
    known = _origins.get(module)
    if known is None or known[0] != file:
        _origins[module] = known = file, _of_file(module, file)
    return known[1]


def _of_file(module: ModuleType, file: Any) -> str:
    if file in ("built-in", "frozen"):
        return OURS
    if not isinstance(file, str):
        # The interpreter's own, such as `builtins` where it is embedded.
        return OURS if module.__name__ in sys.builtin_module_names else AUTHORS
    if file.startswith(_root()):
        return OURS
    if any(part in file for part in _INSTALLED):
        return INSTALLED
    return OURS if file.startswith(_library()) else AUTHORS


def of_class(cls: type) -> str:
    """Whose a class is."""
    known = _homes.get(cls)
    if known is None:
        _homes[cls] = known = _of_class(cls)
    return known


def _of_class(cls: type) -> str:
    module = sys.modules.get(cls.__module__) if isinstance(cast("Any", cls.__module__), str) else None
    if module is None:
        return AUTHORS
    found = of_module(module)
    if found is AUTHORS or (type(cls) is type and not cls.__flags__ & _HEAP):
        return found
    held: Any = module
    for part in cls.__qualname__.split("."):
        space = vars(held) if isinstance(held, (ModuleType, type)) else {}
        held = space.get(part)
    # `make_dataclass` once said that its classes are those of `types`.
    return found if held is cls else AUTHORS


_HEAP = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: a class made by a `class` statement or its like, and no static one of C."""


def of_function(function: FunctionType) -> str:
    """Whose a Python function is."""
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    if module is None or vars(module) is not function.__globals__:
        return AUTHORS
    return of_module(module)


def ours(value: object) -> bool:
    """True for modules, classes and functions that the toolchain stands for."""
    if isinstance(value, ModuleType):
        return of_module(value) is OURS
    if isinstance(value, type):
        return of_class(value) is OURS
    return isinstance(value, FunctionType) and of_function(value) is OURS


def foreign_bases(cls: type) -> Iterator[type]:
    """The classes of a class's resolution order that the toolchain does not stand for."""
    return (base for base in cls.__mro__ if of_class(base) is not OURS)


def entry(cls: type, name: str) -> Any:
    """What a class or a base of it has in its body under a name, as it stands there; `ABSENT` where there is nothing."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return ABSENT


def class_of(value: object) -> type[Any]:
    """`type(value)`, in a way that strict type checkers know the type of."""
    return type(value)


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


ABSENT = _Absent()
