"""No two modules need one another: neither to be imported nor to be type-checked.

A class whose methods stand for functions over it finds these through `weft.loading.Later`, when one is called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.project import tree

MODULES = {tree.module_of(path): path for path in tree.python_files("weft")}


def statements(body: list[ast.stmt], typing: bool) -> Iterator[ast.stmt]:
    """The imports that run with the module; with `typing` those that a type checker reads as well."""
    for node in body:
        if isinstance(node, ast.If):
            if typing or "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from statements(node.body, typing)
            yield from statements(node.orelse, typing)
        elif isinstance(node, (ast.Try, ast.With)):
            yield from statements(node.body, typing)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node


def imported(module: str, typing: bool) -> set[str]:
    """Modules of weft that a module imports, without the packages that they lie in."""
    found: set[str] = set()
    for node in statements(ast.parse(MODULES[module].read_text(encoding="utf-8")).body, typing):
        for alias in node.names:
            names = [alias.name] if isinstance(node, ast.Import) else [f"{node.module}.{alias.name}", str(node.module)]
            found.update([name for name in names if name in MODULES][:1])
    return found - {module}


def circles(typing: bool) -> list[set[str]]:
    """Sets of modules of which each reaches every other one."""
    direct = {module: imported(module, typing) for module in MODULES}
    reached: dict[str, set[str]] = {}
    for module in MODULES:
        seen, todo = set[str](), [module]
        while todo:
            fresh = direct[todo.pop()] - seen
            seen |= fresh
            todo += fresh
        reached[module] = seen
    found = [{other for other in reached[module] if module in reached[other]} for module in MODULES]
    return [circle for number, circle in enumerate(found) if circle and circle not in found[:number]]


def test_no_circle_of_imports():
    assert [sorted(circle) for circle in circles(typing=False)] == []


def test_no_circle_of_types():
    assert [sorted(circle) for circle in circles(typing=True)] == []
