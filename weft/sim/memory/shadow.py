"""The shadow of a block's memory: the last accesses to each granule, against which the next access is checked.

Verdicts follow from happens-before alone (`weft.sim.memory.clocks`), not from the moment at which the simulator moves data;
`weft.sim.memory.verdicts` has the table. A granule of shared memory has the size of the smallest element that the kernel keeps
there. Accesses of threads to tensor memory are recorded per warp, because `tcgen05.ld` and `tcgen05.st` are collective
operations of a warp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weft.errors import Hazard, Row, hazard
from weft.sim.machine.data import Array, where
from weft.sim.machine.findings import Findings
from weft.sim.machine.naming import Naming
from weft.sim.memory.clocks import Clock
from weft.sim.memory.events import ELECTED, Area, Event
from weft.sim.memory.verdicts import (
    BY_THREADS,
    MANY,
    SHARED_ORDERING,
    TENSOR_CORE,
    WAIT_FOR_LOAD,
    WAIT_FOR_OTHERS,
    WAIT_FOR_STORE,
    WORDS,
    Ordering,
    clash,
    clashing,
    order,
    out_of_order,
    race_of_threads,
    task_words,
    wait_for_copy,
)  # fmt: skip
from weft.sim.memory.warps import WARPS, is_one, of_one_warp, several, warp_of

if TYPE_CHECKING:
    from weft.sim.machine.agents import Pipe

FEW = 16
"""Up to this many granules, the range of their events is taken from a Python list instead of by NumPy."""
EVENTS_KEPT = 4096
"""Above this many events of a block, those that no granule refers to are dropped."""
LATER = 1024
"""Reads of a plain block that are queued before they are recorded."""


class Shadow:
    """For each granule the last write, and for each task the last atomic, and the last read by threads, by a TMA store and by
    an MMA.

    In a `plain` block, which has one task and does not use the async proxy, an access that precedes a barrier cannot conflict
    with any later one. Its reads are therefore recorded only if a write follows before the next barrier.

    `ordering`: the memory space's. `pipes`: for tensor memory, the tcgen05 pipes of all tasks of the cluster."""

    __slots__ = (
        "_atomics", "_copied", "_events", "_found", "_granules", "_later", "_limit", "_meets", "_names", "_opened", "_ordering",
        "_pipes", "_plain", "_products", "_reads", "_stores", "_writes", "_written", "blocks", "count", "granule", "program",
        "rank", "tasks",
    )  # fmt: skip

    def __init__(
        self, program: tuple[int, int, int], tasks: int, blocks: int = 1, rank: int = 0, plain: bool = False,
        names: Naming | None = None, found: Findings | None = None, ordering: Ordering = SHARED_ORDERING,
        pipes: Sequence[Pipe] = (), meets: bool = False,
    ) -> None:  # fmt: skip
        # Whether threads meet at mbarriers by themselves, so that reads are kept by warp.
        self._meets = meets
        self.program = program
        self.tasks = tasks
        self.blocks = blocks
        self.rank = rank
        self.granule = 1
        # Events by number, as long as a granule may refer to them; and how many events there were.
        self._events: dict[int, Event] = {}
        self._limit = EVENTS_KEPT
        self.count = 0
        self._granules = 0
        self._writes = Channel(0)
        # By task, as atomics do not order those of other tasks: a later access must be ordered after each of them.
        self._atomics: dict[int, Channel] = {}
        self._reads: dict[int, Channel] = {}
        self._stores: dict[int, Channel] = {}
        self._products: dict[int, Channel] = {}
        # For each task, the number of the first event after its last barrier.
        self._opened: dict[int, int] = {}
        self._plain = plain
        self._names = names
        self._found = Findings() if found is None else found
        self._ordering = ordering
        self._pipes = pipes
        # For a plain block: reads since the last barrier or write, the last write, and whether there were cp.async copies.
        self._later: list[tuple[Event, Area]] = []
        self._written = 0
        self._copied = False

    def resize(self, granules: int) -> None:
        """Grow to this many granules."""
        self._granules = granules
        for channel in self._channels():
            channel.resize(granules)

    def barrier(self, clock: Clock, events: int | None = None) -> None:
        """A barrier of all threads of a task; `events` is the event count when they arrived (None: now)."""
        # It orders nothing that threads of other blocks have read here.
        self._later = [later for later in self._later if later[0].slot != clock.slot]
        self._opened[clock.slot] = (self.count if events is None else events) + 1

    def access(self, clock: Clock, event: Event, area: Area) -> bool:
        """Check an access of a task, and record it. Raises the hazard of a conflict. Returns whether several threads wrote the
        same granule."""
        if not self._plain:
            self.check(clock, event, area)
            if self._pipes:
                # The next tcgen05 fence has something to order.
                clock.touched = clock.position
            return self.record(event, area)
        if self._copied or self._written >= self._opened.get(event.slot, 1):
            self._against_writes(clock, event, area)
        if not event.writes:
            self._later.append((event, area))
            if len(self._later) == LATER:
                self._catch_up()
            return False
        self._catch_up()
        for channel in self._readers():
            self._against(channel, clock, event, area)
        repeated = self.record(event, area)
        self._written = self.count
        self._copied = self._copied or event.mode != "generic" or event.slot // self.tasks != self.rank
        return repeated

    def _catch_up(self) -> None:
        """Record the queued reads."""
        later, self._later = self._later, []
        for event, area in later:
            self.record(event, area)

    def check(self, clock: Clock, event: Event, area: Area) -> None:
        """Check an access against the recorded ones. Raises the hazard of a conflict."""
        self._against_writes(clock, event, area)
        if event.writes:
            for channel in self._readers():
                self._against(channel, clock, event, area)

    def record(self, event: Event, area: Area) -> bool:
        """Record an event. Returns whether several threads wrote the same granule in it."""
        if len(self._events) >= self._limit:
            self._forget()
        self.count = number = self.count + 1
        self._events[number] = event
        if event.atomic:
            self._channel(self._atomics, event.slot).add(area, number, event.value, self._opened.get(event.slot, 1))
        elif event.writes:
            return self._writes.put(area, number, area.threads)
        elif event.mode == "store":
            self._channel(self._stores, event.slot).put(area, number, ELECTED)
        elif event.mode == "product" or event.mode in TENSOR_CORE:
            # MMAs of one task complete in issue order, so the last one stands for all.
            self._channel(self._products, event.slot).put(area, number, MANY)
        else:
            self._channel(self._reads, event.slot).add(area, number, event.value, self._opened.get(event.slot, 1))
        return False

    def supersede(self, where: slice | Array) -> None:
        """Drop the reads of these granules: the last write is ordered after all of them, so checking against it suffices."""
        for channel in self._readers():
            channel.events[where] = 0

    def by_elected(self, slot: int, where: slice | Array) -> bool:
        """True if only the elected thread of a task made the recorded reads of these granules."""
        return not np.any(self._channel(self._reads, slot).threads[where] != ELECTED)

    def under_way(self, clock: Clock) -> Event | None:
        """A tcgen05 operation that the clock's task does not know to be complete; None for none."""
        for channel in self._channels():
            for number in np.unique(channel.events).tolist():
                event = self._events[number] if number else None
                if event is None or event.mode not in TENSOR_CORE:
                    continue
                if clock.known.get(event.component, 0) <= event.value:
                    return event
        return None

    def unknown_visit(self, clock: Clock, barriers: Collection[int]) -> Event | None:
        """A load or store by threads of another block that the clock's task does not know of.

        What signals an mbarrier, at one of the bytes `barriers`, is checked where it happens."""
        visits = (e for e in self._events.values() if e.mode == "generic" and e.slot // self.tasks != self.rank)
        unknown = (e for e in visits if clock.known.get(e.component, 0) <= e.value)
        return next(
            (e for e in unknown if not any(0 <= byte - e.memory.start < e.memory.size for byte in barriers)), None
        )

    def _forget(self) -> None:
        """Drop the events that no granule refers to any more."""
        alive = {number for channel in self._channels() for number in np.unique(channel.events).tolist() if number}
        self._events = {number: event for number, event in self._events.items() if number in alive}
        self._limit = max(EVENTS_KEPT, 2 * len(self._events))

    def _readers(self) -> Iterator[Channel]:
        return chain(self._reads.values(), self._stores.values(), self._products.values())

    def _channels(self) -> Iterator[Channel]:
        return chain((self._writes,), self._atomics.values(), self._readers())

    def _channel(self, channels: dict[int, Channel], slot: int) -> Channel:
        if slot not in channels:
            channels[slot] = Channel(self._granules, self._meets)
        return channels[slot]

    def _against_writes(self, clock: Clock, event: Event, area: Area) -> None:
        self._against(self._writes, clock, event, area)
        for channel in () if event.atomic else self._atomics.values():
            self._against(channel, clock, event, area)

    def _against(self, channel: Channel, clock: Clock, event: Event, area: Area) -> None:
        seen = channel.events[area.where]
        if not seen.size:
            return
        if seen.size <= FEW:
            numbers = seen.ravel().tolist()
            low, high = min(numbers), max(numbers)
        else:
            low, high = int(np.minimum.reduce(seen, axis=None)), int(np.maximum.reduce(seen, axis=None))
        if self._plain and not self._copied and high < self._opened.get(clock.slot, 1):
            return
        for number in (high,) if low == high else np.unique(seen).tolist():
            if not number:
                continue
            earlier = self._events[number]
            other, same = clash(self._ordering, earlier, event, clock, self._pipes)
            if other is None:
                continue
            here = seen == number
            if clock.links:
                here = here & ~self._linked(channel, clock, earlier, area)
                if not here.any():
                    continue
            threads = area.threads if isinstance(area.threads, int) else area.threads[here]
            before = channel.threads[area.where][here]
            apart = (before != threads) | ~is_one(before)
            if clock.warps and other is hazard.THREAD_RACE and _by_threads(earlier, event):
                apart = apart & ~clock.orders_in_warp(earlier.component, before, threads, earlier.value)
            one_thread = not apart.any()
            entry = same if one_thread else other
            if entry is None:
                continue
            if not one_thread:
                here[here] = apart
            if area.excuse is not None and area.excuse(earlier, here):
                continue
            if self._found.known(entry, earlier.op, event.op):
                continue
            position = int(np.argmax(here))
            if self._names is not None and entry is hazard.THREAD_RACE and self._names.by_threads(event.op):
                who = area.threads if isinstance(area.threads, int) else int(np.ravel(area.threads)[position])
                both = int(np.ravel(channel.threads[area.where])[position]), who
                byte = _granule(area, position) * self.granule
                warp = _by_threads(earlier, event) and bool(of_one_warp(before[apart], _chosen(threads, apart)).all())
                several = event.writes and _by_several(area, position)
                error = race_of_threads(earlier, event, byte, both, self._names, self.program, warp, several)
            else:
                error = self.report(entry, earlier, event, _granule(area, position))
            self._found.add(error, entry, earlier.op, event.op)

    @staticmethod
    def _linked(channel: Channel, clock: Clock, earlier: Event, area: Area) -> Array:
        """Mask of an area's granules at which each accessing thread has learned of an earlier event by itself."""
        before = channel.threads[area.where]
        out = clock.orders_threads(earlier.component, before, area.threads, earlier.value)
        if channel.readers is None:
            return out
        alone = channel.alone[area.where]
        read = clock.orders_readers(earlier.component, channel.readers[area.where], alone, area.threads)
        return where(before == MANY, read, out)

    def report(self, entry: Row, earlier: Event, event: Event, granule: int) -> Hazard:
        """The hazard of two accesses that conflict at a granule."""
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
            "wait": self._wait(earlier, event), "why": out_of_order(earlier, event, self._pipes),
        }  # fmt: skip
        return clashing(entry, event.op.loc, earlier.op.loc, f"{names[1]} {before} it here", name, names[::-1], fields)

    def _wait(self, earlier: Event, event: Event) -> str:
        """The fix that completes an asynchronous copy."""
        if earlier.mode == "load" and earlier.slot // self.tasks != event.slot // self.tasks:
            return WAIT_FOR_OTHERS
        if earlier.mode == "sent":
            return WAIT_FOR_STORE
        return WAIT_FOR_LOAD if earlier.mode == "load" else wait_for_copy(event.op, self._names)

    def _order(self, earlier: Event, event: Event, partition: str, other: str) -> str:
        """The fix that orders the accesses of two threads."""
        if earlier.slot // self.tasks != event.slot // self.tasks:
            return "call cluster.barrier() between the two lines, or cluster.arrive() after the first and cluster.wait() later"
        return order(earlier, event, partition, other)

    def partition(self, slot: int) -> str:
        """The name of a task of the cluster in reports."""
        return task_words(slot, self.tasks, self.blocks)


