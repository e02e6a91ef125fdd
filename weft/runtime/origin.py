"""The origin of an object: weft or the standard library, an installed package, or the author.

It is decided by the file from which a module was loaded, never by the module's name: an author's `profile.py` is the author's.
A class belongs to a module only if the module has it under its name, since `__module__` can be set to anything.
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
_ours: dict[int, type] = {}
"""Classes of ours by identity, kept alive: a lookup takes a fifth of that in a weak dictionary, and most classes are ours."""
_our_modules: dict[int, tuple[ModuleType, Any]] = {}
"""Modules of ours, likewise, with their specs. Python makes a new spec when it loads a module again."""

OURS, INSTALLED, AUTHORS = "ours", "installed", "author's"
"""`ours`: weft and Python with its library, which are covered by the digest of `weft.runtime.toolchain`."""


@cache
def _root() -> str:
    # As the import system spells it: a path inside the archive if weft is imported from one.
    return str(Path(__file__).parent.parent) + "/"


@cache
def _library() -> tuple[str, ...]:
    # The same as `sysconfig`'s "stdlib" and "platstdlib", but that reads all of Python's build variables first (2 ms).
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    known = {Path(os.__file__).parent, Path(sys.base_exec_prefix, sys.platlibdir, version)}
    found = {str(path) for path in known} | {str(path.resolve()) for path in known}
    return tuple(path + "/" for path in found)


def of_module(module: ModuleType) -> str:
    """The origin of a module."""
    spec: Any = getattr(module, "__spec__", None)
    ours = _our_modules.get(id(module))
    if ours is not None and ours[1] is spec:
        return OURS
    file: Any = getattr(spec, "origin", None) or vars(module).get("__file__")
    known = _origins.get(module)
    if known is None or known[0] != file:
        _origins[module] = known = file, _of_file(module, file)
    if known[1] is OURS and spec is not None:
        _our_modules[id(module)] = module, spec
    return known[1]


def _of_file(module: ModuleType, file: Any) -> str:
    if file in ("built-in", "frozen"):
        return OURS
    if not isinstance(file, str):
        # Modules of the interpreter itself have no file, such as `builtins` in an embedded interpreter.
        return OURS if module.__name__ in sys.builtin_module_names else AUTHORS
    if file.startswith(_root()):
        return OURS
    if any(part in file for part in _INSTALLED):
        return INSTALLED
    return OURS if file.startswith(_library()) else AUTHORS


def of_class(cls: type) -> str:
    """The origin of a class."""
    if id(cls) in _ours:
        return OURS
    known = _homes.get(cls)
    if known is None:
        known = _of_class(cls)
        if known is OURS:
            _ours[id(cls)] = cls
        else:
            _homes[cls] = known
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
    # `dataclasses.make_dataclass` of some Python versions sets `__module__` of its classes to `types`.
    return found if held is cls else AUTHORS


_HEAP = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: set for classes created at run time, clear for static types of C."""


def of_function(function: FunctionType) -> str:
    """The origin of a Python function."""
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    if module is None or vars(module) is not function.__globals__:
        return AUTHORS
    return of_module(module)


def ours(value: object) -> bool:
    """True for modules, classes and functions covered by the toolchain digest."""
    if isinstance(value, ModuleType):
        return of_module(value) is OURS
    if isinstance(value, type):
        return of_class(value) is OURS
    return isinstance(value, FunctionType) and of_function(value) is OURS


def foreign_bases(cls: type) -> Iterator[type]:
    """The classes of a class's MRO that the toolchain digest does not cover."""
    return (base for base in cls.__mro__ if of_class(base) is not OURS)


def entry(cls: type, name: str) -> Any:
    """The raw entry of a name in the body of a class or its bases (descriptors unbound), or `ABSENT`."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return ABSENT


def class_of(value: object) -> type[Any]:
    """`type(value)`, with a type that strict type checkers accept."""
    return type(value)


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


ABSENT = _Absent()
