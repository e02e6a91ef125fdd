"""The algebra of nested layouts: its laws over random layouts against brute force, and examples worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.nested.strategies import attempt, coordinates, distinct, injective, layouts, spaced, tables
from weft.errors import LayoutError
from weft.layout import (
    UNKNOWN,
    Layout,
    coalesce,
    compact_order,
    complement,
    composition,
    downcast,
    expand_modes_alike,
    filter_layout,
    flatten,
    left_inverse,
    logical_product,
    make_layout,
    make_ordered_layout,
    right_inverse,
    shape_div,
    sublayout,
    transpose,
    upcast,
)
from weft.layout.nested import int_tuple

laws = settings(deadline=None, max_examples=examples(150))


# Coalesce, filter


@laws
@given(layouts())
def test_coalesce_is_the_same_function_in_as_few_modes_as_possible(layout):
    found = coalesce(layout)
    assert tables(found) == tables(layout)
    assert int_tuple.depth(found.shape) <= 1
    assert found.size() == 1 or 1 not in found.flat_shape
    modes = [*zip(found.flat_shape, found.flat_stride, strict=True)]
    assert not any(size * step == after for (size, step), (_, after) in pairwise(modes))
    assert coalesce(found) == found


@laws
@given(layouts())
def test_coalesce_by_mode_keeps_the_rank(layout):
    found = coalesce(layout, keep_rank=True)
    assert found.rank() == layout.rank()
    assert tables(found) == tables(layout)
    assert [tables(mode) for mode in found] == [tables(mode) for mode in layout]


@laws
@given(layouts())
def test_filter_keeps_each_offset_once(layout):
    found = filter_layout(layout)
    assert set(tables(found)) == set(tables(layout))
    assert 0 not in found.flat_stride or found == Layout(1, 0)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(8, 1), Layout(8, 1)),
        (Layout((2, 4), (1, 2)), Layout(8, 1)),
        (Layout((2, 4), (4, 1)), Layout((2, 4), (4, 1))),
        (Layout((2, (1, 6)), (1, (6, 2))), Layout(12, 1)),
        (Layout((2, 1, 3), (2, 4, 4)), Layout(6, 2)),
        (Layout((1, 1), (5, 7)), Layout(1, 0)),
        (Layout((2, 3), (0, 0)), Layout(6, 0)),
        (Layout((4, UNKNOWN), (1, 4)), Layout(UNKNOWN, 1)),
        (Layout((UNKNOWN, 4), (1, UNKNOWN)), Layout((UNKNOWN, 4), (1, UNKNOWN))),
    ],
)
def test_coalesce(layout, expected):
    assert coalesce(layout) == expected


def test_coalesce_with_a_profile_leaves_modes_without_an_entry():
    layout = Layout(((2, 4), (2, 2)), ((1, 2), (8, 16)))
    assert coalesce(layout) == Layout(32, 1)
    assert coalesce(layout, (1,)) == Layout((8, (2, 2)), (1, (8, 16)))
    assert coalesce(layout, (1, 1)) == coalesce(layout, keep_rank=True) == Layout((8, 4), (1, 8))


# Composition


def composed(layout, tiler):
    """The composition, checked: a function of every coordinate of the tiler."""
    found = composition(layout, tiler)
    assert int_tuple.weakly_congruent(tiler.shape, found.shape)
    assert found.size() == tiler.size()
    assert tables(found) == [layout(offset) for offset in tables(tiler)]
    for coordinate in coordinates(tiler.shape):
        assert found(coordinate) == layout(tiler(coordinate))
    return found


@laws
@given(layouts(), layouts(most=60))
def test_composition_is_the_composition_of_functions_or_an_error(layout, tiler):
    attempt(("strided-divide", "strided-carry"), composed, layout, tiler)


@laws
@given(layouts((1, 2, 4, 8)), st.data())
def test_compositions_of_powers_of_two_exist(layout, data):
    shape = data.draw(layouts((1, 2, 4), most=64)).shape
    composed(layout, Layout.col_major(shape))
    assert composed(layout, Layout(layout.size())).size() == layout.size()


@laws
@given(layouts((1, 2, 4)), st.data())
def test_composition_is_associative(a, data):
    b = data.draw(spaced(data.draw(layouts((1, 2, 4), most=64)).shape))
    c = Layout.col_major(b.size())
    try:
        left, right = composition(composition(a, b), c), composition(a, composition(b, c))
    except LayoutError:
        assume(False)
        return
    assert tables(left) == tables(right)


def factorizations(number):
    """Every way to write a number as a product of factors above 1, in every order."""
    if number == 1:
        yield ()
    for first in range(2, number + 1):
        if number % first == 0:
            for rest in factorizations(number // first):
                yield (first, *rest)


@laws
@given(distinct(), st.integers(1, 24), st.integers(0, 12))
def test_a_mode_is_refused_only_where_no_strides_give_its_function(layout, size, step):
    assume((size - 1) * step < layout.size())
    tiler = Layout(size, step)
    wanted = [layout(offset) for offset in tables(tiler)]
    possible = False
    for shape in factorizations(size):
        places = int_tuple.prefix_product(shape)
        possible |= tables(Layout(shape, tuple(wanted[place] for place in places))) == wanted
    assert (attempt(("strided-divide",), composed, layout, tiler) is not None) == possible


@pytest.mark.parametrize(
    ("layout", "tiler", "expected"),
    [
        (Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)), Layout(((2, 2), 3), ((24, 2), 8))),
        (Layout(20, 2), Layout((5, 4), (4, 1)), Layout((5, 4), (8, 2))),
        (Layout((10, 2), (16, 4)), Layout((5, 4), (1, 5)), Layout((5, (2, 2)), (16, (80, 4)))),
        (Layout((4, 6), (6, 1)), Layout(24), Layout((4, 6), (6, 1))),
        (Layout((4, 6), (6, 1)), Layout(2, 2), Layout(2, 12)),
        (Layout((10, 4), (1, 10)), Layout(3, 3), Layout(3, 3)),
        (Layout((2, 3, 4), (100, 10, 1)), Layout(4, 3), Layout((2, 2), (110, 1))),
        (Layout(8, 3), Layout((2, 4), (0, 2)), Layout((2, 4), (0, 6))),
        (Layout((4, 3), (1, 0)), Layout(12), Layout((4, 3), (1, 0))),
        (Layout((8, 8), (8, 1)), Layout((1, 4)), Layout((1, 4), (8, 8))),
        (Layout(4), Layout(8), Layout(8)),
    ],
)
def test_composition(layout, tiler, expected):
    assert composed(layout, tiler) == expected


def test_composition_by_mode():
    layout = Layout((12, (4, 8)), (59, (13, 1)))
    assert composition(layout, (Layout(3, 4), Layout(8, 2))) == Layout((3, (2, 4)), (236, (26, 1)))
    assert composition(layout, (3, 8)) == Layout((3, (4, 2)), (59, (13, 1)))
    assert composition(layout, (3,)) == Layout((3, (4, 8)), (59, (13, 1)))
    assert composition(layout, (None, 8)) == Layout((12, (4, 2)), (59, (13, 1)))
    assert composition(layout, (3, (2, 4))) == Layout((3, (2, 4)), (59, (13, 1)))
    assert composition(layout, None) is layout


# Complement and inverses


@laws
@given(injective(), st.integers(1, 3))
def test_the_complement_repeats_the_layout_without_overlap(layout, times):
    target = layout.cosize() * times
    rest = complement(layout, target)
    own, others = set(tables(layout)), tables(rest)
    assert others == sorted(set(others))
    assert own.isdisjoint(others[1:])
    together = tables(make_layout(layout, rest))
    assert sorted(together) == [*range(len(together))]
    assert len(together) >= target
    period = max(
        (size * step for size, step in zip(layout.flat_shape, layout.flat_stride, strict=True) if size > 1), default=1
    )
    assert len(together) < target + period


def is_divisible(layout):
    """Whether the stride of each mode is a multiple of what all modes of smaller stride span."""
    span = 1
    for step, size in sorted(zip(layout.flat_stride, layout.flat_shape, strict=True)):
        if step and size > 1:
            if step % span:
                return False
            span = step * size
    return True


def overlaps(layout):
    """Whether a mode begins before the modes of smaller stride end."""
    span = 1
    for step, size in sorted(zip(layout.flat_stride, layout.flat_shape, strict=True)):
        if step and size > 1:
            if step < span:
                return True
            span = step * size
    return False


@laws
@given(layouts())
def test_a_layout_has_a_complement_unless_its_modes_overlap(layout):
    rest = attempt(("strided-complement",), complement, layout, layout.cosize())
    assert (rest is None) == overlaps(layout)
    if rest is None:
        return
    own = filter_layout(layout)
    together = sorted(tables(make_layout(own, rest)))
    assert len(set(together)) == own.size() * rest.size()
    if is_divisible(layout):
        assert together == [*range(len(together))]


@laws
# Offsets 0, 2, 6, 8: a second copy starts at 1, and there is no place for a third before the end of the first.
@example(Layout((2, 2)), [1, 2] + 25 * [0], Layout(3))
@given(injective(), st.lists(st.integers(0, 5), min_size=27, max_size=27), layouts((1, 2, 3), most=12))
def test_padded_blocks_are_repeated_without_overlap(block, gaps, tiler):
    strides, span = [1] * len(block.flat_shape), 1
    modes = sorted(range(len(block.flat_shape)), key=block.flat_stride.__getitem__)
    for mode, gap in zip(modes, gaps, strict=False):
        strides[mode] = span + gap
        span = strides[mode] * block.flat_shape[mode]
    block = Layout(block.shape, int_tuple.unflatten(strides, block.shape))
    copies = Layout.row_major(tiler.shape)
    found = attempt(("strided-divide", "strided-carry"), logical_product, block, copies)
    if found is not None:
        assert found[0] == block and found[1].size() == copies.size()
        assert len(set(tables(found))) == block.size() * copies.size()
        places = dict(zip(tables(copies), tables(found[1]), strict=True))
        assert [places[number] for number in range(copies.size())] == sorted(places.values())


@pytest.mark.parametrize(
    ("layout", "target", "expected"),
    [
        (Layout(4, 1), 24, Layout(6, 4)),
        (Layout(6, 4), 24, Layout(4, 1)),
        (Layout((4, 6), (1, 4)), 24, Layout(1, 0)),
        (Layout(4, 2), 24, Layout((2, 3), (1, 8))),
        (Layout((2, 4), (1, 6)), 24, Layout(3, 2)),
        (Layout((2, 2), (1, 6)), 24, Layout((3, 2), (2, 12))),
        (Layout((2, 2), (0, 1)), 8, Layout(4, 2)),
        (Layout(4), 10, Layout(3, 4)),
        (Layout(4), (4, 4), Layout(4, 4)),
        (Layout(1), 5, Layout(5)),
        (Layout((4, 6), (1, 6)), 1, Layout(1, 0)),
        (Layout((4, 10), (1, 10)), 1, Layout(2, 4)),
        (Layout((8, 8), (9, 1)), 256, Layout(4, 72)),
    ],
)
def test_complement(layout, target, expected):
    assert complement(layout, target) == expected


@laws
@given(layouts())
def test_right_inverse(layout):
    inverse = right_inverse(layout)
    assert [layout(index) for index in tables(inverse)] == [*range(inverse.size())]


@laws
@given(layouts().map(lambda layout: Layout.row_major(layout.shape)))
def test_compact_layouts_have_whole_inverses(layout):
    inverse = right_inverse(layout)
    assert inverse.size() == layout.size()
    assert [inverse(offset) for offset in tables(layout)] == [*range(layout.size())]


@laws
@given(injective())
def test_left_inverse(layout):
    inverse = left_inverse(layout)
    assert [inverse(offset) for offset in tables(layout)] == [*range(layout.size())]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout((4, 8), (8, 1)), Layout((8, 4), (4, 1))),
        (Layout((2, 4), (0, 1)), Layout(4, 2)),
        (Layout((4, 2), (2, 16)), Layout(1, 0)),
        (Layout((4, 2), (1, 8)), Layout(4, 1)),
        (Layout((2, 4), (1, 1)), Layout(4, 2)),
    ],
)
def test_the_right_inverse_stops_at_the_first_gap(layout, expected):
    assert right_inverse(layout) == expected


# Reordering and other element sizes


@laws
@given(layouts(), st.data())
def test_transpose_and_sublayout_pick_modes(layout, data):
    order = data.draw(st.permutations(range(layout.rank())))
    assert [*transpose(layout, order)] == [layout[mode] for mode in order]
    assert transpose(transpose(layout)) == layout
    assert [*sublayout(layout, *order[:1])] == [layout[order[0]]]


@laws
@given(layouts().filter(lambda layout: isinstance(layout.shape, tuple)), st.data())
def test_ordered_layouts_are_compact_in_their_order(layout, data):
    order = data.draw(st.permutations(range(layout.rank())))
    found = make_ordered_layout(layout.shape, order)
    assert found.shape == layout.shape
    modes = sorted(range(len(order)), key=order.__getitem__)
    assert tables(make_layout(*(found[mode] for mode in modes))) == [*range(found.size())]


def test_orders_of_rows_and_columns():
    assert make_ordered_layout((4, 8), (1, 0)) == Layout.row_major(4, 8)
    assert make_ordered_layout((4, 8), (0, 1)) == Layout.col_major(4, 8)
    assert make_ordered_layout(4, (0,)) == Layout(4)
    assert transpose(Layout(4)) == Layout(4)


@laws
@given(injective((1, 2, 4)), st.sampled_from([1, 2, 4]))
def test_upcast_reaches_the_wide_elements_and_downcast_their_parts(layout, count):
    wide = attempt(("strided-upcast",), upcast, layout, count)
    if wide is None:
        assert any(step % count for step in layout.flat_stride)
        return
    assert set(tables(wide)) == {offset // count for offset in tables(layout)}
    if count == 1:
        assert wide == layout
    narrow = set(tables(downcast(wide, count)))
    assert {offset // count for offset in narrow} == set(tables(wide))
    if 1 in wide.flat_stride:
        assert narrow == {offset * count + part for offset in tables(wide) for part in range(count)}


def test_casts():
    assert upcast(Layout((4, (4, 2)), (8, (1, 4))), 4) == Layout((4, (1, 2)), (2, (1, 1)))
    assert upcast(Layout((2, 4), (0, 2)), 4) == Layout((2, 2), (0, 1))
    assert downcast(Layout((2, 4), (1, 2)), 4) == Layout((8, 4), (1, 8))
    assert downcast(Layout((1, 4), (1, 1)), 2) == Layout((1, 8), (2, 1))
    assert downcast(Layout(4, 2), 2) == Layout(4, 4)


# Numbers known at run time only


def test_what_does_without_values_takes_unknown_numbers():
    layout = Layout.row_major(UNKNOWN, 2, 8)
    assert coalesce(layout, keep_rank=True) == layout
    assert transpose(layout) == Layout((8, 2, UNKNOWN), (1, 8, 16))
    assert sublayout(layout, 2, 0) == Layout((8, UNKNOWN), (1, 16))
    assert filter_layout(Layout((UNKNOWN, 4), (1, 0))) == Layout(UNKNOWN, 1)
    assert composition(layout, (None, Layout(2, 1))) == layout


@pytest.mark.parametrize(
    "operation",
    [
        complement,
        right_inverse,
        left_inverse,
        lambda a: composition(a, 2),
        lambda a: upcast(a, 2),
        lambda a: downcast(a, 2),
    ],
    ids=["complement", "right_inverse", "left_inverse", "composition", "upcast", "downcast"],
)
def test_what_decides_by_values_refuses_unknown_numbers(operation):
    with pytest.raises(LayoutError, match=r"\(\?:1\) has some that are known at run time only") as caught:
        operation(Layout(UNKNOWN))
    assert caught.value.code == "strided-unknown"


def test_sizes_divide_sizes():
    assert shape_div((12, 3), 4) == (3, 3)
    assert shape_div((2, 4, 8), 16) == (1, 1, 4)
    assert shape_div(((2, 3), 4), ((2, 1), 2)) == ((1, 3), 2)
    assert shape_div(24, (2, 3)) == 4
    for a, b in ((6, 4), ((2, 3), 4), ((2, 2), (2, 2, 2)), (0, 2), (UNKNOWN, 2)):
        with pytest.raises(LayoutError) as caught:
            shape_div(a, b)
        assert caught.value.code == "strided-shape-div"


@given(layouts())
def test_compact_strides_by_order(layout):
    sizes = layout.flat_shape
    order = int_tuple.unflatten(range(len(sizes)), layout.shape)
    assert compact_order(layout.shape, order) == Layout(layout.shape).stride
    backwards = int_tuple.unflatten([-k for k in range(len(sizes))], layout.shape)
    assert compact_order(layout.shape, backwards) == Layout.row_major(layout.shape).stride


def test_an_order_nests_like_the_shape():
    with pytest.raises(LayoutError) as caught:
        compact_order((2, (3, 4)), (0, 1))
    assert caught.value.code == "strided-compact-order"


def test_layouts_expanded_alike():
    a, b = Layout(((3, (5, 2)), 4), ((1, (24, 12)), 3)), Layout((30, (2, 2)), (2, (60, 1)))
    both = expand_modes_alike(a, b)
    assert both == (
        Layout(((3, (5, 2)), (2, 2)), ((1, (24, 12)), (3, 6))),
        Layout(((3, (5, 2)), (2, 2)), ((2, (6, 30)), (60, 1))),
    )
    for before, after in zip((a, b), both, strict=True):
        assert before.offsets() == after.offsets()
    for other in (Layout((30, 2)), Layout((31, 4)), Layout(((3, 5, 2), 4))):
        with pytest.raises(LayoutError) as caught:
            expand_modes_alike(a, other)
        assert caught.value.code == "strided-alike"


@given(layouts())
def test_methods_of_layouts(layout):
    assert layout.flatten() == flatten(layout) and flatten(layout).offsets() == layout.offsets()
    assert layout.transpose() == transpose(layout)
    compact = Layout.row_major(layout.shape)
    assert all(compact(compact.idx2crd(offset)) == offset for offset in range(compact.size()))
