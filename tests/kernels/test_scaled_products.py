"""Block-scaled matrix products: quantised on the host, scales brought to tensor memory by TMA and tcgen05_copy."""

from __future__ import annotations

from typing import Any

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


def _spread(rng: np.random.Generator, rows: int, k: int) -> Any:
    """Rows whose runs differ in magnitude."""
    return rng.normal(size=(rows, k)) * np.exp2(rng.integers(-6, 7, (rows, k // 16))).repeat(16, axis=-1)
