"""A search over the parameters of the reductions, by which their defaults were chosen. Not part of `make bench`."""

from __future__ import annotations

from benchmarks import harness, reductions, twin
from benchmarks.report import Line

TITLE = "Reductions over their parameters"
NEEDS_GPU = True


def run(quick: bool) -> list[Line]:
    """Every point of ours beside torch, fastest first; `quick` takes three rounds."""
    clock = harness.CudaClock()
    sums, softmaxes = reductions.sweep_points()
    rounds = 3 if quick else 10
    ours = {name: {"weft": twin.load(name)} for name in ("row_sum", "softmax")}
    return [
        *reductions.row_sum(clock, rounds, sums, ours["row_sum"]),
        *reductions.softmax(clock, rounds, softmaxes, ours["softmax"]),
    ]
