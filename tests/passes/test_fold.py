"""Folding against NumPy, which wraps as a GPU does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.ir.types import DTYPES, bfloat16, float32, int1, int8, int32, int64, uint32, uint64
from weft.ops import arith
from weft.passes.fold import COMPARE, INTEGER, fold

INTEGERS = [dtype for dtype in DTYPES if dtype.is_int() and not dtype.is_bool()]
NUMPY = {dtype: np.dtype(f"{'i' if dtype.is_int_signed() else 'u'}{dtype.itemsize}") for dtype in INTEGERS}


def edges(dtype):
    low, high = dtype.min_value, dtype.max_value
    small = st.integers(-3, 70).map(lambda v: min(max(v, low), high))
    return st.one_of(st.integers(low, high), small, st.sampled_from([low, high]))


@st.composite
def pairs(draw):
    dtype = draw(st.sampled_from(INTEGERS))
    return dtype, draw(edges(dtype)), draw(edges(dtype))


def truncated(a, b):
    """C's quotient from NumPy's, which rounds down."""
    quotient = np.floor_divide(a, b)
    return quotient + np.where((quotient * b != a) & ((a < 0) != (b < 0)), 1, 0).astype(a.dtype)


def shifted(kind, a, b, bits):
    """PTX clamps amounts, which it takes as unsigned, to the width."""
    amount = np.minimum(b.astype(np.uint64) if b >= 0 else np.uint64(bits), np.uint64(bits))
    for _ in range(int(amount)):
        a = np.left_shift(a, a.dtype.type(1)) if kind is arith.shl else np.right_shift(a, a.dtype.type(1))
    return a


REFERENCE = {
    arith.add: np.add, arith.sub: np.subtract, arith.mul: np.multiply, arith.and_: np.bitwise_and, arith.or_: np.bitwise_or,
    arith.xor: np.bitwise_xor, arith.minimum: np.minimum, arith.maximum: np.maximum, arith.div: truncated,
    arith.rem: lambda a, b: a - truncated(a, b) * b,
}  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(pairs())
def test_fold_agrees_with_numpy(case):
    dtype, *numbers = case
    assert REFERENCE.keys() == INTEGER.keys()
    a, b = (np.array(number, NUMPY[dtype]) for number in numbers)
    with np.errstate(all="ignore"):
        for kind, reference in REFERENCE.items():
            found = fold(kind, numbers, dtype, dtype, {})
            if kind in (arith.div, arith.rem) and b == 0:
                assert found is None
            else:
                assert found == int(reference(a, b)), kind
        for kind in (arith.shl, arith.shr):
            assert fold(kind, numbers, dtype, dtype, {}) == int(shifted(kind, a, b, dtype.bits)), kind
        for predicate, compare in COMPARE.items():
            assert fold(arith.cmp, numbers, int1, dtype, {"predicate": predicate}) is bool(compare(a, b))
        for target in INTEGERS:
            assert fold(arith.cast, numbers[:1], target, dtype, {}) == int(a.astype(NUMPY[target]))
        assert fold(arith.cast, numbers[:1], int1, dtype, {}) is bool(a != 0)
        if dtype.is_int_signed():
            assert fold(arith.math, numbers[:1], dtype, dtype, {"fn": "neg"}) == int(np.negative(a))
            assert fold(arith.math, numbers[:1], dtype, dtype, {"fn": "abs"}) == int(np.abs(a))


@settings(deadline=None)
@given(st.sampled_from([int32, int64, uint32, uint64]).flatmap(lambda d: st.tuples(st.just(d), edges(d), edges(d))))
def test_high_products(case):
    dtype, a, b = case
    unsigned = (a % 2**dtype.bits) * (b % 2**dtype.bits) >> dtype.bits
    assert fold(arith.umulhi, [a, b], dtype, dtype, {}) == int(
        np.array(unsigned, f"u{dtype.itemsize}").view(NUMPY[dtype])
    )


@pytest.mark.parametrize(("value", "amount", "left", "right"), [
    (-5, 8, 0, -1), (5, 8, 0, 0), (-5, -1, 0, -1), (5, -128, 0, 0), (-5, 7, -128, -1), (-128, 127, 0, -1),
])  # fmt: skip
def test_shift_amounts_clamp(value, amount, left, right):
    assert fold(arith.shl, [value, amount], int8, int8, {}) == left
    assert fold(arith.shr, [value, amount], int8, int8, {}) == right


def test_bools_and_floats():
    assert fold(arith.xor, [True, True], int1, int1, {}) is False
    assert fold(arith.cast, [True], int32, int1, {}) == 1
    assert fold(arith.add, [1.0, 2.0], float32, float32, {}) is None
    assert fold(arith.cast, [1.5], int32, bfloat16, {}) is None
    assert fold(arith.cmp, [0.5, 0.5], int1, float32, {"predicate": "eq"}) is None
