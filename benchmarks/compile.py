"""First calls with an empty cache and from the disk cache, each in a new process."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report, twin
from benchmarks.report import Goal, Line

TITLE = "First calls: compilation and loading"
NEEDS_GPU = True
CHILD = Path(__file__).with_name("compile_child.py")
Run = dict[str, Any]


def run(quick: bool) -> list[Line]:
    """Median of several processes of each compiler, interleaved, after one that writes Python's byte code to disk.

    An installed package has its byte code on disk too."""
    compilers = ("weft", "gluon") if twin.has_gluon() else ("weft",)
    cold: dict[str, list[Run]] = {who: [] for who in compilers}
    warm: dict[str, list[Run]] = {who: [] for who in compilers}
    for turn in range(3 if quick else 6):
        for who in compilers:
            folder = tempfile.mkdtemp(prefix=f"{who}-cache-")
            try:
                runs = child(who, folder), child(who, folder)
            finally:
                shutil.rmtree(folder)
            if turn:
                cold[who].append(runs[0])
                warm[who].append(runs[1])
    return lines(cold, warm)


def child(who: str, folder: str) -> Run:
    """The figures of one process with its caches in `folder`; see compile_child.py."""
    environment = {**os.environ, "PYTHONPATH": str(twin.ROOT), "TRITON_CACHE_DIR": str(Path(folder, "triton"))}
    environment["WEFT_CACHE_DIR"] = str(Path(folder, "weft"))
    # The driver's own cache of compiled PTX would serve a second process.
    environment["CUDA_CACHE_DISABLE"] = "1"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, str(CHILD), who], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        report.warn(done.stderr)
        raise RuntimeError(f"the process that compiles with {who} failed with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def lines(cold: dict[str, list[Run]], warm: dict[str, list[Run]]) -> list[Line]:
    """One line for each kind of first call, with its goal and where the time goes."""
    rows = (
        ("first kernel of a process, nothing cached", cold, "first", 350.0),
        ("later kernels, nothing cached", cold, "later", 150.0),
        ("first kernel of a process, from disk", warm, "first", None),
        ("later kernels, from disk", warm, "later", 2.0),
        ("persistent matrix product, nothing cached", cold, "product", 400.0),
        ("persistent matrix product, from disk", warm, "product", 4.0),
    )
    found: list[Line] = []
    for what, runs, key, bound in rows:
        value = {who: _median(of, key) for who, of in runs.items()}
        goals = () if bound is None else (Goal(bound, ceiling=True),)
        ours = value.pop("weft")
        found.append(Line(what, ours, "ms", value, goals, _split(runs["weft"], key)))
    return [*found, _besides_nvrtc(cold["weft"])]


def _besides_nvrtc(runs: list[Run]) -> Line:
    calls = [call for run in runs for call in run["product"]]
    rest = statistics.median(call["ms"] - call["parts"].get("NVRTC", 0.0) for call in calls)
    return Line("persistent matrix product, nothing cached, besides NVRTC", rest, "ms", {}, (Goal(60.0, ceiling=True),))


def _median(runs: list[Run], key: str) -> float:
    return statistics.median(call["ms"] for run in runs for call in run[key])


def _split(runs: list[Run], key: str) -> str:
    calls = [call for run in runs for call in run[key]]
    names = dict.fromkeys(name for call in calls for name in call["parts"])
    medians = {name: statistics.median(call["parts"].get(name, 0.0) for call in calls) for name in names}
    return ", ".join(f"{name} {value:.1f}" for name, value in medians.items())
