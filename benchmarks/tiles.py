"""Matrix products in tiles whose width is no power of two, beside tiles of the neighbouring powers of two.

Each product has columns for four tiles of the width, and rows so that all tiles are two rounds of the GPU's multiprocessors.
All configurations compute the same product, so rates are of useful operations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import MatmulConfig, matmul

TITLE = "Products in tiles of other widths than powers of two, fp16"
NEEDS_GPU = True
K = 8192
ACROSS, ROUNDS, HIGH = 4, 2, 128
"""Tiles along N, tiles of a multiprocessor, and rows of a tile."""
WIDTHS = {96: (64, 128), 112: (64, 128), 160: (128, 256), 192: (128, 256)}
"""Widths, and the powers of two beside each."""
TOLERANCE = 2e-3


def run(quick: bool) -> list[Line]:
    """A line for each width, with b contiguous along K and along N. `quick` takes fewer rounds."""
    import torch

    rows = HIGH * ROUNDS * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count // ACROSS
    lines: list[Line] = []
    for width, neighbours in WIDTHS.items():
        columns = ACROSS * width
        a = torch.randn(rows, K, device="cuda", dtype=torch.float16)
        for along, b in (
            ("K", torch.randn(columns, K, device="cuda", dtype=torch.float16).T),
            ("N", torch.randn(K, columns, device="cuda", dtype=torch.float16)),
        ):
            times = harness.measure(
                variants_of(torch, a, b, (width, *neighbours)), harness.CudaClock(), 5 if quick else 30
            )
            rates = {name: 2 * rows * columns * K / ms / 1e9 for name, ms in times.items()}
            own = rates.pop(str(width), None)
            goals = tuple(Goal(1.0, str(other)) for other in neighbours if str(other) in rates)
            lines.append(Line(f"{rows}x{columns}x{K}, tiles of {width}, b along {along}", own, "TFLOP/s", rates, goals))
    return lines


def variants_of(torch: Any, a: Any, b: Any, widths: tuple[int, ...]) -> list[harness.Variant]:
    """The product in tiles of each width, in the configuration that the library chooses, and PyTorch's."""
    out = torch.empty(a.shape[0], b.shape[1], device="cuda", dtype=a.dtype)
    want = a.float() @ b.float()
    jobs: dict[str, Any] = {
        str(width): partial(matmul, a, b, out, config=MatmulConfig(block_m=HIGH, block_n=width)) for width in widths
    }
    jobs["chosen"] = partial(matmul, a, b, out)
    jobs["torch"] = partial(torch.mm, a, b, out=out)
    return [
        harness.Variant(
            name, job, lambda: out.fill_(float("nan")), lambda: harness.relative_error(out, want) < TOLERANCE
        )
        for name, job in jobs.items()
    ]
