"""Numbers to the bit, against exact arithmetic on fractions and integers."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.effort import examples
from weft.ir import types
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.arithmetic import numpy_dtype

FLOATS = [types.float16, types.bfloat16, types.float32, types.float64]
NARROW = [types.float8e4nv, types.float8e5, types.float16, types.bfloat16]
INTEGERS = [types.int8, types.int16, types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64]
LAW = settings(deadline=None, max_examples=examples(150))


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def bits_arrays(dtype):
    """Arrays of any bit pattern of a float."""
    wide = hnp.arrays(np.dtype(f"u{dtype.itemsize}"), 8)
    return wide.map(lambda a: a.view(numpy_dtype(dtype)))


def exact(x):
    return Fraction(float(x))


def finite(x):
    return math.isfinite(float(x))


def all_finite(dtype):
    """Every finite number of a type of at most 16 bits, in increasing order."""
    values = np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"u{dtype.itemsize}").view(numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        found = values.astype(np.float64)
    return np.unique(found[np.isfinite(found)])


TABLES = {dtype: all_finite(dtype) for dtype in NARROW}


def nearest(value: Fraction, dtype) -> float:
    """Round to nearest even by search, overflowing as IEEE does (clamping for fp8)."""
    if dtype in (types.float32, types.float64):
        return ieee(value, dtype)
    table = TABLES[dtype]
    top = Fraction(table[-1])
    step = top - Fraction(table[-2])
    if abs(value) >= top + step / 2 and dtype.bits > 8:
        return math.inf if value > 0 else -math.inf
    if abs(value) >= top:
        return math.copysign(float(top), value)
    at = int(np.searchsorted(table, float(value)))
    close = [Fraction(x) for x in table[max(at - 2, 0) : at + 2]]
    best = min(abs(value - x) for x in close)
    ties = [x for x in close if abs(value - x) == best]
    if len(ties) == 1:
        return float(ties[0])
    even = [x for x in ties if int(np.float64(float(x)).astype(numpy_dtype(dtype)).view(f"u{dtype.itemsize}")) % 2 == 0]
    return float(even[0])


def ieee(value: Fraction, dtype) -> float:
    try:
        as_double = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if dtype == types.float64:
        return as_double
    # float32: scale to an integer of 24 bits and round that one.
    if value == 0:
        return 0.0
    exponent = max(math.frexp(as_double)[1] - 24, -149) if as_double else -149
    scaled = value / Fraction(2) ** exponent
    rounded = Fraction(round(scaled)) * Fraction(2) ** exponent
    return float(rounded) if abs(rounded) < Fraction(2) ** 128 else math.copysign(math.inf, as_double)


def same(found, expected: float) -> bool:
    return float(found) == expected or (math.isnan(float(found)) and math.isnan(expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_fma_rounds_once(dtype):
    @LAW
    @given(bits_arrays(dtype), bits_arrays(dtype), bits_arrays(dtype))
    def law(x, y, z):
        result = numbers.fma(x, y, z)
        for a, b, c, r in zip(x, y, z, result, strict=True):
            if finite(a) and finite(b) and finite(c):
                assert same(r, nearest(exact(a) * exact(b) + exact(c), dtype)), (a, b, c, r)

    law()


@LAW
@given(
    st.integers(0, 2**24 - 1), st.integers(0, 2**24 - 1), st.integers(-90, 90), st.integers(1, 2**24 - 1), st.booleans()
)
@example(2**23 + 1, 2**23 + 1, 0, 1, False)
def test_fma_where_twice_rounding_fails(m, n, shift, k, minus):
    a = np.float32(m + 2**23) * np.float32(2.0**-23)
    b = np.float32(n + 2**23) * np.float32(2.0**-23)
    c = np.float32(-k if minus else k) * np.float32(2.0 ** (shift - 24))
    found = numbers.fma(a, b, c)
    assert same(found, ieee(exact(a) * exact(b) + exact(c), types.float32))


def test_fma64_cancels_exactly():
    x = np.array([1 + 2.0**-52, 2.0**-600, 2.0**600, 3.0])
    y = np.array([1 - 2.0**-52, 2.0**-470, 2.0**423, np.inf])
    z = np.array([-1.0, 2.0**-1074, -1.0, -np.inf])
    found = numbers.fma(x, y, z)
    for a, b, c, r in zip(x[:3], y[:3], z[:3], found[:3], strict=True):
        assert r == ieee(exact(a) * exact(b) + exact(c), types.float64)
    assert np.isnan(found[3])


@pytest.mark.parametrize("target", NARROW, ids=str)
@pytest.mark.parametrize("source", [types.float16, types.bfloat16, types.float32, types.float64], ids=str)
def test_cast_to_narrow_rounds_once(source, target):
    @settings(deadline=None, max_examples=examples(60))
    @given(bits_arrays(source))
    def law(x):
        result = numbers.cast(x, source, target)
        for a, r in zip(x, result, strict=True):
            if finite(a):
                assert same(r, nearest(exact(a), target)), (a, r)

    law()


@pytest.mark.parametrize("target", [types.bfloat16, types.float16, types.float8e4nv], ids=str)
def test_cast_near_midpoints(target):
    table = TABLES[target]
    middle = (table[:-1] + table[1:]) / 2
    x = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])[
        :: max(len(middle) // 400, 1)
    ]
    found = numbers.cast(x, types.float64, target)
    assert all(same(r, nearest(exact(a), target)) for a, r in zip(x, found, strict=True))


@pytest.mark.parametrize("target", [types.float16, types.bfloat16, types.float32], ids=str)
def test_cast_towards_zero(target):
    x = np.random.default_rng(1).normal(size=200) * 10.0 ** np.arange(-100, 100)
    found = numbers.cast(x, types.float64, target, "rz").astype(np.float64)
    assert np.all(np.abs(found) <= np.abs(x))
    assert np.all(np.isfinite(found))
    away = (np.inf * np.sign(found)).astype(numpy_dtype(target))
    step = np.nextafter(found.astype(numpy_dtype(target)), away)
    inside = (np.abs(x) < float(ml_dtypes.finfo(numpy_dtype(target)).max)) & (found != 0)
    assert np.all(np.abs(step.astype(np.float64))[inside] > np.abs(x)[inside])


def test_fp8_saturates():
    x = np.array([1e9, -1e9, np.inf, -np.inf, 464, np.nan], np.float32)
    e4m3 = numbers.cast(x, types.float32, types.float8e4nv).astype(np.float64)
    np.testing.assert_array_equal(e4m3, [448, -448, 448, -448, 448, np.nan])
    e5m2 = numbers.cast(x, types.float32, types.float8e5).astype(np.float64)
    np.testing.assert_array_equal(e5m2[:4], [57344, -57344, 57344, -57344])


@pytest.mark.parametrize("target", [types.float16, types.bfloat16, types.float32, types.float8e5], ids=str)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4))
@example([2**24 + 2**16 + 1, 2**40 + 2**32 + 1, -(2**63), 2**63 - 1])
@settings(deadline=None, max_examples=examples(60))
def test_integers_round_once(target, values):
    found = numbers.cast(np.array(values, np.int64), types.int64, target)
    assert all(same(r, nearest(Fraction(v), target)) for v, r in zip(values, found, strict=True))


def clamped(x: float, dtype) -> int:
    whole = math.trunc(x) if math.isfinite(x) else (2**70 if x > 0 else -(2**70))
    return min(max(whole, dtype.min_value), dtype.max_value)


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_float_to_integer_truncates_and_clamps(target):
    x = np.array([0.9, -0.9, 1.5, -1.5, 127.9, -128.9, 3e9, -3e9, 1e30, -1e30, np.inf, -np.inf, np.nan, 2.0**63])
    expected = [0 if math.isnan(v) else clamped(v, target) for v in x]
    found = numbers.cast(x, types.float64, target)
    assert found.dtype == numpy_dtype(target)
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic_wraps_and_truncates(dtype):
    size = 1 << dtype.bits

    def wrap(value: int) -> int:
        value %= size
        return value - size if dtype.kind == "int" and value > dtype.max_value else value

    @LAW
    @given(st.integers(dtype.min_value, dtype.max_value), st.integers(dtype.min_value, dtype.max_value))
    @example(dtype.min_value, wrap(-1))
    @example(-7 if dtype.kind == "int" else 7, 2)
    def law(a, b):
        kind = numpy_dtype(dtype)
        x, y = np.array([a], kind), np.array([b], kind)
        assert (x + y)[0] == wrap(a + b)
        assert (x * y)[0] == wrap(a * b)
        if b:
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            assert numbers.divide_integers(x, y)[0] == wrap(quotient)
            assert np.fmod(x, y)[0] == a - quotient * b
        if dtype.bits in (32, 64):
            assert int(numbers.high_product(x, y)[0]) % size == (a % size) * (b % size) >> dtype.bits
        if dtype.code == "i32":
            assert numbers.overflow("add", x, y, x + y)[0] == (wrap(a + b) != a + b)
            assert numbers.overflow("sub", x, y, x - y)[0] == (wrap(a - b) != a - b)
            assert numbers.overflow("mul", x, y, x * y)[0] == (wrap(a * b) != a * b)

    law()


@pytest.mark.parametrize("dtype", [types.float16, types.bfloat16, types.float32, types.float64], ids=str)
def test_min_max_of_zeros_and_nan(dtype):
    kind = numpy_dtype(dtype)
    x = np.array([0.0, -0.0, 0.0, -0.0, np.nan, 1.0, np.nan, -1.0] * 4, np.float32).astype(kind)
    y = np.array([-0.0, 0.0, 0.0, -0.0, 2.0, np.nan, np.nan, -0.0] * 4, np.float32).astype(kind)
    low, high = numbers.minimum(x, y).astype(np.float64)[:8], numbers.maximum(x, y).astype(np.float64)[:8]
    np.testing.assert_array_equal(low, [0, 0, 0, 0, 2, 1, np.nan, -1])
    np.testing.assert_array_equal(np.signbit(low[:4]), [True, True, False, True])
    np.testing.assert_array_equal(np.signbit(high[:4]), [False, False, False, True])
    assert np.isnan(numbers.minimum(x, y, nan=True).astype(np.float64)[[4, 5, 6]]).all()
    # Every width of array takes the same way as a scalar.
    assert [struct.pack("d", float(numbers.minimum(a, b))) for a, b in zip(x[:4], y[:4], strict=True)] == [
        struct.pack("d", v) for v in low[:4]
    ]


def test_clamp():
    x = np.array([np.nan, -3, 0.5, 9], np.float32)
    low, high = np.full(4, -1, np.float32), np.full(4, 1, np.float32)
    np.testing.assert_array_equal(numbers.clamp(x, low, high), [-1, -1, 0.5, 1])
    np.testing.assert_array_equal(numbers.clamp(x, low, high, nan=True), [np.nan, -1, 0.5, 1])


def test_constants():
    assert numbers.constant(-1, types.uint8) == 255
    assert numbers.constant(2**31, types.int32) == -(2**31)
    assert numbers.constant(2**64 - 1, types.uint64) == 2**64 - 1
    assert np.signbit(numbers.constant(-0.0, types.float32))
    assert numbers.constant(1 + 2.0**-8 + 2.0**-40, types.bfloat16) == 1 + 2.0**-7
    assert numbers.constant(True, types.int1).dtype == bool


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "tanh"])
def test_functions(name):
    x = np.array([0.1, 0.5, 1.0, 2.5, 7.0], np.float32)
    reference = {"exp2": lambda v: 2.0**v, "rsqrt": lambda v: 1 / math.sqrt(v)}.get(name) or getattr(math, name)
    expected = np.array([reference(float(v)) for v in x])
    np.testing.assert_allclose(numbers.function(name, x), expected, rtol=6e-8)
    half = numbers.function(name, x.astype(ml_dtypes.bfloat16))
    assert half.dtype == ml_dtypes.bfloat16
