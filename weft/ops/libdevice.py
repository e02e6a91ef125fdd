"""Functions of CUDA's device library: which there are, with their types, their CUDA spelling and their error bounds.

`FUNCTIONS` is the only list of them; typing, the documentation, CUDA and the tests read it. Bounds are those of the CUDA C++
Programming Guide ("Mathematical Functions"): the largest distance from the correctly rounded result, in units in the last
place. What the language's own operations compute bit for bit (`abs`, `floor`, `ceil`, `fma`, `div_rn`, `sqrt_rn`, `fmin`,
`fmax`) is not here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.ir.core import Value
from weft.ir.define import op
from weft.ir.types import DType, Type, float32, float64, int1, int32, int64, uint32, uint64, with_element
from weft.ops.check import TypingError, dtype_of, same_form

_TYPES = {"i": int32, "l": int64, "u": uint32, "ul": uint64, "f": float32, "d": float64, "b": int1}


@dataclass(frozen=True, slots=True)
class Overload:
    """One version of a function: the types that it takes and gives, its name in CUDA (after a cast, where CUDA returns another
    type of the same size), and its error bound in ulp. None: only the function's `bound` states one."""

    arguments: tuple[DType, ...]
    result: DType
    cuda: str
    ulp: float | None


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the library. `bound` says what a number of ulp cannot."""

    meaning: str
    overloads: tuple[Overload, ...]
    bound: str = ""

    def overload(self, arguments: tuple[DType, ...]) -> Overload | None:
        """The version for exactly these types."""
        return next((each for each in self.overloads if each.arguments == arguments), None)


def _function(meaning: str, *overloads: str, bound: str = "") -> Function:
    """From overloads such as `"if>f jnf 2"`; an omitted number is no bound."""
    return Function(meaning, tuple(map(_overload, overloads)), bound)


def _overload(text: str) -> Overload:
    types, cuda, *ulp = text.split()
    arguments, _, result = types.partition(">")
    found = tuple(_TYPES[code] for code in re.findall("ul|.", arguments))
    return Overload(found, _TYPES[result], cuda, float(ulp[0]) if ulp else None)


def _floats(
    cuda: str, ulp32: float | None, ulp64: float | None, meaning: str, arity: int = 1, bound: str = ""
) -> Function:
    """A function of C's library: `acosf` for float32 and `acos` for float64."""
    single, double = ("" if ulp is None else f" {ulp}" for ulp in (ulp32, ulp64))
    f, d = "f" * arity, "d" * arity
    return _function(meaning, f"{f}>f {cuda}f{single}", f"{d}>d {cuda}{double}", bound=bound)


MODES = {"rn": "to nearest even", "rz": "towards zero", "rd": "down", "ru": "up"}
_BESSEL = "for |x| < 8; beyond an absolute error of 2.2e-6 (float64: 5e-12)"
_ORDER = "an absolute error of 2.2e-6 (float64: 5e-12), stated for order 128"
_GAMMA = "outside of -10.001 to -2.264 (float64: -23.0001 to -2.2637), larger inside"

