"""Kernels of single threads over views: every element type, blocks that are no whole warps, edges, vectors, local arrays."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import DTYPES, FLOATS, NUMPY, Viewed, frozen, kept_poison, poison, random, same, values
from weft import language as gl


@weft.jit
def add_one(t):
    if gl.global_idx.x < t.dim(0) and gl.global_idx.y < t.dim(1):
        t[gl.global_idx.x, gl.global_idx.y] += 1


@pytest.mark.parametrize("block", [(8, 8), (40, 1), (3, 5)])
def test_add_one(run, block):
    x = np.arange(30 * 29, dtype=np.float32).reshape(30, 29)
    want = x + 1
    run(add_one, (-(-30 // block[0]), -(-29 // block[1])), Viewed(x), block=block)
    same(x, want)


@weft.jit
def copy(out, x):
    i = gl.global_idx.x
    if i < x.dim(0):
        out[i] = x[i]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 97])
def test_copies_of_every_type(run, rng, dtype, n):
    x, out = values(rng, NUMPY[dtype], n), poison(n + 3, NUMPY[dtype])
    run(copy, 3, Viewed(out), Viewed(x), block=40)
    same(out[:n], x)
    kept_poison(out, n)


@weft.jit
def axpy(out, x, y, a):
    """One element of any layout a thread."""
    i, j = gl.global_idx.y, gl.global_idx.x
    if i >= out.dim(0) or j >= out.dim(1):
        return
    out[i, j] = a * x[i, j] + y[i, j]


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (16, 32)])
def test_layouts_of_any_strides(run, rng, shape):
    """A transposed input, one with gaps between its rows, and an output in column-major order."""
    m, n = shape
    x = random(rng, np.float32, (n, m)).T
    y = frozen(np.array(random(rng, np.float32, (m, n + 5))))
    out = poison((m, n), np.float32)
    views = Viewed(out, gl.Layout.col_major(m, n)), Viewed(x), Viewed(y, gl.Layout((m, n), (n + 5, 1)))
    run(axpy, (-(-n // 16), -(-m // 4)), *views, 0.5, block=(16, 4), exact=False)
    want = np.float32(0.5) * x + y[:, :n]
    same(out.reshape(-1).reshape(n, m).T.copy(), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts_with_sizes_of_the_run_time(run, rng, dtype):
    """One compiled kernel for arrays of any size."""
    unknown = gl.Layout((gl.UNKNOWN, gl.UNKNOWN), (gl.UNKNOWN, 1))
    for m, n in ((5, 9), (13, 40)):
        x = random(rng, NUMPY[dtype], (m, n))
        out = poison((m, n), NUMPY[dtype])
        run(doubled, (-(-n // 8), -(-m // 4)), Viewed(out, unknown), Viewed(x, unknown), block=(8, 4))
        same(out, x + x)


@weft.jit
def doubled(out, x):
    i, j = gl.global_idx.y, gl.global_idx.x
    if i < out.dim(0) and j < out.dim(1):
        out[i, j] = x[i, j] + x[i, j]


@weft.jit
def vectors(out, x, width: gl.constexpr):
    from_, to = x.vectorize[1, width](), out.vectorize[1, width]()
    i, j = gl.global_idx.y, gl.global_idx.x
    if i < to.dim(0) and j < to.dim(1):
        v = from_[i, j]
        to[i, j] = v + v


@pytest.mark.parametrize(
    ("dtype", "width"), [(gl.float32, 2), (gl.float32, 4), (gl.float16, 8), (gl.int8, 16), (gl.float64, 2)]
)
def test_vectors(run, rng, dtype, width):
    x = random(rng, NUMPY[dtype], (5, 6 * width))
    out = poison(x.shape, NUMPY[dtype])
    run(vectors, (1, 2), Viewed(out), Viewed(x), width, block=(8, 3))
    same(out, x + x)


@weft.jit
def by_load(out, x):
    """Vectors at any place of a row, by `load` and `store`."""
    i = gl.global_idx.x
    if i * 4 < x.dim(1):
        out.store(0, i * 4, x.load[4](0, i * 4) * 2)


def test_load_and_store(run, rng):
    x = random(rng, np.int32, (1, 44))
    out = poison((1, 44), np.int32)
    run(by_load, 2, Viewed(out), Viewed(x), block=8)
    same(out, x * 2)


@weft.jit
def copy_tiles(out, x, threads: gl.constexpr):
    """Each thread copies its fragment of the block's tile; tiles at the edge are cut off."""
    to = out.tile[16, 16](gl.block_idx.y, gl.block_idx.x).distribute[threads](gl.thread_idx.x)
    to.copy_from(x.tile[16, 16](gl.block_idx.y, gl.block_idx.x).distribute[threads](gl.thread_idx.x))


