"""Bit-exact numerics of Hopper's tensor core: `wgmma` with fp32 accumulators, one instruction's k elements at a time.

An instruction adds 32 bytes' worth of products along k and the accumulator. All terms are aligned to the largest exponent among
them, where a product's exponent is the sum of its factors' exponents, and truncated below the last fraction bit that the
hardware keeps. The aligned terms are added exactly, and the result is truncated to the accumulator's mantissa. fp16, bfloat16
and tf32 keep 25 fraction bits and produce fp32; fp8 keeps 13 and produces 13 bits of mantissa. This was determined by
experiment on an H200, and agrees with it on all random matrices tried (tests/kernels/test_tensor_core.py). The DeepSeek-V3
report also states the low precision of fp8 (arXiv 2412.19437, 3.3.2).

Terms of moderate magnitude are added as 32-bit integers after scaling; others, and infinities, in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np

from weft.sim.machine.data import Array, where

PART = 1 << 13
"""Accumulators that are computed together, so that the intermediate arrays fit in the host's caches."""
NO_EXPONENT = -(1 << 13)
"""The exponent of zero: below all others."""
LEAST = -300
"""Below the exponents of all products of fp32 numbers."""
SMALLEST, LARGEST = -100, 120
"""Range of exponents in which terms are scaled to 32-bit integers."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Fraction bits kept below the largest term's exponent, and mantissa bits of the result."""

    fraction: int
    mantissa: int


FULL = Precision(25, 23)
FP8 = Precision(13, 13)


