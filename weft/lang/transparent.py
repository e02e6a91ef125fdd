"""Which Python of the author's is simple enough to know what it reads.

Most functions that a kernel calls at compile time compute with their arguments: the `__init__` of an aggregate that sets its
fields, a function that picks a layout. Such a function reads globals that are constants, other functions of this kind, and the
language; it imports nothing, and looks up nothing by a text. What it reads then is recorded as a kernel's reads are.
Of any other function nobody knows what its result depends on.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from weft.lang.frame import Trace

_FORBIDDEN = frozenset({
    "IMPORT_NAME", "IMPORT_FROM", "IMPORT_STAR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "STORE_DEREF",
    "LOAD_BUILD_CLASS", "LOAD_NAME",
})  # fmt: skip
_PURE = frozenset({
    abs, all, any, bool, complex, dict, divmod, enumerate, float, frozenset, int, isinstance, len, list, max, min, pow, range,
    reversed, round, set, slice, sorted, str, sum, tuple, zip,
})  # fmt: skip
"""Python's own functions whose result follows from their arguments."""
_LANGUAGE = ("weft.language", "weft.layout", "weft.ir.types", "math")
"""Modules, with those below them, whose functions and classes are such too."""


def read_by(trace: Trace, function: Any) -> bool:
    """True when all is known that a function reads, which then is recorded; functions that it calls are too."""
    if id(function) in trace.known:
        return True
    raw = author_of(function)
    if raw is None:
        return False
    reads = dict(_globals(raw))
    if not all(_is_plain_code(code) for code in _codes(raw.__code__)) or not all(map(_may_read, reads.values())):
        return False
    trace.known[id(function)] = function  # so that functions may call each other
    for name, value in reads.items():
        trace.read(raw, (("name", name),), value)
    inner = [value for value in reads.values() if _is_authors(value)]
    known = all(read_by(trace, value) for value in inner)
    if not known:
        del trace.known[id(function)]
    return known


def author_of(function: Any) -> FunctionType | None:
    """The author's function that `constexpr_function` and the like stand before; None for what is no Python function."""
    while isinstance(function, FunctionType) and isinstance(inner := vars(function).get("__wrapped__"), FunctionType):
        function = inner
    return function if isinstance(function, FunctionType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_plain_code(code: CodeType) -> bool:
    special = any(name.startswith("__") for name in code.co_names)
    return not special and not any(each.opname in _FORBIDDEN for each in dis.get_instructions(code))


def _globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Variables outside of a function that it or a function within it reads; one that is not there is no value of any kind."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, getattr(cell, "cell_contents", _NOTHING)
    for code in _codes(function.__code__):
        for each in dis.get_instructions(code):
            if each.opname == "LOAD_GLOBAL":
                found = function.__globals__.get(each.argval, _NOTHING)
                yield each.argval, vars(builtins).get(each.argval, _NOTHING) if found is _NOTHING else found


_NOTHING = object()


def _may_read(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return _in_language(value.__name__)
    if isinstance(value, type):
        return value in _PURE or issubclass(value, Exception) or _in_language(value.__module__)
    if not callable(value):
        return value is not _NOTHING
    return _is_authors(value) or value in _PURE or _in_language(getattr(value, "__module__", None) or "")


def _is_authors(value: Any) -> bool:
    raw = author_of(value)
    return raw is not None and raw.__module__.partition(".")[0] not in ("weft", "math")


def _in_language(module: str) -> bool:
    return any(module == each or module.startswith(each + ".") for each in _LANGUAGE)
