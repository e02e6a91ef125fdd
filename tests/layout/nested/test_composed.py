"""Swizzles and the layouts under them, and their conversion to linear layouts and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.nested.strategies import attempt, layouts, tables
from tests.layout.strategies import powers
from weft.layout import (
    ComposedLayout,
    Layout,
    NVMMASharedLayout,
    Swizzle,
    coalesce,
    composition,
    from_linear,
    make_swizzle,
    to_linear,
)

laws = settings(deadline=None, max_examples=examples(80))


@st.composite
def swizzles(draw):
    bits = draw(st.integers(0, 3))
    shift = draw(st.integers(bits, 4)) * draw(st.sampled_from([1, -1]))
    return Swizzle(bits, draw(st.integers(0, 3)), shift)


@laws
@given(swizzles())
def test_a_swizzle_permutes_each_period_and_undoes_itself(swizzle):
    for start in (0, 3 * swizzle.period):
        run = range(start, start + swizzle.period)
        images = [swizzle(offset) for offset in run]
        assert sorted(images) == [*run]
        assert [swizzle(image) for image in images] == [*run]
    assert swizzle(np.arange(64)).tolist() == [swizzle(offset) for offset in range(64)]


def test_swizzles_move_bits_down_or_up():
    assert Swizzle(3, 3, 3)(0b101_110_111) == 0b101_011_111
    assert Swizzle(3, 3, -3)(0b101_110_111) == 0b011_110_111
    assert Swizzle(0, 4, 3)(12345) == 12345
    assert str(Swizzle(3, 4, 3)) == "Swizzle(3, 4, 3)"


@laws
@given(layouts(), swizzles(), st.integers(0, 100))
def test_a_composed_layout_is_the_outer_function_of_the_inner(inner, swizzle, offset):
    layout = ComposedLayout(swizzle, offset, inner)
    found = [layout(index) for index in range(layout.size())]
    assert found == [swizzle(offset + place) for place in tables(inner)]
    assert max(found) < layout.cosize()
    assert (layout.shape, layout.rank(), layout.size()) == (inner.shape, inner.rank(), inner.size())


def test_a_composed_layout_of_layouts():
    layout = ComposedLayout(Layout((4, 4), (4, 1)), 1, Layout(3, 5))
    assert [layout(index) for index in range(3)] == [4, 9, 14]
    assert layout.cosize() == 15
    assert layout.with_inner(Layout(2, 5)).cosize() == 10
    assert str(layout) == "((4, 4):(4, 1)) o 1 o (3:5)"
    assert hash(layout) == hash(ComposedLayout(Layout((4, 4), (4, 1)), 1, Layout(3, 5)))


@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
@pytest.mark.parametrize("row_bytes", [32, 64, 128, 256])
@pytest.mark.parametrize("vector_bytes", [4, 8, 16])
def test_a_swizzled_tile_has_no_bank_conflicts(element_bytes, row_bytes, vector_bytes):
    if vector_bytes < element_bytes:
        vector_bytes = element_bytes
    row, vector = row_bytes // element_bytes, vector_bytes // element_bytes
    swizzle = make_swizzle(row, vector, element_bytes=element_bytes)
    tile = ComposedLayout(swizzle, 0, Layout.row_major(64, row))
    lanes = 128 // vector_bytes  # that shared memory serves together
    # Rows have as many places for a vector as they have vectors; wider accesses repeat them below each line.
    for column in range(0, row, vector):
        for first in range(0, 64, lanes):
            assert_own_banks([tile(first + lane, column) * element_bytes for lane in range(lanes)], vector_bytes)
    for index in range(row):
        assert tile(5, index) - tile(5, index // vector * vector) == index % vector


def assert_own_banks(places, vector_bytes):
    banks = [place // 4 % 32 + word for place in places for word in range(vector_bytes // 4)]
    assert len(set(banks)) == len(banks) == 32


def test_the_swizzle_of_a_tensor_core_operand():
    for width in (32, 64, 128):
        columns = width // 2
        swizzled = NVMMASharedLayout(width, 16).to_linear([64, columns]).pseudo_invert()
        composed = ComposedLayout(make_swizzle(columns, 8, element_bytes=2), 0, Layout.row_major(64, columns))
        for row in range(64):
            for column in range(columns):
                (offset, _) = swizzled(dim0=row, dim1=column)
                assert composed(row, column) == offset


# Linear layouts


@laws
@given(layouts((1, 2, 4, 8)), st.data())
def test_linear_layouts_are_the_same_function_and_come_back(layout, data):
    order = data.draw(st.permutations(range(layout.flat_rank)))
    spans, strides = 1, [0] * layout.flat_rank
    for mode in order:
        strides[mode] = spans * data.draw(powers(1))
        spans = strides[mode] * layout.flat_shape[mode]
    nested = composition(Layout(layout.flat_shape, tuple(strides)), Layout.col_major(layout.shape))
    linear = to_linear(nested)
    assert linear.in_dims == tuple(f"dim{mode}" for mode in range(nested.rank()))
    sizes = [mode.size() for mode in nested]
    for index in np.ndindex(*sizes):
        inputs = {f"dim{mode}": number for mode, number in enumerate(index)}
        assert linear.flat(**inputs) == nested(*index)
    assert [*from_linear(linear)] == [coalesce(mode) for mode in nested]


@laws
@given(swizzles(), st.lists(powers(3), min_size=2, max_size=2))
def test_swizzled_layouts_are_linear_too(swizzle, shape):
    layout = ComposedLayout(swizzle, 0, Layout.row_major(shape))
    linear = to_linear(layout)
    for row, column in np.ndindex(*shape):
        assert linear.flat(dim0=row, dim1=column) == layout(row, column)


@laws
@given(layouts(most=64))
def test_a_layout_is_linear_or_refused(layout):
    linear = attempt(("strided-linear-carry", "layout-power-of-two"), to_linear, layout)
    if linear is None:
        places = tables(layout)
        powers_only = all(size & (size - 1) == 0 for size in layout.flat_shape)
        pairs = [(i, j) for i in range(len(places)) for j in range(i)]
        assert not powers_only or any(places[i ^ j] != places[i] ^ places[j] for i, j in pairs)
        return
    for index in np.ndindex(*(mode.size() for mode in layout)):
        assert linear.flat(**{f"dim{mode}": number for mode, number in enumerate(index)}) == layout(*index)


def test_a_linear_layout_of_one_input_is_plain():
    assert from_linear(to_linear(Layout(8, 2))) == Layout(8, 2)
    assert from_linear(to_linear(Layout((4, 2), (2, 1)))) == Layout((4, 2), (2, 1))
    assert from_linear(to_linear(Layout((2, 2), (0, 1)))) == Layout((2, 2), (0, 1))
