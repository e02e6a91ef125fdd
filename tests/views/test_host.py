"""Arrays of every library under views: nothing is copied, and what cannot be touched says so."""

from __future__ import annotations

import mmap
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory

import ml_dtypes
import numpy as np
import pytest

from tests.views.test_access import refused
from weft.layout.nested.composed import ComposedLayout, Swizzle
from weft.layout.nested.layouts import UNKNOWN, Layout
from weft.views import AddressSpace, LayoutTensor, row_major


class CudaArray:
    """What CuPy and others show of an array on a GPU."""

    def __init__(self, shape, strides=None, typestr="<f4", pointer=4096):
        self.shape = shape
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "data": (pointer, False),
        }

    def get(self):
        """As CuPy's: a copy on the host."""
        return np.zeros(self.shape, np.float32)


class Exported:
    """An array that only speaks DLPack."""

    def __init__(self, array, device=(1, 0)):
        self.array = array
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_numpy_arrays_of_any_strides():
    array = np.arange(60.0).reshape(3, 4, 5)
    for part in (
        array,
        array[:, ::2, ::-1],
        array.transpose(2, 0, 1),
        np.broadcast_to(array[0], (2, 4, 5)),
        array[1:1],
    ):
        t = LayoutTensor(part)
        assert t.shape == part.shape and np.array_equal(np.asarray(t), part)
        assert t.layout.stride == tuple(stride // 8 for stride in part.strides)
        assert t.array is part and t.ptr == part.__array_interface__["data"][0]
    one = LayoutTensor(np.array(3.0))
    assert one[0] == 3 and one.layout == Layout(1, 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "bool"])
def test_torch_tensors_share_their_memory(torch, dtype):
    tensor = torch.zeros(4, 6).to(getattr(torch, dtype)).t()
    t = LayoutTensor(tensor)
    t[2, 1] = 1
    assert float(tensor[2, 1]) == 1 and t.layout == Layout((6, 4), (1, 6)) and t.array is tensor
    tensor[3, 3] = 1
    assert t[3, 3] == 1 and t.dtype.name == dtype
    assert t.ptr == tensor.data_ptr() and np.asarray(t).astype(float).sum() == 2


def test_tensors_with_gradients_and_parts_of_storages(torch):
    tensor = torch.arange(10.0, requires_grad=True)[2:8]
    assert LayoutTensor(tensor)[1] == 3 and LayoutTensor(tensor, Layout(6)).tile[3](1)[0] == 5


def test_dlpack_arrays_of_the_host():
    array = np.arange(6.0).reshape(2, 3)
    t = LayoutTensor(Exported(array))
    t[1, 1] = 40
    assert array[1, 1] == 40


def test_arrays_on_a_gpu_are_held_but_not_touched():
    array = CudaArray((4, 6), (4, 16))
    t = LayoutTensor(array)
    assert t.layout == Layout((4, 6), (1, 4)) and t.dtype == np.float32 and t.ptr == 4096
    assert t.address_space is AddressSpace.GLOBAL and "GLOBAL" in str(t)
    part = t.tile[2, 3](1, 1)
    assert part.ptr == 4096 + 4 * (2 + 12) and part.__weft_view__().byte_offset == 4 * 14
    for touch in (
        lambda: part[0, 0],
        lambda: part.fill(0),
        lambda: np.asarray(part),
        lambda: part.arange(),
        lambda: part + 1,
    ):
        assert "view.array.get()" in refused("view-device-memory", touch)
    refused("view-device-memory", lambda: part.__setitem__((0, 0), 1))
    refused("view-device-memory", lambda: LayoutTensor(np.zeros((2, 3))).copy_from(part))
    refused("view-device-memory", lambda: part.copy_from(LayoutTensor(np.zeros((2, 3)))))
    assert LayoutTensor(CudaArray((2, 3))).layout == Layout.row_major(2, 3)


def test_what_has_no_memory():
    refused("view-open", LayoutTensor, [1, 2, 3])
    refused("view-open", LayoutTensor, np.ndarray)
    refused("view-element-type", LayoutTensor, np.array(["a"]))
    refused("view-element-type", LayoutTensor, np.zeros(2, ">f4"))
    refused("view-device-kind", LayoutTensor, Exported(np.zeros(2), device=(10, 0)))
    fields = np.zeros(4, [("a", "f4"), ("b", "i1")])
    refused("view-array-strides", LayoutTensor, fields["a"])
    refused("view-array-strides", LayoutTensor, CudaArray((2, 2), (6, 4)))


def test_a_tensor_without_data(torch):
    refused("view-device-kind", LayoutTensor, torch.zeros(2, device="meta"))


def test_layouts_over_an_array():
    array = np.arange(16.0)
    assert LayoutTensor(array, Layout.row_major(4, 4))[1, 2] == 6
    assert LayoutTensor(array, Layout.col_major(4, 4))[1, 2] == 9
    assert LayoutTensor(array[8:], Layout(8))[0] == 8
    assert LayoutTensor(array[::-1], Layout(16, -1))[15] == 0
    refused("view-extent", LayoutTensor, array, Layout.row_major(4, 5))
    refused("view-extent", LayoutTensor, array[8:], Layout(9))
    refused("view-layout", LayoutTensor, array, (4, 4))
    refused("view-layout", LayoutTensor, array, row_major[4, 4])
    refused("view-layout", LayoutTensor, array, ComposedLayout(Swizzle(2, 0, 2), 0, Layout.row_major(4, 4)))


