"""The front half of the compiler on a long kernel, and the time to import weft. Needs no GPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks import twin
from benchmarks.report import Goal, Line
from weft import language as gl

TITLE = "Compiler front half"
NEEDS_GPU = False
OPERATIONS = 500


def long_kernel(src, dst, numel, BLOCK: gl.constexpr, STEPS: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < numel
    x = gl.load(src + offsets, mask=mask, other=0.0)
    y = x * 0.5
    for step in gl.static_range(STEPS):
        low = gl.minimum(x, y) - step
        x = gl.where(low < 0, x + y, low * y)
        y = gl.fma(x, y, low)
    gl.store(dst + offsets, x + y, mask=mask)


def run(quick: bool) -> list[Line]:
    """Milliseconds of each stage, and of the import."""
    count = 7 if quick else 25
    found, operations = stages(count)
    whole = sum(found.values())
    scaled = whole * OPERATIONS / operations
    note = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    return [
        Line(
            f"source to CUDA text, per {OPERATIONS} operations", scaled, "ms", {}, (Goal(30, ceiling=True),),
            f"{operations} operations in {whole:.1f} ms: {note}",
        ),
        Line("import weft", import_time("import weft", count), "s", {}, (Goal(0.15, ceiling=True),)),
        Line("from weft import language", import_time("from weft import language", count), "s"),
    ]  # fmt: skip


def stages(count: int) -> tuple[dict[str, float], int]:
    """Median milliseconds of each stage of the long kernel, and its operations as read."""
    from weft import cuda, targets
    from weft.ir.core import walk
    from weft.ir.types import Pointer, float32, int32
    from weft.lang import ConstexprParam, RuntimeParam, build_kernel
    from weft.layout import BlockedLayout
    from weft.passes.pipeline import lower_pipeline, tile_pipeline

    target = targets.get("sm_90a")
    params = {
        "src": RuntimeParam(Pointer(float32), 16),
        "dst": RuntimeParam(Pointer(float32), 16),
        "numel": RuntimeParam(int32, 16),
        "BLOCK": ConstexprParam(1024),
        "STEPS": ConstexprParam(70),
        "layout": ConstexprParam(BlockedLayout([8], [32], [4], [0])),
    }
    path: dict[str, Callable[[Any], Any]] = {
        "read": lambda _: build_kernel(long_kernel, params, num_warps=4, target=target).func,
        "tile passes": lambda func: tile_pipeline(func, target),
        "lowering": lambda func: lower_pipeline(func, target),
        "CUDA text": lambda func: cuda.emit(func, target),
    }
    times: dict[str, list[float]] = {name: [] for name in path}
    for _ in range(count + 1):
        value: Any = None
        for name, stage in path.items():
            start = perf_counter()
            value = stage(value)
            times[name].append((perf_counter() - start) * 1e3)
    operations = sum(1 for _ in walk(build_kernel(long_kernel, params, num_warps=4, target=target).func.body))
    # The first run fills the memo tables of layouts, as the first kernel of a program does; compile.py measures that case.
    return {name: statistics.median(values[1:]) for name, values in times.items()}, operations


def import_time(statement: str, count: int) -> float:
    """Median seconds that a statement takes in a fresh interpreter."""
    program = f"from time import perf_counter\nstart = perf_counter()\n{statement}\nprint(perf_counter() - start)"
    found = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=twin.ROOT, check=True
        ).stdout
        for _ in range(min(count, 7))
    ]
    return statistics.median(map(float, found))
