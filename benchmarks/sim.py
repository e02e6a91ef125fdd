"""The simulator: copies, matmuls, and pipelines with and without hazard detection. Needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import weft
from benchmarks import twin
from benchmarks.report import Goal, Line

TITLE = "Simulator"
NEEDS_GPU = False
SHAPES = ((1000, 2000), (4000, 120))
"""Rows and columns of the matrices that the pipelines add, in tiles of 32x64."""
PIPELINES = (
    *(("add_async_copy", {"num_buffers": count}) for count in (1, 2, 3)),
    *(("add_tma", {"num_buffers": count}) for count in (1, 2, 3)),
    ("add_warp_specialized", {"num_buffers": 2, "num_stores": 1, "swizzle": 128, "flat": False, "programs": 32}),
)

PRODUCTS = (("matmul_pipelined", 3), ("persistent_matmul", 3), ("persistent_matmul_pipelined", 4))
"""Functions of the ladder, and their numbers of buffers."""
PRODUCT_SHAPES = ((208, 416, 304), (2000, 1000, 2000))


def run(quick: bool) -> list[Line]:
    """Seconds of the first launch of each kernel, compilation to tile IR included."""
    two, opposite = twin.load("copy_2d"), twin.load("copy_opposite")
    lines: list[Line] = []
    for rows, cols in ((1000, 200), (1000, 2000)):
        for turned in (False, True):
            src, dst = matrices(rows, cols, turned)
            what = f"2D copy {'x'.join(map(str, src.shape))}{' transposed' if turned else ''}, tiles of 128x256"
            goal = (Goal(2.0, ceiling=True),)
            lines.append(timed(what, lambda s=src, d=dst: two.run(s, d, two.along_rows(), 128, 256), dst, src, goal))
    src, _ = matrices(300, 400, False)
    _, dst = matrices(300, 400, True)
    dst = np.full((400, 300), np.nan, np.float32).T
    layouts = opposite.layout_for(src), opposite.layout_for(dst)
    lines.append(timed("opposite copy 300x400, tiles of 128x128", lambda: opposite.run(src, dst, *layouts), dst, src))
    pipelines = PIPELINES[1:2] if quick else PIPELINES
    lines += [pipeline(name, point, *shape) for name, point in pipelines for shape in SHAPES]
    products = PRODUCTS[:1] if quick else PRODUCTS
    return [*lines, *(matrix_product(name, count, *shape) for name, count in products for shape in PRODUCT_SHAPES)]


def matrix_product(name: str, num_buffers: int, M: int, N: int, K: int) -> Line:
    """Seconds of the first launch of a kernel of the ladder in fp16, tiles of 128x256x64 with 8 warps."""
    module, place = twin.load("matmul_ladder"), twin.load("workbench").Place(gpu=False)
    A, B = place.random(M, K, dtype="float16"), place.random(K, N, dtype="float16")
    C = place.poisoned(M, N, dtype="float16")
    scheduler = () if name == "matmul_pipelined" else (module.PersistentTileScheduler,)
    start = perf_counter()
    compiled = getattr(module, name)(A, B, C, 128, 256, 64, num_buffers, 8, *scheduler)
    elapsed = perf_counter() - start
    place.check_product(C, A, B)
    what = f"{name} {M}x{N}x{K}, tiles of 128x256x64x{num_buffers}"
    return Line(what, elapsed, "s", {}, (Goal(15.0, ceiling=True),), f"{compiled.report.programs} programs")


def pipeline(name: str, point: dict[str, Any], rows: int, cols: int) -> Line:
    """Seconds of a launch of an addition that is compiled already, with and without hazard detection."""
    module = twin.load(name)
    a, c = matrices(rows, cols, turned=False)
    b = a[::-1].copy()

    def launch() -> Any:
        return module.run(a, b, c, XBLOCK=32, YBLOCK=64, **point)

    with weft.simulate(programs=[0]):
        launch()
    what = f"{name} {rows}x{cols}, tiles of 32x64x{point['num_buffers']}"
    with weft.simulate(hazards=False):
        unchecked = timed(what, launch, c, a + b)
    c[:] = np.nan
    checked = timed(what, launch, c, a + b)
    goals = (Goal(10.0, ceiling=True), Goal(3.0, "unchecked", ceiling=True))
    return Line(what, checked.ours, "s", {"unchecked": unchecked.ours or 0.0}, goals, checked.note)


def matrices(rows: int, cols: int, turned: bool) -> tuple[Any, Any]:
    """A random matrix and a poisoned one, or the transposes of such."""
    src = np.random.default_rng(0).standard_normal((rows, cols), dtype=np.float32)
    dst = np.full_like(src, np.nan)
    return (src.T, dst.T) if turned else (src, dst)


def timed(what: str, launch: Callable[[], Any], dst: Any, want: Any, goals: tuple[Goal, ...] = ()) -> Line:
    """Seconds of one launch, whose result is compared."""
    start = perf_counter()
    compiled = launch()
    elapsed = perf_counter() - start
    np.testing.assert_array_equal(dst, want)
    return Line(what, elapsed, "s", {}, goals, f"{compiled.report.programs} programs")
