"""Global memory: the arguments' storage at virtual addresses, read and written in arrays of elements.

Argument k's storage starts at `(k + 1) << 44` plus the low bits that preserve its real alignment, so that an address which
leaves one argument (by less than 8 TiB) never lands in another. Memory holds bits; the accessing operation knows the type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from weft.ir.core import Op
from weft.ir.types import DType
from weft.layout import SharedLayout
from weft.sim.machine.data import Array, arange
from weft.sim.numbers.arithmetic import bits_dtype

REGION = 44
_HALF = np.int64(1 << REGION - 1)
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Pad:
    """The signal pad of rank `rank` of `ranks`. Its words count the signals that have arrived, by flag and by sender. Behind
    these are counts of the signals that have been waited for (`weft.views.symmetric`)."""

    rank: int
    ranks: int

    def place(self, index: int) -> tuple[int, int]:
        """The flag of a word, and the rank that signals it."""
        return divmod(index, self.ranks)


@dataclass(slots=True)
class Buffer:
    """A pointer argument. `data`: the storage as a one-dimensional uint8 array. `offset`: the byte that the pointer points to.
    `address_low`: the low 12 bits of the pointer's real address, which determine its alignment. `bounds`: the byte range
    `[first, end)` of the storage that belongs to the argument; None for all of it. `form`: message text about the strides of
    an array that is not contiguous, which reports append. `owner`: gives None once the storage is free. `signals`: it is
    the signal pad of a rank. `multicast`: it is a multicast address, which stands for these buffers, those of the ranks."""

    name: str
    data: np.ndarray[Any, np.dtype[np.uint8]]
    offset: int = 0
    address_low: int = 0
    bounds: tuple[int, int] | None = None
    form: str = ""
    owner: Callable[[], object] | None = None
    signals: Pad | None = None
    multicast: tuple[Buffer, ...] = ()

    @property
    def freed(self) -> bool:
        """Whether the memory is known to be free, so that it may belong to another array by now."""
        return self.owner is not None and self.owner() is None


@dataclass(slots=True, eq=False)
class TensorMap:
    """A tensor map (TMA descriptor), dimensions outermost first.

    `buffer`: the tensor's memory. `shape`: extents. `strides`: in bytes, the innermost included. `block_shape`: what one
    request moves; `layout` is its layout in shared memory. `address`: the heap address of element 0, set once the buffer is
    placed.
    For im2col mode (a tensor of N, spatial dimensions and C; a block of pixels by channels): `lower` and `upper` are the
    corners of the bounding box relative to the first and the last pixel of each spatial dimension, `steps` the traversal
    strides, one for each dimension of the tensor. `maker`: the operation that made the descriptor on the device, if any.
    `rounds`: loads round float32 to tf32.
    """

    buffer: Buffer
    element: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    layout: SharedLayout
    padding: Literal["zero", "nan"] = "zero"
    mode: Literal["tiled", "im2col"] = "tiled"
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    address: int = 0
    maker: Op | None = None
    rounds: bool = False


@dataclass(slots=True, eq=False)
class Made:
    """The descriptor that an operation made last. `loads`: for each component of the clocks, the last load through it, which is
    complete when the component has counted past the number given."""

    map: TensorMap
    loads: dict[int, tuple[Op, int]] = field(default_factory=dict[int, tuple[Op, int]])


@dataclass(slots=True)
class Segment:
    """A buffer at its virtual addresses: the start of its storage, and the pointer. Accesses must lie in `[low, high)`.
    `home`: the start of the first segment over the same storage, which several arguments may share."""

    buffer: Buffer
    start: int
    pointer: int
    low: int
    high: int
    home: int = 0
    _views: dict[int, tuple[int, Array]] = field(default_factory=dict[int, tuple[int, Array]])

    @property
    def end(self) -> int:
        """The address one past the storage."""
        return self.start + self.buffer.data.size

    def view(self, itemsize: int) -> tuple[int, Array]:
        """The address of the first aligned integer of a size, and the storage from there as unsigned integers."""
        if itemsize not in self._views:
            skip = -self.start % itemsize
            count = max(self.buffer.data.size - skip, 0) // itemsize
            array = self.buffer.data[skip : skip + count * itemsize].view(bits_dtype(itemsize))
            self._views[itemsize] = (self.start + skip, array)
        return self._views[itemsize]


def segment_of(number: int, buffer: Buffer) -> Segment:
    """The segment of argument `number`."""
    start = (number + 1 << REGION) + _PAGE + (buffer.address_low - buffer.offset) % _PAGE
    low, high = buffer.bounds or (0, buffer.data.size)
    return Segment(buffer, start, start + buffer.offset, start + low, start + high)


@dataclass(slots=True, eq=False)
class HeapAccess:
    """Accesses of `vec` consecutive elements each: their addresses (any shape), and the size of an element in bytes."""

    addresses: Array
    itemsize: int
    vec: int = 1

    @property
    def width(self) -> int:
        """Bytes of one access."""
        return self.itemsize * self.vec


@dataclass(slots=True, eq=False)
class GlobalPlace:
    """Accesses that lie in one segment: the element numbers in its view, and which of the accesses these are (None: all).
    `again` recomputes the numbers, so that a queued access need not keep them."""

    segment: Segment
    view: Array
    index: Array
    which: Array | None
    again: Callable[[], Array] | None = None


class BadAddress(Exception):
    """Some address of an access is out of bounds or misaligned. The caller, which knows the operation, builds the report."""


@dataclass(slots=True)
class Changes:
    """A count of the operations that changed memory."""

    count: int = 0


class Heap:
    """All segments. `home_of` gives the home of a segment that is the first of a launch over its storage, by default its start;
    in a world the ranks' launches share `changes`."""

    __slots__ = ("changes", "segments")

    def __init__(
        self,
        segments: dict[int, Segment],
        home_of: Callable[[Segment], int] | None = None,
        changes: Changes | None = None,
    ) -> None:
        self.segments = segments
        self.changes = Changes() if changes is None else changes
        homes: dict[tuple[int, int], int] = {}
        for segment in segments.values():
            key = segment.buffer.data.ctypes.data, segment.buffer.data.size
            if key not in homes:
                homes[key] = segment.start if home_of is None else home_of(segment)
            segment.home = homes[key]

    @property
    def writes(self) -> int:
        """Counts the operations that changed memory: a polling task need not poll again before it grows."""
        return self.changes.count

    def segment_at(self, address: int) -> Segment | None:
        """The segment whose 16 TiB region contains an address, whether or not the address is in its storage."""
        return self.segments.get((address + int(_HALF) >> REGION) - 1)

    def ranks_of(self, addresses: Array) -> list[int]:
        """How far it is from multicast addresses to the same elements on each rank. Raises BadAddress if they are none."""
        segment = self.segment_at(int(addresses.flat[0]))
        if segment is None or not segment.buffer.multicast:
            raise BadAddress
        by_memory = {each.buffer.data.ctypes.data: each for each in self.segments.values()}
        return [by_memory[each.data.ctypes.data].start - segment.start for each in segment.buffer.multicast]

    def places(self, access: HeapAccess) -> list[GlobalPlace]:
        """The places of accesses. Raises BadAddress unless each lies inside one segment and is aligned to its width."""
        if not np.size(access.addresses):
            return []
        low, high = int(access.addresses.min()), int(access.addresses.max())
        if low + int(_HALF) >> REGION != high + int(_HALF) >> REGION:
            return self._scattered_places(access)
        segment = self.segment_at(low)
        if segment is None or low < segment.low or high + access.width > segment.high or segment.buffer.multicast:
            raise BadAddress
        if access.width > 1 and int(np.bitwise_or.reduce(access.addresses, axis=None)) & (access.width - 1):
            raise BadAddress
        origin, view = segment.view(access.itemsize)
        index = (access.addresses - origin) >> np.int64(access.itemsize.bit_length() - 1)
        if access.vec > 1:
            index = index[..., None] + arange(access.vec)
        return [GlobalPlace(segment, view, index, None)]

    def rectangle(self, first: int, offsets: Array, itemsize: int) -> GlobalPlace | None:
        """The place of elements at ascending `offsets` (in elements) from an address; None if they do not all lie in one
        segment, or are misaligned."""
        low, high = first + int(offsets.flat[0]) * itemsize, first + int(offsets.flat[-1]) * itemsize
        segment = self.segment_at(low)
        if segment is None or low < segment.low or high + itemsize > segment.high or first % itemsize:
            return None
        if segment.buffer.multicast:
            raise BadAddress
        origin, view = segment.view(itemsize)
        shift = np.int64((first - origin) // itemsize)
        return GlobalPlace(segment, view, offsets + shift, None, lambda: offsets + shift)

    def _scattered_places(self, access: HeapAccess) -> list[GlobalPlace]:
        regions = (access.addresses + _HALF) >> np.int64(REGION)
        found: list[GlobalPlace] = []
        for region in np.unique(regions):
            which = regions == region
            (place,) = self.places(HeapAccess(access.addresses[which], access.itemsize, access.vec))
            place.which = which
            found.append(place)
        return found

    def read(self, access: HeapAccess, places: list[GlobalPlace] | None = None) -> Array:
        """The bits at the addresses, whose places are `places`. The result has the addresses' shape, and a last axis of `vec`
        if that is more than one."""
        places = self.places(access) if places is None else places
        if len(places) == 1 and places[0].which is None:
            return places[0].view.take(places[0].index)
        shape = np.shape(access.addresses) + ((access.vec,) if access.vec > 1 else ())
        out = np.zeros(shape, bits_dtype(access.itemsize))
        for place in places:
            out[place.which] = place.view[place.index]
        return out

    def write(self, access: HeapAccess, bits: Array, places: list[GlobalPlace] | None = None) -> None:
        """Store bits of the shape that `read` returns. If several accesses have the same address, the last one wins."""
        for place in self.places(access) if places is None else places:
            if not place.segment.buffer.data.flags.writeable:
                raise ReadOnlyStorage(place.segment)
            place.view[place.index] = bits if place.which is None else bits[place.which]
            self.changes.count += 1

    def update(self, access: HeapAccess, change: Callable[[Array, Any], Array]) -> Array:
        """Read-modify-write of single elements in row-major order, serialised where addresses repeat. Returns the old bits.

        `change(old, which)` returns the new bits; `which` selects among the flattened accesses.
        """
        addresses = np.ravel(access.addresses)
        old = np.zeros(addresses.size, bits_dtype(access.itemsize))
        for turn in turns(addresses):
            this = HeapAccess(addresses[turn], access.itemsize)
            old[turn] = before = self.read(this)
            after = change(before, turn)
            if np.any(before != after):
                self.write(this, after)
        return old.reshape(np.shape(access.addresses))[()]


class ReadOnlyStorage(Exception):
    """A store into a read-only array."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.buffer.name)
        self.segment = segment


def turns(addresses: Array) -> list[Any]:
    """Positions in groups without repeated addresses: the first access to each address, then the second, and so on."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    if starts.size == addresses.size:
        return [slice(None)] if addresses.size else []
    lengths = np.diff(np.r_[starts, addresses.size])
    rank = arange(addresses.size) - np.repeat(starts, lengths)
    by_rank = order[np.argsort(rank, kind="stable")]
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])
