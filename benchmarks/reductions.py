"""Reductions: row sums and row softmax of 4 GiB, and the points of a sweep over their parameters."""

from __future__ import annotations

import itertools
from functools import partial
from types import ModuleType
from typing import Any

from benchmarks import harness
from benchmarks.copies import SIDE, compilers, line
from benchmarks.harness import Jobs
from benchmarks.report import Goal, Line

TITLE = "Reductions"
NEEDS_GPU = True
TOLERANCE = 1e-5
SUM_POINT = (4, 1, 4096, 4)
"""Elements per access, rows and columns of a tile, warps."""


def run(quick: bool) -> list[Line]:
    """Both reductions against torch and Gluon, each in one interleaved run."""
    clock = harness.CudaClock()
    rounds = 8 if quick else 30
    return [*row_sum(clock, rounds, [SUM_POINT]), *softmax(clock, rounds, {})]


def row_sum(
    clock: harness.Clock,
    rounds: int,
    points: list[tuple[int, int, int, int]],
    modules: dict[str, ModuleType] | None = None,
) -> list[Line]:
    """Sums of 32768 rows of 32768 elements at each point, and with one row per thread."""
    import torch

    src = torch.randn((SIDE, SIDE), device="cuda")
    dst = torch.empty(SIDE, device="cuda")
    want = src.sum(dim=1, dtype=torch.float64)
    modules = modules or compilers("row_sum")
    jobs: Jobs = {"torch": {"torch": lambda: torch.sum(src, dim=1, out=dst)}}
    for vec, rows, cols, warps in points:
        jobs[f"lanes across, vec={vec} tile={rows}x{cols} warps={warps}"] = {
            who: partial(module.run, src, dst, module.lanes_across(warps, vec), rows, cols, warps)
            for who, module in modules.items()
        }
    jobs["one row per thread, tile=128x32 warps=4"] = {
        who: partial(module.run, src, dst, module.row_per_thread(), 128, 32) for who, module in modules.items()
    }
    found = harness.race(
        jobs, clock, rounds, nbytes=src.numel() * 4, poison=lambda: dst.fill_(float("nan")), correct=_close(dst, want)
    )
    return _lines("row sum", found, (Goal(0.97, "torch"),))


def softmax(
    clock: harness.Clock,
    rounds: int,
    points: dict[str, list[dict[str, int]]],
    modules: dict[str, ModuleType] | None = None,
) -> list[Line]:
    """Softmax of 32768 rows of 32768 elements by each kernel of the example, at its defaults or at the points given."""
    import torch

    src = torch.randn((SIDE, SIDE), device="cuda")
    dst = torch.empty_like(src)
    want = torch.softmax(src.double(), dim=1)
    modules = modules or compilers("softmax")
    jobs: Jobs = {"torch": {"torch": lambda: torch.softmax(src, dim=1, out=dst)}}
    for kernel in modules["weft"].RUNS:
        for point in points.get(kernel, [{}]):
            name = " ".join([kernel, *(f"{key}={value}" for key, value in point.items())])
            jobs[name] = {who: partial(m.RUNS[kernel], src, dst, **point) for who, m in modules.items()}
    found = harness.race(
        jobs,
        clock,
        rounds,
        nbytes=2 * src.numel() * 4,
        poison=lambda: dst.fill_(float("nan")),
        correct=_close(dst, want),
    )
    return _lines("softmax", found, (Goal(1.4, "torch"),))


def sweep_points() -> tuple[list[tuple[int, int, int, int]], dict[str, list[dict[str, int]]]]:
    """The points of `benchmarks/run.py sweep`: of the row sum and of each softmax kernel."""
    sums = [
        (vec, rows, cols, warps)
        for vec, rows, cols, warps in itertools.product((4, 8), (1, 2, 4), (1024, 2048, 4096, 8192), (4, 8))
        if 4 <= rows * cols // (32 * warps) <= 64 and cols >= 32 * warps * vec
    ]
    registers = [{"num_warps": warps, "VEC": vec} for warps, vec in itertools.product((8, 16, 32), (4, 8))]
    persistent = [{**point, "programs": programs} for point in registers for programs in (132, 264)]
    online = [
        {"num_warps": warps, "BLOCK": block} for warps, block in itertools.product((4, 8, 16), (4096, 8192, 16384))
    ]
    return sums, {"plain": registers, "threads": registers, "persistent": persistent, "online": online}


def _lines(what: str, found: dict[str, dict[str, float]], goals: tuple[Goal, ...]) -> list[Line]:
    """The fastest case first, to which the goal applies."""
    torch_speed = found.pop("torch")
    order = sorted(found, key=lambda case: found[case].get("weft", 0.0), reverse=True)
    return [line(f"{what}, {case}", found[case] | torch_speed, goals if case == order[0] else ()) for case in order]


def _close(dst: Any, want: Any) -> Any:
    return lambda: harness.relative_error(dst, want) <= TOLERANCE
