"""What a user passes for an argument: taken for what it holds, or refused with what to write instead."""

from __future__ import annotations

import ctypes
from array import array as python_array
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.errors.users import LINE, shown, zeros
from weft import language as gl
from weft.errors import CompilationError, LaunchError
from weft.errors.hazard import OutOfBounds
from weft.errors.views import ViewError
from weft.plain import as_number


class Color(Enum):
    RED = 3


class Way(Flag):
    UP = 1


class Mode(IntEnum):
    FAST = 3


class Half(float, Enum):
    HALF = 0.5


UFUNC, BYTE, FLOAT, TRUE, SMALL = np.add, np.int8(100), np.float32(2.5), np.bool_(True), ml_dtypes.bfloat16(1.5)
COMPLEX, EXACT, SHAPE = np.complex64(1j), Fraction(1, 2), (np.int64(128),)


@weft.jit
def copy(src, dst, n):
    at = gl.arange(0, 128, LINE)
    gl.store(dst + at, gl.load(src + at, mask=at < n), mask=at < n)


@weft.jit
def put(out, x):
    gl.store(out, x)


@weft.jit
def add(out, x: gl.constexpr):
    gl.store(out, gl.load(out) + x)


@weft.jit
def keep(out, x: gl.constexpr):
    gl.store(out, x)


def written(kernel, value) -> float:
    out = zeros(1)
    kernel[1](out, value)
    return float(out[0])


# Arrays


class Sparse:
    shape, dtype, nnz = (4, 4), np.dtype(np.float32), 3

    def toarray(self):
        return np.zeros(self.shape, self.dtype)


class Frame:
    shape, values = (4, 4), np.zeros((4, 4))

    def to_numpy(self):
        return self.values


class Described:
    __array_interface__ = np.zeros(4).__array_interface__


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        (Sparse(), "src.toarray()"),
        (Frame(), "src.to_numpy()"),
        (Described(), "numpy.asarray(src)"),
        (memoryview(np.ones(4)), "numpy.asarray(src)"),
        (python_array("f", [1.0]), "numpy.asarray(src)"),
        ((ctypes.c_float * 4)(), "numpy.asarray(src)"),
        (b"abcd", "numpy.frombuffer(src, numpy.float32)"),
        (bytearray(4), "numpy.frombuffer(src, numpy.float32)"),
        ([1.0, 2.0], "numpy.array(src, numpy.float32)"),
        (range(4), "numpy.array(src, numpy.float32)"),
        (iter([1]), "pass an array"),
        (np.ndarray, "pass an array"),
    ],
)
def test_what_holds_numbers_and_is_no_array(value, instead):
    assert instead in shown(lambda: copy[1](value, zeros(), 4), "launch-argument-kind", kind=LaunchError)
    text = shown(lambda: weft.LayoutTensor(value), "view-open", kind=ViewError)
    assert instead.replace("src", "x") in text


@pytest.mark.parametrize("dtype", [">f4", ">i4", "O", "U4", "S4", "M8[s]", "m8[s]", "V4", "c8", "g", [("a", "f4")]])
def test_elements_that_no_kernel_has(dtype):
    shown(lambda: copy[1](np.zeros(128, dtype), zeros(), 128), "launch-array-dtype", kind=LaunchError)


@pytest.mark.parametrize("empty", [np.zeros(0, np.float32), np.zeros((0, 4), np.float32)])
def test_an_array_without_elements(empty):
    copy[1](empty, empty.copy(), 0)
    text = shown(lambda: copy[1](empty, zeros(), 1), "hazard-out-of-bounds", kind=OutOfBounds)
    assert "src has no elements" in text
    assert "mask the access, or skip the launch" in text


def test_an_array_of_no_dimensions_is_one_element():
    out = zeros(128)
    copy[1](np.array(3, np.float32), out, 1)
    assert out[0] == 3
    target = np.array(0, np.float32)
    copy[1](out, target, 1)
    assert target == 3


