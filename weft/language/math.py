"""Mathematical functions of floats. `weft.ops.arith.MATH` states the error bound of each."""

from __future__ import annotations

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, float32, float64, int32, uint32
from weft.language import advice
from weft.language.arith import add, arithmetic_dtype, division_dtype, maximum, minimum, mul, sub, truediv
from weft.language.broadcast import common_form, constant
from weft.language.logic import shift_left
from weft.language.marks import builtin
from weft.language.promote import common_dtype, convert, is_number, number_dtype, place, to_tensor, unify
from weft.language.runtime_value import describe
from weft.language.tensor import Operand, apply, tensor
from weft.ops import arith, libdevice


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
def exp2_polynomial(x: Operand, degree: int = 3) -> tensor:
    """2 to the power of a float32 `x` by additions and FMAs, for some elements of kernels whose bottleneck is `exp2`.

    MUFU computes 16 exponentials a cycle and multiprocessor. Here x is split into an integer, which goes into the exponent, and
    a rest within 1/2, of which a polynomial of `degree` computes 2^rest with a relative error of 2^-13.2 (degree 3), 2^-18.3
    (4) or 2^-22.5 (5): 9, 10 or 11 instructions an element. Results below 2^-126 are within 2^-127, and 0 for `x <= -127`;
    infinity for `x >= 128` and for NaN. The simulator has the GPU's bits. Raises language-exp2-degree.

    It is a loss where issue slots are scarcer than MUFU: in a pipelined attention kernel on an H200 (fp16, head size 128) a
    quarter of the exponentials this way gave 541 instead of 595 TFLOP/s.
    """
    if degree not in _EXP2:
        raise fail(errors.EXP2_DEGREE, degree=degree)
    value = to_tensor(x)
    if value.element != float32:
        raise fail(errors.FLOAT_NEEDED, what="exp2_polynomial", got=describe(value), allowed="float32")
    value = maximum(minimum(value, 128.0), -127.0)
    # The sum is rounded to an integer, which its lowest bits hold.
    shifted = add(value, _TO_INTEGER)
    rest = sub(value, sub(shifted, _TO_INTEGER))
    highest, second, *others = reversed(_EXP2[degree])
    found = fma(rest, highest, second)
    for coefficient in (*others, 1.0):
        found = fma(found, rest, coefficient)
    integer = shift_left(apply(arith.bitcast, shifted, element=uint32), 23)
    return apply(arith.bitcast, add(apply(arith.bitcast, found, element=uint32), integer), element=float32)


_TO_INTEGER = 1.5 * 2.0**23
_EXP2 = {
    3: (0.6932829022407532, 0.2422109693288803, 0.05500893294811249),
    4: (0.6931241750717163, 0.24024099111557007, 0.055906426161527634, 0.009582852944731712),
    5: (0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.001326472731307149),
}
"""Coefficients of rest, rest^2, ... with the least maximal relative error for 1 as the constant, rounded to float32."""


@builtin
def log(x: Operand) -> tensor:
    """Natural logarithm."""
    return _function("log", x)


@builtin
def log2(x: Operand) -> tensor:
    """Logarithm to base 2."""
    return _function("log2", x)


@builtin
def log1p(x: Operand) -> tensor:
    """log(1 + x), accurate for small `x`."""
    return _of_library("log1p", x)


@builtin
def expm1(x: Operand) -> tensor:
    """exp(x) - 1, accurate for small `x`."""
    return _of_library("expm1", x)


@builtin
def pow(x: Operand, y: Operand) -> tensor:
    """`x` to the power of `y`, as `x ** y`.

    For a constant integer `y` from -64 to 64 it is a product by repeated squaring, for any type of number: `x ** 2` is `x * x`,
    and `x ** -3` of floats is `1 / (x * x * x)`. Powers of the number 2 are `exp2(y)`. Anything else is libdevice's `pow` of
    float32 or float64, which also takes run-time exponents of type int32. Raises language-power.
    """
    if isinstance(x, tensor) and is_number("**", y) and y == int(y) and -_MOST_FACTORS <= y <= _MOST_FACTORS:
        return _by_products(x, int(y))
    counts = isinstance(x, tensor) and isinstance(y, tensor) and _is_count(number_dtype("**", y))
    dtype = common_dtype("**", (x,) if counts else (x, y))
    if dtype not in (float32, float64):
        raise fail(errors.POWER, base=describe(x), exponent=describe(y), instead=advice.power(x, y))
    form = common_form("**", (x, y))
    exponent = place(y, int32 if counts else dtype, form)
    if not isinstance(x, tensor) and x == 2:
        return apply(arith.math, exponent, fn="exp2")
    return apply(libdevice.call, place(x, dtype, form), exponent, fn="pow")


def _is_count(dtype: DType) -> bool:
    return dtype.is_int_signed() and dtype.bits <= 32


_MOST_FACTORS = 64
"""Of a constant power that is computed by products."""


def _by_products(x: tensor, power: int) -> tensor:
    """`x` to a constant power by repeated squaring."""
    dtype = arithmetic_dtype("**", x)
    if power < 0:
        if not dtype.is_floating():
            raise fail(errors.POWER, base=describe(x), exponent=str(power), instead=advice.power(x, power))
        return truediv(1.0, _by_products(x, -power))
    found, square = constant(1, dtype, common_form("**", (x,))), convert(x, dtype)
    for bit in range(power.bit_length()):
        square = mul(square, square) if bit else square
        if power >> bit & 1:
            found = mul(found, square) if power & ((1 << bit) - 1) else square
    return found


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
    return apply(arith.math, _wide_float(fn, x), fn=fn)


def _of_library(fn: str, x: Operand) -> tensor:
    return apply(libdevice.call, _wide_float(fn, x), fn=fn)


def _wide_float(fn: str, x: Operand) -> tensor:
    value = to_tensor(x)
    if value.element not in (float32, float64):
        raise fail(errors.FLOAT_NEEDED, what=fn, got=describe(value), allowed="float32 or float64")
    return value


def _float_quotient(what: str, x: Operand, y: Operand) -> tuple[tensor, ...]:
    values = unify(what, x, y, dtype=division_dtype(what, x, y))
    if not any(isinstance(v, float) or (isinstance(v, tensor) and v.element.is_floating()) for v in (x, y)):
        raise fail(errors.FLOAT_NEEDED, what=what, got="two integers", allowed="at least one float")
    return values
