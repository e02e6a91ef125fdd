"""Compile-time constants, aggregates and trees."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.effort import examples
from tests.language.support import building, jit, mistake
from weft import language as gl
from weft.errors import UserError
from weft.language.aggregate import fields_of, is_aggregate
from weft.language.marks import is_builtin, is_constexpr_function, jit_of, unwrap
from weft.language.tree import flatten, unflatten


class Pair(NamedTuple):
    left: Any
    right: Any


@gl.aggregate
class Accumulator:
    value: gl.tensor
    scale: gl.constexpr


@gl.aggregate
class Loop:
    mma: Accumulator
    bounds: tuple

    def __init__(self, value, low, high):
        self.mma = Accumulator(value, gl.constexpr(2))
        self.bounds = (low, high)


@gl.aggregate
class Inlined:
    value: gl.tensor

    @jit
    def __init__(self, value):
        self.value = value + 1


@gl.aggregate
class Computed:
    value: gl.tensor
    twice: gl.constexpr

    @gl.constexpr_function
    def __init__(self, value, n):
        self.value = value
        self.twice = n * 2


def test_fields(kernel):
    x = kernel.tile()
    made = Accumulator(x, scale=gl.constexpr(3))
    assert made.value is x and made.scale == 3
    assert is_aggregate(made) and not is_aggregate(Accumulator)
    assert fields_of(Accumulator) == {"value": gl.tensor, "scale": gl.constexpr}
    assert repr(made).startswith("Accumulator(value=")


def test_a_number_in_a_tensor_field_becomes_a_scalar(kernel):
    assert Accumulator(1, 2).value.dtype == gl.int32


def test_init_functions(kernel):
    x = kernel.tile()
    assert Loop(x, 0, 8).mma.scale == 2
    assert Inlined(x).value is not x
    assert kernel.names[-1] == "arith.add"
    assert Computed(x, gl.constexpr(4)).twice == 8


def test_subclasses_have_the_fields_of_their_bases(kernel):
    @gl.aggregate
    class Named(Accumulator):
        name: gl.constexpr

        def __init__(self, value):
            super().__init__(value, 1)
            self.name = "n"

    assert list(fields_of(Named)) == ["value", "scale", "name"]
    assert Named(kernel.tile()).name == "n"


def test_mistakes(kernel):
    x = kernel.tile()
    with mistake("language-field-arguments") as found:
        Accumulator(x)
    assert "value, scale" in found.text
    with mistake("language-field-type"):
        Accumulator("x", 1)
    with mistake("language-field-type"):
        Accumulator(x, x)
    with mistake("language-field-type"):
        Loop.__weft_aggregate__["mma"] = Accumulator
        broken = object.__new__(Loop)
        broken.mma, broken.bounds = x, ()
        from weft.language.aggregate import seal

        seal(broken)

    # An aggregate is none of the constants that Python shows.
    with mistake("language-field-type") as found:
        Accumulator(Accumulator(x, 1), 1)
    assert "an aggregate (Accumulator)" in found.text

    with mistake("language-field-missing") as found:

        @gl.aggregate
        class Partial:
            value: gl.tensor

            def __init__(self):
                pass

        Partial()
    assert "'value'" in found.text

    with mistake("language-aggregate-fields"):

        @gl.aggregate
        class Empty:
            pass


def test_flatten_names_each_leaf(kernel):
    x = kernel.tile()
    leaves, structure = flatten((Loop(x, 0, x), [Pair(1, "a")], ()))
    assert leaves == [x, 2, 0, x, 1, "a"] or len(leaves) == 6
    assert list(structure.paths("state")) == [
        "state[0].mma.value",
        "state[0].mma.scale",
        "state[0].bounds[0]",
        "state[0].bounds[1]",
        "state[1][0].left",
        "state[1][0].right",
    ]
    assert structure.count == 6
    rebuilt = unflatten(structure, list("abcdef"))
    assert isinstance(rebuilt[0], Loop) and isinstance(rebuilt[0].mma, Accumulator)
    assert rebuilt[0].mma.scale == "b"
    assert rebuilt[1] == [Pair("e", "f")] and rebuilt[2] == ()
    assert flatten(rebuilt)[1] == structure
    assert hash(flatten(rebuilt)[1]) == hash(structure)


TREES = st.recursive(
    st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.builds(Pair, inner, inner),
)


@settings(deadline=None, max_examples=examples(60))
@given(TREES)
def test_unflatten_undoes_flatten(value):
    leaves, structure = flatten(value)
    assert unflatten(structure, leaves) == value
    assert len(leaves) == structure.count == len(list(structure.paths("v")))
    assert len(set(structure.paths("v"))) == structure.count


def test_too_many_leaves():
    with pytest.raises(ValueError, match="3 leaves for a structure of 2"):
        unflatten(flatten((1, 2))[1], [1, 2, 3])


def test_constexpr_on_the_host():
    n = gl.constexpr(gl.constexpr(6))
    assert n.value == 6
    assert (n + 1).value == 7 and (1 - n).value == -5 and (n // 4).value == 1
    assert bool(n > 5) and n != 5 and (-n).value == -6
    assert range(n) == range(6) and int(n) == 6 and float(n) == 6.0
    assert gl.constexpr([1, 2])[n - 5] == 2
    assert gl.constexpr(len)((1, 2)) == 2
    assert {n: 1}[gl.constexpr(6)] == 1
    assert unwrap([n, (n, "a")]) == [6, (6, "a")]
    assert repr(n) == "constexpr[6]"


def test_constexpr_functions():
    @gl.constexpr_function
    def double(n):
        """Twice."""
        return n * 2

    assert double(gl.constexpr(4)) == 8
    assert is_constexpr_function(double) and double.__doc__ == "Twice."
    assert is_builtin(gl.load) and is_builtin(gl.cdiv) and not is_builtin(double)
    assert jit_of(partial(double)) is None and jit_of(jit(double)) is double


MODULE = """
from __future__ import annotations
import weft
import weft.language as gl

