"""Special functions of floats that NumPy lacks: by Python's `math`, by series, and by SciPy.

SciPy is an optional dependency, which only kernels that call Bessel functions or inverse error functions need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from weft.sim.machine.data import Array, where
from weft.sim.numbers.rounding import two_product

F64 = np.dtype(np.float64)


class NoSciPy(Exception):
    """A function needs SciPy, which is not installed."""


def _of_python(function: Callable[..., float], operands: int = 1) -> Callable[..., Array]:
    """A Python function of floats, on arrays of float64."""
    applied: Callable[..., Any] = np.frompyfunc(function, operands, 1)

    def call(*xs: Array) -> Array:
        return np.asarray(applied(*(x.astype(F64) for x in xs)), F64)[()]

    return call


def _of_scipy(name: str) -> Callable[..., Array]:
    """A function of `scipy.special`, on arrays of float64. Raises NoSciPy."""

    def call(*xs: Array) -> Array:
        try:
            library = import_module("scipy.special")
        except ImportError:
            raise NoSciPy(name) from None
        return getattr(library, name)(*(x.astype(F64) for x in xs))

    return call


# Elementary


def _remainder(x: float, y: float) -> float:
    return math.nan if not math.isfinite(x) or math.isnan(y) or y == 0 else math.remainder(x, y)


remainder = _of_python(_remainder, 2)


def of_pi(x: Array) -> tuple[Array, Array]:
    """`sin(pi x)` and `cos(pi x)`."""
    quarter = np.rint(2 * x)
    angle = _PI.astype(x.dtype) * (x - quarter / 2)
    sine, cosine, quadrant = np.sin(angle), np.cos(angle), np.fmod(quarter, 4) % 4
    odd = quadrant % 2 == 1
    s, c = where(odd, cosine, sine), where(odd, -sine, cosine)
    s, c = where(quadrant >= 2, -s, s), where(quadrant >= 2, -c, c)
    return where(s == 0, np.copysign(s, x), s)[()], c[()]


_PI: Any = np.longdouble("3.14159265358979323846264338327950288")

# Error and normal distribution functions

erf, erfc = _of_python(math.erf), _of_python(math.erfc)
erfinv, erfcinv = _of_scipy("erfinv"), _of_scipy("erfcinv")
_scaled = _of_scipy("erfcx")

_HALF_ROOT, _HALF_ROOT_REST = 0.7071067811865476, -4.833646656726457e-17  # sqrt(1/2) as the sum of two floats


def erfcx(x: Array) -> Array:
    """`exp(x**2) erfc(x)`."""
    x = x.astype(F64)
    square, rest = two_product(x, x)
    return where(x < 1, np.exp(square) * where(square < 1000, 1 + rest, 1.0) * erfc(x), _scaled(x))[()]


def normcdf(x: Array) -> Array:
    """The cumulative distribution function of the standard normal distribution, `erfc(-x sqrt(1/2)) / 2`. In the lower tail a
    rounding error of the argument counts a thousand times, so the rest of the product enters to first order."""
    x = x.astype(F64)
    argument, rest = two_product(-x, np.float64(_HALF_ROOT))
    rest = where(np.abs(x) < 64, rest - x * _HALF_ROOT_REST, 0.0)
    return (erfc(argument) - 2 / math.sqrt(math.pi) * np.exp(-argument * argument) * rest) / 2


def normcdfinv(x: Array) -> Array:
    """The inverse of `normcdf`."""
    return -math.sqrt(2) * erfcinv(2 * x.astype(F64))


# Gamma function


def _gamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    if x == -math.inf or (x < 0 and x.is_integer()):
        return math.nan
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf


gamma = _of_python(_gamma)


@cache
def _zetas() -> list[Any]:
    """zeta(k) - 1 for k = 2 to 65: the sum to 999, and the terms of Euler and Maclaurin for the rest."""
    number: Array = np.arange(2, 1000).astype(np.longdouble)
    last: Any = np.longdouble(1000)
    found: list[Any] = []
    for k in range(2, 66):
        rest = last ** (1 - k) / (k - 1) + last**-k / 2 + k * last ** (-k - 1) / 12
        found.append(np.sum(number[::-1] ** -k) + rest - k * (k + 1) * (k + 2) * last ** (-k - 3) / 720)
    return found


_ONE: Any = np.longdouble(1)
_EULER: Any = np.longdouble("0.57721566490153286060651209008240243")
_HALF_LOG: Any = np.longdouble("0.91893853320467274178032973640561764")  # log(2 pi) / 2
_STIRLING = ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156), (-3617, 122400))


def _near_two(e: Array) -> Array:
    """The logarithm of gamma(2 + e) for |e| <= 1/2, by its power series, accurate near e = 0 and (with a logarithm) e = -1."""
    total: Array = np.zeros_like(e)
    for k, zeta in reversed(list(enumerate(_zetas(), 2))):
        total = total * e + (-1) ** k * zeta / k
    return e * (1 - _EULER + e * total)


def _positive(x: Array) -> Array:
    """The logarithm of gamma for x >= 1/2."""
    steps = np.clip(np.rint(x - 2), -1, 8)
    rest, product = x - steps, np.ones_like(x)
    for k in range(8):
        product = where(steps > k, product * (rest + k), product)
    small = _near_two(rest - 2) + where(steps < 0, -np.log1p(x - 1), np.log(product))
    big = np.maximum(x, 10)
    tail: Array = np.zeros_like(x)
    for k, (numerator, denominator) in enumerate(_STIRLING):
        tail = tail + numerator / (denominator * big ** (2 * k + 1))
    large = (big - 0.5) * np.log(big) - big + _HALF_LOG + tail
    return where(x < 10, small, large)


def log_gamma(x: Array) -> Array:
    """The logarithm of the absolute value of gamma, in the type of `x` or a wider one."""
    reflected = x < 0.5
    positive = _positive(where(reflected, 1 - x, x))
    sine = np.abs(of_pi(where(reflected, x, 0.5))[0])
    found = where(reflected, np.log(_PI / sine) - positive, positive)
    return where(np.isinf(x), np.inf, found)[()]


# Bessel functions

_first, _second = _of_scipy("jv"), _of_scipy("yn")


def bessel_first(order: Array, x: Array) -> Array:
    """The Bessel function of the first kind, which is 0 at the infinities; NaN for a negative order."""
    far, (found, _) = _far(order, x), _hankel(order, np.abs(x))
    found = where((x < 0) & (order % 2 == 1), -found, found)
    found = where(far, where(np.isinf(x), 0.0, found), _first(order, where(far, 1.0, x)))
    return where(order < 0, np.nan, found)[()]


def bessel_second(order: Array, x: Array) -> Array:
    """The Bessel function of the second kind, which is 0 at infinity; NaN for a negative order or argument."""
    far, (_, found) = _far(order, x), _hankel(order, np.abs(x))
    found = where(far, where(np.isinf(x), 0.0, found), _second(order, where(far, 1.0, x)))
    return where((order < 0) | (x < 0), np.nan, found)[()]


def of_low_order(kind: int, order: int, x: Array) -> Array:
    """The Bessel function of a kind (1 or 2) and order 0 or 1, accurate near its zeros below 8, where its bound is relative."""
    near = np.abs(x) < 8
    function = bessel_first if kind == 1 else bessel_second
    return where(near, _series(order, where(near, x, 1.0))[kind - 1], function(np.full_like(x, order), x))[()]


def _series(order: int, x: Array) -> tuple[Array, Array]:
    """Both kinds of order 0 or 1 by power series (DLMF 10.8.1), in the widest float: terms up to 100 cancel."""
    half = x.astype(np.longdouble) / 2
    term, first, rest = half**order, np.zeros_like(half), np.zeros_like(half)
    harmonic = order - 2 * _EULER
    for k in range(1, 40):
        first, rest = first + term, rest + term * harmonic
        term, harmonic = -term * half * half / (k * (k + order)), harmonic + _ONE / k + _ONE / (k + order)
    second = (2 * np.log(half) * first - rest - order / half) / _PI
    return first, where(x == 0, -np.inf, second)


def _far(order: Array, x: Array) -> Array:
    """Where the terms of Hankel's expansion fall fast enough. SciPy loses the phase of large arguments."""
    return np.abs(x) > 1000 + 50 * order * order


