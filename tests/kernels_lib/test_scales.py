"""Scales of rows and columns: numbers, elements in memory, vectors, and any two of them together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.kernels_lib.matrices import Lies, check, operand
from weft.kernels import MatmulConfig, matmul

KINDS = ("none", "number", "one", "each", "column")
TILE = MatmulConfig(block_m=128, block_n=32, block_k=64, stages=3, programs=2)


def scale(device, rng, kind, extent, axis):
    """A scale as `matmul` takes it, and its values."""
    if kind == "none":
        return None, None
    if kind == "number":
        return 0.375, 0.375
    values = rng.uniform(0.5, 2, 1 if kind == "one" else extent).astype(np.float32)
    shape = values.shape if kind != "column" else (extent, 1) if axis == 0 else (1, extent)
    return device.array(values.reshape(shape)), values


@pytest.mark.parametrize(("rows", "columns"), [p for p in itertools.product(KINDS, repeat=2) if set(p) != {"none"}])
def test_scales(device, rng, rows, columns):
    m, n, k = 140, 72, 96
    a = operand(device, rng, "float8_e4m3fn", (m, k), Lies())
    b = operand(device, rng, "float8_e4m3fn", (k, n), Lies("F"))
    (given_a, scale_a), (given_b, scale_b) = scale(device, rng, rows, m, 0), scale(device, rng, columns, n, 1)
    found = matmul(a.array, b.array, scale_a=given_a, scale_b=given_b, config=TILE)
    check(device.numpy(found), a.values, b.values, scale_a, scale_b)


@pytest.mark.parametrize("config", [
    MatmulConfig(block_n=32, block_k=64, splits=2), MatmulConfig(block_n=16, block_k=64, swap=True),
    MatmulConfig(block_n=16, block_k=64, swap=True, splits=2), MatmulConfig(variant="persistent", block_n=32, block_k=64),
    MatmulConfig(variant="ping_pong", block_m=64, block_n=32, block_k=64),
])  # fmt: skip
@pytest.mark.parametrize(("dtype", "out"), [("float16", "float32"), ("int8", "float16"), ("int8", "int32")])
def test_scales_wherever_they_are_applied(device, rng, config, dtype, out):
    m, n, k = 12, 200, 256
    a, b = operand(device, rng, dtype, (m, k), Lies()), operand(device, rng, dtype, (k, n), Lies("F"))
    if out == "int32":
        scale_a = scale_b = None
    else:
        scale_a, scale_b = (rng.uniform(0, 1, size).astype(np.float32) / 256 for size in (m, n))
    given = [None if x is None else device.array(x) for x in (scale_a, scale_b)]
    found = matmul(a.array, b.array, scale_a=given[0], scale_b=given[1], out_dtype=out, config=config)
    check(device.numpy(found), a.values, b.values, scale_a, scale_b, out, config)
