"""Accesses to global memory as they are checked for races, and the last ones of one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from weft.ir.core import Op
from weft.sim.machine.data import Array, arange
from weft.sim.memory.heap import Place, Segment

if TYPE_CHECKING:
    from weft.sim.machine.tasks import Task

Way = Literal["read", "write", "atomic", "strong read", "strong write"]
"""What threads do: weak reads and writes, atomics, and loads and stores with an order (or volatile)."""
VERBS: dict[Way, tuple[str, str]] = {
    "read": ("reads", "read"), "write": ("writes", "wrote"), "atomic": ("updates", "updated"),
    "strong read": ("reads", "read"), "strong write": ("writes", "wrote"),
}  # fmt: skip
CHANNELS: dict[Way, str] = {"strong write": "atomic"}
OTHERS = {"read": "other read", "atomic": "other atomic", "strong read": "other strong read"}
"""Channels for the last access of a way by another task than the last: those ways do not clash with themselves."""
_READS, _UPDATES, _STRONG = (
    ("read", "flight", "other read"),
    ("atomic", "other atomic"),
    ("strong read", "other strong read"),
)
AGAINST: dict[Way, tuple[str, ...]] = {
    "read": ("write", *_UPDATES), "write": ("write", *_UPDATES, *_READS, *_STRONG), "atomic": ("write", *_READS),
    "strong read": ("write",), "strong write": ("write", *_READS),
}  # fmt: skip
"""Channels that an access is checked against. `flight`: reads of copies. Strong writes are in that of atomics."""
THREAD_BITS = 11
THREADS = (1 << THREAD_BITS) - 1
"""Threads' numbers within a granule's note; this one stands for several threads."""
PLAIN = -1
NEVER = -2
"""In place of a component of the clocks: an access of threads themselves, and one that no task ever knows to be over."""


@dataclass(slots=True, eq=False)
class Touch:
    """An operation's accesses to one array. `notes` are the threads as they are kept, `threads` as they are checked: a value
    that several threads read is read by the first of them where that does not matter; `each`: it does, threads compute by
    themselves. That of a copy is over when `component` has counted past `value`; `tma` says that the async proxy does it."""

    task: Task
    op: Op
    way: Way
    place: Place
    itemsize: int
    threads: Array | int
    notes: Array | int
    component: int = PLAIN
    value: int = 0
    tma: bool = False
    each: bool = False


class Tracks:
    """The last accesses of one array: `event << 11 | thread` per granule, in a channel per way; 0 for none. `later`: reads,
    and their numbers, that will be put there if anybody asks: most arrays that are read are never written."""

    __slots__ = ("channels", "granule", "later", "segment")

    def __init__(self, segment: Segment, granule: int) -> None:
        self.segment = segment
        self.granule = granule
        self.channels: dict[str, Array] = {}
        self.later: list[tuple[Touch, int]] = []

    @property
    def only_read(self) -> bool:
        """Whether nobody has written yet."""
        return self.channels.keys().isdisjoint(("write", "atomic"))

    def index(self, touch: Touch) -> Array:
        """Granules that are touched."""
        if touch.itemsize < self.granule:
            factor = self.granule // touch.itemsize
            skip = self.segment.start // touch.itemsize % factor
            self.granule = touch.itemsize
            # Granules are counted from the aligned address at or before the start, which may move when they become finer.
            self.channels = {way: np.repeat(array, factor)[skip:] for way, array in self.channels.items()}
        size = self.granule
        origin, _ = self.segment.view(touch.itemsize)
        each = touch.itemsize // size
        shift = origin // size - self.segment.start // size
        index = touch.place.index if each == 1 else (touch.place.index * each)[..., None] + arange(each)
        return index + shift if shift else index

    def channel(self, way: str) -> Array:
        """A way's notes, made when first written."""
        if way not in self.channels:
            self.channels[way] = np.zeros(
                (self.segment.end - 1) // self.granule - self.segment.start // self.granule + 1, np.int64
            )
        return self.channels[way]


def per_granule(threads: Array | int, touch: Touch, like: Array) -> Any:
    """Threads for the granules of an access, whose array has axes for the elements of a vector and the granules of one."""
    if isinstance(threads, int):
        return threads
    extra = np.ndim(like) - np.ndim(threads)
    return threads.reshape(threads.shape + (1,) * extra).astype(np.int64)


def element_at(place: Place, itemsize: int, flat: int) -> tuple[str, int]:
    """The array's name and the number of an element, by its position in the access."""
    segment = place.segment
    origin, _ = segment.view(itemsize)
    address = origin + int(np.ravel(place.index)[flat]) * itemsize
    return segment.buffer.name, (address - segment.pointer) // itemsize
