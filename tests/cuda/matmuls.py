"""Matrix products written as the fast ones are, for tests of what becomes of them: pipelined, specialised, taking turns."""

from __future__ import annotations

import numpy as np

import weft
from weft import language as gl
from weft.language.nvidia.ampere import mma_v2
from weft.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)
from weft.nvidia.hopper import TensorDescriptor

BK = gl.constexpr(64)


def descriptor(rows: int, columns: int, dtype=gl.float16):
    """Of an array of some size, in blocks of `rows` x `columns`."""
    array = np.zeros((512, 512), np.float16)
    return TensorDescriptor.from_tensor(
        array, [rows, columns], gl.NVMMASharedLayout.get_default_for([rows, columns], dtype)
    )


@weft.jit
def make_bars(stages: gl.constexpr, count: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(stages):
        mbarrier.init(bars.index(stage), count=count)
    return bars


@weft.jit
def after(stage, phase, stages: gl.constexpr):
    stage += 1
    last = stage == stages
    return gl.where(last, 0, stage), phase ^ gl.where(last, 1, 0)


@weft.jit
def produce(a_desc, b_desc, a_bufs, b_bufs, full, empty, tiles, tiles_m, stages: gl.constexpr):
    stage = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        off_m = tile % tiles_m * a_desc.block_type.shape[0]
        off_n = tile // tiles_m * b_desc.block_type.shape[1]
        for k in range(0, a_desc.shape[1], BK):
            mbarrier.wait(empty.index(stage), phase ^ 1)
            bar = full.index(stage)
            mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(a_desc, [off_m, k], bar, a_bufs.index(stage))
            tma.async_copy_global_to_shared(b_desc, [k, off_n], bar, b_bufs.index(stage))
            stage, phase = after(stage, phase, stages)


@weft.jit
def multiply(acc, a_bufs, b_bufs, full, empty, steps, stage, phase, first: gl.constexpr, stages: gl.constexpr):
    # One MMA stays in flight while the next one starts; its buffers are free once the one after it has been started.
    rows: gl.constexpr = acc.shape[0]
    before = stage
    for step in range(steps):
        mbarrier.wait(full.index(stage), phase)
        a = a_bufs.index(stage).slice(first, rows)
        acc = warpgroup_mma(a, b_bufs.index(stage), acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(1, (acc,))
        if step > 0:
            mbarrier.arrive(empty.index(before), count=1)
        before = stage
        stage, phase = after(stage, phase, stages)
    acc = warpgroup_mma_wait(0, (acc,))
    mbarrier.arrive(empty.index(before), count=1)
    return acc, stage, phase


@weft.jit
def consume(
    c_desc, a_bufs, b_bufs, c_smem, full, empty, steps, tiles, tiles_m, first: gl.constexpr, stages: gl.constexpr
):
    rows: gl.constexpr = c_desc.block_type.shape[0]
    columns: gl.constexpr = c_desc.block_type.shape[1]
    layout: gl.constexpr = warpgroup_mma_layout(c_desc.dtype, [rows, columns], gl.num_warps())
    stage = 0
    phase = 0
    acc = gl.zeros([rows, columns], gl.float32, layout)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        acc, stage, phase = multiply(acc, a_bufs, b_bufs, full, empty, steps, stage, phase, first, stages)
        tma.store_wait(pendings=0)
        c_smem.store(acc.to(c_desc.dtype))
        fence_async_shared()
        off_m = tile % tiles_m * a_bufs.shape[1] + first
        tma.async_copy_shared_to_global(c_desc, [off_m, tile // tiles_m * columns], c_smem)
    tma.store_wait(pendings=0)


@weft.jit
def specialised(a_desc, b_desc, c_desc, tiles, tiles_m, stages: gl.constexpr):
    # A warp that loads, and two warpgroups that multiply 64 rows each.
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [stages, *a_desc.block_type.shape], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [stages, *b_desc.block_type.shape], b_desc.layout)
    c_bufs = gl.allocate_shared_memory(c_desc.dtype, [2, *c_desc.block_type.shape], c_desc.layout)
    full = make_bars(stages, 1)
    empty = make_bars(stages, 2)
    steps = gl.cdiv(a_desc.shape[1], BK)
    gl.warp_specialize(
        [
            (consume, (c_desc, a_bufs, b_bufs, c_bufs.index(0), full, empty, steps, tiles, tiles_m, 0, stages)),
            (consume, (c_desc, a_bufs, b_bufs, c_bufs.index(1), full, empty, steps, tiles, tiles_m, 64, stages)),
            (produce, (a_desc, b_desc, a_bufs, b_bufs, full, empty, tiles, tiles_m, stages)),
        ],
        [4, 1],
        [232, 40],
    )


@weft.jit
def skip(stage, phase, steps, stages: gl.constexpr):
    stage += steps
    return stage % stages, phase ^ (stage // stages & 1)


@weft.jit
def take_turns(
    c_desc, a_bufs, b_bufs, c_smem, full, empty, mine, others, steps, tiles, tiles_m, number: gl.constexpr,
    stages: gl.constexpr,
):  # fmt: skip
    rows: gl.constexpr = c_desc.block_type.shape[0]
    columns: gl.constexpr = c_desc.block_type.shape[1]
    layout: gl.constexpr = warpgroup_mma_layout(c_desc.dtype, [rows, columns], gl.num_warps())
    acc = gl.zeros([rows, columns], gl.float32, layout)
    stage, phase = skip(0, 0, number * steps, stages)
    turn = number ^ 1
    step = gl.num_programs(0)
    for tile in range(gl.program_id(0) + number * step, tiles, 2 * step):
        mbarrier.wait(mine, turn)
        turn ^= 1
        acc, stage, phase = multiply(acc, a_bufs, b_bufs, full, empty, steps, stage, phase, 0, stages)
        mbarrier.arrive(others, count=1)
        tma.store_wait(pendings=0)
        c_smem.store(acc.to(c_desc.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [tile % tiles_m * rows, tile // tiles_m * columns], c_smem)
        stage, phase = skip(stage, phase, steps, stages)
    tma.store_wait(pendings=0)


@weft.jit
def ping_pong(a_desc, b_desc, c_desc, tiles, tiles_m, stages: gl.constexpr):
    # Two warpgroups take every other tile; one multiplies while the other stores.
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [stages, *a_desc.block_type.shape], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [stages, *b_desc.block_type.shape], b_desc.layout)
    c_bufs = gl.allocate_shared_memory(c_desc.dtype, [2, *c_desc.block_type.shape], c_desc.layout)
    full = make_bars(stages, 1)
    empty = make_bars(stages, 1)
    turns = make_bars(2, 1)
    steps = gl.cdiv(a_desc.shape[1], BK)
    first, second = turns.index(0), turns.index(1)
    shared = (steps, tiles, tiles_m)
    gl.warp_specialize(
        [
            (take_turns, (c_desc, a_bufs, b_bufs, c_bufs.index(0), full, empty, first, second, *shared, 0, stages)),
            (take_turns, (c_desc, a_bufs, b_bufs, c_bufs.index(1), full, empty, second, first, *shared, 1, stages)),
            (produce, (a_desc, b_desc, a_bufs, b_bufs, full, empty, tiles, tiles_m, stages)),
        ],
        [4, 1],
        [232, 40],
    )


@weft.jit
def one_product(
    out, a, b, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, acc_dtype: gl.constexpr, a_in_registers: gl.constexpr,
    limit: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    # Of a [M, K] and b [N, K], which is read as its transpose: every type can be contiguous along K.
    dtype: gl.constexpr = a.dtype.element_ty
    other: gl.constexpr = b.dtype.element_ty
    layout: gl.constexpr = warpgroup_mma_layout(dtype, [M, N], num_warps)
    a_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 32 // dtype.primitive_bitwidth)
    rows = gl.arange(0, M, gl.SliceLayout(1, a_layout))[:, None]
    x = gl.load(a + rows * K + gl.arange(0, K, gl.SliceLayout(0, a_layout))[None, :])
    blocked: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    columns = gl.arange(0, N, gl.SliceLayout(1, blocked))[:, None]
    y = gl.load(b + columns * K + gl.arange(0, K, gl.SliceLayout(0, blocked))[None, :])
    b_smem = gl.allocate_shared_memory(other, [N, K], gl.NVMMASharedLayout.get_default_for([N, K], other), y)
    acc = gl.zeros([M, N], acc_dtype, layout)
    if not a_in_registers:
        x = gl.allocate_shared_memory(dtype, [M, K], gl.NVMMASharedLayout.get_default_for([M, K], dtype), x)
    for i in range(4):
        acc = warpgroup_mma(x, b_smem.permute([1, 0]), acc, use_acc=i > 0, max_num_imprecise_acc=limit)
    at = gl.arange(0, M, gl.SliceLayout(1, layout))[:, None] * N + gl.arange(0, N, gl.SliceLayout(0, layout))[None, :]
    gl.store(out + at, acc)


@weft.jit
def one_product_of_warps(
    out, a, b, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, acc_dtype: gl.constexpr, num_warps: gl.constexpr
):
    # Of a [M, K] and b [N, K], by way of shared memory.
    dtype: gl.constexpr = a.dtype.element_ty
    other: gl.constexpr = b.dtype.element_ty
    layout: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [num_warps // 2, 2], [16, 8])
    width: gl.constexpr = 32 // dtype.primitive_bitwidth
    blocked: gl.constexpr = gl.BlockedLayout([1, 4 * width], [8, 4], [num_warps, 1], [1, 0])
    column = gl.arange(0, K, gl.SliceLayout(0, blocked))[None, :]
    x = gl.load(a + gl.arange(0, M, gl.SliceLayout(1, blocked))[:, None] * K + column)
    y = gl.load(b + gl.arange(0, N, gl.SliceLayout(1, blocked))[:, None] * K + column)
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(4 * width, 1, 8, [1, 0])
    a_smem = gl.allocate_shared_memory(dtype, [M, K], swizzled, x)
    b_smem = gl.allocate_shared_memory(other, [N, K], swizzled, y)
    acc = gl.zeros([M, N], acc_dtype, layout)
    for _ in range(4):
        left = a_smem.load(gl.DotOperandLayout(0, layout, width))
        right = b_smem.permute([1, 0]).load(gl.DotOperandLayout(1, layout, width))
        acc = mma_v2(left, right, acc)
    at = gl.arange(0, M, gl.SliceLayout(1, layout))[:, None] * N + gl.arange(0, N, gl.SliceLayout(0, layout))[None, :]
    gl.store(out + at, acc)
