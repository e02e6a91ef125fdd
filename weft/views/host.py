"""Arrays of any library as storage of views, without a copy and without importing the library.

An array is anything with `data_ptr()` (PyTorch and look-alikes), a NumPy array, or an object with `__cuda_array_interface__`
(CuPy, Numba, JAX) or DLPack. Host memory is accessed through NumPy. GPU memory can be passed to kernels only; access to its
elements is an error with advice how to copy it. NumPy is imported with the first array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import TYPE_CHECKING, Any, NoReturn, cast

from weft.errors import cluster, fail
from weft.errors import views as errors
from weft.forms import is_numpy, other_form
from weft.layout.nested.int_tuple import suffix_product
from weft.layout.nested.layouts import Layout
from weft.views.storage import ALLOCATORS, HOST_RANK, OPENERS, AddressSpace, Index, Opened, Places, Storage

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SMALL_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
# Names of the language for types that have other names in NumPy and ml_dtypes.
_ALIASES = {"int1": "bool", "float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2"}


class ArrayStorage:
    """The memory of an array, as consecutive elements from its first one."""

    def __init__(self, array: Any, dtype: np.dtype[Any], pointer: int, space: AddressSpace) -> None:
        self.array = array
        self.dtype = dtype
        self.pointer = pointer
        self.space = space

    def __reduce__(self) -> tuple[Any, ...]:
        from weft.views.host_arrays import sent

        return sent(self)

    def describe(self) -> str:
        """The array, for messages: `the float32 Tensor of shape (4, 4)`."""
        shape = tuple(getattr(self.array, "shape", ()))
        return f"the {self.dtype.name} {type(self.array).__name__} of shape {shape}"

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> Any:
        """The elements of accesses; see `Storage`."""
        raise NotImplementedError

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements of accesses."""
        raise NotImplementedError

    def strided(self, offset: int, shape: Sequence[int], strides: Sequence[int], writing: bool = False) -> Array:
        """A NumPy array of the same memory; strides in elements."""
        raise NotImplementedError

    def elements(self, writing: bool = False) -> tuple[Array, int]:
        """All of the memory as a flat NumPy array, and the index of element 0 in it."""
        raise NotImplementedError

    def copy_async(
        self, base: Index, places: Places, source: Storage, source_base: Index, source_places: Places,
        mask: Sequence[Any] | None, active: Any = None,
    ) -> None:  # fmt: skip
        """Raises ViewError (view-async-host): only kernels copy asynchronously."""
        raise fail(errors.ASYNC_HOST, view=self.describe(), space=repr(self.space))

    def peer(self, rank: Index) -> Storage:
        """Raises CompilationError (cluster-view): the host has no clusters."""
        raise fail(cluster.VIEW, space=repr(self.space))

    def check(self, indices: Sequence[Index], sizes: Sequence[Index], history: str, where: Sequence[str]) -> None:
        """Raises ViewIndexError (view-index-kind): on the host every index is an int, which the view has checked itself."""
        late = next(index for index in (*indices, *sizes) if not isinstance(index, int))
        instead = "use an integer; a run-time scalar exists in kernels only"
        raise fail(errors.INDEX_KIND, index=repr(late), view=history, instead=instead)

    def wide(self, index: Index) -> Index:
        """The index unchanged, since Python ints have no width."""
        return index

    def clamp(self, index: Index, low: int, high: Index) -> Index:
        """The index, clamped to the bounds."""
        return min(max(index, low), high)

    def width(self, value: Any) -> int:
        """The number of numbers in a value."""
        import numpy as np

        return int(np.size(value))

    def address(self, offset: Index) -> int:
        """The address of an element."""
        return self.pointer + offset * self.dtype.itemsize

    def pointer_to(self, offset: Index) -> int:
        """The address of an element."""
        return self.address(offset)


