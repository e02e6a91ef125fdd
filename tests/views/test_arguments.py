"""Views as arguments: what a kernel is compiled for, and the view that it gets."""

from __future__ import annotations

import numpy as np

from tests.views.test_access import refused
from tests.views.traced import Memory, Scalar, known, numbers, view
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import LayoutTensor


def inside(t):
    """The view as a kernel sees it, with its memory's numbers in place of the array."""
    argument = t.__weft_view__()
    skipped = argument.byte_offset // t.dtype.itemsize
    values, first = t.storage.elements()
    names = [Scalar(f"x{k}", number) for k, number in enumerate(argument.numbers)]
    return LayoutTensor.from_argument(Memory(values[first + skipped :].copy()), argument.key, names, "t")


def test_static_views_have_no_numbers():
    array = np.arange(64.0).reshape(8, 8)
    t = LayoutTensor(array).tile[4, 4](1, 1)
    argument = t.__weft_view__()
    assert argument.array is array and argument.byte_offset == 36 * 8 and argument.numbers == ()
    assert argument.key == LayoutTensor(array).tile[4, 4](0, 1).__weft_view__().key
    assert argument.key != LayoutTensor(array).tile[4, 2](0, 1).__weft_view__().key
    assert hash(argument.key) is not None and np.array_equal(numbers(inside(t)), array[4:, 4:])


def test_run_time_numbers_travel_in_order():
    array = np.arange(60.0).reshape(6, 10)
    t = LayoutTensor(array, Layout.row_major(UNKNOWN, UNKNOWN), masked=True)
    assert t.__weft_view__().numbers == (6, 10, 10)
    edge = t.tile[4, 4](1, 2)
    assert edge.__weft_view__().numbers == (10, 2, 2) and edge.__weft_view__().key.limited == (True, True)
    kernel = inside(edge)
    assert [str(n) for n in kernel.strides] == ["x0", "1"] and [str(n) for n in kernel.limits] == ["x1", "x2"]
    assert known(kernel.dim(0)) == 2 and kernel.history == "t" and str(kernel.history) == "t"
    other = LayoutTensor(np.zeros((3, 7)), Layout.row_major(UNKNOWN, UNKNOWN), masked=True)
    assert other.__weft_view__().key == t.__weft_view__().key


def test_fields_make_the_view_again():
    t = view(Layout.row_major(4, 8)).vectorize[1, 4]()
    again = LayoutTensor.from_fields(*(getattr(t, name) for name in LayoutTensor.FIELDS))
    assert all(getattr(again, name) is getattr(t, name) for name in LayoutTensor.FIELDS)


def test_views_of_a_kernel_are_no_arguments():
    refused("view-open", lambda: view(Layout(4)).__weft_view__())
