"""A function's syntax tree with positions of its file, and syntactic facts about it.

The text is that of the file at the time of decoration, from the function's first line to its end. It is parsed after as many
empty lines as precede it in the file, so that line and column numbers need no correction.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from weft.errors import Loc, fail
from weft.errors import source as errors
from weft.errors.location import NO_FILE, lines_of

Path = tuple[tuple[str, Any], ...]
"""Steps from a function, a module or a class to a value: for a function ("name", n) first, then ("attribute", n),
("item", key) and ("length", None)."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


MUTATORS = frozenset({
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort",
    "update",
})  # fmt: skip
"""Methods that modify a container. They are refused on constants, which all readers share."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A parsed function: its file, its name for messages, its tree, and its local names.

    Facts about nodes are cached: a helper is read once per call, and a loop's body once per attempt.
    """

    file: str
    name: str
    node: ast.FunctionDef
    locals: frozenset[str]
    _assigned: dict[ast.AST, tuple[str, ...]] = field(default_factory=dict[ast.AST, "tuple[str, ...]"])
    _jumps: dict[ast.AST, bool] = field(default_factory=dict[ast.AST, bool])
    _live_out: dict[ast.AST, tuple[str, ...]] = field(default_factory=dict[ast.AST, "tuple[str, ...]"])
    _paths: dict[ast.AST, Path] = field(default_factory=dict[ast.AST, Path])

    @property
    def body(self) -> list[ast.stmt]:
        """The function's statements."""
        return self.node.body

    def assigned(self, node: ast.AST) -> tuple[str, ...]:
        """Names that the statement, or a statement within it, assigns; for an attribute target its root name."""
        if node not in self._assigned:
            self._assigned[node] = tuple(dict.fromkeys(_stores(node)))
        return self._assigned[node]

    def poisoned(self, node: ast.AST) -> tuple[str, ...]:
        """Names to poison after the statement has failed: those that it assigns or may modify in place."""
        changed = (
            each.func.value.id
            for each in ast.walk(node)
            if isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and isinstance(each.func.value, ast.Name)
            if each.func.attr in MUTATORS
        )
        return (*self.assigned(node), *changed)

    def jumps(self, node: ast.If) -> bool:
        """True when the `if` contains a return, or a break or continue of an enclosing loop."""
        if node not in self._jumps:
            self._jumps[node] = any(True for child in (*node.body, *node.orelse) for _ in _jumps_out(child))
        return self._jumps[node]

    def leaves(self, node: ast.For | ast.While) -> bool:
        """True when the loop's body contains a return, or a break of this loop."""
        if node not in self._jumps:
            found = (jump for child in node.body for jump in _jumps_out(child))
            self._jumps[node] = any(not isinstance(jump, ast.Continue) for jump in found)
        return self._jumps[node]

    def live_out(self, node: ast.For | ast.While) -> tuple[str, ...]:
        """Names that the loop assigns and that the function reads outside of it (live out, without regard to order)."""
        if node not in self._live_out:
            inside = set(ast.walk(node))
            read = {name for child in ast.walk(self.node) if child not in inside for name in _reads(child)}
            self._live_out[node] = tuple(name for name in self.assigned(node) if name in read)
        return self._live_out[node]

    def path(self, node: ast.expr) -> Path:
        """The path of a dotted name (see `weft.lang.frame.Read`); empty for any other expression."""
        if node not in self._paths:
            name, *attributes = dotted(node).split(".")
            self._paths[node] = (("name", name), *(("attribute", each) for each in attributes)) if name else ()
        return self._paths[node]


_SOURCES: WeakKeyDictionary[FunctionType, Source] = WeakKeyDictionary()


def source_of(function: FunctionType) -> Source:
    """The parsed source of a function, parsed once.

    Raises CompilationError: lang-no-source, lang-source-changed, lang-lambda-kernel.
    """
    found = _SOURCES.get(function)
    if found is None:
        _SOURCES[function] = found = _parse(function)
    return found


def names_of(function: FunctionType) -> frozenset[str]:
    """All names that a function's file defines anywhere: by imports, definitions, assignments and parameters.

    Also those under `TYPE_CHECKING`, which Python does not know. Empty without a file."""
    return _defined("".join(lines_of(function)))