@pytest.mark.parametrize("shape", [(32, 32), (17, 30), (3, 5)])
@pytest.mark.parametrize("threads", [gl.Layout.row_major(4, 8), gl.Layout.col_major(8, 8)], ids=str)
def test_fragments_of_tiles_at_the_edge(run, rng, shape, threads):
    x, out = random(rng, np.float32, shape), poison(shape, np.float32)
    grid = -(-shape[1] // 16), -(-shape[0] // 16)
    run(copy_tiles, grid, Viewed(out, masked=True), Viewed(x, masked=True), threads, block=threads.size())
    same(out, x)


@weft.jit
def doubled_tiles(out, x):
    """Each thread doubles its own 4x4 elements, if there are any: grids are rounded up."""
    here = x.tile[4, 4](gl.global_idx.y, gl.global_idx.x)
    out.tile[4, 4](gl.global_idx.y, gl.global_idx.x).copy_from(2 * here)


@pytest.mark.parametrize("shape", [(8, 8), (64, 32), (12, 20)])
def test_threads_beyond_a_masked_view_that_tiles_divide_touch_nothing(run, rng, shape):
    x, out = random(rng, np.float32, shape), poison(shape, np.float32)
    grid = -(-shape[1] // 32), -(-shape[0] // 32)
    run(doubled_tiles, grid, Viewed(out, masked=True), Viewed(x, masked=True), block=(8, 8))
    same(out, 2 * x)


@weft.jit
def reversed_rows(out, x, unrolled: gl.constexpr):
    """A row of four a thread, through its own array, backwards."""
    i = gl.global_idx.x
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(4), address_space=gl.AddressSpace.LOCAL)
    if i < x.dim(0):
        for j in gl.static_range(4):
            mine[j] = x[i, j]
        if unrolled:
            for j in gl.static_range(4):
                out[i, j] = mine[3 - j]
        else:
            for j in range(4):
                out[i, j] = mine[3 - j]


@pytest.mark.parametrize("unrolled", [True, False])
@pytest.mark.filterwarnings("ignore::weft.errors.PerformanceWarning")
def test_local_arrays(run, rng, unrolled):
    x, out = random(rng, np.int32, (45, 4)), poison((45, 4), np.int32)
    run(reversed_rows, 2, Viewed(out), Viewed(x), unrolled, block=40, spills=not unrolled)
    same(out, np.ascontiguousarray(x[:, ::-1]))


@weft.jit
def until_small(out, x):
    """Threads that leave a loop at different times, under a branch that some do not take."""
    i = gl.global_idx.x
    if i >= x.dim(0):
        return
    v = x[i]
    steps = 0
    if v > 0:
        while v != 1:
            v = 3 * v + 1 if v % 2 == 1 else v // 2
            steps += 1
    else:
        steps = -1
    out[i] = steps


def test_loops_of_different_lengths(run, rng):
    x = frozen(rng.integers(-3, 60, 70).astype(np.int32))
    out = poison(70, np.int32)
    run(until_small, 2, Viewed(out), Viewed(x), block=40)
    want = np.full(70, -1, np.int32)
    for place, n in enumerate(x.tolist()):
        steps = 0
        while n > 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        want[place] = steps if x[place] > 0 else -1
    same(out, want)
