"""Mathematical functions, within the bounds that `weft.ops.arith.MATH` states for float32 (and the same for float64)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, frozen, kept_poison, poison, same, within
from weft import language as gl
from weft.ops.arith import MATH

LINE = gl.BlockedLayout([2], [32], [4], [0])
SIZE, BLOCK = 4001, 4096


@weft.jit
def apply(out, x, n, function: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    gl.store(out + at, function(gl.load(x + at, mask=at < n)), mask=at < n)


def exact(name, x):
    """The true values, in wider floats than the function has."""
    with np.errstate(all="ignore"):
        if name == "erf":
            return np.array([math.erf(v) for v in x.astype(np.float64)])
        if name == "rsqrt":
            return 1 / np.sqrt(x.astype(np.longdouble))
        return getattr(np, name)(x.astype(np.longdouble))


def arguments(rng, name, kind):
    """Points of the function's domain, dense where it is steep, and where it has no value."""
    if name in ("exp", "exp2", "tanh"):
        x = np.concatenate([rng.uniform(-100, 100, SIZE // 2), rng.normal(size=SIZE - SIZE // 2)])
    elif name in ("sin", "cos"):
        x = rng.uniform(-20, 20, SIZE)
    elif name == "erf":
        x = rng.normal(scale=2, size=SIZE)
    else:
        x = np.exp2(rng.uniform(-140, 120, SIZE))
        x[: SIZE // 4] = rng.uniform(0.5, 2, SIZE // 4)
    x[:8] = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5]
    return frozen(x.astype(kind))


FUNCTIONS = {
    "exp": gl.exp, "exp2": gl.exp2, "log": gl.log, "log2": gl.log2, "sin": gl.sin, "cos": gl.cos, "sqrt": gl.sqrt,
    "rsqrt": gl.rsqrt, "erf": gl.erf, "tanh": gl.tanh,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(run, rng, name, dtype):
    x, out = arguments(rng, name, NUMPY[dtype]), poison(BLOCK, NUMPY[dtype])
    # Reducing an argument of any size to one period takes CUDA's own functions an array in memory.
    run(apply, 1, out, x, SIZE, FUNCTIONS[name], BLOCK, LINE, exact=False, spills=name in ("sin", "cos"))
    with np.errstate(all="ignore"):
        within(out[:SIZE], exact(name, x), MATH[name])
    kept_poison(out, SIZE)


def test_every_function_of_the_table_is_tested_somewhere():
    assert FUNCTIONS.keys() | {"sqrt_rn", "floor", "ceil", "abs", "neg"} == MATH.keys()


@weft.jit
def by_library(out, x, y, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    inside = at < n
    a, b = gl.load(x + at, mask=inside), gl.load(y + at, mask=inside)
    gl.store(out + at, gl.extra.libdevice.fmax(a, b), mask=inside)
    gl.store(out + n + at, gl.extra.libdevice.fma(a, b, 1.0), mask=inside)
    gl.store(out + 2 * n + at, gl.math.sqrt_rn(gl.extra.libdevice.abs(a)), mask=inside)


def test_functions_in_their_modules(run, rng):
    x, y = (frozen(rng.normal(size=256).astype(np.float32)) for _ in range(2))
    out = poison((3, 256), np.float32)
    run(by_library, 1, out, x, y, 256, 256, LINE)
    same(out[0], np.maximum(x, y))
    within(out[1], x.astype(np.longdouble) * y + 1, 0.5)
    same(out[2], np.sqrt(np.abs(x)))


@weft.jit
def of_scalars(out, x, f, g):
    value = gl.load(x)
    gl.store(out, gl.exp2(value))
    gl.store(out + 1, gl.sqrt_rn(f * g))
    gl.store(out + 2, gl.floor(f) + gl.ceil(g))
    gl.store(out + 3, gl.fma(value, f, g))


def test_functions_of_scalars(run):
    x, out = frozen(np.array([3.0], np.float32)), poison(4, np.float32)
    run(of_scalars, 1, out, x, 2.25, 4.0, num_warps=1, exact=False)
    within(out, np.array([8.0, 3.0, 6.0, 10.75]), 2)
