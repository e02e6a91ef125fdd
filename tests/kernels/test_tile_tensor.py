"""The names of Mojo's `TileTensor`: free layouts and allocations, coordinates, aligned accesses, pointers as arrays."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl

SHARED = gl.AddressSpace.SHARED
N = 64


@weft.jit
def shifted(out: gl.TileTensor, x: gl.TileTensor):
    tile = gl.stack_allocation[gl.float32, SHARED](gl.row_major[N]())
    i = gl.thread_idx.x
    tile[i] = x[i]
    gl.barrier()
    total: out.ElementType = 0
    for k in range(2):
        total += tile[(i + k) % x.shape[0]()]
    out[i] = total


def test_shared_memory_by_free_functions(run, rng):
    x, out = random(rng, np.float32, N), poison(N, np.float32)
    run(shifted, 1, Viewed(out), Viewed(x), block=N)
    same(out, x + np.roll(x, -1))


@weft.jit
def by_vectors(out, x, WIDTH: gl.constexpr):
    i = WIDTH * gl.thread_idx.x
    v = x.aligned_load[WIDTH](gl.Index(1, i))
    out.store[WIDTH](gl.Index(0, i), v + 1)
    out.store[WIDTH](1, i, gl.thread_idx.x)


def test_vectors_at_coordinates(run, rng):
    x, out = random(rng, np.float32, (2, N)), poison((2, N), np.float32)
    kernel = run(by_vectors, 1, Viewed(out), Viewed(x), 4, block=N // 4)
    same(out[0], x[1] + 1)
    same(out[1], np.arange(N, dtype=np.float32) // 4)
    assert "load_f32x4" in kernel.asm["cuda"] and "load_f32x2" not in kernel.asm["cuda"]


@weft.jit
def unaligned(out, x, BYTES: gl.constexpr):
    i = 4 * gl.thread_idx.x + 2
    v = x.load(width=4, load_alignment=BYTES)(i)
    out.store(width=4, store_alignment=BYTES)(i, v * 2)


def test_vectors_of_a_smaller_alignment(run, rng):
    for nbytes in (4, 8):
        x, out = random(rng, np.float32, N + 4), np.zeros(N + 4, np.float32)
        kernel = run(unaligned, 1, Viewed(out), Viewed(x), nbytes, block=N // 4)
        same(out[2:-2], x[2:-2] * 2)
        assert "load_f32x4" not in kernel.asm["cuda"]
        assert ("load_f32x2" in kernel.asm["cuda"]) == (nbytes == 8)


@weft.jit
def nested(out, x):
    i = gl.thread_idx.x
    tile = x.tile[2, 2](gl.Coord(1, 0))
    out[gl.Coord(gl.Coord(i, 0), gl.Coord(0, 1))] = tile[gl.Coord(i, 1)]
    out[i, 1, 0, 1] = x.reshape(gl.row_major[8, 2]())[i, 1]


def test_nested_coordinates(run, rng):
    x, out = random(rng, np.float32, (4, 4)), np.zeros(16, np.float32)
    run(nested, 1, Viewed(out, gl.Layout(((2, 2), (2, 2)), ((2, 8), (1, 4)))), Viewed(x), block=2)
    same(out[[4, 6]], x[2:4, 1])
    same(out[[12, 14]], x.reshape(8, 2)[:2, 1])


@weft.jit
def fragments(out, x, THREADS: gl.constexpr):
    mine = x.distribute[THREADS](gl.thread_idx.x)
    of_out = out.distribute[THREADS](gl.thread_idx.x)
    for i in gl.static_range(2):
        for j in gl.static_range(2):
            of_out[i, j, 0] = mine[i, j, 0] * 2 + gl.thread_idx.x


def test_nested_fragments(run, rng):
    layout, threads = gl.Layout(((4, 4), 2), ((1, 8), 4)), gl.Layout(((2, 2), 2), ((1, 2), 4))
    x, out = random(rng, np.float32, 32), poison(32, np.float32)
    run(fragments, 1, Viewed(out, layout), Viewed(x, layout), threads, block=8)
    i = np.arange(32)
    same(out, x * 2 + (i % 2 + i // 8 % 2 * 2 + i // 4 % 2 * 4).astype(np.float32))


@weft.jit
def with_offsets(out, x, THREADS: gl.constexpr):
    i = gl.thread_idx.x
    tile, corner, offset = x.tile_with_offset[2, 4](gl.block_idx.x, 1)
    mine, coordinate, more = tile.distribute_with_offset[THREADS](i)
    row = out.tile[1, 4](gl.block_idx.x * 4 + i, 0)
    row[0, 0] = mine[0, 1]
    row[0, 1] = x.ptr[offset + more]
    row[0, 2] = x.load(gl.Coord(corner[0] + coordinate[0], gl.Idx[0]))
    row.ptr_at_offset(gl.Coord(0, 3))[0] = x.vectorize[1, 4]().load_scalar(corner[0], 1)


def test_parts_with_their_offsets(run, rng):
    x, out = random(rng, np.float32, (4, 8)), poison((8, 4), np.float32)
    run(with_offsets, 2, Viewed(out), Viewed(x), gl.Layout.row_major(2, 2), block=4)
    row, column = np.repeat(np.arange(4), 2), np.tile([4, 5], 4)
    same(out, np.stack([x[row, column + 2], x[row, column], x[row, 0], x[row // 2 * 2, 4]], axis=1))


@weft.jit
def slices(out, x, n, first):
    i = gl.thread_idx.x
    part = x.split(axis=0)(n, gl.block_idx.x)
    if i < part.dim(0):
        rows = x.slice((first, first + 2), gl.All)
        out.slice(gl.block_idx.x, gl.All)[i] = part[i, 0] + rows[1, i]


def test_slices_and_splits_at_run_time(run, rng):
    x, out = random(rng, np.float32, (8, 4)), np.zeros((3, 3), np.float32)
    run(slices, 3, Viewed(out), Viewed(x), 3, 5, block=3)
    want = np.zeros(9, np.float32)
    want[:8] = x[:, 0] + x[6, np.arange(8) % 3]
    same(out, want.reshape(3, 3))


@weft.jit
def far(out, x, first):
    out[gl.thread_idx.x] = x.slice((first, first + 3), gl.All)[gl.thread_idx.x, 0]


def test_a_slice_beyond_the_view(rng):
    with pytest.raises(weft.errors.Hazard, match=r"at the end of slice first:... along axis 0 of x"):
        far[1](weft.LayoutTensor(np.zeros(3)), weft.LayoutTensor(np.zeros((8, 4))), 6, block=3)


@weft.jit
def of_shared(out, x):
    i = gl.thread_idx.x
    tile = gl.stack_allocation_like[SHARED](x)
    tile.aligned_store[2](gl.Index(i, 0), x.aligned_load[2](i, 0))
    gl.barrier()
    pairs = gl.LayoutTensorIter(tile, gl.row_major(2, 1)).reshape[gl.row_major(1, 2)]().next(3 - i).get()
    out.store_linear(gl.Index(i, 0), pairs.load_linear[2](gl.Index(0, 0)))
    out[i, 1] //= 2
    out[i, 1] += x.flatten()[2 * i]


def test_memory_like_a_view(run, rng):
    x, out = rng.integers(0, 99, (4, 2)).astype(np.int32), poison((4, 2), np.int32)
    run(of_shared, 1, Viewed(out), Viewed(x), block=4)
    same(out, np.stack([x[::-1, 0], x[::-1, 1] // 2 + x[:, 0]], axis=1))


@weft.jit
def counts(out, x):
    bins = gl.stack_allocation[gl.int32, SHARED](gl.row_major[2, 4]())
    i = gl.thread_idx.x
    if i < 8:
        bins[i // 4, i % 4] = 0
    gl.barrier()
    gl.atomic_add(bins.ptr_at_offset(gl.Coord(1, x[i])), 1)
    gl.atomic_add(bins.ptr, 1)
    gl.barrier()
    if i < 8:
        gl.atomic_max(out.ptr_at_offset(gl.Coord(i // 4, i % 4)), bins[i // 4, i % 4])


def test_atomics_at_pointers(run, rng):
    x, out = rng.integers(0, 4, 32).astype(np.int32), np.full((2, 4), 3, np.int32)
    run(counts, 1, Viewed(out), Viewed(x), block=32)
    same(out, np.maximum([[32, 0, 0, 0], np.bincount(x, minlength=4)], 3).astype(np.int32))


@weft.jit
def in_place(out, x, y):
    mine = gl.stack_allocation_like(x.tile[1, 8](0, 0))
    mine.copy_from(x.tile[1, 8](gl.thread_idx.x, 0))
    mine.max(y.tile[1, 8](gl.thread_idx.x, 0)).min(0.75)
    out.tile[1, 8](gl.thread_idx.x, 0).copy_from(mine.exp(scale=-2).recip())
    row = out.vectorize[1, 4]().tile[1, 2](gl.thread_idx.x + 3, 0)
    row.copy_from(y.tile[1, 8](gl.thread_idx.x, 0))
    row -= 1
    row.abs()


def test_functions_in_place(run, rng):
    x, y, out = random(rng, np.float32, (3, 8)), random(rng, np.float32, (3, 8)), poison((6, 8), np.float32)
    run(in_place, 1, Viewed(out), Viewed(x), Viewed(y), block=3, exact=False)  # exp
    np.testing.assert_allclose(out[:3], np.exp(2 * np.minimum(np.maximum(x, y), 0.75)), rtol=1e-5)
    same(out[3:], np.abs(y - 1))


@weft.jit
def of_axes(out, x):
    i = gl.thread_idx.x
    out[i] = x[i, 3 - i] + 100 * x[gl.Coord(gl.Coord(i % 2, i // 2), gl.Idx[1])]
    if i == 0:
        out.store[2](gl.Coord(gl.block_dim.x), x.load[2](gl.Idx[2], 0))


def test_nested_views_take_an_index_for_an_axis(run):
    layout = gl.Layout(((2, 2), (2, 2)), ((1, 4), (2, 8)))
    x, out = np.arange(16, dtype=np.int32), poison(6, np.int32)
    run(of_axes, 1, Viewed(out), Viewed(x, layout), block=4)
    same(out, np.array([*(layout(i, 3 - i) + 100 * layout(i, 1) for i in range(4)), 4, 5], np.int32))


@weft.jit
def by_pointers(out, x, n):
    i = gl.global_idx.x
    if i < n:
        out[i] = x[i] + 10.0
        out.unsafe_offset(n)[i] = x.unsafe_offset(i)[0]
        out[i] += x[0]


def test_pointers_are_arrays(run, rng):
    x, out = random(rng, np.float32, 50), poison(100, np.float32)
    run(by_pointers, 2, out, x, 50, block=32)
    same(out[:50], x + np.float32(10) + x[0])
    same(out[50:], x)


@weft.jit
def tiles_by_pointers(out, x, LINE: gl.constexpr):
    at = gl.arange(0, 128, layout=LINE)
    out[at] = x[at] * 2


def test_pointers_take_tiles_of_integers(run, rng):
    x, out = random(rng, np.float32, 128), poison(128, np.float32)
    run(tiles_by_pointers, 1, out, x, gl.BlockedLayout([1], [32], [4], [0]))
    same(out, x * 2)


@weft.jit
def halves(out, x):
    total: gl.float16 = 0
    for k in range(4):
        total += x[k]
    out[gl.thread_idx.x] = total


def test_an_annotated_number_is_of_that_type(run, rng):
    x, out = rng.integers(-9, 9, 4).astype(np.float16), poison(1, np.float16)
    run(halves, 1, Viewed(out), Viewed(x), block=1)
    same(out, x.sum(dtype=np.float16, keepdims=True))
