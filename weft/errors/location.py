"""Locations in the author's Python source, their rendering with a caret, and the source text of decorated functions.

A location is a span of one file plus the location of the call that inlined it, so a report about a line inside a
helper also names every caller. Nothing here knows about IR, layouts or GPUs.

Python keeps the file name of a function, not its text. A file that is edited while a program runs no longer matches the
functions compiled from it, so decorators keep the lines. A reloaded module has new functions with the new lines.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Loc:
    """A span of source text: 1-based lines, 0-based columns (as `ast` counts them), and the caller's location.

    `text` holds the line of a location that was pickled in another process, whose file may not exist here; otherwise the line
    is looked up.
    """

    file: str
    line: int
    col: int = 0
    end_line: int | None = None
    end_col: int | None = None
    function: str = ""
    caller: Loc | None = None
    text: str | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        span = (self.file, self.line, self.col, self.end_line, self.end_col)
        return Loc, (*span, self.function, self.caller, self.source)

    def chain(self) -> Iterator[Loc]:
        """This location, then the call that inlined it, outwards to the kernel."""
        loc: Loc | None = self
        while loc is not None:
            yield loc
            loc = loc.caller

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def source(self) -> str:
        """The line of source text, without its newline; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n") if self.text is None else self.text


def render(loc: Loc, indent: str = "  ") -> str:
    """The source line with a caret under the span, and one line for each caller.

    >>> render(Loc("<unknown>", 3, function="kernel"))
    '  <unknown>:3 in kernel'
    """
    out = [f"{indent}{loc}" + (f" in {loc.function}" if loc.function else "")]
    text = loc.source
    if text.strip():
        lead = len(text) - len(text.lstrip())
        # `ast` columns count UTF-8 bytes, carets count characters.
        raw = text.encode()
        start = max(len(raw[: loc.col].decode(errors="ignore")), lead)
        same_line = loc.end_line in (None, loc.line) and loc.end_col is not None
        end = len(raw[: loc.end_col].decode(errors="ignore")) if same_line else len(text)
        out.append(f"{indent}    {text.strip()}")
        out.append(f"{indent}    {' ' * (start - lead)}{'^' * max(end - start, 1)}")
    if loc.caller is not None:
        callers = [f"{c}" + (f" in {c.function}" if c.function else "") for c in loc.caller.chain()]
        if len(callers) > 2 * _SHOWN + 1:
            callers[_SHOWN:-_SHOWN] = [f"... ({len(callers) - 2 * _SHOWN} more)"]
        out.append(f"{indent}  called from {' <- '.join(callers)}")
    return "\n".join(out)


_SHOWN = 4
"""The callers that a message shows of a helper that calls itself, at either end of a long chain."""
NO_FILE = "<string>"
"""The file name of code that `exec` compiles from a string; Python 3.13 registers the text of `python -c` under it."""
_KEPT: dict[int, tuple[weakref.ref[CodeType], list[str]]] = {}
"""Keyed by identity: code objects of two versions of a file can compare equal, and closures made per call share one."""


def keep_lines(function: FunctionType, lines: list[str] | None = None) -> None:
    """Keep the lines of a function's file, by default its current ones, unless they are kept already."""
    code = function.__code__
    key = id(code)
    if key in _KEPT:
        return
    lines = lines or _current(function)
    if lines:
        _KEPT[key] = weakref.ref(code, lambda _: _KEPT.pop(key, None)), lines


def lines_of(function: FunctionType) -> list[str]:
    """The lines of a function's file when it was decorated, or the current ones if it never was. Empty without a file."""
    kept = _KEPT.get(id(function.__code__))
    return _current(function) if kept is None else kept[1]


def _current(function: FunctionType) -> list[str]:
    file = function.__code__.co_filename
    if file == NO_FILE:
        return []
    linecache.checkcache(file)
    return linecache.getlines(file, function.__globals__)