class DeviceStorage(ArrayStorage):
    """GPU memory, whose elements only kernels access."""

    def __init__(self, array: Any, dtype: np.dtype[Any], pointer: int) -> None:
        super().__init__(array, dtype, pointer, AddressSpace.GLOBAL)

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> NoReturn:
        """Raises ViewError (view-device-memory)."""
        raise self._refused("read")

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> NoReturn:
        """Raises ViewError (view-device-memory)."""
        raise self._refused("write")

    def strided(self, offset: int, shape: Sequence[int], strides: Sequence[int], writing: bool = False) -> NoReturn:
        """Raises ViewError (view-device-memory)."""
        raise self._refused("write" if writing else "read")

    def elements(self, writing: bool = False) -> NoReturn:
        """Raises ViewError (view-device-memory)."""
        raise self._refused("write" if writing else "read")

    def _refused(self, verb: str) -> Exception:
        if hasattr(self.array, "cpu"):
            fix = "LayoutTensor(view.array.cpu())"
        elif hasattr(self.array, "get"):
            fix = "LayoutTensor(view.array.get())"
        else:
            fix = "to an array of the host, by its library"
        return fail(errors.DEVICE_MEMORY, array=self.describe(), verb=verb, fix=fix)


class HostStorage(ArrayStorage):
    """Host memory, accessed through NumPy. `alive` returns why the memory is no longer valid, or an empty string."""

    def __init__(
        self, array: Any, memory: Array, first: int, pointer: int, alive: Callable[[], str] = lambda: ""
    ) -> None:
        super().__init__(array, memory.dtype, pointer, AddressSpace.GENERIC)
        self.memory = memory
        self.first = first
        self.alive = alive

    def load(self, base: Index, places: Places, mask: Sequence[Any] | None) -> Any:
        """A copy of the elements as an `Element`; a single number acts as a scalar."""
        from weft.views.host_arrays import element

        memory, first = self.elements()
        return element(memory, self._indices(base + first, places), mask, len(places.const))

    def store(self, base: Index, places: Places, value: Any, mask: Sequence[Any] | None) -> None:
        """Write the elements. Raises ViewError: view-vector-length, view-read-only, view-memory-gone."""
        import numpy as np

        memory, first = self.elements(writing=True)
        indices = self._indices(base + first, places)
        values = np.asarray(value)
        if values.size not in (1, len(indices)):
            raise fail(errors.VECTOR_LENGTH, count=values.size, width=len(indices))
        values = np.broadcast_to(values.reshape(-1), len(indices)).astype(self.dtype)
        if mask is not None:
            inside = np.repeat(np.asarray(mask, bool), places.width)
            indices, values = indices[inside], values[inside]
        memory[indices] = values

    def _indices(self, base: int, places: Places) -> Any:
        import numpy as np

        starts = np.array(places.const, np.int64) + base
        for stride, factors in zip(places.strides, places.factors, strict=True):
            starts += stride * np.array(factors, np.int64)
        return (starts[:, None] + np.arange(places.width)).reshape(-1)

    def strided(self, offset: int, shape: Sequence[int], strides: Sequence[int], writing: bool = False) -> Array:
        """A NumPy array of the same memory. Raises ViewError: view-read-only, view-memory-gone."""
        import numpy as np

        memory, first = self.elements(writing)
        if 0 in shape:
            return np.empty(tuple(shape), self.dtype)
        itemsize = self.dtype.itemsize
        steps = tuple(stride * itemsize for stride in strides)
        # `np.ndarray` checks that the array stays within the buffer. The buffer is passed as bytes, since ml_dtypes types have
        # no buffer format.
        start = (offset + first) * itemsize
        return np.ndarray(tuple(shape), self.dtype, memory.view(np.uint8).data, start, steps)

    def elements(self, writing: bool = False) -> tuple[Array, int]:
        """All of the memory, and the index of element 0 in it. Raises ViewError: view-read-only, view-memory-gone."""
        reason = self.alive()
        if reason:
            raise fail(errors.MEMORY_GONE, array=type(self.array).__name__, reason=reason)
        if writing and not self.memory.flags.writeable:
            raise fail(errors.READ_ONLY, array=self.describe())
        return self.memory, self.first


