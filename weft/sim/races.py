"""Races on global memory: between the programs of a launch, and between the threads of one.

Programs are ordered by atomics only (an acquire of what a release published, through the same memory), tasks of one program by
their clocks. Per granule of an array the last accesses are kept: plain writes, plain reads, atomics. Atomics and volatile reads
never race with one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from weft.errors import Hazard, fail, hazard
from weft.ir.core import Op
from weft.sim.data import Array, arange, where
from weft.sim.heap import Heap, Place, Segment

if TYPE_CHECKING:
    from weft.sim.machine import Task

Way = Literal["read", "write", "atomic", "volatile"]
VERBS: dict[Way, tuple[str, str]] = {
    "read": ("reads", "read"), "write": ("writes", "wrote"), "atomic": ("updates", "updated"), "volatile": ("reads", "read"),
}  # fmt: skip
AGAINST: dict[Way, tuple[str, ...]] = {
    "read": ("write", "atomic"), "write": ("write", "atomic", "read", "other"), "atomic": ("write", "read", "other"),
    "volatile": ("write",),
}  # fmt: skip
THREAD_BITS = 11
THREADS = (1 << THREAD_BITS) - 1
"""Threads' numbers within a granule's note; this one stands for several threads."""
SINGLE = 32
"""So many addresses of an atomic are followed one by one; a wider one counts for the whole array."""


@dataclass(slots=True, eq=False)
class Touch:
    """An operation's accesses to one array. `notes` are the threads as they are kept, `threads` as they are checked: a value
    that several threads read is read by the first of them where that does not matter."""

    task: Task
    op: Op
    way: Way
    place: Place
    itemsize: int
    threads: Array | int
    notes: Array | int


class Tracks:
    """The last accesses of one array: `event << 11 | thread` per granule, in a channel per way; 0 for none. `other` is the
    last read by another task than the last."""

    __slots__ = ("channels", "granule", "segment")

    def __init__(self, segment: Segment, granule: int) -> None:
        self.segment = segment
        self.granule = granule
        self.channels: dict[str, Array] = {}

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


class Races:
    """All accesses to global memory of a launch."""

    __slots__ = (
        "_count",
        "_ops",
        "_owners",
        "_pids",
        "_places",
        "_positions",
        "_published",
        "_tasks",
        "_tracks",
        "heap",
    )

    def __init__(self, heap: Heap, programs: int, tasks: int) -> None:
        self.heap = heap
        self._tasks = tasks
        self._places = programs * tasks
        self._tracks: dict[int, Tracks] = {}
        # Of each event its task (numbered across the launch), its number there, its operation. Event 0 is none.
        self._pids: dict[int, tuple[int, int, int]] = {}
        self._count = 1
        self._owners = np.zeros(1024, np.int32)
        self._positions = np.full(1024, -1, np.int32)
        self._ops: list[Op | None] = [None]
        # What atomics have published, by address, and by array: for all of it ("wide"), and by any ("all").
        self._published: dict[Any, Array] = {}

    def touch(self, touch: Touch, bits: Array | None = None) -> None:
        """Check an access against earlier ones and remember it. `bits`: what is about to be written. Raises GlobalRace."""
        segment = touch.place.segment
        tracks = self._tracks.get(segment.start)
        if tracks is None:
            tracks = self._tracks[segment.start] = Tracks(segment, touch.itemsize)
        index = tracks.index(touch)
        for way in AGAINST[touch.way]:
            if way in tracks.channels:
                self._check(touch, tracks.channels[way][index], way, bits)
        if touch.way != "volatile":
            self._note(touch, tracks, index)

    def _number(self, touch: Touch) -> int:
        number = self._count
        if number == self._owners.size:
            self._owners = np.append(self._owners, np.zeros(number, np.int32))
            self._positions = np.append(self._positions, np.zeros(number, np.int32))
        task = touch.task
        self._owners[number] = task.place
        self._positions[number] = task.clock.tick()
        self._ops.append(touch.op)
        self._pids[task.block.number] = task.pid
        self._count += 1
        return number

    def _note(self, touch: Touch, tracks: Tracks, index: Array) -> None:
        notes = _per_granule(touch.notes, touch, index)
        note = notes | self._number(touch) << THREAD_BITS
        channel = tracks.channel(touch.way)
        if touch.way == "read":
            self._keep_others(touch, tracks, index, channel[index])
            # Of threads that read the same granule the first counts.
            flat = np.ravel(index)[::-1]
            channel[flat] = note if isinstance(note, int) else np.ravel(np.broadcast_to(note, np.shape(index)))[::-1]
        else:
            channel[index] = note

    def _keep_others(self, touch: Touch, tracks: Tracks, index: Array, before: Array) -> None:
        events = before >> THREAD_BITS
        others = (events != 0) & (self._owners[events] != touch.task.place)
        if np.any(others):
            tracks.channel("other")[index[others]] = before[others]

    def _check(self, touch: Touch, notes: Array, way: str, bits: Array | None) -> None:
        if not notes.size or not notes.any():
            return
        task = touch.task
        events = notes >> THREAD_BITS
        owners, positions = self._owners[events], self._positions[events]
        first = task.place - task.slot
        own = (owners >= first) & (owners < first + self._tasks)
        if self._tasks == 1:
            known: Any = max(task.clock.known.get(task.slot, 0), task.settled)
        else:
            counts = [task.clock.known.get(slot, 0) for slot in range(self._tasks)]
            counts[task.slot] = max(counts[task.slot], task.settled)
            known = np.array(counts)[where(own, owners - first, 0)]
        ordered = where(own, positions < known, False if task.world is None else task.world[owners] > positions)
        bad = ~(ordered | (events == 0))
        if not bad.any():
            return
        threads = _per_granule(touch.threads, touch, notes)
        same = (owners == task.place) & ((notes & THREADS) == threads) & (threads != THREADS)
        bad = bad & ~same
        if bad.any():
            self._clash(touch, way, bad, notes, own, bits)

    def _clash(self, touch: Touch, way: str, bad: Array, notes: Array, own: Array, bits: Array | None) -> None:
        flat = int(np.argmax(bad))
        number = int(notes.ravel()[flat]) >> THREAD_BITS
        op, program = self._ops[number], self._pids[int(self._owners[number]) // self._tasks]
        assert op is not None
        each = bad.size // np.size(touch.place.index)
        if way == touch.way == "write" and bits is not None and not own.ravel()[flat]:
            unequal = touch.place.view[touch.place.index] != bits
            if not np.any(np.repeat(np.ravel(unequal), each)[bad.ravel()]):
                message = f"programs {program} and {touch.task.pid} store equal values to the same elements"
                touch.task.machine.report.advise("equal-stores", message, touch.op.loc)
                return
        verb, _ = VERBS[touch.way]
        before = VERBS["read" if way == "other" else way][1]  # pyright: ignore[reportArgumentType] a channel's name
        self._raise(touch, flat // each, bool(own.ravel()[flat]), verb, before, op, program)

    def _raise(
        self, touch: Touch, flat: int, own: bool, verb: str, before: str, op: Op, program: tuple[int, int, int]
    ) -> NoReturn:
        name, index = _element(touch.place, touch.itemsize, flat)
        fields = {"program": touch.task.pid, "access": verb, "name": name, "index": index, "before": before}
        if own:
            error = fail(
                hazard.GLOBAL_THREADS, loc=touch.op.loc, related=_related(f"it {before} it here", op), **fields
            )
        else:
            label = f"program {program} {before} it here"
            error = fail(hazard.GLOBAL_RACE, loc=touch.op.loc, related=_related(label, op), other=program, **fields)
        assert isinstance(error, Hazard)
        error.buffer = name
        raise error

    def stored(self, task: Task, op: Op, place: Place, itemsize: int, bits: Array) -> None:
        """After a store: refuse one that gave an element several values. Raises GlobalRace."""
        lost = place.view[place.index] != bits
        if np.any(lost):
            name, index = _element(place, itemsize, int(np.argmax(lost)))
            error = fail(hazard.GLOBAL_STORE, loc=op.loc, program=task.pid, name=name, index=index)
            assert isinstance(error, Hazard)
            error.buffer = name
            raise error

    # What atomics order

    def acquire(self, task: Task, segment: Segment, addresses: Array) -> None:
        """The task learns what was published through these addresses."""
        keys: list[Any] = [(segment.start, "wide")]
        if np.size(addresses) <= SINGLE:
            keys += np.ravel(addresses).tolist()
        else:
            keys = [(segment.start, "all")]
        for key in keys:
            if key in self._published:
                world = self._world(task)
                np.maximum(world, self._published[key], out=world)

    def release(self, task: Task, segment: Segment, addresses: Array) -> None:
        """Whoever acquires through these addresses learns what the task did and knows."""
        now = self._world(task).copy()
        first = task.place - task.slot
        for slot in range(self._tasks):
            now[first + slot] = max(now[first + slot], task.clock.known.get(slot, 0))
        now[task.place] = task.clock.position
        keys: list[Any] = [(segment.start, "all")]
        if np.size(addresses) <= SINGLE:
            keys += np.ravel(addresses).tolist()
        else:
            keys.append((segment.start, "wide"))
        for key in keys:
            published = self._published.get(key)
            self._published[key] = now.copy() if published is None else np.maximum(published, now)

    def _world(self, task: Task) -> Array:
        if task.world is None:
            task.world = np.zeros(self._places, np.int32)
        return task.world


def _per_granule(threads: Array | int, touch: Touch, like: Array) -> Any:
    """Threads for the granules of an access, whose array has axes for the elements of a vector and the granules of one."""
    if isinstance(threads, int):
        return threads
    extra = np.ndim(like) - np.ndim(threads)
    return threads.reshape(threads.shape + (1,) * extra).astype(np.int64)


def _element(place: Place, itemsize: int, flat: int) -> tuple[str, int]:
    """The array's name and the number of an element, by its position in the access."""
    segment = place.segment
    origin, _ = segment.view(itemsize)
    address = origin + int(np.ravel(place.index)[flat]) * itemsize
    return segment.buffer.name, (address - segment.pointer) // itemsize


def _related(label: str, op: Op) -> tuple[Any, ...]:
    return () if op.loc is None else ((label, op.loc),)
