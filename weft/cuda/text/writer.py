"""Lines of text with indentation, and `#line` directives to the author's source.

The preprocessor increments the line number after a directive, so a directive is written only where that number would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft.errors import Loc

WIDTH = 118
"""The maximum width of a text line on which statements of one source line are joined."""


class Writer:
    """Collects lines. `loc` is the source location of the following text."""

    __slots__ = ("_depth", "_file", "_joins", "_next", "lines", "loc")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.loc: Loc | None = None
        self._depth = 1
        self._file = ""
        self._next = 0
        self._joins = False

    def statement(self, text: str) -> None:
        """A simple statement; statements of one source line are joined on one line while they fit."""
        here = self.loc is None or (self.loc.file, self.loc.line) == (self._file, self._next - 1)
        if self._joins and here and len(self.lines[-1]) + 1 + len(text) <= WIDTH:
            self.lines[-1] += f" {text}"
            return
        self.line(text)
        self._joins = True

    def line(self, text: str) -> None:
        """A separate line, with a source location."""
        self._locate()
        self.bare(text)

    def bare(self, text: str) -> None:
        """A line without instructions, and so without a source location: a declaration, a brace, a pragma."""
        self.lines.append("  " * self._depth + text)
        self._next += 1
        self._joins = False

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A statement with a body in braces."""
        self.line(f"{head} {{")
        with self.indented():
            yield
        self.bare("}")

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indents the lines written inside by one level."""
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def otherwise(self, condition: str = "") -> Iterator[None]:
        """The `else`, or `else if` with a condition, of an `if` whose closing brace was the last line."""
        self.lines[-1] += f" else if ({condition}) {{" if condition else " else {"
        with self.indented():
            yield
        self.bare("}")

    @contextmanager
    def unless_empty(self) -> Iterator[None]:
        """The `else` of an `if` whose closing brace was the last line; omitted if nothing is written inside."""
        self.lines[-1] += " else {"
        before = len(self.lines)
        with self.indented():
            yield
        if len(self.lines) == before:
            self.lines[-1] = self.lines[-1].removesuffix(" else {")
        else:
            self.bare("}")

    def _locate(self) -> None:
        loc = self.loc
        if loc is None or (loc.file, loc.line) == (self._file, self._next):
            return
        self.lines.append(f"#line {loc.line}" if loc.file == self._file else f'#line {loc.line} "{_path(loc.file)}"')
        self._file, self._next = loc.file, loc.line


def _path(file: str) -> str:
    # A quote would also end the file name in the PTX, which has no escape for it.
    return file.replace("\\", "\\\\").replace('"', "'").replace("\n", " ")
