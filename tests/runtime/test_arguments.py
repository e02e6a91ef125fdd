"""Classification of arguments, without and with the frameworks they come from."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from tests.effort import examples
from tests.runtime.fake_driver import FakeArray, FakeTensor, float16
from weft.errors import LaunchError
from weft.runtime import dtypes
from weft.runtime.arguments import HOST, Array, array, host_buffer

NAMES = list(dtypes.ITEMSIZE)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_dtypes_round_trip(name):
    dtype = dtypes.numpy_dtype(name)
    assert dtypes.dtype_name(dtype) == name
    assert dtype.itemsize == dtypes.ITEMSIZE[name]


@pytest.mark.parametrize("name", NAMES)
def test_torch_dtypes(torch, name):
    tensor = torch.zeros(3, dtype=getattr(torch, name))
    assert array(tensor) == Array(name, tensor.data_ptr(), HOST)
    view = host_buffer(tensor).elements()
    assert view.dtype == dtypes.numpy_dtype(name)
    assert len(view) == 3


@pytest.mark.parametrize("text", ["fp32", "torch.float32", "float32"])
def test_spellings_of_one_type(text):
    assert dtypes.dtype_name(text) == "float32"


def test_weft_dtypes_have_canonical_names():
    from weft.ir.types import DTYPES

    assert {dtypes.dtype_name(dtype) for dtype in DTYPES} == set(NAMES)


def test_numpy_array():
    values = np.arange(6, dtype=np.int16)
    assert array(values) == Array("int16", values.ctypes.data, HOST)
    assert array(values).on_host


def test_cuda_tensor_and_cuda_array_interface():
    assert array(FakeTensor(0x1000, float16, 1)) == Array("float16", 0x1000, 1)
    assert array(FakeArray(0x2000, "<i8", 2)) == Array("int64", 0x2000, 2)
    assert array(FakeArray(0x2000, "|b1")) == Array("bool", 0x2000, 0)


def test_an_array_that_does_not_know_its_device_asks_the_driver(cuda):
    value = SimpleNamespace(__cuda_array_interface__={"data": (64, False), "typestr": "<u4"})
    assert array(value) == Array("uint32", 64, 0)


@pytest.mark.parametrize("value", [1, 2.0, True, None, "text", np.float32(1), int, np.float32, object()])
def test_what_is_no_array(value):
    assert array(value) is None


def test_dlpack_on_the_host():
    class OnlyDlpack:
        def __init__(self, inner):
            self.__dlpack__ = inner.__dlpack__
            self.__dlpack_device__ = inner.__dlpack_device__

    inner = np.arange(24, dtype=np.float32).reshape(4, 6)[:, 1:4]
    found = array(OnlyDlpack(inner))
    assert found == Array("float32", inner.ctypes.data, HOST)
    buffer = host_buffer(OnlyDlpack(inner))
    assert (buffer.address, buffer.nbytes) == (inner.ctypes.data, 4 * (3 * 6 + 3))
    assert buffer.elements()[0] == 1.0


@pytest.mark.parametrize("dtype", [np.complex64, np.dtype("O"), np.dtype([("a", "i4")]), np.dtype("M8[s]"), ">f4"])
def test_dtypes_without_a_home(dtype):
    with pytest.raises(LaunchError) as caught:
        array(np.zeros(2, dtype=dtype))
    assert caught.value.code == "launch-array-dtype"


def test_interface_dtypes_without_a_home():
    with pytest.raises(LaunchError, match="<c8"):
        array(FakeArray(0, "<c8"))


def test_memory_of_another_kind_of_device():
    tensor = FakeTensor(16)
    tensor.device.type = "xpu"
    with pytest.raises(LaunchError) as caught:
        array(tensor)
    assert caught.value.code == "launch-array-device"


@given(st.data())
@settings(deadline=None, max_examples=examples(60))
def test_host_buffer_of_any_view_covers_the_owner(data):
    owner = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    view = owner
    for axis in range(3):
        start = data.draw(st.integers(0, owner.shape[axis] - 1))
        step = data.draw(st.sampled_from([1, 2, -1]))
        view = view[(slice(None),) * axis + (slice(start, None, step),)]
    buffer = host_buffer(view)
    assert (buffer.address, buffer.nbytes) == (owner.ctypes.data, owner.nbytes)
    assert buffer.elements()[buffer.first] == view[0, 0, 0]


def test_host_buffer_shares_memory():
    values = np.zeros(8, dtype=np.float32)
    host_buffer(values[4:]).elements()[4] = 7
    assert values[4] == 7


def test_host_buffer_through_as_strided_and_transpose():
    owner = np.arange(32, dtype=np.int64)
    view = as_strided(owner[2:], shape=(3, 3), strides=(8, 16)).T
    buffer = host_buffer(view)
    assert (buffer.address, buffer.nbytes, buffer.first) == (owner.ctypes.data, 256, 2)


def test_host_buffer_of_an_odd_view_keeps_step_with_its_pointer():
    raw = np.arange(64, dtype=np.uint8)
    view = raw[1:61].view(np.uint32)
    buffer = host_buffer(view)
    assert (buffer.nbytes, buffer.pointer - buffer.address, buffer.first) == (64, 1, 0)
    np.testing.assert_array_equal(buffer.elements(), raw[1:61].view(np.uint32))


def test_host_buffer_of_torch_is_the_whole_storage(torch):
    owner = torch.arange(40, dtype=torch.float32).to(torch.bfloat16).reshape(5, 8)
    view = owner.t()[3:]
    buffer = host_buffer(view)
    assert (buffer.address, buffer.nbytes, buffer.first) == (owner.data_ptr(), 80, 3)
    assert buffer.elements().dtype == ml_dtypes.bfloat16
    buffer.elements()[3] = 99
    assert view[0, 0] == 99


def test_read_only_and_empty_arrays():
    values = np.arange(4)
    values.flags.writeable = False
    assert not host_buffer(values).writable
    with pytest.raises(ValueError, match="read-only"):
        host_buffer(values).elements()[0] = 1
    assert host_buffer(np.empty((0, 4))).elements().shape == (0,)
