"""Thread-level float32 transposes over views: reads of rows are coalesced, writes of columns are not until a tile is reordered.

- `naive`: one thread per element. Threads that read neighbours of a row write to different rows of the result.
- `padded`: a block transposes a tile in shared memory, so that its writes are coalesced too. One unused element after each row
  of the tile spreads the elements of a column over the banks.
- `swizzled`: the same, without the unused elements: column c of row r lies where column c ^ r would.
- `blocks`: a thread transposes 4x4 elements in its registers, with reads and writes of four elements. A warp's accesses are
  runs of 128 bytes on one side, and of 64 bytes on the other.
- `tiled_blocks`: such blocks go through shared memory, so that both sides access whole rows, four elements at a time.

    python examples/thread_transpose.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL
TILE, QUAD = 32, 4
BIG = 64
"""Rows and columns of a tile of 16 x 16 blocks."""
PADDED = gl.Layout((TILE, TILE), (TILE + 1, 1))
"""A tile with an unused element after each row: the elements of a column are in different banks."""
PADDED_BLOCKS = gl.Layout(((QUAD, BIG // QUAD), BIG), ((BIG, QUAD * BIG + QUAD), 1))
"""A tile with four unused elements after every four rows: rows of blocks that eight threads write are in different banks."""


@weft.jit
def naive(src, dst):
    row, col = gl.global_idx.y, gl.global_idx.x
    if row < src.dim(0) and col < src.dim(1):
        dst[col, row] = src[row, col]


@weft.jit
def turn(src, dst, tile, swizzle: gl.constexpr):
    """Through a tile in shared memory: reads rows of the source, writes columns of the tile, which are rows of the result."""
    threads: gl.constexpr = gl.Layout.row_major(gl.block_dim.y, gl.block_dim.x)
    here = src.tile[TILE, TILE](gl.block_idx.y, gl.block_idx.x)
    gl.copy_dram_to_sram(tile, here, threads, swizzle=swizzle)
    gl.barrier()
    there = dst.tile[TILE, TILE](gl.block_idx.x, gl.block_idx.y)
    gl.copy_sram_to_dram(there, tile.transpose(), threads, swizzle=swizzle)


@weft.jit
def padded(src, dst):
    tile = gl.LayoutTensor.stack_allocation(gl.float32, PADDED, address_space=SHARED)
    turn(src, dst, tile, None)


@weft.jit
def swizzled(src, dst):
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(TILE, TILE), address_space=SHARED)
    turn(src, dst, tile, gl.Swizzle(5, 0, 5))


@weft.jit
def blocks(src, dst, from_width: gl.constexpr, to_width: gl.constexpr):
    rows: gl.constexpr = QUAD * gl.block_dim.y
    cols: gl.constexpr = QUAD * gl.block_dim.x
    y, x = gl.thread_idx.y, gl.thread_idx.x
    here = src.tile[rows, cols](gl.block_idx.y, gl.block_idx.x).tile[QUAD, QUAD](y, x)
    there = dst.tile[cols, rows](gl.block_idx.x, gl.block_idx.y).tile[QUAD, QUAD](x, y)
    mine = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(QUAD, QUAD), address_space=LOCAL)
    mine.copy_from(here.vectorize[1, from_width]())
    there.vectorize[1, to_width]().copy_from(mine.transpose())


@weft.jit
def tiled_blocks(src, dst, from_width: gl.constexpr, to_width: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.float32, PADDED_BLOCKS, address_space=SHARED)
    mine = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(QUAD, QUAD), address_space=LOCAL)
    y, x = gl.thread_idx.y, gl.thread_idx.x
    here = src.tile[BIG, BIG](gl.block_idx.y, gl.block_idx.x).tile[QUAD, QUAD](y, x)
    mine.copy_from(here.vectorize[1, from_width]())
    tile.tile[QUAD, QUAD](x, y).vectorize[1, QUAD]().copy_from(mine.transpose())
    gl.barrier()
    there = dst.tile[BIG, BIG](gl.block_idx.x, gl.block_idx.y)
    across: gl.constexpr = BIG // to_width
    threads: gl.constexpr = gl.Layout.row_major(gl.block_dim.x * gl.block_dim.y // across, across)
    gl.copy_sram_to_dram(there.vectorize[1, to_width](), tile.vectorize[1, to_width](), threads)


def width_of(matrix: Any) -> int:
    """Elements of a row per access: four if four divides the rows, else one."""
    return QUAD if matrix.shape[1] % QUAD == 0 and workbench.strides(matrix)[0] % QUAD == 0 else 1


def matrices(src: Any, dst: Any, rows: int = 1, cols: int = 1) -> list[Any]:
    """The matrices as views, masked if tiles of rows x cols elements do not divide them."""
    return [workbench.view(src, "src", rows, cols), workbench.view(dst, "dst", cols, rows)]


def grid(src: Any, rows: int, cols: int) -> tuple[int, int]:
    """The grid of a kernel whose blocks transpose rows x cols elements."""
    return weft.cdiv(src.shape[1], cols), weft.cdiv(src.shape[0], rows)


def transpose_naive(src: Any, dst: Any) -> Any:
    """dst = src.T, one element per thread; like the others, returns the compiled kernel."""
    return naive[grid(src, 8, 32)](*matrices(src, dst), block=(32, 8))


def transpose_padded(src: Any, dst: Any) -> Any:
    """dst = src.T through padded tiles of 32x32."""
    return padded[grid(src, TILE, TILE)](*matrices(src, dst, TILE, TILE), block=(TILE, 8))


def transpose_swizzled(src: Any, dst: Any) -> Any:
    """dst = src.T through swizzled tiles of 32x32."""
    return swizzled[grid(src, TILE, TILE)](*matrices(src, dst, TILE, TILE), block=(TILE, 8))


def transpose_blocks(src: Any, dst: Any, block: tuple[int, int] = (8, 32)) -> Any:
    """dst = src.T by blocks of 4x4 in registers; `block`: threads along x and y."""
    rows, cols = QUAD * block[1], QUAD * block[0]
    widths = width_of(src), width_of(dst)
    return blocks[grid(src, rows, cols)](*matrices(src, dst, rows, cols), *widths, block=block)


def transpose_tiled_blocks(src: Any, dst: Any) -> Any:
    """dst = src.T by blocks of 4x4 in tiles of 64x64."""
    widths = width_of(src), width_of(dst)
    return tiled_blocks[grid(src, BIG, BIG)](*matrices(src, dst, BIG, BIG), *widths, block=(16, 16))


KERNELS = {
    "naive": transpose_naive,
    "padded": transpose_padded,
    "swizzled": transpose_swizzled,
    "blocks": transpose_blocks,
    "blocks in tiles": transpose_tiled_blocks,
}


def row(place: Place, name: str) -> dict[str, Any]:
    """One line of the table: transpose, check, measure."""
    rows, cols = place.size(8192, 100), place.size(8192, 132)
    src, dst = place.random(rows, cols), place.poisoned(cols, rows)
    compiled = KERNELS[name](src, dst)
    place.check(dst, src.T)
    return {
        "kernel": name,
        "shared bytes": compiled.shared,
        "registers": compiled.n_regs,
        "machine code": workbench.accesses(compiled),
        "TB/s": place.throughput(lambda: KERNELS[name](src, dst), 2 * rows * cols * 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, name) for name in KERNELS]
    workbench.report("Thread-level transpose, float32", rows, given.place, given.plot, "shared bytes")


if __name__ == "__main__":
    main()
