"""Block-scaled numbers in the simulator: every code of every format, and products against exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain

import ml_dtypes
import numpy as np
import pytest

from weft.sim.numbers.scaled import elements, scaled_product, scales

BYTES = np.arange(256, dtype=np.uint8)


def by_definition(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    """The value of a code of a small float that is finite."""
    mantissa, exponent = code & (1 << mantissa_bits) - 1, code >> mantissa_bits & (1 << exponent_bits) - 1
    sign = -1.0 if code >> exponent_bits + mantissa_bits else 1.0
    fraction = mantissa / (1 << mantissa_bits)
    return sign * (fraction * 2.0 ** (1 - bias) if not exponent else (1 + fraction) * 2.0 ** (exponent - bias))


def test_elements_of_a_byte():
    e4m3, e5m2 = elements(BYTES, "e4m3"), elements(BYTES, "e5m2")
    for code in range(256):
        if code & 127 == 127:
            assert np.isnan(e4m3[code])
        else:
            assert e4m3[code] == by_definition(code, 4, 3, 7)
        if code & 127 < 124:
            assert e5m2[code] == by_definition(code, 5, 2, 15)
        else:
            assert np.isinf(e5m2[code]) if code & 3 == 0 else np.isnan(e5m2[code])
    np.testing.assert_array_equal(elements(BYTES.view(ml_dtypes.float8_e4m3fn), "e4m3"), e4m3)


def test_two_elements_of_a_byte():
    """The first in the low half, side by side along an axis."""
    low, high = ([by_definition(code >> shift & 15, 2, 1, 1) for code in range(256)] for shift in (0, 4))
    rows = elements(BYTES[None], "e2m1")
    assert rows.shape == (1, 512)
    np.testing.assert_array_equal(rows[0, ::2], low)
    np.testing.assert_array_equal(rows[0, 1::2], high)
    np.testing.assert_array_equal(elements(BYTES[:, None], "e2m1", axis=0), rows.T)
    np.testing.assert_array_equal(elements(BYTES.reshape(2, 128, 1), "e2m1", axis=-2), rows.reshape(2, 256, 1))
    np.testing.assert_array_equal(elements(BYTES[::-1][None], "e2m1")[0, ::2], low[::-1])


def test_scales():
    powers = scales(BYTES)
    assert np.isnan(powers[255])
    np.testing.assert_array_equal(powers[:255], [2.0 ** (code - 127) for code in range(255)])
    np.testing.assert_array_equal(scales(BYTES.view(ml_dtypes.float8_e8m0fnu)), powers)
    small = scales(BYTES.view(ml_dtypes.float8_e4m3fn))
    np.testing.assert_array_equal(small[128:], small[:128])
    np.testing.assert_array_equal(small[:127], [by_definition(code, 4, 3, 7) for code in range(127)])


def exact(a, b, acc, a_scale, b_scale) -> list[list[Fraction]]:
    run_a, run_b = a.shape[1] // a_scale.shape[1], b.shape[0] // b_scale.shape[1]
    found = [[Fraction(float(x)) for x in row] for row in acc]
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                left = Fraction(float(a[i, k])) * Fraction(float(a_scale[i, k // run_a]))
                found[i][j] += left * Fraction(float(b[k, j])) * Fraction(float(b_scale[j, k // run_b]))
    return found


@pytest.mark.parametrize(
    ("left", "right", "run", "step"),
    [("e4m3", "e4m3", 32, 32), ("e5m2", "e2m1", 32, 32), ("e2m1", "e2m1", 32, 64), ("e2m1", "e2m1", 16, 64)],
)
def test_products(left, right, run, step):
    """One instruction's sum is exact but for float64, and rounded once."""
    rng = np.random.default_rng(run + step)
    m, n, k = 3, 5, step
    a = _random(rng, left, (m, k))
    b = np.swapaxes(_random(rng, right, (n, k)), 0, 1)
    kind = ml_dtypes.float8_e4m3fn if run == 16 else np.uint8
    a_scale, b_scale = (scales(rng.integers(100, 126, (size, k // run)).astype(np.uint8).view(kind)) for size in (m, n))
    acc = rng.normal(size=(m, n)).astype(np.float32)
    found = scaled_product(a, b, acc, a_scale, b_scale, step)
    assert found.dtype == np.float32
    for got, wanted in zip(found.ravel(), chain(*exact(a, b, acc, a_scale, b_scale)), strict=True):
        assert abs(Fraction(float(got)) - wanted) <= abs(wanted) * Fraction(1, 2**24) + Fraction(1, 2**40)
    fresh = scaled_product(a, b, None, a_scale, b_scale, step)
    np.testing.assert_array_equal(fresh, scaled_product(a, b, np.zeros_like(acc), a_scale, b_scale, step))


def _random(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    rows, k = shape
    if kind == "e2m1":
        return elements(rng.integers(0, 256, (rows, k // 2)).astype(np.uint8), "e2m1")
    return elements(rng.integers(0, 120, shape).astype(np.uint8), "e4m3" if kind == "e4m3" else "e5m2")


def test_the_accumulator_is_rounded_behind_each_instruction():
    """2**24 + 1 is lost where the sum is rounded in between, and 2**24 + 2 is not."""
    a, b = np.ones((1, 64), np.float32), np.zeros((64, 1), np.float32)
    b[0] = b[32] = 1
    one, acc = np.ones((1, 2), np.float32), np.full((1, 1), 2.0**24, np.float32)
    assert scaled_product(a, b, acc, one, one, 32) == 2.0**24
    assert scaled_product(a, b, acc, one, one, 64) == 2.0**24 + 2


def test_a_scale_that_is_nan_spoils_its_run():
    a, b = np.ones((2, 64), np.float32), np.ones((64, 2), np.float32)
    one = np.ones((2, 2), np.float32)
    spoiled = one.copy()
    spoiled[1, 0] = np.nan
    found = scaled_product(a, b, None, spoiled, one, 32)
    np.testing.assert_array_equal(found, [[64, 64], [np.nan, np.nan]])


def test_stacks_of_matrices():
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(3, 4, 64)).astype(np.float32), rng.normal(size=(3, 64, 2)).astype(np.float32)
    up, across = (np.exp2(rng.integers(-9, 9, (3, size, 2))).astype(np.float32) for size in (4, 2))
    whole = scaled_product(a, b, None, up, across, 32)
    for i in range(3):
        np.testing.assert_array_equal(whole[i], scaled_product(a[i], b[i], None, up[i], across[i], 32))
