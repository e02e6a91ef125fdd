"""Every benchmark by one command, with its table, its goals and a record of where and when.

    python benchmarks/run.py [copies|elementwise|reductions|launch|compile|front|sim|sweep ...] [--quick] [--out FOLDER]

Without names it runs all but the sweep. What needs a GPU is left out, and says so, where there is none.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = ("copies", "elementwise", "reductions", "launch", "compile", "front", "sim")
EXTRA = ("sweep",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run benchmarks by name; returns the exit status."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import report

    given = _arguments(argv)
    facts = report.about()
    folder = given.out or ROOT / "benchmarks" / "results" / re.sub(r"\W+", "-", facts["device"].lower())
    for name in given.names or COMMANDS:
        module = import_module(f"benchmarks.{name}")
        if module.NEEDS_GPU and "driver" not in facts:
            report.warn(f"{name}: left out, it needs a GPU and PyTorch with CUDA")
            continue
        lines = module.run(given.quick)
        report.show(module.TITLE, lines)
        report.save(folder, name, module.TITLE, lines, facts)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*COMMANDS, *EXTRA)))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller tables")
    parser.add_argument("--out", type=Path, help="where results go (default: benchmarks/results/<device>)")
    given = parser.parse_args(argv)
    unknown = set(given.names) - {*COMMANDS, *EXTRA}
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join((*COMMANDS, *EXTRA))}")
    return given


if __name__ == "__main__":
    sys.exit(main())
