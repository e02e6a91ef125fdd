"""The checkout as the project tests see it: which files are ours, and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "weft"
FOLDERS = ("weft", "tests", "docs", "examples", "benchmarks", ".ci")


def python_files(*folders: str) -> list[Path]:
    """Every Python file below these folders of the checkout, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    """Every text that is part of the project: what lies in its folders and at its root."""
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(
        path
        for path in (*below, *ROOT.iterdir())
        if path.is_file() and "__pycache__" not in path.parts and is_text(path) and path.name != ".git"
    )


def is_text(path: Path) -> bool:
    return b"\0" not in path.read_bytes()[:4096]


def name(path: Path) -> str:
    """The path within the checkout, for messages and test ids."""
    return path.relative_to(ROOT).as_posix()


def module_of(path: Path) -> str:
    """`weft/ir/core.py` is `weft.ir.core`, `weft/ir/__init__.py` is `weft.ir`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything a file imports, at any depth; `from weft import ir` is `weft.ir`."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "weft":
            yield from ((node.lineno, f"weft.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")
