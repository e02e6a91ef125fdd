"""Elements of views: indices, vectors, loads and stores; and the arithmetic that they cost in a kernel."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import weft
from tests.views.traced import Scalar, numbers, view
from weft import language as gl
from weft.errors import UserError
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import AddressSpace, LayoutTensor, coord


def refused(code, function, *args):
    with pytest.raises(UserError) as caught:
        function(*args)
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


def test_an_element_is_a_number_that_also_takes_an_index():
    t = LayoutTensor(np.arange(12.0).reshape(3, 4))
    x = t[1, 2]
    assert x == 6 and x[0] == 6 and float(x) == 6 and len(x) == 1 and x + 1 == 7
    t[1, 2] = 0
    assert x == 6, "an element is a value, not a view"
    assert t[1, 2] == 0


def test_an_element_of_integers_is_an_index():
    t = LayoutTensor(np.array([2, 0, 1]))
    assert [10, 11, 12][t[0]] == 12
    assert t[t[0]] == 1


def test_writing_through_one_view_is_seen_through_all():
    array = np.zeros((4, 4), np.float32)
    t = LayoutTensor(array)
    tile = t.tile[2, 2](1, 1)
    tile[0, 1] = 5
    tile[1, 1] += 2
    assert array[2, 3] == t[2, 3] == 5 and array[3, 3] == 2


def test_nested_layouts_take_flattened_indices():
    values = np.arange(16)
    t = LayoutTensor(values, Layout(((2, 2), (2, 2)), ((1, 4), (2, 8))))
    assert t[1, 0, 0, 1] == 9
    assert t.rank == 2 and t.shape == (4, 4)
    text = refused("view-index-count", lambda: t[1, 0, 1])
    assert "((2, 2), (2, 2))" in text and "rank 2" in text and "flattened 4" in text


def test_nested_layouts_take_an_index_for_an_axis():
    t = LayoutTensor(np.arange(16), Layout(((2, 2), (2, 2)), ((1, 4), (2, 8))))
    for i, j in np.ndindex(4, 4):
        assert t[i, j] == t[(i % 2, i // 2), j] == t[i, (j % 2, j // 2)] == t.layout(i, j)
    t[3, 2] = 99
    assert t[1, 1, 0, 1] == t.load(coord(3, 2)) == 99
    refused("view-index", lambda: t[4, 0])
    refused("view-index", lambda: t[-1, 0])
    refused("view-index-count", lambda: t[(0, 0, 0), 0, 0])
    index = Scalar("i", 3)
    row = view(Layout(((2, 4),), ((1, 8),)))
    assert row[index] == 9 and row.storage.bounds[0][:2] == (["(i % 2)", "(i // 2)"], ["2", "4"])


def test_numbers_and_pointers_at_coordinates():
    array = np.arange(32.0, dtype=np.float32).reshape(4, 8)
    t = LayoutTensor(array)
    assert t.load(coord(2, 3)) == t.load_linear[1](coord(2, 3)) == t.load_scalar(2, 3) == 19
    assert t.vectorize[1, 4]().load_scalar(coord(2, 1)) == 20
    t.store_linear(coord(3, 6), np.array([7, 8]))
    t.aligned_store[2](0, 0, 5)
    assert array[3, 6:].tolist() == [7, 8] and array[0, :2].tolist() == [5, 5]
    assert t.ptr_at_offset(coord(2, 3)) == t.ptr_at_offset(2, 3) == t.ptr + 19 * 4
    assert (t.flat_rank, t.element_type) == (2, np.float32)


def test_vectors_of_several_axes_are_in_logical_order():
    t = LayoutTensor(np.arange(32.0).reshape(4, 8)).vectorize[2, 4]()
    assert t[1, 1].tolist() == [20, 21, 22, 23, 28, 29, 30, 31]
    t[1, 1] = np.arange(8)
    assert t[1, 1].tolist() == list(range(8))
    t[1, 1] = 3
    assert t[1, 1].tolist() == [3] * 8


def test_load_and_store_move_consecutive_numbers():
    array = np.arange(32.0).reshape(4, 8)
    t = LayoutTensor(array)
    v = t.load[4](1, 4)
    assert v.tolist() == [12, 13, 14, 15]
    t.store(2, 0, v * 2)
    assert array[2, :4].tolist() == [24, 26, 28, 30]
    t.store(3, 7, 1.5)
    assert array[3, 7] == 1.5 and t.load(2)(3, 6)[1] == 1.5
    # Along the axis of stride 1, whichever that is.
    assert LayoutTensor(np.asfortranarray(array)).load[2](2, 0).tolist() == [array[2, 0], array[3, 0]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).flatmap(lambda shape: st.tuples(st.just(shape), st.data())))
def test_every_element_is_numpys(case):
    shape, data = case
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    steps = data.draw(st.lists(st.sampled_from([1, 2, -1]), min_size=len(shape), max_size=len(shape)))
    array = array.transpose(order)[tuple(slice(None, None, step) for step in steps)]
    t = LayoutTensor(array)
    assert t.shape == array.shape
    for index in np.ndindex(*array.shape):
        assert t[index] == array[index]
    assert np.shares_memory(np.asarray(t), array)


# Bad indices


@pytest.mark.parametrize("index", [(4, 0), (0, 4), (-1, 0)])
def test_an_index_out_of_range(index):
    t = LayoutTensor(np.zeros((4, 4)), name="t")
    assert "axis" in refused("view-index", lambda: t[index])
    with pytest.raises(IndexError):
        t[index]


def test_what_is_no_index():
    t = LayoutTensor(np.zeros((4, 4)), name="t")
    for bad in (slice(0, 2), 1.5, "a", None):
        refused("view-index-kind", lambda bad=bad: t[0, bad])
    refused("view-iteration", lambda: list(t))
    refused("view-index-kind", lambda: t[Scalar("i", 1), 0])


def test_loads_that_do_not_fit():
    nested = LayoutTensor(np.arange(16), Layout(((2, 2), (2, 2)), ((1, 4), (2, 8))))
    assert nested.load[2](2, 1).tolist() == nested.load[2](0, 1, 1, 0).tolist() == [6, 7]
    refused("view-index", lambda: nested.load[2](1, 0))
    t = LayoutTensor(np.zeros((4, 8), np.float32))
    refused("view-load-vectors", lambda: t.vectorize[1, 4]().load[4](0, 0))
    refused("view-load-width", lambda: t.load[0](0, 0))
    assert ".load[4](i, j)" in refused("view-load-width", lambda: t.load(0, 0))
    refused("view-load-contiguous", lambda: LayoutTensor(np.zeros((4, 8))[:, ::2]).load[2](0, 0))
    assert "offset 1" in refused("view-vector-aligned", lambda: view(Layout.row_major(4, 8)).load[4](0, 1))
    refused("view-vector-aligned", lambda: view(Layout.row_major(4, 6)).load[4](0, 0))
    refused("view-index", lambda: t.load[4](0, 8))
    refused("view-vector-length", lambda: t.vectorize[1, 4]().__setitem__((0, 0), [1, 2]))


def test_a_view_cannot_be_changed():
    t = LayoutTensor(np.zeros(4))
    refused("view-immutable", setattr, t, "masked", True)
    refused("view-axis", lambda: t.dim(1))


# In a kernel


def test_an_index_costs_what_a_hand_written_one_does():
    t = view(Layout.row_major(16, 32))
    t[Scalar("i", 3), Scalar("j", 5)]
    t[Scalar("i", 3), 5]
    t[0, Scalar("j", 5)]
    t[2, 3]
    assert [base for _, base, _, _ in t.storage.log] == ["((i * 32) + j)", "((i * 32) + 5)", "j", "67"]


def test_run_time_strides_and_sizes():
    n = Scalar("n", 32)
    t = view(Layout.row_major(UNKNOWN, UNKNOWN), sizes=(Scalar("m", 16), n), strides=(n, 1))
    assert t[Scalar("i", 3), Scalar("j", 5)] == 3 * 32 + 5
    assert t.storage.log[-1][1] == "((i * n) + j)"
    assert t.storage.bounds == [(["i", "j"], ["m", "n"], "t")]
    assert t.shape == (UNKNOWN, UNKNOWN) and str(t.dim(1)) == "n" and str(t.dim[1]()) == "n"


def test_run_time_indices_are_checked_with_the_history():
    t = view(Layout.row_major(16, 32))
    part = t.tile[4, 4](2, Scalar("j", 1)).vectorize[1, 4]()
    part[Scalar("i", 1), 0]
    assert part.storage.bounds[-1] == (["i"], ["4"], "t.tile[4, 4](2, j).vectorize[1, 4]()")
    with pytest.raises(IndexError, match=r"t\.tile"):
        part[Scalar("i", 4), 0]
    t[0, Scalar("j", 1)]
    assert t.storage.where == ("along axis 1 of",)
    t.slice[:, Scalar("j", 1)]()
    assert t.storage.where == ("along axis 1 of",)


def test_vectors_are_one_access():
    t = view(Layout.row_major(16, 32)).vectorize[1, 4]()
    assert t[Scalar("i", 1), 2].tolist() == [40, 41, 42, 43]
    _, base, places, _ = t.storage.log[-1]
    assert base == "((i * 32) + 8)" and places.const == (0,) and places.width == 4


def test_offsets_beyond_32_bits_are_widened():
    t = view(Layout.row_major(1 << 16, 1 << 16), np.zeros(1))
    part = t.tile[1, 4](Scalar("i", 0), 0)
    assert str(part.offset) == "(wide(i) * 65536)"
    part[0, Scalar("j", 0)]
    assert part.storage.log[-1][1] == "((wide(i) * 65536) + j)"


def test_local_memory_needs_no_alignment():
    t = view(Layout.row_major(3, 5), space=AddressSpace.LOCAL)
    assert t.load[2](1, 1).tolist() == [6, 7]


def test_numbers_of_a_view_by_definition():
    t = view(Layout(((2, 2), 3), ((1, 6), 2)))
    assert numbers(t).tolist() == [[t.layout(i, j) for j in range(3)] for i in range(4)]


def test_a_size_takes_parentheses():
    t = LayoutTensor(np.zeros((4, 8)))
    assert t.shape == (4, 8) and t.shape[1]() == 8 and t.num_elements() == 32
    assert type(t.shape[1]()) is int


def test_a_view_by_its_newer_names():
    array = np.arange(32.0).reshape(4, 8)
    t = weft.TileTensor(array, weft.row_major[4, 8]())
    assert t.to_layout_tensor() is t and weft.TileTensor is LayoutTensor
    assert t.aligned_load[4](gl.Index(1, 4)).tolist() == [12, 13, 14, 15]
    t.store[4](gl.Coord(2, 0), 5)
    t.store[2](3, 0, t.load[2](0, 0))
    assert array[2].tolist() == [5, 5, 5, 5, 20, 21, 22, 23] and array[3, :3].tolist() == [0, 1, 26]
    assert weft.col_major(4, 8) == Layout.col_major(4, 8) == weft.col_major[4, 8]()
    assert weft.row_major(gl.Coord(4, 8)) == Layout.row_major(4, 8)
    assert t.ElementType(3) == np.float64(3)


def test_a_method_of_constants_is_complete_in_one_call():
    t = LayoutTensor(np.arange(32.0).reshape(4, 8))
    assert t.reshape(Layout.row_major(8, 4))[1, 0] == t.reshape[8, 4]()[1, 0] == t.reshape(8, 4)()[1, 0] == 4
    assert t.vectorize(1, 4).shape == t.vectorize(1, 4)().shape == t.vectorize[1, 4]().shape == (4, 2)
    assert t.tile_type(2, 2) == t.tile_type(2, 2)() == t.tile_type[2, 2]()


def test_a_smaller_alignment_splits_an_access():
    t = LayoutTensor(np.arange(64, dtype=np.float32))
    assert t.load(width=4, load_alignment=8)(2).tolist() == [2, 3, 4, 5]
    t.store(width=4, store_alignment=4)(1, 0)
    assert t.array[:6].tolist() == [0, 0, 0, 0, 0, 5]
    late = view(Layout(64))
    refused("view-vector-aligned", late.load[4], 2)
    refused("view-vector-aligned", late.load(width=4, load_alignment=8), 1)
    refused("view-alignment", t.load(width=4, load_alignment=6), 2)
