"""Warp-specialized matrix products in small tiles, for mutations (`tests.mutation.cases` launches them).

Tiles of C follow one another down one column of tiles. One warp loads operands, two warpgroups multiply and store: they
share each tile, or take tiles in turn.
"""

from __future__ import annotations

import weft
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait


@weft.jit
def load(a_desc, b_desc, a_bufs, b_bufs, ready, free, tiles, steps, BUFFERS: gl.constexpr):
    for step in range(tiles * steps):
        slot = step % BUFFERS
        k = step % steps * a_desc.block_type.shape[1]
        mbarrier.wait(free.index(slot), (step // BUFFERS & 1) ^ 1)
        mbarrier.expect(ready.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        row = step // steps * a_desc.block_type.shape[0]
        tma.async_copy_global_to_shared(a_desc, [row, k], ready.index(slot), a_bufs.index(slot))
        tma.async_copy_global_to_shared(b_desc, [k, 0], ready.index(slot), b_bufs.index(slot))


@weft.jit
def multiply(acc, first, steps, a_bufs, b_bufs, ready, free, ROW: gl.constexpr, BUFFERS: gl.constexpr):
    for k in range(steps):
        step = first + k
        slot = step % BUFFERS
        mbarrier.wait(ready.index(slot), step // BUFFERS & 1)
        a = a_bufs.index(slot).slice(ROW, 64)
        acc = warpgroup_mma(a, b_bufs.index(slot), acc, use_acc=k > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        mbarrier.arrive(free.index((step + BUFFERS - 1) % BUFFERS), count=1, pred=k > 0)
    return acc


@weft.jit
def send(c_desc, row, values, c_buf):
    tma.store_wait(pendings=0)
    c_buf.store(values.to(c_desc.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [row, 0], c_buf)


@weft.jit
def cooperate(
    c_desc, a_bufs, b_bufs, c_buf, ready, free, turn, tiles, steps,
    ME: gl.constexpr, BUFFERS: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    acc = gl.zeros([64, c_desc.block_type.shape[1]], gl.float32, layout)
    for tile in range(tiles):
        acc = multiply(acc, tile * steps, steps, a_bufs, b_bufs, ready, free, 64 * ME, BUFFERS)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(free.index((tile * steps + steps - 1) % BUFFERS), count=1)
        send(c_desc, tile * 128 + 64 * ME, acc, c_buf)
    tma.store_wait(pendings=0)


@weft.jit
def take_turns(
    c_desc, a_bufs, b_bufs, c_buf, ready, free, turn, tiles, steps,
    ME: gl.constexpr, BUFFERS: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    acc = gl.zeros([64, c_desc.block_type.shape[1]], gl.float32, layout)
    for tile in range(ME, tiles, 2):
        mbarrier.wait(turn.index(ME), (tile // 2 + 1 - ME) & 1)
        acc = multiply(acc, tile * steps, steps, a_bufs, b_bufs, ready, free, 0, BUFFERS)
        mbarrier.arrive(turn.index(1 - ME), count=1)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(free.index((tile * steps + steps - 1) % BUFFERS), count=1)
        send(c_desc, tile * 64, acc, c_buf)
    tma.store_wait(pendings=0)


@weft.jit
def specialised(
    a_desc, b_desc, c_desc, tiles, steps,
    consume: gl.constexpr, READERS: gl.constexpr, BUFFERS: gl.constexpr, layout: gl.constexpr,
):  # fmt: skip
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [BUFFERS, *a_desc.block_type.shape], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [BUFFERS, *b_desc.block_type.shape], b_desc.layout)
    c_bufs = gl.allocate_shared_memory(c_desc.dtype, [2, *c_desc.block_type.shape], c_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(BUFFERS):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=READERS)
        if READERS == 1:
            mbarrier.init(turn.index(slot), count=1)
    gl.warp_specialize(
        [
            (consume, (c_desc, a_bufs, b_bufs, c_bufs.index(0), ready, free, turn, tiles, steps, 0, BUFFERS, layout)),
            (consume, (c_desc, a_bufs, b_bufs, c_bufs.index(1), ready, free, turn, tiles, steps, 1, BUFFERS, layout)),
            (load, (a_desc, b_desc, a_bufs, b_bufs, ready, free, tiles, steps, BUFFERS)),
        ],
        [4, 1],
    )
