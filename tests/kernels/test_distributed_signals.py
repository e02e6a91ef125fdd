"""Symmetric tensors and signals in kernels of several ranks: numbers on 2, 4 and 8 simulated ranks, in both stages."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.distributed.worlds import EACH, LINE, world
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma

WORLDS = [2, pytest.param(4, marks=pytest.mark.matrix), pytest.param(8, marks=pytest.mark.matrix)]


def data(rank: int, n: int, launch: int = 0) -> np.ndarray:
    return np.random.default_rng(100 * rank + launch).standard_normal(n).astype(np.float32)


@weft.jit
def add_up(x: gl.symmetric, y, n, BLOCK: gl.constexpr, EACH: gl.constexpr, LINE: gl.constexpr):
    """y = the sum of x over all ranks, in the order of the ranks. Signals go to all ranks at once."""
    flag = gl.program_id(0)
    ranks = gl.arange(0, x.world_size, EACH)
    at = flag * BLOCK + gl.arange(0, BLOCK, LINE)
    gl.signal(x, ranks, flag)
    gl.wait_signal(x, ranks, flag)
    total = gl.zeros([BLOCK], gl.float32, LINE)
    for rank in gl.static_range(x.world_size):
        total += gl.load(x.peer(rank) + at, at < n, 0.0)
    gl.store(y + at, total, at < n)
    gl.signal(x, ranks, flag)
    gl.wait_signal(x, ranks, flag)


@pytest.mark.parametrize("of", ["tile", "lowered"])
@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("seed", [0, 3])
def test_a_sum_over_ranks(ranks, seed, of):
    n, made = 301, []

    def on(rank: int):
        x, sums = weft.distributed.empty(n, np.float32), []
        shared = weft.Symmetric(x)
        assert (shared.rank, shared.world_size) == (rank, ranks)
        for launch in range(2):
            x[:] = data(rank, n, launch)
            sums.append(np.full(n, np.nan, np.float32))
            made.append(add_up[2](shared, sums[-1], n, 256, EACH, LINE))
        return sums

    results = world(on, ranks, seed, of)
    for launch in range(2):
        wanted = np.zeros(n, np.float32)
        for rank in range(ranks):
            wanted = wanted + data(rank, n, launch)
        for sums in results:
            np.testing.assert_array_equal(sums[launch], wanted)
    assert all(each.asm["cuda"] == made[0].asm["cuda"] for each in made), "all ranks run one kernel"
    assert made[0].n_spills == 0


@weft.jit
def rotate(x: gl.symmetric, y: gl.symmetric, n, BLOCK: gl.constexpr, LINE: gl.constexpr):
    """Write x to y of the next rank, which is a run-time number."""
    flag, after = gl.program_id(0), (x.rank + 1) % x.world_size
    before = (x.rank + x.world_size - 1) % x.world_size
    gl.signal(x, before, flag)
    gl.wait_signal(x, after, flag)
    at = flag * BLOCK + gl.arange(0, BLOCK, LINE)
    gl.store(y.peer(after) + at, gl.load(x.local + at, at < n), at < n)
    gl.signal(y, after, flag)
    gl.wait_signal(y, before, flag)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("of", ["tile", "lowered"])
def test_a_ring(ranks, of):
    def on(rank: int):
        x, y = (weft.distributed.empty((2, 100), np.int32) for _ in range(2))
        x[:], y[:] = rank, -1
        rotate[2](weft.Symmetric(x), weft.Symmetric(y), 200, 128, LINE)
        return y

    for rank, y in enumerate(world(on, ranks, 1, of)):
        assert (y == (rank - 1) % ranks).all()


@weft.jit
def each_thread(x: gl.symmetric, y):
    """Thread t takes word t from rank t: signals and waits of single threads."""
    t = gl.thread_idx.x
    if t < x.world_size:
        gl.signal(x, t)
        gl.wait_signal(x, t)
        y[t] = x.peer(t)[x.rank]
        gl.signal(x, t)
        gl.wait_signal(x, t)


@pytest.mark.parametrize("of", ["tile", "lowered"])
def test_threads_signal_for_themselves(of):
    ranks = 4

    def on(rank: int):
        x, y = weft.distributed.empty(ranks, np.int32), np.full(ranks, -1, np.int32)
        x[:] = 10 * rank + np.arange(ranks)
        each_thread[1](weft.Symmetric(x), y, block=32)
        return y

    for rank, y in enumerate(world(on, ranks, 2, of)):
        np.testing.assert_array_equal(y, 10 * np.arange(ranks) + rank)


@weft.jit
def columns(x: gl.symmetric, y, LINE: gl.constexpr):
    """y = column `rank` of the next rank's view."""
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    gl.signal(x, before)
    gl.wait_signal(x, after)
    part = gl.load(x.peer(after).tile[32, 1](0, x.rank))
    gl.store(y.tile[32, 1](0, 0), part)
    gl.signal(x, after)
    gl.wait_signal(x, before)


