"""Functions of CUDA's device library, under its names: `weft.ops.libdevice` has their types, meaning and error bounds.

A function takes exactly the types of one of its versions. A Python number takes the type that it has there; operands of other
types are promoted to a common one first. What the language has itself, for more types, is the language's own function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType
from weft.language.arith import maximum as fmax
from weft.language.arith import minimum as fmin
from weft.language.broadcast import common_form
from weft.language.marks import builtin
from weft.language.math import abs, ceil, div_rn, floor, fma, sqrt_rn
from weft.language.promote import common_dtype, is_number, literal_dtype, number_dtype, place
from weft.language.tensor import Operand, apply, tensor
from weft.ops.libdevice import FUNCTIONS, call


def _call(name: str, *operands: Operand) -> tensor:
    types, form = _types(name, operands), common_form(name, operands)
    return apply(call, *(place(x, dtype, form) for x, dtype in zip(operands, types, strict=True)), fn=name)


def _types(name: str, operands: tuple[Operand, ...]) -> tuple[DType, ...]:
    """The types that the operands are converted to. Raises language-libdevice-types."""
    function = FUNCTIONS[name]
    given = tuple(_type(name, x) for x in operands)
    if function.overload(given):
        return given
    for each in function.overloads:
        if all(_fits(x, dtype) for x, dtype in zip(operands, each.arguments, strict=True)):
            return each.arguments
    promoted = (common_dtype(name, operands),) * len(operands)
    if len(operands) > 1 and function.overload(promoted):
        return promoted
    accepted = " or ".join(_listed(each.arguments) for each in function.overloads)
    raise fail(errors.LIBDEVICE_TYPES, what=name, accepted=accepted, got=_listed(given))


def _type(name: str, x: Any) -> DType:
    return literal_dtype(x) if is_number(name, x) else number_dtype(name, x)


def _fits(x: Any, dtype: DType) -> bool:
    """Whether an operand has a type, or is a Python number that can take it."""
    if isinstance(x, tensor):
        return x.element == dtype
    return dtype.is_floating() or isinstance(x, int)


def _listed(types: tuple[DType, ...]) -> str:
    names = ", ".join(dtype.name for dtype in types)
    return f"({names})" if len(types) > 1 else names


def _unary(name: str) -> Callable[[Operand], tensor]:
    def function(x: Operand) -> tensor:
        return _call(name, x)

    return _named(name, function)


def _binary(name: str) -> Callable[[Operand, Operand], tensor]:
    def function(x: Operand, y: Operand) -> tensor:
        return _call(name, x, y)

    return _named(name, function)


def _ternary(name: str) -> Callable[[Operand, Operand, Operand], tensor]:
    def function(x: Operand, y: Operand, z: Operand) -> tensor:
        return _call(name, x, y, z)

    return _named(name, function)


def _quaternary(name: str) -> Callable[[Operand, Operand, Operand, Operand], tensor]:
    def function(x: Operand, y: Operand, z: Operand, t: Operand) -> tensor:
        return _call(name, x, y, z, t)

    return _named(name, function)


def _named(name: str, function: Any) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = FUNCTIONS[name].meaning
    return builtin(function)


acos = _unary("acos")
acosh = _unary("acosh")
add_rd = _binary("add_rd")
add_rn = _binary("add_rn")
add_ru = _binary("add_ru")
add_rz = _binary("add_rz")
asin = _unary("asin")
asinh = _unary("asinh")
atan = _unary("atan")
atan2 = _binary("atan2")
atanh = _unary("atanh")
brev = _unary("brev")
byte_perm = _ternary("byte_perm")
cbrt = _unary("cbrt")
clz = _unary("clz")
copysign = _binary("copysign")
cos = _unary("cos")
cosh = _unary("cosh")
cospi = _unary("cospi")
cyl_bessel_i0 = _unary("cyl_bessel_i0")
cyl_bessel_i1 = _unary("cyl_bessel_i1")
div_rd = _binary("div_rd")
div_ru = _binary("div_ru")
div_rz = _binary("div_rz")
double2float_rd = _unary("double2float_rd")
double2float_rn = _unary("double2float_rn")
double2float_ru = _unary("double2float_ru")
double2float_rz = _unary("double2float_rz")
double2hiint = _unary("double2hiint")
double2int_rd = _unary("double2int_rd")
double2int_rn = _unary("double2int_rn")
double2int_ru = _unary("double2int_ru")
double2int_rz = _unary("double2int_rz")
double2ll_rd = _unary("double2ll_rd")
double2ll_rn = _unary("double2ll_rn")
double2ll_ru = _unary("double2ll_ru")
double2ll_rz = _unary("double2ll_rz")
double2loint = _unary("double2loint")
double2uint_rd = _unary("double2uint_rd")
double2uint_rn = _unary("double2uint_rn")
double2uint_ru = _unary("double2uint_ru")
double2uint_rz = _unary("double2uint_rz")
double2ull_rd = _unary("double2ull_rd")
double2ull_rn = _unary("double2ull_rn")
double2ull_ru = _unary("double2ull_ru")
double2ull_rz = _unary("double2ull_rz")
double_as_longlong = _unary("double_as_longlong")
erf = _unary("erf")
erfc = _unary("erfc")
erfcinv = _unary("erfcinv")
erfcx = _unary("erfcx")
erfinv = _unary("erfinv")
exp = _unary("exp")
exp10 = _unary("exp10")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
fast_cosf = _unary("fast_cosf")
fast_dividef = _binary("fast_dividef")
fast_exp2f = _unary("fast_exp2f")
fast_exp10f = _unary("fast_exp10f")
fast_expf = _unary("fast_expf")
fast_log10f = _unary("fast_log10f")
fast_log2f = _unary("fast_log2f")
fast_logf = _unary("fast_logf")
fast_powf = _binary("fast_powf")
fast_rsqrtf = _unary("fast_rsqrtf")
fast_sinf = _unary("fast_sinf")
fast_sqrtf = _unary("fast_sqrtf")
fast_tanf = _unary("fast_tanf")
fast_tanhf = _unary("fast_tanhf")
fdim = _binary("fdim")
ffs = _unary("ffs")
finitef = _unary("finitef")
float2int_rd = _unary("float2int_rd")
float2int_rn = _unary("float2int_rn")
float2int_ru = _unary("float2int_ru")
float2int_rz = _unary("float2int_rz")
float2ll_rd = _unary("float2ll_rd")
float2ll_rn = _unary("float2ll_rn")
float2ll_ru = _unary("float2ll_ru")
float2ll_rz = _unary("float2ll_rz")
float2uint_rd = _unary("float2uint_rd")
float2uint_rn = _unary("float2uint_rn")
float2uint_ru = _unary("float2uint_ru")
float2uint_rz = _unary("float2uint_rz")
float2ull_rd = _unary("float2ull_rd")
float2ull_rn = _unary("float2ull_rn")
float2ull_ru = _unary("float2ull_ru")
float2ull_rz = _unary("float2ull_rz")
float_as_int = _unary("float_as_int")
float_as_uint = _unary("float_as_uint")
fma_rd = _ternary("fma_rd")
fma_rn = _ternary("fma_rn")
fma_ru = _ternary("fma_ru")
fma_rz = _ternary("fma_rz")
fmod = _binary("fmod")
hadd = _binary("hadd")
hiloint2double = _binary("hiloint2double")
hypot = _binary("hypot")
ilogb = _unary("ilogb")
int2double_rn = _unary("int2double_rn")
int2float_rd = _unary("int2float_rd")
int2float_rn = _unary("int2float_rn")
int2float_ru = _unary("int2float_ru")
int2float_rz = _unary("int2float_rz")
int_as_float = _unary("int_as_float")
isfinited = _unary("isfinited")
isinf = _unary("isinf")
isnan = _unary("isnan")
j0 = _unary("j0")
j1 = _unary("j1")
jn = _binary("jn")
ldexp = _binary("ldexp")
lgamma = _unary("lgamma")
ll2double_rd = _unary("ll2double_rd")
ll2double_rn = _unary("ll2double_rn")
ll2double_ru = _unary("ll2double_ru")
ll2double_rz = _unary("ll2double_rz")
ll2float_rd = _unary("ll2float_rd")
ll2float_rn = _unary("ll2float_rn")
ll2float_ru = _unary("ll2float_ru")
ll2float_rz = _unary("ll2float_rz")
llrint = _unary("llrint")
llround = _unary("llround")
log = _unary("log")
log10 = _unary("log10")
log1p = _unary("log1p")
log2 = _unary("log2")
logb = _unary("logb")
longlong_as_double = _unary("longlong_as_double")
mul24 = _binary("mul24")
mul_rd = _binary("mul_rd")
mul_rn = _binary("mul_rn")
mul_ru = _binary("mul_ru")
mul_rz = _binary("mul_rz")
mulhi = _binary("mulhi")
nearbyint = _unary("nearbyint")
nextafter = _binary("nextafter")
norm3d = _ternary("norm3d")
norm4d = _quaternary("norm4d")
normcdf = _unary("normcdf")
normcdfinv = _unary("normcdfinv")
popc = _unary("popc")
pow = _binary("pow")
rcbrt = _unary("rcbrt")
rcp64h = _unary("rcp64h")
rcp_rd = _unary("rcp_rd")
rcp_rn = _unary("rcp_rn")
rcp_ru = _unary("rcp_ru")
rcp_rz = _unary("rcp_rz")
remainder = _binary("remainder")
rhadd = _binary("rhadd")
rhypot = _binary("rhypot")
rint = _unary("rint")
rnorm3d = _ternary("rnorm3d")
rnorm4d = _quaternary("rnorm4d")
round = _unary("round")
rsqrt = _unary("rsqrt")
rsqrt_rn = _unary("rsqrt_rn")
sad = _ternary("sad")
saturatef = _unary("saturatef")
scalbn = _binary("scalbn")
signbit = _unary("signbit")
sin = _unary("sin")
sinh = _unary("sinh")
sinpi = _unary("sinpi")
sqrt = _unary("sqrt")
sqrt_rd = _unary("sqrt_rd")
sqrt_ru = _unary("sqrt_ru")
sqrt_rz = _unary("sqrt_rz")
sub_rd = _binary("sub_rd")
sub_rn = _binary("sub_rn")
sub_ru = _binary("sub_ru")
sub_rz = _binary("sub_rz")
tan = _unary("tan")
tanh = _unary("tanh")
tgamma = _unary("tgamma")
trunc = _unary("trunc")
uint2double_rn = _unary("uint2double_rn")
uint2float_rd = _unary("uint2float_rd")
uint2float_rn = _unary("uint2float_rn")
uint2float_ru = _unary("uint2float_ru")
uint2float_rz = _unary("uint2float_rz")
uint_as_float = _unary("uint_as_float")
ull2double_rd = _unary("ull2double_rd")
ull2double_rn = _unary("ull2double_rn")
ull2double_ru = _unary("ull2double_ru")
ull2double_rz = _unary("ull2double_rz")
ull2float_rd = _unary("ull2float_rd")
ull2float_rn = _unary("ull2float_rn")
ull2float_ru = _unary("ull2float_ru")
ull2float_rz = _unary("ull2float_rz")
y0 = _unary("y0")
y1 = _unary("y1")
yn = _binary("yn")

__all__ = [
    "abs", "acos", "acosh", "add_rd", "add_rn", "add_ru", "add_rz", "asin", "asinh", "atan", "atan2", "atanh", "brev",
    "byte_perm", "cbrt", "ceil", "clz", "copysign", "cos", "cosh", "cospi", "cyl_bessel_i0", "cyl_bessel_i1", "div_rd",
    "div_rn", "div_ru", "div_rz", "double2float_rd", "double2float_rn", "double2float_ru", "double2float_rz",
    "double2hiint", "double2int_rd", "double2int_rn", "double2int_ru", "double2int_rz", "double2ll_rd", "double2ll_rn",
    "double2ll_ru", "double2ll_rz", "double2loint", "double2uint_rd", "double2uint_rn", "double2uint_ru",
    "double2uint_rz", "double2ull_rd", "double2ull_rn", "double2ull_ru", "double2ull_rz", "double_as_longlong", "erf",
    "erfc", "erfcinv", "erfcx", "erfinv", "exp", "exp10", "exp2", "expm1", "fast_cosf", "fast_dividef", "fast_exp10f",
    "fast_exp2f", "fast_expf", "fast_log10f", "fast_log2f", "fast_logf", "fast_powf", "fast_rsqrtf", "fast_sinf",
    "fast_sqrtf", "fast_tanf", "fast_tanhf", "fdim", "ffs", "finitef", "float2int_rd", "float2int_rn", "float2int_ru",
    "float2int_rz", "float2ll_rd", "float2ll_rn", "float2ll_ru", "float2ll_rz", "float2uint_rd", "float2uint_rn",
    "float2uint_ru", "float2uint_rz", "float2ull_rd", "float2ull_rn", "float2ull_ru", "float2ull_rz", "float_as_int",
    "float_as_uint", "floor", "fma", "fma_rd", "fma_rn", "fma_ru", "fma_rz", "fmax", "fmin", "fmod", "hadd",
    "hiloint2double", "hypot", "ilogb", "int2double_rn", "int2float_rd", "int2float_rn", "int2float_ru", "int2float_rz",
    "int_as_float", "isfinited", "isinf", "isnan", "j0", "j1", "jn", "ldexp", "lgamma", "ll2double_rd", "ll2double_rn",
    "ll2double_ru", "ll2double_rz", "ll2float_rd", "ll2float_rn", "ll2float_ru", "ll2float_rz", "llrint", "llround",
    "log", "log10", "log1p", "log2", "logb", "longlong_as_double", "mul24", "mul_rd", "mul_rn", "mul_ru", "mul_rz",
    "mulhi", "nearbyint", "nextafter", "norm3d", "norm4d", "normcdf", "normcdfinv", "popc", "pow", "rcbrt", "rcp64h",
    "rcp_rd", "rcp_rn", "rcp_ru", "rcp_rz", "remainder", "rhadd", "rhypot", "rint", "rnorm3d", "rnorm4d", "round",
    "rsqrt", "rsqrt_rn", "sad", "saturatef", "scalbn", "signbit", "sin", "sinh", "sinpi", "sqrt", "sqrt_rd", "sqrt_rn",
    "sqrt_ru", "sqrt_rz", "sub_rd", "sub_rn", "sub_ru", "sub_rz", "tan", "tanh", "tgamma", "trunc", "uint2double_rn",
    "uint2float_rd", "uint2float_rn", "uint2float_ru", "uint2float_rz", "uint_as_float", "ull2double_rd", "ull2double_rn",
    "ull2double_ru", "ull2double_rz", "ull2float_rd", "ull2float_rn", "ull2float_ru", "ull2float_rz", "y0", "y1", "yn",
]  # fmt: skip
