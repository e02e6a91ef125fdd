"""Global memory: the arguments' storage under virtual addresses, read and written many elements at a time.

Argument k's storage starts at `(k + 1) << 44` plus the low bits that keep its real alignment, so that arithmetic which leaves
one argument (by less than 8 TiB) never lands in another. Memory holds bits; whoever reads them knows their type.
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


@dataclass(slots=True)
class Buffer:
    """A pointer argument. `data`: the storage as a one-dimensional uint8 array; `offset`: the byte that the pointer names;
    `address_low`: the low 12 bits of the pointer's real address, which give its alignment. `bounds`: the bytes of the storage
    that are the argument's own, from the first to the one after the last; None for all of them. `form`: the end of a
    report's sentence which says how the elements of the array lie in memory, where they do not follow one another."""

    name: str
    data: np.ndarray[Any, np.dtype[np.uint8]]
    offset: int = 0
    address_low: int = 0
    bounds: tuple[int, int] | None = None
    form: str = ""


@dataclass(slots=True, eq=False)
class TensorMap:
    """A descriptor argument: the tensor that TMA requests move blocks of, dimensions outermost first.

    `buffer`: the tensor's memory. `shape`: extents. `strides`: in bytes, the last one too. `block_shape`: what one request
    moves, laid out in shared memory by `layout`. `address`: where element 0 lies in the heap, known once the buffer has been
    placed there. Of im2col (a tensor of N, spatial dimensions and C; a block of pixels by channels): `lower` and `upper` are
    the offsets of the pixels' box from the first and the last pixel of each spatial dimension, `steps` the distance between
    the pixels taken, one for each dimension of the tensor. `maker` is the operation of the kernel that made the descriptor.
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


@dataclass(slots=True, eq=False)
class Made:
    """The descriptor that an operation made last, and the last load through it for each component of the clocks, which is over
    when that has counted past a number."""

    map: TensorMap
    loads: dict[int, tuple[Op, int]] = field(default_factory=dict[int, tuple[Op, int]])


@dataclass(slots=True)
class Segment:
    """A buffer with its virtual addresses: where its storage starts, and where its pointer points; accesses lie from `low` up
    to `high`. `home` is the start of the first segment over the same storage, which several arguments may share."""

    buffer: Buffer
    start: int
    pointer: int
    low: int
    high: int
    home: int = 0
    _views: dict[int, tuple[int, Array]] = field(default_factory=dict[int, tuple[int, Array]])

    @property
    def end(self) -> int:
        """Address after the storage."""
        return self.start + self.buffer.data.size

    def view(self, itemsize: int) -> tuple[int, Array]:
        """The storage as unsigned integers of a size, and the address of the first that is aligned."""
        if itemsize not in self._views:
            skip = -self.start % itemsize
            count = max(self.buffer.data.size - skip, 0) // itemsize
            array = self.buffer.data[skip : skip + count * itemsize].view(bits_dtype(itemsize))
            self._views[itemsize] = (self.start + skip, array)
        return self._views[itemsize]


def segment_of(number: int, buffer: Buffer) -> Segment:
    """Place argument `number`."""
    start = (number + 1 << REGION) + _PAGE + (buffer.address_low - buffer.offset) % _PAGE
    low, high = buffer.bounds or (0, buffer.data.size)
    return Segment(buffer, start, start + buffer.offset, start + low, start + high)


@dataclass(slots=True, eq=False)
class Access:
    """Accesses of `vec` consecutive elements each: their addresses (any shape), and the size of an element in bytes."""

    addresses: Array
    itemsize: int
    vec: int = 1

    @property
    def width(self) -> int:
        """Bytes of one access."""
        return self.itemsize * self.vec


@dataclass(slots=True, eq=False)
class Place:
    """Accesses that lie in one segment: element numbers in its view, and which accesses they are (None: all). `again` makes the
    numbers anew, for who would rather not keep them."""

    segment: Segment
    view: Array
    index: Array
    which: Array | None
    again: Callable[[], Array] | None = None


class BadAddress(Exception):
    """Some address of an access is outside, or not aligned. Whoever knows the operation says which."""


class Heap:
    """All segments. `writes` counts operations that changed memory: who waits need not look again before it grows."""

    __slots__ = ("segments", "writes")

    def __init__(self, segments: dict[int, Segment]) -> None:
        self.segments = segments
        self.writes = 0
        homes: dict[tuple[int, int], int] = {}
        for segment in segments.values():
            data = segment.buffer.data
            segment.home = homes.setdefault((data.ctypes.data, data.size), segment.start)

    def segment_at(self, address: int) -> Segment | None:
        """The segment whose region holds an address (not whose storage does, or whose own bytes do)."""
        return self.segments.get((address + int(_HALF) >> REGION) - 1)

    def places(self, access: Access) -> list[Place]:
        """Where accesses go. Raises BadAddress unless each lies in one segment's own bytes and is aligned to its width."""
        if not np.size(access.addresses):
            return []
        low, high = int(access.addresses.min()), int(access.addresses.max())
        if low + int(_HALF) >> REGION != high + int(_HALF) >> REGION:
            return self._scattered_places(access)
        segment = self.segment_at(low)
        if segment is None or low < segment.low or high + access.width > segment.high:
            raise BadAddress
        if access.width > 1 and int(np.bitwise_or.reduce(access.addresses, axis=None)) & (access.width - 1):
            raise BadAddress
        origin, view = segment.view(access.itemsize)
        index = (access.addresses - origin) >> np.int64(access.itemsize.bit_length() - 1)
        if access.vec > 1:
            index = index[..., None] + arange(access.vec)
        return [Place(segment, view, index, None)]

    def rectangle(self, first: int, offsets: Array, itemsize: int) -> Place | None:
        """The place of elements at ascending `offsets`, in elements, from an address; None where they are not all in one
        segment, or not aligned."""
        low, high = first + int(offsets.flat[0]) * itemsize, first + int(offsets.flat[-1]) * itemsize
        segment = self.segment_at(low)
        if segment is None or low < segment.low or high + itemsize > segment.high or first % itemsize:
            return None
        origin, view = segment.view(itemsize)
        shift = np.int64((first - origin) // itemsize)
        return Place(segment, view, offsets + shift, None, lambda: offsets + shift)

    def _scattered_places(self, access: Access) -> list[Place]:
        regions = (access.addresses + _HALF) >> np.int64(REGION)
        found: list[Place] = []
        for region in np.unique(regions):
            which = regions == region
            (place,) = self.places(Access(access.addresses[which], access.itemsize, access.vec))
            place.which = which
            found.append(place)
        return found

    def read(self, access: Access, places: list[Place] | None = None) -> Array:
        """Bits at the addresses (which lie at `places`): their shape, and a last axis of `vec` where that is more than one."""
        places = self.places(access) if places is None else places
        if len(places) == 1 and places[0].which is None:
            return places[0].view.take(places[0].index)
        shape = np.shape(access.addresses) + ((access.vec,) if access.vec > 1 else ())
        out = np.zeros(shape, bits_dtype(access.itemsize))
        for place in places:
            out[place.which] = place.view[place.index]
        return out

    def write(self, access: Access, bits: Array, places: list[Place] | None = None) -> None:
        """Store bits of the shape that `read` gives; of several stores to one address the last counts."""
        for place in self.places(access) if places is None else places:
            if not place.segment.buffer.data.flags.writeable:
                raise ReadOnlyStorage(place.segment)
            place.view[place.index] = bits if place.which is None else bits[place.which]
            self.writes += 1

    def update(self, access: Access, change: Callable[[Array, Any], Array]) -> Array:
        """Read-modify-write of single elements in row-major order, one after another where addresses repeat; the old bits.

        `change(old, which)` gives the new bits; `which` selects among the accesses flattened.
        """
        addresses = np.ravel(access.addresses)
        old = np.zeros(addresses.size, bits_dtype(access.itemsize))
        for turn in turns(addresses):
            this = Access(addresses[turn], access.itemsize)
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
    """Positions in groups that may act at once: the first access to each address, then the second to each, and so on."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    if starts.size == addresses.size:
        return [slice(None)] if addresses.size else []
    lengths = np.diff(np.r_[starts, addresses.size])
    rank = arange(addresses.size) - np.repeat(starts, lengths)
    by_rank = order[np.argsort(rank, kind="stable")]
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])
