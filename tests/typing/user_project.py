"""Type checkers as a user has them: README, documentation and examples in a project of their own, checked by Pyright.

    python tests/typing/user_project.py [basic] [strict]

The project lies outside of the checkout, says nothing but the mode, and finds weft where installed packages are. The snippets
of a page are one program, as in tests/docs; each stands at its own lines, so that a message names the line of the page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
SURFACE = Path(__file__).with_name("surface.py")
MODES = ("basic", "strict")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONAL = ("torch", "torch/nn", "torch/nn/functional", "matplotlib")
"""Packages that examples import where they are installed. Here they have stubs in which everything is Any, those of
`typings/` or a short one, so that the result is the same with and without them."""
STUB = "# pyright: reportIncompleteStub=false\nfrom typing import Any\ndef __getattr__(name: str) -> Any: ...\n"


def main(modes: Iterable[str]) -> int:
    """Print what Pyright reports in each mode; 1 if it reports anything."""
    with TemporaryDirectory(prefix="weft-user-") as folder:
        place = Path(folder)
        packages = installed(place / "packages")
        projects = [project(place / mode, mode) for mode in modes]
        with ThreadPoolExecutor(len(projects)) as workers:
            found = list(workers.map(partial(check, packages), projects))
    for made, lines in zip(projects, found, strict=True):
        print(*lines, f"{made.name}: {len(lines)} errors", sep="\n")
    return int(any(found))


def installed(packages: Path) -> Path:
    """A folder of packages that holds weft, as its wheel would put it there."""
    shutil.copytree(ROOT / "weft", packages / "weft", ignore=shutil.ignore_patterns("__pycache__"))
    for name in OPTIONAL:
        (packages / name).mkdir()
        (packages / name / "__init__.py").touch()  # a stub without a module is reported
    return packages


def project(folder: Path, mode: str) -> Path:
    """A user's project: pages and examples, and a configuration that says the mode."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SURFACE, folder)
    for name in OPTIONAL:
        stub = folder / "typings" / name / "__init__.pyi"
        stub.parent.mkdir(parents=True, exist_ok=True)
        own = ROOT / "typings" / name / "__init__.pyi"
        stub.write_text(own.read_text(encoding="utf-8") if own.exists() else STUB)
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        text = program(page.read_text(encoding="utf-8"))
        if text:
            path = folder / page.relative_to(ROOT).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    # Gluon takes the kernels of the examples too, and evaluates annotations in its own language, which has no unions.
    # So these parameters have none, which only the strict mode minds.
    ignored = {"ignore": ["examples"]} if mode == "strict" else {}
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode, **ignored}))
    return folder


def program(page: str) -> str:
    """The snippets of a page, each at its lines; the lines between are empty. Empty for a page without snippets.

    >>> program("Text.\\n```python\\nx = 1\\n```\\n")
    '\\n\\nx = 1\\n'
    """
    parts: list[str] = []
    end = 0
    for snippet in SNIPPET.finditer(page):
        start = snippet.start(1)
        parts += ["\n" * page.count("\n", end, start), snippet[1]]
        end = snippet.end(1)
    return "".join(parts)


def check(packages: Path, folder: Path) -> list[str]:
    """What Pyright reports of a project: place, message and rule."""
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        "--project",
        str(folder),
    ]
    environment = os.environ | {"PYTHONPATH": str(packages)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    if not report["summary"]["filesAnalyzed"]:
        return [f"Pyright has analysed no file of {folder.name}"]
    return [described(found, folder.resolve()) for found in report["generalDiagnostics"]]


def described(found: dict[str, Any], folder: Path) -> str:
    """One report: the place in its page or file, the first line of the message, and the rule."""
    path = Path(found["file"]).relative_to(folder)
    page = path.with_suffix(".md")
    shown = page if (ROOT / page).is_file() else path
    line = found["range"]["start"]["line"] + 1
    return f"{shown}:{line}: {found['message'].splitlines()[0]} [{found.get('rule', 'syntax')}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or MODES))
