"""Puts by NVSHMEM and their signals on simulated ranks: in both stages, with and without pointers to other ranks' memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.distributed.planted import ROWS, SMEM
from tests.distributed.worlds import EACH, LINE, stage
from weft import language as gl
from weft.errors.hazard import OutOfBounds, PutSource, RankRace
from weft.kernels import distributed
from weft.language.nvidia.hopper import fence_async_global, fence_async_shared, mbarrier, tma

BOTH = pytest.mark.parametrize("of", ["tile", "lowered"])
WAYS = [(0, True), (3, False), pytest.param(1, False, marks=pytest.mark.matrix)]


def run(on: Callable[[int], Any], ranks: int, of: str, seed: int = 0, peer_access: bool = True) -> list[Any]:
    with stage(of), weft.simulate(target="sm_90a"):
        return weft.distributed.simulate(on, ranks=ranks, seed=seed, nvshmem=True, peer_access=peer_access)


@weft.jit
def to_the_next(x: gl.symmetric, y: gl.symmetric, n: int, size: int, begin: int):
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    number = gl.program_id(0)
    first = number * size
    gl.signal(y, before, 1024 + number)
    gl.wait_signal(y, after, 1024 + number)
    gl.put(y, after, x.local + begin + first, gl.minimum(size, n - first), begin + first)
    gl.signal(y, after, number)
    gl.wait_signal(y, before, number)
    gl.quiet(x)


@BOTH
@pytest.mark.parametrize(("seed", "peer_access"), WAYS)
@pytest.mark.parametrize(("n", "size", "begin"), [(300, 100, 3), (7, 1, 0), (128, 128, 5)])
def test_puts_of_several_programs_and_launches(
    of: str, seed: int, peer_access: bool, n: int, size: int, begin: int
) -> None:  # fmt: skip
    def on(rank: int) -> None:
        x, y = (weft.distributed.empty(n + begin, np.int16) for _ in range(2))
        both = weft.Symmetric(x), weft.Symmetric(y)
        for launch in range(3):
            x[:] = np.arange(n + begin) + 1000 * rank + launch
            y[:] = -1
            to_the_next[-(-n // size)](*both, n, size, begin)
            wanted = np.arange(n + begin) + 1000 * ((rank - 1) % 3) + launch
            wanted[:begin] = -1
            np.testing.assert_array_equal(y, wanted)

    run(on, 3, of, seed, peer_access)


@weft.jit
def to_all(x: gl.symmetric, y: gl.symmetric, EACH: gl.constexpr):
    every = gl.arange(0, x.world_size, EACH)
    gl.signal(y, every, 1)
    gl.wait_signal(y, every, 1)
    for rank in range(x.world_size):
        gl.put(y, rank, x.local + rank * 64, 64, x.rank * 64)
    gl.put(y, 0, x.local, 0)
    gl.signal(y, every)
    gl.wait_signal(y, every)
    gl.quiet(x)


@BOTH
def test_puts_to_all_ranks_and_signals_of_a_tile(of: str):
    def on(rank: int) -> None:
        x, y = (weft.distributed.empty((4, 64), np.float32) for _ in range(2))
        both = weft.Symmetric(x), weft.Symmetric(y)
        for launch in range(2):
            x[:] = np.arange(4)[:, None] + 10 * rank + 100 * launch
            to_all[1](*both, EACH)
            np.testing.assert_array_equal(y, np.broadcast_to(10 * np.arange(4)[:, None] + rank + 100 * launch, (4, 64)))

    run(on, 4, of, 5, False)


@weft.jit
def in_rounds(x: gl.symmetric, y: gl.symmetric, steps: int, LINE: gl.constexpr):
    at, other = gl.arange(0, 128, LINE), 1 - x.rank
    for step in range(steps):
        gl.store(x.local + at, at + 1000 * step)
        gl.put(y, other, x.local, 128, step * 128)
        gl.quiet(x)
    gl.signal(y, other)
    gl.wait_signal(y, other)


@BOTH
def test_a_source_overwritten_behind_quiet(of: str):
    def on(rank: int) -> None:
        x, y = weft.distributed.empty(128, np.int32), weft.distributed.empty((5, 128), np.int32)
        in_rounds[1](weft.Symmetric(x), weft.Symmetric(y), 5, LINE)
        np.testing.assert_array_equal(y, np.arange(128) + 1000 * np.arange(5)[:, None])

    run(on, 2, of, 1)


@weft.jit
def answered(x: gl.symmetric, y: gl.symmetric, LINE: gl.constexpr):
    at, other = gl.arange(0, 128, LINE), 1 - x.rank
    for step in range(3):
        gl.store(x.local + at, at + 1000 * step)
        gl.put(y, other, x.local, 128, step * 128)
        gl.signal(y, other)
        gl.wait_signal(y, other)
        gl.signal(y, other, 1)  # your data is there
        gl.wait_signal(y, other, 1)


@BOTH
def test_an_answer_says_that_the_source_was_read(of: str):
    """Data that has arrived was read, and a signal behind it tells the sender so."""

    def on(rank: int) -> None:
        x, y = weft.distributed.empty(128, np.int32), weft.distributed.empty((3, 128), np.int32)
        answered[1](weft.Symmetric(x), weft.Symmetric(y), LINE)
        np.testing.assert_array_equal(y, np.arange(128) + 1000 * np.arange(3)[:, None])

    run(on, 2, of, 2)


@weft.jit
def puts_one(x: gl.symmetric, OUTSIDE: gl.constexpr):
    gl.put(x, 1 - x.rank, x.local, 128, 1 if OUTSIDE else 0)


def test_a_put_outside_of_the_tensor():
    def on(rank: int) -> None:
        puts_one[1](weft.Symmetric(weft.distributed.empty(128, np.float32)), True)

    with pytest.raises(OutOfBounds, match=r"writes x\.peer\(1\)\[128\]"):
        run(on, 2, "tile")


def test_reports_name_the_put():
    def on(rank: int) -> None:
        x = weft.distributed.empty(128, np.float32)
        if rank == 0:
            puts_one[1](weft.Symmetric(x), False)
        else:
            x[:] = 1
        weft.distributed.barrier()

    with pytest.raises(RankRace) as race:
        run(on, 2, "tile")
    assert "a put of program (0, 0, 0) of rank 0" in race.value.message


def test_reports_name_the_source():
    def on(rank: int) -> None:
        x, y = (weft.distributed.empty(128, np.float32) for _ in range(2))
        if rank == 0:
            puts_from[1](weft.Symmetric(x), weft.Symmetric(y))
            y[:] = 5
        weft.distributed.barrier()

    with pytest.raises(PutSource) as found:
        run(on, 2, "tile")
    message = found.value.message
    assert "the host of rank 0 writes" in message
    assert "which a put of program (0, 0, 0) of rank 0 may still read" in message
    assert "gl.quiet()" in found.value.fix


@weft.jit
def puts_from(x: gl.symmetric, y: gl.symmetric):
    gl.put(x, 1, y.local, 128)


@BOTH
def test_collective_kernels_on_memory_of_nvshmem(of: str):
    """Their signals go through NVSHMEM, their data by pointers."""

    def on(rank: int) -> None:
        x = weft.distributed.empty(1000, np.float32)
        for method in ("one_shot", "two_shot"):
            x[:] = rank
            distributed.all_reduce(weft.Symmetric(x), method=method)
            np.testing.assert_array_equal(x, 6)

    run(on, 4, of)


@weft.jit
def by_threads(x: gl.symmetric, y):
    other, thread = 1 - x.rank, gl.thread_idx.x
    y[thread] = thread
    if thread < 2:
        gl.signal(x, other, thread)
        gl.wait_signal(x, other, thread)


@BOTH
def test_signals_of_threads(of: str):
    def on(rank: int) -> None:
        y = np.zeros(32, np.int32)
        by_threads[1](weft.Symmetric(weft.distributed.empty(4, np.float32)), y, block=32)
        np.testing.assert_array_equal(y, np.arange(32))

    run(on, 2, of)


@weft.jit
def tma_at_both_ends(x: gl.symmetric, y: gl.symmetric, out, ROWS: gl.constexpr, SMEM: gl.constexpr):
    other = 1 - x.rank
    source, target = (
        tma.make_tensor_descriptor(x.local, [16, 32], [32, 1], [16, 32], SMEM),
        tma.make_tensor_descriptor(y.local, [16, 32], [32, 1], [16, 32], SMEM),
    )
    tile = gl.allocate_shared_memory(gl.float32, [16, 32], SMEM)
    tile.store(gl.full([16, 32], 5.0, gl.float32, ROWS) + x.rank)
    fence_async_shared()
    tma.async_copy_shared_to_global(source, [0, 0], tile)
    tma.store_wait(0, read_only=False)
    gl.put(y, other, x.local, 512)
    gl.signal(y, other)
    gl.wait_signal(y, other)
    fence_async_global()
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 2048)
    tma.async_copy_global_to_shared(target, [0, 0], bar, tile)
    mbarrier.wait(bar, 0)
    at = gl.expand_dims(gl.arange(0, 16, gl.SliceLayout(1, ROWS)), 1) * 32
    at += gl.expand_dims(gl.arange(0, 32, gl.SliceLayout(0, ROWS)), 0)
    gl.store(out + at, tile.load(ROWS))
    mbarrier.invalidate(bar)
    gl.quiet(x)


@BOTH
def test_tma_writes_the_source_and_reads_the_target(of: str):
    def on(rank: int) -> None:
        x, y = (weft.distributed.empty((16, 32), np.float32) for _ in range(2))
        out = np.zeros((16, 32), np.float32)
        tma_at_both_ends[1](weft.Symmetric(x), weft.Symmetric(y), out, ROWS, SMEM)
        np.testing.assert_array_equal(out, 6 - rank)

    run(on, 2, of)
