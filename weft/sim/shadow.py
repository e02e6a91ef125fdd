"""Which accesses to a block's shared memory clash: the last ones of every granule, and whether the next is ordered after them.

Verdicts come from happens-before alone (`weft.sim.clocks`), not from when the simulator happened to move data. A granule is as
many bytes as the smallest element of the kernel's shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from weft.errors import Hazard, Loc, Row, fail, hazard
from weft.ir.core import Op
from weft.sim.clocks import Clock
from weft.sim.data import Array, where

if TYPE_CHECKING:
    from weft.sim.shared_memory import Lifetime

Mode = Literal["generic", "copy", "load", "store", "product"]
"""Who accesses: threads, their cp.async copies, a TMA load (which writes), a TMA store or a warpgroup's product (both read)."""

WAIT_FOR_LOAD = "call mbarrier.wait() with the mbarrier that the copy signals, and the phase that it completes,"
WAIT_FOR_COPY = "commit the copy and call async_copy.wait_group() with no more pendings than groups committed after it,"
FEW = 16
"""So few granules are looked at one by one."""
EVENTS_KEPT = 4096
"""Above this many events of a block those that do not matter any more are dropped."""
MANY = -1
"""In place of a thread's number: several threads, or nobody knows which."""
ELECTED = 0
"""The thread of a partition that is elected for operations of one thread."""

_WAITS: dict[Mode, str] = {
    "store": "tma.store_wait()", "copy": "async_copy.wait_group()", "product": "warpgroup_mma_wait()",
}  # fmt: skip
WORDS: dict[tuple[Mode, bool], tuple[str, str]] = {
    ("generic", False): ("reads", "read"),
    ("generic", True): ("writes", "wrote"),
    ("copy", True): ("copies into", "copied into"),
    ("load", True): ("copies into", "copied into"),
    ("store", False): ("copies from", "copied from"),
    ("product", False): ("multiplies", "multiplied"),
}


@dataclass(slots=True, eq=False)
class Event:
    """An access: it is known to be over when `component` has counted past `value`; `slot` is the task's own component. Atomic
    ones do not clash with each other."""

    component: int
    value: int
    mode: Mode
    writes: bool
    slot: int
    op: Op
    memory: Lifetime
    atomic: bool = False


@dataclass(slots=True, eq=False)
class Area:
    """Granules that an access touches (a slice or numbers), and the thread of each, or of all. `repeats`: a granule may appear
    several times."""

    where: slice | Array
    threads: Array | int
    repeats: bool = False