# Opening arrays


@dataclass(frozen=True, slots=True)
class Extent:
    """Shape and strides of an array in elements, and the range of offsets that it covers (`high` excluded)."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int]) -> Extent:
        """The extent of an array."""
        reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        empty = 0 in shape
        low = 0 if empty else sum(min(each, 0) for each in reach)
        high = 0 if empty else sum(max(each, 0) for each in reach) + 1
        return cls(tuple(shape), tuple(strides), low, high)

    def opened(self, storage: ArrayStorage) -> Opened:
        """The array as an `Opened` object."""
        layout = Layout(self.shape, self.strides) if self.shape else Layout(1, 1)
        return Opened(storage, 0, layout, (self.low, self.high))


def open_array(value: Any) -> Opened | None:
    """An array of any library. Raises ViewError: view-array-strides, view-array-form, view-element-type,
    view-device-kind.
    """
    if isinstance(value, type):
        return None
    form = other_form(value)
    if form is not None:
        raise fail(errors.FORM, what=f"a {type(value).__name__}", why=form[0], instead=form[1])
    if is_numpy(value):
        return _open_numpy(value)
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _open_pointer(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _open_interface(value)
    if hasattr(value, "__dlpack_device__"):
        return _open_dlpack(value)
    if hasattr(value, "dtype") and hasattr(value, "aligned") and hasattr(value, "name"):
        # A `MockTensor`, the stand-in for an array in `kernel.warmup`.
        return Opened(DeviceStorage(value, numpy_dtype(value.name), 0))
    return None


def _open_numpy(array: Array, owner: Any = None) -> Opened:
    """A NumPy array; `owner` is the array of another library that it came from."""
    import numpy as np

    if array.dtype.kind in "OSUMmT" or array.dtype.names is not None or not array.dtype.isnative:
        raise fail(errors.ELEMENT_TYPE, dtype=array.dtype)
    itemsize = array.dtype.itemsize
    if any(stride % itemsize for size, stride in zip(array.shape, array.strides, strict=True) if size > 1):
        raise fail(errors.STRIDES, strides=array.strides, dtype=str(array.dtype), itemsize=itemsize)
    strides = [0 if size <= 1 and stride % itemsize else stride // itemsize
               for size, stride in zip(array.shape, array.strides, strict=True)]  # fmt: skip
    extent = Extent.of(array.shape, strides)
    lowest = array[tuple(slice(-1, None) if stride < 0 else slice(None) for stride in array.strides)]
    # Viewed as raw bytes (void) for `as_strided`, which does not support element types of ml_dtypes such as float8_e5m2.
    memory = np.lib.stride_tricks.as_strided(
        lowest.view(f"V{itemsize}"), (extent.high - extent.low,), (itemsize,), writeable=array.flags.writeable
    ).view(array.dtype)
    pointer = array.__array_interface__["data"][0]
    storage = HostStorage(array if owner is None else owner, memory, -extent.low, pointer, _alive(array))
    return extent.opened(storage)


def _alive(array: Array) -> Callable[[], str]:
    """A function that checks whether the memory of a NumPy array is still valid.

    NumPy does not prevent a buffer from being closed or resized under an array, so both are checked here.
    """
    chain: list[Any] = list(_bases(array))
    root = chain[-1]
    owner: Array = next(each for each in reversed(chain) if is_numpy(each))
    pointer, nbytes, length = owner.__array_interface__["data"][0], owner.nbytes, _length(root)

    def check() -> str:
        if getattr(root, "closed", False):
            return "its buffer has been closed"
        if owner.nbytes != nbytes or owner.__array_interface__["data"][0] != pointer:
            return "the array has been resized"
        return "its buffer has been resized" if _length(root) != length else ""

    return check


def _bases(array: Any) -> Iterator[Any]:
    """An array and its chain of bases, up to the owner of the memory."""
    while array is not None:
        yield array
        array = getattr(array, "base", None)


def _length(buffer: Any) -> int:
    """The size of a resizable buffer in bytes; 0 for other owners of memory."""
    return len(buffer) if isinstance(buffer, (bytearray, mmap)) else 0


def _open_pointer(value: Any) -> Opened:
    """Arrays with PyTorch's interface: `data_ptr()`, `shape`, `stride()`, `dtype` and `device`."""
    dtype = numpy_dtype(value.dtype)
    pointer = int(value.data_ptr())
    extent = Extent.of(tuple(value.shape), tuple(value.stride()))
    device = getattr(value, "device", "cpu")
    kind = str(getattr(device, "type", device)).partition(":")[0]
    if kind == "cuda":
        return extent.opened(DeviceStorage(value, dtype, pointer))
    if kind != "cpu":
        raise fail(errors.DEVICE_KIND, device=device)
    memory = _memory_at(pointer + extent.low * dtype.itemsize, extent.high - extent.low, dtype)

    def alive() -> str:
        storage = value.untyped_storage() if hasattr(value, "untyped_storage") else None
        end = pointer + extent.high * dtype.itemsize
        if int(value.data_ptr()) != pointer:
            return "the tensor has other memory now"
        if storage is not None and storage.data_ptr() + storage.nbytes() < end:
            return "the tensor's storage has been resized"
        return ""

    return extent.opened(HostStorage(value, memory, -extent.low, pointer, alive))


