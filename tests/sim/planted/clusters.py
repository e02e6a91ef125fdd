"""Planted bugs of clusters: multicasts, barriers of other blocks, blocks that leave."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.sim.planted.bug import plant
from weft import language as gl
from weft.language.nvidia.blackwell import tma as pairs
from weft.language.nvidia.hopper import async_store, cluster, fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

COPIES = [[0, 0]]
SHARED = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32, cga_layout=COPIES)
LAYOUT = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=COPIES)


def sums(steps: int, *more: Any):
    """A descriptor of tiles side by side that both blocks get, and an array for their sum."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x = np.arange(16 * 32 * steps, dtype=np.float32).reshape(16, 32 * steps)
        out = np.full((16, 32), np.nan, np.float32)
        return (TensorDescriptor.from_tensor(x, [16, 32], SHARED), out, *more), out, x.reshape(16, steps, 32).sum(1)

    return launch


@weft.jit
def keep(out, total, layout: gl.constexpr):
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 32, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 32 + j[None, :], total)


@weft.jit
def released_by_one(src, out, layout: gl.constexpr, spread: gl.constexpr, FIXED: gl.constexpr):
    """One block sends to both, when its barrier `empty` says that the last tile has been read."""
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    full = mbarrier.allocate_mbarrier()
    # BUG: of a barrier that blocks do not share each block has its own, on which the others do not arrive.
    shared: gl.constexpr = spread if FIXED else None
    empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout(shared))
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    total = gl.zeros([16, 32], gl.float32, layout)
    for step in range(3):
        mbarrier.wait(empty, (step & 1) ^ 1)
        mbarrier.expect(full, src.nbytes_per_cta)
        tma.async_load(src, [0, step * 32], full, buffer, multicast=True)  # EARLIER, HERE
        mbarrier.wait(full, step & 1)
        total += buffer.load(layout)  # EARLIER, HERE
        fence_async_shared()
        mbarrier.arrive(empty)
    keep(out, total, layout)


plant(
    released_by_one, "hazard-write-in-flight", "hazard-thread-race", launch=sums(3, LAYOUT, [[0]]), num_ctas=2
)  # fmt: skip


@weft.jit(sync="none")
def arrives_at_nothing(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    full = mbarrier.allocate_mbarrier()
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(ready, count=2)
    if FIXED:
        cluster.barrier()
    else:
        # BUG: the other block may not have made its barriers yet.
        gl.barrier()
    mbarrier.expect(full, src.nbytes_per_cta)
    mbarrier.arrive(ready, everywhere=True)  # HERE
    mbarrier.wait(ready, 0)
    tma.async_load(src, [0, 0], full, buffer, multicast=True)
    mbarrier.wait(full, 0)
    keep(out, buffer.load(layout), layout)
    cluster.barrier()


plant(arrives_at_nothing, "hazard-barrier-not-initialised", launch=sums(1, LAYOUT), num_ctas=2)


@weft.jit(sync="none")
def leaves_before_the_others(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=2)
    cluster.barrier()
    mbarrier.expect(full, src.nbytes_per_cta)
    tma.async_load(src, [0, 0], full, buffer)
    mbarrier.wait(full, 0)
    keep(out, buffer.load(layout), layout)
    mbarrier.arrive(done, everywhere=True)  # HERE
    # BUG: a block whose own work is done may not leave while others still arrive on its barrier.
    if FIXED:
        mbarrier.wait(done, 0)
        cluster.barrier()


plant(leaves_before_the_others, "hazard-block-exited", launch=sums(1, LAYOUT), num_ctas=2)


@weft.jit
def arrives_without_waiting(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    total = gl.zeros([16, 32], gl.float32, layout)
    for step in range(3):
        mbarrier.expect(full, src.nbytes_per_cta)
        tma.async_load(src, [0, step * 32], full, buffer, multicast=True)  # EARLIER, HERE
        mbarrier.wait(full, step & 1)
        total += buffer.load(layout)
        cluster.arrive()
        # BUG: an arrival alone does not block: the wait has to come before the next tile is sent.
        if FIXED:
            cluster.wait()
    keep(out, total, layout)


plant(
    arrives_without_waiting, "hazard-write-in-flight", launch=sums(3, LAYOUT), num_ctas=2
)  # fmt: skip


@weft.jit
def halves_of_others(x, out, near: gl.constexpr, far: gl.constexpr, FIXED: gl.constexpr):
    i = gl.arange(0, 256, near)
    gl.store(out + i, gl.load(x + i) * 2)  # EARLIER, HERE
    # BUG: the elements that are read next are those of the other block, for which only the cluster's barrier waits.
    gl.barrier(cluster=FIXED)
    j = gl.arange(0, 256, far)
    gl.store(out + 256 + j, gl.load(out + j) + 1)  # EARLIER, HERE


def halves() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    x, out = np.arange(256, dtype=np.int32), np.full(512, -1, np.int32)
    near = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])
    far = gl.DistributedLinearLayout(
        [], [[2 << bit] for bit in range(5)], [[64], [128]], [[1]], [256]
    )  # fmt: skip
    return (x, out, near, far), out, np.concatenate([2 * x, 2 * x + 1])


