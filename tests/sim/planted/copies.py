"""Planted bugs of one block that copies: TMA and mbarriers, `cp.async` and its groups, products of warpgroups."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.sim.planted.bug import (
    COLUMNS,
    PLAIN,
    ROWS,
    STEPS,
    Launch,
    apart,
    joined,
    plant,
    split,
    tile,
    wide,
)
from weft import language as gl
from weft.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from weft.nvidia.hopper import TensorDescriptor

# Phases


@weft.jit
def two_loops(src, dst, first, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    for step in range(first):
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, buffer)
        mbarrier.wait(bar, step & 1)
        gl.store(dst + tile(step, layout), buffer.load(layout))
    for step in range(first, 5):
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, buffer)  # EARLIER
        # BUG: phases are counted from the beginning of this loop, but the first one had an odd number of them.
        mbarrier.wait(bar, step & 1 if FIXED else (step - first) & 1)
        gl.store(dst + tile(step, layout), buffer.load(layout))  # HERE


plant(two_loops, "hazard-read-in-flight", launch=split(3, ROWS))


@weft.jit
def flipped_at_the_end(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    phase = 0
    for step in range(steps - 1):
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, buffer)
        mbarrier.wait(bar, phase)
        gl.store(dst + tile(step, layout), buffer.load(layout))
        phase ^= 1
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_load(src, [0, (steps - 1) * 32], bar, buffer)  # EARLIER
    # BUG: the loop has already flipped the phase after its last wait.
    mbarrier.wait(bar, phase if FIXED else phase ^ 1)
    gl.store(dst + tile(steps - 1, layout), buffer.load(layout))  # HERE


plant(flipped_at_the_end, "hazard-read-in-flight", launch=split(STEPS, ROWS))


@weft.jit
def three_slots_by_two(src, dst, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [3, *src.block_shape], src.layout)
    bars = mbarrier.allocate_mbarrier(batch=3)
    for slot in gl.static_range(3):
        mbarrier.init(bars.index(slot), count=1)
    for step in range(7):
        if step == 0:
            for ahead in gl.static_range(2):
                mbarrier.expect(bars.index(ahead), src.block_type.nbytes)
                tma.async_load(src, [0, ahead * 32], bars.index(ahead), buffers.index(ahead))
        if step + 2 < 7:
            slot = (step + 2) % 3
            mbarrier.expect(bars.index(slot), src.block_type.nbytes)
            tma.async_load(src, [0, (step + 2) * 32], bars.index(slot), buffers.index(slot))  # EARLIER
        # BUG: the phase flips once a turn through the ring, which has three slots by now, not two.
        mbarrier.wait(bars.index(step % 3), step // (3 if FIXED else 2) & 1)  # EARLIER
        gl.store(dst + tile(step, layout), buffers.index(step % 3).load(layout))  # HERE


plant(three_slots_by_two, "hazard-read-in-flight", "hazard-deadlock", launch=split(ROWS, steps=7))

# Bytes and arrivals


@weft.jit
def bytes_of_one(src, dst, layout: gl.constexpr, FIXED: gl.constexpr):
    pair = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    # BUG: one barrier for two copies expects the bytes of one.
    mbarrier.expect(bar, (2 if FIXED else 1) * src.block_type.nbytes)  # EARLIER
    tma.async_load(src, [0, 0], bar, pair.index(0))
    tma.async_load(src, [0, 32], bar, pair.index(1))  # HERE
    mbarrier.wait(bar, 0)
    for i in gl.static_range(2):
        gl.store(dst + tile(i, layout), pair.index(i).load(layout))


plant(bytes_of_one, "hazard-transaction-bytes", launch=split(ROWS, steps=2))


@weft.jit
def bytes_of_a_skipped_copy(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    pair = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    for step in range(0, steps, 2):
        both = step + 1 < steps
        # BUG: the last turn of an odd number of tiles makes one copy, but expects the bytes of two.
        if both or not FIXED:
            mbarrier.expect(bar, 2 * src.block_type.nbytes)  # EARLIER
        else:
            mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, pair.index(0))
        tma.async_load(src, [0, step * 32 + 32], bar, pair.index(1), pred=both)
        mbarrier.wait(bar, step // 2 & 1)  # HERE
        gl.store(dst + tile(step, layout), pair.index(0).load(layout))
        if both:
            gl.store(dst + tile(step + 1, layout), pair.index(1).load(layout))


plant(bytes_of_a_skipped_copy, "hazard-transaction-bytes-missing", launch=split(STEPS, ROWS))


@weft.jit
def made_again(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    if FIXED:
        mbarrier.init(bar, count=1)
    for step in range(steps):
        if not FIXED:
            # BUG: a barrier keeps its state from tile to tile and is made once.
            mbarrier.init(bar, count=1)  # EARLIER, HERE
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, buffer)
        mbarrier.wait(bar, step & 1 if FIXED else 0)
        gl.store(dst + tile(step, layout), buffer.load(layout))


plant(made_again, "hazard-barrier-reinitialised", launch=split(STEPS, ROWS))


@weft.jit
def ended_early(src, dst, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_load(src, [0, 0], bar, buffer)  # EARLIER
    if not FIXED:
        # BUG: the copy in flight will still signal the barrier.
        mbarrier.invalidate(bar)  # HERE
    mbarrier.wait(bar, 0)
    gl.store(dst + tile(0, layout), buffer.load(layout))
    if FIXED:
        mbarrier.invalidate(bar)


plant(ended_early, "hazard-barrier-invalidated-early", launch=split(ROWS, steps=1))


@weft.jit
def slot_beyond(src, dst, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)  # EARLIER
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    slot = 0
    for step in range(5):
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, buffers.index(slot))  # HERE
        mbarrier.wait(bar, step & 1)
        gl.store(dst + tile(step, layout), buffers.index(slot).load(layout))
        # BUG: the slot that follows the last one is compared with the number of slots before it is counted up.
        slot = gl.where(slot + (1 if FIXED else 0) == 2, 0, slot + 1)


plant(slot_beyond, "hazard-shared-range", "hazard-shared-index", launch=split(ROWS))

# Buffers that are reused


@weft.jit
def fills_the_slot_in_use(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    bars = mbarrier.allocate_mbarrier(batch=2)
    for slot in gl.static_range(2):
        mbarrier.init(bars.index(slot), count=1)
    distance: gl.constexpr = 1 if FIXED else 2
    for ahead in gl.static_range(distance):
        mbarrier.expect(bars.index(ahead), src.block_type.nbytes)  # EARLIER
        tma.async_load(src, [0, ahead * 32], bars.index(ahead), buffers.index(ahead))
    for step in range(steps):
        ahead = step + distance
        # BUG: with two slots the load two steps ahead goes to the slot of this step, before anybody has read it.
        mbarrier.expect(bars.index(ahead % 2), src.block_type.nbytes, pred=ahead < steps)  # HERE
        tma.async_load(src, [0, ahead * 32], bars.index(ahead % 2), buffers.index(ahead % 2), pred=ahead < steps)
        mbarrier.wait(bars.index(step % 2), step // 2 & 1)
        gl.store(dst + tile(step, layout), buffers.index(step % 2).load(layout))


plant(fills_the_slot_in_use, "hazard-too-many-arrivals", launch=split(STEPS, ROWS))


@weft.jit(sync="none")
def refilled_while_read(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.barrier()
    for step in range(steps):
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_load(src, [0, step * 32], bar, buffer)  # HERE
        mbarrier.wait(bar, step & 1)
        gl.store(dst + tile(step, layout), buffer.load(layout))  # EARLIER
        fence_async_shared()
        if FIXED:
            gl.barrier()
        # BUG: the thread that issues the next load does not wait for the others, which may still read the buffer.


plant(refilled_while_read, "hazard-thread-race", "hazard-phase-aliasing", launch=split(STEPS, ROWS))


@weft.jit(sync="none")
def fence_before_the_store(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(dst.dtype, dst.block_shape, dst.layout)
    for step in range(steps):
        values = gl.load(src + tile(step, layout))
        tma.store_wait(pendings=0)
        gl.barrier()
        if not FIXED:
            # BUG: the fence orders what comes before it, and the threads write only after it.
            fence_async_shared()
        buffer.store(values)  # EARLIER
        if FIXED:
            fence_async_shared()
        gl.barrier()
        tma.async_copy_shared_to_global(dst, [0, step * 32], buffer)  # HERE
    tma.store_wait(pendings=0)


plant(fence_before_the_store, "hazard-missing-fence", launch=joined(STEPS, ROWS))


@weft.jit
def two_stores_a_step(src, dst, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(dst.dtype, [4, *dst.block_shape], dst.layout)
    for step in range(3):
        # BUG: a step may leave the two stores of the step before pending; three are one too many.
        tma.store_wait(pendings=2 if FIXED else 3)
        slot = step % 2 * 2
        for i in gl.static_range(2):
            buffers.index(slot + i).store(gl.load(src + tile(step * 2 + i, layout)))  # HERE
        for i in gl.static_range(2):
            tma.async_copy_shared_to_global(dst, [0, (step * 2 + i) * 32], buffers.index(slot + i))  # EARLIER
    tma.store_wait(pendings=0)


plant(two_stores_a_step, "hazard-store-source-reused", launch=joined(ROWS, steps=6))


@weft.jit
def leaves_early(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(dst.dtype, dst.block_shape, dst.layout)
    step = gl.program_id(0)
    while step < steps:
        tma.store_wait(pendings=0)
        buffer.store(gl.load(src + tile(step, layout)))
        tma.async_copy_shared_to_global(dst, [0, step * 32], buffer)  # EARLIER, HERE
        step += gl.num_programs(0)
        # BUG: a program with nothing left to do leaves without waiting for its last store.
        if not FIXED and step >= steps:
            return
    tma.store_wait(pendings=0)


plant(leaves_early, "hazard-store-unread", launch=joined(STEPS, ROWS), grid=2)


@weft.jit
def half_never_loaded(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    pair = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)  # EARLIER
    bars = mbarrier.allocate_mbarrier(batch=2)
    for slot in gl.static_range(2):
        mbarrier.init(bars.index(slot), count=1)
        there = slot < steps
        mbarrier.expect(bars.index(slot), src.block_type.nbytes, pred=there)
        tma.async_load(src, [0, slot * 32], bars.index(slot), pair.index(slot), pred=there)
    for slot in gl.static_range(2):
        # BUG: the wait is left out with the copy, but not what reads the copy.
        mbarrier.wait(bars.index(slot), 0, pred=slot < steps)
        if FIXED:
            if slot < steps:
                gl.store(dst + tile(slot, layout), pair.index(slot).load(layout))
        else:
            gl.store(dst + tile(slot, layout), pair.index(slot).load(layout))  # HERE


plant(half_never_loaded, "hazard-uninitialized", launch=split(1, ROWS, steps=1))


@weft.jit
def ping_without_pong(src, dst, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    # BUG: a step may go on while the store of the step before reads its buffer, which takes two buffers.
    slots: gl.constexpr = 2 if FIXED else 1
    buffers = gl.allocate_shared_memory(dst.dtype, [slots, *dst.block_shape], dst.layout)
    for step in range(steps):
        tma.store_wait(pendings=1)
        buffers.index(step % slots).store(gl.load(src + tile(step, layout)))  # HERE
        tma.async_copy_shared_to_global(dst, [0, step * 32], buffers.index(step % slots))  # EARLIER
    tma.store_wait(pendings=0)


plant(ping_without_pong, "hazard-store-source-reused", launch=joined(STEPS, ROWS))

# Copies by the threads


@weft.jit(sync="none")
def groups_at_the_tail(src, dst, steps, layout: gl.constexpr, smem: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(gl.float32, [2, 16, 32], smem)
    async_copy.async_copy_global_to_shared(buffers.index(0), src + tile(0, layout))
    async_copy.commit_group()
    for step in range(steps):
        if step + 1 < steps:
            slot = (step + 1) % 2
            async_copy.async_copy_global_to_shared(buffers.index(slot), src + tile(step + 1, layout))  # EARLIER
            if not FIXED:
                # BUG: the last step closes no group, so that the wait for all but one leaves its own copy in flight.
                async_copy.commit_group()
        if FIXED:
            async_copy.commit_group()
        async_copy.wait_group(1)
        gl.store(dst + tile(step, layout), buffers.index(step % 2).load(layout))  # HERE


def plain(*more: Any, steps: int = STEPS) -> Launch:
    """Tiles one behind the other, in both arrays."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x, out = apart(wide(steps)), np.full((steps, 16, 32), np.nan, np.float32)
        return (x, out, *more), out, x

    return launch


