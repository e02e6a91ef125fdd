"""Running a kernel before and after an edit: in two processes with a cache between them, or in one."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.edits.kinds import Edit

ROOT = Path(__file__).parents[2]


class Server:
    """A process of `tests.edits.server`. Two with different `seed`s order sets of strings differently."""

    def __init__(self, seed: int) -> None:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(seed)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.edits.server"],
            env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def compile(self, folder: Path, cache: Path | None, **environ: str) -> str:
        """What the folder's kernel is compiled to, in a new process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"folder": str(folder), "cache": None if cache is None else str(cache), "environ": environ}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert len(answer) == 64, answer
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def servers() -> Iterator[tuple[Server, Server]]:
    """Two servers that order sets differently."""
    both = Server(1), Server(2)
    try:
        yield both
    finally:
        for server in both:
            server.close()


def write(folder: Path, edit: Edit, way: str, *, edited: bool) -> None:
    """Put the script and its module, before or after the edit, into a folder."""
    (folder / f"{edit.module}.py").write_text(edit.module_text(edited=edited))
    (folder / "script.py").write_text(edit.script(way))


def is_stale(both: tuple[Server, Server], folder: Path, edit: Edit, way: str) -> bool:
    """True when the cache gives what the kernel was before the edit; it must give what compiling anew does."""
    before, after = both
    cache = folder / "cache"
    write(folder, edit, way, edited=False)
    old = before.compile(folder, cache)
    assert after.compile(folder, cache) == old == after.compile(folder, None)
    write(folder, edit, way, edited=True)
    new = before.compile(folder, None)
    assert new != old, "the edit changes nothing"
    found = after.compile(folder, cache)
    assert found in (old, new)
    return found == old


def stored(kernel: Any) -> int:
    """What the kernel stores, in the simulator."""
    out = np.zeros(1, np.int32)
    kernel[1](out)
    return int(out[0])


@contextmanager
def session(folder: Path, edit: Edit, way: str, name: str) -> Iterator[tuple[Any, Any]]:
    """The kernel and the module it reads, imported under names that no other session has."""
    module, script = f"c_{name}", f"s_{name}"
    (folder / f"{module}.py").write_text(edit.module_text(edited=False).replace("{module}", module))
    (folder / f"{script}.py").write_text(edit.script(way).replace(f"import {edit.module} as", f"import {module} as"))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(script).kernel, sys.modules[module]
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
        sys.modules.pop(script, None)


def misses(kernel: Any, act: Any) -> bool:
    """True when a launch after `act` stores what the kernel did before, though compiling anew says otherwise."""
    before = stored(kernel)
    act()
    found = stored(kernel)
    kernel.forget()
    expected = stored(kernel)
    assert expected != before, "the edit changes nothing"
    assert found in (before, expected)
    return found == before


def run_again(folder: Path, edit: Edit, way: str, name: str) -> bool:
    """True when a session that runs the edited module again launches the old kernel."""
    with session(folder, edit, way, name) as (kernel, module):
        text = edit.module_text(edited=True).replace("{module}", module.__name__)

        def act() -> None:
            # As a notebook does that runs a cell again: names that are gone from the text stay.
            if edit.text.startswith("{} = "):
                del vars(module)[edit.before]
            path = folder / f"{module.__name__}.py"
            path.write_text(text)
            exec(compile(text, str(path), "exec"), vars(module))  # noqa: S102 - a text of the table

        return misses(kernel, act)


def change(folder: Path, edit: Edit, way: str, name: str) -> bool:
    """True when a session that changes an object launches the old kernel."""
    with session(folder, edit, way, name) as (kernel, module):
        return misses(kernel, lambda: exec(edit.after, {"c": module}))  # noqa: S102 - a text of the table
