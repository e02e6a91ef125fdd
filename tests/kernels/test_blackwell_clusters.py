"""Pairs of blocks and clusters of pairs: operands sent to several blocks, commits that tell all of them, barriers that end."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, random
from weft import language as gl
from weft.errors.hazard import ReadInFlight, TooManyArrivals
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tma,
)

pytestmark = pytest.mark.usefixtures("blackwell")


def described(array, block, cga):
    return Described(array, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16, cga_layout=cga))


def halves(rng, shape):
    return np.array(random(rng, np.float16, shape) / np.float16(16))


def check(found, a, b):
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=2e-3, atol=2e-4 * np.abs(exact).max())


@weft.jit
def ended(a_desc, b_desc, c_desc, steps: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr = True):
    """One buffer for each operand, and barriers that are invalidated by the block that waits for both blocks' copies."""
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    acc = allocate_tensor_memory(gl.float32, c_desc.block_shape, layout)
    ready, done = mbarrier.allocate_mbarrier(two_ctas=layout.two_ctas and shared), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=tcgen05_mma_barrier_count([a, b], multicast=True))
    for i in range(steps):
        mbarrier.expect(ready, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
        tma.async_load(a_desc, [0, i * 64], ready, a, multicast=True)
        tma.async_load(b_desc, [i * 64, 0], ready, b, multicast=True)
        mbarrier.wait(ready, i & 1)
        tcgen05_mma(a, b, acc, use_acc=i > 0, multicast=True, mbarriers=[done])
        mbarrier.wait(done, i & 1)
    mbarrier.invalidate(ready)
    mbarrier.invalidate(done)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_shape, c_desc.layout)
    c.store(acc.load().to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [0, 0], c)
    tma.store_wait(0)


CLUSTERS = {
    "a pair": ([256, 64], [[1, 0]], [[1, 0]], [[0, 1]], True),
    "two pairs by rows": ([512, 64], [[1, 0], [2, 0]], [[1, 0], [2, 0]], [[0, 1], [0, 0]], True),
    "two pairs by columns": ([256, 128], [[1, 0], [0, 1]], [[1, 0], [0, 0]], [[0, 1], [0, 2]], True),
    "two blocks": ([128, 128], [[0, 1]], [[0, 0]], [[0, 1]], False),
}


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("steps", [1, 3])
def test_products_of_clusters(run, rng, cluster, steps):
    (m, n), split, a_split, b_split, two_ctas = CLUSTERS[cluster]
    layout = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=split, two_ctas=two_ctas)
    k = 64 * steps - 8
    a, b, c = halves(rng, (m - 24, k)), halves(rng, (k, n - 8)), poison((m - 24, n - 8), np.float16)
    args = described(a, [m, 64], a_split), described(b, [64, n], b_split), described(c, [m, n], split)
    run(ended, (1,), *args, steps, layout, num_ctas=2 ** len(split))
    check(c, a, b)


def test_blocks_that_share_operands_with_others_than_their_neighbours(rng):
    """Of two by two blocks the first may begin its second step before the last, which it shares nothing with, ends its first:
    it would arrive at a neighbour of both in its place."""
    layout = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0], [0, 1]])
    a, b, c = halves(rng, (256, 192)), halves(rng, (192, 128)), poison((256, 128), np.float16)
    parts = (a, [256, 64], [[1, 0], [0, 0]]), (b, [64, 128], [[0, 0], [0, 1]]), (c, [256, 128], [[1, 0], [0, 1]])
    args = [described(*part).of(part[0]) for part in parts]
    with pytest.raises(TooManyArrivals, match=r"block \d arrives once at done of block \d"):
        ended[1](*args, 3, layout, num_ctas=4)
    ended[1](*args, 1, layout, num_ctas=4)
    check(c, a[:, :64], b[:64])


def test_barriers_that_a_pair_does_not_share(rng):
    layout = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    a, b, c = halves(rng, (256, 64)), halves(rng, (64, 64)), poison((256, 64), np.float16)
    parts = (a, [256, 64], [[1, 0]]), (b, [64, 64], [[0, 1]]), (c, [256, 64], [[1, 0]])
    with pytest.raises(ReadInFlight, match=r"block 0 multiplies \w of block 1") as caught:
        ended[1](*[described(*part).of(part[0]) for part in parts], 1, layout, False, num_ctas=2)
    assert "allocate_mbarrier(two_ctas=True)" in caught.value.fix


@weft.jit
def from_64_rows(a_desc, b_desc, out, height: gl.constexpr):
    """The left operand in tensor memory, in blocks of 64 rows as the accumulator."""
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_shape, b_desc.layout)
    rows: gl.constexpr = a_desc.block_shape[0]
    columns: gl.constexpr = b_desc.block_shape[1]
    left = allocate_tensor_memory(a_desc.dtype, a_desc.block_shape, TensorMemoryLayout([height, a_desc.block_shape[1]]))
    acc = allocate_tensor_memory(gl.float32, [rows, columns], TensorMemoryLayout([height, columns]))
    ready, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(ready, a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
    tma.async_load(a_desc, [0, 0], ready, a)
    tma.async_load(b_desc, [0, 0], ready, b)
    mbarrier.wait(ready, 0)
    left.store(a.load(left.get_reg_layout()))
    tcgen05_mma(left, b, acc, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    x = acc.load()
    i, j = gl.arange(0, rows, gl.SliceLayout(1, x.layout)), gl.arange(0, columns, gl.SliceLayout(0, x.layout))
    gl.store(out + i[:, None] * columns + j[None, :], x)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("num_warps", [4, 8])
def test_left_operands_of_64_rows_in_tensor_memory(run, rng, rows, num_warps):
    a, b, out = halves(rng, (rows, 64)), halves(rng, (64, 32)), poison((rows, 32), np.float32)
    run(from_64_rows, (1,), described(a, [rows, 64], None), described(b, [64, 32], None), out, 64, num_warps=num_warps)
    check(out, a, b)
