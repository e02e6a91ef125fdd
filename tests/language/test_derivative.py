"""Derivatives of tiles, against differences in float64."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.language import derivative as module
from weft.language.derivative import derivative


@weft.jit
def exponents(x, y):
    return gl.exp(x) * gl.log(x) + gl.exp2(x) / gl.log2(x + 3.0) - gl.expm1(x) * gl.log1p(y * x)


@weft.jit
def angles(x, y):
    return gl.sin(x) * gl.cos(y * x) - gl.erf(x) + gl.tanh(-x * y)


@weft.jit
def roots(x, y):
    return gl.sqrt(x) + gl.rsqrt(x) / gl.sqrt_rn(x) + gl.div_rn(y, x) + x**3 + gl.fma(x, x, 2.0 * x) + gl.fma(x, y, 1.0)


@weft.jit
def kinks(x, y):
    low = gl.minimum(x * x, y) + gl.maximum(3.0 * x, y) - gl.minimum(y, 2.0 * x) * gl.maximum(y, x)
    steps = gl.abs(x - y) * gl.floor(x) - x * gl.ceil(x) + gl.clamp(x, 0.5, 1.5)
    return low + gl.where(x > y, x * y, y) + gl.where(x > y, x, x) + steps


@weft.jit
def constant(x, y):
    return y * 2.0


@weft.jit
def linear(x, y):
    return (y - (x + x)) - 1.0 + y


@weft.jit
def differentiate(given, other, result, slope, function: gl.constexpr, n: gl.constexpr):
    at = gl.arange(0, n, gl.BlockedLayout([1], [32], [1], [0]))
    x, y = gl.load(given + at) + 0.0, gl.load(other + at)
    found = function(x, y)
    gl.store(result + at, found)
    gl.store(slope + at, gl.full([n], 1.0, gl.float64) * derivative(found, x))


def evaluate(function, x, y):
    result, slope = np.zeros_like(x), np.zeros_like(x)
    differentiate[1](x, y, result, slope, function, len(x), num_warps=1)
    return result, slope


@pytest.mark.parametrize("function", [exponents, angles, roots, kinks, constant, linear])
def test_derivatives(function):
    rng = np.random.default_rng(0)
    x, y, step = rng.uniform(0.1, 2.9, 32), rng.uniform(0.1, 2.9, 32), 1e-6
    _, found = evaluate(function, x, y)
    above, below = (evaluate(function, x + move, y)[0] for move in (step, -step))
    np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=1e-5, atol=1e-6)


def test_every_function_is_tried():
    """Those of the table stand in one of the functions above."""
    used = {name for each in (exponents, angles, roots, kinks) for name in each.__wrapped__.__code__.co_names}
    assert set(module.FUNCTIONS) - {"neg"} <= used


@weft.jit
def summed(x, y):
    return x * gl.sum(x, axis=0)


def test_what_has_no_derivative_is_named():
    x = np.ones(32)
    with pytest.raises(weft.errors.CompilationError, match=r"tile\.reduce") as error:
        evaluate(summed, x, x)
    assert error.value.code == "language-derivative"
    assert "gl.sum(x, axis=0)" in str(error.value)
