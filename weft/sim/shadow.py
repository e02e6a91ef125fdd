"""Which accesses to a block's shared memory clash: the last ones of every granule, and whether the next is ordered after them.

Verdicts come from happens-before alone (`weft.sim.clocks`), not from when the simulator happened to move data. A granule is as
many bytes as the smallest element of the kernel's shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from weft.errors import Hazard, Loc, Row, fail, hazard
from weft.ir.core import Op
from weft.sim.clocks import Clock
from weft.sim.data import Array, where

Mode = Literal["generic", "copy", "load", "store"]
"""Who accesses: threads, their cp.async copies, a TMA load (which writes), a TMA store (which reads)."""

MANY = -1
"""In place of a thread's number: several threads, or nobody knows which."""
ELECTED = 0
"""The thread of a partition that is elected for operations of one thread."""

WORDS: dict[tuple[Mode, bool], tuple[str, str]] = {
    ("generic", False): ("reads", "read"),
    ("generic", True): ("writes", "wrote"),
    ("copy", True): ("copies into", "copied into"),
    ("load", True): ("copies into", "copied into"),
    ("store", False): ("copies from", "copied from"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """An access: it is known to be over when `component` has counted past `value`; `slot` is the task's own component. Atomic
    ones do not clash with each other."""

    component: int
    value: int
    mode: Mode
    writes: bool
    slot: int
    op: Op
    name: str
    atomic: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """Granules that an access touches (a slice or numbers), and the thread of each, or of all. `repeats`: a granule may appear
    several times."""

    where: slice | Array
    threads: Array | int
    repeats: bool = False


class Shadow:
    """Per granule the last write, and per task the last read and the last read by a TMA store."""

    __slots__ = ("_granules", "_opened", "_reads", "_stores", "_writes", "events", "program", "tasks")

    def __init__(self, program: tuple[int, int, int], tasks: int) -> None:
        self.program = program
        self.tasks = tasks
        self.events: list[Event] = []
        self._granules = 0
        self._writes = Channel(0)
        self._reads: dict[int, Channel] = {}
        self._stores: dict[int, Channel] = {}
        # For each task, the first event that its last barrier does not order.
        self._opened: dict[int, int] = {}

    def resize(self, granules: int) -> None:
        """Shared memory has this many granules now."""
        self._granules = granules
        for channel in (self._writes, *self._reads.values(), *self._stores.values()):
            channel.resize(granules)

    def barrier(self, clock: Clock) -> None:
        """All threads of a task have arrived."""
        self._opened[clock.slot] = len(self.events) + 1

    def access(self, clock: Clock, event: Event, area: Area) -> None:
        """An event of a task at some granules. Raises the hazard of a clash with an earlier one."""
        self.check(clock, event, area)
        self.record(event, area)

    def check(self, clock: Clock, event: Event, area: Area) -> None:
        """Raise the hazard of a clash with an earlier event."""
        self._against(self._writes, clock, event, area)
        if event.writes:
            for channel in (*self._reads.values(), *self._stores.values()):
                self._against(channel, clock, event, area)

    def record(self, event: Event, area: Area) -> None:
        """Remember an event for those to come."""
        self.events.append(event)
        number = len(self.events)
        if event.writes:
            self._writes.put(area, number, area.threads)
        elif event.mode == "store":
            self._channel(self._stores, event.slot).put(area, number, ELECTED)
        else:
            self._channel(self._reads, event.slot).add(area, number, self._opened.get(event.slot, 1))

    def _channel(self, channels: dict[int, Channel], slot: int) -> Channel:
        if slot not in channels:
            channels[slot] = Channel(self._granules)
        return channels[slot]

    def _against(self, channel: Channel, clock: Clock, event: Event, area: Area) -> None:
        seen = channel.events[area.where]
        if not seen.size:
            return
        low, high = int(seen.min()), int(seen.max())
        for number in (high,) if low == high else np.unique(seen).tolist():
            if not number:
                continue
            earlier = self.events[number - 1]
            other, same = clash(earlier, event, clock)
            if other is None:
                continue
            here = seen == number
            threads = area.threads if isinstance(area.threads, int) else area.threads[here]
            before = channel.threads[area.where][here]
            one_thread = bool(np.all((before == threads) & (before != MANY)))
            if not one_thread:
                raise self.report(other, earlier, event)
            if same is not None:
                raise self.report(same, earlier, event)

    def report(self, entry: Row, earlier: Event, event: Event) -> Hazard:
        """The exception for two accesses that clash."""
        access, _ = WORDS[event.mode, event.writes]
        _, before = WORDS[earlier.mode, earlier.writes]
        names = self.partition(event.slot), self.partition(earlier.slot)
        fields: dict[str, Any] = {
            "program": self.program, "partition": names[0], "other": names[1], "access": access, "name": event.name,
            "before": before, "order": _order(earlier, event, *names),
            "wait": "wait for the mbarrier of the copy" if earlier.mode == "load" else "call async_copy.wait_group(0)",
        }  # fmt: skip
        return clashing(
            entry, event.op.loc, earlier.op.loc, f"{names[1]} {before} it here", event.name, names[::-1], fields
        )

    def partition(self, slot: int) -> str:
        """Words for a task of the block."""
        return f"partition {slot}" if self.tasks > 1 else "the block"


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
        if before.size and int(before.max()) >= opened:
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
    asynchronous = event.mode in ("load", "store")
    if earlier.mode == "load":
        return FINE if known else _in_flight(event)
    if earlier.mode == "store":
        if known or (own and clock.elected.get(earlier.component, 0) > earlier.value):
            return FINE if known or asynchronous else RACE
        return hazard.STORE_SOURCE_REUSED, hazard.STORE_SOURCE_REUSED
    if earlier.mode == "copy" and not known and not (own and clock.each.get(earlier.component, 0) > earlier.value):
        return _in_flight(event)
    ordered: Verdict = FINE if known else RACE if own else (hazard.THREAD_RACE, hazard.THREAD_RACE)
    if not asynchronous or not (known or own) or clock.fenced.get(earlier.component, 0) > earlier.value:
        return ordered
    if own and clock.own_fenced.get(earlier.component, 0) > earlier.value:
        return RACE
    return hazard.MISSING_FENCE, hazard.MISSING_FENCE


def _in_flight(event: Event) -> Verdict:
    entry = hazard.WRITE_IN_FLIGHT if event.writes else hazard.READ_IN_FLIGHT
    return entry, entry


def _order(earlier: Event, event: Event, partition: str, other: str) -> str:
    """What to write so that two threads' accesses are ordered."""
    if earlier.slot != event.slot:
        return f"let {other} arrive on an mbarrier after the first line, and {partition} wait for it before the second"
    between = {"store": "tma.store_wait()", "copy": "async_copy.wait_group()"}.get(earlier.mode, "the first line")
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
