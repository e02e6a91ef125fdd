"""Planted bugs in what one program hands to another within a launch: polls, fences, and TMA on either side."""

from __future__ import annotations

import numpy as np

import weft
from tests.sim.planted.bug import LINE, ROWS, given, plant, through_global, tile
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_global, mbarrier, tma

N = 128
NUMBERS = np.arange(N, dtype=np.int32)
ONE = np.zeros(1, np.int32)


def message() -> tuple[tuple, np.ndarray, np.ndarray]:
    """An output, the numbers, room for a message, and a flag."""
    return given(np.full(N, -1, np.int32), NUMBERS, NUMBERS, np.zeros(N, np.int32), ONE, LINE)()


# Polls


@weft.jit
def polls_without_acquire(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        # BUG: a relaxed poll waits, but what was stored before the flag need not be visible behind it.
        gl.atomic_poll(flag, 1, sem="acquire" if FIXED else "relaxed")
        gl.store(out + at, gl.load(box + at))  # HERE


plant(polls_without_acquire, "hazard-global-race", grid=2, launch=message)


@weft.jit
def polls_within_the_block(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        # BUG: the scope of the acquire is this block, which the other program is not in.
        gl.atomic_poll(flag, 1, scope="gpu" if FIXED else "cta")
        gl.store(out + at, gl.load(box + at))  # HERE


plant(polls_within_the_block, "hazard-global-race", grid=2, launch=message)


@weft.jit
def forgets_the_timeout(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        met = gl.atomic_poll(flag, 1, timeout_ns=1_000_000)
        # BUG: when the time is over the poll has acquired nothing, so its result has to be looked at.
        if met or not FIXED:
            gl.store(out + at, gl.load(box + at))  # HERE


plant(forgets_the_timeout, "hazard-global-race", grid=2, launch=message)


@weft.jit
def polls_for_another_value(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))
        gl.store(flag, 2 if FIXED else 1, sem="release")
    else:
        # BUG: the other program never stores a 2.
        gl.atomic_poll(flag, 2)  # HERE
        gl.store(out + at, gl.load(box + at))


plant(polls_for_another_value, "hazard-deadlock", grid=2, launch=message)


# Fences of memory order


@weft.jit
def stores_without_fence(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        # BUG: nothing orders the stores of the message before the relaxed store of the flag.
        if FIXED:
            gl.fence()
        gl.store(flag, 1, sem="relaxed")
    else:
        while gl.load(flag, sem="relaxed") == 0:
            pass
        gl.fence()
        gl.store(out + at, gl.load(box + at))  # HERE


plant(stores_without_fence, "hazard-global-race", grid=2, launch=message)


@weft.jit
def fences_behind_the_flag(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        if FIXED:
            gl.fence()
        gl.atomic_xchg(flag, 1, sem="relaxed")
        # BUG: the fence has to stand between the message and the flag.
        gl.fence()
    else:
        gl.atomic_poll(flag, 1)
        gl.store(out + at, gl.load(box + at))  # HERE


plant(fences_behind_the_flag, "hazard-global-race", grid=2, launch=message)


@weft.jit
def loads_without_fence(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        gl.fence()
        gl.store(flag, 1, sem="relaxed")
    else:
        while gl.load(flag, sem="relaxed") == 0:
            pass
        # BUG: the loop waits, but nothing orders the loads of the message after its relaxed loads.
        if FIXED:
            gl.fence()
        gl.store(out + at, gl.load(box + at))  # HERE


plant(loads_without_fence, "hazard-global-race", grid=2, launch=message)


@weft.jit
def fences_within_the_block(out, x, box, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))  # EARLIER
        # BUG: the fence orders the stores for the threads of this block only.
        gl.fence(scope="gpu" if FIXED else "cta")
        gl.store(flag, 1, sem="relaxed")
    else:
        gl.atomic_poll(flag, 1)
        gl.store(out + at, gl.load(box + at))  # HERE


plant(fences_within_the_block, "hazard-global-race", grid=2, launch=message)


@weft.jit
def first_thread_fences(out, x, box, flag, FIXED: gl.constexpr):
    """Code that is written per thread, where a fence orders accesses of its own thread."""
    i = gl.thread_idx.x
    if gl.block_idx.x == 0:
        box[i] = x[i]  # EARLIER
        # BUG: the fence of the first thread says nothing of what the others have not handed to it at a barrier.
        if FIXED:
            gl.barrier()
        if i == 0:
            gl.fence()
            gl.store(flag, 1, sem="relaxed")
    else:
        if i == 0:
            while gl.load(flag, sem="relaxed") == 0:
                pass
            gl.fence()
        gl.barrier()
        out[i] = box[i]  # HERE


plant(
    first_thread_fences, "hazard-global-race", grid=2, block=N,
    launch=given(np.full(N, -1, np.int32), NUMBERS, NUMBERS, np.zeros(N, np.int32), ONE),
)  # fmt: skip


# Through global memory by TMA: the writer waits for the writes of its store and releases; the reader acquires and loads, with a
# proxy fence of either program between the completion of the store and the load.


def tile_and_flag() -> tuple[tuple, np.ndarray, np.ndarray]:
    """An output, a tile, memory for it as a descriptor and as an array, a flag, and a layout."""
    return through_global(ONE.copy(), ROWS)()


@weft.jit
def waits_for_the_reads_only(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    if gl.program_id(0) == 0:
        buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
        buffer.store(gl.load(x + tile(0, layout)))
        tma.async_copy_shared_to_global(desc, [0, 0], buffer)  # EARLIER
        # BUG: this waits until the store has read shared memory, not until global memory has what it wrote.
        tma.store_wait(0, read_only=not FIXED)
        fence_async_global()
        gl.store(flag, 1, sem="release")
    else:
        gl.atomic_poll(flag, 1)
        fence_async_global()
        buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(waits_for_the_reads_only, "hazard-global-stored", grid=2, launch=tile_and_flag)


@weft.jit
def no_proxy_fence(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    if gl.program_id(0) == 0:
        buffer.store(gl.load(x + tile(0, layout)))
        tma.async_copy_shared_to_global(desc, [0, 0], buffer)  # EARLIER
        tma.store_wait(0, read_only=False)
        gl.store(flag, 1, sem="release")
    else:
        gl.atomic_poll(flag, 1)
        # BUG: the store has handed the tile to the generic proxy, in which the flag is; TMA reads in the async proxy.
        if FIXED:
            fence_async_global()
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(no_proxy_fence, "hazard-global-fence", grid=2, launch=tile_and_flag)


@weft.jit
def fences_before_it_acquires(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    if gl.program_id(0) == 0:
        gl.store(data + tile(0, layout), gl.load(x + tile(0, layout)))  # EARLIER
        gl.store(flag, 1, sem="release")
    else:
        # BUG: the fence comes before the acquire, so it is not between the other program's stores and the load.
        fence_async_global()
        gl.atomic_poll(flag, 1)
        if FIXED:
            fence_async_global()
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(fences_before_it_acquires, "hazard-global-fence", grid=2, launch=tile_and_flag)


@weft.jit
def fences_before_it_waits(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    if gl.program_id(0) == 0:
        buffer.store(gl.load(x + tile(0, layout)))
        tma.async_copy_shared_to_global(desc, [0, 0], buffer)  # EARLIER
        # BUG: the fence comes before the store is complete.
        if not FIXED:
            fence_async_global()
        tma.store_wait(0, read_only=False)
        if FIXED:
            fence_async_global()
        gl.store(flag, 1, sem="release")
    else:
        gl.atomic_poll(flag, 1)
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(fences_before_it_waits, "hazard-global-fence", grid=2, launch=tile_and_flag)


@weft.jit
def tma_without_acquire(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    if gl.program_id(0) == 0:
        gl.store(data + tile(0, layout), gl.load(x + tile(0, layout)))  # EARLIER
        fence_async_global()
        gl.store(flag, 1, sem="release")
    else:
        # BUG: a proxy fence is no acquire.
        gl.atomic_poll(flag, 1, sem="acquire" if FIXED else "relaxed")
        fence_async_global()
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(tma_without_acquire, "hazard-global-race", grid=2, launch=tile_and_flag)


@weft.jit
def tma_without_release(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    if gl.program_id(0) == 0:
        buffer.store(gl.load(x + tile(0, layout)))
        tma.async_copy_shared_to_global(desc, [0, 0], buffer)  # EARLIER
        tma.store_wait(0, read_only=False)
        fence_async_global()
        # BUG: a proxy fence is no release.
        gl.store(flag, 1, sem="release" if FIXED else "relaxed")
    else:
        gl.atomic_poll(flag, 1)
        fence_async_global()
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(tma_without_release, "hazard-global-race", "hazard-global-stored", grid=2, launch=tile_and_flag)


@weft.jit
def tma_behind_own_stores(out, x, desc, data, layout: gl.constexpr, FIXED: gl.constexpr):
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    gl.store(data + tile(0, layout), gl.load(x + tile(0, layout)))  # EARLIER
    # BUG: the barrier orders the threads' stores, but not for TMA.
    if FIXED:
        fence_async_global()
    gl.barrier()
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load(desc, [0, 0], bar, buffer)  # HERE
    mbarrier.wait(bar, 0)
    gl.store(out + tile(0, layout), buffer.load(layout))


plant(tma_behind_own_stores, "hazard-global-fence", launch=through_global(ROWS))
