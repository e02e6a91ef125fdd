"""Resolution of string annotations of fields, as under `from __future__ import annotations`.

Nothing is executed: only names, attributes and unions are resolved. Any other expression, and a name that is not defined (yet),
remains a string.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Optional, Union

from weft.language.marks import annotates_constexpr, constexpr

_UNKNOWN = object()


def meaning(annotation: Any, scope: Mapping[str, Any]) -> Any:
    """The type that an annotation names in a module's `scope`, or the annotation itself if it cannot be resolved.

    `constexpr[...]` resolves to `constexpr`: its parameter is documentation.

    >>> meaning("int | None", {"int": int}) == Union[int, None], meaning("nobody.knows", {})
    (True, 'nobody.knows')
    """
    if not isinstance(annotation, str):
        return constexpr if annotates_constexpr(annotation) else annotation
    tree = _parsed(annotation)
    found = _UNKNOWN if tree is None else _meaning(tree, scope)
    return annotation if found is _UNKNOWN else found


def missing(annotation: str, scope: Mapping[str, Any]) -> tuple[ModuleType, str] | None:
    """The module in `scope` and the name that it lacks, if an annotation is such a dotted name.

    >>> missing("ast.AST", {"ast": ast}), missing("nobody.knows", {})
    (None, None)
    >>> missing("ast.Ast", {"ast": ast})[1]
    'Ast'
    """
    tree = _parsed(annotation)
    if isinstance(tree, ast.Subscript):
        tree = tree.value
    if not isinstance(tree, ast.Attribute):
        return None
    owner = _meaning(tree.value, scope)
    return (owner, tree.attr) if isinstance(owner, ModuleType) and not hasattr(owner, tree.attr) else None


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _meaning(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return scope.get(name, _UNKNOWN)
        case ast.Attribute(value=owner, attr=name):
            return getattr(_meaning(owner, scope), name, _UNKNOWN)
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            inner = _parsed(text)
            return _UNKNOWN if inner is None else _meaning(inner, scope)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right], scope)
        case ast.Subscript(value=owner, slice=inside):
            kind = _meaning(owner, scope)
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if kind is Union or kind is Optional:
                return _union([*parts, *([ast.Constant(None)] if kind is Optional else [])], scope)
            return constexpr if annotates_constexpr(kind) else _UNKNOWN
        case _:
            return _UNKNOWN


def _union(nodes: list[ast.expr], scope: Mapping[str, Any]) -> Any:
    kinds = tuple(_meaning(node, scope) for node in nodes)
    return _UNKNOWN if _UNKNOWN in kinds else Union[kinds]  # noqa: UP007 of any number of them
