"""Divides, products and tilings of nested layouts: which elements they hold and where, and examples worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.nested.strategies import attempt, layouts, spaced, tables
from weft.errors import LayoutError
from weft.layout import (
    UNKNOWN,
    Layout,
    blocked_product,
    coalesce,
    composition,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    make_ordered_layout,
    raked_product,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_divide_by_shape,
    zipped_product,
)

laws = settings(deadline=None, max_examples=examples(80))
sizes = st.integers(1, 4)


@st.composite
def matrices(draw, rank=2):
    """A plain layout with a tile that divides it: (layout, tile, counts)."""
    tile = draw(st.lists(sizes, min_size=rank, max_size=rank))
    counts = draw(st.lists(sizes, min_size=rank, max_size=rank))
    shape = tuple(t * c for t, c in zip(tile, counts, strict=True))
    return draw(spaced(shape)), tuple(tile), tuple(counts)


# Divides


@laws
@given(matrices())
def test_a_tile_of_a_matrix(matrix):
    layout, (m, n), (rows, columns) = matrix
    logical, zipped = logical_divide(layout, (m, n)), zipped_divide(layout, (m, n))
    tiled, flat = tiled_divide(layout, (m, n)), flat_divide(layout, (m, n))
    by_shape = zipped_divide_by_shape(layout, Layout((m, n), (77, 1)))
    for p in range(rows):
        for q in range(columns):
            for i in range(m):
                for j in range(n):
                    offset = layout(p * m + i, q * n + j)
                    assert logical((i, p), (j, q)) == offset
                    assert zipped((i, j), (p, q)) == by_shape((i, j), (p, q)) == offset
                    assert tiled((i, j), p, q) == flat(i, j, p, q) == offset


@laws
@given(layouts((1, 2, 4)), st.data())
def test_a_divide_holds_every_element_once_and_its_tile_is_the_composition(layout, data):
    tile = data.draw(spaced(data.draw(layouts((1, 2), most=16)).shape))
    divided = attempt(("strided-divide", "strided-carry"), logical_divide, layout, tile)
    if divided is None:
        return
    assert tables(divided[0]) == tables(composition(layout, tile))
    if divided.size() == layout.size():
        assert sorted(tables(divided)) == sorted(tables(layout))


def test_divide_by_a_layout():
    assert logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)) == Layout(((2, 2), (2, 3)), ((4, 1), (2, 8)))
    layout = Layout((9, (4, 8)), (59, (13, 1)))
    tiler = (Layout(3, 3), Layout((2, 4), (1, 8)))
    assert logical_divide(layout, tiler) == Layout(((3, 3), ((2, 4), (2, 2))), ((177, 59), ((13, 2), (26, 1))))
    assert zipped_divide(layout, tiler) == Layout(((3, (2, 4)), (3, (2, 2))), ((177, (13, 2)), (59, (26, 1))))
    assert tiled_divide(layout, tiler) == Layout(((3, (2, 4)), 3, (2, 2)), ((177, (13, 2)), 59, (26, 1)))
    assert flat_divide(layout, tiler) == Layout((3, (2, 4), 3, (2, 2)), (177, (13, 2), 59, (26, 1)))


def test_the_strides_of_a_tiler_count_in_one_divide_only():
    layout, tiler = Layout.col_major(8, 4), Layout((2, 2), (2, 1))
    by_elements = zipped_divide(layout, tiler)
    assert by_elements[0] == Layout((2, 2), (2, 1))
    by_shape = zipped_divide_by_shape(layout, tiler)
    assert by_shape == zipped_divide(layout, (2, 2)) == Layout(((2, 2), (4, 2)), ((1, 8), (2, 16)))
    nested = zipped_divide_by_shape(layout, ((2, 2), 2))
    assert nested == Layout((((2, 2), 2), (2, 2)), (((1, 2), 8), (4, 16)))
    assert tables(nested) == tables(zipped_divide(layout, (4, 2)))
    assert zipped_divide_by_shape(Layout(8), Layout(2, 4)) == Layout((2, 4), (1, 2))
    with pytest.raises(LayoutError, match="strided-tiler"):
        zipped_divide_by_shape(layout, (2, 2, 2))


def test_modes_left_over_are_part_of_the_rest():
    layout = Layout.row_major(8, 16, 3)
    assert logical_divide(layout, (4, 8)) == Layout(((4, 2), (8, 2), 3), ((48, 192), (3, 24), 1))
    assert zipped_divide(layout, (4, 8)) == Layout(((4, 8), (2, 2, 3)), ((48, 3), (192, 24, 1)))
    assert tiled_divide(layout, (4, 8)) == Layout(((4, 8), 2, 2, 3), ((48, 3), 192, 24, 1))
    assert flat_divide(layout, (None, 8)) == Layout((8, 8, 1, 2, 3), (48, 3, 0, 24, 1))
    assert zipped_divide(Layout.row_major((4, 2), 6), ((2, 2), 3)) == Layout(
        (((2, 2), 3), ((2, 1), 2)), (((12, 6), 1), ((24, 0), 3))
    )


def test_a_tile_that_does_not_divide_reaches_beyond():
    assert logical_divide(Layout(10, 3), 4) == Layout((4, 3), (3, 12))


def test_plain_modes_of_unknown_size_divide_by_numbers():
    layout = Layout((UNKNOWN, 16), (16, 1))
    assert zipped_divide(layout, (4, 8)) == Layout(((4, 8), (UNKNOWN, 2)), ((16, 1), (64, 8)))
    assert logical_divide(Layout(64, UNKNOWN), 4) == Layout((4, 16), (UNKNOWN, UNKNOWN))
    with pytest.raises(LayoutError, match="known at run time only"):
        zipped_divide(layout, Layout((4, 8)))


# Products


@laws
@given(layouts((1, 2, 3), most=20), layouts((1, 2, 3), most=20))
def test_a_product_repeats_its_block(block, tiler):
    block, tiler = Layout.row_major(block.shape), Layout.col_major(tiler.shape)
    found = logical_product(block, tiler)
    assert found[0] == block
    assert found[1].shape == tiler.shape
    own = tables(block)
    assert tables(found) == [copy * block.size() + offset for copy in tables(tiler) for offset in own]
    assert tables(zipped_product(block, tiler)) == tables(tiled_product(block, tiler)) == tables(found)
    assert tables(flat_product(block, tiler)) == tables(found)


@laws
@given(matrices(), st.permutations([0, 1]))
def test_blocked_and_raked_products(matrix, order):
    _, (m, n), counts = matrix
    block, tiler = Layout.row_major(m, n), make_ordered_layout(counts, order)
    blocked, raked = blocked_product(block, tiler), raked_product(block, tiler)
    for p in range(counts[0]):
        for q in range(counts[1]):
            for i in range(m):
                for j in range(n):
                    offset = block(i, j) + block.size() * tiler(p, q)
                    assert blocked(p * m + i, q * n + j) == blocked((i, p), (j, q)) == offset
                    assert raked(i * counts[0] + p, j * counts[1] + q) == offset
    merged = blocked_product(block, tiler, coalesce_output=True)
    assert merged == coalesce(blocked, keep_rank=True)
    assert raked_product(block, tiler, coalesce_output=True) == coalesce(raked, keep_rank=True)


def test_products():
    assert logical_product(Layout((2, 2), (4, 1)), Layout(6)) == Layout(((2, 2), (2, 3)), ((4, 1), (2, 8)))
    assert logical_product(Layout((2, 2), (4, 1)), Layout((4, 2), (2, 1))) == Layout(((2, 2), (4, 2)), ((4, 1), (8, 2)))
    assert logical_product(Layout(4, 1), 2) == logical_product(Layout(4, 1), Layout(2)) == Layout((4, 2), (1, 4))
    block, tiler = Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))
    assert blocked_product(block, tiler) == Layout(((2, 3), (5, 4)), ((5, 10), (1, 30)))
    assert raked_product(block, tiler) == Layout(((3, 2), (4, 5)), ((10, 5), (30, 1)))
    assert zipped_product(block, tiler) == Layout(((2, 5), (3, 4)), ((5, 1), (10, 30)))
    assert tiled_product(block, tiler) == Layout(((2, 5), 3, 4), ((5, 1), 10, 30))
    assert flat_product(block, tiler) == Layout((2, 5, 3, 4), (5, 1, 10, 30))
    assert blocked_product(Layout(4), Layout((2, 3))) == Layout(((4, 2), (1, 3)), ((1, 4), (0, 8)))
    assert logical_product(Layout((2, 3), (1, 8)), (4, None)) == Layout(((2, 4), (3, 1)), ((1, 2), (8, 0)))


# Tilings


@laws
@given(matrices(rank=3), st.permutations([0, 1, 2]))
def test_tile_to_shape(matrix, order):
    layout, tile, counts = matrix
    block = Layout.row_major(tile)
    found = tile_to_shape(block, layout.shape, order)
    assert found.size() == layout.size() == found.cosize()
    copies = make_ordered_layout(counts, order)
    for coordinate in [(0, 0, 0), tuple(size - 1 for size in layout.shape), tuple(size // 2 for size in layout.shape)]:
        inside = [c % t for c, t in zip(coordinate, tile, strict=True)]
        place = [c // t for c, t in zip(coordinate, tile, strict=True)]
        assert found(*coordinate) == block(*inside) + block.size() * copies(*place)


def test_tile_major_matrices():
    block = Layout.row_major(2, 2)
    assert tile_to_shape(block, (4, 4)) == Layout(((2, 2), (2, 2)), ((2, 4), (1, 8)))
    tiled = tile_to_shape(block, (4, 4), order=(1, 0))
    assert tiled == Layout(((2, 2), (2, 2)), ((2, 8), (1, 4)))
    assert tiled((1, 0), (0, 1)) == 6
    assert tile_to_shape(block, (4, (2, 4)), order=(1, 0)) == Layout(((2, 2), (2, 4)), ((2, 16), (1, 4)))
    assert tile_to_shape(Layout(4), (8, 3)) == Layout(((4, 2), (1, 3)), ((1, 4), (0, 8)))
