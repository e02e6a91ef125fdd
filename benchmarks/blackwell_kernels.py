"""The kernels of the examples, compiled for Blackwell without running, for matrices that their tiles divide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import weft
from benchmarks import twin
from weft.runtime import driver
from weft.runtime.compiled import CompiledKernel
from weft.runtime.rehearsal import rehearsal

TARGET = "sm_100a"
SIDE = 4096
"""Rows and columns of the matrices, which are never filled."""
TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_buffers": 3, "num_warps": 4}
HOPPER = {
    "matmul_warp_specialized", "matmul_schedules", "matmul_gelu", "matmul_int4", "attention", "all_reduce", "matmul_scattered",
    "all_reduce_norm", "experts",
}  # fmt: skip
"""Examples that use `wgmma`, which only Hopper has, and those of several ranks, which a rehearsal does not run."""
FAMILIES: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Any]]]]] = {}
"""For each example, the names and launches of its kernels."""

Launches = Iterator[tuple[str, Callable[[], Any]]]


def launches(*examples: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and launch of each kernel of the examples named, or of all."""
    for example in examples or FAMILIES:
        for name, launch in FAMILIES[example]():
            yield f"{example}, {name}", launch


def compiled(launch: Callable[[], Any]) -> list[CompiledKernel]:
    """The kernels of TARGET that a call would launch; nothing runs. Raises what their compilation raises."""
    found: list[CompiledKernel] = []
    with simulated(), rehearsal(found.append):
        launch()
    return found


class _Simulated:
    """The target of all kernels, wherever this runs."""

    def get_current_target(self) -> driver.Target:
        """The simulated GPU."""
        return driver.simulated_target()


@contextmanager
def simulated() -> Iterator[None]:
    """TARGET is the current GPU, even on a machine with another one."""
    there = driver.active
    driver.active = _Simulated()
    try:
        with weft.simulate(target=TARGET):
            yield
    finally:
        driver.active = there


def _matrix(rows: int = SIDE, cols: int = SIDE, dtype: Any = np.float32) -> Any:
    return np.empty((rows, cols), dtype)


def _family(launches: Callable[[], Launches]) -> Callable[[], Launches]:
    FAMILIES[launches.__name__.removeprefix("_")] = launches
    return launches


@_family
def _copy_1d() -> Launches:
    run = twin.load("copy_1d").run
    src = np.empty(SIDE * SIDE, np.float32)
    for R in (1, 2, 4, 8):
        yield f"R={R}", partial(run, src, src.copy(), src.size, 2048, R)


@_family
def _copy_2d() -> Launches:
    module, place = twin.load("copy_2d"), twin.load("workbench").Place(gpu=False)
    for name, matrices, layout, XBLOCK, YBLOCK in module.CASES:
        yield name, partial(module.run, *matrices(place, 48, 4096), layout, XBLOCK, YBLOCK)


@_family
def _copy_opposite() -> Launches:
    module = twin.load("copy_opposite")
    src, dst = _matrix(), _matrix().T
    for vec in (1, 4):
        layouts = (module.layout_for(src, vec=vec), module.layout_for(dst, vec=vec))
        yield f"each its own layout, {vec} wide", partial(module.run, src, dst, *layouts)


@_family
def _row_sum() -> Launches:
    module = twin.load("row_sum")
    for name, layout, ROWS, COLS in module.CASES:
        yield name, partial(module.run, _matrix(), np.empty(SIDE, np.float32), layout, ROWS, COLS)


@_family
def _softmax() -> Launches:
    for name, run in twin.load("softmax").RUNS.items():
        yield name, partial(run, _matrix(8, 32768), _matrix(8, 32768))


@_family
def _tma_copy() -> Launches:
    for XBLOCK in (2048, 8192):
        yield (
            f"XBLOCK={XBLOCK}",
            partial(twin.load("tma_copy").run, np.empty(1 << 20, np.float32), np.empty(1 << 20, np.float32), XBLOCK),
        )


