"""What a Hopper tensor core computes, bit for bit: `wgmma` with fp32 accumulators, one instruction's k elements at a time.

The terms of a sum, 32 bytes' worth of products and the accumulator, are aligned to the largest exponent among them, where a
product's exponent is the sum of its factors' exponents. What lies below the last fraction bit kept is cut off, the rest is
summed without error, and the sum is cut to the mantissa of the result. fp16, bfloat16 and tf32 keep 25 fraction bits and give
fp32; fp8 keeps 13 and gives 13 bits of mantissa. Found by experiment on an H200, and equal to it on all random products tried
(tests/kernels/test_tensor_core.py); that fp8 keeps so few bits is also in the DeepSeek-V3 report (arXiv 2412.19437, 3.3.2).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np

from weft.sim.data import Array

ROWS = 64
"""Rows that one thread of the host works on."""
NO_EXPONENT = -(1 << 14)
"""Below all exponents: that of zero."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Fraction bits kept below the largest term's exponent, and mantissa bits of the result."""

    fraction: int
    mantissa: int


FULL = Precision(25, 23)
FP8 = Precision(13, 13)


def accumulate(a: Array, b: Array, acc: Array, k: int, precision: Precision) -> Array:
    """acc + a @ b as fp32, by instructions of `k` elements; `a` [m, K] and `b` [K, n] hold the operands' values.

    tf32 operands are cut to 10 bits of mantissa by the caller. Where a sum is not finite it is what IEEE arithmetic gives."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    rows = range(0, len(a), ROWS)
    parts = [(left[i : i + ROWS], right, acc[i : i + ROWS].astype(np.float64), k, precision) for i in rows]
    done = _threads().map(lambda part: _rows(*part), parts) if len(parts) > 1 else [_rows(*parts[0])]
    return np.concatenate(list(done))


@cache
def _threads() -> ThreadPoolExecutor:
    """NumPy leaves the interpreter to others while it works on large arrays."""
    return ThreadPoolExecutor(thread_name_prefix="tensor core")


def _rows(a: Array, b: Array, acc: Array, k: int, precision: Precision) -> Array:
    for start in range(0, a.shape[1], k):
        acc = _instruction(a[:, start : start + k], b[start : start + k], acc, precision)
    with np.errstate(over="ignore"):
        return acc.astype(np.float32)


def _instruction(a: Array, b: Array, acc: Array, precision: Precision) -> Array:
    exponents_a, exponents_b = _exponents(a), _exponents(b)
    top = _exponents(acc)
    for i in range(a.shape[1]):
        np.maximum(top, np.add.outer(exponents_a[:, i], exponents_b[i]), out=top)
    np.maximum(top, -1000, out=top)
    with np.errstate(invalid="ignore", over="ignore"):
        scale = np.ldexp(1.0, precision.fraction - top)
        total = np.trunc(acc * scale)
        term = np.empty_like(total)
        for i in range(a.shape[1]):
            np.multiply(a[:, i, None], b[i], out=term)
            np.multiply(term, scale, out=term)
            np.trunc(term, out=term)
            np.add(total, term, out=total)
        total /= scale
        return np.where(np.isfinite(total), _cut(total, precision.mantissa), total)


def _cut(x: Array, mantissa: int) -> Array:
    """Toward zero to so many bits of mantissa; below fp32's least exponent to what fp32 holds."""
    lowest = np.maximum(_exponents(x), -126)
    step = np.ldexp(1.0, lowest.astype(np.int32) - mantissa)
    return np.trunc(x / step) * step


def _exponents(x: Array) -> Array:
    """floor(log2 |x|) of each element, and `NO_EXPONENT` for 0. Subnormal numbers have their own."""
    exponents = np.frexp(x)[1].astype(np.int16) - np.int16(1)
    exponents[x == 0] = NO_EXPONENT
    return exponents
