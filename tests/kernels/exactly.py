"""What functions of CUDA's device library are, to 60 digits in Python's decimals, and rounding of fractions: no floats.

Functions take decimals (and integers as orders and exponents) in their domain, where the result is finite. They are written for
clarity; the series converge for arguments of moderate size.
"""

from __future__ import annotations

from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from functools import cache
from math import comb, factorial

import numpy as np

DIGITS = 60
TINY = Decimal(10) ** -(DIGITS + 60)


def rounded(x: Fraction, dtype, mode: str = "rn"):
    """A fraction as a float of `dtype`, in a rounding mode; the sign of zero is that of the fraction."""
    info = np.finfo(dtype)
    if x == 0:
        return dtype(0)
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, int(info.minexp)) - info.nmant)
    whole, rest = divmod(size / quantum, 1)
    outwards = mode == "rn" or (mode != "rz" and (x > 0) == (mode == "ru"))
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1) if mode == "rn" else outwards and rest > 0
    size = (whole + up) * quantum
    if size > Fraction(float(info.max)):
        return np.copysign(dtype(np.inf if outwards else info.max), dtype(1 if x > 0 else -1))
    made = dtype(float(size))
    assert Fraction(float(made)) == size
    return made if x > 0 else -made


# Powers and logarithms


def sqrt(x):
    return x.sqrt()


def cbrt(x):
    return (x.copy_abs() ** (Decimal(1) / 3)).copy_sign(x) if x else x


def norm(*parts):
    return sum(part * part for part in parts).sqrt()


def inverse(function):
    return lambda *xs: 1 / function(*xs)


def power(x, y):
    if x < 0 or not x:
        return x ** int(y) if y == int(y) else None
    return (y * x.ln()).exp()


def exp2(x):
    return (x * Decimal(2).ln()).exp()


def exp10(x):
    return (x * Decimal(10).ln()).exp()


def log2(x):
    return x.ln() / Decimal(2).ln()


# Trigonometric functions


@cache
def pi(digits):
    with localcontext() as context:
        context.prec = digits + 10
        return 16 * _small_atan(Decimal(1) / 5) - 4 * _small_atan(Decimal(1) / 239)


def _small_atan(x):
    total, power, k = Decimal(0), x, 0
    while abs(power) > TINY:
        total += (-1) ** k * power / (2 * k + 1)
        power, k = power * x * x, k + 1
    return total


def atan(x):
    for _ in range(8):
        x = x / (1 + (1 + x * x).sqrt())
    return 256 * _small_atan(x)


def asin(x):
    return pi(getcontext().prec) / 2 * int(x) if abs(x) == 1 else atan(x / (1 - x * x).sqrt())


def acos(x):
    return pi(getcontext().prec) / 2 - asin(x)


def atan2(y, x):
    turn = pi(getcontext().prec)
    if x == 0:
        return turn / 2 * (1 if y > 0 else -1)
    return atan(y / x) + (0 if x > 0 else turn if y >= 0 else -turn)


def sin(x):
    turn = 2 * pi(getcontext().prec)
    x = x - turn * (x / turn).to_integral_value()
    total, term, k = Decimal(0), x, 1
    while abs(term) > TINY:
        total, term, k = total + term, -term * x * x / ((k + 1) * (k + 2)), k + 2
    return total


def cos(x):
    return sin(x + pi(getcontext().prec) / 2)


def tan(x):
    return sin(x) / cos(x)


def sinpi(x):
    return sin((x % 2) * pi(getcontext().prec))


def cospi(x):
    return cos((x % 2) * pi(getcontext().prec))


def sinh(x):
    return (x.exp() - (-x).exp()) / 2


def cosh(x):
    return (x.exp() + (-x).exp()) / 2


def tanh(x):
    return sinh(x) / cosh(x)


def asinh(x):
    return (x.copy_abs() + (x * x + 1).sqrt()).ln().copy_sign(x)


def acosh(x):
    return (x + (x * x - 1).sqrt()).ln()


def atanh(x):
    return ((1 + x) / (1 - x)).ln() / 2


# Special functions


def erf(x):
    total, term, k = Decimal(0), x, 0
    while abs(term) > TINY:
        total, k = total + term / (2 * k + 1), k + 1
        term = -term * x * x / k
    return 2 * total / pi(getcontext().prec).sqrt()


def erfc(x):
    return 1 - erf(x)


def erfcx(x):
    return (x * x).exp() * erfc(x)


def normcdf(x):
    return erfc(-x / Decimal(2).sqrt()) / 2


def solved(function, derivative, start):
    """The x with function(x) = y, by Newton's method."""

    def solve(y):
        x = start(y)
        for _ in range(200):
            step = (function(x) - y) / derivative(x)
            x -= step
            if abs(step) < Decimal(10) ** -(DIGITS - 10):
                return x
        raise AssertionError(f"no inverse of {y}")

    return solve


def _erf_slope(x):
    return 2 * (-x * x).exp() / pi(getcontext().prec).sqrt()


# erf is concave for positive arguments, so that Newton's method from the origin never overshoots.
def erfinv(y):
    return solved(erf, _erf_slope, lambda y: Decimal(0))(y.copy_abs()).copy_sign(y)