class Channel:
    """For each granule, the number of its last event (from 1; 0 for none) and that event's thread. Where threads meet at
    mbarriers by themselves, `readers` is the last event of each warp, plus one, and `alone` its thread, if all are of one."""

    __slots__ = ("alone", "events", "readers", "threads")

    def __init__(self, granules: int, readers: bool = False) -> None:
        self.events = np.zeros(granules, np.int32)
        self.threads = np.zeros(granules, np.int16)
        self.readers = np.zeros((granules, WARPS), np.int32) if readers else None
        self.alone = np.zeros((granules if readers else 0, WARPS), np.int16)

    def resize(self, granules: int) -> None:
        """Grow to this many granules; the new ones have no event."""
        more = granules - self.events.size
        if self.readers is not None:
            self.readers = np.append(self.readers, np.zeros((more, WARPS), np.int32), axis=0)
            self.alone = np.append(self.alone, np.zeros((more, WARPS), np.int16), axis=0)
        self.events = np.append(self.events, np.zeros(more, np.int32))
        self.threads = np.append(self.threads, np.zeros(more, np.int16))

    def put(self, area: Area, number: int, threads: Array | int) -> bool:
        """Overwrite the entries. Returns whether a granule appeared several times, with different threads."""
        self.events[area.where] = number
        self.threads[area.where] = threads
        if area.repeats and not isinstance(threads, int):
            kept = self.threads[area.where]
            others = kept != threads
            if others.any():
                assert not isinstance(area.where, slice)
                granules, both = area.where[others], several(kept[others], threads[others], MANY)
                self.threads[granules] = both
                self.threads[granules[both == MANY]] = MANY
                return True
        return False

    def add(self, area: Area, number: int, value: int, opened: int) -> None:
        """Add an event, which its component counts as `value`. If a granule's last event is `opened` or later and of another
        thread, the entry becomes that of several threads."""
        before = self.events[area.where]
        threads: Array | int = area.threads
        if self.readers is not None:
            place = area.where, slice(None) if isinstance(threads, int) else warp_of(threads)
            first = self.readers[place] == 0
            self.alone[place] = where(first | (self.alone[place] == threads), threads, MANY)
            self.readers[place] = value + 1
        if before.size and np.maximum.reduce(before, axis=None) >= opened:
            kept = self.threads[area.where]
            others = (before >= opened) & (kept != threads)
            if others.any():
                both = several(kept, threads, MANY).astype(np.int16)
                threads = where(others, both, np.int16(threads) if isinstance(threads, int) else threads)
        self.put(area, number, threads)


def _by_threads(earlier: Event, event: Event) -> bool:
    """True if both events are by threads of one task, directly or by cp.async."""
    return earlier.slot == event.slot and earlier.mode in BY_THREADS and event.mode in BY_THREADS


def _chosen(threads: Array | int, chosen: Array) -> Array | int:
    return threads if isinstance(threads, int) else threads[chosen]


def _granule(area: Area, position: int) -> int:
    """The granule at a position of an area."""
    if isinstance(area.where, slice):
        return cast("int", area.where.start) + position
    return int(np.ravel(area.where)[position])


def _by_several(area: Area, position: int) -> bool:
    """Whether several threads access the granule at a position of an area."""
    if isinstance(area.where, slice) or isinstance(area.threads, int):
        return False
    return np.unique(area.threads[area.where == np.ravel(area.where)[position]]).size > 1
