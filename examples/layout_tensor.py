"""Views of memory, on the host and in thread-level kernels: a short program for each feature of `weft.LayoutTensor`.

A view says where elements lie; making one copies nothing. Host programs use NumPy arrays. Those with a kernel use PyTorch
tensors if there is a GPU, and NumPy arrays in the simulator: the array library allocates memory and copies to and from the
host. Every program returns its result and the expected one.

    python examples/layout_tensor.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL
TILED = weft.Layout(((2, 2), (3, 2)), ((3, 12), (1, 6)))
"""4 x 6 elements in tiles of 2 x 3: each tile is contiguous in row-major order, and the tiles follow in row-major order."""
Found = tuple[Any, Any]


# On the host


def elements(_: Place) -> Found:
    """Single elements, and four neighbours at once."""
    matrix = np.arange(24, dtype=np.float32).reshape(3, 8)
    view = weft.LayoutTensor(matrix)
    view[0, 2] = view[0, 2] + 100
    view.store(2, 4, 2 * view.load[4](1, 0))
    return matrix, [[0, 1, 102, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15], [16, 17, 18, 19, 16, 18, 20, 22]]


def nested(_: Place) -> Found:
    """A layout of tiles: an index for each mode, and tiles that are plain matrices."""
    storage = np.arange(24)
    view = weft.LayoutTensor(storage, TILED)
    # Row 1 of the upper tiles, column 0 of the right ones: the coordinates are ((1, 0), (0, 1)), flattened for an index.
    assert view[1, 0, 0, 1] == TILED((1, 0), (0, 1)) == 9
    assert view.tile[2, 3](1, 0).layout == weft.Layout.row_major(2, 3)
    return view.tile[2, 3](1, 0), [[12, 13, 14], [15, 16, 17]]


def masked_tiles(_: Place) -> Found:
    """Tiles that do not divide a view: at its edges they are smaller."""
    matrix = np.zeros((5, 7), np.int32)
    view = weft.LayoutTensor(matrix, masked=True)
    for i in range(weft.cdiv(5, 4)):
        for j in range(weft.cdiv(7, 4)):
            tile = view.tile[4, 4](i, j)
            tile.fill(tile.dim(0) * tile.dim(1))
    return matrix, [[16, 16, 16, 16, 12, 12, 12]] * 4 + [[4, 4, 4, 4, 3, 3, 3]]


def tiles_of_a_buffer(_: Place) -> Found:
    """A circular iterator over a flat array, tile by tile."""
    buffer = np.arange(12)
    tiles = weft.LayoutTensorIter(buffer, weft.Layout.row_major(2, 2), circular=True)
    diagonals = []
    for _step in range(4):
        tile = tiles[()]
        diagonals.append([tile[0, 0], tile[1, 1]])
        tiles += 1
    return diagonals, [[0, 3], [4, 7], [8, 11], [0, 3]]


def tiles_of_a_row(_: Place) -> Found:
    """An iterator over the tiles of a view along an axis."""
    matrix = np.arange(48).reshape(4, 12)
    view = weft.LayoutTensor(matrix)
    firsts = []
    for i in range(2):
        tiles = view.tiled_iterator(2, 4, axis=1)(i, 0)
        firsts.append([tiles.next(k)[()][0, 0] for k in range(3)])
    return firsts, [[0, 4, 8], [24, 28, 32]]


def vectors(_: Place) -> Found:
    """A view of the same memory whose elements are vectors of four."""
    matrix = np.arange(256).reshape(16, 16)
    view = weft.LayoutTensor(matrix).vectorize[1, 4]()
    assert view.shape == (16, 4)
    view[1, 2] = view[1, 2] * -1
    return matrix[1], [16, 17, 18, 19, 20, 21, 22, 23, -24, -25, -26, -27, 28, 29, 30, 31]


def fragments(_: Place) -> Found:
    """Elements distributed over 2 x 2 threads, numbered down the columns; the thread layout repeats over the view."""
    view = weft.LayoutTensor(np.arange(16).reshape(4, 4))
    deal = view.distribute[weft.Layout.col_major(2, 2)]
    found = [np.asarray(deal(thread)) for thread in range(4)]
    return found, [[[0, 2], [8, 10]], [[4, 6], [12, 14]], [[1, 3], [9, 11]], [[5, 7], [13, 15]]]


def other_layouts(_: Place) -> Found:
    """A copy from one layout to another; both views are traversed row by row."""
    storage = np.zeros(24, np.int64)
    weft.LayoutTensor(storage, TILED).copy_from(weft.LayoutTensor(np.arange(24).reshape(4, 6)))
    return storage[:12], [0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11]


# Kernels


@weft.jit
def add_one(t):
    row, col = gl.global_idx.y, gl.global_idx.x
    if row < t.dim(0) and col < t.dim(1):
        t[row, col] += 1


def changed_by_threads(place: Place) -> Found:
    """An array from the host, with one thread per element."""
    numbers = np.arange(30 * 10, dtype=np.float32).reshape(30, 10)
    matrix = place.array(numbers)
    add_one[(2, 4)](weft.LayoutTensor(matrix), block=(8, 8))
    return place.numpy(matrix), numbers + 1


@weft.jit
def add_one_at(pointer, rows, cols):
    layout: gl.constexpr = gl.Layout((gl.UNKNOWN, gl.UNKNOWN), (gl.UNKNOWN, 1))
    t = gl.LayoutTensor(pointer, layout, shape=(rows, cols))
    row, col = gl.global_idx.y, gl.global_idx.x
    if row < t.dim(0) and col < t.dim(1):
        t[row, col] += 1


def made_in_a_kernel(place: Place) -> Found:
    """A view that the kernel opens itself, over a pointer; sizes are known at run time only."""
    numbers = np.arange(30 * 10, dtype=np.float32).reshape(30, 10)
    matrix = place.array(numbers)
    add_one_at[(2, 4)](matrix, 30, 10, block=(8, 8))
    return place.numpy(matrix), numbers + 1


@weft.jit
def reverse(src, dst, OWN: gl.constexpr):
    size: gl.constexpr = OWN * gl.block_dim.x
    tile = gl.LayoutTensor.stack_allocation(src.dtype, gl.Layout.row_major(size), address_space=SHARED)
    mine = gl.LayoutTensor.stack_allocation(src.dtype, gl.Layout.row_major(OWN), address_space=LOCAL)
    block, thread = gl.block_idx.x, gl.thread_idx.x
    tile.tile[OWN](thread).vectorize[OWN]().copy_from(src.tile[size](block).tile[OWN](thread).vectorize[OWN]())
    gl.barrier()
    for k in gl.static_range(OWN):
        mine[k] = tile[size - 1 - (OWN * thread + k)]
    dst.tile[size](block).tile[OWN](thread).vectorize[OWN]().copy_from(mine.vectorize[OWN]())


def shared_and_local(place: Place) -> Found:
    """Shared memory, in which threads read what others have written, and local memory of each thread."""
    numbers = np.random.default_rng().standard_normal(512, dtype=np.float32)
    dst = place.poisoned(512)
    reverse[2](weft.LayoutTensor(place.array(numbers)), weft.LayoutTensor(dst), OWN=4, block=64)
    return place.numpy(dst), numbers.reshape(2, 256)[:, ::-1].reshape(512)


@weft.jit
def sum_tiles(src, dst, SIZE: gl.constexpr):
    tiles = src.tiled_iterator(SIZE, SIZE, axis=1)(gl.block_idx.x, 0)
    row, col = gl.thread_idx.y, gl.thread_idx.x
    total = gl.to_tensor(0.0)
    for _ in range(gl.cdiv(src.dim(1), SIZE)):
        tile = tiles[()]
        if row < tile.dim(0) and col < tile.dim(1):
            total += tile[row, col]
        tiles += 1
    dst.tile[SIZE, SIZE](gl.block_idx.x, 0)[row, col] = total


def iterated_by_a_block(place: Place) -> Found:
    """A block that iterates over a row of tiles, the last of which is smaller."""
    numbers = np.random.default_rng().integers(-50, 50, (16, 30)).astype(np.float32)
    dst = place.poisoned(16, 8)
    src = weft.LayoutTensor(place.array(numbers), masked=True)
    sum_tiles[2](src, weft.LayoutTensor(dst), SIZE=8, block=(8, 8))
    return place.numpy(dst), np.pad(numbers, ((0, 0), (0, 2))).reshape(16, 4, 8).sum(axis=1)


@weft.jit
def add_places(matrix, SIZE: gl.constexpr):
    """Add its index to every element: the first warp of a block copies a tile to shared memory and back."""
    width: gl.constexpr = gl.simd_width_of(matrix.dtype)
    lanes: gl.constexpr = gl.Layout.row_major(gl.WARP_SIZE // width, width)
    shared = gl.LayoutTensor.stack_allocation(matrix.dtype, gl.Layout.row_major(SIZE, SIZE), address_space=SHARED)
    tile = matrix.tile[SIZE, SIZE](gl.block_idx.y, gl.block_idx.x)
    here = tile.vectorize[1, width]().distribute[lanes](gl.lane_id())
    there = shared.vectorize[1, width]().distribute[lanes](gl.lane_id())
    if gl.warp_id() == 0:
        there.copy_from_async(here)
        gl.async_copy_wait_all()
    # A thread waits for its own copies only. The barrier orders all threads after all copies.
    gl.barrier()
    shared[gl.thread_idx.y, gl.thread_idx.x] += gl.global_idx.y * matrix.dim(1) + gl.global_idx.x
    gl.barrier()
    if gl.warp_id() == 0:
        here.copy_from(there)


def copied_ahead(place: Place) -> Found:
    """Copies that threads wait for only when they need the elements."""
    numbers = np.random.default_rng().integers(-50, 50, (64, 128)).astype(np.float32)
    matrix = place.array(numbers)
    add_places[(8, 4)](weft.LayoutTensor(matrix), SIZE=16, block=(16, 16))
    return place.numpy(matrix), numbers + np.arange(64 * 128).reshape(64, 128)


@weft.jit
def to_rows(src, dst, ROWS: gl.constexpr, COLS: gl.constexpr):
    """One tile per block: read in the layout of the source and written in that of the destination, both in memory order."""
    shared = gl.LayoutTensor.stack_allocation(src.dtype, gl.Layout.row_major(ROWS, COLS), address_space=SHARED)
    here = src.tile[ROWS, COLS](gl.block_idx.y, gl.block_idx.x)
    there = dst.tile[ROWS, COLS](gl.block_idx.y, gl.block_idx.x)
    down: gl.constexpr = gl.Layout.col_major(ROWS, gl.block_dim.x // ROWS)
    across: gl.constexpr = gl.Layout.row_major(gl.block_dim.x // COLS, COLS)
    gl.copy_dram_to_sram(shared, here, down)
    gl.barrier()
    gl.copy_sram_to_dram(there, shared, across)


def copied_by_a_block(place: Place) -> Found:
    """Copies between layouts, divided over all threads of a block by a thread layout."""
    numbers = np.arange(32 * 64, dtype=np.float32)
    # Tiles of 16 x 16, each in memory column by column.
    layout = weft.Layout(((16, 2), (16, 4)), ((1, 4 * 256), (16, 256)))
    src, dst = weft.LayoutTensor(place.array(numbers), layout), place.poisoned(32, 64)
    to_rows[(4, 2)](src, weft.LayoutTensor(dst), ROWS=16, COLS=16, block=64)
    return place.numpy(dst), numbers.reshape(2, 4, 16, 16).transpose(0, 3, 1, 2).reshape(32, 64)


PROGRAMS: tuple[Callable[[Place], Found], ...] = (
    elements,
    nested,
    masked_tiles,
    tiles_of_a_buffer,
    tiles_of_a_row,
    vectors,
    fragments,
    other_layouts,
    changed_by_threads,
    made_in_a_kernel,
    shared_and_local,
    iterated_by_a_block,
    copied_ahead,
    copied_by_a_block,
)


def row(place: Place, program: Callable[[Place], Found]) -> dict[str, Any]:
    """One line of the table: run a program, compare all numbers. Raises AssertionError where one differs."""
    found, want = program(place)
    np.testing.assert_array_equal(np.asarray(found), want)
    return {
        "program": program.__name__.replace("_", " "),
        "what it shows": program.__doc__,
        "numbers": np.asarray(want).size,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, program) for program in PROGRAMS]
    workbench.report("Views of memory", rows, given.place, given.plot, "numbers")


if __name__ == "__main__":
    main()
