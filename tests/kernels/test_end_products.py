"""Products of tiles that end before a power of two: N in multiples of 8, K in multiples of an instruction's."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, Described, frozen, poison, same
from tests.kernels.test_mma import FP8, INTEGERS, PAIRS, given, operands, pipelined, product, put
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_layout

LINE = gl.BlockedLayout([1, 2], [4, 8], [4, 1], [1, 0])
"""Threads over 16 rows and 16 columns."""
BYTES = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])


def multiplied(a, b, c):
    wide = [x.astype(np.float32).astype(np.float64) for x in (a, b)]
    return (wide[0] @ wide[1] + c).astype(c.dtype)


def launch(run, rng, types, turned, shape, where="memory", warps=4, acc=None):
    m, n, k = shape
    a, b = operands(rng, *types, m, n, k, True)
    kind = NUMPY[acc or (gl.int32 if types[0] in (gl.int8, gl.uint8) else gl.float32)]
    c = frozen(rng.integers(-99, 100, (m, n)).astype(kind))
    out = poison((m, n), kind)
    layout = warpgroup_mma_layout(types[0], [m, n], warps)
    line = LINE if warps == 4 else gl.BlockedLayout([1, 2], [4, 8], [8, 1], [1, 0])
    run(
        product, 1, out, given(a, turned[0]), given(b, turned[1]), c, frozen(np.ones(1, np.int32)), m, n, k, turned, where,
        True, None, layout, line, num_warps=warps,
    )  # fmt: skip
    same(out, multiplied(a, b, c))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "n", [48, 96, 112, 176, *(pytest.param(n, marks=pytest.mark.matrix) for n in (80, 144, 160, 192, 224, 240))]
)
def test_columns(run, rng, n, turned):
    launch(run, rng, PAIRS[0], (False, turned), (64, n, 32))


@pytest.mark.parametrize(("m", "n", "warps"), [(128, 96, 4), (192, 80, 4), (256, 160, 8), (128, 320, 8), (64, 96, 8)])
def test_rows_and_warps(run, rng, m, n, warps):
    launch(run, rng, PAIRS[1], (False, True), (m, n, 32), warps=warps)


@pytest.mark.parametrize("where", ["memory", "registers"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("k", [48, 80, 96])
def test_lengths(run, rng, k, turned, where):
    launch(run, rng, PAIRS[0], (False, turned), (64, 32, k), where)
    launch(run, rng, PAIRS[0], (where == "memory", turned), (128, 48, k), where)


@pytest.mark.parametrize("where", ["memory", "registers"])
@pytest.mark.parametrize("types", [FP8[0], INTEGERS[0], PAIRS[2]], ids=str)
@pytest.mark.parametrize("n", [48, 80, 144, 192])
def test_types(run, rng, types, n, where):
    launch(run, rng, types, (False, True), (64, n, 48 if types[0] is gl.float32 else 96), where)


@pytest.mark.parametrize("n", [24, 72, 104, 136])
def test_fp8_of_an_odd_number_of_eights(run, rng, n):
    m, k, block = 64, 160, 64
    a, b = operands(rng, *FP8[0], m, n, k, True)
    out, right = poison((m, n), np.float32), np.ascontiguousarray(b.T)
    described = [
        Described(frozen(x), [rows, block], gl.NVMMASharedLayout.get_default_for([rows, block], gl.float8e4nv))
        for x, rows in ((a, m), (right, n))
    ]
    run(pipelined_turned, 1, out, *described, k, m, n, warpgroup_mma_layout(gl.float8e4nv, [m, n], 4))
    same(out, multiplied(a, b, np.zeros((m, n), np.float32)))


def test_fp16_accumulators(run, rng):
    launch(run, rng, PAIRS[0], (False, False), (64, 160, 32), acc=gl.float16)


@pytest.mark.parametrize("n", [80, 96, 112, 160, 176, 192])
@pytest.mark.parametrize("turned", [False, True])
def test_descriptors(run, rng, n, turned):
    """The loop of a matrix product, with operands by TMA, N-major or K-major, and a length between multiples of K."""
    m, k, block = 128, 150 - 150 % 8, 64
    a, b = operands(rng, *PAIRS[0], m, n, k, True)
    out = poison((m, n), np.float32)
    left = Described(frozen(a), [m, block], gl.NVMMASharedLayout.get_default_for([m, block], gl.float16))
    if turned:
        shape = [n, block]
        right = Described(
            frozen(np.ascontiguousarray(b.T)), shape, gl.NVMMASharedLayout.get_default_for(shape, gl.float16)
        )
        run(pipelined_turned, 1, out, left, right, k, m, n, warpgroup_mma_layout(gl.float16, [m, n], 4))
    else:
        shape = [block, n]
        right = Described(frozen(b), shape, gl.NVMMASharedLayout.get_default_for(shape, gl.float16))
        run(pipelined, 1, out, left, right, k, m, n, warpgroup_mma_layout(gl.float16, [m, n], 4))
    same(out, multiplied(a, b, np.zeros((m, n), np.float32)))


@weft.jit
def part_of_block(out, a, b, START: gl.constexpr, N: gl.constexpr):
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes)
    tma.async_load(a, [0, 0], bar, left)
    tma.async_load(b, [0, 0], bar, right)
    mbarrier.wait(bar, 0)
    acc = gl.zeros([64, N], gl.float32, warpgroup_mma_layout(a.dtype, [64, N], 4))
    put(out, warpgroup_mma(left, right.slice(START, N, dim=1), acc), 64, N)


EVERY = [(swizzle, 256, 0, n) for swizzle in (64, 128) for n in range(8, 257, 8)]
SOME = [(128, 128, 0, 96), (128, 128, 0, 112), (128, 256, 128, 72), (64, 64, 0, 40), (32, 256, 0, 248)]


@pytest.mark.parametrize("parts", [*SOME, *(pytest.param(parts, marks=pytest.mark.matrix) for parts in EVERY)], ids=str)
def test_columns_that_end_within_a_span_of_the_swizzle(run, rng, parts):
    """An MMA of the first columns of a wider block of b, which is contiguous along N."""
    swizzle, block, start, n = parts
    a, b = operands(rng, *PAIRS[0], 64, block, 32, True)
    out = poison((64, n), np.float32)
    layouts = [gl.NVMMASharedLayout(width, 16) for width in (64, swizzle)]
    left, right = Described(frozen(a), [64, 32], layouts[0]), Described(frozen(b), [32, block], layouts[1])
    run(part_of_block, 1, out, left, right, start, n)
    same(out, multiplied(a, b[:, start : start + n], np.zeros((64, n), np.float32)))


@weft.jit
def pipelined_turned(out, a, b, K, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    BK: gl.constexpr = a.block_shape[1]
    a_parts = gl.allocate_shared_memory(a.dtype, [2, *a.block_shape], a.layout)
    b_parts = gl.allocate_shared_memory(b.dtype, [2, *b.block_shape], b.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(bars.index(i), count=1)
    acc = gl.zeros([M, N], gl.float32, layout)
    for i in range(gl.cdiv(K, BK)):
        mbarrier.expect(bars.index(i % 2), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_copy_global_to_shared(a, [0, i * BK], bars.index(i % 2), a_parts.index(i % 2))
        tma.async_copy_global_to_shared(b, [0, i * BK], bars.index(i % 2), b_parts.index(i % 2))
        mbarrier.wait(bars.index(i % 2), i // 2 & 1)
        acc = warpgroup_mma(a_parts.index(i % 2), b_parts.index(i % 2).permute((1, 0)), acc)
    put(out, acc, M, N)


@weft.jit
def copied(dst, src, layout: gl.constexpr):
    """By TMA into memory, through registers, and by TMA to another array."""
    block: gl.constexpr = src.block_shape
    parts = gl.allocate_shared_memory(src.dtype, [2, *block], src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(
        src, [gl.program_id(0) * block[0], gl.program_id(1) * block[1]], bar, parts.index(0)
    )
    mbarrier.wait(bar, 0)
    parts.index(1).store(parts.index(0).load(layout) + 1)
    tma.async_copy_shared_to_global(dst, [gl.program_id(0) * block[0], gl.program_id(1) * block[1]], parts.index(1))
    tma.store_wait(0)


@pytest.mark.parametrize(
    ("block", "dtype"),
    [([64, 96], gl.float16), ([64, 80], gl.float16), ([96, 64], gl.float16), ([96, 128], gl.float16), ([320, 32], gl.float16),
     ([48, 96], gl.float16), ([32, 192], gl.float32), ([64, 160], gl.int8), ([112, 48], gl.float32)],
    ids=str,
)  # fmt: skip
def test_copies_by_tma(run, rng, block, dtype):
    rows, columns = 2 * block[0] - 7, 2 * block[1] - 16
    x = rng.integers(-99, 99, (rows, columns)).astype(NUMPY[dtype])
    out = poison(x.shape, NUMPY[dtype])
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    line = BYTES if block[1] % 32 == 0 and dtype is not gl.float32 else LINE
    run(copied, (2, 2), Described(out, block, layout), Described(frozen(x), block, layout), line)
    same(out, (x + 1).astype(NUMPY[dtype]))


@weft.jit
def by_parts(dst, src, layout: gl.constexpr):
    """Parts of a tile of 192 columns: 64, 64, and the last 64 in halves; and both of the 96 of another."""
    block: gl.constexpr = src.block_shape
    part = gl.allocate_shared_memory(src.dtype, block, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, 0], bar, part)
    mbarrier.wait(bar, 0)
    out = gl.allocate_shared_memory(src.dtype, block, src.layout)
    N: gl.constexpr = block[1]
    for i in gl.static_range(N // 32):
        out.slice(N - 32 - 32 * i, 32, dim=1).store(part.slice(32 * i, 32, dim=1).load(layout))
    tma.async_copy_shared_to_global(dst, [0, 0], out)
    tma.store_wait(0)


@pytest.mark.parametrize("n", [96, 160, 192])
def test_parts_of_memory(run, rng, n):
    x = rng.integers(-99, 99, (64, n)).astype(np.float16)
    out = poison(x.shape, np.float16)
    layout = gl.NVMMASharedLayout.get_default_for([64, n], gl.float16)
    run(by_parts, 1, Described(out, [64, n], layout), Described(frozen(x), [64, n], layout), BYTES)
    same(out, x.reshape(64, n // 32, 32)[:, ::-1].reshape(64, n))
