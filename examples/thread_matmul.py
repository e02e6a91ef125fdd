"""Thread-level matmul C = A @ B in float32 over views, in five versions: each adds one idea to the one before.

- `naive`: one thread per element of C, which reads a row of A and a column of B from global memory.
- `shared`: the threads of a block copy tiles of A and B to shared memory, where each element is read many times.
- `vectorised`: a thread computes four neighbours of C, with reads, copies and writes of four elements at once.
- `register_tile`: a thread computes 8x8 elements. For each step along k it reads 8 + 8 elements and executes 64 FMAs.
- `double_buffered`: the copies of later tiles are in flight while a tile is multiplied.

Steps along k within a tile are unrolled, so ptxas schedules the reads of one step among the FMAs of the step before, without
further help.

Matrices whose size is no multiple of the tile are masked views: tiles at the edges are smaller, and asynchronous copies write
zeros for elements outside. If tiles divide a matrix, no masks are needed.

    python examples/thread_matmul.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl
from weft.language.nvidia.ampere import async_copy

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL
QUAD = 4
"""Elements that a thread reads from shared memory with one instruction."""


@weft.jit
def naive(a, b, c):
    row, col = gl.global_idx.y, gl.global_idx.x
    if row < c.dim(0) and col < c.dim(1):
        total = gl.to_tensor(0.0)
        for k in range(a.dim(1)):
            total += a[row, k] * b[k, col]
        c[row, col] = total


@weft.jit
def shared(a, b, c, TILE: gl.constexpr):
    square: gl.constexpr = gl.Layout.row_major(TILE, TILE)
    a_tile = gl.LayoutTensor.stack_allocation(gl.float32, square, address_space=SHARED)
    b_tile = gl.LayoutTensor.stack_allocation(gl.float32, square, address_space=SHARED)
    y, x = gl.thread_idx.y, gl.thread_idx.x
    total = gl.to_tensor(0.0)
    for step in range(gl.cdiv(a.dim(1), TILE)):
        # Asynchronous copies write zeros for elements beyond the edges, which add nothing to the sum.
        gl.copy_dram_to_sram_async(a_tile, a.tile[TILE, TILE](gl.block_idx.y, step), square)
        gl.copy_dram_to_sram_async(b_tile, b.tile[TILE, TILE](step, gl.block_idx.x), square)
        gl.async_copy_wait_all()
        gl.barrier()
        for k in gl.static_range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        gl.barrier()
    if gl.global_idx.y < c.dim(0) and gl.global_idx.x < c.dim(1):
        c[gl.global_idx.y, gl.global_idx.x] = total


@weft.jit
def copy_async(to, source, width: gl.constexpr):
    """Issue the copy of a tile to shared memory, `width` neighbours of a row at a time, by all threads of the block."""
    threads: gl.constexpr = gl.block_dim.x * gl.block_dim.y
    across: gl.constexpr = min(source.shape[1] // width, threads)
    rows: gl.constexpr = gl.Layout.row_major(threads // across, across)
    gl.copy_dram_to_sram_async(to.vectorize[1, width](), source.vectorize[1, width](), rows)


@weft.jit
def vectorised(a, b, c, BM: gl.constexpr, BK: gl.constexpr, a_width: gl.constexpr, width: gl.constexpr):
    BN: gl.constexpr = QUAD * gl.block_dim.x
    # The threads of a warp read two rows of A at once; the padding puts them in different banks.
    padded: gl.constexpr = gl.Layout((BM, BK), (BK + QUAD, 1))
    a_tile = gl.LayoutTensor.stack_allocation(gl.float32, padded, address_space=SHARED)
    b_tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(BK, BN), address_space=SHARED)
    a_quads, b_quads = a_tile.vectorize[1, QUAD](), b_tile.vectorize[1, QUAD]()
    y, x = gl.thread_idx.y, gl.thread_idx.x
    sums = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(1, QUAD), address_space=LOCAL).fill(0)
    for step in range(gl.cdiv(a.dim(1), BK)):
        copy_async(a_tile, a.tile[BM, BK](gl.block_idx.y, step), a_width)
        copy_async(b_tile, b.tile[BK, BN](step, gl.block_idx.x), width)
        gl.async_copy_wait_all()
        gl.barrier()
        for quad in gl.static_range(BK // QUAD):
            of_a = a_quads[y, quad]
            for i in gl.static_range(QUAD):
                sums.vectorize[1, QUAD]()[0, 0] += of_a[i] * b_quads[QUAD * quad + i, x]
        gl.barrier()
    mine = c.tile[BM, BN](gl.block_idx.y, gl.block_idx.x).tile[1, QUAD](y, x)
    mine.vectorize[1, width]().copy_from(sums.vectorize[1, width]())


# Register tiles. In a block of BM x BN elements of C a thread computes TM x TN of them: TM / 4 groups of four rows by TN / 4
# groups of four columns. Neighbouring threads have neighbouring groups.


@weft.jit
def place_in_block(across: gl.constexpr):
    """Row and column of a thread among the threads of its block, of which there are `across` side by side.

    A warp is 4 threads high and 8 wide, and lanes 0, 1, 2, ... are at (0, 0), (1, 0), (0, 1), ... Of any four consecutive
    lanes, two read the same elements of A, and two the same of B: shared memory broadcasts both to 16 lanes at a time.
    """
    lane, warp = gl.thread_idx.x % 32, gl.thread_idx.x // 32
    warps: gl.constexpr = across // 8
    row = warp // warps * 4 + lane // 16 * 2 + lane % 2
    return row, warp % warps * 8 + lane % 16 // 2


@weft.jit
def start_copies(a, b, a_tile, b_tile, step, width: gl.constexpr):
    """Issue the copies of the block's tiles of A and B for a step along k."""
    BM: gl.constexpr = a_tile.shape[0]
    BK: gl.constexpr = a_tile.shape[1]
    BN: gl.constexpr = b_tile.shape[1]
    # In shared memory columns of A are contiguous, so copies are one element wide: 8 threads copy a part of a row.
    eights: gl.constexpr = gl.Layout.row_major(gl.block_dim.x // 8, 8)
    gl.copy_dram_to_sram_async(a_tile, a.tile[BM, BK](gl.block_idx.y, step), eights)
    copy_async(b_tile, b.tile[BK, BN](step, gl.block_idx.x), width)


@weft.jit
def allocate_tiles(BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """Shared memory for a BM x BK tile of A, column by column, and a BK x BN tile of B, row by row.

    With four elements of padding between columns of A, the 8 columns and 4 rows that a warp copies at once use different banks.
    """
    columns: gl.constexpr = gl.Layout((BM, BK), (1, BM + QUAD))
    a_tile = gl.LayoutTensor.stack_allocation(gl.float32, columns, address_space=SHARED)
    return a_tile, gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(BK, BN), address_space=SHARED)


@weft.jit
def store_sums(c, sums, row, col, width: gl.constexpr):
    """Write the elements of C that the thread at (row, col) has computed, group by group."""
    rows: gl.constexpr = sums.shape[0] // QUAD
    columns: gl.constexpr = sums.shape[1] // QUAD
    for i in gl.static_range(rows):
        for j in gl.static_range(columns):
            mine = c.tile[c.shape[0] // rows, c.shape[1] // columns](i, j).tile[QUAD, QUAD](row, col)
            mine.vectorize[1, width]().copy_from(sums.tile[QUAD, QUAD](i, j).vectorize[1, width]())


@weft.jit
def register_tile(
    a, b, c, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, TM: gl.constexpr, TN: gl.constexpr, width: gl.constexpr,
):  # fmt: skip
    down: gl.constexpr = BM // TM
    across: gl.constexpr = BN // TN
    row, col = place_in_block(across)
    a_tile, b_tile = allocate_tiles(BM, BN, BK)
    a_mine = a_tile.vectorize[QUAD, 1]().distribute[gl.Layout.col_major(down, 1)](row)
    b_mine = b_tile.vectorize[1, QUAD]().distribute[gl.Layout.row_major(1, across)](col)
    sums = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(TM, TN), address_space=LOCAL).fill(0)
    for step in range(gl.cdiv(a.dim(1), BK)):
        start_copies(a, b, a_tile, b_tile, step, width)
        gl.async_copy_wait_all()
        gl.barrier()
        for k in gl.static_range(BK):
            gl.outer_product_acc(sums, a_mine.slice[:, k : k + 1](), b_mine.slice[k : k + 1, :]())
        gl.barrier()
    store_sums(c.tile[BM, BN](gl.block_idx.y, gl.block_idx.x), sums, row, col, width)


@weft.jit
def double_buffered(
    a, b, c, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, TM: gl.constexpr, TN: gl.constexpr, width: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    down: gl.constexpr = BM // TM
    across: gl.constexpr = BN // TN
    row, col = place_in_block(across)
    # The tiles of A of all stages lie side by side, those of B below each other.
    a_tiles, b_tiles = allocate_tiles(BM, BN, BK * STAGES)
    sums = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(TM, TN), address_space=LOCAL).fill(0)
    steps: gl.constexpr = gl.cdiv(a.dim(1), BK)
    for step in gl.static_range(STAGES - 1):
        if step < steps:
            start_copies(a, b, a_tiles.tile[BM, BK](0, step), b_tiles.tile[BK, BN](step, 0), step, width)
        async_copy.commit_group()
    for step in range(steps):
        # The copies of this step are complete in all threads, and all threads have read the stage that is overwritten next.
        async_copy.wait_group(STAGES - 2)
        gl.barrier()
        ahead = step + STAGES - 1
        if ahead < steps:
            stage = ahead % STAGES
            start_copies(a, b, a_tiles.tile[BM, BK](0, stage), b_tiles.tile[BK, BN](stage, 0), ahead, width)
        async_copy.commit_group()
        a_tile, b_tile = a_tiles.tile[BM, BK](0, step % STAGES), b_tiles.tile[BK, BN](step % STAGES, 0)
        a_mine = a_tile.vectorize[QUAD, 1]().distribute[gl.Layout.col_major(down, 1)](row)
        b_mine = b_tile.vectorize[1, QUAD]().distribute[gl.Layout.row_major(1, across)](col)
        for k in gl.static_range(BK):
            gl.outer_product_acc(sums, a_mine.slice[:, k : k + 1](), b_mine.slice[k : k + 1, :]())
    store_sums(c.tile[BM, BN](gl.block_idx.y, gl.block_idx.x), sums, row, col, width)


def matrices(A: Any, B: Any, C: Any, BM: int = 1, BN: int = 1, BK: int = 1) -> list[Any]:
    """The matrices as views, masked if the tiles of a block do not divide them."""
    return [workbench.view(A, "a", BM, BK), workbench.view(B, "b", BK, BN), workbench.view(C, "c", BM, BN)]


def width_of(*operands: Any) -> int:
    """Elements of a row per access: four if four divides the rows of all matrices, else one."""
    whole = all(matrix.shape[1] % QUAD == 0 and workbench.strides(matrix)[0] % QUAD == 0 for matrix in operands)
    return QUAD if whole else 1


def blocks(C: Any, BM: int, BN: int) -> tuple[int, int]:
    """The grid of a kernel whose blocks compute BM x BN elements."""
    M, N = C.shape
    return weft.cdiv(N, BN), weft.cdiv(M, BM)


def naive_matmul(A: Any, B: Any, C: Any) -> Any:
    """C = A @ B, one element per thread; like the others, returns the compiled kernel."""
    return naive[blocks(C, 16, 16)](*matrices(A, B, C), block=(16, 16))


def shared_matmul(A: Any, B: Any, C: Any, TILE: int = 32) -> Any:
    """C = A @ B, one element per thread, with tiles in shared memory."""
    return shared[blocks(C, TILE, TILE)](*matrices(A, B, C, TILE, TILE, TILE), TILE, block=(TILE, TILE))


def vectorised_matmul(A: Any, B: Any, C: Any, BM: int = 16, BK: int = 64) -> Any:
    """C = A @ B, four elements per thread."""
    BN, widths = 16 * QUAD, (width_of(A), width_of(B, C))
    return vectorised[blocks(C, BM, BN)](*matrices(A, B, C, BM, BN, BK), BM, BK, *widths, block=(16, BM))


def register_tile_matmul(
    A: Any, B: Any, C: Any, BM: int = 128, BN: int = 128, BK: int = 16, TM: int = 8, TN: int = 8, **options: Any
) -> Any:
    """C = A @ B, TM x TN elements per thread."""
    threads = BM // TM * (BN // TN)
    settings = BM, BN, BK, TM, TN, width_of(B, C)
    return register_tile[blocks(C, BM, BN)](*matrices(A, B, C, BM, BN, BK), *settings, block=threads, **options)


def double_buffered_matmul(
    A: Any, B: Any, C: Any, BM: int = 64, BN: int = 128, BK: int = 16, TM: int = 8, TN: int = 8, STAGES: int = 2,
    **options: Any,
) -> Any:  # fmt: skip
    """C = A @ B, TM x TN elements per thread, with the copies of the next STAGES - 1 tiles in flight."""
    threads = BM // TM * (BN // TN)
    settings = BM, BN, BK, TM, TN, width_of(B, C), STAGES
    return double_buffered[blocks(C, BM, BN)](*matrices(A, B, C, BM, BN, BK), *settings, block=threads, **options)


RUNGS = {
    "naive": naive_matmul,
    "shared": shared_matmul,
    "vectorised": vectorised_matmul,
    "register tile": register_tile_matmul,
    "double buffered": double_buffered_matmul,
}


def error(A: Any, B: Any, C: Any) -> float:
    """The largest error of C against A @ B in float64, in float32 rounding units of the sum of |a * b|; NaN if one is NaN."""
    a, b, c = (x.double() if hasattr(x, "double") else np.asarray(x, np.float64) for x in (A, B, C))
    return float((abs(c - a @ b) / (abs(a) @ abs(b))).max()) * 2.0**24


def check(A: Any, B: Any, C: Any) -> float:
    """The error, if rounding explains it: it grows with the square root of the number of additions. Raises AssertionError."""
    found = error(A, B, C)
    assert found <= 4 * sqrt(A.shape[1]), f"an element of the product is off by {found:.0f} roundings"
    return found


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: multiply, check, measure."""
    M, N, K = place.size(4096, 130), place.size(4096, 68), place.size(4096, 33)
    A, B, C = place.random(M, K), place.random(K, N), place.poisoned(M, N)
    compiled = RUNGS[name](A, B, C)
    return {
        "kernel": name,
        "error in roundings": f"{check(A, B, C):.1f}",
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "TFLOP/s": place.arithmetic(lambda: RUNGS[name](A, B, C), 2 * M * N * K),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in RUNGS]
    workbench.report("Thread-level matmul, float32", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
