"""Mathematical functions of floats. `weft.ops.arith.MATH` states the error bound of each."""

from __future__ import annotations

from weft.errors import fail
from weft.errors import language as errors
from weft.language.arith import arithmetic_dtype, division_dtype
from weft.language.marks import builtin
from weft.language.promote import to_tensor, unify
from weft.language.runtime_value import describe
from weft.language.tensor import Operand, apply, tensor
from weft.ops import arith


@builtin
def exp(x: Operand) -> tensor:
    """e to the power of `x`: float32 or float64, a scalar or a tile. As all functions of this module, it raises
    language-float-needed."""
    return _function("exp", x)


@builtin
def exp2(x: Operand) -> tensor:
    """2 to the power of `x`."""
    return _function("exp2", x)


@builtin
def log(x: Operand) -> tensor:
    """Natural logarithm."""
    return _function("log", x)


@builtin
def log2(x: Operand) -> tensor:
    """Logarithm to base 2."""
    return _function("log2", x)


@builtin
def sin(x: Operand) -> tensor:
    """Sine of radians."""
    return _function("sin", x)


@builtin
def cos(x: Operand) -> tensor:
    """Cosine of radians."""
    return _function("cos", x)


@builtin
def tanh(x: Operand) -> tensor:
    """Hyperbolic tangent."""
    return _function("tanh", x)


@builtin
def erf(x: Operand) -> tensor:
    """Error function."""
    return _function("erf", x)


@builtin
def sqrt(x: Operand) -> tensor:
    """Square root, approximate for float32."""
    return _function("sqrt", x)


@builtin
def sqrt_rn(x: Operand) -> tensor:
    """Square root, correctly rounded."""
    return _function("sqrt_rn", x)


@builtin
def rsqrt(x: Operand) -> tensor:
    """1 over the square root, approximate."""
    return _function("rsqrt", x)


@builtin
def floor(x: Operand) -> tensor:
    """`x` rounded down to an integer, as a float."""
    return _function("floor", x)


@builtin
def ceil(x: Operand) -> tensor:
    """`x` rounded up to an integer, as a float."""
    return _function("ceil", x)


@builtin
def abs(x: Operand) -> tensor:
    """Absolute value of floats and integers; the smallest signed integer is returned unchanged."""
    value = to_tensor(x)
    dtype = arithmetic_dtype("abs", value)
    if dtype.is_int_unsigned() or value.dtype.is_bool():
        return value
    return apply(arith.math, value, fn="abs")


@builtin
def fma(x: Operand, y: Operand, z: Operand) -> tensor:
    """Fused multiply-add: `x * y + z` with one rounding; operands are promoted and broadcast."""
    dtype = arithmetic_dtype("fma", x, y, z)
    if not dtype.is_floating():
        raise fail(errors.FLOAT_NEEDED, what="fma", got=f"operands that promote to {dtype.name}", allowed="floats")
    return apply(arith.fma, *unify("fma", x, y, z, dtype=dtype))


@builtin
def fdiv(x: Operand, y: Operand, ieee_rounding: bool = False) -> tensor:
    """Float quotient: approximate as with `/`, or correctly rounded with `ieee_rounding`."""
    dtype = _float_quotient("fdiv", x, y)
    return apply(arith.div_rn if ieee_rounding else arith.div, *dtype)


@builtin
def div_rn(x: Operand, y: Operand) -> tensor:
    """Float quotient, correctly rounded."""
    return apply(arith.div_rn, *_float_quotient("div_rn", x, y))


@builtin
def umulhi(x: Operand, y: Operand) -> tensor:
    """High half of the product of two 32- or 64-bit integers, as unsigned integers."""
    dtype = arithmetic_dtype("umulhi", x, y)
    if dtype.is_floating() or dtype.bits < 32:
        raise fail(errors.UMULHI, dtype=dtype.name)
    return apply(arith.umulhi, *unify("umulhi", x, y, dtype=dtype))


@builtin
def popcount(x: Operand) -> tensor:
    """Number of set bits of a 32- or 64-bit integer, as int32; negative integers count in two's complement."""
    dtype = arithmetic_dtype("popcount", x)
    if dtype.is_floating() or dtype.bits < 32:
        raise fail(errors.POPCOUNT, dtype=dtype.name)
    return apply(arith.popcount, *unify("popcount", x, dtype=dtype))


def _function(fn: str, x: Operand) -> tensor:
    value = to_tensor(x)
    if not (value.element.is_floating() and value.element.bits >= 32):
        raise fail(errors.FLOAT_NEEDED, what=fn, got=describe(value), allowed="float32 or float64")
    return apply(arith.math, value, fn=fn)


def _float_quotient(what: str, x: Operand, y: Operand) -> tuple[tensor, ...]:
    values = unify(what, x, y, dtype=division_dtype(what, x, y))
    if not any(isinstance(v, float) or (isinstance(v, tensor) and v.element.is_floating()) for v in (x, y)):
        raise fail(errors.FLOAT_NEEDED, what=what, got="two integers", allowed="at least one float")
    return values
