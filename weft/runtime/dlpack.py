"""Reading a DLPack capsule: pointer, device, dtype and extents of an array of any framework.

The capsule is only read: nothing is copied, and nothing is imported from the producer. It is never marked as consumed, so its
destructor releases the memory when the last reference to it is dropped.
Struct layout: dlpack.h, versions 0.x (`DLManagedTensor`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors.launch import ARRAY_DTYPE, ARRAY_FORM
from weft.runtime.dtypes import ITEMSIZE

CPU_KINDS = (1, 3)
"""kDLCPU and kDLCUDAHost (pinned)."""
CUDA_KINDS = (2, 13)
"""kDLCUDA and kDLCUDAManaged."""

_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


@dataclass(frozen=True, slots=True)
class Exported:
    """Contents of a capsule. `low` and `high` bound the bytes that its elements occupy; `keepalive` owns the memory.

    `strides` are in elements.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int
    keepalive: object


def export(value: Any) -> Exported:
    """Read the capsule of `value.__dlpack__()`. Raises LaunchError: launch-array-dtype for an unsupported element type,
    launch-array-form for an array that its library refuses to export.
    """
    try:
        capsule = value.__dlpack__()
    except (BufferError, RuntimeError) as error:
        what, instead = f"a {type(value).__name__}", "an array that its library can share, such as a copy"
        raise fail(ARRAY_FORM, what=what, why=str(error), instead=instead) from error
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(get_pointer(capsule, b"dltensor"))
    name = _name(tensor)
    pointer = (tensor.data or 0) + tensor.byte_offset
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else contiguous(shape)
    low, high = _span(shape, strides)
    itemsize = ITEMSIZE[name]
    return Exported(pointer, name, shape, strides, pointer + low * itemsize, pointer + high * itemsize, capsule)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[: len(shape)]))


def _name(tensor: _Tensor) -> str:
    base = _CODES.get(tensor.code, f"code{tensor.code}")
    name = base if base.startswith(("bool", "float8")) else f"{base}{tensor.bits}"
    if name not in ITEMSIZE or tensor.lanes != 1:
        raise fail(ARRAY_DTYPE, dtype=f"{name} (DLPack, {tensor.lanes} lanes)", known=", ".join(ITEMSIZE))
    return name


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    if 0 in shape:
        return 0, 0
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + 1
