"""Threads of a block together: tiles in shared memory, reductions by shuffles, atomics, copies that run beside them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, Viewed, frozen, poison, random, same
from weft import language as gl

SHARED = gl.AddressSpace.SHARED


@weft.jit
def transpose_naive(out, x):
    i, j = gl.global_idx.y, gl.global_idx.x
    if i < x.dim(0) and j < x.dim(1):
        out[j, i] = x[i, j]


@weft.jit
def transpose_tiled(out, x, stride: gl.constexpr):
    """A tile of 32 x 32 through shared memory, by 32 x 8 threads."""
    tile = gl.LayoutTensor.stack_allocation(x.dtype, gl.Layout((32, 32), (stride, 1)), address_space=SHARED)
    tx, ty = gl.thread_idx.x, gl.thread_idx.y
    source = x.tile[32, 32](gl.block_idx.y, gl.block_idx.x)
    for row in gl.static_range(0, 32, 8):
        tile[ty + row, tx] = source[ty + row, tx]
    gl.barrier()
    target = out.tile[32, 32](gl.block_idx.x, gl.block_idx.y)
    for row in gl.static_range(0, 32, 8):
        target[ty + row, tx] = tile[tx, ty + row]


@pytest.mark.parametrize("shape", [(1, 1), (33, 70), (64, 32)])
def test_transposes_without_shared_memory(run, rng, shape):
    x, out = random(rng, np.float32, shape), poison(shape[::-1], np.float32)
    run(transpose_naive, (-(-shape[1] // 32), -(-shape[0] // 8)), Viewed(out), Viewed(x), block=(32, 8))
    same(out, np.ascontiguousarray(x.T))


@pytest.mark.parametrize("dtype", [gl.float32, gl.float16, gl.int8, gl.float64], ids=str)
def test_transposes_through_shared_memory(run, rng, dtype):
    x, out = random(rng, NUMPY[dtype], (64, 96)), poison((96, 64), NUMPY[dtype])
    run(transpose_tiled, (3, 2), Viewed(out), Viewed(x), 33, block=(32, 8))
    same(out, np.ascontiguousarray(x.T))


@weft.jit
def matmul(c, a, b, size: gl.constexpr):
    """One element of the product a thread; tiles of both matrices in shared memory. Edges count as zeros."""
    layout = gl.Layout.row_major(size, size)
    left = gl.LayoutTensor.stack_allocation(gl.float32, layout, address_space=SHARED)
    right = gl.LayoutTensor.stack_allocation(gl.float32, layout, address_space=SHARED)
    tx, ty = gl.thread_idx.x, gl.thread_idx.y
    row, col = gl.global_idx.y, gl.global_idx.x
    acc = 0.0
    for k in range((a.dim(1) + size - 1) // size):
        left[ty, tx] = 0.0
        right[ty, tx] = 0.0
        if row < a.dim(0) and k * size + tx < a.dim(1):
            left[ty, tx] = a[row, k * size + tx]
        if k * size + ty < b.dim(0) and col < b.dim(1):
            right[ty, tx] = b[k * size + ty, col]
        gl.barrier()
        for i in gl.static_range(size):
            acc += left[ty, i] * right[i, tx]
        gl.barrier()
    if row < c.dim(0) and col < c.dim(1):
        c[row, col] = acc


@pytest.mark.parametrize("shape", [(16, 16, 16), (20, 33, 17), (1, 5, 70)])
def test_products(run, rng, shape):
    m, n, k = shape
    a = frozen(rng.integers(-8, 9, (m, k)).astype(np.float32))
    b = frozen(rng.integers(-8, 9, (k, n)).astype(np.float32))
    c = poison((m, n), np.float32)
    run(matmul, (-(-n // 8), -(-m // 8)), Viewed(c), Viewed(a), Viewed(b), 8, block=(8, 8))
    same(c, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32))


@weft.jit
def row_sums(out, x):
    """A block a row: sums of each warp by shuffles, then of the warps through shared memory."""
    warps = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(4), address_space=SHARED)
    total = 0
    for j in range(gl.thread_idx.x, x.dim(1), gl.block_dim.x):
        total += x[gl.block_idx.x, j]
    total = gl.warp_sum(total)
    if gl.lane_id() == 0:
        warps[gl.warp_id()] = total
    gl.barrier()
    if gl.thread_idx.x == 0:
        out[gl.block_idx.x] = warps[0] + warps[1] + warps[2] + warps[3]


def test_sums_by_shuffles(run, rng):
    x, out = frozen(rng.integers(-99, 99, (5, 301)).astype(np.int32)), poison(5, np.int32)
    run(row_sums, 5, Viewed(out), Viewed(x), block=128)
    same(out, x.sum(axis=1, dtype=np.int32))


@weft.jit
def extremes(out, x):
    i = gl.block_idx.x * 64 + gl.thread_idx.y * 32 + gl.thread_idx.x
    v = x[i]
    up = gl.shuffle_xor(v, 1)
    out[i, 0] = gl.warp_max(v)
    out[i, 1] = gl.warp_min(v)
    out[i, 2] = up
    out[i, 3] = gl.shuffle_idx(v, 31 - gl.lane_id())


def test_shuffles(run, rng):
    x, out = random(rng, np.float32, 128), poison((128, 4), np.float32)
    run(extremes, 2, Viewed(out), Viewed(x), block=(32, 2))
    warps = x.reshape(4, 32)
    t = np.arange(128)
    each = [warps.max(1).repeat(32), warps.min(1).repeat(32), x[t ^ 1], warps[:, ::-1].reshape(-1)]
    same(out, np.stack(each, axis=1))


@weft.jit
def histogram(out, x, bins: gl.constexpr):
    """Counts in shared memory, then added to those of all blocks."""
    counts = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(bins), address_space=SHARED)
    for i in range(gl.thread_idx.x, bins, gl.block_dim.x):
        counts[i] = 0
    gl.barrier()
    i = gl.global_idx.x
    if i < x.dim(0):
        gl.atomic_add(counts.tile[1](x[i]), 1)
    gl.barrier()
    for i in range(gl.thread_idx.x, bins, gl.block_dim.x):
        gl.atomic_add(out.tile[1](i), counts[i])


def test_atomics(run, rng):
    x, out = frozen(rng.integers(0, 10, 333).astype(np.int32)), np.zeros(10, np.int32)
    run(histogram, 4, Viewed(out), Viewed(x), 10, block=96)
    same(out, np.bincount(x, minlength=10).astype(np.int32))


@weft.jit
def async_tiles(out, x, threads: gl.constexpr):
    """A tile of 16 x 16 arrives by copies of one warp, is doubled by all threads, and goes back."""
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(16, 16), address_space=SHARED, masked=True)
    source = x.tile[16, 16](gl.block_idx.y, gl.block_idx.x)
    if gl.warp_id() == 0:
        tile.distribute[threads](gl.lane_id()).copy_from_async(source.distribute[threads](gl.lane_id()))
    gl.async_copy_wait_all()
    gl.barrier()
    tx, ty = gl.thread_idx.x, gl.thread_idx.y
    tile[ty, tx] = tile[ty, tx] * 2
    gl.barrier()
    row, col = gl.global_idx.y, gl.global_idx.x
    if row < out.dim(0) and col < out.dim(1):
        out[row, col] = tile[15 - ty, tx]


@pytest.mark.parametrize("shape", [(32, 16), (20, 30)])
def test_copies_beside_the_threads(run, rng, shape):
    """What is masked off arrives as zeros."""
    x, out = random(rng, np.float32, shape), poison(shape, np.float32)
    threads = gl.Layout.row_major(4, 8)
    grid = -(-shape[1] // 16), -(-shape[0] // 16)
    run(async_tiles, grid, Viewed(out), Viewed(x, masked=True), threads, block=(16, 16))
    full = np.zeros((grid[1] * 16, grid[0] * 16), np.float32)
    full[: shape[0], : shape[1]] = x * 2
    full = full.reshape(grid[1], 16, -1)[:, ::-1].reshape(full.shape)
    same(out, np.ascontiguousarray(full[: shape[0], : shape[1]]))