def test_numbers_known_at_run_time_come_from_the_array():
    array = np.arange(24.0).reshape(4, 6)
    t = LayoutTensor(array, Layout.row_major(UNKNOWN, UNKNOWN))
    assert t.shape == (UNKNOWN, UNKNOWN) and (t.dim(0), t.dim(1)) == (4, 6) and t.strides == (6, 1)
    assert t.tile[2, 3](1, 1).layout == Layout((2, 3), (UNKNOWN, 1)) and t.tile[2, 3](1, 1)[0, 0] == 15
    flat = LayoutTensor(array.reshape(-1), Layout.row_major(UNKNOWN, UNKNOWN), shape=(8, 3))
    assert flat.strides == (3, 1) and flat[7, 2] == 23
    columns = LayoutTensor(array.reshape(-1), Layout((UNKNOWN, UNKNOWN), (1, UNKNOWN)), shape=(8, 3))
    assert columns.strides == (1, 8)
    refused("view-unknown-number", LayoutTensor, array.reshape(-1), Layout.row_major(UNKNOWN, UNKNOWN))
    with_both = Layout((UNKNOWN, 4), (UNKNOWN, UNKNOWN))
    refused("view-unknown-number", lambda: LayoutTensor(array.reshape(-1), with_both, shape=(6, 4)))
    assert LayoutTensor(array.reshape(-1), with_both, shape=(6, 4), strides=(4, 1))[5, 3] == 23
    refused("view-number-count", lambda: LayoutTensor(array.reshape(-1), with_both, shape=(6,)))
    refused("view-number-differs", lambda: LayoutTensor(array.reshape(-1), with_both, shape=(6, 5)))


def test_new_memory():
    t = LayoutTensor.stack_allocation(np.float32, Layout.row_major(4, 4)).fill(2)
    assert t[3, 3] == 2 and t.array.shape == (16,) and t.address_space is AddressSpace.GENERIC
    with pytest.raises(ValueError, match="GENERIC"):
        LayoutTensor.stack_allocation(np.float32, Layout(4), address_space=AddressSpace.SHARED)
    refused(
        "view-allocation", lambda: LayoutTensor.stack_allocation("int8", Layout(4), address_space=AddressSpace.SHARED)
    )
    refused("view-unknown-layout", LayoutTensor.stack_allocation, np.float32, Layout(UNKNOWN, 1))


def test_new_memory_of_a_type_of_torch(torch):
    assert LayoutTensor.stack_allocation(torch.bfloat16, Layout(4)).dtype == ml_dtypes.bfloat16


# Memory that goes away


def test_a_view_keeps_its_array_alive():
    assert LayoutTensor(np.arange(1000.0) * 2)[999] == 1998


def test_a_view_keeps_its_tensor_alive(torch):
    assert LayoutTensor(torch.arange(1000.0) * 2)[999] == 1998


def test_memory_that_has_been_resized():
    array = np.zeros(4)
    t = LayoutTensor(array)
    array.resize(1 << 20, refcheck=False)
    refused("view-memory-gone", lambda: t[0])
    refused("view-memory-gone", lambda: t.fill(1))


def test_storages_that_have_been_resized_or_replaced(torch):
    tensor = torch.zeros(4)
    u = LayoutTensor(tensor)
    tensor.untyped_storage().resize_(0)
    refused("view-memory-gone", lambda: u[0])
    other = torch.zeros(4)
    v = LayoutTensor(other)
    other.set_(torch.ones(4))
    refused("view-memory-gone", lambda: v[0])


def test_memory_that_has_been_closed():
    pages = mmap.mmap(-1, 4096)
    t = LayoutTensor(np.ndarray(4, np.float32, pages))
    t[0] = 3
    pages.close()
    assert "closed" in refused("view-memory-gone", lambda: t[0])
    buffer = bytearray(16)
    u = LayoutTensor(np.ndarray(4, np.float32, buffer))
    buffer.extend(bytes(1 << 20))
    assert "resized" in refused("view-memory-gone", lambda: u.fill(1))
    shared = SharedMemory(create=True, size=64)
    v = LayoutTensor(np.ndarray(4, np.float32, shared.buf))
    shared.unlink()
    shared.close()
    refused("view-memory-gone", lambda: v[0])


def test_read_only_arrays():
    array = np.arange(4.0)
    array.flags.writeable = False
    t = LayoutTensor(array)
    assert t[2] == 2
    refused("view-read-only", lambda: t.__setitem__(0, 1))
    refused("view-read-only", t.fill, 1)
    refused("view-read-only", t.copy_from, LayoutTensor(np.zeros(4)))
    target = LayoutTensor(np.zeros(4))
    target.copy_from(t)
    assert target[3] == 3


# As NumPy and as text


def test_as_a_numpy_array():
    array = np.arange(16, dtype=np.int32).reshape(4, 4)
    t = LayoutTensor(array)
    assert np.shares_memory(np.asarray(t), array) and not np.shares_memory(np.array(t), array)
    assert np.asarray(t, np.float64).dtype == np.float64
    nested = LayoutTensor(array, Layout(((2, 2), 4), ((1, 8), 2)))
    assert np.asarray(nested).shape == (4, 4)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(nested, copy=False)


def test_as_text():
    t = LayoutTensor(np.arange(6, dtype=np.float32).reshape(2, 3), name="t")
    assert repr(t) == "LayoutTensor(float32, ((2, 3):(3, 1)))"
    assert str(t) == str(np.asarray(t))
    wide = LayoutTensor(np.arange(8, dtype=np.float32).reshape(2, 4)).vectorize[1, 2]()
    assert repr(wide) == "LayoutTensor(float32, ((2, 2):(4, 2)) of ((1, 2):(0, 1)))"
    assert str(wide) == str(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    edge = LayoutTensor(np.arange(9).reshape(3, 3), masked=True).tile[2, 2](1, 1)
    assert str(edge) == "[[8]]"


def test_views_need_no_array_library_until_there_is_an_array():
    code = "import sys, weft.views; assert 'numpy' not in sys.modules and 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
