"""Float arithmetic, comparison and selection, element by element: IEEE 754 to the bit, where the language promises it."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.comparisons import COMPARISONS
from tests.kernels.harness import (
    FLOATS,
    NUMPY,
    fma_exactly,
    frozen,
    kept_poison,
    pairs,
    poison,
    random,
    rounded,
    same,
    values,
    within,
)  # fmt: skip
from weft import language as gl

LINE = gl.BlockedLayout([2], [32], [4], [0])
SIZE, BLOCK = 1013, 512
ROOM = 1024
GRID = 2


@weft.jit
def binary(out, x, y, n, ops: gl.constexpr, room: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    inside = at < n
    a, b = gl.load(x + at, mask=inside), gl.load(y + at, mask=inside)
    for i in gl.static_range(len(ops)):
        gl.store(out + i * room + at, ops[i](a, b), mask=inside)


@weft.jit
def unary(out, x, n, ops: gl.constexpr, room: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    inside = at < n
    a = gl.load(x + at, mask=inside)
    for i in gl.static_range(len(ops)):
        gl.store(out + i * room + at, ops[i](a), mask=inside)


@weft.jit
def min_all(a, b):
    return gl.minimum(a, b, propagate_nan=gl.PropagateNan.ALL)


@weft.jit
def max_all(a, b):
    return gl.maximum(a, b, propagate_nan=gl.PropagateNan.ALL)


@weft.jit
def clamp_none(a, b):
    return gl.clamp(a, gl.minimum(b, 0.0), 2.0)


@weft.jit
def clamp_all(a, b):
    return gl.clamp(a, -1.0, gl.maximum(b, 0.0), propagate_nan=gl.PropagateNan.ALL)


@weft.jit
def pick(a, b):
    return gl.where(a < b, a, b)


def together(run, kernel, ops, dtype, inputs, out_dtype=None, **options):
    """Run all the functions at once; gives one row of results each."""
    out = poison(len(ops) * ROOM, out_dtype or NUMPY[dtype])
    run(kernel, GRID, out, *inputs, SIZE, ops, ROOM, BLOCK, LINE, **options)
    for row in out.reshape(len(ops), ROOM):
        kept_poison(row, SIZE)
    return out.reshape(len(ops), ROOM)[:, :SIZE]


def exactly(function, dtype, *inputs):
    """A function computed in wider floats and rounded once; for float64 NumPy's own, which is IEEE's."""
    kind = np.dtype(NUMPY[dtype])
    with np.errstate(all="ignore"):
        if kind == np.float64:
            return function(*inputs)
        # The sum, product or quotient of narrower numbers: float64 has so many digits that rounding twice is rounding once.
        return rounded(function(*(x.astype(np.float64) for x in inputs)), kind)


def least(x, y, nan=False, largest=False):
    """IEEE minimum (or maximum): -0 below +0, a NaN gives the other operand or, with `nan`, NaN."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    first = (a < b) | ((a == b) & np.signbit(a))
    chosen = np.where(first != largest, x, y)
    chosen = np.where(np.isnan(a), x if nan else y, np.where(np.isnan(b), y if nan else x, chosen))
    return chosen.astype(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_products_and_correct_quotients(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    found = together(run, binary, (gl.add, gl.sub, gl.mul, gl.div_rn), dtype, (x, y))
    for row, function in zip(found, (np.add, np.subtract, np.multiply, np.divide), strict=True):
        same(row, exactly(function, dtype, x, y), function.__name__)


@weft.jit
def quotient_rounded(a, b):
    return gl.fdiv(a, b, ieee_rounding=True)


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64], ids=str)
def test_correctly_rounded_division_under_its_other_name(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    (found,) = together(run, binary, (quotient_rounded,), dtype, (x, y))
    same(found, exactly(np.divide, dtype, x, y))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_short_division_is_within_two_ulps(run, rng, dtype):
    x, y = random(rng, NUMPY[dtype], SIZE), random(rng, NUMPY[dtype], SIZE)
    y = frozen(np.where(y == 0, y.dtype.type(1), y))
    wide = np.float64 if dtype == gl.float64 else np.float32
    found = together(run, binary, (gl.truediv, gl.fdiv), dtype, (x, y), wide, exact=dtype == gl.float64)
    for row in found:
        within(row, x.astype(np.longdouble) / y, 0.5 if dtype == gl.float64 else 2.5)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_comparisons(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    a, b = x.astype(np.float64), y.astype(np.float64)
    found = together(run, binary, COMPARISONS, dtype, (x, y), np.bool_)
    functions = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
    for row, function in zip(found, functions, strict=True):
        same(row, function(a, b), function.__name__)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extremes_and_their_nans(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    found = together(run, binary, (gl.minimum, gl.maximum, min_all, max_all, pick), dtype, (x, y))
    chosen = np.where(x.astype(np.float64) < y.astype(np.float64), x, y)
    wanted = (least(x, y), least(x, y, largest=True), least(x, y, True), least(x, y, True, True), chosen)
    for row, want in zip(found, wanted, strict=True):
        same(row, want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_clamp(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    none, all_ = together(run, binary, (clamp_none, clamp_all), dtype, (x, y))
    zero, two, one = (np.full(SIZE, v).astype(x.dtype) for v in (0.0, 2.0, -1.0))
    same(none, least(least(x, least(y, zero), largest=True), two))
    nans = np.isnan(x.astype(np.float64))
    clamped = least(least(x, one, largest=True), least(y, zero, largest=True))
    same(all_, np.where(nans, x, clamped).astype(x.dtype))


@weft.jit
def nothing(a):
    return +a


@weft.jit
def absolute(a):
    return abs(a)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_signs(run, rng, dtype):
    x = values(rng, NUMPY[dtype], SIZE)
    found = together(run, unary, (gl.negative, gl.abs, absolute, nothing), dtype, (x,))
    for row, want in zip(found, (np.negative(x), np.abs(x), np.abs(x), x), strict=True):
        same(row, want)


@pytest.mark.parametrize("dtype", [gl.float32, gl.float64], ids=str)
def test_rounding_to_whole_numbers_and_the_correct_root(run, rng, dtype):
    x = values(rng, NUMPY[dtype], SIZE)
    found = together(run, unary, (gl.floor, gl.ceil, gl.sqrt_rn), dtype, (x,))
    with np.errstate(invalid="ignore"):
        wanted = np.floor(x), np.ceil(x), np.sqrt(x)
    for row, want in zip(found, wanted, strict=True):
        same(row, want)


# Fused multiply-add


@weft.jit
def fused(out, x, y, z, n, mode: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    inside = at < n
    a, b, c = gl.load(x + at, mask=inside), gl.load(y + at, mask=inside), gl.load(z + at, mask=inside)
    if mode == "fma":
        r = gl.fma(a, b, c)
    elif mode == "sum":
        r = a * b + c
    elif mode == "difference":
        r = a * b - c
    elif mode == "reversed":
        r = c - a * b
    else:
        product = a * b
        r = product + c
        gl.store(out + n + at, product, mask=inside)
    gl.store(out + at, r, mask=inside)


@pytest.mark.parametrize("mode", ["fma", "sum", "difference", "reversed"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products_and_sums_round_once(run, rng, dtype, mode):
    kind = NUMPY[dtype]
    x, y, z = (values(rng, kind, SIZE) for _ in range(3))
    z = np.array(z)
    with np.errstate(all="ignore"):
        # Sums that nearly cancel show whether the product was rounded.
        z[::2] = -(x[::2].astype(np.float64) * y[::2].astype(np.float64)).astype(kind)
    z, out = frozen(z), poison(ROOM, kind)
    run(fused, GRID, out, x, y, z, SIZE, mode, BLOCK, LINE)
    sx, sz = (np.negative(x) if mode == "reversed" else x), (np.negative(z) if mode == "difference" else z)
    same(out[:SIZE], fma_exactly(sx, y, sz, kind))
    kept_poison(out, SIZE)


def test_a_product_that_is_used_again_is_rounded(run, rng):
    x, y, z = (random(rng, np.float32, SIZE) for _ in range(3))
    out = poison(2 * ROOM, np.float32)
    run(fused, GRID, out, x, y, z, SIZE, "shared", BLOCK, LINE)
    same(out[SIZE : 2 * SIZE], x * y)
    same(out[:SIZE], x * y + z)


# Operands of different kinds


@weft.jit
def with_numbers(out, x, scale, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    a = gl.load(x + at, mask=at < n, other=0)
    gl.store(out + at, 1 - a * 2, mask=at < n)
    gl.store(out + BLOCK + at, a + scale, mask=at < n)
    gl.store(out + 2 * BLOCK + at, 3.0 / (a * 0.0 + 2), mask=at < n)
    gl.store(out + 3 * BLOCK + at, min(a, 0.5) + max(a, 0.25), mask=at < n)


@pytest.mark.parametrize("dtype", [gl.float16, gl.float32], ids=str)
def test_python_numbers_and_scalars_join_tiles(run, rng, dtype):
    kind, n = NUMPY[dtype], 251
    x, out = frozen(rng.integers(-64, 64, n).astype(kind) / kind(8)), poison((4, 256), kind)
    run(with_numbers, 1, out, x, 0.75, n, 256, LINE)
    a = x.astype(np.float64)
    for row, want in zip(
        out, (1 - 2 * a, a + 0.75, 0 * a + 1.5, np.minimum(a, 0.5) + np.maximum(a, 0.25)), strict=True
    ):
        same(row[:n], want.astype(kind))
        kept_poison(row, n)


@weft.jit
def rest(a, b):
    return a % b


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_remainders_are_exact(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    wide = np.float64 if dtype == gl.float64 else np.float32
    for_types = together(run, binary, (gl.mod, rest), dtype, (x, y), wide)
    with np.errstate(all="ignore"):
        want = np.fmod(x.astype(wide), y.astype(wide))
    for row in for_types:
        same(row, want)
