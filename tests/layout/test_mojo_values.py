"""Agreement with Mojo's layout library: results of its operations on numbers that its tests use, too.

Where weft differs on purpose, the last section says what it does instead.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.views.test_access import refused
from weft.layout import (
    UNKNOWN,
    ComposedLayout,
    Layout,
    Swizzle,
    blocked_product,
    coalesce,
    complement,
    composition,
    expand_modes_alike,
    is_row_major,
    logical_divide,
    logical_product,
    make_layout,
    right_inverse,
    sublayout,
    tile_to_shape,
    upcast,
    zipped_divide,
    zipped_divide_by_shape,
)
from weft.layout.nested import int_tuple
from weft.views import All, Idx, LayoutTensor, LayoutTensorIter, coord

row_major, col_major = Layout.row_major, Layout.col_major
quads = Layout(((2, 2), (2, 2)), ((1, 8), (2, 4)))
deep = Layout(((3, (5, 2)), 4), ((1, (24, 12)), 3))


def counted(layout, masked=False):
    """A view of memory of a layout, whose numbers count in logical order."""
    return LayoutTensor(np.zeros(layout.cosize(), np.float32), layout, masked).arange()


def grid(view):
    return np.asarray(view).tolist()


# Tuples of numbers

TUPLES = [
    ("product", (((2, 3), 4),), 24),
    ("flatten", ((5, 7, (3, (6, 99, (4, 68)))),), (5, 7, 3, 6, 99, 4, 68)),
    ("inner_product", (((2, 3), 4), ((2, 1), 2)), 15),
    ("shape_div", ((3, 4), 6), (1, 2)),
    ("shape_div", ((3, 4), 36), (1, 1)),
    ("shape_div", (((3, 4), 6), 36), ((1, 1), 2)),
    ("shape_div", ((6, (3, 4)), 36), (1, (1, 2))),
    ("prefix_product", (((2, 3), (2, 1, 2), (5, 2, 1)),), ((1, 2), (6, 12, 12), (24, 120, 240))),
    ("prefix_product", ((UNKNOWN, (2, 3), 4),), (1, (UNKNOWN, UNKNOWN), UNKNOWN)),
    ("suffix_product", ((3, 4, 5),), (20, 5, 1)),
    ("product_each", ((4, 44, (7, 11)),), (4, 44, 77)),
    ("depth", ((1, (2, 3)),), 2),
    ("compact_order", ((2, 3, 4, 5), (1, 4, 3, 5)), (1, 8, 2, 24)),
    ("compact_order", ((2, (3, 4), 5), (1, (2, 3), 4)), (1, (2, 6), 24)),
    ("compact_order", ((2, 3, 4, 5), (0, 2, 3, 1)), (1, 10, 30, 2)),
    ("crd2idx", ((3, 1), (4, 2), (1, 4)), 7),
    ("idx2crd", (6, (4, 2), (1, 4)), (2, 1)),
    ("idx2crd", (13, (2, (2, 4))), (1, (0, 3))),
    ("reverse", (((1, 2), 3, 4, (5, 6, 7)),), ((7, 6, 5), 4, 3, (2, 1))),
    ("fill_like", (((3, 4), 2, (3,)), 1), ((1, 1), 1, (1,))),
    ("to_unknown", ((5, (3, (6, 4)), 2),), (UNKNOWN, (UNKNOWN, (UNKNOWN, UNKNOWN)), UNKNOWN)),
    ("abs", ((0, 1, (-2, 3), -4),), (0, 1, (2, 3), 4)),
    ("mul", ((0, 1, (2, 3), 4), 4), (0, 4, (8, 12), 16)),
    ("sum", (((2, 3), 4),), 9),
    ("sum", ((UNKNOWN, (2, 3), 4),), UNKNOWN),
    ("tuple_max", ((1, 2, 3, (4, 5), (7, 8, 9, 10)),), 10),
    ("tuple_min", ((1, (14, 6)), (4, (2, 32))), (1, (2, 6))),
    ("weakly_congruent", ((1, 1), (2, (2, 2))), True),
    ("weakly_congruent", ((1, (1, 1)), (1, 1)), False),
    ("weakly_congruent", ((1,), (2, 2)), False),
    ("weakly_compatible", (8, ((2, 8),)), True),
    ("weakly_compatible", (12, (16,)), False),
    ("weakly_compatible", ((16,), 16), False),
    ("weakly_compatible", ((16,), (2, 8)), False),
    ("weakly_compatible", (((2, 8),), ((2, (4, 2)),)), True),
    ("weakly_compatible", (((2, (4, 2)),), ((2, 8),)), False),
]


@pytest.mark.parametrize(("name", "arguments", "result"), TUPLES)
def test_tuples(name, arguments, result):
    assert getattr(int_tuple, name)(*arguments) == result


# Layouts

LAYOUTS = [
    (row_major(2, (3, 4)), (2, (3, 4)), (12, (4, 1))),
    (row_major(UNKNOWN, UNKNOWN, 128, 576), (UNKNOWN, UNKNOWN, 128, 576), (UNKNOWN, 73728, 576, 1)),
    (row_major((4, 16), (8, 2)), ((4, 16), (8, 2)), ((256, 16), (2, 1))),
    (col_major((4, 16), (8, 2)), ((4, 16), (8, 2)), ((1, 4), (64, 512))),
    (col_major(UNKNOWN, 64, 128), (UNKNOWN, 64, 128), (1, UNKNOWN, UNKNOWN)),
    (make_layout(row_major(2, 2), row_major(4, 4)), ((2, 2), (4, 4)), ((2, 1), (4, 1))),
    (coalesce(Layout((2, 8), (4, 8))), 16, 4),
    (coalesce(Layout((2, 8), (4, 8)), keep_rank=True), (2, 8), (4, 8)),
    (coalesce(Layout((UNKNOWN, UNKNOWN, 8, 1), (UNKNOWN, 8, 1, 1))), (UNKNOWN, UNKNOWN, 8), (UNKNOWN, 8, 1)),
    (composition(row_major(8, 4), (Layout(4), Layout(2))), (4, 2), (4, 1)),
    (composition(row_major((8, 6), 4, 2), (Layout(4), Layout(2))), (4, 2, 2), (48, 2, 1)),
    (complement(Layout(4), 24), 6, 4),
    (complement(Layout(6, 4), 24), 4, 1),
    (complement(Layout((4, 6), (1, 4)), 24), 1, 0),
    (complement(Layout(4, 2), 24), (2, 3), (1, 8)),
    (complement(Layout((2, 4), (1, 6)), 24), 3, 2),
    (complement(Layout((2, 2), (1, 6)), 24), (3, 2), (2, 12)),
    (logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)), ((2, 2), (2, 3)), ((4, 1), (2, 8))),
    (logical_product(Layout((2, 2), (4, 1)), Layout(6)), ((2, 2), (2, 3)), ((4, 1), (2, 8))),
    (logical_product(row_major(2, 5), (Layout(3, 5), Layout(4, 6))), ((2, 3), (5, 4)), ((5, 10), (1, 30))),
    (blocked_product(row_major(2, 5), col_major(3, 4)), ((2, 3), (5, 4)), ((5, 10), (1, 30))),
    (blocked_product(row_major(8, 8), col_major(2, 3)), ((8, 2), (8, 3)), ((8, 64), (1, 128))),
    (blocked_product(row_major(128, 8), row_major(1, 4), True), (128, (8, 4)), (8, (1, 1024))),
    (tile_to_shape(row_major(2, 5), (6, 20)), ((2, 3), (5, 4)), ((5, 10), (1, 30))),
    (tile_to_shape(row_major(2, 5), (6, 20), (1, 0)), ((2, 3), (5, 4)), ((5, 40), (1, 10))),
    (zipped_divide(row_major(4, 4), (2, 2)), ((2, 2), (2, 2)), ((4, 1), (8, 2))),
    (zipped_divide(upcast(row_major(4, 16), 4), (2, 2)), ((2, 2), (2, 2)), ((4, 1), (8, 2))),
    (zipped_divide_by_shape(row_major(4, 4), Layout(2)), (2, (2, 4)), (4, (8, 1))),
    (sublayout(Layout(((2, 3), 2, 4), ((12, 4), 4, 1)), 0, 1), ((2, 3), 2), ((12, 4), 4)),
    (upcast(Layout((4, 3), (2, 4)), 2), (4, 3), (1, 2)),
    (upcast(Layout((4, 3), (2, 4)), 4), (2, 3), (1, 1)),
    (upcast(Layout((8, 1024), (1024, 1)), 16), (8, 64), (64, 1)),
    (upcast(col_major(4, 8), 2), (2, 8), (1, 2)),
    (upcast(Layout((UNKNOWN, 8), (8, 1)), 2), (UNKNOWN, 4), (4, 1)),
    (complement(Layout(4), UNKNOWN), UNKNOWN, 4),
    (Layout((2, (3, 4)), (1, (2, 6))).make_shape_unknown(0), (UNKNOWN, (3, 4)), (1, (2, 6))),
    (Layout((2, (3, 4)), (1, (2, 6))).make_shape_unknown(1), (2, (UNKNOWN, UNKNOWN)), (1, (2, 6))),
    (Layout((2, (3, 4)), (1, (2, 6))).make_shape_unknown(), (UNKNOWN, (UNKNOWN, UNKNOWN)), (1, (2, 6))),
    (col_major(2, 5).reverse(), (5, 2), (2, 1)),
    (Layout(((2, 3), (4, 5), 6), ((30, 10), (6, 1), 120)).transpose(), (6, (4, 5), (2, 3)), (120, (6, 1), (30, 10))),
    (Layout((UNKNOWN, 4), (4, 1)).transpose(), (4, UNKNOWN), (1, 4)),
]


@pytest.mark.parametrize(("found", "shape", "stride"), LAYOUTS)
def test_layouts(found, shape, stride):
    assert found == Layout(shape, stride)


def test_a_tile_of_nested_modes_divides_mode_by_mode():
    layout, tile = Layout(((16, 64), 4), ((128, 2), 2048)), Layout(((8, 4), 4), ((4, 1), 32))
    shape, stride = (((8, 4), 4), ((2, 16), 1)), (((128, 2), 2048), ((1024, 8), 0))
    assert zipped_divide_by_shape(layout, tile) == Layout(shape, stride)
    layout, tile = Layout((16, 8), (32, 4)), Layout(((2, 2), 8), ((1, 16), 2))
    shape, stride = (((2, 2), 8), (4, 1)), (((32, 64), 4), (128, 0))
    assert zipped_divide_by_shape(layout, tile) == Layout(shape, stride)


def test_modes_alike():
    first, second = expand_modes_alike(deep, Layout((30, (2, 2)), (2, (60, 1))))
    assert first == Layout(((3, (5, 2)), (2, 2)), ((1, (24, 12)), (3, 6)))
    assert second == Layout(((3, (5, 2)), (2, 2)), ((2, (6, 30)), (60, 1)))


OFFSETS = [
    (Layout((4, (3, 2)), (6, (2, 1))), {(3, (2, 1)): 23, (2, 1, 0): 14, (0, 5): 5, (1, 1): 8, 1: 6}),
    (row_major((4, 16), (8, 2)), {((1, 2), (3, 1)): 295, (1, 2, 3, 1): 295, ((3, 15), (7, 1)): 1023}),
    (blocked_product(row_major(2, 3), row_major(4, 5)), {((1, 2), (1, 3)): 82, 0: 0}),
    (row_major((2, 4), (3, 5)), {((1, 2), (1, 3)): 98}),
    (quads, {(3, 0): 9, (0, 3): 6, (1, 1, 0, 1): 13, 6: 10}),
    (row_major(65536, 57344), {(65535, 57343): 3758096383}),
]


@pytest.mark.parametrize(("layout", "offsets"), OFFSETS)
def test_offsets(layout, offsets):
    assert {place: layout(place) for place in offsets} == offsets


def test_functions():
    compositions = [
        (col_major(8, 8), Layout(((2, 2, 2), (2, 2, 2)), ((1, 16, 4), (8, 2, 32)))),
        (Layout((4, 8, 2), (2, 8, 1)), Layout((4, 2, 2), (2, 8, 1))),
        (Layout((4, 3), (3, 1)), Layout((6, 2), (2, 1))),
        (Layout(((4, 2),), ((1, 16),)), Layout((4, 2), (2, 1))),
    ]
    for outer, inner in compositions:
        assert composition(outer, inner).offsets() == [outer(place) for place in inner.offsets()]
    assert [deep(place) for place in right_inverse(deep).offsets()] == [*range(120)]
    assert (Layout((2, 2), (10, 1)).size(), Layout((2, 2), (10, 1)).cosize()) == (4, 12)
    assert [*row_major(1, 2, 3, 4)] == [Layout(1, 24), Layout(2, 12), Layout(3, 4), Layout(4, 1)]
    assert (is_row_major(row_major(3, 2, 3)), is_row_major(col_major(3, 3))) == (True, False)
    assert [row_major(4, 4).idx2crd(place) for place in (7, 12)] == [(1, 3), (3, 0)]
    assert [col_major(4, 4).idx2crd(place) for place in (7, 12)] == [(3, 1), (0, 3)]


SWIZZLES = [
    (Swizzle(1, 0, 4), {15: 15, 16: 17, 17: 16, 40: 40, 62: 63}),
    (Swizzle(2, 0, 3), {7: 7, 8: 9, 18: 16, 24: 27, 32: 32, 63: 60}),
    (Swizzle(2, 1, 3), {9: 9, 16: 18, 27: 25, 32: 36, 47: 43, 63: 57}),
    (ComposedLayout(Layout((6, 2), (8, 2)), 0, Layout((4, 3), (3, 1))), {1: 24, 2: 2, 7: 34, 8: 16, 11: 42}),
    (ComposedLayout(Swizzle(1, 0, 2), 0, Layout((6, 2), (8, 2))), {1: 8, 5: 40}),
]


@pytest.mark.parametrize(("function", "values"), SWIZZLES)
def test_swizzles(function, values):
    assert {offset: function(offset) for offset in values} == values


# Views


def test_tiles():
    tiles = counted(col_major(8, 4)).transpose()
    assert grid(tiles.tile[2, 2](1, 2)) == [[18, 22], [19, 23]]
    nested = counted(blocked_product(row_major(8, 8), row_major(2, 2)))
    assert grid(nested.tile[4, 4](0, 2)) == [[16 * i + 8 + j for j in range(4)] for i in range(4)]


def test_edges_of_tiles():
    t = counted(row_major(15, 9)).tile[8, 8](1, 1)
    assert (t.dim(0), t.dim(1), t.bound_check_required) == (7, 1, True)
    inner = t.tile[4, 4](1, 0)
    assert (inner.dim(0), inner.dim(1), grid(inner)) == (3, 1, [[116], [125], [134]])
    corner = counted(row_major(11, 7)).tile[4, 4](2, 1)
    assert grid(corner) == [[60, 61, 62], [67, 68, 69], [74, 75, 76]]
    last = counted(row_major(5, 3), masked=True).tile[2, 2](2, 0).distribute[row_major(2, 2)]
    assert [grid(last(thread)) for thread in (0, 1)] == [[[12]], [[13]]]
    assert [last(thread).dim(0) for thread in (2, 3)] == [0, 0]


FRAGMENTS = [
    (col_major(8, 4), col_major(2, 2), 1, [[4, 6], [12, 14], [20, 22], [28, 30]]),
    (col_major(8, 4), col_major(2, 2), 2, [[1, 3], [9, 11], [17, 19], [25, 27]]),
    (col_major(2, 4), row_major(2, 2), 2, [[4, 6]]),
    (row_major(4, 8), Layout((2, (2, 2)), (1, (2, 4))), 5, [[10, 14], [26, 30]]),
    (row_major(4, 8), Layout((2, (2, 2)), (1, (2, 4))), 6, [[3, 7], [19, 23]]),
]


@pytest.mark.parametrize(("layout", "threads", "thread", "numbers"), FRAGMENTS)
def test_fragments(layout, threads, thread, numbers):
    assert grid(counted(layout).distribute[threads](thread)) == numbers


def test_fragments_of_vectors():
    threads = Layout(((2, 2), 2), ((1, 4), 2))
    t = counted(row_major(16, 8)).vectorize[2, 2]().distribute[threads](5)
    assert [t[i, j].tolist() for i, j in ((0, 0), (0, 1), (1, 0))] == [
        [48, 49, 56, 57], [52, 53, 60, 61], [112, 113, 120, 121],
    ]  # fmt: skip
    pairs = counted(col_major(8, 1)).vectorize[2, 1]()
    assert [pairs.distribute(threads, axis=0)(thread)[0, 0].tolist() for thread in (2, 5)] == [[0, 1], [6, 7]]
    columns = counted(row_major(4, 4)).vectorize[4, 1]()
    assert columns.distribute(row_major(4, 4), axis=1)(6)[0, 0].tolist() == [2, 6, 10, 14]


@pytest.mark.parametrize(("thread", "first"), [(0, 0), (37, 546), (74, 1092), (111, 1638)])
def test_nested_threads_divide_a_nested_axis_mode_by_mode(thread, first):
    pairs = LayoutTensor(np.arange(64 * 32, dtype=np.float32), row_major(4, 16, 32)).vectorize[1, 1, 2]()
    t = pairs.reshape(Layout(((16, 16), 4), ((32, 2), 512)))
    part = t.distribute[Layout(((8, 4), 4), ((4, 1), 32))](thread)
    assert part.layout == Layout(((2, 4), 1), ((256, 8), 0))
    assert [part[i, j, 0].tolist() for i in range(2) for j in range(4)] == [
        [first + 256 * i + 8 * j, first + 256 * i + 8 * j + 1] for i in range(2) for j in range(4)
    ]


def test_swizzled_fragments():
    t = LayoutTensor(np.zeros(16, np.float32), row_major(4, 4))
    for thread in range(4):
        t.distribute(row_major(2, 2), swizzle=Swizzle(1, 0, 2))(thread).fill(thread)
    assert grid(t.reshape[16]())[:6] == [0, 1, 0, 1, 3, 2]


VECTORS = [
    (col_major(8, 8), (1, 4), Layout((8, 2), (1, 32)), Layout((1, 4), (0, 8))),
    (col_major(8, 8), (4, 1), Layout((2, 8), (4, 8)), Layout((4, 1), (1, 0))),
    (col_major(8, 8), (4, 4), Layout((2, 2), (4, 32)), Layout((4, 4), (1, 8))),
    (row_major(8, 8), (2, 4), Layout((4, 2), (16, 4)), Layout((2, 4), (8, 1))),
]


@pytest.mark.parametrize(("layout", "widths", "vectors", "element"), VECTORS)
def test_vectors(layout, widths, vectors, element):
    t = counted(layout).vectorize[widths]()
    assert (t.layout, t.element_layout) == (vectors, element)


def test_other_views_of_the_same_numbers():
    t = counted(row_major(4, 3, 2))
    assert grid(t.slice[0:3, 0:2, 1]()) == [[1, 3], [7, 9], [13, 15]]
    assert grid(t.slice[2, :, 1]()) == [13, 15, 17]
    first, second = counted(row_major(4, 4)).split(2, axis=1)()
    assert (grid(first)[3], grid(second)[1]) == ([12, 13], [6, 7])
    assert grid(counted(row_major(2, 3)).reshape[3, 2]()) == [[0, 1], [2, 3], [4, 5]]
    assert counted(row_major(4, 6)).reshape[2, 3, 4]().layout == row_major(2, 3, 4)
    tiled = LayoutTensor(np.zeros(16, np.float32), quads)
    tiled.copy_from(counted(row_major(4, 4)))
    assert tiled.array.tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    tiled[coord((1, 0), (0, 1))] = 77
    assert tiled[1, 0, 0, 1] == tiled.array[5] == 77


def test_coordinates():
    t = LayoutTensor(np.arange(24), Layout((4, (3, 2)), (6, (2, 1))))
    assert (t[coord(2, coord(1, 0))], t[coord(2, 1)], t[2, 1, 0], t.load(coord(2, 1))) == (14, 14, 14, 14)
    blocked = LayoutTensor(np.arange(24), blocked_product(row_major(2, 2), row_major(2, 3)))
    assert (blocked[1, 0, 0, 2], blocked[coord(coord(1, 0), coord(1, 2))]) == (10, 2 + 8 + 1)
    plain = counted(row_major(3, 4))
    assert (plain[(1, 1)], plain.load_linear[2](coord(1, 0)).tolist()) == (5, [4, 5])
    assert counted(row_major(8, 8)).vectorize[1, 4]().load_scalar(1, 0) == 8
    deep = LayoutTensor(np.arange(1024, dtype=np.int32), row_major(2, 4, 8, 16))
    assert deep.ptr_at_offset(coord(1, 2, 3, 4)) - deep.ptr == 820 * 4
    assert deep.slice(1, All, Idx[2], All)[3, 5] == 512 + 3 * 128 + 2 * 16 + 5


def test_parts_of_uneven_size():
    t = counted(row_major(5, 2))
    assert [grid(t.split(axis=0)(2, part))[0] for part in (0, 1)] == [[0, 1], [6, 7]]
    t = counted(row_major(2, 8))
    parts = [t.split(axis=1, split_alignment=4)(3, part) for part in range(3)]
    assert [part.dim(1) for part in parts] == [4, 4, 0] and grid(parts[1])[1] == [12, 13, 14, 15]


def test_one_axis():
    assert counted(row_major(2, 3, 4)).coalesce().layout == Layout((24,), (1,))
    assert grid(counted(row_major(4, 4)).flatten().vectorize[4]()[3]) == [12, 13, 14, 15]


def test_functions_in_place():
    a, b = LayoutTensor(np.array([[1, 20], [3, 40]])), LayoutTensor(np.array([[10, 2], [30, 4]]))
    assert grid(LayoutTensor(a.array.copy()).min(b)) == [[1, 2], [3, 4]]
    assert grid(a.max(b)) == [[10, 20], [30, 40]]
    a //= b
    assert grid(a) == [[1, 10], [1, 10]]
    numbers = np.array([[-1.5, 2.0], [-0.0, -4.0]], np.float32)
    assert grid(LayoutTensor(numbers).abs()) == [[1.5, 2], [0, 4]]
    assert np.signbit(numbers).sum() == 0 and grid(LayoutTensor(numbers[0]).recip()) == [np.float32(1 / 1.5), 0.5]
    scaled = LayoutTensor(np.array([0, 1, -1, 0.5], np.float32)).exp(scale=2)
    assert np.allclose(scaled, np.exp([0, 2, -2, 1]))
    special = LayoutTensor(np.array([np.nan, 2, -np.inf], np.float32)).max(
        LayoutTensor(np.array([3, np.nan, -4], np.float32))
    )
    assert grid(special) == [3, 2, -4]
    nested = LayoutTensor(-np.arange(16.0), quads)
    assert nested.vectorize[1, 1]().abs().array.tolist() == [*range(16)]


def corners(iterator, count):
    """The first numbers of the next tiles."""
    found = []
    for _ in range(count):
        found.append(int(iterator[()][0, 0]))
        iterator += 1
    return found


def test_iterators():
    memory, tile = np.arange(64, dtype=np.float32), Layout((2, 2), (8, 1))
    assert corners(LayoutTensorIter(memory, tile), 2) == [0, 4]
    assert corners(LayoutTensorIter(memory, tile, 64, stride=16, offset=4), 2) == [4, 20]
    assert corners(LayoutTensorIter(memory, tile, 64, stride=16, offset=32, circular=True), 4) == [32, 48, 0, 16]
    t = LayoutTensor(memory, row_major(8, 8))
    assert corners(t.tiled_iterator(2, 2, axis=1)(2, 0), 4) == [32, 34, 36, 38]
    assert corners(t.tiled_iterator(2, 2, axis=0)(2, 3), 2) == [38, 54]
    columns = LayoutTensor(np.arange(1024), Layout(((64, 2), (2, 4)), ((2, 512), (1, 128))))
    assert corners(columns.tiled_iterator(64, 2, axis=1)(0, 0), 2) == [0, 128]


# Differences


def test_vectors_keep_the_logical_order():
    t = counted(col_major(8, 8))
    assert t.vectorize[4, 4]()[0, 0].tolist()[:6] == [0, 1, 2, 3, 8, 9]
    other = LayoutTensor(np.zeros(64, np.float32), row_major(8, 8))
    other.vectorize[4, 1]().copy_from(t.vectorize[1, 4]())
    assert grid(other) == grid(t)


def test_what_is_refused():
    t = counted(Layout((4, (3, 2)), (6, (2, 1))))
    refused("view-index-count", lambda: t.load[1](coord(1)))
    refused("view-shapes", lambda: counted(row_major(4, 5)) - counted(row_major(4)))
    refused("strided-unknown", upcast, Layout((8, UNKNOWN), (8, 1)), 2)
    refused("strided-mode", row_major(2, 3).make_shape_unknown, 2)
