"""`LayoutTensorIter`: over memory and over views, circular, masked and at run time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.views.test_access import refused
from tests.views.traced import Memory, Scalar, known, numbers, view
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import LayoutTensor, LayoutTensorIter


def test_a_buffer_tile_by_tile():
    it = LayoutTensorIter(np.arange(16, dtype=np.int16), Layout.row_major(2, 2))
    found = []
    for _ in range(4):
        found.append(np.asarray(it[()]).tolist())
        it += 1
    assert found == np.arange(16).reshape(4, 2, 2).tolist()
    assert "4" in refused("view-iterator-end", it.get)
    with pytest.raises(IndexError):
        it[()]


def test_going_on_makes_another_iterator():
    it = LayoutTensorIter(np.arange(12), Layout(3))
    assert it.next().get()[0] == 3 and it.next(3)[()][0] == 9 and it.next_unsafe(2)[()][0] == 6 and (it + 1)[()][0] == 3
    assert it[()][0] == 0 and it[()].layout == Layout(3)
    assert "tile 0 of 4" in repr(it)


def test_offset_stride_and_bound():
    memory = np.arange(20)
    it = LayoutTensorIter(memory, Layout(3), 17, stride=4, offset=2)
    assert [int(it.next(k)[()][0]) for k in range(4)] == [2, 6, 10, 14]
    refused("view-iterator-end", it.next(4).get)
    assert LayoutTensorIter(memory, Layout(3), 16, stride=4, offset=2).next(2)[()][2] == 12
    refused("view-iterator-end", LayoutTensorIter(memory, Layout(3), 16, stride=4, offset=2).next(3).get)
    refused("view-iterator-bound", LayoutTensorIter, memory, Layout(21))
    refused("view-unknown-layout", LayoutTensorIter, memory, Layout(UNKNOWN, 1))


def test_circular_iterators_start_over():
    it = LayoutTensorIter(np.arange(12), Layout(4), circular=True, offset=4)
    assert [int(it.next(k)[()][0]) for k in range(6)] == [4, 8, 0, 4, 8, 0]


def test_the_tiles_of_a_view():
    array = np.arange(48).reshape(6, 8)
    t = LayoutTensor(array)
    for i in range(3):
        it = t.tiled_iterator(2, 4, axis=1)(i, 0)
        for j in range(2):
            assert np.array_equal(np.asarray(it[()]), array[2 * i : 2 * i + 2, 4 * j : 4 * j + 4])
            it += 1
    assert np.array_equal(np.asarray(t.tiled_iterator[2, 4](1, 1)[()]), array[2:4, 4:])
    assert str(t.tiled_iterator[2, 4](0, 0).next(2)[()].history) == "view.tiled_iterator[2, 4, axis=0].next(2)"


def test_the_tiles_of_masked_and_nested_views():
    array = np.arange(35).reshape(5, 7)
    it = LayoutTensor(array, masked=True).tiled_iterator(2, 3, axis=1)(2, 0)
    for j in range(3):
        tile = it.next(j)[()]
        assert np.array_equal(np.asarray(tile), array[4:, 3 * j : 3 * j + 3]) and tile.dim(1) == min(3, 7 - 3 * j)
    nested = LayoutTensor(np.arange(16), Layout(((2, 2), (2, 2)), ((2, 8), (1, 4))))
    assert np.asarray(nested.tiled_iterator(2, 2, axis=1)(1, 0).next()[()]).tolist() == [[12, 13], [14, 15]]


def test_an_iterator_at_run_time_carries_one_number():
    memory = Memory(np.arange(64.0))
    it = LayoutTensorIter(
        LayoutTensor.from_fields(memory, 0, Layout(64), Layout(1, 1), (64,), (1,), None, False, "t"), Layout(8)
    )
    tile = it.next(Scalar("k", 3))[()]
    assert str(tile.offset) == "(k * 8)" and numbers(tile).tolist() == list(range(24, 32))
    assert memory.bounds == [(["k"], ["8"], "memory.next(k)")]
    ring = LayoutTensorIter.from_fields(*(True if name == "circular" else getattr(it, name) for name in it.FIELDS))
    assert (
        str(ring.next(Scalar("k", 9)).position) == "(k % 8)" and str(ring.next_unsafe(Scalar("k", 1)).position) == "k"
    )


def test_iterators_beyond_the_end_of_a_masked_view_that_divides():
    t = view(Layout.row_major(16, 8), masked=True)
    it = t.tiled_iterator(4, 8)(2, 0)
    assert it[()].limits is None and it.next()[()].limits is None
    assert known(it.next(Scalar("k", 1))[()].dim(0)) == 4
    assert known(it.next(Scalar("k", 2))[()].dim(0)) == 0


def test_masked_tiles_at_run_time():
    n = Scalar("n", 21)
    it = view(Layout(UNKNOWN, 1), sizes=(n,), masked=True).tiled_iterator(8)(Scalar("k", 2))
    assert known(it[()].dim(0)) == 5 and known(it.next()[()].dim(0)) == 0


def test_what_an_iterator_is_not():
    it = LayoutTensorIter(np.arange(16), Layout(4))
    refused("view-iterator-for", lambda: list(it))
    refused("view-iterator-key", lambda: it[0])
    refused("view-immutable", setattr, it, "position", 1)
    refused("view-layout-needed", LayoutTensorIter, Pointer(), Layout(4))
    refused("view-layout-needed", LayoutTensor, Pointer())
    refused("view-axis", lambda: LayoutTensor(np.zeros((4, 4))).tiled_iterator(2, 2, axis=2))
    refused("view-tile-rank", lambda: LayoutTensor(np.zeros((4, 4))).tiled_iterator(2, 2)(0))
    refused("view-tile-index", lambda: LayoutTensor(np.zeros((4, 4))).tiled_iterator(2, 2)(2, 0))


class Pointer:
    """Memory of unknown length."""


@pytest.fixture(autouse=True)
def pointers(monkeypatch):
    from weft.views import storage

    def opener(value):
        return storage.Opened(Memory(np.zeros(4))) if isinstance(value, Pointer) else None

    monkeypatch.setattr(storage, "OPENERS", {**storage.OPENERS, 2: opener})


def test_tiles_of_another_layout():
    it = LayoutTensorIter(np.arange(24), Layout.row_major(2, 3)).next()
    other = it.reshape[Layout.row_major(3, 2)]().next()
    assert np.asarray(other.get()).tolist() == [[12, 13], [14, 15], [16, 17]]
    assert np.asarray(it.reshape(6)[()]).tolist() == [*range(6, 12)]
