"""Tensor descriptors as launch arguments. `weft.nvidia.hopper` creates and checks them.

A descriptor parameter becomes several parameters of the compiled kernel: the tensor map, then an extent and a stride for each
dimension. Their values are prepared in one block of host memory, and a launch passes addresses into it:

    bytes 0 to 127    the tensor map
    bytes 128 to 147  five extents, int32
    bytes 152 to 191  five strides in elements, int64

A `TensorMap` holds an address and no reference to the tensor, so it can be shared by all descriptors of equal content.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from weft.errors import fail
from weft.errors.asynchronous import DESCRIPTOR_PICKLE
from weft.locks import Lock
from weft.runtime import rehearsal, tensormap
from weft.runtime.arguments import HostBuffer, host_buffer

Mode = Literal["tiled", "im2col"]
MOST_DIMS = 5
_VALUES = struct.Struct(f"<{MOST_DIMS}i4x{MOST_DIMS}q")
_SHAPE_AT = tensormap.BYTES
_STRIDES_AT = _SHAPE_AT + struct.calcsize(f"<{MOST_DIMS}i4x")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The type of a descriptor argument, on which a kernel is specialised.

    `dtype` is a canonical name, `layout` the `weft.layout.NVMMASharedLayout` of blocks in shared memory.
    """

    dtype: str
    rank: int
    block_shape: tuple[int, ...]
    layout: Any
    mode: Mode = "tiled"


@dataclass(frozen=True, slots=True)
class Part:
    """One parameter of the compiled kernel for a descriptor: its name, and its value's offset in the descriptor's memory."""

    name: str
    offset: int


def parts(name: str, rank: int) -> Iterator[Part]:
    """The parameters of the compiled kernel for a descriptor argument `name`, in order.

    >>> [part.name for part in parts("a", 2)]
    ['a', 'a.shape_0', 'a.shape_1', 'a.stride_0', 'a.stride_1']
    """
    yield Part(name, 0)
    for dim in range(rank):
        yield Part(f"{name}.shape_{dim}", _SHAPE_AT + 4 * dim)
    for dim in range(rank):
        yield Part(f"{name}.stride_{dim}", _STRIDES_AT + 8 * dim)


class TensorMap:
    """The memory with a descriptor's parameter values, and the key of launches with it.

    Attributes: `kind` (a `Descriptor`); `spec` (contents of the map; without a pointer for stand-ins); `shape` and `strides`
    (in elements); `device` (CUDA ordinal, `HOST`, or None for stand-ins); `key` (one object per kind, device and framework, so
    that launches compare it by identity); `address` (of the memory, 0 until the map is encoded).
    """

    __slots__ = ("_memory", "address", "device", "key", "kind", "shape", "spec", "strides")

    def __init__(
        self,
        kind: Descriptor,
        spec: tensormap.Spec,
        strides: tuple[int, ...],
        device: int | None,
        *,
        library: str = "",
    ) -> None:
        self.kind = kind
        self.spec = spec
        self.shape = spec.shape
        self.strides = strides
        self.device = device
        self.key = _key(kind, device, library)
        self.address = 0
        self._memory: Any = None

    def encode(self) -> int:
        """Encode the map and fill the memory. Returns its address. If several threads do so, the first one's memory is kept.

        Raises DeviceError without a driver, or when the driver refuses the tensor.
        """
        memory = (ctypes.c_char * (_SHAPE_AT + _VALUES.size + tensormap.ALIGNMENT))()
        start = ctypes.addressof(memory)
        start += -start % tensormap.ALIGNMENT
        tensormap.encode(self.spec, start)
        padding = (0,) * (MOST_DIMS - len(self.shape))
        values = _VALUES.pack(*self.shape, *padding, *self.strides, *padding)
        ctypes.memmove(start + _SHAPE_AT, values, len(values))
        with _encoding:
            if not self.address:
                self._memory, self.address = memory, start
            return self.address


_encoding = Lock()
_keys: dict[tuple[Descriptor, int | None, str], object] = {}


def _key(kind: Descriptor, device: int | None, library: str) -> object:
    return _keys.setdefault((kind, device, library), object())


