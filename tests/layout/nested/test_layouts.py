"""Nested layouts and tuples: every way to name an element against explicit counting, and the values printed in textbooks."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.nested.strategies import coordinates, layouts, profiles, tables
from weft.errors import LayoutError
from weft.layout import UNKNOWN, Layout, crd2idx, idx2crd, make_layout
from weft.layout.nested import int_tuple

laws = settings(deadline=None, max_examples=examples(100))

TILED = Layout(((2, 2), (2, 2)), ((2, 8), (1, 4)))


class Counted:
    """A run-time scalar: a number that notes the operations applied to it."""

    def __init__(self, value, log):
        self.value, self.log = value, log

    def _apply(self, name, other):
        other = other.value if isinstance(other, Counted) else other
        self.log.append(name)
        return Counted({"+": self.value + other, "*": self.value * other}.get(name), self.log)

    def __add__(self, other):
        return self._apply("+", other)

    def __mul__(self, other):
        return self._apply("*", other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other):
        self.log.append("//")
        return Counted(self.value // other, self.log)

    def __mod__(self, other):
        self.log.append("%")
        return Counted(self.value % other, self.log)


# Naming elements


@laws
@given(layouts())
def test_every_name_of_an_element_leads_to_its_offset(layout):
    expected = tables(layout)
    assert layout.offsets() == expected
    for index, coordinate in enumerate(coordinates(layout.shape)):
        assert idx2crd(index, layout.shape) == coordinate
        assert idx2crd(index, layout.shape, Layout(layout.shape).stride) == coordinate
        assert crd2idx(coordinate, layout.shape) == index
        assert crd2idx(coordinate, layout.shape, layout.stride) == expected[index]
        assert layout(coordinate) == layout(*int_tuple.flatten(coordinate)) == expected[index]
        per_mode = [crd2idx(c, mode.shape) for c, mode in zip(as_tuple(coordinate), layout, strict=True)]
        assert layout(*per_mode) == expected[index]


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


@laws
@given(layouts())
def test_arrays_are_run_time_scalars(layout):
    found = layout(np.arange(layout.size()))
    np.testing.assert_array_equal(np.broadcast_to(found, layout.size()), tables(layout))


@laws
@given(layouts(strides=st.integers(-20, 20)))
def test_cosize_spans_the_offsets(layout):
    offsets = tables(layout)
    assert layout.cosize() == max(offsets) - min(offsets) + 1
    assert layout.size() == len(offsets)


@laws
@given(profiles(), st.data())
def test_row_and_column_major_are_those_of_arrays(profile, data):
    count = len(int_tuple.flatten(profile))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    shape = int_tuple.unflatten(sizes, profile)
    array = np.arange(np.prod(sizes)).reshape(sizes)
    row, column = Layout.row_major(*shape), Layout.col_major(*shape)
    for numbers in np.ndindex(*sizes):
        assert row(*numbers) == array[numbers]
        assert column(*numbers) == np.arange(array.size).reshape(sizes, order="F")[numbers]


def test_a_coordinate_costs_no_operation_that_is_plain_in_advance():
    log = []
    i, j = Counted(3, log), Counted(5, log)
    assert Layout.row_major(16, 1)(i, 0).value == 3
    assert log == []
    assert Layout.row_major(16, 8)(i, j).value == 29
    assert log == ["*", "+"]
    log.clear()
    assert Layout.col_major(16, 8)(i).value == 3
    assert log == ["%", "//", "*", "+"]
    log.clear()
    assert Layout((1, 8), (0, 1))(i).value == 3
    assert log == []


# Values


def test_tile_major_layout():
    assert TILED((1, 0), (0, 1)) == TILED(1, 0, 0, 1) == TILED(1, 2) == 6
    assert str(TILED) == "(((2, 2), (2, 2)):((2, 8), (1, 4)))"
    assert (TILED.rank(), TILED.flat_rank, TILED.depth(), TILED.size(), TILED.cosize()) == (2, 4, 2, 16, 16)
    assert (TILED.flat_shape, TILED.flat_stride) == ((2, 2, 2, 2), (2, 8, 1, 4))


def test_column_major_is_the_default():
    assert Layout((2, 4)) == Layout.col_major(2, 4) == Layout((2, 4), (1, 2))
    assert Layout((2, 4))(0, 1) == 2
    assert Layout(((2, 2), 3)).stride == ((1, 2), 4)
    assert Layout.row_major(((2, 2), 3)) == Layout.row_major((2, 2), 3)
    assert str(Layout.row_major(4)) == "(4:1)"
    assert str(Layout([4])) == "((4,):(1,))"


def test_modes():
    layout = Layout(((2, 2), 3, 4))
    assert layout[0] == Layout((2, 2), (1, 2))
    assert layout[-1] == Layout(4, 12)
    assert layout[1:] == Layout((3, 4), (4, 12))
    assert [*layout] == [layout[0], layout[1], layout[2]]
    assert make_layout(*layout) == layout
    assert Layout(4)[0] == Layout(4)
    assert len(layout) == 3


def test_a_scalar_and_an_empty_layout():
    assert (Layout(()).size(), Layout(()).cosize(), Layout(())(), Layout(()).rank()) == (1, 1, 0, 0)
    assert (Layout((0, 4)).size(), Layout((0, 4)).cosize(), Layout((0, 4)).offsets()) == (0, 0, [])


def test_layouts_are_values():
    twin = Layout(((2, 2), (2, 2)), ((2, 8), (1, 4)))
    assert twin == TILED
    assert hash(twin) == hash(TILED)
    assert Layout(4) != Layout((4,))
    assert Layout(4) != "layout"
    assert pickle.loads(pickle.dumps(TILED)) == copy.deepcopy(TILED) == TILED  # noqa: S301
    assert Layout(np.int64(4)).shape.__class__ is int
    with pytest.raises(AttributeError, match="cannot be changed"):
        TILED.shape = (4, 4)


# Sizes known at run time only


def test_unknown_numbers():
    layout = Layout.row_major(UNKNOWN, 16)
    assert str(layout) == "((?, 16):(16, 1))"
    assert Layout.row_major(4, UNKNOWN) == Layout((4, UNKNOWN), (UNKNOWN, 1))
    assert not layout.all_dims_known
    assert Layout((4, 16)).all_dims_known
    assert layout.size() is UNKNOWN
    assert layout.cosize() is UNKNOWN
    assert layout(2, 3) == 35
    assert Layout((4, 4), (UNKNOWN, 1))(1, 2) is UNKNOWN
    assert Layout((4, 4), (UNKNOWN, 1))(0, 2) == 2
    assert hash(layout) == hash(Layout.row_major(UNKNOWN, 16))
    assert layout[1] == Layout(16, 1)


def test_unknown_is_one_object():
    assert repr(UNKNOWN) == "UNKNOWN"
    assert pickle.loads(pickle.dumps(UNKNOWN)) is copy.deepcopy(UNKNOWN) is UNKNOWN  # noqa: S301
    assert all(
        value is UNKNOWN
        for value in (UNKNOWN + 1, 1 - UNKNOWN, 2 * UNKNOWN, UNKNOWN // 2, 7 % UNKNOWN, -UNKNOWN, abs(UNKNOWN))
    )
    assert UNKNOWN == UNKNOWN
    assert UNKNOWN != 1


# Tuples


@laws
@given(profiles(), st.data())
def test_tuples_nest_and_flatten(profile, data):
    count = len(int_tuple.flatten(profile))
    numbers = tuple(data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count)))
    value = int_tuple.unflatten(numbers, profile)
    assert int_tuple.flatten(value) == numbers
    assert int_tuple.congruent(value, profile)
    assert int_tuple.weakly_congruent(0, value)
    assert int_tuple.weakly_congruent((0,) * len(value), value)
    assert int_tuple.product(value) == int_tuple.size(value) == np.prod(numbers)
    assert int_tuple.flatten(int_tuple.prefix_product(value)) == tuple(np.cumprod((1, *numbers))[:-1])
    assert int_tuple.flatten(int_tuple.suffix_product(value)) == tuple(np.cumprod((1, *numbers[::-1]))[:-1][::-1])
    assert int_tuple.inner_product(value, value) == sum(n * n for n in numbers)
    assert int_tuple.product_each(value) == tuple(map(int_tuple.product, value))
    assert int_tuple.rank(value) == len(value)
    assert int_tuple.transform(lambda a, b: a - b, value, value) == int_tuple.transform(lambda a: 0, value)
    assert int_tuple.show(value) == repr(value)


def test_weak_congruence_lets_a_number_stand_for_a_mode():
    assert int_tuple.weakly_congruent((1, 2), ((4, 5), 6))
    assert not int_tuple.weakly_congruent(((1, 2), 2), (4, 6))
    assert not int_tuple.congruent((1, 2), ((4, 5), 6))
    assert int_tuple.depth(((2, 2), 3)) == 2
    assert [int_tuple.ceil_div(a, 4) for a in (1, 4, 5)] == [1, 1, 2]


# Mistakes


@pytest.mark.parametrize(
    ("coordinate", "texts"),
    [
        ((1,) * 3, ["(1, 1, 1)", "((2, 2), (2, 2)) of rank 2, 4 when flattened"]),
        (((1, 1, 1), 0), ["((1, 1, 1), 0)"]),
        ((0, (1, (1, 1))), ["(0, (1, (1, 1)))"]),
        ((1,) * 5, ["(1, 1, 1, 1, 1)"]),
    ],
)
def test_a_coordinate_of_another_form_names_both_ranks(coordinate, texts):
    with pytest.raises(LayoutError) as caught:
        TILED(*coordinate)
    assert caught.value.code == "strided-coordinate"
    assert all(text in str(caught.value) for text in texts)


def test_the_functions_of_coordinates_check_them_too():
    with pytest.raises(LayoutError, match=r"\(1, 2, 3\) does not fit shape \(4, 4\)"):
        crd2idx((1, 2, 3), (4, 4))
    with pytest.raises(LayoutError, match=r"\(1, 2\) does not fit shape 4"):
        idx2crd((1, 2), 4)


def test_coordinates_of_offsets():
    layout = Layout.row_major((2, 3), 4)
    for index in range(layout.size()):
        coordinate = idx2crd(index, layout.shape)
        assert idx2crd(layout(index), layout.shape, layout.stride) == coordinate
    assert idx2crd(7, (4, 5), (1, 0)) == (3, 0)
    assert idx2crd((7, 6), (4, (2, 2)), (2, (1, 3))) == (3, (0, 0))
