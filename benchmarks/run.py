"""Runs the benchmarks: each prints its table with goals, and records it with machine, date and versions.

    python benchmarks/run.py [NAME[.PART] ...] [--quick] [--out FOLDER]

Without names it runs all of COMMANDS. A part of a benchmark is selected as `matmul.ladder`. Without a GPU, parts that need one
are left out, with a remark. Each result is recorded when it is complete; a benchmark that fails does not stop the others.
A benchmark may set the folder of its results (FOLDER), the text below the tables of its parts (FOOTERS), and that the exit
status is 1 if it misses a goal (STRICT).
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "copies", "bases", "elementwise", "reductions", "clusters", "rows", "scan", "topk", "matmul", "tiles", "skinny",
    "batched", "epilogues", "schedules", "overlap", "attention", "decode", "threads", "launch", "operators", "dependent",
    "policies", "ragged", "compile", "front", "sim", "blackwell",
)  # fmt: skip
EXTRA = ("sweep", "shapes")
NO_GPU = "left out, it needs a GPU and PyTorch with CUDA"


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks by name; returns the exit status."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import report

    given = _arguments(argv)
    facts = report.about()
    device = report.folder_of(facts["device"])
    status = 0
    for name in given.names or COMMANDS:
        module = import_module(f"benchmarks.{name.partition('.')[0]}")
        folder = given.out or ROOT / "benchmarks" / "results" / getattr(module, "FOLDER", device)
        if module.NEEDS_GPU is True and "driver" not in facts:
            report.warn(f"{name}: {NO_GPU}")
            continue
        for label, title, function in parts(module, name):
            if "driver" not in facts and needs_gpu(module, label):
                report.warn(f"{label}: {NO_GPU}")
                continue
            try:
                lines = function(given.quick)
            except Exception:  # noqa: BLE001 - whatever one of them does wrong, the others are still worth running
                report.warn(f"{label}: failed\n{traceback.format_exc()}")
                status = 1
                continue
            footer = getattr(module, "FOOTERS", {}).get(label.partition("-")[2], ())
            report.show(title, lines, footer)
            report.save(folder, label, title, lines, facts, footer)
            if getattr(module, "STRICT", False) and any(line.verdict == "FAIL" for line in lines):
                report.warn(f"{label}: a goal is missed")
                status = 1
    return status


def parts(module: Any, name: str) -> Iterator[tuple[str, str, Callable[[bool], Any]]]:
    """File name, title and function of a benchmark, or of one part of it, `benchmark.part`."""
    first, _, wanted = name.partition(".")
    if not hasattr(module, "PARTS"):
        yield first, module.TITLE, module.run
        return
    for part, (title, function) in module.PARTS.items():
        if wanted in ("", part):
            yield f"{first}-{part}", title, function


def needs_gpu(module: Any, label: str) -> bool:
    """Whether a benchmark, or its part with this label, needs a GPU: `NEEDS_GPU` is one bool, or the names of such parts."""
    needs: bool | frozenset[str] = module.NEEDS_GPU
    return needs if isinstance(needs, bool) else label.partition("-")[2] in needs


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME[.PART]", help=", ".join((*COMMANDS, *EXTRA)))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller tables")
    parser.add_argument("--out", type=Path, help="where results go (default: benchmarks/results/<device>)")
    given = parser.parse_args(argv)
    unknown = [name for name in given.names if not _known(name)]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join((*COMMANDS, *EXTRA))}")
    return given


def _known(name: str) -> bool:
    first, dot, part = name.partition(".")
    if first not in (*COMMANDS, *EXTRA):
        return False
    return not dot or part in getattr(import_module(f"benchmarks.{first}"), "PARTS", ())


if __name__ == "__main__":
    sys.exit(main())
