"""The identity of a tuned function: its text, the text of the functions that it names, and its configs.

Unlike the keys of the kernel cache, which must never yield stale code, the identity leaves out source locations, tool versions
and objects without a fingerprint. So a choice can be exported to another machine and survives a line added above the kernel. At
worst a stored choice is no longer the fastest one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any

from weft.errors.location import lines_of
from weft.runtime.function_text import digest, function_of, text_of
from weft.tune.config import Config

_ATOMS = (bool, int, float, str, type(None))


def identity(function: FunctionType, configs: Iterable[Config]) -> str:
    """A digest of the function, of the functions and constants that it names (recursively), and of its configs."""
    seen: dict[CodeType, None] = {}
    texts = list(_texts(function, (function.__module__ or "").partition(".")[0], seen))
    return digest(*texts, *map(str, configs))


def _texts(function: FunctionType, root: str, seen: dict[CodeType, None]) -> Iterator[str]:
    if function.__code__ in seen:
        return
    seen[function.__code__] = None
    yield function.__qualname__
    yield dedent("".join(text_of(function, lines_of(function))))
    for name, value in _named(function):
        inner = _function(value)
        if inner is not None and _is_the_authors(inner, root):
            yield from _texts(inner, root, seen)
        elif _plain(value):
            yield f"{name}={value!r}"


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables that a function names: from its closure, from its module, and attributes of modules that it names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    names = sorted(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        yield name, value
        if isinstance(value, ModuleType):
            yield from ((f"{name}.{a}", vars(value)[a]) for a in names if a in vars(value))


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def _function(value: Any) -> FunctionType | None:
    """The Python function behind a function, a kernel, or a tuned one of these."""
    found = function_of(value)
    return function_of(getattr(value, "fn", value)) if found is None else found


def _is_the_authors(function: FunctionType, root: str) -> bool:
    """True for functions of the author: not of the standard library, weft, or an installed package other than the kernel's."""
    module = function.__module__ or ""
    top = module.partition(".")[0]
    if top == "weft":
        return module.startswith("weft.kernels")
    if top in sys.stdlib_module_names and top != "__main__":
        return False
    return top == root or "site-packages" not in function.__code__.co_filename


def _plain(value: Any) -> bool:
    return isinstance(value, _ATOMS) or (isinstance(value, tuple) and all(map(_plain, value)))  # pyright: ignore[reportUnknownArgumentType]
