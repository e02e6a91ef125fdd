"""Views as values of kernels: through helpers, aggregates, loops and branches, over every memory, with all that threads do."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, poison, random, same
from weft import language as gl
from weft.errors import PerformanceWarning

row_major = gl.Layout.row_major
SHARED = gl.AddressSpace.SHARED


@weft.jit
def add_one(t):
    if gl.global_idx.x < t.dim(0) and gl.global_idx.y < t.dim(1):
        t[gl.global_idx.x, gl.global_idx.y] += 1


@pytest.mark.parametrize("layout", [gl.Layout((30, 9), (9, 1)), gl.Layout((gl.UNKNOWN, gl.UNKNOWN), (gl.UNKNOWN, 1))])
def test_one_thread_for_each_element(run, rng, layout):
    x = rng.integers(-99, 99, (30, 9)).astype(np.float32)
    before = x.copy()
    run(add_one, (4, 2), Viewed(x, layout), block=(8, 8))
    same(x, before + 1)


@weft.jit
def twice(out, x, n):
    t = gl.LayoutTensor(x, gl.Layout((gl.UNKNOWN,), (1,)), shape=(n,), name="t")
    i = gl.global_idx.x
    if i >= t.dim(0):
        return
    out[i] = t[i][0] * 2


def test_surplus_threads_return_early(run, rng):
    x, out = random(rng, np.float32, 77), poison(77, np.float32)
    run(twice, 3, Viewed(out), x, 77, block=32)
    same(out, x * 2)


@weft.jit
def transposed(out, x):
    src = gl.LayoutTensor(x, row_major(64, 32))
    dst = gl.LayoutTensor(out, row_major(32, 64))
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout((16, 16), (17, 1)), address_space=SHARED)
    s = src.tile[16, 16](gl.block_idx.y, gl.block_idx.x)
    d = dst.tile[16, 16](gl.block_idx.x, gl.block_idx.y)
    x, y = gl.thread_idx.x, gl.thread_idx.y
    tile[y, x] = s[y, x]
    gl.barrier()
    d[y, x] = tile[x, y]


def test_a_transpose_through_shared_memory(run, rng):
    x, out = random(rng, np.float32, (64, 32)), poison((32, 64), np.float32)
    run(transposed, (2, 4), out, x, block=(16, 16))
    same(out, np.ascontiguousarray(x.T))


@weft.aggregate
class Pair:
    left: gl.LayoutTensor
    right: gl.LayoutTensor
    count: gl.constexpr

    @weft.jit
    def total(self, i):
        found = 0.0
        for k in gl.static_range(self.count):
            found += self.left[i, k] * self.right[i, k]
        return found


@weft.jit
def rows_of(t, i):
    return t.tile[4, 8](i, 0)


@weft.jit
def products(out, x, y, n):
    left = gl.LayoutTensor(x, row_major(32, 8))
    right = gl.LayoutTensor(y, row_major(32, 8))
    sums = gl.LayoutTensor(out, row_major(32))
    thread = gl.thread_idx.x
    pair = Pair(rows_of(left, 0), rows_of(right, 0), 8)
    for i in range(n):
        if thread < 4:
            sums[i * 4 + thread] = pair.total(thread)
        pair.left = rows_of(left, (i + 1) % 8)
        pair.right = rows_of(right, (i + 1) % 8)


def test_views_are_fields_of_aggregates_and_go_round_loops(run, rng):
    x, y = (frozen(rng.integers(-9, 9, (32, 8)).astype(np.float32)) for _ in range(2))
    out = poison(32, np.float32)
    run(products, 1, out, x, y, 8, block=32)
    same(out, (x * y).sum(1))


@weft.jit
def chosen(out, x, y):
    left = gl.LayoutTensor(x, row_major(32, 8))
    right = gl.LayoutTensor(y, row_major(32, 8))
    found = gl.LayoutTensor(out, row_major(32, 2))
    thread = gl.thread_idx.x
    if thread % 2 == 0:
        part = left.tile[4, 8](0, 0)
    else:
        part = right.tile[4, 8](1, 0)
    total = 0.0
    for quarter in part.split(4, axis=1)():
        total += quarter[thread % 4, 1]
    found[thread, 0] = total
    views = (left, right)
    best, k = left[thread, 0], 0
    while k < 8:
        if views[1][thread, k] > best:
            best = max(best, views[1][thread, k])
        k += 1
    found[thread, 1] = min(abs(best), 5.0)


def test_views_are_chosen_by_threads(run, rng):
    x, y = (frozen(rng.integers(-9, 9, (32, 8)).astype(np.float32)) for _ in range(2))
    out = poison((32, 2), np.float32)
    run(chosen, 1, out, x, y, block=32)
    thread = np.arange(32)
    part = np.where((thread % 2 == 0)[:, None], x[thread % 4], y[4 + thread % 4])
    best = np.maximum(x[:, 0], y.max(1))
    same(out, np.stack([part[:, 1::2].sum(1), np.minimum(np.abs(best), 5)], 1))


@weft.jit
def buffered(out, x, n):
    src = gl.LayoutTensor(x, row_major(8, 32))
    dst = gl.LayoutTensor(out, row_major(8, 32))
    thread = gl.thread_idx.x
    now = gl.LayoutTensor.stack_allocation(gl.float32, row_major(32), address_space=SHARED)
    then = gl.LayoutTensor.stack_allocation(gl.float32, row_major(32), address_space=SHARED)
    now[thread] = src[0, thread]
    gl.barrier()
    for i in range(n):
        if i + 1 < n:
            then[thread] = src[i + 1, thread]
        dst[i, thread] = now[31 - thread]
        gl.barrier()
        now, then = then, now


def test_shared_memory_changes_places_in_a_loop(run, rng):
    x, out = random(rng, np.float32, (8, 32)), poison((8, 32), np.float32)
    run(buffered, 1, out, x, 8, block=32)
    same(out, np.ascontiguousarray(x[:, ::-1]))


@weft.jit
def fetched(out, x, n):
    threads: gl.constexpr = row_major(4, 8)
    src = gl.LayoutTensor(x, gl.Layout((gl.UNKNOWN, 32), (32, 1)), shape=(n, 32), masked=True)
    dst = gl.LayoutTensor(out, row_major(16, 32))
    tile = gl.LayoutTensor.stack_allocation(gl.float32, row_major(16, 32), address_space=SHARED)
    mine = tile.vectorize[1, 4]().distribute[threads](gl.thread_idx.x)
    mine.copy_from_async(src.tile[16, 32](0, 0).vectorize[1, 4]().distribute[threads](gl.thread_idx.x))
    gl.async_copy_wait_all()
    gl.barrier()
    gl.copy_sram_to_dram(dst.vectorize[1, 4](), tile.vectorize[1, 4](), threads)


def test_asynchronous_copies_bring_zeros_from_outside(run, rng):
    x, out = random(rng, np.float32, (13, 32)), poison((16, 32), np.float32)
    run(fetched, 1, out, x, 13, block=32)
    same(out, np.concatenate([x, np.zeros((3, 32), np.float32)]))


@weft.jit
def counted(found, peaks, x):
    src = gl.LayoutTensor(x, row_major(64))
    counts = gl.LayoutTensor(found, row_major(8))
    mine = gl.LayoutTensor.stack_allocation(gl.int32, row_major(8), address_space=SHARED)
    thread = gl.thread_idx.x
    if thread < 8:
        mine[thread] = 0
    gl.barrier()
    if src[thread] < 7:
        gl.atomic_add(mine.tile[1](src[thread]), 1)
    gl.barrier()
    if thread < 8:
        gl.atomic_add(counts.tile[1](thread), mine[thread])
    gl.atomic_max(peaks, thread)
    gl.atomic_add(peaks + 1, 1)
    if thread == 5:
        gl.store(peaks + 2, 77)
    gl.atomic_cas(gl.LayoutTensor(peaks + 3, row_major(1)), thread, thread + 1)


def test_atomic_operations_of_threads(run, rng):
    x = frozen(rng.integers(0, 8, 64).astype(np.int32))
    found, peaks = np.zeros(8, np.int32), np.zeros(4, np.int32)
    run(counted, 1, found, peaks, x, block=64, ordered=False)
    want = np.bincount(x, minlength=8)
    want[7] = 0
    same(found, want.astype(np.int32))
    assert peaks[:3].tolist() == [63, 64, 77]
    assert 1 <= peaks[3] <= 64


@weft.jit
def doubled(out, x):
    src = gl.LayoutTensor(x, row_major(32, 8))
    dst = gl.LayoutTensor(out, row_major(32, 8))
    thread = gl.thread_idx.x
    mine = gl.LayoutTensor.stack_allocation(gl.float32, row_major(8))
    mine.copy_from(src.tile[1, 8](thread, 0))
    mine[thread % 8] = mine[thread % 8] * 2
    dst.tile[1, 8](thread, 0).copy_from(mine + 1)


def test_local_memory_indexed_at_run_time(run, rng):
    x, out = frozen(rng.integers(-9, 9, (32, 8)).astype(np.float32)), poison((32, 8), np.float32)
    with pytest.warns(PerformanceWarning, match="'mine'"):
        run(doubled, 1, out, x, block=32, compiles=False)
    want = x.copy()
    want[np.arange(32), np.arange(32) % 8] *= 2
    same(out, want + 1)


@weft.jit
def exchanged(out, x):
    src = gl.LayoutTensor(x, row_major(64))
    dst = gl.LayoutTensor(out, row_major(64, 9))
    thread = gl.thread_idx.x
    v = src[thread]
    dst[thread, 0] = gl.warp_sum(v)
    dst[thread, 1] = gl.warp_max(v)
    dst[thread, 2] = gl.warp_min(v)
    dst[thread, 3] = gl.warp_prefix_sum(v)
    dst[thread, 4] = gl.warp_prefix_sum(v, exclusive=True)
    dst[thread, 5] = gl.shuffle_up(v, 3)
    dst[thread, 6] = gl.shuffle_down(v, 5)
    dst[thread, 7] = gl.shuffle_xor(v, thread % 32)
    dst[thread, 8] = gl.warp_broadcast(v)


def test_what_the_threads_of_a_warp_exchange(run, rng):
    x = frozen(rng.integers(-99, 99, 64).astype(np.float32))
    out = poison((64, 9), np.float32)
    run(exchanged, 1, out, x, block=64)
    warps, lane = x.reshape(2, 32), np.arange(32)
    sums = warps.cumsum(1)
    want = [
        np.broadcast_to(warps.sum(1)[:, None], (2, 32)),
        np.broadcast_to(warps.max(1)[:, None], (2, 32)),
        np.broadcast_to(warps.min(1)[:, None], (2, 32)),
        sums,
        sums - warps,
        warps[:, np.where(lane >= 3, lane - 3, lane)],
        warps[:, np.where(lane + 5 < 32, lane + 5, lane)],
        np.broadcast_to(warps[:, :1], (2, 32)),
        np.broadcast_to(warps[:, :1], (2, 32)),
    ]
    same(out, np.stack(want, -1).reshape(64, 9))


@weft.jit
def multiplied(out, x, y, DEPTH: gl.constexpr):
    """Two rows by four columns of a 16 x 16 tile for each of 32 threads."""
    a = gl.LayoutTensor(x, row_major(32, DEPTH))
    b = gl.LayoutTensor(y, row_major(DEPTH, 32))
    c = gl.LayoutTensor(out, row_major(32, 32))
    threads: gl.constexpr = row_major(8, 4)
    a_tile = gl.LayoutTensor.stack_allocation(gl.float32, row_major(16, 8), address_space=SHARED)
    b_tile = gl.LayoutTensor.stack_allocation(gl.float32, row_major(8, 16), address_space=SHARED)
    acc = gl.LayoutTensor.stack_allocation(gl.float32, row_major(2, 4)).fill(0)
    row, column = gl.thread_idx.x // 4, gl.thread_idx.x % 4
    a_tiles = a.tiled_iterator(16, 8, axis=1)(gl.block_idx.y, 0)
    b_tiles = b.tiled_iterator[8, 16](0, gl.block_idx.x)
    for _ in range(DEPTH // 8):
        gl.copy_dram_to_sram(a_tile.vectorize[1, 2](), a_tiles[()].vectorize[1, 2](), threads)
        gl.copy_dram_to_sram(b_tile.vectorize[1, 4](), b_tiles.get().vectorize[1, 4](), threads)
        a_tiles += 1
        b_tiles += 1
        gl.barrier()
        for k in gl.static_range(8):
            gl.outer_product_acc(acc, a_tile.tile[2, 1](row, k), b_tile.tile[1, 4](k, column))
        gl.barrier()
    c.tile[16, 16](gl.block_idx.y, gl.block_idx.x).tile[2, 4](row, column).vectorize[1, 4]().copy_from(acc)


def test_a_product_of_matrices_in_register_tiles(run, rng):
    x, y = (frozen(rng.integers(-9, 9, shape).astype(np.float32)) for shape in ((32, 24), (24, 32)))
    out = poison((32, 32), np.float32)
    run(multiplied, (2, 2), out, x, y, 24, block=32)
    same(out, x @ y)


@weft.jit
def read_back(out, x, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [2, 16, 32], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    rows = gl.arange(0, 16, gl.SliceLayout(1, layout))
    columns = gl.arange(0, 32, gl.SliceLayout(0, layout))
    smem.index(1).store(gl.load(x + rows[:, None] * 32 + columns[None, :]))
    gl.barrier()
    tile = gl.LayoutTensor(smem.index(1))
    dst = gl.LayoutTensor(out, row_major(32, 16))
    for i in gl.static_range(16):
        dst[gl.thread_idx.x % 32, i] = tile[i, gl.thread_idx.x % 32]


def test_a_view_of_a_tiles_memory(run, rng):
    x, out = random(rng, np.float32, (16, 32)), poison((32, 16), np.float32)
    run(read_back, 1, out, x, gl.BlockedLayout([1, 4], [4, 8], [1, 1], [1, 0]), num_warps=1)
    same(out, np.ascontiguousarray(x.T))