_FLOATS: dict[str, Function] = {
    # Powers, exponentials and logarithms
    "sqrt": _function("Square root, correctly rounded.", "f>f __fsqrt_rn 0", "d>d __dsqrt_rn 0"),
    "rsqrt": _floats("rsqrt", 2, 1, "1 over the square root."),
    "rsqrt_rn": _function("1 over the square root, correctly rounded.", "f>f __frsqrt_rn 0"),
    "cbrt": _floats("cbrt", 1, 1, "Cube root."),
    "rcbrt": _floats("rcbrt", 1, 1, "1 over the cube root."),
    "hypot": _floats("hypot", 3, 2, "sqrt(x² + y²) without overflow of the squares.", 2),
    "rhypot": _floats("rhypot", 2, 1, "1 / sqrt(x² + y²) without overflow of the squares.", 2),
    "norm3d": _floats("norm3d", 3, 2, "Length of a vector of three numbers.", 3),
    "rnorm3d": _floats("rnorm3d", 2, 1, "1 over the length of a vector of three numbers.", 3),
    "norm4d": _floats("norm4d", 3, 2, "Length of a vector of four numbers.", 4),
    "rnorm4d": _floats("rnorm4d", 2, 1, "1 over the length of a vector of four numbers.", 4),
    "pow": _function(
        "x to the power of y.", "fi>f __nv_powif", "di>d __nv_powi", "ff>f powf 4", "dd>d pow 2",
        bound="for float exponents; with an integer y about |y|, since every product is rounded",
    ),
    "exp": _floats("exp", 2, 1, "e to the power of x."),
    "exp2": _floats("exp2", 2, 1, "2 to the power of x."),
    "exp10": _floats("exp10", 2, 1, "10 to the power of x."),
    "expm1": _floats("expm1", 1, 1, "exp(x) - 1, accurate for small x."),
    "log": _floats("log", 1, 1, "Natural logarithm."),
    "log2": _floats("log2", 1, 1, "Logarithm to base 2."),
    "log10": _floats("log10", 2, 1, "Logarithm to base 10."),
    "log1p": _floats("log1p", 1, 1, "log(1 + x), accurate for small x."),
    # Trigonometric and hyperbolic functions
    "sin": _floats("sin", 2, 2, "Sine of radians."),
    "cos": _floats("cos", 2, 2, "Cosine of radians."),
    "tan": _floats("tan", 4, 2, "Tangent of radians."),
    "sinpi": _floats("sinpi", 1, 2, "sin(pi x)."),
    "cospi": _floats("cospi", 1, 2, "cos(pi x)."),
    "asin": _floats("asin", 2, 2, "Arc sine, in radians."),
    "acos": _floats("acos", 2, 2, "Arc cosine, in radians."),
    "atan": _floats("atan", 2, 2, "Arc tangent, in radians."),
    "atan2": _floats("atan2", 3, 2, "Arc tangent of x / y in the quadrant of the point (y, x), in radians.", 2),
    "sinh": _floats("sinh", 3, 2, "Hyperbolic sine."),
    "cosh": _floats("cosh", 2, 1, "Hyperbolic cosine."),
    "tanh": _floats("tanh", 2, 1, "Hyperbolic tangent."),
    "asinh": _floats("asinh", 3, 3, "Inverse hyperbolic sine."),
    "acosh": _floats("acosh", 4, 3, "Inverse hyperbolic cosine."),
    "atanh": _floats("atanh", 3, 2, "Inverse hyperbolic tangent."),
    # Special functions
    "erf": _floats("erf", 2, 2, "Error function."),
    "erfc": _floats("erfc", 4, 5, "1 - erf(x), accurate for large x."),
    "erfcx": _floats("erfcx", 4, 4, "exp(x²) erfc(x)."),
    "erfinv": _floats("erfinv", 2, 5, "Inverse of erf."),
    "erfcinv": _floats("erfcinv", 4, 6, "Inverse of erfc."),
    "normcdf": _floats("normcdf", 5, 5, "Cumulative distribution function of the standard normal distribution."),
    "normcdfinv": _floats("normcdfinv", 5, 8, "Inverse of normcdf."),
    "lgamma": _floats("lgamma", 6, 4, "Logarithm of the absolute value of the gamma function.", bound=_GAMMA),
    "tgamma": _floats("tgamma", 5, 10, "Gamma function."),
    "j0": _floats("j0", 9, 7, "Bessel function of the first kind of order 0.", bound=_BESSEL),
    "j1": _floats("j1", 9, 7, "Bessel function of the first kind of order 1.", bound=_BESSEL),
    "jn": _function(
        "Bessel function of the first kind of order x at y; NaN for a negative order.", "if>f jnf", "id>d jn",
        bound=_ORDER,
    ),
    "y0": _floats("y0", 9, 7, "Bessel function of the second kind of order 0.", bound=_BESSEL),
    "y1": _floats("y1", 9, 7, "Bessel function of the second kind of order 1.", bound=_BESSEL),
    "yn": _function(
        "Bessel function of the second kind of order x at y; NaN for a negative order.", "if>f ynf", "id>d yn",
        bound="ceil(2 + 2.5 x) for |y| < x; beyond (float64: for |y| > 1.5 x) an absolute error of 2.2e-6 (5e-12)",
    ),
    "cyl_bessel_i0": _floats("cyl_bessel_i0", 6, 6, "Modified Bessel function of the first kind of order 0."),
    "cyl_bessel_i1": _floats("cyl_bessel_i1", 6, 6, "Modified Bessel function of the first kind of order 1."),
    # Approximate instructions, which take subnormal numbers as zeros; fast_tanhf keeps them
    "fast_dividef": _function(
        "x / y by the approximate instruction; for |y| > 2^126 the result is 0, or NaN if x is infinite.",
        "ff>f fast_dividef 2", bound="for |y| from 2^-126 to 2^126",
    ),
    "fast_expf": _function("e to the power of x.", "f>f fast_expf", bound="2 + floor(|1.173 x|)"),
    "fast_exp2f": _function("2 to the power of x.", "f>f fast_exp2f 2"),
    "fast_exp10f": _function("10 to the power of x.", "f>f fast_exp10f", bound="2 + floor(|2.97 x|)"),
    "fast_logf": _function(
        "Natural logarithm.", "f>f fast_logf 3", bound="outside of 0.5 to 2, where the absolute error is at most 2^-21.41",
    ),
    "fast_log2f": _function(
        "Logarithm to base 2.", "f>f fast_log2f 2", bound="outside of 0.5 to 2, where the absolute error is at most 2^-22",
    ),
    "fast_log10f": _function(
        "Logarithm to base 10.", "f>f fast_log10f 3", bound="outside of 0.5 to 2, where the absolute error is at most 2^-24",
    ),
    "fast_powf": _function(
        "x to the power of y as exp2(y log2(x)): NaN for negative x.", "ff>f fast_powf",
        bound="the result times |y| times the error of fast_log2f, plus 2",
    ),
    "fast_sinf": _function(
        "Sine of radians.", "f>f fast_sinf", bound="an absolute error of 2^-21.41 from -pi to pi, larger outside",
    ),
    "fast_cosf": _function(
        "Cosine of radians.", "f>f fast_cosf", bound="an absolute error of 2^-21.19 from -pi to pi, larger outside",
    ),
    "fast_tanf": _function(
        "Tangent of radians.", "f>f fast_tanf", bound="those of fast_sinf and fast_cosf, whose quotient it is",
    ),
    "fast_sqrtf": _function("Square root.", "f>f fast_sqrtf 2"),
    "fast_rsqrtf": _function("1 over the square root.", "f>f fast_rsqrtf 2"),
    "fast_tanhf": _function("Hyperbolic tangent.", "f>f fast_tanhf", bound="a relative error of 2^-11"),
    "rcp64h": _function(
        "1 / x from the high 32 bits of x; the low 32 bits of the result are 0.", "d>d __nv_rcp64h",
        bound="about 20 bits; subnormal numbers count as 0 (PTX `rcp.approx.ftz.f64`)",
    ),
    # Rounding and parts of floats
    "trunc": _floats("trunc", 0, 0, "x rounded towards zero to an integer, as a float."),
    "rint": _floats("rint", 0, 0, "x rounded to the nearest integer, ties to even, as a float."),
    "nearbyint": _floats("nearbyint", 0, 0, "x rounded to the nearest integer, ties to even, as a float."),
    "round": _floats("round", 0, 0, "x rounded to the nearest integer, ties away from zero, as a float."),
    "llrint": _function("rint(x) as an int64; clamped.", "f>l llrintf 0", "d>l llrint 0"),
    "llround": _function("round(x) as an int64; clamped.", "f>l llroundf 0", "d>l llround 0"),
    "fmod": _floats("fmod", 0, 0, "Remainder of x / y with the sign of x.", 2),
    "remainder": _floats("remainder", 0, 0, "x - n y, n being the integer nearest to x / y, ties to even.", 2),
    "fdim": _floats("fdim", 0, 0, "x - y where x > y, else 0.", 2),
    "copysign": _floats("copysign", 0, 0, "|x| with the sign of y.", 2),
    "nextafter": _floats("nextafter", 0, 0, "The adjacent float of x in the direction of y.", 2),
    "saturatef": _function("x clamped to the range from 0 to 1; NaN gives 0.", "f>f __saturatef 0"),
    "ldexp": _function("x times 2 to the power of y.", "fi>f ldexpf 0", "di>d ldexp 0"),
    "scalbn": _function("x times 2 to the power of y.", "fi>f scalbnf 0", "di>d scalbn 0"),
    "ilogb": _function(
        "The binary exponent of x as an int32: the least int32 for 0 and NaN, the largest for infinities.",
        "f>i ilogbf 0", "d>i ilogb 0",
    ),
    "logb": _floats("logb", 0, 0, "The binary exponent of x, as a float: -inf for 0, inf for infinities."),
    "isnan": _function("Whether x is NaN.", "f>b isnan 0", "d>b isnan 0"),
    "isinf": _function("Whether x is infinite.", "f>b isinf 0", "d>b isinf 0"),
    "finitef": _function("Whether x is neither infinite nor NaN.", "f>b isfinite 0"),
    "isfinited": _function("Whether x is neither infinite nor NaN.", "d>b isfinite 0"),
    "signbit": _function("1 where the sign bit of x is set, else 0.", "f>i (int)signbit 0", "d>i (int)signbit 0"),
}  # fmt: skip

