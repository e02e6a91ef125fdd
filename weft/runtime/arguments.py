"""Classification of launch arguments: arrays on a device or the host, numbers, and objects that a kernel cannot take.

No framework is imported. An array is anything with `data_ptr()` (PyTorch and look-alikes), `__cuda_array_interface__`
(CuPy, Numba, JAX), `__array_interface__` (NumPy) or DLPack. This is the general path; the generated launch function has a fast
path for `torch.Tensor` (see `weft.runtime.binder`).
"""

from __future__ import annotations

import ctypes
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from weft.errors import fail
from weft.errors.launch import ARRAY_DEVICE, ARRAY_DTYPE, ARRAY_FORM
from weft.forms import is_numpy, of_jax, other_form
from weft.runtime import dlpack
from weft.runtime.dtypes import ITEMSIZE, dtype_name, numpy_dtype

if TYPE_CHECKING:
    import numpy as np

HOST = -1
"""Device number of host memory."""

_INTERFACE_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


@dataclass(frozen=True, slots=True)
class Array:
    """An array argument: canonical dtype name, address of its first element, and CUDA ordinal (or `HOST`)."""

    dtype: str
    pointer: int
    device: int

    @property
    def on_host(self) -> bool:
        """True for host memory, on which kernels are simulated."""
        return self.device == HOST


@dataclass(frozen=True, slots=True)
class HostBuffer:
    """An array in host memory, and the storage that it is a view of.

    `pointer` is the address of the first element. `address` and `nbytes` bound the whole storage, by which arguments that share
    memory are recognised. `low` and `high` bound the array itself, from its lowest byte to its highest: the bytes that a kernel
    may access. They include the gaps of a strided array, which a tile may load and discard. `keepalive` owns the memory.
    `form` is a clause for messages about a non-contiguous array's shape and strides. For the memory of a rank of a simulated
    world, `label` is its name in reports (behind the parameter's, if it begins with a dot), and `pad` the rank and the number
    of ranks if it is a signal pad. `multicast` is the memory of each rank, if this is a multicast address.
    """

    pointer: int
    address: int
    nbytes: int
    low: int
    high: int
    dtype: str
    writable: bool
    keepalive: object
    form: str = ""
    label: str = ""
    pad: tuple[int, int] | None = None
    multicast: tuple[HostBuffer, ...] = ()

    def bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The whole storage as bytes, without a copy; read-only if the owner is."""
        import numpy as np

        if self.nbytes == 0:
            return np.empty(0, np.uint8)
        memory = memoryview((ctypes.c_uint8 * self.nbytes).from_address(self.address))
        view = np.frombuffer(memory, np.uint8)
        view.flags.writeable = self.writable
        return view

    def owner(self) -> weakref.ref[np.ndarray[Any, Any]] | None:
        """A reference that dies with a NumPy array's memory, whose address may then be another's; None for other arrays."""
        return weakref.ref(_owner(cast("Any", self.keepalive))) if is_numpy(self.keepalive) else None

    def elements(self) -> np.ndarray[Any, Any]:
        """The storage as a flat array of `dtype`, aligned to `pointer`: element `first` is the argument's first."""
        itemsize = ITEMSIZE[self.dtype]
        skip = (self.pointer - self.address) % itemsize
        count = max(self.nbytes - skip, 0) // itemsize
        return self.bytes()[skip : skip + count * itemsize].view(numpy_dtype(self.dtype))

    @property
    def first(self) -> int:
        """Index in `elements()` of the argument's first element."""
        return (self.pointer - self.address) // ITEMSIZE[self.dtype]


def array(value: Any) -> Array | None:
    """Dtype, address and device of an array argument, or None when `value` is not an array.

    Raises LaunchError: launch-array-dtype for element types that kernels do not support, launch-array-device for memory that
    is neither CUDA's nor the host's, launch-array-form for lazily negated, sparse, fake and masked arrays, and for JAX's
    deleted and sharded ones, and its tracers. Waits until an array of JAX is computed.
    """
    if isinstance(value, type):
        return None
    if of_jax(value):
        _await(value)
    form = other_form(value)
    if form is not None:
        raise fail(ARRAY_FORM, what=f"a {type(value).__name__}", why=form[0], instead=form[1])
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        pointer = value.data_ptr()
        return Array(dtype_name(value.dtype), pointer, _device_of(value, pointer))
    if is_numpy(value):
        return Array(dtype_name(value.dtype), value.__array_interface__["data"][0], HOST)
    if hasattr(value, "__cuda_array_interface__"):
        interface = value.__cuda_array_interface__
        pointer = interface["data"][0] or 0
        return Array(_interface_dtype(value, interface), pointer, _device_of(value, pointer))
    if hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value)
    return None


def _await(value: Any) -> None:
    """Wait until JAX, which computes arrays asynchronously and on streams of its own, has computed one.

    Raises LaunchError (launch-array-form) for one that was deleted or donated, or lies on several devices, and for tracers.
    Other objects of JAX, such as dtypes, are left to the caller."""
    if not hasattr(value, "aval"):
        return
    if not hasattr(value, "__dlpack_device__"):
        why, instead = "JAX traces a function with it", "an array, outside of jax.jit, jax.grad, jax.vmap and the like"
    elif value.is_deleted():
        why, instead = "JAX has deleted it", "an array that is neither deleted nor donated"
    elif len(value.sharding.device_set) > 1:
        why, instead = "it lies on several devices", "the part on one, such as x.addressable_shards[0].data"
    else:
        value.block_until_ready()
        return
    raise fail(ARRAY_FORM, what=f"a {type(value).__name__}", why=why, instead=instead)