plant(groups_at_the_tail, "hazard-read-in-flight", launch=plain(STEPS, ROWS, PLAIN))


@weft.jit
def groups_counted_as_stages(src, dst, steps, layout: gl.constexpr, smem: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(gl.float32, [3, 16, 32], smem)
    for ahead in gl.static_range(2):
        async_copy.async_copy_global_to_shared(buffers.index(ahead), src + tile(ahead, layout))  # EARLIER
        async_copy.commit_group()
    for step in range(steps):
        # BUG: before the next copy is issued two groups are in flight, of which this step needs the older one.
        async_copy.wait_group(1 if FIXED else 2)
        gl.store(dst + tile(step, layout), buffers.index(step % 3).load(layout))  # HERE
        if step + 2 < steps:
            async_copy.async_copy_global_to_shared(buffers.index((step + 2) % 3), src + tile(step + 2, layout))
        async_copy.commit_group()


plant(groups_counted_as_stages, "hazard-read-in-flight", launch=plain(STEPS, ROWS, PLAIN))


@weft.jit(sync="none")
def others_copied_it(src, dst, layout: gl.constexpr, across: gl.constexpr, smem: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(gl.float32, [16, 32], smem)
    async_copy.async_copy_global_to_shared(buffer, src + tile(0, layout))  # EARLIER
    async_copy.commit_group()
    if not FIXED:
        # BUG: a thread waits for its own copies; the barrier has to come after the waits of all threads.
        gl.barrier()
    async_copy.wait_group(0)
    if FIXED:
        gl.barrier()
    gl.store(dst + tile(0, across), buffer.load(across))  # HERE


plant(others_copied_it, "hazard-read-in-flight", "hazard-thread-race", launch=plain(ROWS, COLUMNS, PLAIN, steps=1))

# Products of warpgroups: of 64 by 64 matrices of small whole numbers, which float32 adds up without rounding.

OPERAND = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
ACC = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
LINES = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])


