"""Laws of linear layouts, against brute force."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import linear_tiles, shapes, tiles
from weft.errors import LayoutError
from weft.layout import LinearLayout
from weft.layout.linear import f2
from weft.layout.linear.f2 import Span

laws = settings(deadline=None, max_examples=examples(60))
columns_of = st.lists(st.integers(0, 63), max_size=8)


@st.composite
def linear(draw, ins=("a", "b"), outs=("x", "y")):
    sizes = [(d, 1 << draw(st.integers(0, 3))) for d in outs]
    vector = st.tuples(*(st.integers(0, size - 1) for _, size in sizes))
    return LinearLayout.make({d: draw(st.lists(vector, max_size=3)) for d in ins}, sizes)


def everywhere(layout):
    """All inputs of a layout, as keyword arguments."""
    ranges = [range(layout.in_size(d)) for d in layout.in_dims]
    return [dict(zip(layout.in_dims, values, strict=True)) for values in itertools.product(*ranges)]


def numbered(layout, found):
    """Coordinates as keyword arguments of the next map."""
    return dict(zip(layout.out_dims, found, strict=True))


@given(columns_of, st.integers(0, 63))
@laws
def test_span_solves_with_early_columns(columns, target):
    found = Span(columns).solve(target)
    sums = {f2.apply(columns, mask) for mask in range(1 << len(columns))}
    assert (found is not None) == (target in sums)
    assert (target in Span(columns)) == (target in sums)
    if found is not None:
        assert f2.apply(columns, found) == target
        assert found & ~f2.independent(columns) == 0


@given(columns_of)
@laws
def test_rank_and_kernel(columns):
    sums = [f2.apply(columns, mask) for mask in range(1 << len(columns))]
    assert 1 << f2.rank(columns) == len(set(sums))
    kernel = f2.kernel(columns)
    assert len(kernel) == len(columns) - f2.rank(columns)
    assert all(f2.apply(columns, vector) == 0 for vector in kernel)
    assert f2.rank(kernel) == len(kernel)


@given(linear())
@laws
def test_a_layout_is_linear_and_told_by_its_bases(layout):
    for inputs in everywhere(layout):
        expected = [0] * len(layout.out_dims)
        for d, value in inputs.items():
            for bit, basis in enumerate(layout.bases(d)):
                if value >> bit & 1:
                    expected = [a ^ b for a, b in zip(expected, basis, strict=True)]
        assert layout(**inputs) == tuple(expected)
        assert layout.flat(**inputs) == np.ravel_multi_index(expected, layout.out_sizes)
    assert LinearLayout.make({d: layout.bases(d) for d in layout.in_dims}, layout.outs) is layout


@given(linear())
@laws
def test_arrays_and_tables_agree_with_integers(layout):
    a, b = np.arange(layout.in_size("a")), np.arange(layout.in_size("b"))[:, None]
    flat = np.broadcast_to(layout.flat(a=a, b=b), (len(b), len(a)))
    assert flat.tolist() == [[layout.flat(a=i, b=j) for i in a.tolist()] for j in b[:, 0].tolist()]
    assert [t ^ layout.flat(b=1) for t in layout.table("a")] == [layout.flat(a=i, b=1) for i in a.tolist()]


@given(linear())
@laws
def test_layouts_are_interned_and_survive_copies(layout):
    assert pickle.loads(pickle.dumps(layout)) is layout  # noqa: S301 - our own bytes
    assert copy.deepcopy(layout) is layout


@given(linear(), st.data())
@laws
def test_compose(layout, data):
    outer = data.draw(linear(ins=layout.out_dims, outs=("p", "q")))
    sizes = {d: outer.in_bits(d) for d in outer.in_dims}
    if sizes != {d: f2.log2(n) for d, n in layout.outs}:
        vectors = {d: [(1 << bit & 7, 0) for bit in range(f2.log2(n))] for d, n in layout.outs}
        outer = LinearLayout.make(vectors, [("p", 8), ("q", 1)])
    both = layout.compose(outer)
    for inputs in everywhere(layout):
        assert both(**inputs) == outer(**numbered(layout, layout(**inputs)))


@given(linear(("a", "b"), ("x", "y")), linear(("b", "c"), ("y", "z")))
@laws
def test_product_puts_one_map_beside_the_other(low, high):
    both = low * high
    assert both.in_dims == ("a", "b", "c")
    assert both.out_dims == ("x", "y", "z")
    for left in everywhere(low):
        for right in everywhere(high):
            above = {d: low.in_bits(d) if d in low.in_dims else 0 for d in both.in_dims}
            merged = {d: left.get(d, 0) + (right.get(d, 0) << above[d]) for d in both.in_dims}
            a, b = numbered(low, low(**left)), numbered(high, high(**right))
            expected = (a["x"], a["y"] + b["y"] * low.out_size("y"), b["z"])
            assert both(**merged) == expected


@given(linear(), linear())
@laws
def test_divide_undoes_the_product(low, high):
    both = low * high
    assert both.divide_left(low) is high
    assert both.divide_right(high) is low


def test_divide_says_no():
    four = LinearLayout.identity(4, "a", "x")
    assert four.divide_left(LinearLayout.zeros(2, "a", "x")) is None
    assert four.divide_left(LinearLayout.identity(8, "a", "x")) is None
    assert four.divide_left(LinearLayout.identity(2, "b", "x")) is None
    swapped = LinearLayout.make({"a": [[2], [1]]}, [("x", 4)])
    assert swapped.divide_left(LinearLayout.identity(2, "a", "x")) is None


@given(linear_tiles())
@laws
def test_pseudo_invert_finds_each_element_at_its_lowest_place(tile):
    spelled, shape = tile
    layout = spelled.to_linear(shape)
    inverse = layout.pseudo_invert()
    free = layout.free_variables()
    for flat in range(int(np.prod(shape))):
        place = inverse(**numbered(layout, layout.coordinates(flat)))
        inputs = dict(zip(inverse.out_dims, place, strict=True))
        assert layout.flat(**inputs) == flat
        assert all(inputs[d] & mask == 0 for d, mask in free.items())


@given(tiles())
@laws
def test_invert(tile):
    layout = tile[0].to_linear(tile[1])
    one_each = layout
    for d, mask in layout.free_variables().items():
        one_each = one_each.with_columns(d, [c for bit, c in enumerate(layout.columns[d]) if not mask >> bit & 1])
    assert one_each.is_invertible
    back = one_each.invert()
    assert back.is_invertible
    there_and_back = one_each.compose(back)
    for d in one_each.in_dims:
        for bit, basis in enumerate(there_and_back.bases(d)):
            assert numbered(back, basis) == {e: 1 << bit if e == d else 0 for e in one_each.in_dims}


@given(shapes(2, 1 << 9).flatmap(lambda shape: st.tuples(linear_tiles(shape=shape), linear_tiles(shape=shape))))
@laws
def test_invert_and_compose_leads_from_one_layout_to_another(pair):
    src, dst = (spelled.to_linear(shape) for spelled, shape in pair)
    assert src.invert_and_compose(dst).compose(dst) is src


def test_free_variables_prefer_registers():
    layout = LinearLayout.make({"register": [[1], [0]], "lane": [[2], [1]], "warp": [[3]]}, [("dim0", 4)])
    assert layout.free_variables() == {"register": 0b10, "lane": 0b10, "warp": 0b1}
    assert layout.rank() == 2
    assert layout.is_surjective
    assert not layout.is_injective


def test_sublayout_reorder_rename_reshape():
    layout = LinearLayout.make({"a": [[1, 2], [0, 4]], "b": [[2, 1]]}, [("x", 4), ("y", 8)])
    assert layout.sublayout(["b"], ["y"]) is LinearLayout.make({"b": [[1]]}, [("y", 8)])
    assert layout.permute_outs(["y", "x"]).bases("a") == ((2, 1), (4, 0))
    assert layout.permute_ins(["b", "a"]).in_dims == ("b", "a")
    assert layout.rename_ins({"a": "lane"}).in_dims == ("lane", "b")
    assert layout.rename_outs({"x": "row"}).out_dims == ("row", "y")
    assert layout.reshape_outs([("flat", 32)]).bases("a") == ((10,), (4,))
    padded = LinearLayout.make({"a": [[0], [1], [0]]}, [("x", 2)])
    assert padded.remove_zero_bases("a") is LinearLayout.make({"a": [[1]]}, [("x", 2)])


def test_repr_shows_bases_and_shape():
    layout = LinearLayout.make({"register": [[0, 1]], "lane": []}, [("dim0", 1), ("dim1", 2)])
    assert repr(layout) == "LinearLayout(register: 1->(0, 1); lane: none -> dim0 1, dim1 2)"


def test_a_layout_cannot_be_changed():
    layout = LinearLayout.identity(4, "a", "x")
    with pytest.raises(AttributeError):
        layout.in_dims = ("b",)
    with pytest.raises(LayoutError):
        layout.in_bits("b")
