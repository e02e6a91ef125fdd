"""The matmul of `examples/matmul_schedules.py` under each schedule, on shapes that fill waves well or badly."""

from __future__ import annotations

from typing import Any

from benchmarks import harness, twin
from benchmarks.report import Line
from weft.kernels.schedulers import Schedule

TITLE = "Schedules of one persistent matmul, fp16"
NEEDS_GPU = True
TOLERANCE = 2e-3
WIDE, NARROW = 256, 128
"""Columns of a tile."""
CASES = {
    (8192, 8192, 4096, WIDE): ("static, by rows", "static, grouped", "static, serpentine", "ticket, grouped"),
    (1280, 3584, 4096, WIDE): ("static, grouped", "ticket, grouped", "stream-K"),
    (512, 512, 16_384, NARROW): ("static, grouped", "split-K of 4", "split-K of 8", "stream-K"),
}
"""M, N, K and columns of a tile, and the schedules that are tried: many tiles, 140 tiles on 132 multiprocessors, 16 tiles."""
MORE = {f"split-K of {n}": Schedule("split_k", "grouped", 16, splits=n) for n in (4, 8)}


def run(quick: bool) -> list[Line]:
    """A line for each schedule of a shape; all of a shape in one interleaved run."""
    import torch

    example = twin.load("matmul_schedules")
    schedules = {**example.SCHEDULES, **MORE}
    lines: list[Line] = []
    for (m, n, k, columns), names in CASES.items():
        a, b = (torch.randn(*shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n)))
        want = a.float() @ b.float()
        jobs: dict[str, tuple[Any, Any]] = {}
        for name in names:
            out = torch.empty(m, n, device="cuda", dtype=torch.float16)
            jobs[name] = (example.Scheduled(a, b, out, schedules[name], columns), out)
        own = torch.empty(m, n, device="cuda", dtype=torch.float16)
        jobs["torch"] = (lambda a=a, b=b, own=own: torch.mm(a, b, out=own), own)
        variants = [
            harness.Variant(
                name, call, lambda out=out: out.fill_(float("nan")),
                lambda out=out, want=want: harness.relative_error(out, want) < TOLERANCE,
            )
            for name, (call, out) in jobs.items()
        ]  # fmt: skip
        times = harness.measure(variants, harness.CudaClock(), 5 if quick else 20)
        rates = {name: 2 * m * n * k / ms / 1e9 for name, ms in times.items()}
        peers = {"torch": rates.pop("torch")} if "torch" in rates else {}
        lines += [Line(f"{m}x{n}x{k}, {name}", rates.get(name), "TFLOP/s", peers) for name in names]
    return lines
