"""Which of the author's Python functions are simple enough that their reads can be listed.

Most functions that a kernel calls at compile time compute with their arguments: the `__init__` of an aggregate that sets its
fields, a function that picks a layout. Such a function reads constant globals, other functions of this kind, and the language;
it imports nothing and looks up nothing by a computed name. Its reads are recorded like a kernel's own.
The result of any other function may depend on anything. A compilation that calls one is *open*: the disk cache finds it by its
IR, not by its reads (see `weft.runtime.manifest`).
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
"""Builtins whose result depends only on their arguments."""
_LANGUAGE = ("weft.language", "weft.layout", "weft.ir.types", "math")
"""Modules, including their submodules, whose functions and classes are pure as well."""


def read_by(trace: Trace, function: Any) -> bool:
    """True when all reads of a function are known. They are recorded then, as are those of the functions it calls."""
    if id(function) in trace.known:
        return True
    raw = author_of(function)
    if raw is None:
        return False
    reads = dict(_globals(raw))
    if not all(_is_plain_code(code) for code in _codes(raw.__code__)) or not all(map(_may_read, reads.values())):
        return False
    trace.known[id(function)] = function  # Assumed before its callees are visited, for recursion.
    for name, value in reads.items():
        trace.read(raw, (("name", name),), value)
    inner = [value for value in reads.values() if _is_authors(value)]
    known = all(read_by(trace, value) for value in inner)
    if not known:
        del trace.known[id(function)]
    return known


def author_of(function: Any) -> FunctionType | None:
    """The author's function inside wrappers such as `constexpr_function`; None if there is no Python function inside."""
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
    """Outer variables that a function, or a function nested in it, reads; `_NOTHING` for one that is not defined."""
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
