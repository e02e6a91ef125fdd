"""Thread-level kernels over views: transposes, matmuls and copies against tile kernels and torch; views on the host.

    python benchmarks/run.py threads                             # all parts
    python benchmarks/run.py threads.host threads.simulator      # parts that need no GPU

Each variant is checked on a poisoned output before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import sqrt
from time import perf_counter
from typing import Any

import numpy as np

import weft
from benchmarks import harness, matmul, sim, twin
from benchmarks.copies import best, outcome
from benchmarks.harness import Jobs
from benchmarks.report import Goal, Line
from weft import language as gl

NEEDS_GPU = frozenset({"transpose", "matmul", "copy"})
UNIT = "TB/s"
SIDE = 8192
"""Rows and columns of the transposed matrix."""
LAYOUTS = ((1, 4), (4, 4), (1, 8), (4, 8))
"""Elements per thread and warps of the tile kernels."""
BLOCKS = ((8, 32), (4, 64), (16, 16))
"""Shapes of blocks, along x and y, whose threads transpose 4x4 elements each."""
PRODUCT = 4096
TILES = (
    {"BM": 128},
    {"BK": 8, "STAGES": 3},
    {"BK": 16, "STAGES": 3},
    {"BM": 128, "BN": 256, "BK": 16, "TN": 16},
    {"BM": 256, "BN": 128, "BK": 16, "TM": 16},
)
"""Settings of double-buffered matmuls that differ from the example's."""
NUMEL = 256 << 20
COPIES = ((256, 1), (256, 2), (256, 4), (128, 4), (512, 2))
"""Threads of a block, and vectors of four per thread."""
TILE_COPIES = ((1024, 2), (1024, 4), (2048, 4), (4096, 4))
"""XBLOCK and R of the tile kernel."""
ELEMENTS = 10**8
COPIED = 4096
"""Rows and columns of the matrices that the host copies."""
TILE = "tile kernel"
SLOW = (Goal(10.0, ceiling=True),)


# On a GPU


def transpose(quick: bool) -> list[Line]:
    """8192 x 8192 float32."""
    import torch

    src = torch.randn((SIDE, SIDE), device="cuda")
    dst = torch.empty((SIDE, SIDE), device="cuda")
    kernels, tiles = twin.load("thread_transpose"), twin.load("copy_opposite")
    jobs: Jobs = {"torch": {"torch": lambda: dst.copy_(src.T)}}
    for vec, warps in LAYOUTS:
        layouts = tiles.layout_for(src, warps, vec), tiles.layout_for(dst.T, warps, vec)
        jobs[f"vec={vec} warps={warps}"] = {TILE: partial(tiles.run, src, dst.T, *layouts, num_warps=warps)}
    for name, function in kernels.KERNELS.items():
        jobs[name] = {"weft": partial(function, src, dst)}
    for across, down in BLOCKS:
        run = partial(kernels.transpose_blocks, src, dst, (across, down))
        jobs[f"blocks, {across}x{down} threads"] = {"weft": run}
    return beside_tiles(f"transpose {SIDE}x{SIDE}", jobs, quick, 2 * src.numel() * 4, outcome(dst, src.T), 0.95)


def copy(quick: bool) -> list[Line]:
    """1 GiB of float32."""
    import torch

    src = torch.randn(NUMEL, device="cuda")
    dst = torch.empty_like(src)
    tiles = twin.load("copy_1d")
    jobs: Jobs = {"torch": {"torch": lambda: dst.copy_(src)}}
    for block, R in TILE_COPIES:
        jobs[f"XBLOCK={block} R={R}"] = {TILE: partial(tiles.run, src, dst, NUMEL, block, R)}
    for threads, count in COPIES:
        jobs[f"{threads} threads, {count} vectors each"] = {"weft": partial(copy_vectors, src, dst, threads, count)}
    return beside_tiles("copy 1 GiB", jobs, quick, 2 * NUMEL * 4, outcome(dst, src), 0.98)


def beside_tiles(
    what: str, jobs: Jobs, quick: bool, nbytes: int, judged: dict[str, Callable[[], Any]], least: float
) -> list[Line]:
    """The best thread-level kernel against the best tile kernel and torch, then all thread-level kernels.

    Calls are in graphs: making views takes the host longer than a flush of the cache, in which these arrays do not fit anyway.
    """
    found = harness.race(jobs, harness.GraphClock(), 5 if quick else 20, nbytes=nbytes, **judged)
    torch_speed = found.pop("torch")
    first = best(f"{what}, best of all", found, torch_speed, (Goal(least, TILE),))
    ours = {case: speed.get("weft") for case, speed in found.items() if "weft" in jobs[case]}
    return [first, *(Line(f"{what}, {case}", speed, UNIT, first.peers) for case, speed in ours.items())]