def products(count: int, *more: Any) -> Launch:
    """A descriptor of `count` matrices one below the other, and an array for the sum of their squares."""

    def launch() -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
        x = (np.arange(count * 64 * 64).reshape(count * 64, 64) % 7 - 3).astype(np.float16)
        out = np.full((64, 64), np.nan, np.float32)
        parts = x.astype(np.float32).reshape(count, 64, 64)
        desc = TensorDescriptor.from_tensor(x, [64, 64], OPERAND)
        return (desc, out, *more), out, (parts @ parts).sum(0)

    return launch


@weft.jit
def keep(out, acc):
    layout: gl.constexpr = acc.type.layout
    i = gl.arange(0, 64, gl.SliceLayout(1, layout))
    gl.store(out + i[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :], acc)


@weft.jit
def refills_what_is_multiplied(src, out, steps, layout: gl.constexpr, FIXED: gl.constexpr):
    operands = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    bars = mbarrier.allocate_mbarrier(batch=2)
    for slot in gl.static_range(2):
        mbarrier.init(bars.index(slot), count=1)
        mbarrier.expect(bars.index(slot), src.block_type.nbytes)
        tma.async_load(src, [slot * 64, 0], bars.index(slot), operands.index(slot))
    acc = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, layout))
    for step in range(steps):
        a, bar = operands.index(step % 2), bars.index(step % 2)
        mbarrier.wait(bar, step // 2 & 1)
        acc = warpgroup_mma(a, a, acc, is_async=True)  # EARLIER
        # BUG: this wait leaves the latest MMA in flight, which reads the slot that is filled again.
        acc = warpgroup_mma_wait(0 if FIXED else 1, [acc])
        mbarrier.expect(bar, src.block_type.nbytes, pred=step + 2 < steps)
        tma.async_load(src, [(step + 2) * 64, 0], bar, a, pred=step + 2 < steps)  # HERE
    keep(out, warpgroup_mma_wait(0, [acc]))


plant(refills_what_is_multiplied, "hazard-operand-reused", launch=products(4, 4, ACC))


@weft.jit
def reads_the_latest(src, out, layout: gl.constexpr, FIXED: gl.constexpr):
    x = gl.allocate_shared_memory(src.dtype, [2, *src.block_shape], src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 2 * src.block_type.nbytes)
    for i in gl.static_range(2):
        tma.async_load(src, [i * 64, 0], bar, x.index(i))
    mbarrier.wait(bar, 0)
    zero = gl.zeros([64, 64], gl.float32, layout)
    first = warpgroup_mma(x.index(0), x.index(0), zero, use_acc=False, is_async=True)
    second = warpgroup_mma(x.index(1), x.index(1), zero, use_acc=False, is_async=True)  # EARLIER
    first, second = warpgroup_mma_wait(1, [first, second])
    if FIXED:
        second = warpgroup_mma_wait(0, [second])
    # BUG: the MMA that may still be in flight is the second one, which is added here.
    keep(out, first + second)  # HERE
    if not FIXED:
        warpgroup_mma_wait(0, [first, second])


plant(reads_the_latest, "hazard-accumulator", "accumulator-in-flight", launch=products(2, ACC))


@weft.jit(sync="none")
def operand_without_a_fence(src, out, layout: gl.constexpr, line: gl.constexpr, FIXED: gl.constexpr):
    raw = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    doubled = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_load(src, [0, 0], bar, raw)
    mbarrier.wait(bar, 0)
    doubled.store(raw.load(line) * 2)  # EARLIER
    if FIXED:
        fence_async_shared()
    # BUG: the tensor core reads in the async proxy, so the barrier alone does not hand it what the threads wrote.
    gl.barrier()
    acc = warpgroup_mma(raw, doubled, gl.zeros([64, 64], gl.float32, layout), is_async=True)  # HERE
    keep(out, warpgroup_mma_wait(0, [acc]) * 0.5)


plant(operand_without_a_fence, "hazard-missing-fence", launch=products(1, ACC, LINES))