@_family
def _add_async_copy() -> Launches:
    module = twin.load("add_async_copy")
    for name, point in module.POINTS.items():
        yield name, partial(module.run, _matrix(), _matrix(), _matrix(), **point)


@_family
def _add_tma() -> Launches:
    module = twin.load("add_tma")
    for kernel, point in module.POINTS:
        yield _named(kernel, point), partial(module.RUNS[kernel], _matrix(), _matrix(), _matrix(), **point)


@_family
def _add_warp_specialized() -> Launches:
    module = twin.load("add_warp_specialized")
    for point in module.POINTS:
        yield _named("", point), partial(module.run, _matrix(), _matrix(), _matrix(), **point)


@_family
def _tma_gather() -> Launches:
    sources, targets = (np.empty(SIDE, np.int32) for _ in range(2))
    src, _, dst = _operands()
    for name, run in twin.load("tma_gather").RUNS.items():
        yield name, partial(run, src, sources, dst, targets)


@_family
def _broken_pipeline() -> Launches:
    yield "without a fault", partial(twin.load("broken_pipeline").run, _matrix(), _matrix())


@_family
def _layout_tensor() -> Launches:
    module, place = twin.load("layout_tensor"), twin.load("workbench").Place(gpu=False)
    for program in module.PROGRAMS:
        yield program.__name__.replace("_", " "), partial(program, place)


@_family
def _thread_stencil() -> Launches:
    for name, run in twin.load("thread_stencil").KERNELS.items():
        yield name, partial(run, _matrix(), _matrix())


@_family
def _thread_transpose() -> Launches:
    for name, run in twin.load("thread_transpose").KERNELS.items():
        yield name, partial(run, _matrix(), _matrix())


@_family
def _thread_matmul() -> Launches:
    for name, run in twin.load("thread_matmul").RUNGS.items():
        yield name, partial(run, _matrix(), _matrix(), _matrix())


@_family
def _matmul_ladder() -> Launches:
    for name, (run, settings) in twin.load("matmul_ladder").RUNGS.items():
        yield name, partial(run, *_operands(), **{**TILE, **settings})


@_family
def _matmul_timeline() -> Launches:
    module = twin.load("matmul_timeline")
    tile = {name: TILE[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
    for name in ("pipelined", "persistent", "persistent, pipelined"):
        run, _ = module.KERNELS[name]
        yield name, partial(run, *_operands(), **tile, trace=module.stamp, log=np.empty(SIDE * SIDE, np.int64))


@_family
def _matmul_blackwell() -> Launches:
    module = twin.load("matmul_blackwell")
    for dtype in ("float16", "float8_e4m3fn"):
        for name, settings in module.RUNS.items():
            yield f"{name}, {dtype}", partial(module.matmul, *_operands(dtype), **settings)


@_family
def _matmul_scaled() -> Launches:
    module, place = twin.load("matmul_scaled"), twin.load("workbench").Place(gpu=False)
    x = np.zeros((512, 512), np.float32)
    for formats in module.FORMATS:
        A, B = (module.quantised(place, x, name)[0] for name in formats)
        for BLOCK_N in (128, 256):
            for run, settings in twin.load("matmul_blackwell").RUNS.items():
                name = f"{' by '.join(formats)}, {BLOCK_N} columns, {run}"
                yield (
                    name,
                    partial(module.matmul_scaled, A, B, _matrix(512, 512, np.float16), BLOCK_N=BLOCK_N, **settings),
                )


def _operands(dtype: str = "float16") -> tuple[Any, Any, Any]:
    place = twin.load("workbench").Place(gpu=False)
    a, b = (place.poisoned(SIDE, SIDE, dtype=dtype) for _ in range(2))
    return a, b, _matrix(dtype=np.float16)


def _named(name: str, point: dict[str, Any]) -> str:
    settings = " ".join(f"{key}={value}" for key, value in point.items())
    return " ".join(part for part in (name, settings or "as it is") if part)
