"""Products of few rows (M = 1 to 64) with the weights of a linear layer: time is that of reading the weights once.

Each line is the rate of all bytes of operands and output, beside cuBLAS and beside the rate at which PyTorch copies a gigabyte
(read and written) in the same run. Operands rotate as in `benchmarks/shapes.py`, so that no weights are left in the cache.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks import shapes
from benchmarks.matmul import CUBLAS
from benchmarks.report import Goal, Line

TITLE = "Products of few rows, float16, weights contiguous along K"
NEEDS_GPU = True
ROWS = (1, 8, 16, 32, 64)
WEIGHTS = ((4096, 8192), (8192, 8192), (28672, 4096), (8192, 28672))
"""N and K: 67, 134, 235 and 470 MB."""
LARGE, SMALL = 180e6, 60e6
"""Bytes of weights above which the goals are these shares of the copy's rate."""
GOALS = {LARGE: 0.95, SMALL: 0.88}
COPIED_BYTES = 1 << 30
CALLS = 16
"""Calls of a graph, whose own launch takes as long as a tenth of reading the smallest of these weights."""
BLOCK_MS = 5.0


def run(quick: bool) -> list[Line]:
    """All numbers of rows with all weights."""
    rows = ROWS[::4] if quick else ROWS
    cases = [shapes.Shape(m, n, k, b_turned=True) for n, k in WEIGHTS for m in rows]
    copied = copy_rate(4 if quick else 12)
    rounds = 3 if quick else shapes.ROUNDS
    return [line_of(shapes.measure(shape, 0, rounds, BLOCK_MS, CALLS), copied) for shape in cases]


def copy_rate(rounds: int) -> float:
    """TB/s at which PyTorch copies a gigabyte, read and written."""
    import torch

    source = torch.empty(COPIED_BYTES, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    times: list[float] = []
    for _ in range(rounds + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)))
    return 2 * COPIED_BYTES / median(times[2:]) / 1e9


def line_of(record: shapes.Record, copied: float) -> Line:
    """The line of a product."""
    shape, times = record.shape, record.milliseconds
    rates: dict[str, Any] = {who: shape.nbytes / ms / 1e9 for who, ms in times.items()}
    weights = shape.N * shape.K * shape.itemsize
    bound = next((share for least, share in GOALS.items() if weights >= least), None)
    goals = () if bound is None else (Goal(bound, "copy"),)
    peers = {CUBLAS: rates[CUBLAS]} if CUBLAS in rates else {}
    return Line(str(shape), rates.get("weft"), "TB/s", {**peers, "copy": copied}, goals, record.chosen)
