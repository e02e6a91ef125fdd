"""A sweep over the parameters of reductions and additions, from which their defaults were chosen. Not part of `make bench`."""

from __future__ import annotations

from benchmarks import elementwise, harness, reductions, twin
from benchmarks.copies import line
from benchmarks.report import Line

TITLE = "Reductions and additions over their parameters"
NEEDS_GPU = True


def run(quick: bool) -> list[Line]:
    """Every point of weft against torch, fastest first; `quick` takes three rounds."""
    clock = harness.CudaClock()
    sums, softmaxes = reductions.sweep_points()
    rounds = 3 if quick else 10
    ours = {name: {"weft": twin.load(name)} for name in ("row_sum", "softmax")}
    return [
        *reductions.row_sum(clock, rounds, sums, ours["row_sum"]),
        *reductions.softmax(clock, rounds, softmaxes, ours["softmax"]),
        *additions(clock, rounds),
    ]


def additions(clock: harness.Clock, rounds: int) -> list[Line]:
    """Every point of `elementwise.sweep_points`, fastest first."""
    found = elementwise.race(clock, rounds, elementwise.sweep_points(), twins=False)
    torch_speed = found.pop("torch")
    order = sorted(found, key=lambda case: found[case].get("weft", 0.0), reverse=True)
    return [line(f"add, {case}", found[case] | torch_speed) for case in order]
