"""Which accesses to a block's memory clash: the last ones of every granule, and whether the next is ordered after them.

Verdicts come from happens-before alone (`weft.sim.memory.clocks`), not from when the simulator happened to move data. A granule
is as many bytes as the smallest element of the kernel's shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weft.errors import Hazard, Row, hazard
from weft.ir.core import Op
from weft.sim.machine.data import Array, where
from weft.sim.machine.findings import Findings
from weft.sim.machine.naming import Naming
from weft.sim.memory.clocks import Clock
from weft.sim.memory.verdicts import (
    BY_THREADS,
    MANY,
    TENSOR_CORE,
    WAIT_FOR_LOAD,
    WAIT_FOR_OTHERS,
    WORDS,
    Mode,
    Verdict,
    clash,
    clashing,
    order,
    race_of_threads,
    task_words,
    wait_for_copy,
)  # fmt: skip
from weft.sim.memory.warps import in_order, is_one, of_one_warp, several

if TYPE_CHECKING:
    from weft.sim.memory.store import Lifetime

FEW = 16
"""So few granules are looked at one by one."""
EVENTS_KEPT = 4096
"""Above this many events of a block those that do not matter any more are dropped."""
LATER = 1024
"""So many reads are kept before they are put down."""
ELECTED = 0
"""The thread of a partition that is elected for operations of one thread."""


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
    several times. `excuse` is asked before a clash is reported, with the earlier event and which of the granules (a mask), and
    says whether that is fine."""

    where: slice | Array
    threads: Array | int
    repeats: bool = False
    excuse: Callable[[Event, Array], bool] | None = None