def test_a_view_of_a_peer():
    def on(rank: int):
        x, y = weft.distributed.empty((40, 8), np.float32), np.zeros((32, 1), np.float32)
        x[:] = 1000 * rank + np.arange(320).reshape(40, 8)
        part = weft.LayoutTensor(x[8:])
        columns[1](weft.Symmetric(part), weft.LayoutTensor(y), LINE)
        return y[:, 0]

    for rank, y in enumerate(world(on, 2)):
        np.testing.assert_array_equal(y, 1000 * (1 - rank) + np.arange(64, 320, 8) + rank)


@weft.jit
def by_tma(x: gl.symmetric, y, ROWS: gl.constexpr, SMEM: gl.constexpr):
    """y = the next rank's x, by TMA from its memory."""
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    source = tma.make_tensor_descriptor(x.peer(after), [16, 32], [32, 1], [16, 32], SMEM)
    tile = gl.allocate_shared_memory(gl.float32, [16, 32], SMEM)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, 1)
    gl.signal(x, before)
    gl.wait_signal(x, after)
    mbarrier.expect(bar, source.block_type.nbytes)
    tma.async_load(source, [0, 0], bar, tile)
    mbarrier.wait(bar, 0)
    rows = gl.arange(0, 16, gl.SliceLayout(1, ROWS))[:, None]
    gl.store(y + rows * 32 + gl.arange(0, 32, gl.SliceLayout(0, ROWS))[None, :], tile.load(ROWS))
    gl.signal(x, after)
    gl.wait_signal(x, before)


def test_tma_reads_a_peer():
    rows = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    smem = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)

    def on(rank: int):
        x, y = weft.distributed.empty((16, 32), np.float32), np.zeros((16, 32), np.float32)
        x[:] = data(rank, 512).reshape(16, 32)
        assert by_tma[1](weft.Symmetric(x), y, rows, smem).n_spills == 0
        return y

    with weft.simulate(target="sm_90a"):
        for rank, y in enumerate(world(on, 2)):
            np.testing.assert_array_equal(y, data(1 - rank, 512).reshape(16, 32))


@weft.jit
def put_round(x: gl.symmetric, y: gl.symmetric, n):
    """Put x to y of the next rank."""
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    gl.signal(y, before, 1)
    gl.wait_signal(y, after, 1)
    gl.put(y, after, x.local, n)
    gl.signal(y, after)
    gl.wait_signal(y, before)
    gl.quiet(x)


@pytest.mark.parametrize("of", ["tile", "lowered"])
def test_puts_around_a_ring(of):
    def on(rank: int):
        x, y = (weft.distributed.empty(301, np.float32) for _ in range(2))
        for launch in range(2):
            x[:] = data(rank, 301, launch)
            put_round[1](weft.Symmetric(x), weft.Symmetric(y), 301)
        return y.copy()

    for rank, found in enumerate(world(on, 3, 1, of, nvshmem=True)):
        np.testing.assert_array_equal(found, data((rank + 2) % 3, 301, 1))


@weft.jit
def take_words(words: gl.symmetric, rows: gl.symmetric, y, EACH: gl.constexpr, LINE: gl.constexpr):
    """Wait for four words at once, each of a part of the rows, and for the last of them again as a count."""
    gl.wait_value(words, gl.arange(0, 4, EACH), 7)
    gl.wait_value(words, 3, 5, at_least=True, sem="relaxed")
    at = gl.arange(0, 512, LINE)
    gl.store(y + at, gl.load(rows.local + at))


@pytest.mark.parametrize("of", ["tile", "lowered"])
@pytest.mark.parametrize("seed", [0, 3])
def test_words_behind_copies(seed, of):
    def on(rank: int):
        words, room = weft.distributed.empty(4, np.int32), weft.distributed.empty((4, 128), np.float32)
        shared, y, own = weft.Symmetric(words), np.full(512, np.nan, np.float32), data(rank, 512).reshape(4, 128)
        for part in range(4):
            weft.distributed.copy(weft.Symmetric(room[part]), 1 - rank, own[part])
            weft.distributed.write_value(shared, 1 - rank, part, 7)
        take_words[2](shared, weft.Symmetric(room), y, EACH, LINE)
        return y

    for rank, found in enumerate(world(on, 2, seed, of)):
        np.testing.assert_array_equal(found, data(1 - rank, 512))
