"""Block-scaled products of tcgen05 in the simulator: numbers against NumPy, the same in both stages and any order of events."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.sim.both import results
from tests.sim.tensor_kernels import barriers, blackwell, brought, close, described, keep, poisoned  # noqa: F401
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    cluster,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma_scaled,
    tma,
)
from weft.nvidia.hopper import TensorDescriptor

EIGHT = {gl.float8e4nv: ml_dtypes.float8_e4m3fn, gl.float8e5: ml_dtypes.float8_e5m2}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@weft.jit
def scaled_product(ad, bd, x, y, out, left: gl.constexpr, right: gl.constexpr, scale: gl.constexpr):
    n: gl.constexpr = bd.block_shape[0]
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    a_scale = allocate_tensor_memory(scale, [128, 4], TensorMemoryScalesLayout())
    b_scale = allocate_tensor_memory(scale, [n, 4], TensorMemoryScalesLayout())
    acc = allocate_tensor_memory(gl.float32, [128, n], TensorMemoryLayout([128, n], col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    brought(bar, ad, a, 0)
    brought(bar, bd, b, 1)
    rows: gl.constexpr = a_scale.get_reg_layout()
    i = gl.arange(0, 128, gl.SliceLayout(1, rows))
    a_scale.store(gl.load(x + i[:, None] * 4 + gl.arange(0, 4, gl.SliceLayout(0, rows))[None, :]))
    others: gl.constexpr = b_scale.get_reg_layout()
    i = gl.arange(0, n, gl.SliceLayout(1, others))
    b_scale.store(gl.load(y + i[:, None] * 4 + gl.arange(0, 4, gl.SliceLayout(0, others))[None, :]))
    tcgen05_mma_scaled(a, b.permute((1, 0)), acc, a_scale, b_scale, left, right, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    keep(out, acc.load())


NIBBLES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def fours(rng: np.random.Generator, rows: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of two e2m1 each, and their values."""
    stored = rng.integers(0, 256, (rows, k // 2), np.uint8)
    return stored, np.stack((NIBBLES[stored & 15], NIBBLES[stored >> 4]), -1).reshape(rows, k)


@pytest.mark.parametrize(
    ("left", "right", "run"),
    [("e4m3", "e4m3", 32), ("e5m2", "e4m3", 32), ("e2m1", "e2m1", 32), ("e2m1", "e2m1", 16), ("e4m3", "e2m1", 32)],
)
def test_scaled_products(left, right, run, rng):
    k, n, given = 4 * run, 64, {"e4m3": gl.float8e4nv, "e5m2": gl.float8e5, "e2m1": gl.uint8}
    memory, values = [], []
    for form, rows in ((left, 128), (right, n)):
        if form == "e2m1":
            stored, exact = fours(rng, rows, k)
        else:
            stored = rng.standard_normal((rows, k)).astype(EIGHT[given[form]])
            exact = stored.astype(np.float64)
        memory.append(stored)
        values.append(exact)
    if run == 32:
        scales = [rng.integers(120, 134, (rows, 4), np.uint8) for rows in (128, n)]
        factors = [2.0 ** (scale.astype(np.float64) - 127) for scale in scales]
    else:
        scales = [rng.uniform(0.1, 4, (rows, 4)).astype(ml_dtypes.float8_e4m3fn) for rows in (128, n)]
        factors = [scale.astype(np.float64) for scale in scales]

    def pads(form: str) -> dict[str, bool]:
        return {"fp4_padded": True} if form == "e2m1" and left != right else {}

    def arguments() -> tuple[Any, ...]:
        descs = [
            described(stored, given[form], **pads(form)) for stored, form in zip(memory, (left, right), strict=True)
        ]
        kind = gl.uint8 if run == 32 else gl.float8e4nv
        return *descs, scales[0].copy(), scales[1].copy(), poisoned(128, n), left, right, kind

    (out,) = results(scaled_product, arguments, lambda *args: [args[4]])
    x, y = (value * np.repeat(factor, run, axis=1) for value, factor in zip(values, factors, strict=True))
    close(out, x, y.T, 32)


def packed(scales: np.ndarray) -> np.ndarray:
    """Scales [rows, 4] in the order in which they are copied: 32 rows, of each those 32, 64 and 96 further down beside it."""
    rows = len(scales)
    return np.ascontiguousarray(scales.reshape(rows // 128, 4, 32, 4).transpose(0, 2, 1, 3)).reshape(
        1, rows // 128, 1, 2, 256
    )


@weft.jit
def unpacked(buffer, rows: gl.constexpr):
    """Packed scales as [rows, 4]."""
    return buffer.reshape([rows // 128, 1, 32, 4, 4]).permute((0, 3, 2, 1, 4)).reshape([rows, 4])


@weft.jit
def with_copies(ad, bd, xd, yd, out):
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    x = gl.allocate_shared_memory(xd.dtype, xd.block_shape, xd.layout)
    y = gl.allocate_shared_memory(yd.dtype, yd.block_shape, yd.layout)
    a_scale = allocate_tensor_memory(gl.uint8, [128, 4], TensorMemoryScalesLayout())
    b_scale = allocate_tensor_memory(gl.uint8, [128, 4], TensorMemoryScalesLayout())
    acc = allocate_tensor_memory(gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1))
    bars = barriers(2)
    bar, done = bars.index(0), bars.index(1)
    mbarrier.expect(bar, ad.block_type.nbytes + bd.block_type.nbytes + xd.block_type.nbytes + yd.block_type.nbytes)
    tma.async_copy_global_to_shared(ad, [0, 0], bar, a)
    tma.async_copy_global_to_shared(bd, [0, 0], bar, b)
    tma.async_copy_global_to_shared(xd, [0, 0, 0, 0, 0], bar, x)
    tma.async_copy_global_to_shared(yd, [0, 0, 0, 0, 0], bar, y)
    mbarrier.wait(bar, 0)
    tcgen05_copy(unpacked(x, 128), a_scale)
    tcgen05_copy(unpacked(y, 128), b_scale)
    tcgen05_mma_scaled(a, b.permute((1, 0)), acc, a_scale, b_scale, "e4m3", "e4m3", use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    keep(out, acc.load())


def test_scales_that_are_copied_from_shared_memory(rng):
    a, b = (rng.standard_normal((128, 128)).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    scales = [rng.integers(120, 134, (128, 4), np.uint8) for _ in range(2)]
    plain = gl.NVMMASharedLayout(0, 8, rank=5)

    def arguments() -> tuple[Any, ...]:
        descs = [described(x, gl.float8e4nv) for x in (a, b)]
        pairs = [TensorDescriptor.from_tensor(packed(x), [1, 1, 1, 2, 256], plain) for x in scales]
        return *descs, *pairs, poisoned(128, 128)

    (out,) = results(with_copies, arguments, lambda *args: [args[4]])
    x, y = (
        v.astype(np.float64) * np.repeat(2.0 ** (s - 127.0), 32, axis=1) for v, s in zip((a, b), scales, strict=True)
    )
    close(out, x, y.T, 32)


@weft.jit
def stored_scales(memory, x, rows: gl.constexpr):
    layout: gl.constexpr = memory.get_reg_layout()
    i = gl.arange(0, rows, gl.SliceLayout(1, layout))
    memory.store(gl.load(x + i[:, None] * 4 + gl.arange(0, 4, gl.SliceLayout(0, layout))[None, :]))


@weft.jit
def by_pairs(ad, bd, x, y, out, layout: gl.constexpr, a_layout: gl.constexpr, b_layout: gl.constexpr):
    a = gl.allocate_shared_memory(ad.dtype, ad.block_shape, ad.layout)
    b = gl.allocate_shared_memory(bd.dtype, bd.block_shape, bd.layout)
    a_scale = allocate_tensor_memory(gl.uint8, [256, 4], a_layout)
    b_scale = allocate_tensor_memory(gl.uint8, [128, 4], b_layout)
    acc = allocate_tensor_memory(gl.float32, [256, 128], layout)
    bar = mbarrier.allocate_mbarrier(two_ctas=True)
    mbarrier.init(bar, count=1)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    stored_scales(a_scale, x, 256)
    stored_scales(b_scale, y, 128)
    cluster.barrier()
    mbarrier.expect(bar, ad.block_type.nbytes_per_cta + bd.block_type.nbytes_per_cta)
    tma.async_copy_global_to_shared(ad, [0, 0], bar, a)
    tma.async_copy_global_to_shared(bd, [0, 0], bar, b)
    mbarrier.wait(bar, 0)
    tcgen05_mma_scaled(a, b.permute((1, 0)), acc, a_scale, b_scale, "e4m3", "e5m2", use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    keep(out, acc.load())
    cluster.barrier()


def test_two_blocks_with_scales(rng):
    a = rng.standard_normal((256, 128)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((128, 128)).astype(ml_dtypes.float8_e5m2)
    scales = [rng.integers(120, 134, (rows, 4), np.uint8) for rows in (256, 128)]
    split: dict[str, Any] = {"cga_layout": [[1, 0]]}

    def arguments() -> tuple[Any, ...]:
        descs = described(a, gl.float8e4nv, **split), described(b, gl.float8e5, **split)
        acc = TensorMemoryLayout([128, 128], col_stride=1, two_ctas=True, **split)
        layouts = TensorMemoryScalesLayout(**split), TensorMemoryScalesLayout(cga_layout=[[0, 0]])
        return *descs, scales[0].copy(), scales[1].copy(), poisoned(256, 128), acc, *layouts

    (out,) = results(by_pairs, arguments, lambda *args: [args[4]], num_ctas=2)
    x, y = (
        v.astype(np.float64) * np.repeat(2.0 ** (s - 127.0), 32, axis=1) for v, s in zip((a, b), scales, strict=True)
    )
    close(out, x, y.T, 32)
