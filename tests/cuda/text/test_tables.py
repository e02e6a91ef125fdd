"""A table's expression has the table's entries."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft.cuda.text.tables import expression, is_wide, parenthesised


class Int:
    """A number of C: an `int` unless it is `wide`, which must not overflow."""

    def __init__(self, value: int, wide: bool = False) -> None:
        assert wide or -(2**31) <= value < 2**31, "overflow"
        self.value, self.wide = value, wide

    def _with(self, other: Int, result: int) -> Int:
        return Int(result, self.wide or other.wide)

    def __add__(self, other: Int) -> Int:
        return self._with(other, self.value + other.value)

    def __mul__(self, other: Int) -> Int:
        return self._with(other, self.value * other.value)

    def __floordiv__(self, other: Int) -> Int:
        return self._with(other, self.value // other.value)

    def __mod__(self, other: Int) -> Int:
        return self._with(other, self.value % other.value)

    def __neg__(self) -> Int:
        return Int(-self.value, self.wide)


def value(text: str, r: int) -> int:
    spelled = re.sub(r"(\d+)(ll)?", lambda m: f"Int({m[1]}, {bool(m[2])})", text).replace("/", "//")
    return eval(spelled, {"r": Int(r), "Int": Int}).value  # noqa: S307  C and Python agree on these


@st.composite
def sums_of_bits(draw):
    first = draw(st.integers(-100, 100))
    weights = draw(st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, -1, 3, 64, 2**29, -(2**30), 2**33]), max_size=6))
    table = [first]
    for weight in weights:
        table += [entry + weight for entry in table]
    return tuple(table[: draw(st.integers(1, len(table)))])


@settings(deadline=None, max_examples=examples(300))
@given(table=sums_of_bits())
def test_sums_of_bits(table):
    text = expression(table, "r")
    if text is not None:
        assert [value(text, r) for r in range(len(table))] == list(table)


@settings(deadline=None, max_examples=examples(300))
@given(table=st.lists(st.integers(0, 20), min_size=1, max_size=9).map(tuple))
def test_any_table(table):
    text = expression(table, "r")
    if text is not None:
        assert [value(text, r) for r in range(len(table))] == list(table)


def test_they_read_well():
    assert expression(tuple(range(16)), "r") == "r"
    assert expression((7, 7, 7), "r") == "7"
    assert expression((2, 6, 10, 14), "r") == "4 * r + 2"
    assert expression((3, 2, 1, 0), "r") == "-r + 3"
    assert expression((0, 0, 1, 1), "r") == "r / 2"
    assert expression((0, 1, 0, 1), "r") == "r % 2"
    assert expression((0, 1, 8, 9, 16, 17, 24, 25), "r") == "8 * (r / 2) + r % 2"
    assert expression((0, 1, 3, 2), "r") is None
    assert expression((0, 4), "4 * r + k") == "4 * (4 * r + k)"


def test_products_and_sums_that_an_int_does_not_hold():
    assert expression((0, 2**30, 2**31, 3 * 2**30), "r") == "1073741824ll * r"
    assert expression((-(2**30), 2**30), "r") == "2147483648ll * r + -1073741824ll"
    assert not is_wide((0, 2**31 - 1)) and is_wide((0, 2**31)) and is_wide((-(2**30), 2**30))


def test_factors():
    assert parenthesised("x") == "x"
    assert parenthesised("x[3]") == "x[3]"
    assert parenthesised("a + b") == "(a + b)"
    assert parenthesised("-1") == "(-1)"
