"""Block-scaled matrix products: quantised on the host, scales brought to tensor memory by TMA and tcgen05_copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tma,
)
from weft.nvidia.scaled import KINDS, Scaled, quantise, scale_blocks

pytestmark = pytest.mark.usefixtures("blackwell")

M, N, K = 128, 128, 256
"""Of a step of a program; K in elements."""


@weft.jit
def scales_of(buffer, rows: gl.constexpr):
    """Blocks of scales [1, words, 32, 16] as a matrix, rows by runs."""
    words: gl.constexpr = buffer.shape[1]
    blocks = buffer.reshape([1, words, 32, 4, 4]).permute([0, 3, 2, 1, 4])
    return blocks.reshape([rows, 4 * words])


@weft.jit
def scaled_matmul(
    a, b, a_scales, b_scales, out, n, steps, N: gl.constexpr, a_type: gl.constexpr, b_type: gl.constexpr
):  # fmt: skip
    """128 rows by N = 128 columns of a @ b.T, both scaled."""
    a_smem = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    b_smem = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    up = gl.allocate_shared_memory(a_scales.dtype, a_scales.block_shape, a_scales.layout)
    across = gl.allocate_shared_memory(b_scales.dtype, b_scales.block_shape, b_scales.layout)
    words: gl.constexpr = a_scales.block_shape[1]
    acc = allocate_tensor_memory(gl.float32, [128, N], TensorMemoryLayout([128, N], col_stride=1))
    a_tmem = allocate_tensor_memory(a_scales.dtype, [128, 4 * words], TensorMemoryScalesLayout())
    b_tmem = allocate_tensor_memory(b_scales.dtype, [N, 4 * words], TensorMemoryScalesLayout())
    ready = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    row = gl.program_id(0)
    column = gl.program_id(1)
    for step in range(steps):
        mbarrier.expect(
            ready, a.block_type.nbytes + b.block_type.nbytes + a_scales.block_type.nbytes + b_scales.block_type.nbytes
        )
        tma.async_load(a, [row * 128, step * a.block_shape[1]], ready, a_smem)
        tma.async_load(b, [column * N, step * b.block_shape[1]], ready, b_smem)
        tma.async_load(a_scales, [row, step * words, 0, 0], ready, up)
        tma.async_load(b_scales, [column, step * words, 0, 0], ready, across)
        mbarrier.wait(ready, step & 1)
        tcgen05_copy(scales_of(up, 128), a_tmem)
        tcgen05_copy(scales_of(across, N), b_tmem)
        tcgen05_mma_scaled(a_smem, b_smem.permute([1, 0]), acc, a_tmem, b_tmem, a_type, b_type, use_acc=step > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, step & 1)
    c = acc.load()
    layout: gl.constexpr = c.type.layout
    i = row * 128 + gl.arange(0, 128, gl.SliceLayout(1, layout))
    j = column * N + gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * n + j[None, :], c)


def operand(x: Scaled, rows: int, padded: bool) -> Described:
    """Elements, of which a step takes K; e2m1 beside another format lies padded in shared memory."""
    per_byte = 2 if x.element == "e2m1" else 1
    layout = gl.NVMMASharedLayout(128, 8, 2, fp4_padded=padded)
    return Described(x.elements, [rows, K // per_byte], layout)


def blocks(x: Scaled) -> Described:
    """Scales as TMA moves them: rows by 128, runs by 4, then 32 times 16 bytes."""
    found = scale_blocks(x.scales)
    rows, words = found.shape[:2]
    per_step = K // KINDS[x.format].run // 4
    return Described(found.reshape(rows, words, 32, 16), [1, per_step, 32, 16], gl.NVMMASharedLayout(0, 8, 4))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("mxfp8e4m3", "mxfp8e4m3"), ("mxfp8e5m2", "mxfp8e4m3"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"),
        ("mxfp8e4m3", "mxfp4"), ("mxfp4", "mxfp8e5m2"),
    ],
)  # fmt: skip
def test_products(run, rng, left, right):
    m, n, k = 2 * M, 2 * N, 3 * K
    a, b = quantise(_spread(rng, m, k), left), quantise(_spread(rng, n, k), right)
    mixed = a.element != b.element
    operands = [operand(x, size, mixed and x.element == "e2m1") for x, size in ((a, M), (b, N))]
    out = poison((m, n), np.float32)
    run(scaled_matmul, (m // M, n // N), *operands, blocks(a), blocks(b), out, n, 3, N, a.element, b.element)
    x, y = a.values(), b.values()
    bound = np.abs(x) @ np.abs(y).T * 2.0**-24 * (k // 32)
    assert (np.abs(out - x @ y.T) <= bound).all()


@weft.jit
def padded_in_tensor_memory(a, b, out, b_type: gl.constexpr, start: gl.constexpr):
    """a of e2m1, 128 by 128, at columns `start` of a wider operand in tensor memory; all scales are 2 ** (row % 4)."""
    codes = allocate_tensor_memory(gl.uint8, [128, 256], TensorMemoryLayout([128, 256], col_stride=1))
    where: gl.constexpr = codes.get_reg_layout()
    row = gl.arange(0, 128, gl.SliceLayout(1, where))[:, None]
    column = gl.arange(0, 256, gl.SliceLayout(0, where))[None, :] - 2 * start
    inside = (column >= 0) & (column < 128)
    pair = gl.load(a + row * 64 + column // 2, mask=inside, other=0)
    # The other bits of a byte do not count.
    codes.store(gl.where(column % 2 == 0, pair & 15, pair >> 4) << 2 | 0xC3)
    operand = codes.reinterpret(gl.uint8, [128, 128], TensorMemoryLayout([128, 128], fp4_padded=True)).slice(start, 64)
    flat: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    k = gl.arange(0, 128, gl.SliceLayout(1, flat))[:, None]
    n = gl.arange(0, 64, gl.SliceLayout(0, flat))[None, :]
    right_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([128, 64], b.dtype.element_ty)
    right = gl.allocate_shared_memory(b.dtype.element_ty, [128, 64], right_layout, gl.load(b + k * 64 + n))
    a_scale = allocate_tensor_memory(gl.uint8, [128, 4], TensorMemoryScalesLayout())
    b_scale = allocate_tensor_memory(gl.uint8, [64, 4], TensorMemoryScalesLayout())
    up: gl.constexpr = a_scale.get_reg_layout()
    exponents = (127 + gl.arange(0, 128, gl.SliceLayout(1, up)) % 4).to(gl.uint8)
    a_scale.store(exponents[:, None] + gl.zeros([128, 4], gl.uint8, up))
    b_scale.store(gl.full([64, 4], 127, gl.uint8, b_scale.get_reg_layout()))
    acc = allocate_tensor_memory(gl.float32, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    tcgen05_mma_scaled(operand, right, acc, a_scale, b_scale, "e2m1", b_type, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    c = acc.load()
    i = gl.arange(0, 128, gl.SliceLayout(1, c.type.layout))[:, None]
    j = gl.arange(0, 64, gl.SliceLayout(0, c.type.layout))[None, :]
    gl.store(out + i * 64 + j, c)


@pytest.mark.parametrize("start", [0, 64])
def test_padded_fp4_in_tensor_memory(run, rng, start):
    """One element of e2m1 in each byte, in bits 2 to 5."""
    a = rng.integers(0, 256, (128, 64), np.uint8)
    b = rng.integers(-8, 9, (128, 64)).astype(ml_dtypes.float8_e4m3fn)
    out = poison((128, 64), np.float32)
    run(padded_in_tensor_memory, (1,), a, b, out, "e4m3", start)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.stack((a & 15, a >> 4), -1).reshape(128, 128)
    left = values[codes & 7] * np.where(codes & 8, -1, 1) * 2.0 ** (np.arange(128) % 4)[:, None]
    np.testing.assert_array_equal(out, left @ b.astype(np.float64))


def _spread(rng: np.random.Generator, rows: int, k: int) -> Any:
    """Rows whose runs differ in magnitude."""
    return rng.normal(size=(rows, k)) * np.exp2(rng.integers(-6, 7, (rows, k // 16))).repeat(16, axis=-1)