def test_memory_that_cannot_be_written_stays():
    fixed = zeros(128)
    fixed.flags.writeable = False
    copy[1](fixed, zeros(128), 128)
    for target in (fixed, np.frombuffer(bytes(512), np.float32)):
        shown(lambda target=target: copy[1](np.ones(128, np.float32), target, 128), "hazard-read-only")
        assert not target.any()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: zeros(64)[::2], "shape (32,) and strides (2,)"),
        (lambda: zeros(64).reshape(8, 8).T, "shape (8, 8) and strides (1, 8)"),
        (lambda: np.broadcast_to(np.float32(0), (128,)), "shape (128,) and strides (0,)"),
    ],
)
def test_a_report_says_that_an_array_is_strided(made, words):
    text = shown(lambda: copy[1](made(), zeros(128), 128), "hazard-out-of-bounds", kind=OutOfBounds)
    assert f"the array has {words}, and a pointer to it counts what lies in memory" in text


@pytest.mark.parametrize("made", [lambda: zeros(64), lambda: zeros(64).reshape(8, 8), lambda: zeros(256)[:64]])
def test_of_other_arrays_it_says_nothing(made):
    assert "strides" not in shown(lambda: copy[1](made(), zeros(128), 128), "hazard-out-of-bounds", kind=OutOfBounds)


def test_an_array_that_its_library_does_not_share():
    class Locked:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self):
            raise BufferError("it is locked")

    assert "it is locked" in shown(lambda: copy[1](Locked(), zeros(), 4), "launch-array-form", kind=LaunchError)


def test_a_view_of_a_masked_array():
    masked = np.ma.zeros(4, np.float32)
    assert "x.filled(0)" in shown(lambda: weft.LayoutTensor(masked), "view-array-form", kind=ViewError)


# Numbers


@pytest.mark.parametrize("value", [np.float32(2), np.float64(2), np.float16(2), np.longdouble(2), np.int8(2), Mode.FAST,
                                   np.uint64(2**63), TRUE, SMALL, Half.HALF, float("inf"), -(2**63), 2**64 - 1])  # fmt: skip
def test_numbers_of_any_library(value):
    assert as_number(value) == value
    for kernel in (put, keep, add):
        assert written(kernel, value) == np.float32(float(value))


def test_nan():
    assert np.isnan(written(put, float("nan")))
    assert np.isnan(written(keep, float("nan")))


@pytest.mark.parametrize(
    "value",
    [
        1j, COMPLEX, EXACT, Fraction(4, 2), Decimal("1.5"), Color.RED, Way.UP, UFUNC, len, b"a", np.bytes_(b"1"),
        np.datetime64(3, "s"), np.timedelta64(3, "s"), "a", np.str_("a"),
    ],
)  # fmt: skip
def test_what_is_no_number(value):
    assert as_number(value) is None
    text = shown(lambda: put[1](zeros(), value), "launch-argument-kind", kind=LaunchError)
    assert "asarray" not in text
    for kernel, line in ((keep, "gl.store(out, x)"), (add, "gl.store(out, gl.load(out) + x)")):
        report = shown(lambda kernel=kernel: kernel[1](zeros(), value), "language-operand", line, CompilationError)
        assert f"but got {value!r} of type" in report


@pytest.mark.parametrize("value", [np.void(b"1234"), np.zeros(1, [("a", "f4")])[0]])
def test_a_record_is_no_number(value):
    shown(lambda: put[1](zeros(), value), "launch-argument-kind", kind=LaunchError)
    shown(lambda: keep[1](zeros(), value), "launch-constexpr-kind", kind=LaunchError)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 2**200, 1e39, -1e308, np.float64(1e39)])
def test_numbers_beyond_their_range(value):
    shown(lambda: put[1](zeros(), value), "launch-argument-range", kind=LaunchError)
    put[1](zeros(), 3.4028235e38)