_INTEGERS: dict[str, Function] = {
    "clz": _function("Number of leading zero bits, as an int32.", "i>i __clz 0", "l>i __clzll 0"),
    "ffs": _function("Position of the lowest set bit, counted from 1, as an int32; 0 for 0.", "i>i __ffs 0", "l>i __ffsll 0"),
    "popc": _function("Number of set bits, as an int32.", "i>i __popc 0", "l>i __popcll 0"),
    "brev": _function("The bits in reverse order.", "i>i (int)__brev 0", "l>l (i64)__brevll 0"),
    "byte_perm": _function(
        "Four of the eight bytes of x (0 to 3) and y (4 to 7), selected by the four low hexadecimal digits of z, modulo 8.",
        "iii>i (int)__byte_perm 0",
    ),
    "mulhi": _function(
        "High half of the product.",
        "ii>i __mulhi 0", "uu>u __umulhi 0", "ll>l __mul64hi 0", "ulul>ul __umul64hi 0",
    ),
    "mul24": _function(
        "Low 32 bits of the product of the low 24 bits of the operands.", "ii>i __mul24 0", "uu>u __umul24 0"
    ),
    "sad": _function("|x - y| + z.", "iiu>i (int)__sad 0", "uuu>u __usad 0"),
    "hadd": _function("(x + y) / 2 without overflow, rounded down.", "ii>i __hadd 0", "uu>u __uhadd 0"),
    "rhadd": _function("(x + y + 1) / 2 without overflow, rounded down.", "ii>i __rhadd 0", "uu>u __urhadd 0"),
    # Bits
    "int_as_float": _function("The float32 with the bits of x.", "i>f __int_as_float 0"),
    "uint_as_float": _function("The float32 with the bits of x.", "u>f __uint_as_float 0"),
    "float_as_int": _function("The bits of x as an int32.", "f>i __float_as_int 0"),
    "float_as_uint": _function("The bits of x as an int32.", "f>i (int)__float_as_uint 0"),
    "longlong_as_double": _function("The float64 with the bits of x.", "l>d __longlong_as_double 0"),
    "double_as_longlong": _function("The bits of x as an int64.", "d>l __double_as_longlong 0"),
    "hiloint2double": _function("The float64 with the high and the low 32 bits.", "ii>d __hiloint2double 0"),
    "double2hiint": _function("The high 32 bits of x.", "d>i __double2hiint 0"),
    "double2loint": _function("The low 32 bits of x.", "d>i __double2loint 0"),
    # Exact conversions
    "int2double_rn": _function("x as a float64, which is exact.", "i>d __int2double_rn 0"),
    "uint2double_rn": _function("x as a float64, which is exact.", "u>d __uint2double_rn 0"),
}  # fmt: skip


