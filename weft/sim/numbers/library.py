"""The functions of `weft.ops.libdevice` on arrays.

What has an error bound on a GPU is computed in the next wider float and rounded. Everything else is bit for bit the GPU's.
Where the documentation of an approximate instruction leaves nothing open (a quotient by a large number is 0), so does this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.ir.types import int32, int64, uint32, uint64
from weft.ops.libdevice import MODES
from weft.sim.machine.data import Array, where
from weft.sim.numbers import directed, special
from weft.sim.numbers.arithmetic import F32, F64, bits_of, high_product, popcount
from weft.sim.numbers.rounding import odd_sum, two_product

I32, I64, U64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint64)
Function = Callable[..., Array]


def function(name: str, operands: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """The result, of type `dtype`. Raises NoSciPy."""
    if name in _EXACT:
        return np.asarray(_EXACT[name](*operands))[()].astype(dtype)
    if name in _WIDE:
        wide = F64 if dtype == F32 else np.dtype(np.longdouble)
        return np.asarray(_WIDE[name](*(x.astype(wide) for x in operands)))[()].astype(dtype)
    base, _, mode = name.rpartition("_")
    assert mode in MODES, name
    if "2" not in base:
        return directed.arithmetic(base, mode, *operands)
    return _converted(base.partition("2")[2], operands[0], mode, dtype)


def _converted(target: str, x: Array, mode: str, dtype: np.dtype[Any]) -> Array:
    if target in _INTEGERS:
        return directed.rounded_to_integer(x, _INTEGERS[target], mode).view(dtype)
    return directed.to_float32(x, mode) if x.dtype.kind == "f" else directed.integer_to_float(x, dtype, mode)


_INTEGERS = {"int": int32, "uint": uint32, "ll": int64, "ull": uint64}

# Functions with an error bound


def _length(*parts: Array) -> Array:
    """The Euclidean norm, which is infinite if a part is, also beside NaN."""
    total = parts[0]
    for part in parts[1:]:
        total = np.hypot(total, part)
    return total


def _over(function: Function) -> Function:
    def inverse(*operands: Array) -> Array:
        return 1 / function(*operands)

    return inverse


def _power_of_ten(x: Array) -> Array:
    return np.power(x.dtype.type(10), x)


def _sinpi(x: Array) -> Array:
    return special.of_pi(x)[0]


def _cospi(x: Array) -> Array:
    return special.of_pi(x)[1]


def _power_by_logarithm(x: Array, y: Array) -> Array:
    return np.exp2(y * np.log2(x))


def _divided(x: Array, y: Array) -> Array:
    """`x / y` by multiplication with an approximate reciprocal, which is 0 for large divisors."""
    return where(np.abs(y) > 2.0**126, x * np.copysign(0.0, y), x / y)


def _without_subnormals(function: Function) -> Function:
    """The function as float32 instructions with `.ftz` compute it: of operands and results that float32 has as subnormal
    numbers only the sign counts."""
    tiny = np.finfo(F32).smallest_normal

    def flushed(x: Array) -> Array:
        return where(np.abs(x) < tiny, np.copysign(0.0, x), x)

    return lambda *operands: flushed(function(*map(flushed, operands)))


def _high_reciprocal(x: Array) -> Array:
    """The reciprocal of the upper half of float64 numbers, to its upper half; subnormal numbers count as zeros."""
    tiny = np.finfo(F64).smallest_normal
    upper = _upper_half(x.astype(F64))
    found = _upper_half(1 / where(np.abs(upper) < tiny, np.copysign(0.0, upper), upper))
    return where(np.abs(found) < tiny, np.copysign(0.0, found), found)


def _upper_half(x: Array) -> Array:
    return (np.asarray(x).view(np.int64) & np.int64(-(1 << 32))).view(np.float64)


_LOGARITHMS: dict[str, Function] = {"log": np.log, "log2": np.log2, "log10": np.log10}
_WIDE: dict[str, Function] = {
    "rsqrt": _over(np.sqrt), "cbrt": np.cbrt, "rcbrt": _over(np.cbrt),
    "hypot": _length, "norm3d": _length, "norm4d": _length,
    "rhypot": _over(_length), "rnorm3d": _over(_length), "rnorm4d": _over(_length),
    "pow": np.power, "exp": np.exp, "exp2": np.exp2, "exp10": _power_of_ten, "expm1": np.expm1,
    **_LOGARITHMS, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinpi": _sinpi, "cospi": _cospi,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": special.erf, "erfc": special.erfc, "erfcx": special.erfcx, "erfinv": special.erfinv, "erfcinv": special.erfcinv,
    "normcdf": special.normcdf, "normcdfinv": special.normcdfinv, "lgamma": special.log_gamma, "tgamma": special.gamma,
    "j0": partial(special.of_low_order, 1, 0), "j1": partial(special.of_low_order, 1, 1),
    "y0": partial(special.of_low_order, 2, 0), "y1": partial(special.of_low_order, 2, 1),
    "jn": special.bessel_first, "yn": special.bessel_second,
    "cyl_bessel_i0": partial(special.modified_bessel, 0), "cyl_bessel_i1": partial(special.modified_bessel, 1),
    **{
        f"fast_{name}f": _without_subnormals(function)
        for name, function in {
            "exp": np.exp, "exp2": np.exp2, "exp10": _power_of_ten, **_LOGARITHMS, "pow": _power_by_logarithm,
            "sqrt": np.sqrt, "rsqrt": _over(np.sqrt), "sin": np.sin, "cos": np.cos, "tan": np.tan, "divide": _divided,
        }.items()
    },
    "fast_tanhf": np.tanh,
    "rcp64h": _high_reciprocal,
}  # fmt: skip


# Exact functions of floats


def _rsqrt(x: Array) -> Array:
    """1 over the square root of float32 numbers, rounded once: a Newton step makes the float64 result twice as precise."""
    wide = x.astype(F64)
    root = 1 / np.sqrt(wide)
    product, rest = two_product(wide, root)
    square, rest_of_square = two_product(product, root)
    correction = ((1 - square) - rest_of_square - rest * root) * root / 2
    return where(np.isfinite(correction), odd_sum(root, correction), root).astype(F32)


def _round(x: Array) -> Array:
    whole = np.trunc(x)
    return where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _exponent(x: Array) -> Array:
    """The binary exponent, as int32; for zeros, infinities and NaN anything."""
    return np.frexp(x)[1].astype(I32) - I32.type(1)


def _ilogb(x: Array) -> Array:
    found = where(np.isinf(x), I32.type(2**31 - 1), _exponent(x))
    return where(np.isnan(x) | (x == 0), I32.type(-(2**31)), found)


def _logb(x: Array) -> Array:
    found = where(np.isfinite(x), _exponent(x).astype(x.dtype), np.abs(x))
    return where(x == 0, x.dtype.type(-np.inf), found)


def _positive_difference(x: Array, y: Array) -> Array:
    return where(np.isnan(x) | np.isnan(y), x + y, where(x > y, x - y, x.dtype.type(0)))


def _to_int64(whole: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: directed.rounded_to_integer(whole(x), int64, "rn")


def _saturated(x: Array) -> Array:
    return where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


# Exact functions of integers


def _bit_length(x: Array) -> Array:
    """The number of bits of unsigned integers without their leading zeros."""
    if x.dtype.itemsize == 4:
        return np.frexp(x.astype(F64))[1].astype(I32)
    high = (x >> U64.type(32)).astype(np.uint32)
    return where(high != 0, _bit_length(high) + I32.type(32), _bit_length(x.astype(np.uint32)))


def _clz(x: Array) -> Array:
    return I32.type(8 * x.dtype.itemsize) - _bit_length(bits_of(x))


def _ffs(x: Array) -> Array:
    return _bit_length(bits_of(x & -x))


def _brev(x: Array) -> Array:
    bits = bits_of(x)
    whole, distance = bits.dtype.type(-1 % (1 << 8 * bits.dtype.itemsize)), 4 * bits.dtype.itemsize
    mask = whole
    while distance:  # exchange halves, then the halves of these, and so on
        amount = bits.dtype.type(distance)
        mask = mask ^ (mask << amount)
        bits = ((bits >> amount) & mask) | ((bits << amount) & ~mask)
        distance //= 2
    return bits.view(x.dtype)


def _byte_perm(x: Array, y: Array, s: Array) -> Array:
    pair = bits_of(x).astype(U64) | bits_of(y).astype(U64) << U64.type(32)
    selector, found = bits_of(s).astype(U64), U64.type(0)
    for place in range(4):
        index = (selector >> U64.type(4 * place)) & U64.type(7)
        byte = (pair >> (index << U64.type(3))) & U64.type(0xFF)
        found = found | byte << U64.type(8 * place)
    return found.astype(np.uint32).view(I32)


def _mulhi(x: Array, y: Array) -> Array:
    high, zero = high_product(x, y), x.dtype.type(0)
    if x.dtype.kind == "u":
        return high
    return high - where(x < 0, y, zero) - where(y < 0, x, zero)


def _mul24(x: Array, y: Array) -> Array:
    byte = x.dtype.type(8)
    return (x << byte >> byte) * (y << byte >> byte)


def _sad(x: Array, y: Array, z: Array) -> Array:
    return (np.abs(x.astype(I64) - y.astype(I64)) + z.astype(I64)).astype(np.uint32)


def _half_sum(more: int) -> Callable[[Array, Array], Array]:
    return lambda x, y: x.astype(I64) + y.astype(I64) + I64.type(more) >> I64.type(1)


def _bits(dtype: np.dtype[Any]) -> Callable[[Array], Array]:
    return lambda x: x.view(dtype)


def _high_bits(x: Array) -> Array:
    return x.view(I64) >> I64.type(32)


def _double_of(high: Array, low: Array) -> Array:
    return (bits_of(high).astype(U64) << U64.type(32) | bits_of(low).astype(U64)).view(F64)


_EXACT: dict[str, Function] = {
    "sqrt": np.sqrt, "rsqrt_rn": _rsqrt,
    "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint, "round": _round,
    "llrint": _to_int64(np.rint), "llround": _to_int64(_round),
    "fmod": np.fmod, "remainder": special.remainder, "fdim": _positive_difference,
    "copysign": np.copysign, "nextafter": np.nextafter, "saturatef": _saturated,
    "ldexp": np.ldexp, "scalbn": np.ldexp, "ilogb": _ilogb, "logb": _logb,
    "isnan": np.isnan, "isinf": np.isinf, "finitef": np.isfinite, "isfinited": np.isfinite, "signbit": np.signbit,
    "clz": _clz, "ffs": _ffs, "popc": popcount, "brev": _brev, "byte_perm": _byte_perm,
    "mulhi": _mulhi, "mul24": _mul24, "sad": _sad, "hadd": _half_sum(0), "rhadd": _half_sum(1),
    "int_as_float": _bits(F32), "uint_as_float": _bits(F32), "float_as_int": _bits(I32), "float_as_uint": _bits(I32),
    "longlong_as_double": _bits(F64), "double_as_longlong": _bits(I64),
    "hiloint2double": _double_of, "double2hiint": _high_bits, "double2loint": _bits(I64),
}  # fmt: skip
