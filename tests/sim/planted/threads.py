"""Planted bugs of single threads: barriers left out or in the wrong place, warps, tiles in shared memory, edges of views."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.sim.planted.bug import Launch, plant
from weft import language as gl
from weft.views import LayoutTensor

SHARED = gl.AddressSpace.SHARED


def views(shape: Any, wanted: Any, *inputs: Any, dtype: Any = np.int32) -> Launch:
    """Views of an array for the result and of others, and numbers."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        out = np.full(shape, -1, dtype)
        more = (LayoutTensor(x.copy()) if isinstance(x, np.ndarray) else x for x in inputs)
        return (LayoutTensor(out), *more), out, np.asarray(wanted)

    return launch


NUMBERS = (np.arange(128) * 7 % 31).astype(np.int32)

# Barriers


@weft.jit
def tree_of_sums(out, x, FIXED: gl.constexpr):
    sums = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(128), address_space=SHARED)
    i = gl.thread_idx.x
    sums[i] = x[i]
    gl.barrier()
    for k in gl.static_range(7):
        if i < 64 >> k:
            sums[i] += sums[i + (64 >> k)]  # EARLIER, HERE
        # BUG: the last steps are those of one warp, but its threads too are in no order without a barrier.
        if FIXED or k < 1:
            gl.barrier()
    if i == 0:
        out[0] = sums[0]


plant(tree_of_sums, "hazard-threads-race", launch=views(1, [NUMBERS.sum()], NUMBERS), block=128)


@weft.jit
def sums_of_warps(out, x, FIXED: gl.constexpr):
    sums = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(4), address_space=SHARED)
    total = gl.warp_sum(x[gl.thread_idx.x])
    if gl.lane_id() == 0:
        sums[gl.warp_id()] = total  # EARLIER
    if FIXED:
        gl.barrier()
    else:
        # BUG: the sums are those of other warps, and this barrier is one of a warp.
        gl.syncwarp()
    if gl.thread_idx.x == 0:
        out[0] = sums[0] + sums[1] + sums[2] + sums[3]  # HERE


plant(sums_of_warps, "hazard-threads-race", launch=views(1, [NUMBERS.sum()], NUMBERS), block=128)


@weft.jit
def one_slot_for_two(out, x, steps, FIXED: gl.constexpr):
    # BUG: a step may begin while threads still read what the step before left: it needs the other slot.
    slots: gl.constexpr = 2 if FIXED else 1
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(slots, 64), address_space=SHARED)
    i = gl.thread_idx.x
    total = 0
    for step in range(steps):
        tile[step % slots, i] = x[step, i]  # HERE
        gl.barrier()
        total += tile[step % slots, 63 - i]  # EARLIER
    out[i] = total


ROWS = NUMBERS[:64] * np.arange(1, 6, dtype=np.int32)[:, None]
plant(one_slot_for_two, "hazard-threads-race", launch=views(64, ROWS.sum(0)[::-1], ROWS, 5), block=64)


@weft.jit
def some_leave(out, x, n, FIXED: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
    i = gl.thread_idx.x
    tile[i] = x[i]
    if FIXED:
        gl.barrier()
    # BUG: a barrier is one of all threads of the block, and the claim that they agree about this is wrong.
    if gl.uniform(i < n if not FIXED else n > 0):  # HERE
        if not FIXED:
            gl.barrier()
        if i < n:
            out[i] = tile[63 - i]


HALF = np.where(np.arange(64) < 40, NUMBERS[63::-1], -1)
plant(some_leave, "hazard-not-uniform", launch=views(64, HALF, NUMBERS[:64], 40), block=64)


@weft.jit
def counts_in_shared(out, x, FIXED: gl.constexpr):
    bins = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(32), address_space=SHARED)
    i = gl.thread_idx.x
    if i < 32:
        bins[i] = 0  # EARLIER, HERE
    # BUG: other warps count in bins that the first one has not cleared yet.
    if FIXED:
        gl.barrier()
    gl.atomic_add(bins.tile[1](x[i]), 1)  # EARLIER, HERE
    gl.barrier()
    if i < 32:
        out[i] = bins[i]


plant(counts_in_shared, "hazard-threads-race", launch=views(32, np.bincount(NUMBERS, minlength=32), NUMBERS), block=128)