plant(halves_of_others, "hazard-global-block-race", launch=halves, num_ctas=2)


# Stores that are sent to other blocks

PART = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[1, 0]])
EACH = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=COPIES)


def exchanged(rounds: int):
    """An array of which each block sends a half to both, and what `rounds` make of it."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x, out = np.arange(512, dtype=np.int32).reshape(16, 32), np.full((16, 32), -1, np.int32)
        return (x, out, PART, LAYOUT, EACH), out, x + rounds

    return launch


@weft.jit
def half(x, layout: gl.constexpr):
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 32, gl.SliceLayout(0, layout))
    return x + i[:, None] * 32 + j[None, :]


@weft.jit
def reads_what_is_under_way(x, out, part: gl.constexpr, whole: gl.constexpr, shared: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(gl.int32, [16, 32], shared)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, buffer.nbytes_per_cta)
    async_store(buffer, gl.load(half(x, part)), full)  # EARLIER
    # BUG: a cluster barrier orders what threads do, but not what they have sent: that completes on the mbarrier.
    if FIXED:
        mbarrier.wait(full, 0)
    cluster.barrier()
    gl.store(half(out, whole), buffer.load(whole))  # HERE


plant(reads_what_is_under_way, "hazard-read-in-flight", launch=exchanged(0), num_ctas=2)


@weft.jit
def sends_into_what_is_read(x, out, part: gl.constexpr, whole: gl.constexpr, shared: gl.constexpr, FIXED: gl.constexpr):
    # BUG: with one buffer a block that is ahead sends the next round while another still reads this one.
    slots: gl.constexpr = 2 if FIXED else 1
    ring = gl.allocate_shared_memory(gl.int32, [slots, 16, 32], shared)
    full = gl.allocate_shared_memory(gl.int64, [slots, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(slots):
        mbarrier.init(full.index(slot), count=1)
    value = gl.load(half(x, part))
    for k in range(4):
        slot = k % slots
        mbarrier.expect(full.index(slot), 2048)
        async_store(ring.index(slot), value, full.index(slot))  # HERE, EARLIER
        mbarrier.wait(full.index(slot), (k // slots) & 1)
        value = gl.convert_layout(ring.index(slot).load(whole) + 1, part)  # EARLIER, HERE
    gl.store(half(out, part), value)


plant(
    sends_into_what_is_read,
    "hazard-thread-race",
    "hazard-write-in-flight",
    "hazard-read-in-flight",
    launch=exchanged(4),
    num_ctas=2,
)


@weft.jit(sync="none")
def sends_to_one_that_has_left(
    x, out, part: gl.constexpr, whole: gl.constexpr, shared: gl.constexpr, FIXED: gl.constexpr
):
    buffer = gl.allocate_shared_memory(gl.int32, [16, 32], shared)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    cluster.barrier()
    value = gl.load(half(x, part))
    mbarrier.expect(full, buffer.nbytes_per_cta)
    async_store(buffer, value, full)  # HERE
    # BUG: a block that has its own half ends, though the other still sends to it.
    if FIXED:
        mbarrier.wait(full, 0)
    gl.store(half(out, part), value)
    if FIXED:
        cluster.barrier()


plant(sends_to_one_that_has_left, "hazard-block-exited", launch=exchanged(0), num_ctas=2)


# Loads to the other block of a pair

HALVES = gl.NVMMASharedLayout.get_default_for([32, 32], gl.float32, cga_layout=[[1, 0]])
SPLIT = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[1, 0]])


def second_half() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    x, out = np.arange(32 * 32, dtype=np.float32).reshape(32, 32), np.full((64, 32), np.nan, np.float32)
    result = np.concatenate([np.zeros((32, 32), np.float32), x])
    return (TensorDescriptor.from_tensor(x, [32, 32], HALVES), out, SPLIT), out, result


@weft.jit
def loaded_by_the_other_block(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    tile = gl.allocate_shared_memory(src.dtype, [64, 32], src.layout, value=gl.zeros([64, 32], src.dtype, layout))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    cluster.barrier()
    part = tile.slice(32, 32)
    mbarrier.expect(bar, part.nbytes_per_cta)
    pairs.async_load(src, [0, 0], bar, part)  # EARLIER, HERE
    mbarrier.wait(bar, 0)
    # BUG: the second block has waited for the rows that it loads itself, but not for those of the first block.
    if FIXED:
        cluster.barrier()
    i = gl.arange(0, 64, gl.SliceLayout(1, layout))
    j = gl.arange(0, 32, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 32 + j[None, :], tile.load(layout))  # HERE, EARLIER
    cluster.barrier()


plant(
    loaded_by_the_other_block, "hazard-read-in-flight", "hazard-thread-race", launch=second_half, num_ctas=2, target="sm_100a"
)  # fmt: skip


@weft.jit
def overwrites_what_is_read(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    tile = gl.allocate_shared_memory(src.dtype, [64, 32], src.layout, value=gl.zeros([64, 32], src.dtype, layout))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    cluster.barrier()
    total = tile.load(layout)  # EARLIER, HERE
    # BUG: the first block loads to the second one's memory while that one still reads it.
    if FIXED:
        cluster.barrier()
    part = tile.slice(32, 32)
    mbarrier.expect(bar, part.nbytes_per_cta)
    pairs.async_load(src, [0, 0], bar, part)  # HERE, EARLIER
    mbarrier.wait(bar, 0)
    cluster.barrier()
    total += tile.load(layout)
    i = gl.arange(0, 64, gl.SliceLayout(1, layout))
    j = gl.arange(0, 32, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 32 + j[None, :], total)


plant(
    overwrites_what_is_read, "hazard-thread-race", "hazard-write-in-flight", launch=second_half, num_ctas=2, target="sm_100a"
)  # fmt: skip


# What one block does for all


def unset() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    out = np.zeros(2, np.int32)
    return (out,), out, np.array([1, 7], np.int32)


@weft.jit
def polled_by_each_block(out, FIXED: gl.constexpr):
    if FIXED:
        found = gl.atomic_add(out, 0, sem="relaxed")
    else:
        # BUG: each block reads for itself, and the first one has stored by the time that the second one reads.
        found = gl.load(out, volatile=True)
    gl.store(out, 1, sem="relaxed")
    if found == 0:
        gl.store(out + 1, 7)  # HERE


plant(polled_by_each_block, "hazard-blocks-divided", launch=unset, lowered=False, num_ctas=2)