def _directed(mode: str, how: str) -> dict[str, Function]:
    """Arithmetic and conversions in one rounding mode."""
    arithmetic = {
        "add": ("x + y", 2, "add"), "sub": ("x - y", 2, "sub"), "mul": ("x * y", 2, "mul"), "div": ("x / y", 2, "div"),
        "rcp": ("1 / x", 1, "rcp"), "sqrt": ("The square root of x", 1, "sqrt"),
    }  # fmt: skip
    found = {
        f"{name}_{mode}": _function(
            f"{what}, rounded {how}.", f"{'f' * arity}>f __f{cuda}_{mode} 0", f"{'d' * arity}>d __d{cuda}_{mode} 0"
        )
        for name, (what, arity, cuda) in arithmetic.items()
        if f"{name}_{mode}" not in ("div_rn", "sqrt_rn")
    }
    found[f"fma_{mode}"] = _function(
        f"x * y + z, rounded once, {how}.", f"fff>f __fmaf_{mode} 0", f"ddd>d __fma_{mode} 0"
    )
    found[f"double2float_{mode}"] = _function(f"x as a float32, rounded {how}.", f"d>f __double2float_{mode} 0")
    for source, code in (("float", "f"), ("double", "d")):
        nan = "0" if code == "f" else "2^31"
        for target, result, cast, given in (
            ("int", "i", "", "int32"), ("uint", "i", "(int)", "uint32"),
            ("ll", "l", "", "int64"), ("ull", "l", "(i64)", "uint64"),
        ):  # fmt: skip
            name = f"{source}2{target}_{mode}"
            bits = "" if given == _TYPES[result].name else f", whose bits are those of an {_TYPES[result].name}"
            found[name] = _function(
                f"x rounded {how} to an integer and clamped to {given}{bits}; NaN gives {nan if result == 'i' else '2^63'}.",
                f"{code}>{result} {cast}__{name} 0",
            )
    for source, code in (("int", "i"), ("uint", "u"), ("ll", "l"), ("ull", "ul")):
        for target, result in (("float", "f"), ("double", "d")):
            name = f"{source}2{target}_{mode}"
            if name not in _INTEGERS and not (result == "d" and code in "iu"):
                found[name] = _function(f"x as a {_TYPES[result].name}, rounded {how}.", f"{code}>{result} __{name} 0")
    return found


