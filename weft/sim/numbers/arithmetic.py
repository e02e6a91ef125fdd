"""Arithmetic with a GPU's results, bit for bit: NumPy's functions where they agree, replacements where they do not.

Functions take and return arrays (or NumPy scalars) of one element type. The caller has to silence NumPy's warnings. NaN
payloads are not modelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from weft.ir.types import DType, Element, Pointer
from weft.sim.machine.data import Array, where
from weft.sim.numbers.rounding import fma64, odd32, odd64_of_integer, rounded_fma

_NUMPY: dict[str, Any] = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
FP8_MAX = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
Binary = Callable[[Array, Array], Array]
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@cache
def numpy_dtype(element: Element) -> np.dtype[Any]:
    """The NumPy dtype of an element type; int64 for an address."""
    return np.dtype(np.int64) if isinstance(element, Pointer) else np.dtype(_NUMPY[element.code])


@cache
def bits_dtype(itemsize: int) -> np.dtype[Any]:
    """The unsigned integer dtype of a size in bytes."""
    return np.dtype(f"u{itemsize}")


def bits_of(array: Array) -> Array:
    """The same bits as unsigned integers."""
    return array.view(bits_dtype(array.dtype.itemsize))


def constant(value: int | float | bool, dtype: DType) -> Array:
    """A Python number as a NumPy scalar: integers wrap, floats round once."""
    if dtype.is_floating():
        return float_to_float(np.float64(value), numpy_dtype(dtype))
    if dtype.is_bool():
        return np.bool_(value)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return bits_dtype(dtype.itemsize).type(wrapped).view(numpy_dtype(dtype))


# Integers


def divide_integers(lhs: Array, rhs: Array) -> Array:
    """Quotient truncated towards zero; 0 where the divisor is 0."""
    quotient = np.floor_divide(lhs, rhs)
    if lhs.dtype.kind != "i":
        return quotient
    inexact = (quotient * rhs != lhs) & ((lhs < 0) != (rhs < 0)) & (rhs != 0)
    return quotient + inexact.astype(lhs.dtype)


def high_product(lhs: Array, rhs: Array) -> Array:
    """The high half of the unsigned product of 32- or 64-bit integers, in the operands' type."""
    a, b = bits_of(lhs), bits_of(rhs)
    if a.dtype.itemsize == 4:
        return (a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32).view(lhs.dtype)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = a & low, a >> half, b & low, b >> half
    middle = ah * bl + (al * bl >> half)
    return (ah * bh + (middle >> half) + ((middle & low) + al * bh >> half)).view(lhs.dtype)


def popcount(x: Array) -> Array:
    """Number of set bits, as int32; negative integers count in two's complement."""
    return np.bitwise_count(bits_of(x)).astype(np.int32)


def overflow(name: str, lhs: Array, rhs: Array, result: Array) -> Array:
    """Mask of the elements where a signed `add`, `sub` or `mul` wrapped."""
    if name == "add":
        return ((lhs ^ result) & (rhs ^ result)) < 0
    if name == "sub":
        return ((lhs ^ rhs) & (lhs ^ result)) < 0
    return lhs.astype(np.int64) * rhs != result


# Floats


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """True for types of at most 16 bits, which are computed in float32. Rounding the float32 result of +, -, *, / and sqrt
    again equals a single rounding, because float32 has at least 2p + 2 bits of precision."""
    return dtype.itemsize < 4


def through32(function: Callable[..., Array], *operands: Array) -> Array:
    """A float function computed in the operands' type; for narrower types in float32, then rounded."""
    dtype = operands[0].dtype
    if not is_narrow(dtype):
        return function(*operands)
    return from32(function(*(x.astype(F32) for x in operands)), dtype)


def from32(x: Array, dtype: np.dtype[Any]) -> Array:
    """Round float32 to a narrower float type; fp8 saturates."""
    if dtype.itemsize > 1:
        return x.astype(dtype)
    largest: Any = np.float32(FP8_MAX[dtype.name])
    clipped: Array = np.clip(x, -largest, largest)
    return clipped.astype(dtype)


def divide_floats(lhs: Array, rhs: Array) -> Array:
    """Quotient, rounded once."""
    return through32(np.divide, lhs, rhs)


def remainder_floats(lhs: Array, rhs: Array) -> Array:
    """C's `fmod`, which is exact."""
    return through32(np.fmod, lhs, rhs)


