"""Batches of products in one launch, beside `torch.bmm` (`torch.matmul` where axes broadcast) and a launch for each product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import matmul

TITLE = "Batches of products"
NEEDS_GPU = True


@dataclass(frozen=True, slots=True)
class Case:
    """`a` and `b` are shapes, whose last two axes are matrices, and `b_turned` says that b is column-major."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    dtype: str = "bfloat16"
    b_turned: bool = False
    note: str = ""

    def __str__(self) -> str:
        a, b = ("x".join(map(str, shape)) for shape in (self.a, self.b))
        return f"[{a}] @ [{b}{', turned' if self.b_turned else ''}] {self.dtype}"


CASES = (
    Case((64, 1024, 512), (64, 512, 1024), note="many tiles for each product"),
    Case((256, 128, 128), (256, 128, 128), note="a tile for each product"),
    Case((96, 2048, 128), (96, 128, 2048), b_turned=True, note="scores of heads"),
    Case((96, 2048, 2048), (96, 2048, 128), note="values of heads"),
    Case((512, 1, 128), (512, 128, 4096), note="one query for each head"),
    Case((8, 4096, 4096), (8, 4096, 4096), "float16"),
    Case((32, 1000, 1000), (32, 1000, 1000), "float16", note="rows of 16 modulo 32 bytes"),
    Case((32, 333, 257), (32, 257, 555), "float16", note="no alignment"),
    Case((128, 512, 256), (256, 512), note="one b for all: a single product"),
    Case((512, 256), (128, 256, 512), note="one a for all"),
    Case((4, 16, 512, 128), (16, 128, 512), note="the outer axis of b repeats: four launches"),
    Case((64, 512, 1024), (64, 1024, 512), "float8_e4m3fn", b_turned=True),
)
"""Shapes as layers have them, and awkward ones."""


def run(quick: bool) -> list[Line]:
    """A line for each case."""
    import torch

    lines: list[Line] = []
    for case in CASES[:4] if quick else CASES:
        a, b = operands(torch, case, "cuda")
        variants, operations = variants_of(torch, case, a, b)
        times = harness.measure(variants, harness.CudaClock(), 5 if quick else 15)
        speeds = {name: operations / ms / 1e9 for name, ms in times.items()}
        goals = (Goal(1.0, "torch"),) if "torch" in speeds else ()
        lines.append(Line(str(case), speeds.pop("weft", None), "TFLOP/s", speeds, goals, case.note))
    return lines


def operands(torch: Any, case: Case, device: str) -> tuple[Any, Any]:
    """Random operands of a case."""

    def made(shape: tuple[int, ...], turned: bool) -> Any:
        *axes, rows, columns = shape
        lines = (columns, rows) if turned else (rows, columns)
        memory = torch.randn((*axes, *lines), device=device).to(getattr(torch, case.dtype))
        return memory.transpose(-1, -2) if turned else memory

    return made(case.a, False), made(case.b, case.b_turned)


def variants_of(torch: Any, case: Case, a: Any, b: Any) -> tuple[list[harness.Variant], float]:
    """The contestants, each checked on a poisoned output against float32, and the operations of a call."""
    out = torch.bfloat16 if case.dtype.startswith("float8") else a.dtype
    want = a.float() @ b.float()
    results = {name: torch.empty(want.shape, device=a.device, dtype=out) for name in ("weft", "each", "torch")}
    calls: dict[str, Callable[[], Any]] = {
        "weft": partial(matmul, a, b, results["weft"]),
        "weft, one by one": partial(one_by_one, a, b, results["each"]),
    }
    if out == a.dtype:
        product = torch.bmm if a.ndim == b.ndim == 3 else torch.matmul
        calls["torch"] = lambda: product(a, b, out=results["torch"])
    tolerance = 2e-2 * float(want.abs().max())
    variants = [
        harness.Variant(name, call, partial(result.fill_, float("nan")), partial(_close, result, want, tolerance))
        for (name, call), result in zip(calls.items(), results.values(), strict=False)
    ]
    return variants, 2.0 * want.numel() * a.shape[-1]


def one_by_one(a: Any, b: Any, out: Any) -> None:
    """A launch for each product."""
    left, right = a.expand(*out.shape[:-2], *a.shape[-2:]), b.expand(*out.shape[:-2], *b.shape[-2:])
    axes = [range(size) for size in out.shape[:-2]]
    for index in _indices(axes):
        matmul(left[index], right[index], out[index])


def _indices(axes: list[range]) -> list[tuple[int, ...]]:
    return [(first, *rest) for first in axes[0] for rest in _indices(axes[1:])] if axes else [()]


def _close(found: Any, want: Any, tolerance: float) -> bool:
    return bool(((found.float() - want).abs() <= tolerance).all())