@lru_cache(maxsize=16)
def _defined(text: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.alias():
                found.add(node.asname or node.name.partition(".")[0])
            case ast.ClassDef() | ast.FunctionDef():
                found.add(node.name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def parameters(node: ast.FunctionDef) -> Iterator[ast.arg]:
    """Every parameter of a definition, in the order of `co_varnames`."""
    arguments = node.args
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None)


def _instead_of(file: str) -> str:
    """The fix for a function whose source text Python does not keep."""
    if file in ("<stdin>", NO_FILE):
        return "put the kernel into a file and import it: Python keeps no text of what is typed at its prompt or given to -c"
    return "put the kernel into a file, or compile its text under a name of its own and enter it into linecache"


def _parse(function: FunctionType) -> Source:
    code = function.__code__
    name = function.__qualname__.rpartition("<locals>.")[2]
    if code.co_name == "<lambda>":
        raise fail(errors.LAMBDA)
    lines = lines_of(function)
    if not lines:
        raise fail(errors.NO_SOURCE, function=name, file=code.co_filename, instead=_instead_of(code.co_filename))
    node = _definition(lines, code)
    if isinstance(node, ast.AsyncFunctionDef):
        loc = Loc(code.co_filename, node.lineno, node.col_offset, function=name)
        raise fail(
            errors.UNSUPPORTED, loc=loc, what="async def", instead="write def, and no await or async in its body"
        )
    if node is None or [p.arg for p in parameters(node)] != list(_parameter_names(code)):
        raise fail(errors.SOURCE_CHANGED, file=code.co_filename, function=name, line=code.co_firstlineno)
    return Source(code.co_filename, name, node, frozenset((*code.co_varnames, *code.co_cellvars)))


def _parameter_names(code: CodeType) -> Sequence[str]:
    flags = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]


def _definition(lines: Sequence[str], code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition that starts at the code's first line; None when the text there is something else."""
    first = code.co_firstlineno - 1
    if first >= len(lines):
        return None
    indented = _indentation(lines[first]) > 0
    lead = "\n" * (first - 1) + "if 1:\n" if indented else "\n" * first
    for end in _ends(lines, first, max(_lines_of(code))):
        try:
            body = ast.parse(lead + "".join(lines[first:end])).body
        except SyntaxError:
            continue
        if indented and isinstance(body[0], ast.If):
            body = body[0].body
        found = body[0]
        is_function = isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef))
        return found if is_function and found.name == code.co_name else None
    return None


def _lines_of(code: CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for _, _, line in code.co_lines() if line is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)


def _ends(lines: Sequence[str], first: int, last: int) -> Iterator[int]:
    """Candidates for the function's end: each later line that is indented no more than its first.

    The first candidate is nearly always right. A bracket or string that continues at the margin makes a later one right.
    """
    margin = _indentation(lines[first])
    for number in range(last, len(lines)):
        text = lines[number].strip()
        if text and not text.startswith("#") and _indentation(lines[number]) <= margin:
            yield number
    yield len(lines)


def _indentation(line: str) -> int:
    """Width of a line's indentation. Python resets the count at a form feed."""
    lead = line[: len(line) - len(line.lstrip())]
    return len(lead) - (lead.rfind("\f") + 1)


def _stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        return
    if isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
        return
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
        yield node.name
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return  # A subscript assignment writes memory and binds no name.
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        yield from _root(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from _stores(child)


def _reads(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.AugAssign):
        yield from _root(node.target)


def _root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _jumps_out(node: ast.stmt) -> Iterator[ast.Return | ast.Break | ast.Continue]:
    """The jumps out of a statement: returns, and breaks and continues of loops around it."""
    if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
        yield node
    elif isinstance(node, ast.If):
        for child in (*node.body, *node.orelse):
            yield from _jumps_out(child)
    elif isinstance(node, (ast.For, ast.While)):
        yield from (jump for child in node.body for jump in _jumps_out(child) if isinstance(jump, ast.Return))


def ends(statements: list[ast.stmt]) -> bool:
    """True when every path through the statements ends in a jump."""
    return any(
        isinstance(node, (ast.Return, ast.Break, ast.Continue))
        or (isinstance(node, ast.If) and ends(node.body) and ends(node.orelse))
        for node in statements
    )


def dotted(node: ast.expr | None) -> str:
    """`a.b.c` for a dotted name; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Attribute):
        return ""
    owner = dotted(node.value)
    return f"{owner}.{node.attr}" if owner else ""