def fma(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of floats, rounded once."""
    dtype = x.dtype
    if dtype == F64:
        return fma64(x, y, z)
    exact = rounded_fma(x.astype(F64), y.astype(F64), z.astype(F64))
    return exact.astype(F32) if dtype == F32 else narrow(exact, dtype)


def narrow(x: Array, dtype: np.dtype[Any]) -> Array:
    """Round float64 once to a float type of 16 or 8 bits, to nearest even; fp8 saturates."""
    return from32(odd32(x), dtype)


def minimum(lhs: Array, rhs: Array, nan: bool = False) -> Array:
    """The smaller operand; -0 < +0. If one operand is NaN, the result is the other one, or NaN if `nan` is set."""
    if lhs.dtype.kind in "iub":
        return np.minimum(lhs, rhs)
    return through32(_with_zeros(np.minimum if nan else np.fmin, _least_zero), lhs, rhs)


def maximum(lhs: Array, rhs: Array, nan: bool = False) -> Array:
    """The larger operand; -0 < +0. If one operand is NaN, the result is the other one, or NaN if `nan` is set."""
    if lhs.dtype.kind in "iub":
        return np.maximum(lhs, rhs)
    return through32(_with_zeros(np.maximum if nan else np.fmax, np.add), lhs, rhs)


def _least_zero(a: Array, b: Array) -> Array:
    """The minimum of two zeros: -0 unless both are +0. (`a + b` is their maximum: +0 unless both are -0.)"""
    return -(-a - b)


def _with_zeros(function: Binary, of_zeros: Binary) -> Binary:
    """A function with a special case for two zeros, because NumPy's minimum and maximum ignore the sign of zero."""

    def run(a: Array, b: Array) -> Array:
        result = function(a, b)
        zeros = (a == 0) & (b == 0)
        return where(zeros, of_zeros(a, b), result)[()] if np.any(zeros) else result

    return run


def clamp(x: Array, low: Array, high: Array, nan: bool = False) -> Array:
    """`min(max(x, low), high)`; for a NaN `x` the result is `low`, or NaN if `nan` is set."""
    return minimum(maximum(x, low, nan), high, nan)


_erf: Callable[[Array], Array] = np.frompyfunc(math.erf, 1, 1)
# Functions that are computed in float64 and then rounded, which is within every error bound in `arith.MATH`.
_TRANSCENDENTAL: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "erf": lambda x: np.asarray(_erf(x), F64)[()],
}  # fmt: skip
_EXACT: dict[str, Callable[[Array], Array]] = {
    "sqrt": np.sqrt, "sqrt_rn": np.sqrt, "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def function(name: str, x: Array) -> Array:
    """Evaluate a function of `arith.MATH`."""
    if name == "neg":
        return np.negative(x)
    if name == "abs":
        return np.abs(x)
    if name in _EXACT:
        return through32(_EXACT[name], x)
    exact = _TRANSCENDENTAL[name](x.astype(F64))
    dtype = x.dtype
    if dtype == F64:
        return exact
    return exact.astype(F32) if dtype == F32 else narrow(exact, dtype)


# Casts


def cast(x: Array, source: DType, target: DType, rounding: str = "rn") -> Array:
    """`arith.cast`, which rounds once for every pair of types."""
    dtype = numpy_dtype(target)
    if source == target:
        return x
    if target.is_bool():
        return x != 0
    if source.is_floating():
        return float_to_float(x, dtype, rounding) if target.is_floating() else float_to_integer(x, target)
    return integer_to_float(x, dtype) if target.is_floating() and not source.is_bool() else x.astype(dtype)


def float_to_float(x: Array, dtype: np.dtype[Any], rounding: str = "rn") -> Array:
    """Round to nearest even, or towards zero; fp8 saturates at its largest finite magnitude (`.satfinite`)."""
    nearest = _nearest(x, dtype)
    if rounding == "rn":
        return nearest
    beyond = np.abs(nearest.astype(F64)) > np.abs(x.astype(F64))
    # Decrementing the bit pattern decreases the magnitude by one ulp.
    return (bits_of(nearest) - beyond.astype(bits_dtype(dtype.itemsize))).view(dtype)


def _nearest(x: Array, dtype: np.dtype[Any]) -> Array:
    if not is_narrow(dtype):
        return x.astype(dtype)
    return narrow(x, dtype) if x.dtype == F64 else from32(x.astype(F32), dtype)


def integer_to_float(x: Array, dtype: np.dtype[Any]) -> Array:
    """Round to nearest even, once."""
    return x.astype(dtype) if not is_narrow(dtype) else narrow(odd64_of_integer(x), dtype)


def four_bit_integers(x: Array, dtype: np.dtype[Any]) -> list[Array]:
    """The four-bit integers of each integer as floats, the one in the lowest bits first; signed like the type of `x`."""
    fields = [np.bitwise_and(np.right_shift(bits_of(x), at), 15) for at in range(0, 8 * x.dtype.itemsize, 4)]
    sign = 8 if x.dtype.kind == "i" else 0
    return [((field.astype(np.int8) ^ np.int8(sign)) - np.int8(sign)).astype(dtype) for field in fields]


def float_to_integer(x: Array, target: DType) -> Array:
    """Truncate and clamp to the integer type's range; NaN becomes 0."""
    dtype = numpy_dtype(target)
    whole = np.trunc(x.astype(F64))
    above, below = whole > float(target.max_value), whole < float(target.min_value)
    if target.bits == 64:
        above = whole >= float(target.max_value)  # the float of max_value is rounded up to 2**63 or 2**64
    inside = where(np.isnan(whole) | above | below, 0.0, whole).astype(dtype)
    low, high = dtype.type(target.min_value), dtype.type(target.max_value)
    return where(above, high, where(below, low, inside))[()]
