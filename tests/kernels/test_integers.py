"""Integers of every width: they wrap, divide as in C, shift as PTX does; and bools."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.comparisons import COMPARISONS
from tests.kernels.harness import (
    INTEGERS,
    NUMPY,
    SIGNED,
    frozen,
    kept_poison,
    pairs,
    poison,
    random,
    same,
    values,
)  # fmt: skip
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])
SIZE, BLOCK, ROOM = 1019, 1024, 1024


@weft.jit
def binary(out, x, y, n, ops: gl.constexpr, room: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    inside = at < n
    a, b = gl.load(x + at, mask=inside, other=1), gl.load(y + at, mask=inside, other=1)
    for i in gl.static_range(len(ops)):
        gl.store(out + i * room + at, ops[i](a, b), mask=inside)


@weft.jit
def both(a, b):
    return a & b


@weft.jit
def either(a, b):
    return a | b


@weft.jit
def one_of(a, b):
    return a ^ b


@weft.jit
def neither(a, b):
    return ~(a | b)


@weft.jit
def minus(a, b):
    return -a


@weft.jit
def magnitude(a, b):
    return abs(a)


@weft.jit
def clamped(a, b):
    return gl.clamp(a, 2, 100)


@weft.jit
def left(a, b):
    return a << b


@weft.jit
def right(a, b):
    return a >> b


def together(run, ops, kind, x, y, **options):
    out = poison(len(ops) * ROOM, kind)
    run(binary, 1, out, x, y, x.size, ops, ROOM, BLOCK, LINE, **options)
    rows = out.reshape(len(ops), ROOM)
    for row in rows:
        kept_poison(row, x.size)
    return rows[:, : x.size]


def wrapped(numbers, kind):
    """Python integers in a type, by their low bits."""
    size = np.dtype(kind).itemsize
    return np.array([n & ((1 << 8 * size) - 1) for n in numbers], f"u{size}").view(kind)


def each(function, x, y):
    return wrapped([function(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], x.dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_arithmetic_wraps(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    ops = (gl.add, gl.sub, gl.mul, both, either, one_of, neither, gl.minimum, gl.maximum, minus, magnitude, clamped)
    found = together(run, ops, NUMPY[dtype], x, y)
    functions = (
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b,
        lambda a, b: ~(a | b), min, max, lambda a, b: -a, lambda a, b: abs(a), lambda a, b: min(max(a, 2), 100),
    )  # fmt: skip
    for row, function in zip(found, functions, strict=True):
        same(row, each(function, x, y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_comparisons(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    found = together(run, COMPARISONS, np.bool_, x, y)
    functions = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
    for row, function in zip(found, functions, strict=True):
        same(row, function(x, y), function.__name__)


def truncated(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_division_truncates(run, rng, dtype):
    x, y = map(np.array, pairs(rng, NUMPY[dtype], SIZE))
    y[y == 0] = 3
    # The one quotient that has no value.
    if x.dtype.kind == "i":
        x[(x == np.iinfo(x.dtype).min) & (y == np.array(-1, y.dtype))] = 5
    x, y = frozen(x), frozen(y)
    quotient, rest = together(run, (gl.floordiv, gl.mod), NUMPY[dtype], x, y)
    same(quotient, each(truncated, x, y))
    same(rest, each(lambda a, b: a - b * truncated(a, b), x, y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_clamp_their_amount(run, rng, dtype):
    width = dtype.bits
    x = values(rng, NUMPY[dtype], SIZE)
    amounts = [0, 1, 2, width // 2, width - 1, width, width + 1, 2 * width, 100]
    y = frozen(np.array([amounts[i % len(amounts)] for i in range(SIZE)], NUMPY[dtype]))
    found = together(run, (left, right), NUMPY[dtype], x, y)
    for row, function in zip(found, (lambda a, b: a << b, lambda a, b: a >> b), strict=True):
        same(row, each(function, x, y))


@pytest.mark.parametrize("dtype", SIGNED, ids=str)
def test_negative_shift_amounts_are_large_ones(run, rng, dtype):
    x, y = values(rng, NUMPY[dtype], 256), frozen(-1 - rng.integers(0, 100, 256).astype(NUMPY[dtype]))
    found = together(run, (left, right), NUMPY[dtype], x, y, compiles=False)
    same(found[0], np.zeros_like(x))
    same(found[1], np.where(x < 0, -1, 0).astype(x.dtype))


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.bits >= 32], ids=str)
def test_high_halves_of_products(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], SIZE)
    (found,) = together(run, (gl.umulhi,), NUMPY[dtype], x, y)
    mask = (1 << dtype.bits) - 1
    same(found, each(lambda a, b: (a & mask) * (b & mask) >> dtype.bits, x, y))


@weft.jit
def counted(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    gl.store(out + at, gl.popcount(gl.load(x + at, mask=at < n)), mask=at < n)
    gl.store(out + n, gl.popcount(gl.load(x)))
    gl.store(out + n + 1, gl.popcount(-1) + gl.popcount(gl.program_id(0) & 7))


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.bits >= 32], ids=str)
def test_set_bits(run, rng, dtype):
    x = values(rng, NUMPY[dtype], SIZE)
    out = np.empty(SIZE + 2, np.int32)
    run(counted, 1, out, x, SIZE, BLOCK, LINE)
    bits = [(int(each) & (1 << dtype.bits) - 1).bit_count() for each in x]
    same(out, np.array([*bits, bits[0], 32], np.int32))


# Divisors known at compile time

DIVISORS = (1, 2, 3, 7, 8, 10, 64, 100, 255, 641, 65537, 2**31 - 1, -1, -3, -8)


@weft.jit
def by_constants(out, x, n, divisors: gl.constexpr, room: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    a = gl.load(x + at, mask=at < n)
    for i in gl.static_range(len(divisors)):
        gl.store(out + 2 * i * room + at, a // divisors[i], mask=at < n)
        gl.store(out + (2 * i + 1) * room + at, a % divisors[i], mask=at < n)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_division_by_constants(run, rng, dtype):
    divisors = [d for d in DIVISORS if dtype.min_value <= d <= dtype.max_value]
    x = np.array(values(rng, NUMPY[dtype], SIZE))
    if dtype.is_int_signed():
        x[x == dtype.min_value] += 1
    x, out = frozen(x), poison(2 * ROOM * len(divisors), NUMPY[dtype])
    run(by_constants, 1, out, x, SIZE, divisors, ROOM, BLOCK, LINE)
    for (quotient, rest), d in zip(out.reshape(len(divisors), 2, ROOM), divisors, strict=True):
        same(quotient[:SIZE], each(truncated, x, np.full(SIZE, d, x.dtype)), f"// {d}")
        same(rest[:SIZE], each(lambda a, b: a - b * truncated(a, b), x, np.full(SIZE, d, x.dtype)), f"% {d}")


@weft.jit
def index_by_division(out, n, width, BLOCK: gl.constexpr, divisor: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    row, column = at // divisor, at % divisor
    gl.store(out + row * width + column, row * 1000 + column, mask=at < n)


@pytest.mark.parametrize("divisor", [1, 3, 8, 12, 32, 100])
@pytest.mark.parametrize("size", [1, 4])
def test_positions_divided(run, divisor, size):
    out, n, width = poison((4096 // divisor + 1, divisor + 1), np.int32), 4001, divisor + 1
    run(
        index_by_division, 4, out, n, width, 1024, divisor, gl.BlockedLayout([size], [32], [4], [0]), compiles=size == 4
    )
    want = poison(out.shape, np.int32)
    for i in range(n):
        want[i // divisor, i % divisor] = i // divisor * 1000 + i % divisor
    same(out, want)


# Bools and conditions


@weft.jit
def logic(out, x, y, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    inside = at < n
    a, b = gl.load(x + at, mask=inside), gl.load(y + at, mask=inside)
    gl.store(out + at, gl.logical_and(a, b), mask=inside)
    gl.store(out + BLOCK + at, gl.logical_or(a, b), mask=inside)
    gl.store(out + 2 * BLOCK + at, gl.logical_not(a), mask=inside)
    gl.store(out + 3 * BLOCK + at, a.logical_and(b).logical_or(a > b), mask=inside)
    gl.store(out + 4 * BLOCK + at, gl.where(a, b, a) != 0, mask=inside)


@pytest.mark.parametrize("dtype", [gl.int1, gl.int8, gl.uint32, gl.int64, gl.float16, gl.float32], ids=str)
def test_truth(run, rng, dtype):
    x, y = pairs(rng, NUMPY[dtype], 509)
    out = poison((5, 512), np.bool_)
    run(logic, 1, out, x, y, 509, 512, LINE)
    wide = (lambda v: v.astype(np.float64)) if dtype.is_floating() else (lambda v: v)
    a, b = wide(x) != 0, wide(y) != 0
    for row, want in zip(out, (a & b, a | b, ~a, (a & b) | (wide(x) > wide(y)), np.where(a, b, a)), strict=True):
        same(row[:509], want)


@weft.jit
def count_bools(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    inside = at < n
    flag = gl.load(x + at, mask=inside, other=False)
    gl.store(out + at, flag + flag, mask=inside)
    gl.store(out + BLOCK + at, (flag ^ True) * 3 - flag, mask=inside)
    gl.store(out + 2 * BLOCK + at, -flag + (~flag).to(gl.int32) * 10, mask=inside)


def test_bools_compute_as_integers(run, rng):
    x, out = random(rng, np.bool_, 300), poison((3, 512), np.int32)
    run(count_bools, 1, out, x, 300, 512, LINE)
    a = x.astype(np.int32)
    for row, want in zip(out, (2 * a, (1 - a) * 3 - a, -a + (1 - a) * 10), strict=True):
        same(row[:300], want)
        kept_poison(row, 300)


@weft.jit
def scalars(out, x, y, ops: gl.constexpr):
    for i in gl.static_range(len(ops)):
        gl.store(out + i, ops[i](x, y))


@pytest.mark.parametrize(
    ("x", "y"), [(7, 3), (-7, 3), (2**31 - 1, 5), (-(2**31), 2), (2**31 + 5, 3), (2**63 + 9, 2**63 + 4)]
)
def test_scalar_arguments_have_the_width_they_need(run, x, y):
    ops = (gl.add, gl.sub, gl.mul, gl.floordiv, gl.mod, gl.minimum, gl.maximum, gl.cdiv)
    kind = np.uint64 if max(x, y) >= 2**63 else np.int64 if not -(2**31) <= x < 2**31 else np.int32
    out = poison(len(ops), kind)
    run(scalars, 1, out, x, y, ops, num_warps=1)
    want = [x + y, x - y, x * y, truncated(x, y), x - y * truncated(x, y), min(x, y), max(x, y)]
    want.append(truncated(int(wrapped([x + y - 1], kind)[0]), y))
    same(out, wrapped(want, kind))


@weft.jit
def at_compile_time(out, n: gl.constexpr, d: gl.constexpr):
    gl.store(out, n // d)
    gl.store(out + 1, n % d)
    gl.store(out + 2, gl.cdiv(n, d))
    gl.store(out + 3, gl.next_power_of_2(n))
    gl.store(out + 4, n**2 + (n << 2) - (n >> 1) + (n & d) + (n | d) + (n ^ d) + ~n)


def test_constants_compute_as_python_does(run):
    out = poison(5, np.int32)
    run(at_compile_time, 1, out, -7, 4, num_warps=1)
    n, d = -7, 4
    powers = n**2 + (n << 2) - (n >> 1) + (n & d) + (n | d) + (n ^ d) + ~n
    same(out, np.array([n // d, n % d, -(-n // d), 1, powers], np.int32))
