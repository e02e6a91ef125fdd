"""The text of functions, as it was when they were defined.

Python keeps the file of a function, not its text. A file that is edited while a program runs says something else than the
function that was made from it, so decorators keep the lines; a reloaded module has new functions, and those the new lines.
"""

from __future__ import annotations

import linecache
import weakref
from types import CodeType, FunctionType

NO_FILE = "<string>"
"""The file of every text that `exec` is given without a name; Python 3.13 enters that of `python -c` under it."""
_KEPT: dict[int, tuple[weakref.ref[CodeType], list[str]]] = {}
"""By identity: code objects of two versions of a file can be equal, and functions made per call share one."""


def keep_lines(function: FunctionType, lines: list[str] | None = None) -> None:
    """Keep the lines of a function's file, by default as they are now, unless they are kept already."""
    code = function.__code__
    key = id(code)
    if key in _KEPT:
        return
    lines = lines or _current(function)
    if lines:
        _KEPT[key] = weakref.ref(code, lambda _: _KEPT.pop(key, None)), lines


def lines_of(function: FunctionType) -> list[str]:
    """The lines of a function's file when it was decorated; of one that never was, the lines now. Empty without a file."""
    kept = _KEPT.get(id(function.__code__))
    return _current(function) if kept is None else kept[1]


def _current(function: FunctionType) -> list[str]:
    file = function.__code__.co_filename
    if file == NO_FILE:
        return []
    linecache.checkcache(file)
    return linecache.getlines(file, function.__globals__)
