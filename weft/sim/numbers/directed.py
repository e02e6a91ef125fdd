"""Arithmetic and conversions of floats in a rounding mode: `rn` (to nearest even), `rz` (towards zero), `rd` (down), `ru` (up).

Each function computes the nearest result and on which side of it the exact result lies, and steps to the adjacent float where
the mode wants it. float32 results come from float64 numbers that are exact, rounded to odd, or (quotients and square roots) so
close to the exact result that no float32 number lies between. float64 results are compared with exact fractions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from weft.ir.types import DType
from weft.sim.machine.data import Array, where
from weft.sim.numbers.arithmetic import F32, F64, float_to_integer
from weft.sim.numbers.rounding import fma64, odd64_of_integer, odd_sum, rounded_fma, two_sum

_ROUND: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


def _stepped(nearest: Array, side: Array, mode: str) -> Array:
    """The result in a mode. `side`: the sign of the exact result minus the nearest float, or NaN where both are infinite."""
    if mode == "rn":
        return nearest
    infinity, negative = nearest.dtype.type(np.inf), np.signbit(nearest)
    if mode != "rd":
        nearest = where((side > 0) & (negative | (mode == "ru")), np.nextafter(nearest, infinity), nearest)
    if mode != "ru":
        nearest = where((side < 0) & (~negative | (mode == "rd")), np.nextafter(nearest, -infinity), nearest)
    return nearest[()]


# Arithmetic


def _exact_difference(x: Array, y: Array) -> Array:
    return odd_sum(x, -y)


def _fused(x: Fraction, y: Fraction, z: Fraction) -> Fraction:
    return x * y + z


def _inverse(x: Fraction) -> Fraction:
    return 1 / x


_IN_FLOAT64: dict[str, Callable[..., Array]] = {
    "add": odd_sum, "sub": _exact_difference, "mul": np.multiply, "div": np.divide, "rcp": np.reciprocal,
    "sqrt": np.sqrt, "fma": rounded_fma,
}  # fmt: skip
_NEAREST: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rcp": np.reciprocal, "sqrt": np.sqrt,
    "fma": fma64,
}  # fmt: skip
_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "rcp": _inverse,
    "fma": _fused,
}  # fmt: skip


def arithmetic(name: str, mode: str, *operands: Array) -> Array:
    """`add`, `sub`, `mul`, `div`, `rcp`, `sqrt` or `fma` of float32 or float64 in a mode."""
    if operands[0].dtype == F32:
        exact = _IN_FLOAT64[name](*(x.astype(F64) for x in operands))
        nearest = exact.astype(F32)
        side = np.sign(exact - nearest.astype(F64))
    else:
        nearest = _NEAREST[name](*operands)
        if mode == "rn":
            return nearest
        of_one: Callable[..., Any] = np.frompyfunc(partial(_side, name), len(operands) + 1, 1)
        side = np.asarray(of_one(nearest, *operands), F64)
    result = _stepped(nearest, side, mode)
    if mode != "rd" or name not in ("add", "sub", "fma"):
        return result
    # Terms that cancel give -0 in this mode, and +0 in the others.
    cancels = (nearest == 0) & (side == 0) & _opposite(name, *operands)
    return where(cancels, -np.abs(result), result)[()]


def _opposite(name: str, x: Array, y: Array, z: Array | None = None) -> Array:
    """Whether the terms of a sum have opposite signs."""
    if z is not None:
        return np.signbit(x) ^ np.signbit(y) ^ np.signbit(z)
    return (np.signbit(x) ^ np.signbit(y)) ^ (name == "sub")


def _side(name: str, nearest: float, *operands: float) -> int:
    """The sign of the exact result minus the nearest float64; 0 where no rounding happened."""
    if not all(map(math.isfinite, operands)) or math.isnan(nearest):
        return 0
    if math.isinf(nearest):  # an overflow; or a division by zero, which is exact
        return 0 if name in ("div", "rcp") and operands[-1] == 0 else 1 if nearest < 0 else -1
    numbers = [Fraction(x) for x in operands]
    off = numbers[0] - Fraction(nearest) ** 2 if name == "sqrt" else _EXACT[name](*numbers) - Fraction(nearest)
    return (off > 0) - (off < 0)


# Conversions


def to_float32(x: Array, mode: str) -> Array:
    """float64 as float32. A number that is rounded to odd gives what the exact one does."""
    nearest = x.astype(F32)
    return _stepped(nearest, np.sign(x - nearest.astype(F64)), mode)


def integer_to_float(x: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """An integer as float32 or float64."""
    if dtype == F32:
        return to_float32(odd64_of_integer(x), mode)
    if x.dtype.itemsize < 8:
        return x.astype(F64)
    half = x.dtype.type(32)
    high, low = np.ldexp((x >> half).astype(F64), 32), (x & x.dtype.type(0xFFFFFFFF)).astype(F64)
    nearest, error = two_sum(high, low)
    return _stepped(nearest, np.sign(error), mode)


def rounded_to_integer(x: Array, target: DType, mode: str) -> Array:
    """A float as an integer, clamped to its range. NaN gives 0, but 2**31 or 2**63 if a type has 64 bits (PTX ISA, cvt)."""
    found = float_to_integer(_ROUND[mode](x), target)
    if x.dtype == F32 and target.bits == 32:
        return found
    special = np.array(1 << (target.bits - 1), f"u{target.itemsize}").astype(found.dtype)
    return where(np.isnan(x), special, found)[()]