@weft.jit
def compacted(out, x, FIXED: gl.constexpr):
    kept = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(33), address_space=SHARED)
    i = gl.thread_idx.x
    kept[i] = -1
    gl.barrier()
    keep = x[i] % 2
    at = gl.warp_prefix_sum(keep, exclusive=True)
    # BUG: threads whose element is left out have a place too, that of the next one that is kept.
    if keep == 1 or not FIXED:
        kept[at] = x[i]  # HERE
    gl.barrier()
    out[i] = kept[i]


ODD = NUMBERS[:32][NUMBERS[:32] % 2 == 1]
plant(
    compacted, "hazard-shared-store-race", block=32,
    launch=views(32, np.pad(ODD, (0, 32 - len(ODD)), constant_values=-1), NUMBERS[:32]),
)  # fmt: skip

# Global memory


@weft.jit
def transposed_in_place(t, FIXED: gl.constexpr):
    i, j = gl.thread_idx.y, gl.thread_idx.x
    if FIXED:
        if i < j:
            t[i, j], t[j, i] = t[j, i], t[i, j]
    else:
        # BUG: the thread of the element on the other side of the diagonal writes what this one reads.
        t[i, j] = t[j, i]  # EARLIER, HERE


def in_place() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    return (LayoutTensor(x),), x, x.T.copy()


plant(transposed_in_place, "hazard-global-threads-race", launch=in_place, block=(8, 8))


@weft.jit
def running_sum(t, FIXED: gl.constexpr):
    i = gl.thread_idx.x
    for k in gl.static_range(6):
        before = 0
        if i >= 1 << k:
            before = t[i - (1 << k)]  # EARLIER, HERE
        if FIXED:
            gl.barrier()
        # BUG: this element may be read by another thread, which has not come so far.
        t[i] += before  # EARLIER, HERE
        gl.barrier()


def summed() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    x = NUMBERS[:64].copy()
    return (LayoutTensor(x),), x, np.cumsum(x, dtype=np.int32)


plant(running_sum, "hazard-global-threads-race", launch=summed, block=64)

# Warps


@weft.jit
def half_a_warp(out, x, FIXED: gl.constexpr):
    i = gl.thread_idx.x
    value = x[i]
    if FIXED:
        value += gl.shuffle_xor(value, 16)
    elif i < 16:  # EARLIER
        # BUG: the lanes whose values are taken are not in this branch.
        value += gl.shuffle_xor(value, 16)  # HERE
    if i < 16:
        out[i] = value


# What each thread decides for itself is known before the kernel runs.
plant(half_a_warp, "control-scope", launch=views(16, NUMBERS[:16] + NUMBERS[16:32], NUMBERS[:32]), block=32)

# Tiles with a border, vectors


@weft.jit
def border_of_one(out, x, FIXED: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(66), address_space=SHARED)  # EARLIER
    i = gl.thread_idx.x
    at = gl.global_idx.x
    tile[i + 1] = x[at]
    if i == 0:
        tile[0] = 0
        if at > 0:
            tile[0] = x[at - 1]
        if FIXED:
            tile[65] = 0
            if at + 64 < x.dim(0):
                tile[65] = x[at + 64]
    # BUG: the border on the right has not been loaded.
    gl.barrier()
    out[at] = tile[i] + tile[i + 2]  # HERE


BESIDE = np.pad(NUMBERS, 1)
plant(
    border_of_one, "hazard-uninitialized", launch=views(128, BESIDE[:-2] + BESIDE[2:], NUMBERS), grid=2, block=64
)  # fmt: skip


@weft.jit
def border_too_small(out, x, FIXED: gl.constexpr):
    # BUG: a border on both sides takes two more elements.
    size: gl.constexpr = 66 if FIXED else 65
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(size), address_space=SHARED)
    i = gl.thread_idx.x
    tile[i + 1] = x[i]
    if i == 0:
        tile[0] = 0
    if i == 63:
        tile[65 if FIXED else i + 2] = 0  # HERE
    gl.barrier()
    out[i] = tile[i] + tile[i + 2]


EDGES = np.pad(NUMBERS[:64], 1)
# Lowered IR has no views any more, but the memory below.
plant(
    border_too_small, "hazard-view-bounds", "hazard-shared-element",
    launch=views(64, EDGES[:-2] + EDGES[2:], NUMBERS[:64]), block=64,
)  # fmt: skip


@weft.jit
def last_of_four(out, x, FIXED: gl.constexpr):
    i = gl.global_idx.x * 4
    n = x.dim(0)
    # BUG: the first of four elements may be inside while the last is not.
    if (i + 3 < n) if FIXED else (i < n):
        out.store(i, x.load[4](i))  # HERE
    elif FIXED:
        for k in range(i, n):
            out[k] = x[k]


plant(
    last_of_four, "hazard-view-bounds", "hazard-out-of-bounds", launch=views(62, NUMBERS[:62], NUMBERS[:62]), block=32
)


@weft.jit
def without_a_wait(out, x, FIXED: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
    gl.copy_dram_to_sram_async(tile, x, gl.Layout(64))  # EARLIER
    if FIXED:
        gl.async_copy_wait_all()
    # BUG: the barrier says that all threads have started their copies, not that these are complete.
    gl.barrier()
    out[gl.thread_idx.x] = tile[63 - gl.thread_idx.x]  # HERE


plant(without_a_wait, "hazard-read-in-flight", launch=views(64, NUMBERS[63::-1], NUMBERS[:64]), block=64)


@weft.jit
def without_a_barrier(out, x, FIXED: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
    gl.copy_dram_to_sram_async(tile, x, gl.Layout(64))  # EARLIER
    gl.async_copy_wait_all()
    # BUG: each thread has waited for its own copies only.
    if FIXED:
        gl.barrier()
    out[gl.thread_idx.x] = tile[63 - gl.thread_idx.x]  # HERE


plant(without_a_barrier, "hazard-threads-race", launch=views(64, NUMBERS[63::-1], NUMBERS[:64]), block=64)


@weft.jit
def told_too_early(out, x, parts, count, FIXED: gl.constexpr):
    """The last block adds up what each thread of the others has stored."""
    last = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(1), address_space=SHARED)
    i, block = gl.thread_idx.x, gl.block_idx.x
    parts[block, i] = x[block * 64 + i]  # EARLIER
    if FIXED:
        gl.barrier()
    if i == 0:
        # BUG: this publishes what its own thread has stored; the others' stores have to be before a barrier before it.
        last[0] = gl.atomic_add(count.tile[1](0), 1)
    gl.barrier()
    if last[0] == gl.grid_dim.x - 1:
        out[i] = parts[0, 63 - i] + parts[1, 63 - i]  # HERE


plant(
    told_too_early, "hazard-global-race", grid=2, block=64,
    launch=views(64, (NUMBERS[:64] + NUMBERS[64:])[::-1], NUMBERS, np.zeros((2, 64), np.int32), np.zeros(1, np.int32)),
)  # fmt: skip


# mbarriers at which each thread arrives by itself


@weft.jit
def asks_once(out, x, FIXED: gl.constexpr):
    tile = gl.stack_allocation[gl.int32, SHARED](gl.row_major[128]())
    bar = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i = gl.thread_idx.x
    if i == 0:
        gl.mbarrier_init(bar.ptr, 128)
    gl.barrier()
    tile[i] = x[i]  # EARLIER
    state = gl.mbarrier_arrive(bar.ptr)
    # BUG: the test does not wait: if it says no, another thread's number may not be there yet.
    complete = gl.mbarrier_test_wait(bar.ptr, state)
    while FIXED and not complete:
        complete = gl.mbarrier_test_wait(bar.ptr, state)
    out[i] = tile[127 - i]  # HERE


plant(asks_once, "hazard-threads-race", launch=views(128, NUMBERS[::-1].copy(), NUMBERS), block=128)


@weft.jit
def initialises_each_round(out, x, FIXED: gl.constexpr):
    tile = gl.stack_allocation[gl.int32, SHARED](gl.row_major[2, 128]())
    bar = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i = gl.thread_idx.x
    value = x[i]
    if i == 0:
        gl.mbarrier_init(bar.ptr, 128)
    gl.barrier()
    for k in gl.static_range(2):
        tile[k, i] = value
        state = gl.mbarrier_arrive(bar.ptr)
        while not gl.mbarrier_test_wait(bar.ptr, state):  # EARLIER
            pass
        # BUG: other threads may still test the barrier, and would wait for its new first phase. It serves for all rounds.
        if not FIXED and i == 0:
            gl.mbarrier_inval(bar.ptr)  # HERE
            gl.mbarrier_init(bar.ptr, 128)
        if not FIXED:
            gl.barrier()
        value = tile[k, (i + 1) % 128]
    out[i] = value


plant(initialises_each_round, "hazard-threads-race", launch=views(128, np.roll(NUMBERS, -2), NUMBERS), block=128)


@weft.jit
def overtakes_the_consumers(out, x, FIXED: gl.constexpr):
    tile = gl.stack_allocation[gl.int32, SHARED](gl.row_major[32]())
    full = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    empty = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i = gl.thread_idx.x
    if i == 0:
        gl.mbarrier_init(full.ptr, 32)
        gl.mbarrier_init(empty.ptr, 96)
    gl.barrier()
    if i < 32:
        for k in range(4):
            while not gl.mbarrier_test_wait_parity(empty, (k + 1) % 2):
                pass
            tile[i] = x[32 * k + i]  # EARLIER, HERE
            _ = gl.mbarrier_arrive(full)
    else:
        total = 0
        for k in range(4):
            while not gl.mbarrier_test_wait_parity(full, k % 2):
                pass
            # BUG: the buffer is said to be free before it is read.
            if not FIXED:
                _ = gl.mbarrier_arrive(empty)
            total += tile[i % 32]  # EARLIER, HERE
            if FIXED:
                _ = gl.mbarrier_arrive(empty)
        out[i - 32] = total


SUMS = np.tile(NUMBERS.reshape(4, 32).sum(0), 3)
plant(overtakes_the_consumers, "hazard-threads-race", launch=views(96, SUMS, NUMBERS), block=128)


# Barriers of other blocks


@weft.jit
def hands_on(out, x, FIXED: gl.constexpr):
    """Block 0 sends rows to block 1, which arrives on a barrier of block 0 for each that it has read."""
    row = gl.stack_allocation[gl.int32, SHARED](gl.row_major[32]())
    full = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    empty = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i = gl.thread_idx.x
    if i == 0:
        gl.mbarrier_init(full, 32)
        gl.mbarrier_init(empty, 32)
    gl.cluster_sync()
    if gl.block_rank_in_cluster() == 0:
        for k in range(3):
            # BUG: the first row is read by the time that the second is sent only if block 1 happens to be as fast.
            if FIXED:
                while not gl.mbarrier_test_wait_parity(empty, (k + 1) % 2):
                    pass
            row.peer(1)[i] = x[k, i]  # EARLIER, HERE
            gl.mbarrier_arrive(full.peer(1))  # EARLIER, HERE
    else:
        total = 0
        for k in range(3):
            while not gl.mbarrier_test_wait_parity(full, k % 2):
                pass
            total += row[i]  # EARLIER, HERE
            gl.mbarrier_arrive(empty.peer(0))
        out[i] = total


THREE = (np.arange(96) % 13).astype(np.int32).reshape(3, 32)
plant(
    hands_on, "hazard-threads-race", "hazard-barrier-early", "hazard-thread-race",
    launch=views(32, THREE.sum(0), THREE), block=32, num_ctas=2,
)  # fmt: skip


# Threads of one warp that wait for each other


@weft.jit
def lane_by_lane(out, FIXED: gl.constexpr):
    """Each lane waits in a loop for what the one before it does behind the loop."""
    bars = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[8]())
    sums = gl.stack_allocation[gl.int32, SHARED](gl.row_major[8]())
    i = gl.thread_idx.x
    gl.mbarrier_init(bars.ptr + i, 1)
    sums[i] = 0  # EARLIER
    gl.barrier()
    before = 0
    if i > 0:
        while not gl.mbarrier_test_wait_parity(bars.ptr + (i - 1), 0):
            pass
        before = sums[i - 1]  # EARLIER, HERE
    # BUG: the next lane may read before the sum is stored.
    if not FIXED:
        _ = gl.mbarrier_arrive(bars.ptr + i)
    sums[i] = before + i  # EARLIER, HERE
    if FIXED:
        _ = gl.mbarrier_arrive(bars.ptr + i)
    gl.barrier()
    out[i] = sums[i]


plant(lane_by_lane, "hazard-threads-race", launch=views(8, np.arange(8).cumsum()), block=8)
