"""Accesses to global memory as the race detector sees them, and the last accesses to each granule of one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from weft.ir.core import Op
from weft.sim.machine.data import Array, arange
from weft.sim.memory.clocks import Clock
from weft.sim.memory.events import EventMode
from weft.sim.memory.heap import GlobalPlace, Segment

Way = Literal["read", "write", "atomic", "strong read", "strong write"]
"""The kind of an access: weak reads and writes, atomics, and strong loads and stores (with an order, or volatile)."""
VERBS: dict[Way, tuple[str, str]] = {
    "read": ("reads", "read"), "write": ("writes", "wrote"), "atomic": ("updates", "updated"),
    "strong read": ("reads", "read"), "strong write": ("writes", "wrote"),
}  # fmt: skip
WRITES: tuple[Way, ...] = ("write", "atomic", "strong write")
CHANNELS: dict[Way, str] = {"strong write": "atomic"}
OTHERS = {"read": "other read", "atomic": "other atomic", "strong read": "other strong read"}
"""Second channels of the ways that do not conflict with themselves: the last access by a task other than the last one."""
_READS, _UPDATES, _STRONG = (
    ("read", "flight", "other read"),
    ("atomic", "other atomic"),
    ("strong read", "other strong read"),
)
AGAINST: dict[Way, tuple[str, ...]] = {
    "read": ("write", *_UPDATES), "write": ("write", *_UPDATES, *_READS, *_STRONG), "atomic": ("write", *_READS),
    "strong read": ("write",), "strong write": ("write", *_READS),
}  # fmt: skip
"""Channels that an access is checked against. `flight`: reads by asynchronous copies. Strong writes share the atomics'."""
THREAD_BITS = 11
THREADS = (1 << THREAD_BITS) - 1
"""Mask of the thread in a granule's entry; as a value it stands for several threads."""
PLAIN = -1
"""In place of a component of the clocks: an access that threads make themselves."""


class Actor(Protocol):
    """What the race detector asks of a task that accesses memory. `slot`: its number in the program; `number`: its number in
    the launch. Its events before number `settled` are ordered for all its threads."""

    pid: tuple[int, int, int]
    slot: int
    number: int
    threads: int
    clock: Clock
    settled: int

    @property
    def program(self) -> int:
        """The number of the task's program, in start order."""
        ...

    @property
    def rank(self) -> int:
        """The rank of the task's block in the cluster."""
        ...


@dataclass(slots=True, eq=False)
class Touch:
    """An operation's accesses to one array. `threads` are the threads to check, `notes` the threads to record: if several
    threads read the same element of a tile, the first of them stands for all. `each`: the code is written per thread, so every
    thread is recorded. An asynchronous copy is complete when `component` has counted past `value`."""

    task: Actor
    op: Op
    way: Way
    place: GlobalPlace
    itemsize: int
    threads: Array | int
    notes: Array | int
    component: int = PLAIN
    value: int = 0
    mode: EventMode = "generic"
    each: bool = False


class Tracks:
    """The last accesses to one array: `event << 11 | thread` per granule, one channel per way, 0 for none. `later`: reads and
    their event numbers that are recorded only when the first write comes, because most arrays that are read are never
    written."""

    __slots__ = ("channels", "granule", "later", "segment")

    def __init__(self, segment: Segment, granule: int) -> None:
        self.segment = segment
        self.granule = granule
        self.channels: dict[str, Array] = {}
        self.later: list[tuple[Touch, int]] = []

    @property
    def only_read(self) -> bool:
        """True as long as nothing has written the array."""
        return self.channels.keys().isdisjoint(("write", "atomic"))

    def index(self, place: GlobalPlace, itemsize: int) -> Array:
        """The granules of an access."""
        if itemsize < self.granule:
            factor = self.granule // itemsize
            skip = self.segment.start // itemsize % factor
            self.granule = itemsize
            # Granule 0 begins at the aligned address at or before the start; a finer granule may begin later.
            self.channels = {way: np.repeat(array, factor)[skip:] for way, array in self.channels.items()}
        size = self.granule
        origin, _ = self.segment.view(itemsize)
        each = itemsize // size
        shift = origin // size - self.segment.start // size
        index = place.index if each == 1 else (place.index * each)[..., None] + arange(each)
        return index + shift if shift else index

    def channel(self, way: str) -> Array:
        """The entries of a channel, allocated on first use."""
        if way not in self.channels:
            self.channels[way] = np.zeros(
                (self.segment.end - 1) // self.granule - self.segment.start // self.granule + 1, np.int64
            )
        return self.channels[way]


def per_granule(threads: Array | int, touch: Touch, like: Array) -> Any:
    """The threads of an access, with axes of size 1 for the elements of a vector and for the granules of an element."""
    if isinstance(threads, int):
        return threads
    extra = np.ndim(like) - np.ndim(threads)
    return threads.reshape(threads.shape + (1,) * extra).astype(np.int64)


def element_at(place: GlobalPlace, itemsize: int, flat: int) -> tuple[str, int]:
    """The array's name and the index of an element, given the element's position in the access."""
    segment = place.segment
    origin, _ = segment.view(itemsize)
    address = origin + int(np.ravel(place.index)[flat]) * itemsize
    return segment.buffer.name, (address - segment.pointer) // itemsize