def _memory_at(address: int, count: int, dtype: np.dtype[Any]) -> Array:
    """A NumPy array over memory of another library's array, which the storage keeps alive."""
    import numpy as np

    if not count:
        return np.empty(0, dtype)
    buffer = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(buffer), np.uint8).view(dtype)


def _open_interface(value: Any) -> Opened:
    """Arrays with `__cuda_array_interface__`."""
    interface: dict[str, Any] = value.__cuda_array_interface__
    own = getattr(value, "dtype", None)
    dtype = numpy_dtype(interface["typestr"] if own is None else own)
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    if strides is None:
        steps = list(suffix_product(shape)) if shape else []
    elif any(stride % dtype.itemsize for stride in strides):
        raise fail(errors.STRIDES, strides=strides, dtype=str(dtype), itemsize=dtype.itemsize)
    else:
        steps = [stride // dtype.itemsize for stride in strides]
    return Extent.of(shape, steps).opened(DeviceStorage(value, dtype, interface["data"][0] or 0))


def _open_dlpack(value: Any) -> Opened:
    """Other arrays, exported by DLPack. NumPy imports those in host memory."""
    import numpy as np

    kind, ordinal = value.__dlpack_device__()
    if int(kind) not in _DLPACK_HOST:
        raise fail(errors.DEVICE_KIND, device=f"{int(kind)}:{ordinal} (DLPack), without a __cuda_array_interface__,")
    try:
        array = np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise fail(errors.ELEMENT_TYPE, dtype=str(getattr(value, "dtype", error))) from error
    return _open_numpy(array, owner=value)


_DLPACK_HOST = (1, 3)  # kDLCPU, kDLCUDAHost


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a dtype of any library; bfloat16 and fp8 come from ml_dtypes. Raises view-element-type."""
    import numpy as np

    if isinstance(dtype, np.dtype):
        return cast("np.dtype[Any]", dtype)
    name = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype).removeprefix("torch.")
    name = _ALIASES.get(name, name)
    try:
        if name in _SMALL_FLOATS:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, name))
        return np.dtype(name)
    except TypeError as error:
        raise fail(errors.ELEMENT_TYPE, dtype=name) from error


def allocate_array(dtype: Any, count: int, space: AddressSpace) -> Storage | None:
    """New, uninitialised host memory."""
    import numpy as np

    if space not in (AddressSpace.GENERIC, AddressSpace.LOCAL):
        return None
    memory = np.empty(count, numpy_dtype(dtype))
    return HostStorage(memory, memory, 0, memory.__array_interface__["data"][0])


OPENERS.enter(HOST_RANK, open_array)
ALLOCATORS.enter(HOST_RANK, allocate_array)
