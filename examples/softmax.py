"""Row softmax: rows that fit in registers are read once and written once.

Four kernels that compute the same:

- `softmax_plain`: one program per row, the whole row in registers. Threads compute exponentials after all know the maximum.
- `softmax_threads`: each thread computes exponentials relative to its own maximum once its own loads arrive, and scales them
  by one factor at the end. A reshape expresses "within a thread"; it moves nothing, since each element stays in its thread.
- `softmax_persistent`: the same with a persistent grid, in which each program computes many rows.
- `softmax_online`: rows of any length; two passes over blocks of the row, the second usually served by the caches.

    python examples/softmax.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl


@weft.jit
def power(x):
    # e**x by the hardware's exponential of base 2 (`ex2`).
    return gl.exp2(x * 1.4426950408889634)


@weft.jit
def load_row(src, col, cols, WHOLE: gl.constexpr):
    if WHOLE:
        x = gl.load(src + col)
    else:
        x = gl.load(src + col, mask=col < cols, other=float("-inf"))
    return x


@weft.jit
def store_row(dst, col, cols, y, WHOLE: gl.constexpr):
    if WHOLE:
        gl.store(dst + col, y)
    else:
        gl.store(dst + col, y, mask=col < cols)


@weft.jit
def softmax_plain(
    src, dst, cols, src_stride, dst_stride, BLOCK: gl.constexpr, WHOLE: gl.constexpr, layout: gl.constexpr
):
    row = gl.program_id(0)
    col = gl.arange(0, BLOCK, layout=layout)
    x = load_row(src + row * src_stride, col, cols, WHOLE)
    e = power(x - gl.max(x, axis=0))
    store_row(dst + row * dst_stride, col, cols, e * (1.0 / gl.sum(e, axis=0)), WHOLE)


@weft.jit
def one_row(
    src, dst, cols, BLOCK: gl.constexpr, VEC: gl.constexpr, THREADS: gl.constexpr, WHOLE: gl.constexpr, layout: gl.constexpr
):  # fmt: skip
    col = gl.arange(0, BLOCK, layout=layout)
    x = load_row(src, col, cols, WHOLE)
    x = gl.reshape(x, [BLOCK // (THREADS * VEC), THREADS, VEC])
    # Finite even for a thread whose columns are all -inf or masked off: -inf - -inf would be NaN.
    own = gl.maximum(gl.max(gl.max(x, axis=2), axis=0), -3.4028234663852886e38)
    e = power(x - own[None, :, None])
    correction = power(own - gl.max(own, axis=0))
    total = gl.sum(gl.sum(gl.sum(e, axis=2), axis=0) * correction, axis=0)
    y = e * (correction / total)[None, :, None]
    y = gl.convert_layout(gl.reshape(y, [BLOCK]), layout, assert_trivial=True)
    store_row(dst, col, cols, y, WHOLE)


@weft.jit
def softmax_threads(
    src, dst, cols, src_stride, dst_stride,
    BLOCK: gl.constexpr, VEC: gl.constexpr, THREADS: gl.constexpr, WHOLE: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    row = gl.program_id(0)
    one_row(src + row * src_stride, dst + row * dst_stride, cols, BLOCK, VEC, THREADS, WHOLE, layout)


@weft.jit
def softmax_persistent(
    src, dst, rows, cols, src_stride, dst_stride,
    BLOCK: gl.constexpr, VEC: gl.constexpr, THREADS: gl.constexpr, WHOLE: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    for row in range(gl.program_id(0), rows, gl.num_programs(0)):
        one_row(src + row * src_stride, dst + row * dst_stride, cols, BLOCK, VEC, THREADS, WHOLE, layout)


@weft.jit
def meet(m, s, other_m, other_s):
    top = gl.maximum(m, other_m)
    return top, s * power(m - top) + other_s * power(other_m - top)


@weft.jit
def softmax_online(
    src, dst, cols, src_stride, dst_stride, BLOCK: gl.constexpr, WHOLE: gl.constexpr, layout: gl.constexpr
):
    row = gl.program_id(0)
    col = gl.arange(0, BLOCK, layout=layout)
    # A maximum and a sum for each element of the tile: threads exchange nothing before the end.
    m = gl.full([BLOCK], -3.4028234663852886e38, gl.float32, layout=layout)
    s = gl.zeros([BLOCK], gl.float32, layout=layout)
    for start in range(0, cols, BLOCK):
        x = load_row(src + row * src_stride, start + col, cols, WHOLE)
        top = gl.maximum(m, x)
        s = s * power(m - top) + power(x - top)
        m = top
    peak, total = gl.reduce((m, s), 0, meet)
    scale = 1.0 / total
    for start in range(0, cols, BLOCK):
        x = load_row(src + row * src_stride, start + col, cols, WHOLE)
        store_row(dst + row * dst_stride, start + col, cols, power(x - peak) * scale, WHOLE)


def run_plain(src: Any, dst: Any, num_warps: int = 16, VEC: int = 4) -> Any:
    """`softmax_plain` over the rows of `src`; like the others, returns the compiled kernel."""
    rows, cols, block, layout = _shape(src, num_warps, VEC)
    between = _row_strides(src, dst)
    return softmax_plain[(rows,)](src, dst, cols, *between, block, block == cols, layout, num_warps=num_warps)


def run_threads(src: Any, dst: Any, num_warps: int = 16, VEC: int = 4) -> Any:
    """`softmax_threads`."""
    rows, cols, block, layout = _shape(src, num_warps, VEC)
    constants = (block, VEC, 32 * num_warps, block == cols, layout)
    return softmax_threads[(rows,)](src, dst, cols, *_row_strides(src, dst), *constants, num_warps=num_warps)


def run_persistent(src: Any, dst: Any, num_warps: int = 16, VEC: int = 4, programs: int = 132) -> Any:
    """`softmax_persistent` with `programs` programs: as many as the GPU runs at a time."""
    rows, cols, block, layout = _shape(src, num_warps, VEC)
    constants = (block, VEC, 32 * num_warps, block == cols, layout)
    grid = (min(programs, rows),)
    return softmax_persistent[grid](src, dst, rows, cols, *_row_strides(src, dst), *constants, num_warps=num_warps)


def run_online(src: Any, dst: Any, num_warps: int = 8, VEC: int = 4, BLOCK: int = 4096) -> Any:
    """`softmax_online` in blocks of BLOCK columns."""
    rows, cols, block, layout = _shape(src, num_warps, VEC)
    block = min(block, BLOCK)
    between = _row_strides(src, dst)
    return softmax_online[(rows,)](src, dst, cols, *between, block, cols % block == 0, layout, num_warps=num_warps)


def _shape(src: Any, num_warps: int, vec: int) -> tuple[int, int, int, gl.BlockedLayout]:
    rows, cols = src.shape
    # At least one vector for each thread, so that the layout broadcasts no columns.
    block = max(weft.next_power_of_2(cols), 32 * num_warps * vec)
    return rows, cols, block, gl.BlockedLayout([vec], [32], [num_warps], [0])


def _row_strides(src: Any, dst: Any) -> tuple[int, int]:
    return workbench.strides(src)[0], workbench.strides(dst)[0]


RUNS = {"plain": run_plain, "threads": run_threads, "persistent": run_persistent, "online": run_online}


def reference(place: Place, x: Any) -> Any:
    """The definition, in double precision."""
    if place.gpu:
        import torch

        return torch.softmax(x.double(), dim=1)
    import numpy as np

    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: compute, check, measure."""
    rows, cols = place.size(8192, 6), place.size(32768, 10_000)
    src, dst = place.random(rows, cols), place.poisoned(rows, cols)
    compiled = RUNS[name](src, dst)
    place.check(dst, reference(place, src), relative=1e-5)
    constants = compiled.request.arguments
    return {
        "kernel": name,
        "warps": compiled.num_warps,
        "columns in registers": constants["BLOCK"].value,
        "elements per thread": constants["BLOCK"].value // compiled.threads,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(lambda: RUNS[name](src, dst), 2 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in RUNS]
    workbench.report("Row softmax", rows, given.place, given.plot, "registers")


if __name__ == "__main__":
    main()
