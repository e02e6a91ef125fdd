"""Promotion: Triton's table as pinned rows, and laws over all pairs of types."""

from __future__ import annotations

import itertools

import pytest

from tests.language.support import mistake
from weft import language as gl
from weft.ir.types import DTYPES
from weft.language.promote import common_dtype, literal_dtype, promote

PAIRS = [
    (gl.int1, gl.int1, gl.int1),
    (gl.int1, gl.int8, gl.int8),
    (gl.int8, gl.int32, gl.int32),
    (gl.int32, gl.uint32, gl.uint32),
    (gl.int64, gl.uint32, gl.int64),
    (gl.int8, gl.uint16, gl.uint16),
    (gl.int64, gl.float16, gl.float16),
    (gl.int32, gl.float32, gl.float32),
    (gl.int32, gl.bfloat16, gl.bfloat16),
    (gl.int32, gl.float8e5, gl.float8e5),
    (gl.float16, gl.float32, gl.float32),
    (gl.float16, gl.bfloat16, gl.float16),
    (gl.bfloat16, gl.float32, gl.float32),
    (gl.bfloat16, gl.float8e4nv, gl.float32),
    (gl.float16, gl.float8e5, gl.float16),
    (gl.float8e4nv, gl.float8e5, gl.float16),
    (gl.float8e5, gl.float8e5, gl.float8e5),
    (gl.float64, gl.float8e5, gl.float64),
]


@pytest.mark.parametrize(("a", "b", "result"), PAIRS, ids=lambda d: d.name)
def test_pairs(a, b, result):
    assert promote(a, b) == promote(b, a) == result


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)), ids=lambda d: d.name)
def test_promotion_is_symmetric_and_never_loses_kind(a, b):
    result = promote(a, b)
    assert result == promote(b, a)
    assert result.is_floating() == (a.is_floating() or b.is_floating())
    assert result == a if a == b else result.bits >= min(a.bits, b.bits)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, gl.int1),
        (0, gl.int32),
        (-(2**31), gl.int32),
        (2**31 - 1, gl.int32),
        (2**31, gl.int64),
        (-(2**63), gl.int64),
        (2**63, gl.uint64),
        (2**64 - 1, gl.uint64),
        (1.5, gl.float32),
        (float("inf"), gl.float32),
        (1e300, gl.float64),
    ],
)
def test_literals_have_types_of_their_own(value, dtype):
    assert literal_dtype(value) == dtype


@pytest.mark.parametrize(
    ("element", "number", "dtype"),
    [
        (gl.float16, 2, gl.float16),
        (gl.float16, 2.5, gl.float16),
        (gl.bfloat16, 1e300, gl.bfloat16),
        (gl.int8, 100, gl.int8),
        (gl.int8, 1.0, gl.float32),
        (gl.uint8, True, gl.uint8),
        (gl.int1, 3, gl.int32),
        (gl.int1, True, gl.int1),
    ],
)
def test_numbers_are_weak(kernel, element, number, dtype):
    x = kernel.tile(element)
    assert common_dtype("+", (x, number)) == common_dtype("+", (number, x)) == dtype


def test_numbers_are_combined_before_they_meet_tiles(kernel):
    x = kernel.tile(gl.int32)
    assert common_dtype("clamp", (1, x, 2.0)) == gl.float32


def test_a_number_beyond_64_bits(kernel):
    with mistake("language-integer-range"):
        gl.to_tensor(2**64)


@pytest.mark.parametrize(("element", "number"), [(gl.int8, 128), (gl.uint32, -1), (gl.int32, 2**31)])
def test_a_number_out_of_range(kernel, element, number):
    with mistake("language-literal-range") as found:
        _ = kernel.tile(element) + number
    assert str(number) in found.text and element.name in found.text


def test_what_is_no_operand(kernel):
    with mistake("language-operand"):
        _ = kernel.tile() + "1"
