"""Tiles, splits, vectors, fragments of threads, slices, transposes and reshapes: against NumPy's indexing."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.views.strategies import by_definition, host, nested_layouts, shapes
from tests.views.test_access import refused
from tests.views.traced import Scalar, known, numbers, view
from weft.errors import UserError
from weft.layout.nested.composed import Swizzle
from weft.layout.nested.divide import zipped_divide_by_shape
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import All, Idx, LayoutTensor


def divisor(n):
    return st.sampled_from([d for d in range(1, n + 1) if n % d == 0])


# Tiles


@given(shapes(), st.data(), st.booleans())
def test_tiles_are_numpys_blocks(shape, data, masked):
    array = np.arange(np.prod(shape)).reshape(shape)
    sizes = [data.draw(st.integers(1, n) if masked else divisor(n)) for n in shape]
    where = [data.draw(st.integers(0, -(-n // size) - 1)) for n, size in zip(shape, sizes, strict=True)]
    tile = LayoutTensor(array, masked=masked).tile(*sizes)(*where)
    block = array[tuple(slice(i * size, (i + 1) * size) for i, size in zip(where, sizes, strict=True))]
    assert tile.shape == tuple(sizes)
    assert tuple(tile.dim(axis) for axis in range(tile.rank)) == block.shape
    assert np.array_equal(np.asarray(tile), block) and np.shares_memory(np.asarray(tile), array)
    assert tile.bound_check_required == (block.shape != tuple(sizes))


def test_a_tile_has_the_order_of_its_parent():
    t = host(Layout.col_major(8, 8))
    assert t.tile[2, 4](1, 1).layout == Layout((2, 4), (1, 8))
    assert host(Layout(8)).tile[4](1).layout == Layout(4)


def test_tiles_of_a_tiled_layout_are_its_tiles():
    tiled = host(Layout(((8, 2), (8, 2)), ((8, 128), (1, 64))))
    tile = tiled.tile[8, 8](1, 0)
    assert tile.layout == Layout.row_major(8, 8) and tile.offset == 128
    assert tiled.tile[16, 8](0, 1).layout == Layout(((8, 2), 8), ((8, 128), 1))
    assert tiled.tile_type[8, 8]().layout == Layout.row_major(8, 8)
    assert tiled.tile_type[8, 8]() == tile.type
    inner = tiled.tile[4, 2](3, 5)
    assert inner.layout == Layout((4, 2), (8, 1)) and inner.offset == tiled.layout((4, 1), (2, 1))
    assert inner[3, 1] == tiled[7, 1, 3, 1]
    assert "8, 16" in refused("view-tile-nested", lambda: tiled.tile[6, 8](0, 0))


def test_a_size_that_does_not_divide_makes_masked_tiles():
    array = np.arange(35.0).reshape(5, 7)
    t = LayoutTensor(array)
    edge = t.tile[4, 4](1, 1)
    assert edge.shape == (4, 4) and (edge.dim(0), edge.dim(1)) == (1, 3) and edge.masked
    assert np.array_equal(np.asarray(edge), array[4:, 4:]) and not t.masked
    refused("view-index", lambda: edge[1, 0])
    edge.fill(-1)
    assert (array == -1).sum() == 3
    inside = t.tile[4, 4](0, 0)
    assert (inside.dim(0), inside.dim(1)) == (4, 4)
    refused("view-tile-index", lambda: t.tile[4, 4](2, 0))
    last = t.tiled_iterator(5, 4, axis=1)(0, 1)[()]
    assert last.dim(1) == 3
    late = view(Layout.row_major(5, 7)).tile[4, 4](Scalar("i", 1), 0)
    assert known(late.dim(0)) == 1 and str(late.limits[0]) == "(5 - (i * 4))"


def test_vectors_of_the_host_need_no_alignment():
    t = LayoutTensor(np.arange(72, dtype=np.float32).reshape(4, 18)).slice[:, 1:17]()
    assert t.vectorize[1, 4]()[2, 1].tolist() == [41, 42, 43, 44]
    t.vectorize[1, 4]()[2, 1] = 0
    assert t.load[4](2, 4).tolist() == [0] * 4 and t.load[2](2, 7).tolist() == [0, 45]
    refused("view-vector-aligned", t.vectorize[1, 4]().__weft_view__)
    assert t.vectorize[1, 1]().__weft_view__()


def test_tiles_of_tiles():
    array = np.arange(21 * 10).reshape(21, 10)
    t = LayoutTensor(array, masked=True).tile[8, 8](2, 1)
    assert (t.dim(0), t.dim(1)) == (5, 2)
    inner = t.tile[4, 4](1, 0)
    assert np.array_equal(np.asarray(inner), array[20:21, 8:10])
    assert t.tile[4, 4](1, 1).dim(1) == 0 and np.asarray(t.tile[4, 4](1, 1)).size == 0


def test_what_is_no_tile():
    t = LayoutTensor(np.zeros((6, 8)), name="t")
    refused("view-tile-rank", lambda: t.tile[4])
    refused("view-tile-rank", lambda: t.tile[2, 4](0))
    refused("view-tile-size", lambda: t.tile[0, 4])
    refused("view-tile-size", lambda: t.tile["2", 4])
    refused("view-tile-index", lambda: t.tile[2, 4](3, 0))
    refused("view-tile-index", lambda: LayoutTensor(np.zeros((5, 8)), masked=True).tile[2, 4](3, 0))


def test_a_tile_at_run_time():
    n = Scalar("n", 24)
    t = view(Layout.row_major(UNKNOWN, UNKNOWN), sizes=(Scalar("m", 20), n), strides=(n, 1))
    tile = t.tile[4, 8](Scalar("i", 2), Scalar("j", 1))
    assert tile.layout == Layout((4, 8), (UNKNOWN, 1))
    assert np.array_equal(numbers(tile), (np.arange(20 * 24).reshape(20, 24))[8:12, 8:16])
    assert ["((i * 4) + 3)"] in [bounds[0] for bounds in t.storage.bounds]


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_masked_tiles_at_run_time(size, width, data):
    i = data.draw(st.integers(0, -(-size // width)))
    t = view(Layout(UNKNOWN, 1), sizes=(Scalar("n", size),), masked=True)
    tile = t.tile(width)(Scalar("i", i))
    assert known(tile.dim(0)) == max(min(size - i * width, width), 0)
    threads = data.draw(st.integers(1, 6))
    for thread in range(threads):
        fragment = tile.distribute[Layout(threads)](Scalar("id", thread))
        inside = [k for k in range(thread, width, threads) if i * width + k < size]
        assert max(known(fragment.dim(0)), 0) == len(inside)


def test_tiles_at_run_time_beyond_the_end_of_a_masked_view_are_empty():
    """Of sizes that divide: coordinates that are known need no limit, others may lie beyond, as in a rounded-up grid."""
    t = view(Layout.row_major(16, 8), masked=True)
    assert t.tile[4, 4](3, 1).limits is None
    for i, left in ((3, 4), (4, 0), (9, 0)):
        tile = t.tile[4, 4](Scalar("i", i), 1)
        assert known(tile.dim(0)) == left and tile.limits[1] is None
        assert all(
            max(known(tile.tile[2, 2](Scalar("y", y), 0).dim(0)), 0) == max(min(left - 2 * y, 2), 0) for y in range(3)
        )
    # Beyond a tile that lies inside other elements follow; they are not of the tile.
    inner = t.tile[8, 8](Scalar("i", 0), 0).tile[2, 8](Scalar("y", 4), 0)
    assert known(inner.dim(0)) == 0


# Splits


@given(shapes(), st.data())
def test_splits_are_numpys(shape, data):
    array = np.arange(np.prod(shape)).reshape(shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(divisor(shape[axis]))
    parts = LayoutTensor(array).split[count, axis]()
    for part, expected in zip(parts, np.split(array, count, axis), strict=True):
        assert np.array_equal(np.asarray(part), expected)
    last = LayoutTensor(array).split(count, axis=axis)(count - 1)
    assert np.array_equal(np.asarray(last), expected)


def test_what_is_no_split():
    t = LayoutTensor(np.zeros((6, 8)))
    refused("view-split", lambda: t.split[4]())
    refused("view-axis", lambda: t.split[2, 2]())
    refused("view-tile-index", lambda: t.split[2, 0](2))
    refused("view-unknown-size", lambda: view(Layout(UNKNOWN, 1), sizes=(Scalar("n", 8),)).split[2]())


# Vectors


@given(shapes(), st.data())
def test_vectors_hold_the_same_numbers(shape, data):
    # Rows are padded, so that vectors of every width start where they may.
    padded = np.arange(np.prod(shape[:-1], dtype=int) * 16, dtype=np.float64).reshape(*shape[:-1], 16)
    array = padded[..., : shape[-1]]
    widths = [data.draw(divisor(n)) for n in shape]
    vectors = LayoutTensor(array).vectorize(*widths)()
    assert vectors.shape == tuple(n // w for n, w in zip(shape, widths, strict=True))
    assert np.array_equal(np.asarray(vectors), array)
    for index in np.ndindex(*vectors.shape):
        block = array[tuple(slice(i * w, (i + 1) * w) for i, w in zip(index, widths, strict=True))]
        assert np.array_equal(np.atleast_1d(vectors[index]), block.reshape(-1))


def test_the_layouts_of_vectors():
    t = host(Layout.row_major(16, 16), dtype=np.float32)
    v = t.vectorize[1, 4]()
    assert v.layout == Layout((16, 4), (16, 4)) and v.element_layout == Layout((1, 4), (0, 1)) and v.element_size == 4
    assert v.vectorize[1, 2]().element_layout == Layout((1, 8), (0, 1))
    assert t.vectorize[1, 1]().element_layout == t.element_layout
    along = t.vectorize[4, 1]()
    assert along.element_layout == Layout((4, 1), (16, 0)) and along[1, 2].tolist() == [66, 82, 98, 114]


def test_vectors_of_a_masked_axis_at_run_time():
    t = view(Layout(UNKNOWN, 1), sizes=(Scalar("n", 20),), masked=True).tile(16)(Scalar("i", 1))
    v = t.vectorize[4]()
    assert str(v.limits[0]) == "((n - (i * 16)) // 4)" and known(v.dim(0)) == 1
    assert t.storage.bounds[-1][:2] == (["((n - (i * 16)) % 4)"], ["1"])
    odd = view(Layout(UNKNOWN, 1), sizes=(Scalar("n", 19),), masked=True).tile(16)(Scalar("i", 1))
    with pytest.raises(IndexError, match="vectorize"):
        odd.vectorize[4]()


def test_what_is_no_vector():
    t = LayoutTensor(np.zeros((6, 6), np.float32))
    refused("view-vector-divides", lambda: t.vectorize[1, 4]())
    padded = Layout((4, 2), (3, 1))
    refused("view-vector-aligned", view(padded).vectorize[4, 2])
    refused("view-vector-aligned", view(Layout.row_major(4, 10)).slice[:, :8]().vectorize[1, 4])
    masked = LayoutTensor(np.zeros((6, 6), np.float32), masked=True).tile[4, 4](1, 1)
    refused("view-vector-divides", lambda: masked.vectorize[1, 4]())
    by_rows = view(Layout.row_major(8, UNKNOWN), sizes=(8, Scalar("n", 8)), strides=(Scalar("n", 8), 1))
    refused("view-vector-stride", lambda: by_rows.vectorize[4, 1]())


# Threads


@given(st.data(), st.booleans(), st.permutations(range(3)))
def test_fragments_are_every_nth_element(data, masked, order):
    rank = data.draw(st.integers(1, 3))
    counts = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    shape = [data.draw(st.integers(1, 7) if masked else st.sampled_from([n, 2 * n, 3 * n])) for n in counts]
    strides, step = {}, 1
    for axis in (k for k in order if k < rank):
        strides[axis] = step
        step *= counts[axis]
    threads = Layout(tuple(counts), tuple(strides[axis] for axis in range(rank)))
    array = np.arange(np.prod(shape)).reshape(shape)
    t = LayoutTensor(array, masked=masked)
    for where in np.ndindex(*counts):
        fragment = t.distribute[threads](threads(where))
        own = array[tuple(slice(i, None, n) for i, n in zip(where, counts, strict=True))]
        assert np.array_equal(np.asarray(fragment), own)


def test_a_thread_layout_in_column_order():
    t = host(Layout.row_major(4, 4))
    fragments = [by_definition(t.distribute[Layout.col_major(2, 2)](thread)).tolist() for thread in range(4)]
    assert fragments == [[[0, 2], [8, 10]], [[4, 6], [12, 14]], [[1, 3], [9, 11]], [[5, 7], [13, 15]]]


def test_fragments_of_vectors():
    fragment = host(Layout.row_major(16, 16), dtype=np.float32).vectorize[1, 4]().distribute[Layout.row_major(8, 4)](9)
    assert fragment.shape == (2, 1) and fragment[1, 0].tolist() == [164, 165, 166, 167]


def test_one_axis_can_be_distributed():
    array = np.arange(32).reshape(4, 8)
    threads = Layout.row_major(2, 4)
    for thread in range(8):
        rows = LayoutTensor(array).distribute(threads, axis=0)(thread)
        assert np.array_equal(np.asarray(rows), array[thread // 4 :: 2])
        row = LayoutTensor(array[0].copy()).distribute(threads, axis=1)(thread)
        assert np.array_equal(np.asarray(row), array[0, thread % 4 :: 4])


def test_thread_coordinates_cost_what_hand_written_ones_do():
    t = view(Layout.row_major(64, 64))
    tid = Scalar("tid", 37)
    Scalar.made.clear()
    assert str(t.distribute[Layout.row_major(8, 8)](tid).offset) == "(((tid // 8) * 64) + (tid % 8))"
    assert len(Scalar.made) == 4, "nothing is computed that is not needed"
    assert str(t.distribute[Layout.col_major(8, 8)](tid).offset) == "(((tid % 8) * 64) + (tid // 8))"
    assert str(t.distribute[Layout.row_major(64, 1)](tid).offset) == "(tid * 64)"
    nested = Layout(((2, 4), 8), ((1, 16), 2))
    fragment = t.distribute[nested](tid)
    assert str(fragment.offset) == "((((tid % 2) + ((tid // 16) * 2)) * 64) + ((tid // 2) % 8))"
    assert numbers(fragment)[0, 0] == (37 % 2 + 37 // 16 * 2) * 64 + 37 // 2 % 8
    assert t.storage.bounds[0] == (["tid"], ["64"], "t.distribute[((8, 8):(8, 1))](tid)")


def test_nested_views_are_distributed_by_their_modes():
    tiled = host(Layout(((2, 4), (4, 2)), ((4, 16), (1, 8))))
    whole = by_definition(tiled)
    for thread in range(8):
        assert np.array_equal(
            by_definition(tiled.distribute[Layout.row_major(4, 2)](thread)), whole[thread // 2 :: 4, thread % 2 :: 2]
        )


def test_nested_threads_divide_mode_by_mode():
    tiled = host(Layout(((4, 4), 2), ((1, 8), 4)))
    threads = Layout(((2, 2), 2), ((1, 2), 4))
    parts = [tiled.distribute[threads](thread) for thread in range(8)]
    assert {part.layout for part in parts} == {Layout(((2, 2), 1), ((2, 16), 0))}
    assert [part[0, 0, 0] for part in parts[:4]] == [tiled[i, j, 0] for j in (0, 1) for i in (0, 1)]
    assert sorted(np.concatenate([by_definition(part).reshape(-1) for part in parts])) == [*range(32)]
    counted = tiled.distribute[Layout((4, 2), (1, 4))](3)
    assert counted.layout == Layout((4, 1), (8, 0))
    edge = view(tiled.layout, masked=True).tile[16, 2](Scalar("block", 0), 0)
    refused("view-threads-masked", lambda: edge.distribute[threads](0))


@given(st.data())
def test_fragments_of_nested_threads_are_those_of_the_divide(data):
    """Of `zipped_divide_by_shape`: the first part of the result places the thread, the second its elements."""
    sizes = [data.draw(st.integers(1, 8)) for _ in range(3)]
    counts = [data.draw(divisor(size)) for size in sizes]

    def nested(numbers):
        strides, step = {}, 1
        for mode in data.draw(st.permutations(range(3))):
            strides[mode] = step
            step *= numbers[mode]
        (a, b, c), (x, y, z) = numbers, (strides[0], strides[1], strides[2])
        return Layout(((a, b), c), ((x, y), z))

    layout, threads = nested(sizes), nested(counts)
    places, elements = zipped_divide_by_shape(layout, threads)
    found = []
    for thread in range(threads.size()):
        fragment = host(layout).distribute[threads](thread)
        first = places(threads.idx2crd(thread))
        found += [fragment.offset + offset for offset in fragment.layout.offsets()]
        assert found[-elements.size() :] == [first + offset for offset in elements.offsets()]
    assert sorted(found) == [*range(layout.size())]


def test_a_swizzle_of_nested_threads():
    tiled = host(Layout(((4, 4), 2), ((1, 8), 4)))
    threads, swizzle = Layout(((2, 2), 2), ((1, 2), 4)), Swizzle(1, 0, 3)
    for thread in range(8):
        plain, swizzled = (tiled.distribute(threads, swizzle=each)(thread) for each in (None, swizzle))
        assert (swizzled.layout, swizzled.offset) == (plain.layout, swizzle(plain.offset))


def test_what_cannot_be_distributed():
    t = LayoutTensor(np.zeros((4, 4)))
    refused("view-threads", lambda: t.distribute[Layout.row_major(8, 4)](0))
    refused("view-threads-rank", lambda: t.distribute[Layout(4)](0))
    refused("view-threads-unknown", lambda: t.distribute[4](0))
    refused("view-threads-unknown", lambda: t.distribute[Layout(UNKNOWN, 1)](0))
    refused("view-thread-index", lambda: t.distribute[Layout.row_major(2, 2)](4))
    refused("view-axis", lambda: t.distribute(Layout.row_major(2, 2), axis=2)(0))


def test_a_swizzle_permutes_where_fragments_lie():
    swizzle = Swizzle(2, 0, 2)
    t = host(Layout.row_major(8, 16), dtype=np.float32).vectorize[1, 4]()
    threads = Layout.row_major(4, 4)
    for thread in range(16):
        plain, swizzled = t.distribute[threads](thread), t.distribute(threads, swizzle=swizzle)(thread)
        for k in range(2):
            assert swizzled[k, 0][0] // 4 == swizzle(int(plain[k, 0][0]) // 4)
    # Four rows are a period of this one: fragments of two threads a column are swizzled differently.
    refused("view-swizzle", lambda: t.distribute(Layout.row_major(2, 4), swizzle=Swizzle(2, 0, 2))(0))
    unknown = view(Layout.row_major(8, UNKNOWN), sizes=(8, Scalar("n", 8)), strides=(Scalar("n", 8), 1))
    refused("view-swizzle-stride", lambda: unknown.distribute(Layout.row_major(8, 8), swizzle=swizzle)(0))


# Slices, transposes, reshapes


@given(shapes(), st.data())
def test_slices_are_numpys(shape, data):
    array = np.arange(np.prod(shape)).reshape(shape)
    parts = []
    for n in shape:
        start = data.draw(st.integers(0, n))
        whole = st.builds(slice, st.just(start), st.integers(start, n), st.sampled_from([None, 1, 2]))
        parts.append(data.draw(st.one_of(st.just(slice(None)), whole, st.integers(0, n - 1))))
    found, expected = np.asarray(LayoutTensor(array).slice(*parts)()), array[tuple(parts)]
    assert np.array_equal(found.reshape(expected.shape), expected)


def test_slices_of_masked_views():
    array = np.arange(25).reshape(5, 5)
    t = LayoutTensor(array, masked=True).tile[4, 4](1, 0)
    assert np.array_equal(np.asarray(t.slice[0:2, 1:3]()), array[4:5, 1:3])
    refused("view-slice", lambda: t.slice[::2, :]())


def test_what_is_no_slice():
    t = LayoutTensor(np.zeros((4, 4)))
    refused("view-slice", lambda: t.slice[0:5, :]())
    refused("view-slice", lambda: t.slice[-1:, :]())
    refused("view-slice", lambda: host(Layout(((2, 2), 4))).slice[0:2, :]())
    refused("view-slice", lambda: host(Layout(((2, 2), 4))).slice[0, :]())
    refused("view-slice", lambda: t.slice((3, 2), All))
    refused("view-index-kind", lambda: t.slice[0:1.5, :]())
    refused("view-tile-rank", lambda: t.slice[0:2]())
    refused("view-index", lambda: t.slice[4, :]())


def test_a_slice_of_a_run_time_axis():
    n = Scalar("n", 8)
    t = view(Layout.row_major(UNKNOWN, 4), sizes=(n, 4))
    assert str(t.slice[2:, :]().dim(0)) == "(n - 2)" and t.slice[2:6, 1]().layout == Layout((4,), (4,))
    assert np.array_equal(numbers(t.slice[2:6, :]()), np.arange(32).reshape(8, 4)[2:6])
    assert [bounds[:2] for bounds in t.storage.bounds] == [(["1"], ["n"]), (["5"], ["n"]), (["5"], ["n"])]


def test_slices_in_parentheses():
    array = np.arange(32).reshape(4, 8)
    t = LayoutTensor(array)
    assert np.array_equal(np.asarray(t.slice((1, 3), All)), array[1:3])
    assert np.array_equal(np.asarray(t.slice(Idx[2], (4, 8))), array[2, 4:])


def test_slices_with_run_time_bounds():
    i, n = Scalar("i", 2), Scalar("n", 8)
    t = view(Layout.row_major(8, 4))
    part = t.slice((i, i + 3), All)
    assert part.layout == Layout((UNKNOWN, 4), (4, 1)) and known(part.dim(0)) == 3
    assert part[1, 2] == (2 + 1) * 4 + 2
    assert t.storage.bounds[0][:2] == (["i", "(i + 3)"], ["((i + 3) + 1)", "9"])
    whole = view(Layout.row_major(UNKNOWN, 4), sizes=(n, 4))
    assert str(whole.slice((i, None), All).dim(0)) == "(n - i)"
    assert whole.storage.bounds[0][:2] == (["i"], ["(n + 1)"])


def test_uneven_splits():
    array = np.arange(16).reshape(2, 8)
    t = LayoutTensor(array)
    for alignment, sizes in ((1, (3, 3, 2)), (3, (3, 3, 2)), (4, (4, 4, 0))):
        parts = [t.split(axis=1, split_alignment=alignment)(3, index) for index in range(3)]
        assert tuple(part.dim(1) for part in parts) == sizes
        assert np.array_equal(np.concatenate([by_definition(part).reshape(2, -1) for part in parts], axis=1), array)
    assert str(parts[1].history).endswith(".split[axis=1](3, 1)")
    refused("view-tile-index", lambda: t.split(axis=1)(3, 3))
    i, n = Scalar("i", 2), Scalar("n", 3)
    part = view(Layout.row_major(8, 4)).split(axis=0)(n, i)
    assert (known(part.dim(0)), part[0, 0]) == (2, 24)
    assert part.storage.bounds[0][:2] == (["i"], ["n"])


def test_parts_with_their_offsets():
    t = host(Layout.row_major(8, 12))
    tile, corner, offset = t.tile_with_offset[4, 4](1, 2)
    assert (tile[0, 0], corner, offset) == (t[4, 8], (4, 8), 4 * 12 + 8)
    fragment, coordinate, offset = tile.distribute_with_offset[Layout.row_major(2, 2)](3)
    assert (fragment[0, 0], coordinate, offset) == (t[5, 9], (1, 1), 13)
    nested = host(Layout(((4, 4), 2), ((1, 8), 4)))
    _, coordinate, offset = nested.distribute_with_offset[Layout(((2, 2), 2), ((1, 2), 4))](6)
    assert (coordinate, offset) == (((0, 1), 1), 12)
    swizzled = host(Layout.row_major(4, 4)).distribute_with_offset(Layout.row_major(2, 2), swizzle=Swizzle(1, 0, 2))
    assert swizzled(2)[1:] == ((1, 0), 5)


def test_all_elements_along_one_axis():
    t = host(Layout.row_major(2, 3, 4))
    for flat in (t.coalesce(), t.flatten()):
        assert flat.layout == Layout((24,), (1,)) and np.array_equal(by_definition(flat), np.arange(24))
    assert host(Layout.row_major(4, 4)).flatten().vectorize[4]()[3].tolist() == [12, 13, 14, 15]
    part = t.tile[2, 2, 4](0, 0, 0)
    assert part.coalesce().layout == Layout(((8, 2),), ((1, 12),)) and part.flatten()[9] == part[1, 0, 1]
    refused("view-reshape-masked", lambda: t.tile[2, 2, 4](0, 1, 0).coalesce())


@given(shapes(), st.data())
def test_transposes_are_numpys(shape, data):
    array = np.arange(np.prod(shape)).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    assert np.array_equal(np.asarray(LayoutTensor(array).transpose(*order)), array.transpose(order))
    assert np.array_equal(np.asarray(LayoutTensor(array).transpose()), array.T)


def test_what_is_no_order():
    refused("view-transpose-order", lambda: LayoutTensor(np.zeros((4, 4))).transpose(0, 0))


@given(nested_layouts(), st.data())
def test_reshapes_keep_the_logical_order(layout, data):
    t = host(layout)
    count = layout.size()
    first = data.draw(divisor(count))
    second = data.draw(divisor(count // first))
    shape = (first, second, count // first // second)
    try:
        other = t.reshape(*shape)()
    except UserError as error:
        if error.code != "view-reshape":
            raise
        return
    assert np.array_equal(by_definition(other), by_definition(t).reshape(shape))


def test_reshapes_that_always_work():
    array = np.arange(24).reshape(4, 6)
    assert np.array_equal(np.asarray(LayoutTensor(array).reshape[2, 3, 4]()), array.reshape(2, 3, 4))
    assert LayoutTensor(array).reshape[24]().layout == Layout((24,), (1,))
    columns = LayoutTensor(array.T).reshape[24]()
    assert columns.layout == Layout(((4, 6),), ((6, 1),)) and np.array_equal(np.asarray(columns), array.T.reshape(-1))
    under = LayoutTensor(array).reshape[Layout.col_major(6, 4)]()
    assert np.array_equal(np.asarray(under), array.reshape(4, 6).T)


def test_what_is_no_reshape():
    t = LayoutTensor(np.zeros((3, 4)))
    refused("view-reshape-count", lambda: t.reshape[5, 2]())
    refused("view-reshape-count", lambda: t.reshape[Layout((3, 4), (8, 1))]())
    refused("view-reshape", lambda: t.transpose().reshape[3, 4]())
    refused("view-reshape-masked", lambda: LayoutTensor(np.zeros((3, 4)), masked=True).tile[2, 4](1, 0).reshape[8]())
    refused("view-unknown-size", lambda: view(Layout(UNKNOWN, 1), sizes=(Scalar("n", 8),)).reshape[2, 4]())


@pytest.mark.parametrize("method", ["tile", "vectorize", "distribute", "split", "slice", "reshape"])
def test_the_history_tells_how_a_view_was_made(method):
    t = LayoutTensor(np.zeros((4, 4), np.float32), name="t").tile[4, 4](0, 0)
    made = {
        "tile": lambda: t.tile[2, 2](1, 0),
        "vectorize": lambda: t.vectorize[1, 4](),
        "distribute": lambda: t.distribute[Layout.row_major(2, 2)](3),
        "split": lambda: t.split[2, 0](1),
        "slice": lambda: t.slice[0:2, :](),
        "reshape": lambda: t.reshape[2, 8](),
    }[method]()
    shown = {
        "tile": "tile[2, 2](1, 0)",
        "vectorize": "vectorize[1, 4]()",
        "distribute": "distribute[((2, 2):(2, 1))](3)",
        "split": "split[2, 0](1)",
        "slice": "slice[0:2, :]()",
        "reshape": "reshape[2, 8]()",
    }[method]
    assert str(made.history) == f"t.tile[4, 4](0, 0).{shown}"
    assert made.history == t.history, "a variable may hold either"
