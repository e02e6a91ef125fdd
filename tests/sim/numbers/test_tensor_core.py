"""The model of the tensor core against its definition in exact fractions, and its short ways against the long one."""

from __future__ import annotations

from fractions import Fraction
from math import floor, frexp, trunc

import ml_dtypes
import numpy as np
import pytest

from weft.sim.numbers import tensor_core
from weft.sim.numbers.tensor_core import FP8, FULL, Precision, accumulate

KINDS = [
    (np.float16, 16, FULL), (ml_dtypes.bfloat16, 16, FULL), (np.float32, 8, FULL), (ml_dtypes.float8_e4m3fn, 32, FP8),
    (ml_dtypes.float8_e5m2, 32, FP8),
]  # fmt: skip


def cut(x: Fraction, bits: int, lowest: int = -126) -> Fraction:
    """Toward zero to so many bits behind the leading one, which counts as at least 2**lowest."""
    if not x:
        return x
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, lowest) - bits)
    return trunc(x / step) * step


def exponent(x: float) -> int:
    return frexp(x)[1] - 1


def one_sum(a: list[float], b: list[float], acc: float, k: int, precision: Precision) -> Fraction:
    """The definition, term by term."""
    total = Fraction(acc)
    for start in range(0, len(a), k):
        pairs = [(x, y) for x, y in zip(a[start : start + k], b[start : start + k], strict=True) if x and y]
        tops = [exponent(x) + exponent(y) for x, y in pairs] + ([exponent(float(total))] if total else [])
        if not tops:
            continue
        step = Fraction(2) ** (max(tops) - precision.fraction)
        terms = [Fraction(x) * Fraction(y) for x, y in pairs] + [total]
        total = cut(sum((trunc(term / step) * step for term in terms), Fraction(0)), precision.mantissa)
    return total


def numbers(rng: np.random.Generator, kind: type, shape: tuple[int, int], spread: int) -> np.ndarray:
    """Numbers of magnitudes over so many powers of two both ways, a few of them zeros."""
    found = rng.normal(size=shape) * np.exp2(rng.integers(-spread, spread + 1, shape))
    found[rng.random(shape) < 0.1] = 0
    return np.clip(found, -400, 400).astype(kind).astype(np.float32)


@pytest.mark.parametrize("acc", [0.0, 1.0, 1e-3, 1e6, 1e-30])
@pytest.mark.parametrize("spread", [0, 4, 9])
@pytest.mark.parametrize(("kind", "k", "precision"), KINDS, ids=str)
def test_every_bit_is_as_defined(kind, k, precision, spread, acc):
    rng = np.random.default_rng([k, spread, floor(acc * 100)])
    a, b = numbers(rng, kind, (3, 2 * k), spread), numbers(rng, kind, (2 * k, 4), spread)
    if kind is np.float32:
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    before = (rng.normal(size=(3, 4)) * acc).astype(np.float32)
    found = accumulate(a, b, before, k, precision)
    assert found.dtype == np.float32
    for i in range(3):
        for j in range(4):
            assert found[i, j] == one_sum(a[i].tolist(), b[:, j].tolist(), float(before[i, j]), k, precision)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1.0, 1e18])
def test_numbers_near_the_limits_take_the_long_way(scale, monkeypatch):
    rng = np.random.default_rng(3)
    a, b = (numbers(rng, ml_dtypes.bfloat16, shape, 3) * np.float32(scale) for shape in ((16, 32), (32, 16)))
    before = np.zeros((16, 16), np.float32)
    found = accumulate(a, b, before, 16, FULL)
    monkeypatch.setattr(tensor_core, "LARGEST", -1000)
    np.testing.assert_array_equal(found, accumulate(a, b, before, 16, FULL))
    with np.errstate(over="ignore"):
        exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-44)


def test_infinities_and_nans_are_those_of_ieee_arithmetic():
    a = np.array([[np.inf, 1], [np.inf, np.nan], [1, 1]], np.float32)
    b = np.array([[1, 0], [1, 1]], np.float32)
    found = accumulate(a, b, np.array([[0, 0], [0, 0], [np.inf, 5]], np.float32), 16, FULL)
    np.testing.assert_array_equal(found, np.array([[np.inf, np.nan], [np.nan, np.nan], [np.inf, 6]], np.float32))


def test_rows_of_zeros_beside_what_is_not_finite():
    found = accumulate(
        np.zeros((1, 2), np.float32), np.array([[1, np.nan], [1, 1]], np.float32), np.zeros((1, 2)), 16, FULL
    )
    np.testing.assert_array_equal(found, np.array([[0, np.nan]], np.float32))


@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 16, 8), (2, 300, 70)])
def test_several_matrices_at_once_are_the_same_as_one_by_one(shape):
    matrices, m, n = shape
    rng = np.random.default_rng(matrices)
    a, b = rng.normal(size=(matrices, m, 32)), rng.normal(size=(matrices, 32, n))
    acc = rng.normal(size=(matrices, m, n)).astype(np.float32)
    left, right = (x.astype(np.float16).astype(np.float32) for x in (a, b))
    together = accumulate(left, right, acc, 16, FULL)
    for found, x, y, before in zip(together, left, right, acc, strict=True):
        np.testing.assert_array_equal(found, accumulate(x, y, before, 16, FULL))


@pytest.mark.parametrize(("kind", "k", "precision"), KINDS, ids=str)
def test_sums_of_the_largest_mantissas(kind, k, precision):
    """All terms have one exponent, and no bit of theirs is zero: no larger sum is aligned to it."""
    largest = np.float32(np.nextafter(kind(2), kind(0))) if kind is not np.float32 else np.float32(2 - 2.0**-10)
    a, b = np.full((1, k), largest), np.full((k, 1), largest)
    acc = np.full((1, 1), np.nextafter(np.float32(2), np.float32(0)))
    expected = one_sum([float(largest)] * k, [float(largest)] * k, float(acc[0, 0]), k, precision)
    assert accumulate(a, b, acc, k, precision)[0, 0] == expected