class Shadow:
    """Per granule the last write, and per task the last read by threads, by a TMA store and by a product."""

    __slots__ = (
        "_events", "_granules", "_limit", "_opened", "_products", "_reads", "_stores", "_writes", "blocks", "count", "granule",
        "program", "rank", "tasks",
    )  # fmt: skip

    def __init__(self, program: tuple[int, int, int], tasks: int, blocks: int = 1, rank: int = 0) -> None:
        self.program = program
        self.tasks = tasks
        self.blocks = blocks
        self.rank = rank
        self.granule = 1
        # Events by their number, those that a granule may still refer to; how many there were.
        self._events: dict[int, Event] = {}
        self._limit = EVENTS_KEPT
        self.count = 0
        self._granules = 0
        self._writes = Channel(0)
        self._reads: dict[int, Channel] = {}
        self._stores: dict[int, Channel] = {}
        self._products: dict[int, Channel] = {}
        # For each task, the first event that its last barrier does not order.
        self._opened: dict[int, int] = {}

    def resize(self, granules: int) -> None:
        """Shared memory has this many granules now."""
        self._granules = granules
        for channel in self._channels():
            channel.resize(granules)

    def barrier(self, clock: Clock, events: int | None = None) -> None:
        """All threads of a task have arrived, when there were so many events (None: now)."""
        self._opened[clock.slot] = (self.count if events is None else events) + 1

    def access(self, clock: Clock, event: Event, area: Area) -> None:
        """An event of a task at some granules. Raises the hazard of a clash with an earlier one."""
        self.check(clock, event, area)
        self.record(event, area)

    def check(self, clock: Clock, event: Event, area: Area) -> None:
        """Raise the hazard of a clash with an earlier event."""
        self._against(self._writes, clock, event, area)
        if event.writes:
            for channel in self._readers():
                self._against(channel, clock, event, area)

    def record(self, event: Event, area: Area) -> None:
        """Remember an event for those to come."""
        if len(self._events) >= self._limit:
            self._forget()
        self.count = number = self.count + 1
        self._events[number] = event
        if event.writes:
            self._writes.put(area, number, area.threads)
        elif event.mode == "store":
            self._channel(self._stores, event.slot).put(area, number, ELECTED)
        elif event.mode == "product":
            # A task's products complete in order, so the last one stands for all.
            self._channel(self._products, event.slot).put(area, number, MANY)
        else:
            self._channel(self._reads, event.slot).add(area, number, self._opened.get(event.slot, 1))

    def _forget(self) -> None:
        """Drop the events that no granule refers to any more."""
        alive = {number for channel in self._channels() for number in np.unique(channel.events).tolist() if number}
        self._events = {number: event for number, event in self._events.items() if number in alive}
        self._limit = max(EVENTS_KEPT, 2 * len(self._events))

    def _readers(self) -> Iterator[Channel]:
        return chain(self._reads.values(), self._stores.values(), self._products.values())

    def _channels(self) -> Iterator[Channel]:
        return chain((self._writes,), self._readers())

    def _channel(self, channels: dict[int, Channel], slot: int) -> Channel:
        if slot not in channels:
            channels[slot] = Channel(self._granules)
        return channels[slot]

    def _against(self, channel: Channel, clock: Clock, event: Event, area: Area) -> None:
        seen = channel.events[area.where]
        if not seen.size:
            return
        if seen.size <= FEW:
            numbers = seen.ravel().tolist()
            low, high = min(numbers), max(numbers)
        else:
            low, high = int(np.minimum.reduce(seen, axis=None)), int(np.maximum.reduce(seen, axis=None))
        for number in (high,) if low == high else np.unique(seen).tolist():
            if not number:
                continue
            earlier = self._events[number]
            other, same = clash(earlier, event, clock)
            if other is None:
                continue
            here = seen == number
            threads = area.threads if isinstance(area.threads, int) else area.threads[here]
            before = channel.threads[area.where][here]
            one_thread = bool(np.all((before == threads) & (before != MANY)))
            entry = same if one_thread else other
            if entry is not None:
                raise self.report(entry, earlier, event, _granule(area, int(np.argmax(here))))

    def report(self, entry: Row, earlier: Event, event: Event, granule: int) -> Hazard:
        """The exception for two accesses that clash at a granule."""
        name, old = event.memory.part(granule * self.granule), earlier.memory.part(granule * self.granule)
        shown = name if name == old else f"{name} (in bytes that were {old} before)"
        access, _ = WORDS[event.mode, event.writes]
        _, before = WORDS[earlier.mode, earlier.writes]
        names = self.partition(event.slot), self.partition(earlier.slot)
        if event.slot // self.tasks != self.rank:
            shown = f"{shown} of block {self.rank}"
        fields: dict[str, Any] = {
            "program": self.program, "partition": names[0], "other": names[1], "access": access, "name": shown,
            "before": before, "order": self._order(earlier, event, *names),
            "wait": WAIT_FOR_LOAD if earlier.mode == "load" else WAIT_FOR_COPY,
        }  # fmt: skip
        return clashing(entry, event.op.loc, earlier.op.loc, f"{names[1]} {before} it here", name, names[::-1], fields)

    def _order(self, earlier: Event, event: Event, partition: str, other: str) -> str:
        """What to write so that two threads' accesses are ordered."""
        if earlier.slot // self.tasks != event.slot // self.tasks:
            return "call cluster.barrier() between the two lines, or cluster.arrive() after the first and cluster.wait() later"
        return _order(earlier, event, partition, other)

    def partition(self, slot: int) -> str:
        """Words for a task of the cluster."""
        return task_words(slot, self.tasks, self.blocks)


def task_words(slot: int, tasks: int, blocks: int) -> str:
    """What reports call a task: of a program with so many blocks of so many tasks."""
    words = [f"block {slot // tasks}"] if blocks > 1 else []
    if tasks > 1:
        words.append(f"partition {slot % tasks}")
    return ", ".join(words) or "the block"


