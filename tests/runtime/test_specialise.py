"""What of an argument a kernel is compiled for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.runtime.fake_driver import FakeArray
from weft.errors import LaunchError
from weft.runtime.specialise import Constexpr, MockTensor, Pointer, Scalar, freeze, parse_type, specialise


def kind(value, **facts):
    return specialise("kernel", "x", value, **facts)


def test_pointers():
    assert kind(FakeArray(32)) == Pointer("float32", aligned=True)
    assert kind(FakeArray(36)) == Pointer("float32", aligned=False)
    assert kind(FakeArray(32), facts=False) == Pointer("float32", aligned=False)
    assert kind(MockTensor(np.int8)) == Pointer("int8", aligned=True)
    assert kind(MockTensor("bf16", aligned=False)) == Pointer("bfloat16", aligned=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, Constexpr(1)),
        (0, Scalar("int32", True)),
        (17, Scalar("int32")),
        (-16, Scalar("int32", True)),
        (2**31 - 1, Scalar("int32")),
        (2**31, Scalar("int64", True)),
        (-(2**31), Scalar("int32", True)),
        (2**63 + 1, Scalar("uint64")),
        (np.int64(48), Scalar("int32", True)),
        (np.uint8(1), Constexpr(1)),
        (1.0, Scalar("float32")),
        (np.float32(2), Scalar("float32")),
        (np.float64(2), Scalar("float32")),
        (True, Scalar("bool")),
        (np.bool_(False), Scalar("bool")),
        (None, Constexpr(None)),
    ],
)
def test_scalars(value, expected):
    assert kind(value) == expected


def test_facts_left_out():
    assert kind(1, facts=False) == Scalar("int32")
    assert kind(64, facts=False) == Scalar("int32")


@given(st.integers(-(2**63), 2**64 - 1))
@settings(deadline=None, max_examples=examples(200))
def test_the_width_holds_the_value(value):
    found = kind(value)
    if value == 1:
        assert found == Constexpr(1)
        return
    assert np.array(value, dtype=found.dtype) == value
    assert found.divisible_by_16 == (value % 16 == 0)


def test_constexprs_differ_by_type():
    assert Constexpr(1) != Constexpr(True)
    assert Constexpr((1, 2)) == Constexpr((1, 2))
    assert Constexpr((1,)) != Constexpr((True,))
    assert Constexpr([1]) != Constexpr((1,))
    assert Constexpr(float("nan")) == Constexpr(float("nan"))
    assert len({Constexpr(0.0), Constexpr(-0.0), Constexpr(0)}) == 3


def test_freeze_refuses_what_changes():
    with pytest.raises(TypeError, match="unhashable"):
        freeze({"a": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*fp32:16", Pointer("float32", True)),
        ("*bf16", Pointer("bfloat16")),
        ("*fp8e4nv:16", Pointer("float8_e4m3fn", True)),
        ("i32:16", Scalar("int32", True)),
        ("u64", Scalar("uint64")),
        ("i32:1", Constexpr(1)),
        ("i1", Scalar("bool")),
    ],
)
def test_type_texts(text, expected):
    assert parse_type(text) == expected
    assert kind(text) == expected


@pytest.mark.parametrize("text", ["fp31", "**fp32", "*fp32:8", "", "x y"])
def test_type_texts_that_name_nothing(text):
    with pytest.raises(LaunchError) as caught:
        parse_type(text)
    assert caught.value.code == "launch-type-text"
