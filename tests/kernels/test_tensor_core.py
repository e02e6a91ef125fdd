"""`TensorCore`: products of one warp on views of all memories, in kernels of threads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison
from weft import language as gl
from weft.errors import UserError

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL
NUMPY = {
    gl.float32: np.float32,
    gl.float16: np.float16,
    gl.bfloat16: ml_dtypes.bfloat16,
    gl.float8e4nv: ml_dtypes.float8_e4m3fn,
}


@weft.jit
def product(out, a, b, sums: gl.constexpr, K: gl.constexpr, turned: gl.constexpr):
    core: gl.constexpr = gl.TensorCore(a.dtype, sums, (16, 8, K), transpose_b=turned)
    if gl.warp_id() == 1:
        total = core.load_c(out)
        for k in gl.static_range(a.shape[1] // K):
            right = b.tile[8, K](0, k) if turned else b.tile[K, 8](k, 0)
            total = core.mma_op(core.load_a(a.tile[16, K](0, k)), core.load_b(right), total)
        core.store_d(out, total)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("dtype", "sums"),
    [(gl.float32, gl.float32), (gl.float16, gl.float32), (gl.float16, gl.float16), (gl.bfloat16, gl.float32),
     (gl.float8e4nv, gl.float32)],
)  # fmt: skip
def test_products(run, rng, dtype, sums, turned):
    k = 256 // dtype.bits
    a = rng.integers(-3, 4, (16, 2 * k)).astype(NUMPY[dtype])
    b = rng.integers(-3, 4, (2 * k, 8)).astype(NUMPY[dtype])
    out = rng.integers(-3, 4, (16, 8)).astype(NUMPY[sums])
    want = out.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    run(
        product,
        1,
        Viewed(out),
        Viewed(a),
        Viewed(np.ascontiguousarray(b.T) if turned else b),
        sums,
        k,
        turned,
        block=64,
    )
    np.testing.assert_array_equal(out.astype(np.float64), want)


@weft.jit
def multiplied(c, a, b, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WM: gl.constexpr, WN: gl.constexpr):
    """A product in shared memory, by the warps that have a tile of it."""
    core: gl.constexpr = gl.TensorCore[gl.float32, gl.float32, gl.Index(16, 8, 8)]()
    warp = gl.thread_idx.x // gl.WARP_SIZE
    y, x = warp // (BN // WN), warp % (BN // WN)
    warp_is_active = y < BM // WM
    left = gl.stack_allocation[gl.float32, SHARED](gl.row_major[BM, BK]())
    right = gl.stack_allocation[gl.float32, SHARED](gl.row_major[BK, BN]())
    sums = gl.stack_allocation[gl.float32, LOCAL](gl.row_major[WM // 16 * WN // 8, 4]())
    sums.fill(0)
    for k in range(a.shape[1]() // BK):
        gl.barrier()
        threads: gl.constexpr = gl.row_major[8, 4]()
        gl.copy_dram_to_sram_async(
            left.vectorize(1, 4), a.tile[BM, BK](gl.block_idx.y, k).vectorize(1, 4), threads, num_threads=128
        )
        gl.copy_dram_to_sram_async(
            right.vectorize(1, 4), b.tile[BK, BN](k, gl.block_idx.x).vectorize(1, 4), threads, num_threads=128
        )
        gl.async_copy_wait_all()
        gl.barrier()
        if warp_is_active:
            of_left, of_right = left.tile[WM, BK](y, 0), right.tile[BK, WN](0, x)
            for i in gl.static_range(BK // 8):
                for m in gl.static_range(WM // 16):
                    for n in gl.static_range(WN // 8):
                        at: gl.constexpr = m * (WN // 8) + n
                        mine = sums.load[4](at, 0)
                        first = core.load_a(of_left.tile[16, 8](m, i))
                        second = core.load_b(of_right.tile[8, 8](i, n))
                        sums.store(at, 0, core.mma_op(first, second, mine))
    if warp_is_active:
        tile = c.tile[BM, BN](gl.block_idx.y, gl.block_idx.x).tile[WM, WN](y, x)
        for m in gl.static_range(WM // 16):
            for n in gl.static_range(WN // 8):
                core.store_d(tile.tile[16, 8](m, n), sums.load[4](m * (WN // 8) + n, 0))


def test_a_product_of_blocks(run, rng):
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 32), (32, 64)))
    c = poison((64, 64), np.float32)
    run(multiplied, (2, 2), Viewed(c), Viewed(a), Viewed(b), 32, 32, 16, 32, 16, block=128)
    np.testing.assert_array_equal(c, a @ b)


@weft.jit
def unknown(a):
    gl.TensorCore[gl.float32, gl.float16, gl.Index(16, 8, 8)]()


@weft.jit
def wrong_view(a):
    gl.TensorCore[gl.float32, gl.float32, gl.Index(16, 8, 8)]().load_a(a)


@weft.jit
def wrong_fragment(a):
    core: gl.constexpr = gl.TensorCore[gl.float32, gl.float32, gl.Index(16, 8, 8)]()
    left = core.load_a(a.tile[16, 8](0, 0))
    core.mma_op(left, left, left)


@weft.jit
def divergent(a):
    core: gl.constexpr = gl.TensorCore[gl.float32, gl.float32, gl.Index(16, 8, 8)]()
    tile = a.tile[16, 8](0, 0)
    if gl.thread_idx.x < 20:
        c = core.load_c(tile)
        core.store_d(tile, core.mma_op(core.load_a(tile), core.load_b(a.tile[8, 8](0, 0)), c))


@pytest.mark.parametrize(
    ("kernel", "code", "text"),
    [
        (unknown, "thread-tensor-core", "sums of float16 in the shape (16, 8, 8)"),
        (wrong_view, "thread-tensor-core-view", "load_a takes a view of 16 x 8 numbers of float32"),
        (wrong_fragment, "thread-tensor-core-fragment", "b of mma_op is a vector of 2 float32"),
        (divergent, "control-scope", "mma_op of a TensorCore must be executed by the whole warp"),
    ],
)
def test_mistakes(kernel, code, text):
    with pytest.raises(UserError) as caught:
        kernel[1](weft.LayoutTensor(np.zeros((32, 16), np.float32)), block=32)
    assert caught.value.code == code, str(caught.value)
    assert text in str(caught.value)