def _hankel(order: Array, x: Array) -> tuple[Array, Array]:
    """Both kinds by Hankel's expansion for large arguments."""
    even, odd, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 12):
        term = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        even, odd = (even, odd + (-1) ** (k // 2) * term) if k % 2 else (even + (-1) ** (k // 2) * term, odd)
    sine, cosine = np.sin(x), np.cos(x)
    for turn in (1, 2):  # by pi / 2 times the order: the lower bits of it say how
        turned = order // turn % 2 == 1
        s, c = (-cosine, sine) if turn == 1 else (-sine, -cosine)
        sine, cosine = where(turned, s, sine), where(turned, c, cosine)
    sine, cosine = sine - cosine, sine + cosine  # by pi / 4, times the square root of 2
    scale = 1 / np.sqrt(_PI.astype(x.dtype) * x)
    return scale * (even * cosine - odd * sine), scale * (even * sine + odd * cosine)


def modified_bessel(order: int, x: Array) -> Array:
    """The modified Bessel function of the first kind: its power series, and Hankel's expansion for large arguments."""
    size = np.abs(x)
    near, far = np.minimum(size, 30) / 2, np.clip(size, 30, 20000)
    small = term = np.ones_like(x)
    for k in range(1, 90):
        term = term * near * near / (k * (k + order))
        small = small + term
    large = term = np.ones_like(x)
    for k in range(1, 25):
        term = -term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * far)
        large = large + term
    half = np.exp(far / 2)  # the exponential overflows before the function does
    large = half * (large / np.sqrt(2 * _PI.astype(x.dtype) * far)) * half
    found = where(size < 30, small * near**order, large)
    return where(np.signbit(x) & (order % 2 == 1), -found, found)[()]