@weft.jit
def vectors(src, dst, count: gl.constexpr):
    size: gl.constexpr = 4 * count * gl.block_dim.x
    threads: gl.constexpr = gl.Layout(gl.block_dim.x, 1)
    here = src.tile[size](gl.block_idx.x).vectorize[4]().distribute[threads](gl.thread_idx.x)
    dst.tile[size](gl.block_idx.x).vectorize[4]().distribute[threads](gl.thread_idx.x).copy_from(here)


def copy_vectors(src: Any, dst: Any, threads: int, count: int) -> Any:
    """Copy an array whose size divides by four: `count` vectors by each thread, a block apart."""
    size = 4 * count * threads
    views = (weft.LayoutTensor(array, masked=bool(array.shape[0] % size)) for array in (src, dst))
    return vectors[weft.cdiv(src.shape[0], size)](*views, count, block=threads)


def ladder(quick: bool) -> list[Line]:
    """4096 x 4096 x 4096 float32, version by version, against cuBLAS without TF32."""
    import torch

    A, B = (torch.randn((PRODUCT, PRODUCT), device="cuda") for _ in range(2))
    C = torch.empty((PRODUCT, PRODUCT), device="cuda")
    kernels = twin.load("thread_matmul")
    jobs: matmul.Jobs = {f"|{matmul.CUBLAS}": partial(matmul.cublas, A, B, C)}
    jobs |= {f"{name}|weft": partial(function, A, B, C) for name, function in kernels.RUNGS.items()}
    for tile in TILES:
        name = ", ".join(f"{key}={value}" for key, value in tile.items())
        jobs[f"double buffered, {name}|weft"] = partial(kernels.double_buffered_matmul, A, B, C, **tile)
    with exact_products():
        lines = matmul.table(f"{PRODUCT}^3", jobs, 2 * PRODUCT**3, quick, product_outcome(A, B, C))
    return [*fastest(lines, 0.75), *lines]


def fastest(lines: list[Line], least: float) -> Iterator[Line]:
    """The best of the lines by each way of timing, with its goal against cuBLAS."""
    for suffix, graph in (("", False), (", graph", True)):
        chosen = [line for line in lines if line.what.endswith(", graph") == graph]
        line = max(chosen, key=lambda line: line.ours or 0.0)
        note = line.what.partition(", ")[2].removesuffix(", graph")
        yield replace(line, what=f"{PRODUCT}^3, best{suffix}", goals=(Goal(least, matmul.CUBLAS),), note=note)


@contextmanager
def exact_products() -> Iterator[None]:
    """torch multiplies float32 in float32."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def product_outcome(A: Any, B: Any, C: Any) -> dict[str, Callable[[], Any]]:
    """Functions that poison an output and compare it with the float64 result, within the rounding error of float32 sums."""
    a, b = A.double(), B.double()
    want, allowed = a @ b, (a.abs() @ b.abs()) * (4 * sqrt(A.shape[1]) * 2.0**-24)

    def correct() -> bool:
        # A NaN fails this comparison.
        return bool(((C.double() - want).abs() <= allowed).all())

    return {"poison": lambda: C.fill_(float("nan")), "correct": correct}


# On the host


def host(quick: bool) -> list[Line]:
    """Microseconds to make views of few and of very many elements; seconds to copy between layouts, against NumPy."""
    many, few = (np.empty((size // 10, 10), np.float32) for size in (ELEMENTS, 1000))
    rounds = 200 if quick else 2000
    lines: list[Line] = []
    for what, make in PARTITIONS.items():
        ours, theirs = (1e6 * least_time(partial(make, array), rounds) for array in (many, few))
        goals = (Goal(500.0, ceiling=True), Goal(2.0, "few", ceiling=True))
        lines.append(Line(f"{what}, {ELEMENTS:.0e} elements", ours, "µs", {"few": theirs}, goals))
    return [*lines, *(beside_numpy(what, *case(), 3 if quick else 9) for what, case in HOST_COPIES.items())]


PARTITIONS: Mapping[str, Callable[[Any], Any]] = {
    "view": weft.LayoutTensor,
    "view and a tile of it": lambda array: weft.LayoutTensor(array).tile[10, 10](1, 0),
    "view and its vectors": lambda array: weft.LayoutTensor(array).vectorize[1, 2](),
    "view and a thread's part": lambda array: weft.LayoutTensor(array).distribute[weft.Layout.row_major(2, 2)](3),
}


def beside_numpy(what: str, dst: Any, src: Any, to: Any, of: Any, rounds: int) -> Line:
    """Seconds to copy a view to another, and for NumPy's equivalent strided assignment in other memory."""
    dst.copy_from(src)
    to[...] = of
    np.testing.assert_array_equal(np.asarray(dst), np.asarray(src))
    ours, theirs = least_time(lambda: dst.copy_from(src), rounds), least_time(lambda: to.__setitem__(..., of), rounds)
    return Line(f"copy {what}", ours, "s", {"NumPy": theirs}, (Goal(2.0, "NumPy", ceiling=True),))


