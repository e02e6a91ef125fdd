"""Copies between all memories, vectors, iterators and swizzles of threads, on both back ends."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl
from weft.errors import UserError

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL
ROWS = gl.Layout.row_major(8, 8)
"""64 threads, 8 rows of 8."""
WIDTH = gl.simd_width_of(gl.float32)


@weft.jit
def through_all_memories(out, x):
    # Of a 32x32 tile each thread has 4 rows of one vector.
    mine = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(4, WIDTH), address_space=LOCAL)
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(32, 32), address_space=SHARED)
    i, j = gl.block_idx.y, gl.block_idx.x
    gl.copy_dram_to_local(mine.vectorize[1, WIDTH](), x.tile[32, 32](i, j).vectorize[1, WIDTH](), ROWS)
    gl.copy_local_to_shared(tile.vectorize[1, WIDTH](), mine.vectorize[1, WIDTH](), ROWS)
    gl.barrier()
    back = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(4, WIDTH), address_space=LOCAL)
    gl.copy_sram_to_local(back.vectorize[1, WIDTH](), tile.vectorize[1, WIDTH](), ROWS)
    gl.copy_local_to_dram(out.tile[32, 32](i, j).vectorize[1, WIDTH](), back.vectorize[1, WIDTH](), ROWS)


def test_around_through_all_memories(run, rng):
    x, out = random(rng, np.float32, (64, 96)), poison((64, 96), np.float32)
    run(through_all_memories, (3, 2), Viewed(out), Viewed(x), block=64)
    same(out, x)


SWIZZLED = gl.ComposedLayout(gl.Swizzle(5, 0, 5), 0, gl.Layout.row_major(32, 32))


@weft.jit
def transposed(out, x):
    flat = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout(32 * 32), address_space=SHARED)
    src = x.tile[32, 32](gl.block_idx.y, gl.block_idx.x)
    dst = out.tile[32, 32](gl.block_idx.x, gl.block_idx.y)
    warp, lane = gl.thread_idx.x // gl.WARP_SIZE, gl.thread_idx.x % gl.WARP_SIZE
    for row in range(warp, 32, gl.block_dim.x // gl.WARP_SIZE):
        flat[SWIZZLED(row, lane)] = src[row, lane]
    gl.barrier()
    for row in range(warp, 32, gl.block_dim.x // gl.WARP_SIZE):
        dst[row, lane] = flat[SWIZZLED(lane, row)]


def test_a_transpose_through_a_swizzled_tile(run, rng):
    x, out = random(rng, np.float32, (64, 96)), poison((96, 64), np.float32)
    run(transposed, (3, 2), Viewed(out), Viewed(x), block=128)
    same(out, np.ascontiguousarray(x.T))


@weft.jit
def weighted(out, data, tiles):
    # A block adds up every grid_dim.x-th tile of memory, each element with a weight by its place in a vector.
    total = gl.SIMD[gl.float32, 4](0)
    weights = gl.SIMD[gl.float32, 4](1, 2, 3, 4)
    each = gl.LayoutTensorIter(data, gl.Layout.row_major(32, 4), bound=tiles * 128)
    each += gl.block_idx.x
    for _ in range(gl.block_idx.x, tiles, gl.grid_dim.x):
        total += each[()].vectorize[1, 4]()[gl.thread_idx.x, 0] * weights
        each += gl.grid_dim.x
    out[gl.block_idx.x, gl.thread_idx.x] = total.reduce_add()


def test_tiles_of_a_buffer_one_after_another(run, rng):
    tiles = 7
    x, out = rng.integers(-9, 9, (tiles, 32, 4)).astype(np.float32), poison((2, 32), np.float32)
    run(weighted, 2, Viewed(out), x, tiles, block=32)
    sums = (x * np.array([1, 2, 3, 4])).sum(axis=2)
    same(out, np.stack([sums[0::2].sum(axis=0), sums[1::2].sum(axis=0)]).astype(np.float32))


@weft.jit
def by_some(out, x, AXES: gl.constexpr):
    shared = gl.stack_allocation[gl.float32, SHARED](gl.row_major[8, 16]())
    threads: gl.constexpr = gl.Layout.row_major(2, 4)
    gl.copy_dram_to_sram_async(
        shared.vectorize(1, 4), x.vectorize(1, 4), threads, num_threads=gl.block_dim.x, block_dim_count=AXES
    )
    gl.async_copy_wait_all()
    gl.barrier()
    gl.copy_sram_to_dram(thread_layout=threads, num_threads=gl.block_dim.x)(out.vectorize(1, 4), shared.vectorize(1, 4))


def test_threads_beyond_the_layout_copy_nothing(run, rng):
    x, out = random(rng, np.float32, (8, 16)), poison((8, 16), np.float32)
    run(by_some, 1, Viewed(out), Viewed(x), None, block=64)
    same(out, x)
    run(by_some, 1, Viewed(out), Viewed(x + 1), 1, block=(32, 1))
    same(out, x + 1)


def test_too_few_threads_for_a_layout():
    @weft.jit
    def kernel(x):
        shared = gl.stack_allocation[gl.float32, SHARED](gl.row_major[32]())
        gl.copy_dram_to_sram(shared, x, gl.Layout.row_major(32), num_threads=16)

    with pytest.raises(UserError) as caught:
        kernel[1](weft.LayoutTensor(np.zeros(32, np.float32)), block=64)
    assert caught.value.code == "view-threads-few"


@weft.jit
def edges(out, x):
    """Tiles of sizes that do not divide a view, and tiles inside of the stored tiles of another."""
    i, j = gl.block_idx.y, gl.block_idx.x
    src, dst = x.tile[8, 8](i, j), out.tile[8, 8](i, j)
    y, z = gl.thread_idx.y, gl.thread_idx.x
    if y < src.dim(0) and z < src.dim(1):
        dst[y, z] = src[y, z] * 2


@pytest.mark.parametrize("shape", [(21, 30), (8, 9), (5, 5)])
def test_tiles_of_sizes_that_do_not_divide(run, rng, shape):
    x, out = random(rng, np.float32, shape), poison(shape, np.float32)
    run(edges, (-(-shape[1] // 8), -(-shape[0] // 8)), Viewed(out), Viewed(x), block=(8, 8))
    same(out, x * 2)


@weft.jit
def inner_tiles(out, x):
    k = gl.thread_idx.x
    out.tile[2, 2](k // 4, k % 4).copy_from(x.tile[2, 2](k // 4, k % 4))


def test_tiles_inside_of_a_mode(run, rng):
    tiled = gl.Layout(((4, 2), (4, 2)), ((4, 32), (1, 16)))
    x, out = random(rng, np.float32, 64), poison((8, 8), np.float32)
    run(inner_tiles, 1, Viewed(out), Viewed(x, tiled), block=16)
    same(out, np.asarray(weft.LayoutTensor(x, tiled)))
