"""Constructs of Python that kernels do not support: the name of each, and what to write instead."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from weft.errors import fail
from weft.errors import source as errors
from weft.lang.frame import After, Frame, expression, statement

_STATEMENTS: dict[str, tuple[str, str]] = {
    "FunctionDef": ("a nested def", "define it outside of the kernel, with @weft.jit"),
    "AsyncFunctionDef": ("async", "write an ordinary function"),
    "ClassDef": ("a class definition", "define it outside of the kernel, with @weft.aggregate"),
    "Delete": ("del", "leave the name alone; values end when they are not used any more"),
    "AsyncFor": ("async", "write an ordinary loop"),
    "With": ("with", "call the functions one after the other"),
    "AsyncWith": ("async", "call the functions one after the other"),
    "Match": ("match", "write if, elif and else"),
    "Raise": ("raise", "write gl.static_assert for constants, or gl.device_assert at run time"),
    "Try": ("try", "check the condition first; nothing can be caught on a GPU"),
    "TryStar": ("try", "check the condition first; nothing can be caught on a GPU"),
    "Import": ("import", "import at the top of the file"),
    "ImportFrom": ("import", "import at the top of the file"),
    "Global": ("global", "pass the value as a parameter and return the new one"),
    "Nonlocal": ("nonlocal", "pass the value as a parameter and return the new one"),
    "TypeAlias": ("a type alias", "define it outside of the kernel"),
}
_EXPRESSIONS: dict[str, tuple[str, str]] = {
    "NamedExpr": (":=", "assign in a statement of its own"),
    "Lambda": ("lambda", "write a function outside of the kernel, with @weft.jit and def"),
    "Dict": ("a dictionary", "use separate variables, a tuple, or a dictionary defined outside of the kernel"),
    "Set": ("a set", "use a tuple"),
    "SetComp": ("a set comprehension", "use a list comprehension"),
    "DictComp": ("a dictionary comprehension", "use separate variables or a list comprehension"),
    "Await": ("await", "call the function"),
    "Yield": ("yield", "return a tuple, or store to memory"),
    "YieldFrom": ("yield", "return a tuple, or store to memory"),
    "Starred": ("a star here", "unpack into names first"),
    "TemplateStr": ("a template string", "write an f-string"),
}


def refuse(frame: Frame, node: ast.stmt | ast.expr, what: str, instead: str) -> NoReturn:
    """Raise CompilationError (lang-unsupported) at a construct's location."""
    raise fail(errors.UNSUPPORTED, loc=frame.at(node), what=what, instead=instead)


def _refuse_statement(frame: Frame, node: Any, after: After) -> NoReturn:
    refuse(frame, node, *_STATEMENTS[type(node).__name__])


def _refuse_expression(frame: Frame, node: Any) -> NoReturn:
    refuse(frame, node, *_EXPRESSIONS[type(node).__name__])


# Some of these node types do not exist in the oldest Python version that weft supports.
for _name in _STATEMENTS:
    if hasattr(ast, _name):
        statement(getattr(ast, _name))(_refuse_statement)
for _name in _EXPRESSIONS:
    if hasattr(ast, _name):
        expression(getattr(ast, _name))(_refuse_expression)
