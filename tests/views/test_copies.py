"""Copies that threads share, thread by thread: together they copy everything once, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.views.test_access import refused
from tests.views.traced import Memory, Scalar, numbers, view
from weft.layout.nested.composed import Swizzle
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import AddressSpace, LayoutTensor, copies
from weft.views.products import outer_product_acc

GLOBAL, SHARED, LOCAL = AddressSpace.GLOBAL, AddressSpace.SHARED, AddressSpace.LOCAL


def memory(layout, space, fill=-1.0):
    return view(layout, np.full(layout.cosize(), fill, np.float32), space)


def run(copy, threads, *args, **kwargs):
    """Every thread calls, each with its number as a run-time scalar."""
    for thread in range(threads):
        copy(*args, Scalar("tid", thread), threads=threads, **kwargs)


@pytest.mark.parametrize(
    "swizzle", [None, Swizzle(2, 2, 2), Swizzle(1, 3, 2), Swizzle(2, 3, 3), lambda i: i ^ 12, lambda i: (i + 32) % 256]
)
@pytest.mark.parametrize("threads", [16, 24])
@pytest.mark.parametrize("rows", [8, 2])
def test_through_shared_memory_and_back(swizzle, threads, rows):
    source = view(Layout.row_major(16, 16))
    shared, out = memory(Layout.row_major(16, 16), SHARED), memory(Layout.row_major(16, 16), GLOBAL)
    layout = Layout.row_major(rows, 16 // rows if rows > 4 else 4)
    v = [t.vectorize[1, 4]() for t in (source, shared, out)]
    run(copies.copy_dram_to_sram, threads, v[1], v[0], layout, swizzle=swizzle)
    if swizzle is not None:
        assert all(shared.storage.values[swizzle(i)] == i for i in range(0, 256, 4))
    run(copies.copy_sram_to_dram, threads, v[2], v[1], layout, swizzle=swizzle)
    assert np.array_equal(numbers(out), numbers(source))


@pytest.mark.parametrize("swizzle", [None, Swizzle(2, 2, 2), Swizzle(2, 2, 3)])
def test_asynchronous_copies_of_masked_tiles(swizzle):
    tile = view(Layout.row_major(21, 16), masked=True).tile[16, 16](Scalar("i", 1), 0)
    shared = memory(Layout.row_major(16, 16), SHARED)
    pair = shared.vectorize[1, 4](), tile.vectorize[1, 4]()
    run(copies.copy_dram_to_sram_async, 16, *pair, Layout.row_major(4, 4), swizzle=swizzle)
    place, odd = swizzle or (lambda i: i), memory(Layout(3), SHARED).vectorize[3]()
    before = shared.storage.values.copy()
    run(copies.copy_dram_to_sram_async, 32, *pair, Layout.row_major(4, 4), swizzle=swizzle)
    assert np.array_equal(shared.storage.values, before), "threads beyond the layout copy nothing"
    assert all(shared.storage.values[place(i) + 1] == (256 + i + 1 if i < 80 else 0) for i in range(0, 256, 4))
    refused(
        "view-async-width",
        lambda: copies.copy_dram_to_sram_async(odd, view(Layout(3)).vectorize[3](), Layout(1), 0),
    )


def test_a_regular_swizzle_is_one_copy():
    source, shared = view(Layout.row_major(16, 16)), memory(Layout.row_major(16, 16), SHARED)
    pair = shared.vectorize[1, 4](), source.vectorize[1, 4]()
    copies.copy_dram_to_sram(*pair, Layout.row_major(4, 4), Scalar("tid", 5), swizzle=Swizzle(2, 2, 2))
    assert len(shared.storage.log) == 1 and len(shared.storage.log[0][2].const) == 4
    copies.copy_dram_to_sram(*pair, Layout.row_major(4, 4), Scalar("tid", 5), swizzle=Swizzle(2, 2, 3))
    assert len(shared.storage.log) == 5
    assert all(base.count("^") <= 2 for _, base, _, _ in shared.storage.log[1:]), "one XOR each, and that of the thread"


def test_different_layouts_of_threads():
    source, shared = view(Layout.row_major(8, 8)), memory(Layout.col_major(8, 8), SHARED)
    for thread in range(16):
        copies.copy_dram_to_sram(
            shared, source, Layout.row_major(4, 4), Scalar("tid", thread), dst_thread_layout=Layout.row_major(4, 4)
        )
    assert np.array_equal(numbers(shared), numbers(source))


def test_to_and_from_a_threads_own_memory():
    source, out = view(Layout.row_major(8, 8)), memory(Layout.row_major(8, 8), GLOBAL)
    shared, again = memory(Layout.row_major(8, 8), SHARED), memory(Layout.row_major(8, 8), SHARED)
    threads = Layout.row_major(4, 4)
    for thread in range(16):
        own = memory(Layout.row_major(2, 2), LOCAL)
        copies.copy_dram_to_local(own, source, threads, Scalar("tid", thread))
        copies.copy_local_to_shared(shared, own, threads, Scalar("tid", thread), swizzle=Swizzle(2, 0, 3))
        other = memory(Layout.row_major(2, 2), LOCAL)
        copies.copy_sram_to_local(other, shared, threads, Scalar("tid", thread), swizzle=Swizzle(2, 0, 3))
        copies.copy_local_to_dram(out, other, threads, Scalar("tid", thread))
        copies.copy_local_to_shared(again, other, threads, Scalar("tid", thread))
        rows = memory(Layout.row_major(2, 8), LOCAL)
        copies.copy_sram_to_local(
            rows, source.replaced(storage=Memory(source.storage.values, SHARED)), threads, thread, axis=0
        )
        assert np.array_equal(numbers(rows), numbers(source)[thread // 4 :: 4])
    assert np.array_equal(numbers(out), numbers(source)) and np.array_equal(numbers(again), numbers(source))


def test_threads_beyond_the_layout_do_nothing():
    source, shared = view(Layout.row_major(4, 4)), memory(Layout.row_major(4, 4), SHARED)
    copies.copy_dram_to_sram(shared, source, Layout.row_major(2, 2), Scalar("tid", 9), threads=32)
    assert (shared.storage.values == -1).all() and str(shared.storage.log[0][3][0]) == "(tid < 4)"
    assert not source.storage.bounds


def test_what_cannot_be_shared():
    source, shared = view(Layout.row_major(4, 4)), memory(Layout.row_major(4, 4), SHARED)
    layout = Layout.row_major(2, 2)
    refused("view-space", lambda: copies.copy_dram_to_sram(source, shared, layout, 0))
    refused("view-source", lambda: copies.copy_dram_to_sram(shared, np.zeros((4, 4)), layout, 0))
    refused("view-threads-few", lambda: copies.copy_dram_to_sram(shared, source, layout, 0, threads=2))
    refused("view-threads-unknown", lambda: copies.copy_dram_to_sram(shared, source, 4, 0))
    refused("view-threads-unknown", lambda: copies.copy_dram_to_sram(shared, source, Layout.row_major(0, 4), 0))
    refused("view-copy-count", lambda: copies.copy_dram_to_local(memory(Layout(3), LOCAL), source, layout, 0))
    columns = Layout((4, 4), (UNKNOWN, 1))
    unknown = view(columns, np.zeros(16), SHARED, strides=(Scalar("n", 4), 1))
    refused(
        "view-swizzle-stride", lambda: copies.copy_dram_to_sram(unknown, source, layout, 0, swizzle=Swizzle(1, 0, 1))
    )


def test_a_swizzle_keeps_vectors_together():
    source, shared = view(Layout.row_major(16, 16)), memory(Layout.row_major(16, 16), SHARED)
    pair = shared.vectorize[1, 4](), source.vectorize[1, 4]()
    refused(
        "view-swizzle-vectors",
        lambda: copies.copy_dram_to_sram(*pair, Layout.row_major(4, 4), 0, swizzle=Swizzle(2, 0, 3)),
    )


def test_outer_products():
    rng = np.random.default_rng(5)
    a, b = view(Layout(4), rng.random(4), LOCAL), view(Layout(8), rng.random(8), LOCAL).vectorize[4]()
    acc = view(Layout.row_major(4, 8), rng.random(32), LOCAL)
    expected = numbers(acc) + np.outer(a.storage.values, b.storage.values)
    outer_product_acc(acc, a, b)
    assert np.array_equal(numbers(acc), expected)
    refused("view-shapes", lambda: outer_product_acc(acc, b, a))
    host = LayoutTensor(np.zeros((2, 3)))
    outer_product_acc(host, LayoutTensor(np.arange(2.0)), LayoutTensor(np.arange(3.0)))
    assert np.array_equal(np.asarray(host), np.outer(np.arange(2.0), np.arange(3.0)))


def test_outer_products_are_one_operation_where_memory_has_one():
    class Fused(Memory):
        def outer_product(self, acc, a, b):
            return acc + np.outer(a, b).reshape(-1)

    acc = view(Layout.row_major(2, 3), space=LOCAL)
    acc = acc.replaced(storage=Fused(np.ones(6), LOCAL))
    outer_product_acc(acc, view(Layout(2), space=LOCAL), view(Layout(3), space=LOCAL))
    assert [entry[0] for entry in acc.storage.log] == ["load", "store"]
    assert np.array_equal(numbers(acc), 1 + np.outer(np.arange(2), np.arange(3)))
