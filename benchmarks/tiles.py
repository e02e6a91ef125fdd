"""Matrix products in tiles whose width is no power of two, beside tiles of the neighbouring powers of two.

Each product has columns for four tiles of the width, and rows so that all tiles of 128 rows are two rounds of the GPU's
multiprocessors, and those of 256 rows one. All configurations compute the same product, so rates are of useful operations; the
rate of a width is that of its best height and number of buffers of the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import MatmulConfig, matmul
from weft.kernels.config import MOST_HELD

TITLE = "Products in tiles of other widths than powers of two, fp16"
NEEDS_GPU = True
K = 8192
ACROSS, ROUNDS, HEIGHTS = 4, 2, (128, 256)
"""Tiles along N, low tiles of a multiprocessor, and rows of a tile."""
WIDTHS = {96: (64, 128), 112: (64, 128), 160: (128, 256), 192: (128, 256)}
"""Widths, and the powers of two beside each."""
TOLERANCE = 2e-3


def run(quick: bool) -> list[Line]:
    """A line for each width, with b contiguous along K and along N. `quick` takes fewer rounds."""
    import torch

    multiprocessors = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    rows = HEIGHTS[0] * ROUNDS * multiprocessors // ACROSS
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
            best = {who: min(names, key=times.__getitem__) for who, names in by_width(times).items()}
            rates = {who: 2 * rows * columns * K / times[name] / 1e9 for who, name in best.items()}
            own = rates.pop(str(width), None)
            goals = tuple(Goal(1.0, str(other)) for other in neighbours if str(other) in rates)
            what = f"{rows}x{columns}x{K}, tiles of {width}, b along {along}"
            note = ", ".join(name for name in best.values() if "x" in name)
            lines.append(Line(what, own, "TFLOP/s", rates, goals, note))
    return lines


def by_width(names: Iterable[str]) -> dict[str, list[str]]:
    """The variants of each width, and those that have none.

    >>> by_width(["128x96", "256x96/1", "torch"])
    {'96': ['128x96', '256x96/1'], 'torch': ['torch']}
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.partition("x")[2].partition("/")[0] or name, []).append(name)
    return found


def variants_of(torch: Any, a: Any, b: Any, widths: tuple[int, ...]) -> list[harness.Variant]:
    """The product in tiles of each width, height and number of buffers, in the configuration that the library chooses, and
    PyTorch's."""
    out = torch.empty(a.shape[0], b.shape[1], device="cuda", dtype=a.dtype)
    want = a.float() @ b.float()
    sizes = [
        MatmulConfig(block_m=high, block_n=width, buffers=n) for width in widths for high in HEIGHTS for n in (2, 1)
    ]
    jobs: dict[str, Any] = {
        f"{size.block_m}x{size.block_n}/{size.buffers}": partial(matmul, a, b, out, config=size)
        for size in sizes
        if size.accumulators_per_thread <= MOST_HELD[size.consumers]
    }
    jobs["chosen"] = partial(matmul, a, b, out)
    jobs["torch"] = partial(torch.mm, a, b, out=out)
    return [
        harness.Variant(
            name, job, lambda: out.fill_(float("nan")), lambda: harness.relative_error(out, want) < TOLERANCE
        )
        for name, job in jobs.items()
    ]
