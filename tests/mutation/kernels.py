"""Kernels that synchronise in ways that no example does, for mutations (`tests.mutation.cases` launches them)."""

from __future__ import annotations

import weft
from weft import language as gl
from weft.language.nvidia.hopper import async_copy, fence_async_shared, mbarrier, named_barrier, tma

# Copies that threads start, and everything written out


@weft.jit
def tile_of(row, col, cols, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    rows = row + gl.arange(0, XBLOCK, gl.SliceLayout(1, layout))
    columns = col + gl.arange(0, YBLOCK, gl.SliceLayout(0, layout))
    return (rows * cols)[:, None] + columns[None, :]


@weft.jit(sync="none")
def transpose(src, dst, steps, XBLOCK: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    tile = gl.allocate_shared_memory(src.dtype.element_ty, [XBLOCK, XBLOCK], smem)
    for step in range(steps):
        tile.store(gl.load(src + tile_of(0, step * XBLOCK, steps * XBLOCK, XBLOCK, XBLOCK, layout)))
        gl.barrier()
        turned = tile.permute([1, 0]).load(layout)
        gl.barrier()
        gl.store(dst + tile_of(step * XBLOCK, 0, XBLOCK, XBLOCK, XBLOCK, layout), turned)


@weft.jit(sync="none")
def copy_for_others(
    src, dst, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, along: gl.constexpr, across: gl.constexpr, smem: gl.constexpr
):  # fmt: skip
    """Two tiles that are read by other threads than those that copied them. No thread reads the last copy."""
    tiles = gl.allocate_shared_memory(src.dtype.element_ty, [2, XBLOCK, YBLOCK], smem)
    cols = steps * YBLOCK
    async_copy.async_copy_global_to_shared(tiles.index(0), src + tile_of(0, 0, cols, XBLOCK, YBLOCK, along))
    async_copy.commit_group()
    for step in range(steps):
        places = src + tile_of(0, (step + 1) % steps * YBLOCK, cols, XBLOCK, YBLOCK, along)
        async_copy.async_copy_global_to_shared(tiles.index((step + 1) % 2), places)
        async_copy.commit_group()
        async_copy.wait_group(1)
        gl.barrier()
        values = tiles.index(step % 2).load(across)
        gl.barrier()
        gl.store(dst + tile_of(0, step * YBLOCK, cols, XBLOCK, YBLOCK, across), values)
    async_copy.wait_group(0)


@weft.jit
def copies_tell_all(
    src, dst, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, along: gl.constexpr, across: gl.constexpr, smem: gl.constexpr
):  # fmt: skip
    """All 64 threads copy and wait for each other's copies at one mbarrier."""
    tile = gl.allocate_shared_memory(src.dtype.element_ty, [XBLOCK, YBLOCK], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=64)
    for step in range(steps):
        places = src + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, along)
        async_copy.async_copy_global_to_shared(tile, places)
        async_copy.mbarrier_arrive(bar, increment_count=False)
        mbarrier.wait(bar, step & 1)
        values = tile.load(across)
        gl.store(dst + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, across), values)


@weft.jit
def stage_through_tma(src, out, cols, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    """Copies by cp.async into a tile that TMA then stores."""
    tile = gl.allocate_shared_memory(out.dtype, [XBLOCK, YBLOCK], out.layout)
    for step in range(gl.cdiv(cols, YBLOCK)):
        tma.store_wait(pendings=0)
        async_copy.async_copy_global_to_shared(tile, src + tile_of(0, step * YBLOCK, cols, XBLOCK, YBLOCK, layout))
        async_copy.commit_group()
        async_copy.wait_group(0)
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [0, step * YBLOCK], tile)
    tma.store_wait(pendings=0)


@weft.jit(sync="none")
def swap_through_global(src, dst, steps, BLOCK: gl.constexpr, layout: gl.constexpr):
    """Pairs of neighbours change places in global memory, every barrier written out."""
    at = gl.arange(0, BLOCK, layout)
    gl.store(dst + at, gl.load(src + at))
    for _ in range(steps):
        gl.barrier()
        neighbour = gl.load(dst + (at ^ 1))
        gl.barrier()
        gl.store(dst + at, neighbour)