class Channel:
    """The last event of every granule (numbers from 1 on, 0 for none) and its thread."""

    __slots__ = ("events", "threads")

    def __init__(self, granules: int) -> None:
        self.events = np.zeros(granules, np.int32)
        self.threads = np.zeros(granules, np.int16)

    def resize(self, granules: int) -> None:
        """More granules, without events."""
        more = granules - self.events.size
        self.events = np.append(self.events, np.zeros(more, np.int32))
        self.threads = np.append(self.threads, np.zeros(more, np.int16))

    def put(self, area: Area, number: int, threads: Array | int) -> None:
        """Forget what was there."""
        self.events[area.where] = number
        self.threads[area.where] = threads
        if area.repeats and not isinstance(threads, int):
            others = self.threads[area.where] != threads
            if others.any():
                assert not isinstance(area.where, slice)
                self.threads[area.where[others]] = MANY

    def add(self, area: Area, number: int, opened: int) -> None:
        """Where the last event is `opened` or later and another thread's, several threads have an event now."""
        before = self.events[area.where]
        threads: Array | int = area.threads
        if before.size and np.maximum.reduce(before, axis=None) >= opened:
            others = (before >= opened) & (self.threads[area.where] != threads)
            threads = where(others, np.int16(MANY), np.int16(threads) if isinstance(threads, int) else threads)
        self.put(area, number, threads)


Verdict = tuple[Row | None, Row | None]
"""What is wrong between two accesses: by different threads, and by the same thread."""

FINE: Verdict = (None, None)
RACE: Verdict = (hazard.THREAD_RACE, None)


def clash(earlier: Event, event: Event, clock: Clock) -> Verdict:
    """What is wrong with an event of the clock's task after an earlier one that it must not overlap with."""
    if earlier.atomic and event.atomic:
        return FINE
    own = earlier.slot == clock.slot
    known = clock.known.get(earlier.component, 0) > earlier.value
    asynchronous = event.mode in ("load", "store", "product")
    if earlier.mode == "load":
        return FINE if known else _in_flight(event)
    if earlier.mode == "store":
        if known or (own and clock.elected.get(earlier.component, 0) > earlier.value):
            return FINE if known or asynchronous else RACE
        return hazard.STORE_SOURCE_REUSED, hazard.STORE_SOURCE_REUSED
    if earlier.mode == "product":
        # The threads of another warpgroup may still be where theirs is under way.
        if known or (own and clock.each.get(earlier.component, 0) > earlier.value):
            return FINE if known else (RACE[0], RACE[0])
        return hazard.OPERAND_REUSED, hazard.OPERAND_REUSED
    if earlier.mode == "copy" and not known and not (own and clock.each.get(earlier.component, 0) > earlier.value):
        return _in_flight(event)
    ordered: Verdict = FINE if known else RACE if own else (hazard.THREAD_RACE, hazard.THREAD_RACE)
    if not asynchronous or not (known or own) or clock.fenced.get(earlier.component, 0) > earlier.value:
        return ordered
    if own and clock.own_fenced.get(earlier.component, 0) > earlier.value:
        return RACE
    return hazard.MISSING_FENCE, hazard.MISSING_FENCE


def _granule(area: Area, position: int) -> int:
    """A granule of an area, by its position there."""
    if isinstance(area.where, slice):
        return cast("int", area.where.start) + position
    return int(np.ravel(area.where)[position])


def _in_flight(event: Event) -> Verdict:
    entry = hazard.WRITE_IN_FLIGHT if event.writes else hazard.READ_IN_FLIGHT
    return entry, entry


def _order(earlier: Event, event: Event, partition: str, other: str) -> str:
    """What to write so that two threads' accesses are ordered."""
    if earlier.slot != event.slot:
        return f"let {other} arrive on an mbarrier after the first line, and {partition} wait for it before the second"
    between = _WAITS.get(earlier.mode, "the first line")
    return f"call gl.barrier() between {between} and the second line"


def clashing(
    entry: Row,
    loc: Loc | None,
    earlier: Loc | None,
    label: str,
    name: str,
    partitions: tuple[str, ...],
    fields: dict[str, Any],
) -> Hazard:
    """The exception of a row for two places, the earlier one as related."""
    error = fail(entry, loc=loc, related=() if earlier is None else ((label, earlier),), **fields)
    assert isinstance(error, Hazard)
    error.buffer, error.partitions = name, partitions
    return error