@gl.aggregate
class Inner:
    x: gl.tensor

@gl.aggregate
class Outer:
    inner: Inner
"""


def test_annotations_mean_what_they_do_in_the_class_s_own_module(monkeypatch):
    def load():
        module = ModuleType("loaded_twice")
        monkeypatch.setitem(sys.modules, "loaded_twice", module)
        exec(MODULE, vars(module))  # noqa: S102 a module of two classes
        return module

    first, second = load(), load()
    assert fields_of(first.Outer) == {"inner": first.Inner}
    assert fields_of(second.Outer) == {"inner": second.Inner}


def test_replaced_fields():
    with building() as kernel:
        x, y = kernel.tile(), kernel.tile(name="y")
        first = Accumulator(x, 3)
        second = gl.aggregate_replace(first, value=y)
        assert (second.value, second.scale, first.value) == (y, 3, x)
        assert type(gl.aggregate_replace(Loop(x, 1, 2), bounds=(3, 4))) is Loop
        with mistake("language-field-arguments") as found:
            gl.aggregate_replace(first, factor=2)
        assert "no field 'factor'" in found.text and "value, scale" in found.text
        with mistake("language-field-type"):
            gl.aggregate_replace(first, scale=x)
        with mistake("language-aggregate-needed") as found:
            gl.aggregate_replace(x, value=y)
        assert "but got a float32 tile [128]" in found.text


@weft.jit
def zeroed(out, x, n, layout: gl.constexpr):
    at = gl.arange(0, 128, layout)
    gl.store(out + at, gl.expect_zero(gl.load(x + at), at >= n))


def test_expected_zeros():
    layout = gl.BlockedLayout([1], [32], [4], [0])
    x = np.where(np.arange(128) < 40, 1.5, 0).astype(np.float32)
    out = np.zeros(128, np.float32)
    zeroed[1](out, x, 40, layout)
    np.testing.assert_array_equal(out, x)
    with pytest.raises(UserError, match="x is not 0 where mask is true"):
        zeroed[1](out, x, 39, layout)
