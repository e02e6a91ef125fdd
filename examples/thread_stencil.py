"""A diffusion step: each element of a matrix moves towards the mean of its four neighbours; outside of the matrix is zero.

- `from_global`: one thread per element, which reads five elements from global memory.
- `from_shared`: the threads of a block copy a tile to shared memory, with a halo one element wide. Then each element is read
  from global memory once, and those of a halo twice.

Matrices whose size is no multiple of the tile are masked views: tiles at the right and lower edges are smaller.

    python examples/thread_stencil.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl

RATE = 0.125
"""The diffusion coefficient; a power of two, so that steps of small integers are exact."""


@weft.jit
def at(t, row, col):
    """The element at a position, and zero outside of the view."""
    return t[row, col] if row >= 0 and row < t.dim(0) and col >= 0 and col < t.dim(1) else 0.0


@weft.jit
def moved(here, up, down, left, right):
    return here + RATE * (up + down + left + right - 4 * here)


@weft.jit
def from_global(src, dst):
    row, col = gl.global_idx.y, gl.global_idx.x
    if row < dst.dim(0) and col < dst.dim(1):
        up, down = at(src, row - 1, col), at(src, row + 1, col)
        left, right = at(src, row, col - 1), at(src, row, col + 1)
        dst[row, col] = moved(src[row, col], up, down, left, right)


@weft.jit
def from_shared(src, dst, ROWS: gl.constexpr):
    """A block of one or more rows of threads computes a tile of ROWS rows that is as wide as the block."""
    COLS: gl.constexpr = gl.block_dim.x
    layout: gl.constexpr = gl.Layout.row_major(ROWS + 2, COLS + 2)
    halo = gl.LayoutTensor.stack_allocation(src.dtype, layout, address_space=gl.AddressSpace.SHARED)
    y, x = gl.thread_idx.y, gl.thread_idx.x
    top, left = ROWS * gl.block_idx.y, COLS * gl.block_idx.x

    # The tile is copied to the middle, with zeros for elements outside of the matrix.
    middle = halo.slice[1 : ROWS + 1, 1 : COLS + 1]()
    threads: gl.constexpr = gl.Layout.row_major(gl.block_dim.y, COLS)
    gl.copy_dram_to_sram_async(middle, src.tile[ROWS, COLS](gl.block_idx.y, gl.block_idx.x), threads)
    # Meanwhile the first row of threads reads the halo above and below, and two threads of each row that on the left and right.
    if y == 0:
        halo[0, x + 1] = at(src, top - 1, left + x)
        halo[ROWS + 1, x + 1] = at(src, top + ROWS, left + x)
    if x < 2:
        side = x * (COLS + 1)
        for row in range(y, ROWS, gl.block_dim.y):
            halo[row + 1, side] = at(src, top + row, left + side - 1)
    gl.async_copy_wait_all()
    gl.barrier()

    tile = dst.tile[ROWS, COLS](gl.block_idx.y, gl.block_idx.x)
    if x < tile.dim(1):
        for row in range(y, tile.dim(0), gl.block_dim.y):
            up, down = halo[row, x + 1], halo[row + 2, x + 1]
            tile[row, x] = moved(halo[row + 1, x + 1], up, down, halo[row + 1, x], halo[row + 1, x + 2])


def views(src: Any, dst: Any, rows: int = 1, cols: int = 1) -> list[weft.LayoutTensor]:
    """The matrices as views, masked if tiles of rows x cols do not divide them."""
    return [workbench.view(matrix, name, rows, cols) for matrix, name in ((src, "src"), (dst, "dst"))]


def run_global(src: Any, dst: Any, block: tuple[int, int] = (32, 8)) -> Any:
    """A step from `src` to `dst`, one thread per element; like the other, returns the compiled kernel."""
    rows, cols = src.shape
    return from_global[(weft.cdiv(cols, block[0]), weft.cdiv(rows, block[1]))](*views(src, dst), block=block)


def run_shared(src: Any, dst: Any, ROWS: int = 32, block: tuple[int, int] = (32, 8)) -> Any:
    """A step from `src` to `dst`, through tiles of ROWS rows in shared memory."""
    rows, cols = src.shape
    grid = weft.cdiv(cols, block[0]), weft.cdiv(rows, ROWS)
    return from_shared[grid](*views(src, dst, ROWS, block[0]), ROWS, block=block)


KERNELS = {"global memory": run_global, "shared memory": run_shared}


def reference(matrix: Any) -> Any:
    """The step by NumPy or PyTorch, in the matrix' own type."""
    rows, cols = matrix.shape
    padded = np.pad(matrix, 1) if isinstance(matrix, np.ndarray) else _pad(matrix)
    around = padded[:rows, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :cols] + padded[1:-1, 2:]
    return matrix + RATE * (around - 4 * matrix)


def _pad(matrix: Any) -> Any:
    from torch.nn import functional

    return functional.pad(matrix, (1, 1, 1, 1))


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: a step of small integers, whose result is exact; check, measure."""
    rows, cols = place.size(16383, 70), place.size(16381, 101)
    src, dst = (8 * place.random(rows, cols)).round(), place.poisoned(rows, cols)
    compiled = KERNELS[name](src, dst)
    place.check(dst, reference(src))
    return {
        "kernel": name,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TB/s": place.throughput(lambda: KERNELS[name](src, dst), 2 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in KERNELS]
    workbench.report("A step of diffusion, float32", rows, given.place, given.plot, "registers")


if __name__ == "__main__":
    main()
