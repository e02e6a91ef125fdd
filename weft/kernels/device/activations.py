"""Activations of matmul by name: functions of the accumulator in float32, element by element.

`BRIEF` has those that take fewer instructions, for outputs of 16 bits or less.
"""

from __future__ import annotations

from typing import Any

from weft import language as gl
from weft.kernel import JITFunction, jit
from weft.language.extra import libdevice

HALF_ROOT: gl.constexpr = gl.constexpr(0.7071067811865476)
"""1 / sqrt(2)"""
SLOPE: gl.constexpr = gl.constexpr(0.7978845608028654)
"""sqrt(2 / pi)"""
LARGEST: gl.constexpr = gl.constexpr(3.4028234663852886e38)
LOG2E_HALF: gl.constexpr = gl.constexpr(1.4426950408889634 / 2)
CUBIC: gl.constexpr = gl.constexpr(0.7978845608028654 * 0.044715)


@jit
def relu(x):
    """max(x, 0)."""
    return gl.maximum(x, 0.0)


@jit
def relu_squared(x):
    """max(x, 0) squared."""
    x = gl.maximum(x, 0.0)
    return x * x


@jit
def gelu(x):
    """x times the normal distribution's cumulative function: x / 2 (1 + erf(x / sqrt(2)))."""
    half = 0.5 * x
    return half + half * gl.erf(x * HALF_ROOT)


@jit
def normal_tail(size):
    """erfc(size / sqrt(2)) / 2 for size >= 0, and exp(-size^2 / 2): the former is the latter times a polynomial in
    1 / (1 + p size), Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, off by 2^-22 at most."""
    t = libdevice.fast_dividef(1.0, 1.0 + size * (0.3275911 * HALF_ROOT))
    q = t * (0.127414796 + t * (-0.142248368 + t * (0.7107068705 + t * (-0.7265760135 + t * 0.5307027145))))
    power = libdevice.fast_exp2f(size * size * -LOG2E_HALF)
    return q * power, power


@jit
def gelu_brief(x):
    """The same by max(x, 0) - |x| q, where q is the `normal_tail` of |x|: the result is off by |x| 2^-22 at most."""
    size = gl.minimum(gl.abs(x), LARGEST)
    return gl.maximum(x, 0.0) - size * normal_tail(size)[0]


@jit
def gelu_tanh(x):
    """The GELU in its form with tanh: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    half = 0.5 * x
    return half + half * gl.tanh(x * (SLOPE + CUBIC * (x * x)))


@jit
def gelu_tanh_brief(x):
    """The same with the GPU's tanh, whose relative error is 2^-11: the result is off by |x| 2^-12 at most."""
    half = 0.5 * x
    return half + half * libdevice.fast_tanhf(x * (SLOPE + CUBIC * (x * x)))


@jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return libdevice.fast_dividef(1.0, 1.0 + gl.exp(-x))


@jit
def silu(x):
    """x / (1 + exp(-x))."""
    return libdevice.fast_dividef(x, 1.0 + gl.exp(-x))


@jit
def sigmoid_brief(x):
    """The same with subnormal exponentials as zeros."""
    return libdevice.fast_dividef(1.0, 1.0 + libdevice.fast_expf(-x))


@jit
def silu_brief(x):
    """The same with subnormal exponentials as zeros."""
    return libdevice.fast_dividef(x, 1.0 + libdevice.fast_expf(-x))


@jit
def tanh(x):
    """Hyperbolic tangent."""
    return gl.tanh(x)


@jit
def tanh_brief(x):
    """The same by the GPU's instruction, with a relative error of 2^-11."""
    return libdevice.fast_tanhf(x)


ACTIVATIONS: dict[str, JITFunction[..., Any]] = {
    "relu": relu, "relu_squared": relu_squared, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "sigmoid": sigmoid,
    "tanh": tanh,
}  # fmt: skip
BRIEF: dict[str, JITFunction[..., Any]] = {
    "gelu": gelu_brief, "gelu_tanh": gelu_tanh_brief, "silu": silu_brief, "sigmoid": sigmoid_brief, "tanh": tanh_brief,
}  # fmt: skip
