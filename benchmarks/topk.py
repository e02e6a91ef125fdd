"""The top k of rows, beside `torch.topk`; the figure is the speed at which rows are read."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import topk

TITLE = "Top k of rows"
NEEDS_GPU = True
CASES = (
    (8192, 32_768, "float32", 8), (8192, 32_768, "float32", 1), (8192, 32_768, "float32", 64), (8192, 32_768, "float32", 128),
    (8192, 32_768, "bfloat16", 8), (8192, 32_767, "float32", 8), (1024, 50_257, "float16", 50), (64, 131_072, "float32", 8),
    (65_536, 1024, "float32", 8),
)  # fmt: skip
"""Rows, their length and type, and k; the first is the one that the goal is about."""


def run(quick: bool) -> list[Line]:
    """A line for each case; normally distributed elements."""
    import torch

    lines: list[Line] = []
    for rows, columns, dtype, k in CASES[:3] if quick else CASES:
        x = torch.randn(rows, columns, device="cuda").to(getattr(torch, dtype))
        want = torch.topk(x, k).values
        found: dict[str, Any] = {}
        variants = [
            _variant(name, function, x, k, want, found) for name, function in (("weft", topk), ("torch", torch.topk))
        ]
        times = harness.measure(variants, harness.CudaClock(), 5 if quick else 15)
        speeds = {name: harness.terabytes_per_second(x.nbytes, ms) for name, ms in times.items()}
        goals = (Goal(5.0, "torch"), Goal(3.8)) if not lines else ()
        lines.append(Line(f"{rows} x {columns} {dtype}, k = {k}", speeds.pop("weft", None), "TB/s", speeds, goals))
    return lines


def _variant(name: str, function: Any, x: Any, k: int, want: Any, found: dict[str, Any]) -> harness.Variant:
    """The values are those of torch, and stand at the positions given."""
    import torch

    def call() -> None:
        found[name] = function(x, k)

    def correct() -> bool:
        values, indices = found[name]
        return torch.equal(values, want) and torch.equal(torch.gather(x, 1, indices), want)

    return harness.Variant(name, call, partial(found.pop, name, None), correct)