def test_integers_beyond_64_bits_at_compile_time():
    for value in (2**64, -(2**63) - 1):
        shown(lambda value=value: add[1](zeros(), value), "language-integer-range", "gl.store(out, gl.load(out) + x)")


def test_scalars_of_numpy_that_a_kernel_reads():
    @weft.jit
    def kernel(out):
        at = out + gl.arange(0, SHAPE[0], LINE)
        gl.store(at, gl.load(at) + FLOAT + BYTE + SMALL + TRUE)

    out = zeros(128)
    kernel[1](out)
    assert out.tolist() == [105.0] * 128


def test_their_arithmetic_does_not_wrap():
    @weft.jit
    def kernel(out):
        gl.store(out, BYTE + BYTE + FLOAT)

    out = zeros()
    kernel[1](out)
    assert out[0] == 202.5


def test_a_function_of_numpy_that_a_kernel_names():
    @weft.jit
    def kernel(out):
        gl.store(out, UFUNC)

    shown(lambda: kernel[1](zeros()), "language-operand", "gl.store(out, UFUNC)", CompilationError)

    @weft.jit
    def calls(out):
        gl.store(out, UFUNC(1.0, 2.0))

    text = shown(lambda: calls[1](zeros()), "lang-host-function", "gl.store(out, UFUNC(1.0, 2.0))", CompilationError)
    assert "write gl.add(...)" in text


# PyTorch


def test_tensors_that_are_memory(torch):
    class Named(torch.Tensor):
        pass

    for tensor in (
        torch.ones(128, requires_grad=True),
        torch.nn.Parameter(torch.ones(128)),
        torch.ones(128).as_subclass(Named),
        torch.ones(64, requires_grad=True).repeat(2) * 1,
    ):
        out = torch.zeros(128)
        copy[1](tensor, out, 128)
        assert out.tolist() == [1.0] * 128
        copy[1](out + 1, tensor, 128)
        assert tensor.detach().tolist() == [2.0] * 128


def lazy_tensors(torch: Any) -> dict[str, Any]:
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls):
            return torch.Tensor._make_wrapper_subclass(cls, (128,), dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    with torch._subclasses.fake_tensor.FakeTensorMode():
        fake = torch.zeros(128)
    return {
        "x.resolve_neg()": torch._neg_view(torch.ones(128)),
        "x.resolve_conj()": torch.zeros(128, dtype=torch.complex64).conj(),
        "x.to_dense()": torch.ones(128).to_sparse(),
        "x.to_padded_tensor": torch.nested.nested_tensor([torch.ones(3), torch.ones(4)]),
        "a tensor with numbers": fake,
        "it has no memory": Wrapped(),
        "no memory": torch._efficientzerotensor(128),
    }


def test_tensors_whose_memory_says_something_else(torch):
    for words, tensor in lazy_tensors(torch).items():
        launched = shown(lambda tensor=tensor: copy[1](tensor, zeros(), 4), "launch-array-form", kind=LaunchError)
        viewed = shown(lambda tensor=tensor: weft.LayoutTensor(tensor), "view-array-form", kind=ViewError)
        assert words in launched
        assert words in viewed


def test_tensors_within_a_transformation(torch):
    out = torch.zeros(128)
    for transform in (torch.func.vmap, torch.func.grad):
        call = transform(lambda x: (copy[1](x, out, 128), x.sum())[1])
        text = shown(lambda call=call: call(torch.ones(2, 128)), "launch-array-form", kind=LaunchError)
        assert "torch.library.custom_op" in text


def test_tensors_of_other_types_and_devices(torch):
    quantized = torch.quantize_per_tensor(torch.ones(128), 0.1, 0, torch.qint8)
    shown(lambda: copy[1](quantized, zeros(), 4), "launch-array-dtype", kind=LaunchError)
    shown(lambda: weft.LayoutTensor(quantized), "view-element-type", kind=ViewError)
    shown(lambda: weft.LayoutTensor(torch.ones(4, device="meta")), "view-device-kind", kind=ViewError)