def erfcinv(y):
    return erfinv(1 - y)


def normcdfinv(y):
    return -Decimal(2).sqrt() * erfcinv(2 * y)


@cache
def bernoulli(n):
    return Fraction(n == 0) - sum(comb(n, k) * bernoulli(k) / Fraction(n - k + 1) for k in range(n))


def lgamma(x):
    """The logarithm of |gamma(x)|: reflection, recurrence and Stirling's series."""
    if x < Decimal(1) / 2:
        turn = pi(getcontext().prec)
        return (turn / abs(sinpi(x))).ln() - lgamma(1 - x)
    product = Decimal(1)
    while x < 60:
        product, x = product * x, x + 1
    total = (x - Decimal(1) / 2) * x.ln() - x + (2 * pi(getcontext().prec)).ln() / 2 - product.ln()
    for k in range(1, 40):
        b = bernoulli(2 * k)
        total += Decimal(b.numerator) / Decimal(b.denominator) / (2 * k * (2 * k - 1) * x ** (2 * k - 1))
    return total


def tgamma(x):
    negative = x < 0 and int(x.to_integral_value("ROUND_FLOOR")) % 2
    return lgamma(x).exp() * (-1 if negative else 1)


def _bessel(sign):
    def function(order, x):
        term = (x / 2) ** order / factorial(order) if x or order else Decimal(1)
        total, k = Decimal(0), 0
        while abs(term) > TINY * (1 + abs(total)) or k < abs(x):
            total, k = total + term, k + 1
            term = sign * term * x * x / 4 / (k * (k + order))
        return total

    return function


bessel_j, bessel_i = _bessel(-1), _bessel(1)


@cache
def euler():
    """Euler's constant, from -psi(1) by its asymptotic series at 60."""
    n = Decimal(60)
    total = sum((1 / Decimal(k) for k in range(1, 61)), Decimal(0)) - n.ln() - 1 / (2 * n)
    for k in range(1, 40):
        b = bernoulli(2 * k)
        total += Decimal(b.numerator) / Decimal(b.denominator) / (2 * k * n ** (2 * k))
    return total


def bessel_y(order, x):
    """By the power series (DLMF 10.8.1)."""
    turn, half = pi(getcontext().prec), x / 2
    harmonic = [Decimal(0)]
    total = 2 * half.ln() * bessel_j(order, x)
    total -= sum(
        (Decimal(factorial(order - k - 1)) / factorial(k) * half ** (2 * k - order) for k in range(order)), Decimal(0)
    )
    term, k = half**order / factorial(order), 0
    while abs(term) > TINY or k < abs(x):
        while len(harmonic) <= k + order:
            harmonic.append(harmonic[-1] + 1 / Decimal(len(harmonic)))
        total -= term * (harmonic[k] + harmonic[k + order] - 2 * euler())
        k += 1
        term = -term * half * half / (k * (k + order))
    return total / turn


FUNCTIONS = {
    "fast_sqrtf": sqrt, "rsqrt": inverse(sqrt), "rsqrt_rn": inverse(sqrt), "cbrt": cbrt, "rcbrt": inverse(cbrt), "hypot": norm,
    "norm3d": norm, "norm4d": norm, "rhypot": inverse(norm), "rnorm3d": inverse(norm), "rnorm4d": inverse(norm),
    "pow": power, "exp": Decimal.exp, "exp2": exp2, "exp10": exp10, "expm1": lambda x: x.exp() - 1, "log": Decimal.ln,
    "log2": log2, "log10": Decimal.log10, "log1p": lambda x: (1 + x).ln(), "sin": sin, "cos": cos, "tan": tan,
    "sinpi": sinpi, "cospi": cospi, "asin": asin, "acos": acos, "atan": atan, "atan2": atan2, "sinh": sinh, "cosh": cosh,
    "tanh": tanh, "asinh": asinh, "acosh": acosh, "atanh": atanh, "erf": erf, "erfc": erfc, "erfcx": erfcx,
    "erfinv": erfinv, "erfcinv": erfcinv, "normcdf": normcdf, "normcdfinv": normcdfinv, "lgamma": lgamma,
    "tgamma": tgamma, "j0": lambda x: bessel_j(0, x), "j1": lambda x: bessel_j(1, x),
    "jn": lambda n, x: bessel_j(int(n), x), "y0": lambda x: bessel_y(0, x), "y1": lambda x: bessel_y(1, x),
    "yn": lambda n, x: bessel_y(int(n), x), "cyl_bessel_i0": lambda x: bessel_i(0, x),
    "cyl_bessel_i1": lambda x: bessel_i(1, x), "fast_dividef": lambda x, y: x / y, "fast_powf": power,
    "rcp64h": lambda x: 1 / x,
}  # fmt: skip
FAST = ("exp", "exp2", "exp10", "rsqrt", "log", "log2", "log10", "sin", "cos", "tan", "tanh")
FUNCTIONS |= {f"fast_{name}f": FUNCTIONS[name] for name in FAST}


def evaluate(name, *arguments):
    """A function of Python numbers, as a decimal of `DIGITS` digits."""
    with localcontext() as context:
        context.prec = DIGITS + 60
        return FUNCTIONS[name](*map(Decimal, arguments))
