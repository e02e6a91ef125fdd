"""Constants in C are exact: the bits that the text denotes are the bits of the number in its type."""

from __future__ import annotations

import math
import re
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft.cuda.text.spelling import constant, small_float_bits, string
from weft.ir.types import (
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int32,
    int64,
    uint8,
    uint32,
    uint64,
)

NUMPY = {
    float16: np.float16,
    bfloat16: ml_dtypes.bfloat16,
    float8e4nv: ml_dtypes.float8_e4m3fn,
    float8e5: ml_dtypes.float8_e5m2,
}
LARGEST = {float8e4nv: 448.0, float8e5: 57344.0}
# Every number of the small types is within a few binades of these; halfway cases come from the integers.
FLOATS = st.one_of(
    st.floats(allow_nan=False, width=64), st.floats(-1e6, 1e6), st.floats(-1e-3, 1e-3), st.integers(-4096, 4096).map(float),
    st.integers(-(2**12), 2**12).map(lambda i: i / 2**20),
)  # fmt: skip


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
@settings(deadline=None, max_examples=examples(150))
@given(value=FLOATS)
def test_small_floats_round_to_nearest_even(dtype, value):
    limit = LARGEST.get(dtype, math.inf)
    clamped = min(max(value, -limit), limit)
    # From float64 in one step: ml_dtypes goes by way of float32, so float32 must round to odd first.
    with np.errstate(over="ignore"):
        single = np.float32(clamped)
    if math.isfinite(single) and float(single) != clamped:
        towards_zero = single if abs(float(single)) < abs(clamped) else np.nextafter(single, np.float32(0))
        single = (towards_zero.view(np.uint32) | np.uint32(1)).view(np.float32)
    with np.errstate(over="ignore"):
        expected = (np.float16(clamped) if dtype is float16 else NUMPY[dtype](single)).view(f"u{dtype.itemsize}")
    assert small_float_bits(value, dtype) == int(expected)


def test_small_float_specials():
    assert small_float_bits(math.inf, float16) == 0x7C00
    assert small_float_bits(-math.inf, bfloat16) == 0xFF80
    assert small_float_bits(math.inf, float8e4nv) == 0x7E
    assert small_float_bits(math.nan, float16) == 0x7E00
    assert small_float_bits(math.nan, float8e5) == 0x7F
    assert small_float_bits(-0.0, float16) == 0x8000


@settings(deadline=None, max_examples=examples(200))
@given(value=st.floats(width=32))
def test_float32_is_exact(value):
    text = constant(value, float32)
    if match := re.fullmatch(r"__uint_as_float\((0x[0-9a-f]{8})u\)", text):
        assert not math.isfinite(value)
        assert int(match[1], 16) == struct.unpack("<I", struct.pack("<f", value))[0]
        return
    assert re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?f", text)
    assert struct.pack("<f", float(text[:-1])) == struct.pack("<f", value)


@settings(deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_float64_is_exact(value):
    assert float(constant(value, float64)) == value


def test_floats_read_well():
    assert constant(0.1, float32) == "0.1f"
    assert constant(2, float32) == "2.0f"
    assert constant(-1e-20, float32) == "-1e-20f"
    assert constant(1e300, float32) == "__uint_as_float(0x7f800000u)"
    assert constant(1.5, float16) == "f16{0x3e00}"
    assert constant(math.inf, float64) == "__longlong_as_double(0x7ff0000000000000ull)"


def test_integers():
    assert constant(5, int32) == "5"
    assert constant(-(2**31), int32) == "(-2147483647 - 1)"
    assert constant(-(2**63), int64) == "(-9223372036854775807ll - 1)"
    assert constant(2**32 - 1, uint32) == "4294967295u"
    assert constant(-1, uint64) == "18446744073709551615ull"
    assert constant(200, int8) == "(i8)-56"
    assert constant(200, uint8) == "(u8)200"
    assert constant(True, int1) == "true"


def test_strings():
    assert string('say "x\\y"\n\t') == '"say \\"x\\\\y\\"\\n\\t"'
    assert string("\x01é") == '"\\001é"'