class Shadow:
    """Per granule the last write, and per task the last read by threads, by a TMA store and by a product.

    In a `plain` block, of one task and without the async proxy, what a barrier orders can never clash again. There reads are
    put down only if somebody writes before the next barrier."""

    __slots__ = (
        "_copied", "_events", "_found", "_granules", "_later", "_limit", "_names", "_opened", "_plain", "_products", "_reads",
        "_stores", "_writes", "_written", "blocks", "count", "granule", "program", "rank", "tasks",
    )  # fmt: skip

    def __init__(
        self, program: tuple[int, int, int], tasks: int, blocks: int = 1, rank: int = 0, plain: bool = False,
        names: Naming | None = None, found: Findings | None = None,
    ) -> None:  # fmt: skip
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
        self._plain = plain
        self._names = names
        self._found = Findings() if found is None else found
        # Of a plain block: reads since the last barrier or write, the last write, and whether there were copies.
        self._later: list[tuple[Event, Area]] = []
        self._written = 0
        self._copied = False

    def resize(self, granules: int) -> None:
        """Shared memory has this many granules now."""
        self._granules = granules
        for channel in self._channels():
            channel.resize(granules)

    def barrier(self, clock: Clock, events: int | None = None) -> None:
        """All threads of a task have arrived, when there were so many events (None: now)."""
        self._later.clear()
        self._opened[clock.slot] = (self.count if events is None else events) + 1

    def access(self, clock: Clock, event: Event, area: Area) -> bool:
        """An event of a task at some granules. Raises the hazard of a clash with an earlier one. Gives whether several threads
        have written the same granule."""
        if not self._plain:
            self.check(clock, event, area)
            return self.record(event, area)
        if self._copied or self._written >= self._opened.get(event.slot, 1):
            self._against(self._writes, clock, event, area)
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
        self._copied = self._copied or event.mode == "copy"
        return repeated

    def _catch_up(self) -> None:
        """Put down the reads that were kept."""
        later, self._later = self._later, []
        for event, area in later:
            self.record(event, area)

    def check(self, clock: Clock, event: Event, area: Area) -> None:
        """Raise the hazard of a clash with an earlier event."""
        self._against(self._writes, clock, event, area)
        if event.writes:
            for channel in self._readers():
                self._against(channel, clock, event, area)

    def record(self, event: Event, area: Area) -> bool:
        """Remember an event for those to come; whether several threads have written the same granule by it."""
        if len(self._events) >= self._limit:
            self._forget()
        self.count = number = self.count + 1
        self._events[number] = event
        if event.atomic:
            self._writes.add(area, number, self._opened.get(event.slot, 1))
        elif event.writes:
            return self._writes.put(area, number, area.threads)
        elif event.mode == "store":
            self._channel(self._stores, event.slot).put(area, number, ELECTED)
        elif event.mode == "product" or event.mode in TENSOR_CORE:
            # A task's products complete in order, so the last one stands for all.
            self._channel(self._products, event.slot).put(area, number, MANY)
        else:
            self._channel(self._reads, event.slot).add(area, number, self._opened.get(event.slot, 1))
        return False

    def supersede(self, where: slice | Array) -> None:
        """The last write came after all reads of these granules: what comes after it comes after them."""
        for channel in self._readers():
            channel.events[where] = 0

    def by_elected(self, slot: int, where: slice | Array) -> bool:
        """Whether of a task's threads only the elected one has read these granules lately."""
        return not np.any(self._channel(self._reads, slot).threads[where] != ELECTED)

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
        if self._plain and not self._copied and high < self._opened.get(clock.slot, 1):
            return
        for number in (high,) if low == high else np.unique(seen).tolist():
            if not number:
                continue
            earlier = self._events[number]
            other, same = self.judge(earlier, event, clock)
            if other is None:
                continue
            here = seen == number
            threads = area.threads if isinstance(area.threads, int) else area.threads[here]
            before = channel.threads[area.where][here]
            apart = (before != threads) | ~is_one(before)
            if clock.warps and other is hazard.THREAD_RACE and _by_threads(earlier, event):
                apart = apart & ~in_order(clock.warps, earlier.component, before, threads, earlier.value)
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
                error = race_of_threads(earlier, event, byte, both, self._names, self.program, warp)
            else:
                error = self.report(entry, earlier, event, _granule(area, position))
            self._found.add(error, entry, earlier.op, event.op)

    def judge(self, earlier: Event, event: Event, clock: Clock) -> Verdict:
        """What is wrong between two accesses to the same granule, one of them a write."""
        return clash(earlier, event, clock)

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
            "wait": self._wait(earlier, event), "why": self._why(earlier, event),
        }  # fmt: skip
        return clashing(entry, event.op.loc, earlier.op.loc, f"{names[1]} {before} it here", name, names[::-1], fields)

    def _wait(self, earlier: Event, event: Event) -> str:
        """What to write so that a copy is complete."""
        if earlier.mode == "load" and earlier.slot // self.tasks != event.slot // self.tasks:
            return WAIT_FOR_OTHERS
        return WAIT_FOR_LOAD if earlier.mode == "load" else wait_for_copy(event.op, self._names)

    def _why(self, earlier: Event, event: Event) -> str:
        """Why two operations that one would take to be in order are not; of shared memory there is nothing to say."""
        return ""

    def _order(self, earlier: Event, event: Event, partition: str, other: str) -> str:
        """What to write so that two threads' accesses are ordered."""
        if earlier.slot // self.tasks != event.slot // self.tasks:
            return "call cluster.barrier() between the two lines, or cluster.arrive() after the first and cluster.wait() later"
        return order(earlier, event, partition, other)

    def partition(self, slot: int) -> str:
        """Words for a task of the cluster."""
        return task_words(slot, self.tasks, self.blocks)


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

    def put(self, area: Area, number: int, threads: Array | int) -> bool:
        """Forget what was there. Whether a granule appeared several times, with several threads."""
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

    def add(self, area: Area, number: int, opened: int) -> None:
        """Where the last event is `opened` or later and another thread's, several threads have an event now."""
        before = self.events[area.where]
        threads: Array | int = area.threads
        if before.size and np.maximum.reduce(before, axis=None) >= opened:
            kept = self.threads[area.where]
            others = (before >= opened) & (kept != threads)
            if others.any():
                both = several(kept, threads, MANY).astype(np.int16)
                threads = where(others, both, np.int16(threads) if isinstance(threads, int) else threads)
        self.put(area, number, threads)


def _by_threads(earlier: Event, event: Event) -> bool:
    """Whether the threads of one task do two events, or their copies."""
    return earlier.slot == event.slot and earlier.mode in BY_THREADS and event.mode in BY_THREADS


def _chosen(threads: Array | int, chosen: Array) -> Array | int:
    return threads if isinstance(threads, int) else threads[chosen]


def _granule(area: Area, position: int) -> int:
    """A granule of an area, by its position there."""
    if isinstance(area.where, slice):
        return cast("int", area.where.start) + position
    return int(np.ravel(area.where)[position])