Case = tuple[Any, Any, Any, Any]


def rows_to_columns() -> Case:
    """A row-major matrix to a column-major one."""
    src, dst, other = random_matrix(), *poisoned_matrices()
    return weft.LayoutTensor(dst.T), weft.LayoutTensor(src), other.T, src


def rows_to_tiles() -> Case:
    """A matrix to one of tiles of 32x32, each contiguous."""
    src, dst, other = random_matrix(), *poisoned_matrices()
    count = COPIED // 32
    tiles = weft.Layout(((32, count), (32, count)), ((32, COPIED * 32), (1, 1024)))
    of = src.reshape(count, 32, count, 32).transpose(0, 2, 1, 3)
    return weft.LayoutTensor(dst.reshape(-1), tiles), weft.LayoutTensor(src), other.reshape(count, count, 32, 32), of


def vectors_to_rows() -> Case:
    """A matrix viewed as vectors along columns to a matrix of scalars."""
    src, dst, other = random_matrix(), *poisoned_matrices()
    return weft.LayoutTensor(dst), weft.LayoutTensor(src).vectorize[4, 1](), other, src


def every_other() -> Case:
    """Every other row to every other column."""
    src, dst, other = random_matrix(), *poisoned_matrices()
    return weft.LayoutTensor(dst[:, ::2].T), weft.LayoutTensor(src[::2]), other[:, ::2].T, src[::2]


HOST_COPIES: Mapping[str, Callable[[], Case]] = {
    "rows to columns": rows_to_columns,
    "rows to tiles": rows_to_tiles,
    "vectors to rows": vectors_to_rows,
    "every other row to every other column": every_other,
}


def random_matrix() -> Any:
    """A matrix of normal values."""
    return np.random.default_rng(0).standard_normal((COPIED, COPIED), dtype=np.float32)


def poisoned_matrices() -> tuple[Any, Any]:
    """Two matrices of NaN."""
    return np.full((COPIED, COPIED), np.nan, np.float32), np.full((COPIED, COPIED), np.nan, np.float32)


def least_time(run: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest of several calls: other load of the machine only adds time."""
    times: list[float] = []
    for _ in range(rounds):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)


# In the simulator


def simulator(quick: bool) -> list[Line]:
    """Seconds of the first launch of kernels, compilation to tile IR included."""
    transposes, products = twin.load("thread_transpose").KERNELS, twin.load("thread_matmul")
    src = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32)
    lines: list[Line] = []
    for name in ("padded", "blocks in tiles") if quick else transposes:
        dst = np.full((1024, 1024), np.nan, np.float32)
        lines.append(sim.timed(f"transpose 1024x1024, {name}", partial(transposes[name], src, dst), dst, src.T, SLOW))
    A, B = src[:256, :256].copy(), src[256:512, 256:512].copy()
    for name in ("shared", "double buffered") if quick else list(products.RUNGS)[1:]:
        C = np.full((256, 256), np.nan, np.float32)
        start = perf_counter()
        compiled = products.RUNGS[name](A, B, C)
        elapsed = perf_counter() - start
        products.check(A, B, C)
        lines.append(Line(f"product 256^3, {name}", elapsed, "s", {}, SLOW, f"{compiled.report.programs} programs"))
    return lines


PARTS: dict[str, tuple[str, Callable[[bool], list[Line]]]] = {
    "transpose": (f"Thread-level transposes {SIDE}x{SIDE}, float32", transpose),
    "matmul": (f"Thread-level matmul {PRODUCT}^3, float32", ladder),
    "copy": ("Thread-level copy of 1 GiB", copy),
    "host": ("Views on the host", host),
    "simulator": ("Thread-level kernels in the simulator", simulator),
}
"""Title and function of each part."""
