"""Copies between views, fill, arange and arithmetic: on the host against NumPy, and as a kernel carries them out."""

from __future__ import annotations

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from tests.effort import calls
from tests.views.strategies import by_definition, host, nested_layouts, shapes
from tests.views.test_access import refused
from tests.views.traced import Memory, Scalar, numbers, view
from weft.errors import UserError
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import AddressSpace, LayoutTensor

LOCAL, SHARED = AddressSpace.LOCAL, AddressSpace.SHARED


# On the host


@given(nested_layouts(), nested_layouts())
def test_copies_are_in_logical_order(first, second):
    to, of = host(first, fill=-1), host(second)
    if first.size() != second.size():
        refused("view-copy-count", to.copy_from, of)
        return
    to.copy_from(of)
    assert np.array_equal(by_definition(to).reshape(-1), by_definition(of).reshape(-1))
    touched = {first(i) for i in range(first.size())}
    memory, _ = to.storage.elements()
    assert all(memory[i] == -1 for i in range(first.cosize()) if i not in touched)


@given(shapes(), st.data())
def test_copies_of_masked_views_touch_what_is_inside_of_both(shape, data):
    sizes = [data.draw(st.integers(1, n)) for n in shape]
    array, other = np.arange(np.prod(shape)).reshape(shape), np.full(shape, -1)
    source, target = LayoutTensor(array, masked=True), LayoutTensor(other, masked=True)
    where = [data.draw(st.integers(0, -(-n // size) - 1)) for n, size in zip(shape, sizes, strict=True)]
    there = [data.draw(st.integers(0, -(-n // size) - 1)) for n, size in zip(shape, sizes, strict=True)]
    tile, room = source.tile(*sizes)(*where), target.tile(*sizes)(*there)
    room.copy_from(tile)
    inside = tuple(slice(0, min(a, b)) for a, b in zip(np.asarray(tile).shape, np.asarray(room).shape, strict=True))
    assert np.array_equal(np.asarray(room)[inside], np.asarray(tile)[inside])
    assert (other >= 0).sum() == np.asarray(tile)[inside].size


def test_masked_views_of_nested_layouts():
    array = np.arange(36.0)
    t = LayoutTensor(array, Layout(((2, 3), (3, 2)), ((3, 12), (1, 6))), masked=True)
    edge = t.tile[2, 3](1, 1).tile[4, 2](0, 1)
    assert (edge.dim(0), edge.dim(1)) == (2, 1)
    whole = t.replaced(limits=(5, 4))
    expected = by_definition(t)[:5, :4]
    assert np.array_equal(np.asarray(whole), expected)
    target = np.full((6, 6), -1.0)
    LayoutTensor(target).copy_from(whole)
    assert np.array_equal(target[:5, :4], expected) and (target == -1).sum() == 16
    whole.fill(-7)
    assert (array == -7).sum() == 20
    whole.arange()
    assert np.asarray(whole)[1, 2] == 8


@given(nested_layouts(), st.integers(-3, 3), st.integers(-3, 3))
def test_arange_is_in_logical_order(layout, start, step):
    t = host(layout, fill=100).arange(start, step)
    expected = start + step * np.arange(layout.size())
    assert np.array_equal(by_definition(t).reshape(-1), expected)


def test_fill_gives_the_view():
    array = np.zeros((4, 4), np.float32)
    t = LayoutTensor(array)
    assert t.tile[2, 2](1, 1).fill(3).fill(4)[0, 0] == 4
    assert array.sum() == 16
    assert LayoutTensor(np.zeros(3)).arange(0.5, 0.25)[2] == 1.0


def test_copies_change_the_type_as_casts_do():
    to = LayoutTensor(np.zeros(4, ml_dtypes.bfloat16))
    to.copy_from(LayoutTensor(np.array([1.5, 2.25, -3.0, 1e-3])))
    assert to[1] == 2.25 and to.dtype == ml_dtypes.bfloat16


def test_copies_between_overlapping_views():
    array = np.arange(8.0)
    t = LayoutTensor(array)
    t.slice[1:8]().copy_from(t.slice[0:7]())
    assert array.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_views_without_common_loops():
    to, of = host(Layout((4, 3), (1, 4)), fill=-1), host(Layout((3, 4), (1, 3)))
    to.copy_from(of)
    assert np.array_equal(by_definition(to).reshape(-1), by_definition(of).reshape(-1))


def test_what_is_no_source():
    t = LayoutTensor(np.zeros((4, 4)))
    assert "a ndarray" in refused("view-source", t.copy_from, np.zeros((4, 4)))
    text = refused("view-source", t.copy_from, 0)
    assert "not an int" in text and "fill(number)" in text
    refused("view-copy-count", t.copy_from, LayoutTensor(np.zeros((4, 5))))
    refused("view-async-host", t.copy_from_async, LayoutTensor(np.zeros((4, 4))))


def test_views_of_much_memory_cost_nothing():
    array = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (10_000, 10_000), (0, 0))

    def effort(size):
        t = LayoutTensor(np.broadcast_to(array, (10_000, 10_000))[:size, :size], masked=True)
        tile = size // 16
        return calls(
            lambda: t.tile[tile, tile](3, 3).vectorize[1, 1]().distribute[Layout.row_major(4, 4)](5).transpose()[0, 0]
        )

    assert effort(8192) <= 1.5 * effort(64)


def test_copies_are_numpys_whatever_their_size():
    of, to = np.random.default_rng(0).random((1500, 1500)), np.zeros((1500, 1500))
    source, target = LayoutTensor(of.T), LayoutTensor(to)
    target.copy_from(source)
    assert np.array_equal(to, of.T)
    part = LayoutTensor(of.T[:50, :50]), LayoutTensor(to[:50, :50])
    assert abs(calls(lambda: target.copy_from(source)) - calls(lambda: part[1].copy_from(part[0]))) < 10


# Arithmetic


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv"])
def test_arithmetic_is_numpys(name):
    import operator

    apply, update = getattr(operator, name), getattr(operator, f"i{name}")
    rng = np.random.default_rng(1)
    a, b = rng.random((4, 6)), rng.random((6, 4)).T
    t, u = LayoutTensor(a), LayoutTensor(b)
    assert np.array_equal(np.asarray(apply(t, u)), apply(a, b))
    assert np.array_equal(np.asarray(apply(t, 2)), apply(a, 2))
    assert np.array_equal(np.asarray(apply(2, t)), apply(2, a))
    assert np.array_equal(np.asarray(apply(t.vectorize[1, 2](), u)), apply(a, b))
    before = a.copy()
    assert update(t, u) is t and np.array_equal(a, apply(before, b))
    refused("view-shapes", apply, t, t.transpose())


def test_arithmetic_of_masked_and_other_types():
    array = np.arange(15.0).reshape(3, 5)
    edge = LayoutTensor(array, masked=True).tile[2, 4](1, 1)
    edge += 100
    assert array[2, 4] == 114 and array.sum() == 105 + 100
    assert (LayoutTensor(np.arange(3)) / 2).dtype == np.float64
    nested = host(Layout(((2, 3), 4), ((1, 8), 2))).replaced(masked=True, limits=(5, 3))
    assert np.array_equal(np.asarray(nested * 2), by_definition(nested)[:5, :3] * 2)


def test_arithmetic_in_a_kernel(monkeypatch):
    from weft.views import storage

    monkeypatch.setattr(
        storage, "ALLOCATORS", {2: lambda dtype, count, space: Memory(np.zeros(count, dtype), space)}, raising=True
    )
    t = view(Layout.row_major(4, 8)).tile[2, 4](Scalar("i", 1), 0)
    out = (t + t) * 2 - 1
    assert out.address_space is LOCAL and np.array_equal(numbers(out), numbers(t) * 4 - 1)
    t += 1
    assert numbers(t)[0, 0] == 17


# In a kernel


@given(st.data())
def test_fragments_are_copied_by_one_load_and_one_store(data):
    """Between any two layouts and vector widths, the result is the host's."""
    rows, columns = data.draw(st.sampled_from([(4, 8), (8, 8), (2, 16)]))
    layouts = [
        Layout.row_major(rows, columns),
        Layout.col_major(rows, columns),
        Layout((rows, columns), (columns + 4, 1)),
    ]
    widths = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)]
    made, plain = [], []
    for name in ("to", "of"):
        layout, space = (
            data.draw(st.sampled_from(layouts)),
            data.draw(st.sampled_from([AddressSpace.GLOBAL, SHARED, LOCAL])),
        )
        t = view(
            layout,
            np.random.default_rng(3).random(layout.cosize()) if name == "of" else np.zeros(layout.cosize()),
            space,
        )
        plain.append(layout)
        made.append(_vectorized(t, data.draw(st.sampled_from(widths))))
    to, of = made
    to.copy_from(of)
    assert np.array_equal(_flat(to, plain[0]), _flat(of, plain[1]))
    assert [entry[0] for entry in of.storage.log] == ["load"] and [entry[0] for entry in to.storage.log] == ["store"]


def _vectorized(t, widths):
    """The view as vectors of these widths, or as it is where they would not be aligned."""
    try:
        return t.vectorize(*widths)()
    except UserError as error:
        if error.code != "view-vector-aligned":
            raise
        return t


def _flat(t, layout):
    """The numbers in memory that a layout, of single numbers, says are a view's."""
    return np.array([[t.storage.values[layout(i, j)] for j in range(layout.shape[1])] for i in range(layout.shape[0])])


def test_vectors_make_wide_accesses_on_their_side():
    of = view(Layout.row_major(4, 8)).vectorize[1, 4]()
    to = view(Layout.row_major(4, 8), space=LOCAL)
    to.copy_from(of)
    load, store = of.storage.log[-1][2], to.storage.log[-1][2]
    assert load.width == 4 and load.const == (0, 4, 8, 12, 16, 20, 24, 28)
    assert store.width == 1 and store.const == tuple(range(32))
    # A column-major target of vectors along its columns: values travel column by column.
    columns = view(Layout.col_major(4, 8)).vectorize[4, 1]()
    to.copy_from(columns)
    assert (
        columns.storage.log[-1][2].width == 4 and numbers(to).tolist() == numbers(view(Layout.col_major(4, 8))).tolist()
    )


def test_run_time_strides_travel_as_factors():
    n = Scalar("n", 12)
    t = view(Layout.row_major(UNKNOWN, UNKNOWN), sizes=(Scalar("m", 8), n), strides=(n, 1))
    part = t.tile[4, 4](Scalar("i", 1), Scalar("j", 2)).distribute[Layout.row_major(2, 2)](Scalar("id", 3))
    to = view(Layout.row_major(2, 2), space=LOCAL)
    to.copy_from(part)
    _, base, places, mask = part.storage.log[-1]
    assert places.const == (0, 2, 0, 2) and [str(s) for s in places.strides] == ["(n * 2)"] and mask is None
    assert places.factors == ((0, 0, 1, 1),)
    assert np.array_equal(numbers(to), np.arange(96).reshape(8, 12)[5:8:2, 9:12:2])
    assert base == "(((i * (n * 4)) + (j * 4)) + (((id // 2) * n) + (id % 2)))"


def test_masks_compute_each_condition_once():
    n = Scalar("n", 10)
    t = view(Layout(UNKNOWN, 1), sizes=(n,), masked=True)
    part = t.tile(8)(Scalar("i", 1))
    to = view(Layout(8), np.full(8, -1.0), space=SHARED)
    to.copy_from(part)
    mask = part.storage.log[-1][3]
    assert [str(entry) for entry in mask[:2]] == ["((n - (i * 8)) > 0)", "((n - (i * 8)) > 1)"]
    assert all(a is b for a, b in zip(mask, to.storage.log[-1][3], strict=True))
    assert to.storage.values.tolist() == [8, 9] + [-1] * 6
    to.fill(5)
    part.fill(0)
    assert part.storage.values.tolist() == [*range(8), 0, 0]
    part.arange(50)
    assert part.storage.values[8:].tolist() == [50, 51]


def test_masked_vectors_share_a_condition():
    t = view(Layout.row_major(6, 8), masked=True)
    part = t.tile[4, 8](Scalar("i", 1), 0).vectorize[1, 4]()
    to = view(Layout.row_major(4, 8), np.full(32, -1.0), SHARED)
    to.copy_from(part)
    assert part.storage.log[-1][2].width == 4 and len(part.storage.log[-1][3]) == 8
    assert to.storage.values[:16].tolist() == list(range(32, 48)) and (to.storage.values[16:] == -1).all()


def test_asynchronous_copies_write_zeros_outside():
    t = view(Layout.row_major(6, 8), masked=True)
    part = t.tile[4, 8](Scalar("i", 1), 0).vectorize[1, 4]()
    to = view(Layout.row_major(4, 8), np.full(32, -1, np.float32), SHARED)
    to.vectorize[1, 4]().copy_from_async(part)
    kind, _, places, mask = to.storage.log[-1]
    assert kind == "copy" and places.width == 4 and len(mask) == 8
    assert to.storage.values.tolist() == [*range(32, 48), *[0] * 16]


def test_what_cannot_be_copied_asynchronously():
    shared, t = (
        view(Layout.row_major(4, 8), space=SHARED, dtype=np.float16),
        view(Layout.row_major(4, 8), dtype=np.float16),
    )
    text = refused("view-async-width", shared.copy_from_async, t)
    assert "vectorize[1, 8]" in text
    refused("view-async-host", t.copy_from_async, shared)
    refused("view-async-type", shared.copy_from_async, view(Layout.row_major(4, 8)))
    refused("view-unknown-size", shared.copy_from, view(Layout(UNKNOWN, 1), sizes=(Scalar("n", 32),)))
