"""A chain of small launches, with and without programmatic dependent launch.

200 pairs of launches, as in the decoding of a model: one program normalises a vector, then 128 programs multiply it by a matrix
that fits in L2. With `launch_pdl=True` both load their constants (the gain, their rows of the matrix) before they wait for the
launch before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import weft
from benchmarks import harness
from benchmarks.report import Goal, Line
from weft import language as gl
from weft.language.extra.cuda import gdc_launch_dependents, gdc_wait

TITLE = "Programmatic dependent launch: 200 pairs of small launches, time per pair"
NEEDS_GPU = True
PAIRS = 200
N = 1024
ROWS = 8
LINE = gl.BlockedLayout([1], [32], [4], [0])
TILE = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])


@weft.jit
def normalise(x, gain, y, N: gl.constexpr, layout: gl.constexpr, EARLY: gl.constexpr):
    """y = gain * x / |x|."""
    if EARLY:
        gdc_launch_dependents()
    at = gl.arange(0, N, layout)
    by = gl.load(gain + at)
    gdc_wait()
    if not EARLY:
        gdc_launch_dependents()
    row = gl.load(x + at)
    gl.store(y + at, by * row * gl.rsqrt(gl.sum(row * row, 0)))


@weft.jit
def multiply(w, y, x, N: gl.constexpr, ROWS: gl.constexpr, layout: gl.constexpr, EARLY: gl.constexpr):
    """x = w @ y."""
    if EARLY:
        gdc_launch_dependents()
    i = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    j = gl.arange(0, N, gl.SliceLayout(0, layout))
    rows = gl.load(w + i[:, None] * N + j[None, :])
    gdc_wait()
    if not EARLY:
        gdc_launch_dependents()
    gl.store(x + i, gl.sum(rows * gl.load(y + j)[None, :], 1))


def run(quick: bool) -> list[Line]:
    """Replays of a graph, which leave out the host, and launches on a stream, which the host limits."""
    import torch

    w, gain, start = (torch.randn(shape, device="cuda") for shape in ((N, N), (N,), (N,)))
    x, y = torch.empty_like(start), torch.empty_like(start)

    def chain(early: bool, pdl: bool) -> None:
        for _ in range(PAIRS):
            normalise[1](x, gain, y, N, LINE, early, launch_pdl=pdl)
            multiply[N // ROWS](w, y, x, N, ROWS, TILE, early, launch_pdl=pdl)

    def outcome(early: bool, pdl: bool) -> Any:
        x.copy_(start)
        chain(early, pdl)
        return x.clone()

    wanted = outcome(False, False)
    jobs = {
        "stream order": (False, False),
        "dependent, released after the wait": (False, True),
        "dependent": (True, True),
    }
    variants = [
        harness.Variant(name, partial(chain, *way), lambda: x.copy_(start), lambda: torch.equal(x, wanted))
        for name, way in jobs.items()
    ]  # fmt: skip
    lines: list[Line] = []
    for how, clock in (("graph", harness.GraphClock(1)), ("stream", harness.CudaClock())):
        found = {name: 1e3 * ms / PAIRS for name, ms in harness.measure(variants, clock, 5 if quick else 30).items()}
        plain = {"stream order": found["stream order"]} if "stream order" in found else {}
        for name in jobs:
            goals = (Goal(0.8, "stream order", ceiling=True),) if (how, name) == ("graph", "dependent") else ()
            lines.append(Line(f"{how}, {name}", found.get(name), "us", plain if name in list(jobs)[1:] else {}, goals))
    return lines