FUNCTIONS: dict[str, Function] = {
    **_FLOATS,
    **_INTEGERS,
    **{name: function for mode, how in MODES.items() for name, function in _directed(mode, how).items()},
}


@op("libdevice.call", elementwise=True)
def call(*values: Value, fn: str) -> Type:
    """A function of CUDA's device library, element by element; `FUNCTIONS` lists them with their types and error bounds."""
    same_form(*values)
    types = tuple(map(dtype_of, values))
    overload = FUNCTIONS[fn].overload(types) if fn in FUNCTIONS else None
    if overload is None:
        raise TypingError(f"libdevice has no {fn}({', '.join(map(str, types))})")
    return with_element(values[0].type, overload.result)


FAST: dict[str, str] = {
    "div": "fast_dividef", "sqrt": "fast_sqrtf", "rsqrt": "fast_rsqrtf", "exp": "fast_expf", "exp2": "fast_exp2f",
    "exp10": "fast_exp10f", "log": "fast_logf", "log2": "fast_log2f", "log10": "fast_log10f", "pow": "fast_powf",
    "sin": "fast_sinf", "cos": "fast_cosf", "tan": "fast_tanf", "tanh": "fast_tanhf",
}  # fmt: skip
"""The approximate instructions by the names of the operations of float32 that they stand in for (`passes.fast_math`)."""
