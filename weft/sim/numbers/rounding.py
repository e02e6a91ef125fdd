"""Rounding to odd, and fused multiply-add built on it.

Rounding to odd truncates, and sets the last bit if the result is inexact. Rounding such a result again, to a type with at least
two bits less, equals a single rounding of the exact value (Boldo and Melquiond, "Emulation of a FMA and correctly-rounded sums:
proved algorithms using rounding to odd", IEEE Transactions on Computers 2008).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from weft.sim.machine.data import Array, where

_ONE = np.int64(1)
_SPLIT = 134217729.0  # 2**27 + 1, Veltkamp's constant for 53 bits
# Between these magnitudes no step of `fma64` overflows or loses bits to underflow.
_TINY, _HUGE = 2.0**-480, 2.0**480


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def odd_sum(a: Array, b: Array) -> Array:
    """The sum of float64, rounded to odd."""
    total, error = two_sum(a, b)
    bits = np.asarray(total).view(np.int64)
    # The adjacent float in the direction of the error has the adjacent bit pattern.
    towards = where((error > 0) == (bits >= 0), _ONE, -_ONE)
    adjust = (error != 0) & np.isfinite(error) & ((bits & _ONE) == 0)
    return where(adjust, bits + towards, bits).view(np.float64)[()]


def rounded_fma(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z`, rounded to odd, of float64 values with at most 24 significant bits. Rounding the result again to 24 bits or
    less equals a single rounding."""
    return odd_sum(x * y, z)


def odd32(x: Array) -> Array:
    """Round float64 to float32, to odd."""
    nearest = np.asarray(x).astype(np.float32)
    back = nearest.astype(np.float64)
    inexact = (back != x) & ~np.isnan(back)
    if not np.any(inexact):
        return nearest[()]
    bits = nearest.view(np.int32)
    truncated = where(np.abs(back) > np.abs(x), bits - np.int32(1), bits)
    return where(inexact, truncated | np.int32(1), bits).view(np.float32)[()]


def odd64_of_integer(x: Array) -> Array:
    """An integer as float64, rounded to odd: low bits that are irrelevant for a 16-bit float are merged into one sticky bit, so
    that the conversion is exact."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    low = x & np.array(0xFFFFFF, x.dtype)
    sticky = (low != 0).astype(x.dtype) << np.array(23, x.dtype)
    big = x >= np.array(1 << 40, x.dtype)
    if x.dtype.kind == "i":
        big |= x <= np.array(-(1 << 40), x.dtype)
    return where(big, (x - low) | sticky, x).astype(np.float64)[()]


def fma64(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of float64, rounded once: Boldo and Melquiond's algorithm, and exact fractions for extreme exponents."""
    x, y, z = np.broadcast_arrays(x, y, z)
    product, error = two_product(x, y)
    upper, lower = two_sum(z, error)
    high, low = two_sum(product, upper)
    result = np.asarray(high + odd_sum(lower, low))
    magnitudes = (np.abs(x), np.abs(y), np.abs(product), np.abs(z))
    ordinary = np.logical_and.reduce([(m > _TINY) & (m < _HUGE) for m in magnitudes])
    for at in zip(*np.nonzero(~ordinary), strict=True):
        result[at] = _fma_exactly(float(x[at]), float(y[at]), float(z[at]))
    return result[()]


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded product and its exact error (Dekker)."""
    xh, yh = _upper_half(x), _upper_half(y)
    xl, yl = x - xh, y - yh
    product = x * y
    return product, xl * yl - (((product - xh * yh) - xl * yh) - xh * yl)


def _upper_half(x: Array) -> Array:
    scaled = _SPLIT * x
    return scaled - (scaled - x)


def _fma_exactly(x: float, y: float, z: float) -> float:
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        return x * y + z if not np.isfinite(x) or not np.isfinite(y) else z
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        return x * y + z if x == 0 or y == 0 else 0.0
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf
