"""Planted bugs of partitions: producers and consumers around a ring of buffers, named barriers, memory that two share."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.sim.planted.bug import PLAIN, ROWS, apart, given, joined, plant, split, through_global, tile, wide
from weft import language as gl
from weft.language.nvidia.hopper import async_store, fence_async_shared, mbarrier, named_barrier, tma

# What the rings share


@weft.jit
def bars_of(slots: gl.constexpr, count: gl.constexpr):
    bars = mbarrier.allocate_mbarrier(batch=slots)
    for slot in gl.static_range(slots):
        mbarrier.init(bars.index(slot), count=count)
    return bars


# Counts that two partitions share


@weft.jit
def count_odd(bins, bar, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    bins.atomic_scatter_add(at * 0 + 10, at % 8 * 2 + 1, 0)  # EARLIER, HERE
    mbarrier.arrive(bar, count=1)


@weft.jit
def count_all(dst, bins, bar, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    bins.atomic_scatter_add(at * 0 + 1, at % 16, 0)
    # BUG: the atomics do not wait for those of the other partition, and reading the bins is no atomic.
    if FIXED:
        mbarrier.wait(bar, 0)
    gl.store(dst + at, bins.load(layout))  # EARLIER, HERE


@weft.jit
def early_counts(dst, layout: gl.constexpr, memory: gl.constexpr, FIXED: gl.constexpr):
    bins = gl.allocate_shared_memory(gl.int32, [128], memory, gl.full([128], 0, gl.int32, layout))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(count_all, (dst, bins, bar, layout, FIXED)), (count_odd, (bins, bar, layout))], [4])


LINE, FLAT = gl.BlockedLayout([1], [32], [4], [0]), gl.SwizzledSharedLayout(1, 1, 1, [0])
COUNTS = np.where(np.arange(128) < 16, 8 + np.arange(128) % 2 * 160, 0).astype(np.int32)
plant(early_counts, "hazard-thread-race", launch=given(np.full(128, -1, np.int32), COUNTS, LINE, FLAT))


# A store that signals


@weft.jit
def early_read(dst, layout: gl.constexpr, memory: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    box, bar = gl.allocate_shared_memory(gl.int32, [128], memory), mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, box.nbytes_per_cta)
    async_store(box, at, bar)  # EARLIER
    # BUG: program order does not order the store before the thread's own read.
    if FIXED:
        mbarrier.wait(bar, 0)
    gl.store(dst + at, box.load(layout))  # HERE


BOTH = [[0]]  # Each block of the cluster has the whole tile.
LINES, FLATS = gl.BlockedLayout([1], [32], [4], [0], BOTH), gl.SwizzledSharedLayout(1, 1, 1, [0], BOTH)
plant(
    early_read,
    "hazard-read-in-flight",
    launch=given(np.full(128, -1, np.int32), np.arange(128), LINES, FLATS),
    num_ctas=2,
)


# Rings of two buffers


@weft.jit
def produce_late(src, steps, buffers, full, empty, FIXED: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        # BUG: a buffer that was never filled needs no release: the first wait is for the phase before the first.
        mbarrier.wait(empty.index(slot), (step // 2 & 1) ^ (1 if FIXED else 0))  # HERE
        mbarrier.expect(full.index(slot), src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], full.index(slot), buffers.index(slot))


@weft.jit
def consume(dst, steps, buffers, full, empty, layout: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(full.index(slot), step // 2 & 1)  # HERE
        gl.store(dst + tile(step, layout), buffers.index(slot).load(layout))
        fence_async_shared()
        mbarrier.arrive(empty.index(slot), count=1)


@weft.jit
def nobody_begins(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    full, empty = bars_of(2, 1), bars_of(2, 1)
    gl.warp_specialize(
        [
            (consume, (dst, steps, buffers, full, empty, layout)),
            (produce_late, (src, steps, buffers, full, empty, FIXED)),
        ],
        [1],
    )


plant(nobody_begins, "hazard-deadlock", launch=split(5, ROWS))


@weft.jit
def produce_for_early(src, steps, buffers, full, empty):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(empty.index(slot), (step // 2 & 1) ^ 1)
        mbarrier.expect(full.index(slot), src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], full.index(slot), buffers.index(slot))  # EARLIER, HERE


@weft.jit
def consume_late(dst, steps, buffers, full, empty, layout: gl.constexpr, FIXED: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(full.index(slot), step // 2 & 1)
        if not FIXED:
            # BUG: the buffer is given back before it is read.
            mbarrier.arrive(empty.index(slot), count=1)
        values = buffers.index(slot).load(layout)  # EARLIER, HERE
        gl.store(dst + tile(step, layout), values)
        fence_async_shared()
        if FIXED:
            mbarrier.arrive(empty.index(slot), count=1)


@weft.jit
def given_back_unread(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    full, empty = bars_of(2, 1), bars_of(2, 1)
    gl.warp_specialize(
        [
            (consume_late, (dst, steps, buffers, full, empty, layout, FIXED)),
            (produce_for_early, (src, steps, buffers, full, empty)),
        ],
        [1],
    )


plant(
    given_back_unread, "hazard-thread-race", "hazard-read-in-flight", "hazard-missing-fence", launch=split(5, ROWS)
)  # fmt: skip


@weft.jit
def produce_for_tiles(src, total, buffers, full, empty):
    for step in range(total):
        slot = step % 2
        mbarrier.wait(empty.index(slot), (step // 2 & 1) ^ 1)
        mbarrier.expect(full.index(slot), src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], full.index(slot), buffers.index(slot))  # EARLIER


@weft.jit
def consume_tiles(dst, tiles, depth, buffers, full, empty, layout: gl.constexpr, FIXED: gl.constexpr):
    for number in range(tiles):
        for k in range(depth):
            # BUG: the ring goes on from tile to tile; with an odd depth a tile begins in the other slot.
            step = number * depth + k if FIXED else k
            mbarrier.wait(full.index(step % 2), step // 2 & 1)
            gl.store(dst + tile(number * depth + k, layout), buffers.index(step % 2).load(layout))  # HERE
            fence_async_shared()
            mbarrier.arrive(empty.index(step % 2), count=1)  # HERE


@weft.jit
def begins_again(src, dst, tiles, depth, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    full, empty = bars_of(2, 1), bars_of(2, 1)
    gl.warp_specialize(
        [
            (consume_tiles, (dst, tiles, depth, buffers, full, empty, layout, FIXED)),
            (produce_for_tiles, (src, tiles * depth, buffers, full, empty)),
        ],
        [1],
    )


plant(begins_again, "hazard-read-in-flight", "hazard-too-many-arrivals", launch=split(2, 3, ROWS, steps=6))


@weft.jit
def produce_waiting(src, steps, buffers, full, empty):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(empty.index(slot), (step // 2 & 1) ^ 1)  # HERE
        mbarrier.expect(full.index(slot), src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], full.index(slot), buffers.index(slot))


@weft.jit
def consume_but_the_last(dst, tiles, depth, buffers, full, empty, layout: gl.constexpr, FIXED: gl.constexpr):
    for number in range(tiles):
        for k in range(depth):
            step = number * depth + k
            mbarrier.wait(full.index(step % 2), step // 2 & 1)  # HERE
            gl.store(dst + tile(step, layout), buffers.index(step % 2).load(layout))
            fence_async_shared()
            # BUG: the last buffer of a tile is needed again too, as the next tile goes on with the ring.
            mbarrier.arrive(empty.index(step % 2), count=1, pred=FIXED or k + 1 < depth)


@weft.jit
def keeps_the_last(src, dst, tiles, depth, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    full, empty = bars_of(2, 1), bars_of(2, 1)
    gl.warp_specialize(
        [
            (consume_but_the_last, (dst, tiles, depth, buffers, full, empty, layout, FIXED)),
            (produce_waiting, (src, tiles * depth, buffers, full, empty)),
        ],
        [1],
    )


plant(keeps_the_last, "hazard-deadlock", launch=split(2, 3, ROWS, steps=6))


@weft.jit
def produce_by_flips(src, steps, buffers, full, empty, FIXED: gl.constexpr):
    phase = 1
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(empty.index(slot), phase)  # HERE
        mbarrier.expect(full.index(slot), src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], full.index(slot), buffers.index(slot))
        # BUG: the phase changes where the ring begins again, not with every slot.
        phase ^= slot if FIXED else 1


@weft.jit
def consume_for_flips(dst, steps, buffers, full, empty, layout: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(full.index(slot), step // 2 & 1)  # HERE
        gl.store(dst + tile(step, layout), buffers.index(slot).load(layout))
        fence_async_shared()
        mbarrier.arrive(empty.index(slot), count=1)


@weft.jit
def flips_every_step(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    full, empty = bars_of(2, 1), bars_of(2, 1)
    gl.warp_specialize(
        [
            (consume_for_flips, (dst, steps, buffers, full, empty, layout)),
            (produce_by_flips, (src, steps, buffers, full, empty, FIXED)),
        ],
        [1],
    )


plant(flips_every_step, "hazard-deadlock", launch=split(5, ROWS))

# Counts, and stores of others


@weft.jit
def store_half(src, tile_of, buffer, ready, layout: gl.constexpr):
    buffer.store(gl.load(src + tile(tile_of, layout)))  # EARLIER
    fence_async_shared()
    mbarrier.arrive(ready, count=1)  # EARLIER


@weft.jit
def send_both(dst, buffers, ready):
    mbarrier.wait(ready, 0)  # HERE
    for i in gl.static_range(2):
        tma.async_copy_shared_to_global(dst, [0, i * 32], buffers.index(i))  # HERE
    tma.store_wait(pendings=0)


@weft.jit
def two_of_three(src, dst, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(dst.dtype, [2, *dst.block_shape], dst.layout)  # EARLIER
    # BUG: both of the partitions that store arrive, and the one that sends them waits for one.
    ready = bars_of(1, 2 if FIXED else 1).index(0)
    gl.warp_specialize(
        [
            (store_half, (src, 0, buffers.index(0), ready, layout)),
            (store_half, (src, 1, buffers.index(1), ready, layout)),
            (send_both, (dst, buffers, ready)),
        ],
        [4, 1],
    )


# The order of events decides what is met first.
plant(
    two_of_three, "hazard-thread-race", "hazard-phase-aliasing", "hazard-uninitialized", launch=joined(ROWS, steps=2)
)  # fmt: skip


@weft.jit
def fill(src, steps, buffer, full, empty, layout: gl.constexpr):
    for step in range(steps):
        values = gl.load(src + tile(step, layout))
        mbarrier.wait(empty, (step & 1) ^ 1)
        buffer.store(values)  # HERE
        mbarrier.arrive(full, count=1)


@weft.jit
def send(dst, steps, buffer, full, empty, FIXED: gl.constexpr):
    for step in range(steps):
        mbarrier.wait(full, step & 1)
        fence_async_shared()
        tma.async_copy_shared_to_global(dst, [0, step * 32], buffer)  # EARLIER
        # BUG: with one buffer no store may be pending when it is given back.
        tma.store_wait(pendings=0 if FIXED else 1)
        mbarrier.arrive(empty, count=1)
    tma.store_wait(pendings=0)


@weft.jit
def given_back_unsent(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(dst.dtype, dst.block_shape, dst.layout)
    full, empty = bars_of(1, 1).index(0), bars_of(1, 1).index(0)
    gl.warp_specialize(
        [(fill, (src, steps, buffer, full, empty, layout)), (send, (dst, steps, buffer, full, empty, FIXED))], [1]
    )


plant(given_back_unsent, "hazard-store-source-reused", launch=joined(5, ROWS))


@weft.jit
def send_and_arrive(x, desc, buffer, sent, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer.store(gl.load(x + tile(0, layout)))
    fence_async_shared()
    tma.async_copy_shared_to_global(desc, [0, 0], buffer)  # EARLIER
    # BUG: the store need not be complete when this partition arrives: it has issued it, and nobody has waited for it.
    if FIXED:
        tma.store_wait(pendings=0, read_only=False)
    mbarrier.arrive(sent, count=1)
    tma.store_wait(pendings=0)


@weft.jit
def read_back(out, data, sent, layout: gl.constexpr):
    mbarrier.wait(sent, 0)
    gl.store(out + tile(0, layout), gl.load(data + tile(0, layout)))  # HERE


@weft.jit
def read_before_complete(out, x, desc, data, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    sent = bars_of(1, 1).index(0)
    gl.warp_specialize(
        [(read_back, (out, data, sent, layout)), (send_and_arrive, (x, desc, buffer, sent, layout, FIXED))], [4]
    )


plant(read_before_complete, "hazard-global-stored", launch=through_global(ROWS))

# Memory that two partitions write


@weft.jit
def add_first(x, total, layout: gl.constexpr, FIXED: gl.constexpr):
    mine = gl.load(x + tile(0, layout))
    total.store(total.load(layout) + mine)  # EARLIER, HERE
    named_barrier.arrive(1, 8)


@weft.jit
def add_second(x, dst, total, layout: gl.constexpr, FIXED: gl.constexpr):
    mine = gl.load(x + tile(1, layout))
    if FIXED:
        named_barrier.sync(1, 8)
    # BUG: the barrier between the two sums comes after this one.
    total.store(total.load(layout) + mine)  # EARLIER, HERE
    if not FIXED:
        named_barrier.sync(1, 8)
    gl.store(dst + tile(0, layout), total.load(layout))
    gl.store(dst + tile(1, layout), mine)


@weft.jit
def sums_of_two(x, dst, layout: gl.constexpr, smem: gl.constexpr, FIXED: gl.constexpr):
    total = gl.allocate_shared_memory(gl.float32, [16, 32], smem)
    total.store(gl.zeros([16, 32], gl.float32, layout))
    gl.warp_specialize(
        [(add_first, (x, total, layout, FIXED)), (add_second, (x, dst, total, layout, FIXED))], [4]
    )  # fmt: skip


def sums() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    x, out = apart(wide(2)), np.full((2, 16, 32), np.nan, np.float32)
    return (x, out, ROWS, PLAIN), out, np.stack([x[0] + x[1], x[1]])


plant(sums_of_two, "hazard-thread-race", launch=sums)
