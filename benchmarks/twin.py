"""The same source under Gluon: a module with its import lines exchanged, loaded from its own file."""

from __future__ import annotations

import atexit
import importlib.util
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SWAPS = {
    "import weft": "from benchmarks import gluon as weft",
    "from weft import language as gl": "from triton.experimental.gluon import language as gl",
}
"""Import lines that every module with a twin has."""
PREFIXES = {
    "from weft.language.nvidia.": "from triton.experimental.gluon.language.nvidia.",
    "from weft.nvidia.": "from triton.experimental.gluon.nvidia.",
}
"""Prefixes of further import lines: the names of an architecture are the same in both."""
SIBLING = re.compile(r"from (\w+) import ")
"""An import from another example; if that one has a twin, the twin imports from the twin."""


def gluon_text(text: str) -> str:
    """A module's source for Gluon: only its imports differ. Raises ValueError unless each of SWAPS occurs once."""
    lines = text.splitlines()
    for old in SWAPS:
        if lines.count(old) != 1:
            raise ValueError(f"the text has {lines.count(old)} lines {old!r}; a twin needs exactly one")
    return "".join(f"{gluon_line(line)}\n" for line in lines)


def gluon_line(line: str) -> str:
    """The line itself, or its replacement under Gluon."""
    for old, new in PREFIXES.items():
        if line.startswith(old):
            return new + line.removeprefix(old)
    if sibling := _sibling(line):
        return line.replace(sibling, f"{sibling}_gluon", 1)
    return SWAPS.get(line, line)


@cache
def load(name: str) -> ModuleType:
    """The example or benchmark module `name` itself."""
    return _module(name, _path(name))


@cache
def load_gluon(name: str) -> ModuleType:
    """The twin of the module `name`, and of the modules that it imports, as files, from which compilers read kernels."""
    text = _path(name).read_text(encoding="utf-8")
    for sibling in filter(None, map(_sibling, text.splitlines())):
        load_gluon(sibling)
    folder = Path(tempfile.mkdtemp(prefix="gluon-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{name}_gluon.py"
    path.write_text(gluon_text(text), encoding="utf-8")
    return _module(path.stem, path)


def has_gluon() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def _sibling(line: str) -> str:
    """The example with a twin that a line imports from; empty if it is no such line."""
    found = SIBLING.match(line)
    path = EXAMPLES / f"{found[1]}.py" if found else None
    lines = path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []
    return found[1] if found and all(line in lines for line in SWAPS) else ""


def _path(name: str) -> Path:
    return next(path for folder in (EXAMPLES, ROOT / "benchmarks") if (path := folder / f"{name}.py").exists())


def _module(name: str, path: Path) -> ModuleType:
    # The examples import their workbench as scripts, from their own folder.
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
