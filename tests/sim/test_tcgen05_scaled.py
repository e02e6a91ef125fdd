"""Block-scaled products of tcgen05 in the simulator: numbers against NumPy, the same in both stages and any order of events."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.sim.both import results
from tests.sim.tensor_kernels import blackwell, brought, close, described, keep, poisoned  # noqa: F401
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_mma_scaled,
)

EIGHT = {gl.float8e4nv: ml_dtypes.float8_e4m3fn, gl.float8e5: ml_dtypes.float8_e5m2}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


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
