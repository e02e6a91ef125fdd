"""Tables of edits: what a module says before and after, and the expression by which a kernel reads it.

`definitions.txt` holds edits of text, `changes.txt` what a session does to objects without running a definition again. An entry
of either begins with its name, the expression (in which `c` is the module), where not all hold the ways of reading it (see
`WAYS`), and where it matters the module's name. The module's text follows. The last line says what its `{}` is before and
after, or the statement that changes something. Each must change what a kernel stores that stores the expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

IMPORTS = """\
import collections, dataclasses, enum, functools, types, typing
import weft
from weft import language as gl
"""
KERNEL, HELPER, CALLED, STAR = "kernel", "helper", "constexpr_function", "star"
WAYS = {
    KERNEL: """
import {module} as c
@weft.jit
def kernel(out):
    gl.store(out, {expression})
""",
    HELPER: """
import {module} as c
@weft.jit
def helper(x):
    return x + ({expression})
@weft.jit
def kernel(out):
    gl.store(out, helper(100))
""",
    CALLED: """
import {module} as c
@weft.constexpr_function
def called():
    return {expression}
@weft.jit
def kernel(out):
    gl.store(out, called())
""",
    STAR: """
from {module} import *
@weft.jit
def kernel(out):
    gl.store(out, {bare})
""",
}
"""How a kernel comes to read an expression: in itself, in a helper, in Python that it calls, through `import *`."""


@dataclass(frozen=True)
class Edit:
    """`before` and `after` are what stands in the module's text in place of `{}`; of a change, `after` is the statement."""

    name: str
    text: str
    before: str
    after: str
    expression: str
    ways: tuple[str, ...]
    module: str = "config"

    def module_text(self, *, edited: bool) -> str:
        """The module, before or after the edit."""
        return IMPORTS + self.text.replace("{}", self.after if edited else self.before)

    def script(self, way: str) -> str:
        """A script with a kernel that stores the expression."""
        bare = self.expression.replace("c.", "")
        return IMPORTS + WAYS[way].format(module=self.module, expression=self.expression, bare=bare)


def _entries(file: str, ways: tuple[str, ...]) -> Iterator[tuple[Edit, str]]:
    for entry in f"\n{(Path(__file__).parent / file).read_text()}".split("\n== ")[1:]:
        head, *lines, last = entry.rstrip("\n").split("\n")
        name, expression, *more = head.split(" :: ")
        named = [each for each in more if each.startswith("module ")]
        chosen = next((tuple(each.split()) for each in more if each not in named), ways)
        before, _, after = last.removeprefix("-- ").rpartition(" --> ")
        module = named[0].removeprefix("module ") if named else "config"
        edit = Edit(name, "\n".join(lines) + "\n", before, after, expression, chosen, module)
        yield from ((edit, way) for way in chosen)


EDITS = list(_entries("definitions.txt", tuple(WAYS)))
"""Edits of a module's text, each with a way to read what is edited."""
CHANGES = list(_entries("changes.txt", (KERNEL, HELPER, CALLED)))
"""Changes of objects, each with a way."""
