"""Kernels of several ranks with one planted bug each, as data.

A kernel has a constexpr `FIXED`: without it there is the bug, of which a comment `# BUG: ...` says what is wrong. `host` runs
on every rank and returns the result and what it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from tests.distributed.worlds import LINE
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_global, fence_async_shared, mbarrier, tma

N = 128


@dataclass(frozen=True)
class Planted:
    """A host function `host(rank, fixed)`, the codes of the reports that its bug may have, the number of ranks, and whether
    memory is NVSHMEM's."""

    host: Callable[[int, bool], Any]
    codes: tuple[str, ...]
    ranks: int = 2
    nvshmem: bool = False

    def __str__(self) -> str:
        return self.host.__name__


PLANTED: list[Planted] = []
RACES = "hazard-rank-read", "hazard-rank-write"
"""Which of the two depends on which access comes first."""


def plant(*codes: str, ranks: int = 2, nvshmem: bool = False) -> Callable[[Any], Any]:
    def enter(host: Any) -> Any:
        PLANTED.append(Planted(host, codes, ranks, nvshmem))
        return host

    return enter


def pair(rank: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """A symmetric array of the rank's number, and room for a result."""
    x = weft.distributed.empty(N, dtype)
    x[:] = rank
    return x, np.full(N, -1, dtype)


@weft.jit
def signals_too_early(x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    if not FIXED:
        # BUG: the signal comes before the write that it announces.
        gl.signal(x, other)
    gl.store(x.local + at, gl.load(x.local + at) + 10)
    if FIXED:
        gl.signal(x, other)
    gl.wait_signal(x, other)
    gl.store(y + at, gl.load(x.peer(other) + at))
    gl.signal(x, other, 1)
    gl.wait_signal(x, other, 1)


@plant(*RACES)
def read_before_its_signal(rank: int, fixed: bool):
    x, y = pair(rank)
    signals_too_early[1](weft.Symmetric(x), y, LINE, fixed)
    return y, 11 - rank


@weft.jit
def exchanges(x: gl.symmetric, y, LINE: gl.constexpr, FIRST: gl.constexpr, LAST: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    if FIRST:
        gl.signal(x, other)
        gl.wait_signal(x, other)
    gl.store(y + at, gl.load(x.peer(other) + at))
    if LAST:
        gl.signal(x, other, 1)
        gl.wait_signal(x, other, 1)


@plant(*RACES)
def read_without_a_signal(rank: int, fixed: bool):
    # BUG: nothing says that the other rank's host function has filled its array.
    x, y = pair(rank)
    exchanges[1](weft.Symmetric(x), y, LINE, fixed, True)
    return y, 1 - rank


@plant(*RACES)
def overwritten_by_the_next_launch(rank: int, fixed: bool):
    x, y = pair(rank)
    for launch in range(2):
        # BUG: the other rank may still read what the host function overwrites for the next launch.
        x[:] = 10 * launch + rank
        exchanges[1](weft.Symmetric(x), y, LINE, True, fixed)
    return y, 11 - rank


@plant(*RACES)
def overwritten_without_a_barrier(rank: int, fixed: bool):
    x, y = pair(rank)
    weft.distributed.barrier()
    exchanges[1](weft.Symmetric(x), y, LINE, False, False)
    if fixed:
        weft.distributed.barrier()
    # BUG: the other rank may still read.
    x[:] = 7
    weft.distributed.barrier()
    return y, 1 - rank


@weft.jit
def by_hand(flag: gl.symmetric, x: gl.symmetric, y, LINE: gl.constexpr, RELEASE: gl.constexpr, SEND: gl.constexpr,
            RECEIVE: gl.constexpr):  # fmt: skip
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    gl.store(flag.peer(other), 1, sem=RELEASE, scope=SEND)
    gl.atomic_poll(flag.local, 1, scope=RECEIVE)
    gl.store(y + at, gl.load(x.peer(other) + at))
    gl.signal(x, other)
    gl.wait_signal(x, other)


def hand_made(rank: int, *how: str):
    x, y = pair(rank)
    flag = weft.distributed.empty(1, np.int32)
    by_hand[1](weft.Symmetric(flag), weft.Symmetric(x), y, LINE, *how)
    return y, 1 - rank


@plant("hazard-rank-scope")
def a_signal_of_scope_gpu(rank: int, fixed: bool):
    # BUG: a release of scope gpu does not reach the other rank.
    return hand_made(rank, "release", "sys" if fixed else "gpu", "sys")


@plant("hazard-rank-scope")
def a_wait_of_scope_gpu(rank: int, fixed: bool):
    # BUG: an acquire of scope gpu does not reach the other rank.
    return hand_made(rank, "release", "sys", "sys" if fixed else "gpu")


@plant(*RACES)
def a_relaxed_signal(rank: int, fixed: bool):
    # BUG: a relaxed store publishes nothing.
    return hand_made(rank, "release" if fixed else "relaxed", "sys", "sys")


@weft.jit
def flag_twice(flag: gl.symmetric, x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    gl.store(flag.peer(other), 1, sem="release", scope="sys")
    gl.atomic_poll(flag.local, 1, scope="sys")
    gl.store(y + at, gl.load(x.peer(other) + at))
    if FIXED:
        gl.signal(x, other)
        gl.wait_signal(x, other)
    # BUG: the other rank may not have seen the 1.
    gl.store(flag.peer(other), 2, sem="release", scope="sys")
    gl.atomic_poll(flag.local, 2, scope="sys")


@plant("hazard-signal-reused", "hazard-deadlock")
def a_flag_reused_before_it_was_seen(rank: int, fixed: bool):
    x, y = pair(rank)
    flag = weft.distributed.empty(1, np.int32)
    flag_twice[1](weft.Symmetric(flag), weft.Symmetric(x), y, LINE, fixed)
    return y, 1 - rank


@weft.jit
def in_a_circle(x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    after, before = (x.rank + 1) % x.world_size, (x.rank + x.world_size - 1) % x.world_size
    at = gl.arange(0, 128, LINE)
    if FIXED or x.rank != 2:
        # BUG: without its signal the rank after the third waits, and then the others wait for that rank.
        gl.signal(x, after)
    gl.wait_signal(x, before)
    gl.store(y + at, gl.load(x.peer(before) + at))
    gl.signal(x, before, 1)
    gl.wait_signal(x, after, 1)


@plant("hazard-deadlock", ranks=3)
def a_dropped_signal(rank: int, fixed: bool):
    x, y = pair(rank)
    in_a_circle[1](weft.Symmetric(x), y, LINE, fixed)
    return y, (rank + 2) % 3


@weft.jit
def wrong_rank(x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    # BUG: each rank signals itself.
    gl.signal(x, other if FIXED else x.rank)
    gl.wait_signal(x, other)
    gl.store(y + at, gl.load(x.peer(other) + at))
    gl.signal(x, other, 1)
    gl.wait_signal(x, other, 1)


@plant("hazard-deadlock")
def a_signal_to_the_wrong_rank(rank: int, fixed: bool):
    x, y = pair(rank)
    wrong_rank[1](weft.Symmetric(x), y, LINE, fixed)
    return y, 1 - rank


@weft.jit
def signal_twice(x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    gl.signal(x, other)
    gl.wait_signal(x, other)
    gl.store(y + at, gl.load(x.peer(other) + at))
    gl.signal(x, other)
    gl.wait_signal(x, other)
    if not FIXED:
        # BUG: nobody waits for this signal: the next launch would start with it.
        gl.signal(x, other)


@plant("hazard-signal-left")
def a_signal_too_many(rank: int, fixed: bool):
    x, y = pair(rank)
    signal_twice[1](weft.Symmetric(x), y, LINE, fixed)
    return y, 1 - rank


@weft.jit
def writer_and_reader(x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, LINE)
    if x.rank == 0:
        gl.store(x.local + at, 1.0)
        gl.signal(x, 1)
        if FIXED:
            gl.wait_signal(x, 1, 1)
        # BUG: rank 1 may still read the first value, although this rank's second signal may have come by then.
        gl.store(x.local + at, 2.0)
        gl.signal(x, 1)
        if not FIXED:
            gl.wait_signal(x, 1, 1)
    else:
        gl.wait_signal(x, 0)
        gl.store(y + at, gl.load(x.peer(0) + at))
        gl.signal(x, 0, 1)
        gl.wait_signal(x, 0)


@plant(*RACES)
def overwritten_before_the_answer(rank: int, fixed: bool):
    x, y = pair(rank)
    writer_and_reader[1](weft.Symmetric(x), y, LINE, fixed)
    return y, 1 if rank else -1


ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
SMEM = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)


@weft.jit
def tma_reads(x: gl.symmetric, y, ROWS: gl.constexpr, SMEM: gl.constexpr, FENCE: gl.constexpr):
    other = 1 - x.rank
    rows = gl.arange(0, 16, gl.SliceLayout(1, ROWS))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, ROWS))[None, :]
    gl.store(x.local + rows, gl.full([16, 32], 5.0, gl.float32, ROWS))
    source = tma.make_tensor_descriptor(x.peer(other), [16, 32], [32, 1], [16, 32], SMEM)
    tile = gl.allocate_shared_memory(gl.float32, [16, 32], SMEM)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, 1)
    gl.signal(x, other)
    gl.wait_signal(x, other)
    if FENCE:
        fence_async_global()
    # BUG: threads wrote what TMA reads, and no proxy fence stands between.
    mbarrier.expect(bar, source.block_type.nbytes)
    tma.async_load(source, [0, 0], bar, tile)
    mbarrier.wait(bar, 0)
    gl.store(y + rows, tile.load(ROWS))
    gl.signal(x, other, 1)
    gl.wait_signal(x, other, 1)


@plant("hazard-global-fence")
def a_missing_proxy_fence(rank: int, fixed: bool):
    x, y = weft.distributed.empty((16, 32), np.float32), np.zeros((16, 32), np.float32)
    tma_reads[1](weft.Symmetric(x), y, ROWS, SMEM, fixed)
    return y, 5


@weft.jit
def tma_writes(x: gl.symmetric, y, ROWS: gl.constexpr, SMEM: gl.constexpr, FIXED: gl.constexpr):
    other = 1 - x.rank
    rows = gl.arange(0, 16, gl.SliceLayout(1, ROWS))[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, ROWS))[None, :]
    target = tma.make_tensor_descriptor(x.peer(other), [16, 32], [32, 1], [16, 32], SMEM)
    tile = gl.allocate_shared_memory(gl.float32, [16, 32], SMEM)
    tile.store(gl.full([16, 32], 5.0, gl.float32, ROWS))
    fence_async_shared()
    gl.signal(x, other, 1)
    gl.wait_signal(x, other, 1)
    tma.async_copy_shared_to_global(target, [0, 0], tile)
    # BUG: this waits until the tile has been read, and the signal says that it has been written.
    tma.store_wait(0, read_only=not FIXED)
    gl.signal(x, other)
    gl.wait_signal(x, other)
    gl.store(y + rows, gl.load(x.local + rows))
    tma.store_wait(0)


@plant("hazard-global-stored", *RACES)
def a_signal_before_the_store_is_complete(rank: int, fixed: bool):
    x, y = weft.distributed.empty((16, 32), np.float32), np.zeros((16, 32), np.float32)
    tma_writes[1](weft.Symmetric(x), y, ROWS, SMEM, fixed)
    return y, 5


@weft.jit
def multicast(x: gl.symmetric, y, LINE: gl.constexpr, BEFORE: gl.constexpr, AFTER: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    if BEFORE:
        gl.signal(x, other)
        gl.wait_signal(x, other)
    total = gl.multimem_ld_reduce(x.multicast + at)
    if AFTER:
        gl.signal(x, other, 1)
        gl.wait_signal(x, other, 1)
    if x.rank == 0:
        gl.multimem_st(x.multicast + at, total + 1)
    gl.signal(x, other, 2)
    gl.wait_signal(x, other, 2)
    gl.store(y + at, gl.load(x.local + at))


@plant(*RACES)
def a_multicast_sum_before_its_signal(rank: int, fixed: bool):
    # BUG: nothing says that the other rank's host function has filled its array.
    x, y = pair(rank)
    multicast[1](weft.Symmetric(x), y, LINE, fixed, True)
    return y, 2


@plant(*RACES)
def a_multicast_store_over_what_is_read(rank: int, fixed: bool):
    # BUG: the other rank may still add up what rank 0 stores on all ranks.
    x, y = pair(rank)
    multicast[1](weft.Symmetric(x), y, LINE, True, fixed)
    return y, 2


@weft.jit
def puts(x: gl.symmetric, y, LINE: gl.constexpr, EARLY: gl.constexpr, QUIET: gl.constexpr, HASTE: gl.constexpr):
    other, at = 1 - x.rank, gl.arange(0, 128, LINE)
    if EARLY:
        gl.signal(x, other)
    gl.put(x, other, x.local, 128, 128)
    if QUIET:
        gl.quiet(x)
    gl.store(x.local + at, gl.full([128], 9.0, gl.float32, LINE))
    if not EARLY:
        gl.signal(x, other)
    if HASTE:
        gl.store(y + at, gl.load(x.local + 128 + at))
    gl.wait_signal(x, other)
    gl.store(y + at, gl.load(x.local + 128 + at))
    gl.quiet(x)


def put_and_read(rank: int, early: bool, quiet: bool, haste: bool):
    x, y = weft.distributed.empty(2 * N, np.float32), np.full(N, -1, np.float32)
    x[:] = rank
    weft.distributed.barrier()
    puts[1](weft.Symmetric(x), y, LINE, early, quiet, haste)
    return y, 1 - rank


@plant(*RACES, nvshmem=True)
def a_signal_before_its_put(rank: int, fixed: bool):
    # BUG: the signal says that data is there which is put only then.
    return put_and_read(rank, not fixed, True, False)


@plant("hazard-put-source", nvshmem=True)
def a_source_overwritten_before_quiet(rank: int, fixed: bool):
    # BUG: the put may still read what is overwritten.
    return put_and_read(rank, False, fixed, False)


@plant(*RACES, nvshmem=True)
def data_of_a_put_read_before_its_signal(rank: int, fixed: bool):
    # BUG: nothing says that the data has come.
    return put_and_read(rank, False, True, not fixed)


@weft.jit
def told_by_another(x: gl.symmetric, y, LINE: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, LINE)
    if x.rank == 0:
        gl.put(x, 2, x.local, 128, 128)
        if FIXED:
            gl.quiet(x)
        # BUG: a signal follows the puts to its own rank, and rank 1 cannot know of one to rank 2.
        gl.signal(x, 1)
    elif x.rank == 1:
        gl.wait_signal(x, 0)
        gl.signal(x, 2)
    else:
        gl.wait_signal(x, 1)
        gl.store(y + at, gl.load(x.local + 128 + at))


@plant(*RACES, ranks=3, nvshmem=True)
def a_put_announced_by_another_rank(rank: int, fixed: bool):
    x, y = weft.distributed.empty(2 * N, np.float32), np.zeros(N, np.float32)
    x[:N] = 7
    weft.distributed.barrier()
    told_by_another[1](weft.Symmetric(x), y, LINE, fixed)
    return y, 7 if rank == 2 else 0


@weft.jit
def puts_without_end(x: gl.symmetric, QUIET: gl.constexpr):
    other = 1 - x.rank
    gl.put(x, other, x.local, 128, 128)
    if QUIET:
        gl.quiet(x)


@plant("hazard-put-source", nvshmem=True)
def a_source_overwritten_by_the_host(rank: int, fixed: bool):
    x, _ = weft.distributed.empty(2 * N, np.float32), None
    x[:] = rank
    weft.distributed.barrier()
    puts_without_end[1](weft.Symmetric(x), fixed)
    # BUG: the launch has ended, and its put may still read.
    x[:N] = 5
    weft.distributed.barrier()
    return x[N:], 1 - rank


@weft.jit
def puts_from(x: gl.symmetric, source):
    gl.put(x, 1 - x.rank, source, 128)
    gl.signal(x, 1 - x.rank)
    gl.wait_signal(x, 1 - x.rank)


@plant("hazard-put-local", nvshmem=True)
def a_put_of_other_memory(rank: int, fixed: bool):
    x, z = weft.distributed.empty(N, np.float32), weft.distributed.empty(N, np.float32)
    z[:] = rank
    # BUG: the network of another host can read symmetric memory only.
    puts_from[1](weft.Symmetric(x), z if fixed else np.zeros(N, np.float32))
    return x, 1 - rank


@plant("hazard-ranks-apart")
def a_barrier_of_one_rank(rank: int, fixed: bool):
    # BUG: the other rank never comes.
    if fixed or rank == 0:
        weft.distributed.barrier()
    return np.zeros(1), 0
