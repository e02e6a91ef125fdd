"""The simulator on the shapes that the layouts tutorial tests. Needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import twin
from benchmarks.report import Goal, Line

TITLE = "Simulator"
NEEDS_GPU = False


def run(quick: bool) -> list[Line]:
    """Seconds of the first launch of each kernel, compilation to tile IR included."""
    two, opposite = twin.load("copy_2d"), twin.load("copy_opposite")
    lines: list[Line] = []
    for rows, cols in ((1000, 200), (1000, 2000)):
        for turned in (False, True):
            src, dst = matrices(rows, cols, turned)
            what = f"2D copy {'x'.join(map(str, src.shape))}{' transposed' if turned else ''}, tiles of 128x256"
            goal = (Goal(2.0, ceiling=True),)
            lines.append(timed(what, lambda s=src, d=dst: two.run(s, d, two.along_rows(), 128, 256), dst, src, goal))
    src, _ = matrices(300, 400, False)
    _, dst = matrices(300, 400, True)
    dst = np.full((400, 300), np.nan, np.float32).T
    layouts = opposite.layout_for(src), opposite.layout_for(dst)
    lines.append(timed("opposite copy 300x400, tiles of 128x128", lambda: opposite.run(src, dst, *layouts), dst, src))
    return lines


def matrices(rows: int, cols: int, turned: bool) -> tuple[Any, Any]:
    """A random matrix and a poisoned one, or the transposes of such."""
    src = np.random.default_rng(0).standard_normal((rows, cols), dtype=np.float32)
    dst = np.full_like(src, np.nan)
    return (src.T, dst.T) if turned else (src, dst)


def timed(what: str, launch: Callable[[], Any], dst: Any, want: Any, goals: tuple[Goal, ...] = ()) -> Line:
    """Seconds of one launch, whose result is compared."""
    start = perf_counter()
    compiled = launch()
    elapsed = perf_counter() - start
    np.testing.assert_array_equal(dst, want)
    return Line(what, elapsed, "s", {}, goals, f"{compiled.report.programs} programs")