# TMA


@weft.jit
def double_in_place(src, dst, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    """Two tiles that are loaded, doubled where they are, and stored from there."""
    tiles = gl.allocate_shared_memory(src.dtype, [2, XBLOCK, YBLOCK], src.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bars.index(0), count=1)
    mbarrier.init(bars.index(1), count=1)
    for step in range(steps):
        tile, bar = tiles.index(step % 2), bars.index(step % 2)
        tma.store_wait(pendings=1)
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, step * YBLOCK], bar, tile)
        mbarrier.wait(bar, step // 2 & 1)
        tile.store(tile.load(layout) * 2)
        fence_async_shared()
        tma.async_copy_shared_to_global(dst, [0, step * YBLOCK], tile)
    tma.store_wait(pendings=0)


@weft.jit
def sum_bands(src, total, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    """Each program adds its band into one tile."""
    partial = gl.allocate_shared_memory(total.dtype, [XBLOCK, YBLOCK], total.layout)
    row = gl.program_id(0) * XBLOCK
    for step in range(steps):
        values = gl.load(src + tile_of(row, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout))
        tma.store_wait(pendings=0)
        partial.store(values)
        fence_async_shared()
        tma.async_atomic_add(total, [0, 0], partial)
    tma.store_wait(pendings=0)


@weft.jit
def barrier_per_tile(src, dst, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    """A barrier that is made and ended for every tile, and waited for by phase 0 only."""
    tile = gl.allocate_shared_memory(src.dtype, [XBLOCK, YBLOCK], src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for step in range(steps):
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, step * YBLOCK], bar, tile)
        mbarrier.wait(bar, 0)
        mbarrier.invalidate(bar)
        values = tile.load(layout)
        fence_async_shared()
        gl.store(dst + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout), values)


@weft.jit
def share_bytes(
    src, dst, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr, across: gl.constexpr
):
    """Threads exchange elements through memory that the engine then fills with something else."""
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    for step in range(steps):
        numbers = gl.allocate_shared_memory(gl.float32, [XBLOCK, YBLOCK], src.layout)
        numbers.store(gl.cast(tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, across), gl.float32))
        own = numbers.load(layout)
        tile = gl.allocate_shared_memory(src.dtype, [XBLOCK, YBLOCK], src.layout)
        mbarrier.expect(bar, src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, step * YBLOCK], bar, tile)
        mbarrier.wait(bar, step & 1)
        total = own + tile.load(layout)
        gl.store(dst + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout), total)


# Two partitions


