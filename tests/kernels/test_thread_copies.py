"""Copies between all memories, vectors, iterators and swizzles of threads, on both back ends."""

from __future__ import annotations

import numpy as np

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl

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