def extents(value: Any) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
    """Shape and strides of an array, in elements; None for objects without a shape.

    The strides of a field of a structured array may be fractions, since its records need not be a multiple of the field.
    """
    if callable(getattr(value, "stride", None)):
        return tuple(value.shape), tuple(value.stride())
    if is_numpy(value):
        return value.shape, _in_elements(value.strides, value.itemsize)
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        shape, strides = tuple(interface["shape"]), interface.get("strides")
        itemsize = ITEMSIZE[_interface_dtype(value, interface)]
        return shape, dlpack.contiguous(shape) if strides is None else _in_elements(strides, itemsize)
    if hasattr(value, "__dlpack_device__"):
        exported = dlpack.export(value)
        return exported.shape, exported.strides
    return None


def _in_elements(strides: Iterable[int], itemsize: int) -> tuple[float, ...]:
    return tuple(n / itemsize if n % itemsize else n // itemsize for n in strides)


def host_buffer(value: Any) -> HostBuffer:
    """The storage behind a host array, without a copy. `value` is one that `array` places on the host."""
    found = extents(value)
    return replace(_host_buffer(value), form="" if found is None else _form(*found))


def _form(shape: tuple[int, ...], strides: tuple[float, ...]) -> str:
    """A clause for messages about a non-contiguous array, in which pointer arithmetic easily goes wrong."""
    steps = dlpack.contiguous(shape)
    if 0 in shape or all(one == other or size == 1 for size, one, other in zip(shape, strides, steps, strict=True)):
        return ""
    return f"; the array has shape {shape} and strides {strides}, and a pointer to it counts what lies in memory"


def _host_buffer(value: Any) -> HostBuffer:
    if hasattr(value, "untyped_storage"):
        storage, dtype = value.untyped_storage(), dtype_name(value.dtype)
        own = _own_bytes(value.data_ptr(), value.shape, value.stride(), ITEMSIZE[dtype])
        return HostBuffer(value.data_ptr(), storage.data_ptr(), storage.nbytes(), *own, dtype, True, (value, storage))
    if is_numpy(value):
        return _numpy_buffer(value)
    exported = dlpack.export(value)
    low, high = exported.low, exported.high
    # JAX exports every array as read-only, yet on a GPU kernels write to those that they are given as outputs.
    writable = of_jax(value)
    return HostBuffer(exported.pointer, low, high - low, low, high, exported.dtype, writable, exported.keepalive)


def _own_bytes(pointer: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The address of an array's lowest byte and that after its highest; strides in elements."""
    if 0 in shape:
        return pointer, pointer
    reach = [(size - 1) * stride * itemsize for size, stride in zip(shape, strides, strict=True)]
    return pointer + sum(min(each, 0) for each in reach), pointer + sum(max(each, 0) for each in reach) + itemsize


def joined(buffers: Sequence[HostBuffer]) -> list[HostBuffer]:
    """The same buffers, with the union of overlapping storages, such as those of an array and of a tensor made from it.

    The simulator recognises arguments that share memory by their common storage.
    """
    spans: list[tuple[int, int]] = []
    for start, end in sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in buffers if buffer.nbytes):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))

    def whole(buffer: HostBuffer) -> HostBuffer:
        at = bisect_right(spans, buffer.address, key=lambda span: span[0]) - 1
        if not buffer.nbytes:
            return buffer
        start, end = spans[at]
        return replace(buffer, address=start, nbytes=end - start)

    return [whole(buffer) for buffer in buffers]


def _owner(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array that a view is of in the end."""
    import numpy as np

    owner, base = value, cast("Any", value.base)
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = cast("np.ndarray[Any, Any]", base)
        # NumPy's `as_strided` puts an object that is not an array between a view and its base; it has a `base` of its own.
        base = getattr(cast("Any", base), "base", None)
    return owner


def _numpy_buffer(value: np.ndarray[Any, Any]) -> HostBuffer:
    from numpy.lib.array_utils import byte_bounds

    owner = _owner(value)
    low, high = byte_bounds(owner)
    pointer = value.__array_interface__["data"][0]
    nbytes = high - low if owner.size else 0
    own = byte_bounds(value) if value.size else (pointer, pointer)
    return HostBuffer(pointer, low, nbytes, *own, dtype_name(value.dtype), value.flags.writeable, value)


def _interface_dtype(value: Any, interface: dict[str, Any]) -> str:
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return dtype_name(dtype)
    typestr: str = interface["typestr"]
    name = f"{_INTERFACE_KINDS.get(typestr[1], typestr)}{int(typestr[2:]) * 8}"
    name = "bool" if name == "bool8" else name
    if name not in ITEMSIZE or typestr[0] == ">":
        raise fail(ARRAY_DTYPE, dtype=typestr, known=", ".join(ITEMSIZE))
    return name


def _device_of(value: Any, pointer: int) -> int:
    """The CUDA ordinal of an array: from its `device` attribute (`cuda:1`, CuPy's `device.id`), else from the driver.

    The `id` of JAX's devices counts those of all processes, so that their `local_hardware_id` goes first."""
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None)
    if kind == "cpu":
        return HOST
    if isinstance(kind, str) and kind != "cuda":
        raise fail(ARRAY_DEVICE, device=device)
    for name in ("index", "local_hardware_id", "id"):
        ordinal = getattr(device, name, None)
        if isinstance(ordinal, int):
            return ordinal
    from weft.runtime import driver

    return driver.device_of_pointer(pointer)


def _from_dlpack(value: Any) -> Array:
    kind, ordinal = value.__dlpack_device__()
    if int(kind) not in dlpack.CPU_KINDS + dlpack.CUDA_KINDS:
        raise fail(ARRAY_DEVICE, device=f"of DLPack kind {int(kind)}")
    exported = dlpack.export(value)
    return Array(exported.dtype, exported.pointer, HOST if int(kind) in dlpack.CPU_KINDS else ordinal)