@weft.jit
def produce(src, tiles, full, empty, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        values = gl.load(src + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout))
        mbarrier.wait(empty.index(slot), (step // 2 & 1) ^ 1)
        tiles.index(slot).store(values)
        mbarrier.arrive(full.index(slot), count=1)


@weft.jit
def consume(dst, tiles, full, empty, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(full.index(slot), step // 2 & 1)
        values = tiles.index(slot).load(layout)
        mbarrier.arrive(empty.index(slot), count=1)
        gl.store(dst + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout), values)


@weft.jit
def hand_over(
    src, dst, steps,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr, worker: gl.constexpr, smem: gl.constexpr,
):  # fmt: skip
    """A producer and a consumer that hand each other two tiles, both through the generic proxy."""
    tiles = gl.allocate_shared_memory(src.dtype.element_ty, [2, XBLOCK, YBLOCK], smem)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(2):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    gl.warp_specialize(
        [
            (consume, (dst, tiles, full, empty, steps, XBLOCK, YBLOCK, layout)),
            (produce, (src, tiles, full, empty, steps, XBLOCK, YBLOCK, worker)),
        ],
        [1],
    )


@weft.jit
def copy_ahead(
    src, tiles, full, empty, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr, adds: gl.constexpr
):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(empty.index(slot), (step // 2 & 1) ^ 1)
        places = src + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout)
        async_copy.async_copy_global_to_shared(tiles.index(slot), places)
        async_copy.mbarrier_arrive(full.index(slot), increment_count=adds)
        if adds:
            mbarrier.arrive(full.index(slot), count=1)


@weft.jit
def copies_that_arrive(
    src, dst, steps,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr, worker: gl.constexpr, smem: gl.constexpr,
    adds: gl.constexpr,
):  # fmt: skip
    """As `hand_over`, but the copies of the producer's 32 threads arrive: as what a phase waits for, or in addition to that."""
    tiles = gl.allocate_shared_memory(src.dtype.element_ty, [2, XBLOCK, YBLOCK], smem)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(2):
        mbarrier.init(full.index(slot), count=1 if adds else 32)
        mbarrier.init(empty.index(slot), count=1)
    gl.warp_specialize(
        [
            (consume, (dst, tiles, full, empty, steps, XBLOCK, YBLOCK, layout)),
            (copy_ahead, (src, tiles, full, empty, steps, XBLOCK, YBLOCK, worker, adds)),
        ],
        [1],
    )


@weft.jit
def fill(src, tile, full, empty, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        values = gl.load(src + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout))
        mbarrier.wait(empty, step & 1 ^ 1)
        tile.store(values)
        mbarrier.arrive(full, count=1)


@weft.jit
def send(dst, tile, full, empty, steps, YBLOCK: gl.constexpr):
    for step in range(steps):
        mbarrier.wait(full, step & 1)
        fence_async_shared()
        tma.async_copy_shared_to_global(dst, [0, step * YBLOCK], tile)
        tma.store_wait(pendings=0)
        mbarrier.arrive(empty, count=1)


@weft.jit
def store_for_others(src, dst, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    """The warps that fill a tile leave the fence to the warp that has the engine store it."""
    tile = gl.allocate_shared_memory(dst.dtype, [XBLOCK, YBLOCK], dst.layout)
    full = mbarrier.allocate_mbarrier()
    empty = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [
            (fill, (src, tile, full, empty, steps, XBLOCK, YBLOCK, layout)),
            (send, (dst, tile, full, empty, steps, YBLOCK)),
        ],
        [1],
    )


@weft.jit
def write_global(src, middle, ready, steps, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    for step in range(steps):
        gl.store(middle + step * BLOCK + at, gl.load(src + step * BLOCK + at))
        mbarrier.arrive(ready.index(step), count=1)


@weft.jit
def read_global(middle, dst, ready, steps, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    for step in range(steps):
        mbarrier.wait(ready.index(step), 0)
        gl.store(dst + step * BLOCK + at, gl.load(middle + step * BLOCK + at))


@weft.jit
def tell_of_global(
    src, middle, dst, steps: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr, worker: gl.constexpr
):
    """One partition tells the other what it has written to global memory."""
    ready = gl.allocate_shared_memory(gl.int64, [steps, 1], mbarrier.MBarrierLayout())
    for step in gl.static_range(steps):
        mbarrier.init(ready.index(step), count=1)
    gl.warp_specialize(
        [
            (write_global, (src, middle, ready, steps, BLOCK, layout)),
            (read_global, (middle, dst, ready, steps, BLOCK, worker)),
        ],
        [1],
    )


@weft.jit
def serve(src, ball, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        values = gl.load(src + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout))
        ball.store(values)
        named_barrier.sync(3, 3)
        named_barrier.sync(4, 3)


@weft.jit
def receive(dst, ball, steps, XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        named_barrier.sync(3, 3)
        values = ball.load(layout)
        named_barrier.arrive(4, 3)
        gl.store(dst + tile_of(0, step * YBLOCK, steps * YBLOCK, XBLOCK, YBLOCK, layout), values)


@weft.jit
def ping_pong(
    src, dst, steps,
    XBLOCK: gl.constexpr, YBLOCK: gl.constexpr, layout: gl.constexpr, worker: gl.constexpr, smem: gl.constexpr,
):  # fmt: skip
    """One tile that goes back and forth at two named barriers."""
    ball = gl.allocate_shared_memory(src.dtype.element_ty, [XBLOCK, YBLOCK], smem)
    gl.warp_specialize(
        [
            (receive, (dst, ball, steps, XBLOCK, YBLOCK, layout)),
            (serve, (src, ball, steps, XBLOCK, YBLOCK, worker)),
        ],
        [1],
    )