class HostDescriptor:
    """Base class of host-side descriptors: the array, which is kept alive, and its map.

    `base` is the array, or its stand-in in `kernel.warmup`. After an assignment to `block_shape` or `layout`, or with a block
    of ones, which stands for one to be assigned, `_wanted` has the arguments of the class besides `base`, and the map is made
    when a launch asks for it. At other times it is unset.
    """

    __slots__ = ("_wanted", "base", "tensor_map")

    _wanted: dict[str, Any]
    base: Any
    tensor_map: TensorMap

    def __init__(self, base: Any, tensor_map: TensorMap) -> None:
        self.base = base
        self.tensor_map = tensor_map

    def _begin(self, base: Any, **arguments: Any) -> None:
        """Initialise with arguments of the class. A block of ones is none that TMA copies, so it stands for one to come.

        A launch that is left out asks for no map either, and its array may have no memory."""
        self.base = base
        if _is_ones(arguments["block_shape"]) or rehearsal.leaving_out():
            self._wanted = arguments
        else:
            self.tensor_map = self._make_map(arguments)

    def _want(self, arguments: dict[str, Any]) -> None:
        """Let the next launch make the map of these arguments of the class."""
        self._wanted = arguments
        if _is_set(self, "tensor_map"):
            del self.tensor_map

    def _argument(self, name: str, of_map: Callable[[TensorMap], Any]) -> Any:
        """An argument of the class, as it is wanted or as the map has it."""
        return self._wanted[name] if _is_set(self, "_wanted") else of_map(self.tensor_map)

    def _make_map(self, arguments: dict[str, Any]) -> TensorMap:
        """The map of arguments of the class."""
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The map of an assigned block. Slots that are set are read without this function."""
            if name != "tensor_map" or not _is_set(self, "_wanted"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self.tensor_map = found = self._make_map(self._wanted)
            del self._wanted
            return found

    @property
    def dtype(self) -> Any:
        """The array's dtype."""
        return self.base.dtype if hasattr(self.base, "dtype") else self.tensor_map.kind.dtype

    @property
    def shape(self) -> list[int]:
        """Extents of the tensor, outermost first."""
        return list(self._argument("shape", lambda tensor_map: tensor_map.shape))

    @property
    def strides(self) -> list[int]:
        """Strides of the tensor, in elements."""
        return list(self._argument("strides", lambda tensor_map: tensor_map.strides))

    @property
    def block_shape(self) -> list[int]:
        """The shape of the block that one TMA copy transfers. It may be assigned, as hooks of autotuners do."""
        return list(self._argument("block_shape", lambda tensor_map: tensor_map.kind.block_shape))

    @block_shape.setter
    def block_shape(self, block_shape: Any) -> None:
        self._want({**self._arguments(), "block_shape": list(block_shape)})

    @property
    def layout(self) -> Any:
        """The layout of a block in shared memory: an `NVMMASharedLayout`. It may be assigned, after `block_shape`."""
        return self._argument("layout", lambda tensor_map: tensor_map.kind.layout)

    @layout.setter
    def layout(self, layout: Any) -> None:
        self._want({**self._arguments(), "layout": layout})

    def _arguments(self) -> dict[str, Any]:
        """The arguments of the class besides `base`."""
        if _is_set(self, "_wanted"):
            return self._wanted
        # Subclasses are dataclasses (`weft.nvidia.hopper`).
        names = [field.name for field in fields(cast("Any", self)) if field.name != "base"]
        return {name: getattr(self, name) for name in names}

    @property
    def padding(self) -> str:
        """The value of elements out of bounds: 'zero' or 'nan'."""
        return self._argument("padding", lambda tensor_map: tensor_map.spec.padding)

    @property
    def round_f32_to_tf32(self) -> bool:
        """Whether loads round float32 elements to tf32."""
        return self._argument("round_f32_to_tf32", lambda tensor_map: tensor_map.spec.rounds)

    @property
    def mode(self) -> Mode:
        """'tiled' or 'im2col'."""
        return self.tensor_map.kind.mode

    def __reduce__(self) -> NoReturn:
        raise fail(DESCRIPTOR_PICKLE, got=repr(self))

    def __copy__(self) -> HostDescriptor:
        return self

    def __repr__(self) -> str:
        dtype = self.dtype if _is_set(self, "_wanted") else self.tensor_map.kind.dtype
        return (
            f"{type(self).__name__}(shape={self.shape}, strides={self.strides}, dtype={dtype}, "
            f"block_shape={self.block_shape}, layout={self.layout!r})"
        )


def _is_ones(block: Any) -> bool:
    try:
        sizes = tuple(block)
    except TypeError:
        return False
    return sizes == (1,) * len(sizes) != ()


def _is_set(descriptor: HostDescriptor, slot: str) -> bool:
    """Whether a slot has a value, without `__getattr__`."""
    try:
        object.__getattribute__(descriptor, slot)
    except AttributeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class HostMap:
    """A descriptor of host memory for the simulator: the storage that it points into, and its map."""

    buffer: HostBuffer
    tensor_map: TensorMap


def host_map(descriptor: HostDescriptor) -> HostMap:
    """A descriptor of a host array for the simulator: the array's storage, with the map's tensor as its first element."""
    tensor_map = descriptor.tensor_map
    return HostMap(replace(host_buffer(descriptor.base), pointer=tensor_map.spec.pointer), tensor_map)