def accumulate(a: Array, b: Array, acc: Array, k: int, precision: Precision) -> Array:
    """acc + a @ b as fp32, by instructions of `k` elements; `a` [..., m, K] and `b` [..., K, n] hold the operands' values.

    The caller truncates tf32 operands to 10 bits of mantissa. A result that is not finite follows IEEE arithmetic."""
    (m, inner), n = a.shape[-2:], b.shape[-1]
    left, right = (np.asarray(x, np.float32) for x in (a.reshape(-1, m, inner), b.reshape(-1, inner, n)))
    before = np.asarray(acc, np.float32).reshape(-1, m, n)
    out: Array = np.empty(before.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for matrices, rows in _parts(*out.shape):
            out[matrices, rows] = _part(left[matrices, rows], right[matrices], before[matrices, rows], k, precision)
    return out.reshape(acc.shape)


def _parts(matrices: int, m: int, n: int) -> Iterator[tuple[slice, slice]]:
    """Slices of matrices and rows with about `PART` accumulators: several matrices, or some rows of one."""
    together, rows = max(PART // (m * n), 1), max(PART // n, 1)
    for first in range(0, matrices, together):
        for row in range(0, m, rows):
            yield slice(first, first + together), slice(row, row + rows)


def _part(a: Array, b: Array, acc: Array, k: int, precision: Precision) -> Array:
    """The accumulators of a part: [matrices, m, K] times [matrices, K, n]."""
    # With k as the first axis, NumPy reduces over it with contiguous inner loops over accumulators.
    x, y = np.ascontiguousarray(np.moveaxis(a, -1, 0)), np.ascontiguousarray(np.moveaxis(b, -2, 0))
    up, across = _exponents(x), _exponents(y)
    moderate = _moderate(x, up, y, across)
    terms = _scratch(get_ident(), min(k, len(x)), *acc.shape)
    for start in range(0, len(x), k):
        step = slice(start, start + k)
        acc = _instruction(x[step], y[step], acc, up[step], across[step], precision, terms if moderate else None)
    return acc


@lru_cache(maxsize=8)
def _scratch(thread: int, *shape: int) -> tuple[Array, Array]:
    """Scratch arrays of a host thread, reused because fresh memory costs as much as the work done in it."""
    return np.empty(shape, np.int16), np.empty(shape, np.float32)


def _moderate(x: Array, up: Array, y: Array, across: Array) -> bool:
    """True if all products are exact in float32 and far from overflow and underflow."""
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return False
    smallest = [int(where(e == NO_EXPONENT, np.int16(0), e).min(initial=0)) for e in (up, across)]
    largest = [int(e.max(initial=0)) for e in (up, across)]
    return sum(smallest) >= SMALLEST and sum(largest) <= LARGEST


def _instruction(
    x: Array, y: Array, acc: Array, up: Array, across: Array, precision: Precision, terms: tuple[Array, Array] | None
) -> Array:
    """The accumulators after one instruction. `terms`: scratch for its terms' exponents and values, if 32 bits suffice."""
    if terms is None:
        top = _exponents(acc)
        for i in range(len(x)):
            np.maximum(top, up[i, :, :, None] + across[i, :, None], out=top)
        return _wide(x, y, acc, top, precision)
    exponents, values = terms[0][: len(x)], terms[1][: len(x)]
    top = _fields(acc)
    np.add(up[..., None], across[:, :, None], out=exponents)
    np.maximum(top, np.maximum.reduce(exponents, axis=0), out=top)
    tiny = np.minimum.reduce(top, axis=None) < SMALLEST and np.any((top < SMALLEST) & (acc != 0))
    if tiny or np.maximum.reduce(top, axis=None) > LARGEST:
        return _wide(x, y, acc, np.maximum(top, _exponents(acc)), precision)
    scale = _power(precision.fraction - np.maximum(top, SMALLEST))
    np.einsum("kbm,kbn->kbmn", x, y, out=values)
    np.multiply(values, scale, out=values)
    # The cast to integers truncates the fraction. In place and flattened, it needs no temporary array.
    integers = values.view(np.int32)
    np.copyto(integers.reshape(-1), values.reshape(-1), casting="unsafe")
    # The sum of one instruction's terms fits in 32 bits, but not always together with the accumulator.
    total = np.add.reduce(integers, axis=0, dtype=np.int32).astype(np.float64)
    total += np.trunc(acc * scale)
    return _truncated(total, precision.mantissa).astype(np.float32) / scale


def _wide(x: Array, y: Array, acc: Array, top: Array, precision: Precision) -> Array:
    """The accumulators after one instruction, computed in float64, for arbitrary values."""
    scale = np.ldexp(1.0, precision.fraction - np.maximum(top, LEAST))
    total = np.trunc(acc.astype(np.float64) * scale)
    for left, right in zip(x.astype(np.float64), y.astype(np.float64), strict=True):
        total += np.trunc(left[:, :, None] * right[:, None] * scale)
    total /= scale
    # Subnormal fp32 has fewer bits of mantissa; truncate to those.
    subnormal = np.trunc(total * 2.0**149) * 2.0**-149
    cut = where(np.abs(total) < 2.0**-126, subnormal, _truncated(total, precision.mantissa))
    return where(np.isfinite(total), cut, total).astype(np.float32)


def _truncated(x: Array, mantissa: int) -> Array:
    """Truncate float64 towards zero to `mantissa` bits of mantissa."""
    return (x.view(np.int64) & np.int64(-1 << 52 - mantissa)).view(np.float64)


def _power(exponents: Array) -> Array:
    """Powers of two in float32, for exponents in its normal range."""
    return np.left_shift((exponents + np.int16(127)).astype(np.int32), 23).view(np.float32)


def _fields(x: Array) -> Array:
    """The exponent fields of float32: like `_exponents`, but -127 for zero and subnormals, and 128 for inf and NaN."""
    return (np.right_shift(x.view(np.int32), 23) & np.int32(255)).astype(np.int16) - np.int16(127)


def _exponents(x: Array) -> Array:
    """floor(log2 |x|) of each element, subnormals included; `NO_EXPONENT` for 0."""
    exponents: Any = np.frexp(x)[1].astype(np.int16) - np.int16(1)
    exponents[x == 0] = NO_EXPONENT
    return exponents
