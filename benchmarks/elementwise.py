"""Elementwise addition of matrices of 4 GiB: loads, cp.async, TMA and warp specialization, by tile size and tile order."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.copies import SIDE, best, compilers, line, outcome
from benchmarks.harness import Jobs
from benchmarks.report import Goal, Line

TITLE = "Elementwise addition"
NEEDS_GPU = True
Point = tuple[str, str, dict[str, Any]]
"""The example, its function, and parameters."""

_SMALL = {"XBLOCK": 32, "YBLOCK": 64}
_LARGE = {"XBLOCK": 64, "YBLOCK": 128, "num_buffers": 3}
_SWIZZLED = {"swizzle": 128, "flat": False}
POINTS: dict[str, Point] = {
    # The simple form of each: bands of 32 rows in tiles of 32x64, one load or copy per element. With 128 registers a thread
    # four programs fit on each of 132 multiprocessors, so 1024 are nearly two waves; with seven, a tail of 100 would be left.
    "plain": ("add_async_copy", "run", {**_SMALL, "num_buffers": 0, "vec": 1, "maxnreg": 128}),
    "cp.async x1": ("add_async_copy", "run", {**_SMALL, "num_buffers": 1, "vec": 1}),
    "cp.async x2": ("add_async_copy", "run", {**_SMALL, "num_buffers": 2, "vec": 1}),
    "cp.async x3": ("add_async_copy", "run", {**_SMALL, "num_buffers": 3, "vec": 1}),
    "TMA 32x64x2": ("add_tma", "run", {**_SMALL, "num_buffers": 2}),
    "TMA 64x128x3": ("add_tma", "run", _LARGE),
    "warp-specialised 32x64x2": ("add_warp_specialized", "run", {**_SMALL, **_SWIZZLED, "num_buffers": 2}),
    "warp-specialised 64x128x3": (
        "add_warp_specialized", "run", {**_LARGE, **_SWIZZLED, "num_stores": 1, "programs": 132}
    ),
    # The same kernels in the form that suits DRAM: long rows, and programs that are neighbours in memory.
    "plain, vectors": ("add_async_copy", "run", {**_SMALL, "num_buffers": 0, "vec": 4}),
    "plain, long rows": ("add_async_copy", "run", {"XBLOCK": 1, "YBLOCK": 1024, "num_buffers": 0, "span": 1024}),
    "cp.async x3, vectors": ("add_async_copy", "run", {**_SMALL, "num_buffers": 3, "vec": 4}),
    "cp.async x2, long rows": ("add_async_copy", "run", {"XBLOCK": 2, "YBLOCK": 512, "num_buffers": 2, "span": 4096}),
    "TMA, dealt": ("add_tma", "run_dealt", {}),
    "warp-specialised, dealt": ("add_warp_specialized", "run", {}),
}  # fmt: skip


def run(quick: bool) -> list[Line]:
    """Every point against the same source under Gluon and torch, in one interleaved run; the best of each first."""
    found = race(harness.CudaClock(), 8 if quick else 30, POINTS)
    torch_speed = found.pop("torch")
    return [
        best("add 3 x 4 GiB, best of all", found, torch_speed, (Goal(0.95, "torch"),)),
        *(line(f"add 3 x 4 GiB, {case}", speed, (Goal(1.03, "gluon"),)) for case, speed in found.items()),
    ]


def race(
    clock: harness.Clock, rounds: int, points: dict[str, Point], *, twins: bool = True
) -> dict[str, dict[str, float]]:
    """TB/s by point and compiler, and torch's under "torch"; without `twins` only weft's."""
    import torch

    a, b = torch.randn((SIDE, SIDE), device="cuda"), torch.randn((SIDE, SIDE), device="cuda")
    c = torch.empty((SIDE, SIDE), device="cuda")
    jobs: Jobs = {"torch": {"torch": lambda: torch.add(a, b, out=c)}}
    for case, (example, function, point) in points.items():
        whose = compilers(example)
        who = whose if twins else {"weft": whose["weft"]}
        jobs[case] = {name: partial(getattr(module, function), a, b, c, **point) for name, module in who.items()}
    return harness.race(jobs, clock, rounds, nbytes=3 * a.numel() * 4, **outcome(c, a + b))


def sweep_points() -> dict[str, Point]:
    """The points of `benchmarks/run.py sweep`."""
    points: dict[str, Point] = {}

    def add(example: str, function: str, **point: Any) -> None:
        name = " ".join(f"{key}={value}" for key, value in point.items())
        points[f"{example} {function} {name}"] = (example, function, point)

    for YBLOCK, num_warps in itertools.product((512, 1024, 2048, 4096), (4, 8)):
        add("add_async_copy", "run", XBLOCK=1, YBLOCK=YBLOCK, num_buffers=0, span=YBLOCK, num_warps=num_warps)
    for XBLOCK, YBLOCK, buffers, spans in itertools.product((1, 2, 4), (512, 1024), (2, 3, 4), (4, 16)):
        add("add_async_copy", "run", XBLOCK=XBLOCK, YBLOCK=YBLOCK, num_buffers=buffers, span=spans * YBLOCK)
    orders = {"add_tma": "run_dealt", "add_warp_specialized": "run"}.items()
    shapes = itertools.product((8, 16, 32), (2, 3, 4), (132, 264, 396, 528))
    for (example, function), (XBLOCK, buffers, programs) in itertools.product(orders, shapes):
        # Programs that are not all resident would run one after the other, and would not sweep through memory together.
        if (2 * buffers + 2) * XBLOCK * 1024 * (programs // 132) <= 220 * 1024:
            add(example, function, XBLOCK=XBLOCK, num_buffers=buffers, programs=programs)
    return points
