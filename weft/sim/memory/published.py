"""Vector clocks that releases publish at addresses of global memory, for strong reads of other programs.

A strong read remembers the clock that it found (`weft.sim.memory.learned`). What that clock orders depends on how the kernel
uses the value read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from weft.analysis.steering import Bits, Steering
from weft.ir.core import Op
from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array
from weft.sim.memory.clocks import EVERY, Counts
from weft.sim.memory.heap import Segment
from weft.sim.memory.learned import Known, Learned, larger, later
from weft.sim.memory.tracks import Actor, Touch
from weft.sim.memory.warps import SEVERAL

Touched: TypeAlias = tuple[Segment, Array]
"""Addresses in a segment."""
Address: TypeAlias = "int | tuple[int, str]"
"""An address, relative to the first segment over the storage; or the whole storage, for accesses with many addresses."""
Reach: TypeAlias = "int | tuple[int, int] | None"
"""The scope of a release: all programs (None), a cluster, or one block of a cluster."""
SINGLE = 32
"""Up to this many addresses of an access are tracked one by one; a wider access counts as one of the whole array."""


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """What a release at some moment publishes of a task: fields of the task and of its clock then."""

    position: int
    settled: int
    known: Counts
    warps: dict[int, Counts]
    proxied: Counts
    own_proxied: Counts
    learned: Learned


def moment(task: Actor, copied: bool = False) -> Moment:
    """The present of a task; `copied`, if it is to be kept."""
    clock = task.clock
    if not copied:
        return Moment(
            clock.position, task.settled, clock.known, clock.warps, clock.proxied, clock.own_proxied, clock.learned
        )
    warps = {warp: dict(counts) for warp, counts in clock.warps.items()}
    return Moment(
        clock.position, task.settled, dict(clock.known), warps, dict(clock.proxied), dict(clock.own_proxied),
        clock.learned.copy(),
    )  # fmt: skip


class Published:
    """By address and scope, the clock that releases there have published, and the task that released last."""

    __slots__ = ("_fences", "_known", "_places", "_releasers", "_steering", "_tasks", "enabled")

    def __init__(self, steering: Steering, tasks: int) -> None:
        self._steering = steering
        self._tasks = tasks
        # The length of the clocks: at least one more than the tasks that have started, so that the last count is always 0.
        self._places = tasks + 1
        self._known: dict[tuple[Address, Reach], Known] = {}
        self._releasers: dict[tuple[Address, Reach], int] = {}
        # By task, its last fences: their threads, scopes, and the task's clock then.
        self._fences: dict[int, list[tuple[Array | None, tuple[Reach, ...], Moment]]] = {}
        # Releases need not be recorded if no strong read of the kernel decides anything.
        self.enabled = bool(steering.deciding)

    def strong_read(self, touch: Touch, addresses: Array, acquires: bool) -> None:
        """A strong read of these addresses finds the clocks that are published there."""
        task, op = touch.task, touch.op
        reader = self._steering.readers[op]
        for address, threads in _consulted(touch, addresses).items():
            for reach in self._reaches(task, op):
                key = address, reach
                task.clock.learned.see(reader, key, acquires, self._known.get(key), threads)

    def release(self, touch: Touch, addresses: Array, replaces: bool, latest: int) -> None:
        """A release at these addresses publishes the task's clock. An atomic continues the release sequences of earlier
        releases there, so it joins their clocks; a store `replaces` them (PTX ISA, memory consistency model, "Release and
        Acquire Patterns"). `latest`: the highest task that has started."""
        self._publish(touch, addresses, replaces, latest, moment(touch.task), self._reaches(touch.task, touch.op))

    def _publish(
        self, touch: Touch, addresses: Array, replaces: bool, latest: int, at: Moment, reaches: tuple[Reach, ...]
    ) -> None:  # fmt: skip
        task, bits = touch.task, self._steering.told.get(touch.op, 0)
        while max(latest + 1, task.number - task.slot + self._tasks) >= self._places:
            self._places *= 2
        places = _addresses(touch.place.segment, addresses, reading=False)
        threads = _threads(touch, addresses)
        # The entry for the whole storage gets the clock of all threads of the operation.
        single = threads is not None and len(places) == 1 + threads.size
        releasers = [None, *threads.tolist()] if single and threads is not None else [None] * len(places)
        released = {thread: self._released(task, at, bits, thread) for thread in dict.fromkeys(releasers)}
        # Join the threads that release at one address first, so that the clock published there is copied only once.
        made: dict[Address, Known] = {}
        for address, thread in zip(places, releasers, strict=True):
            alone = replaces and isinstance(address, int)
            made[address] = later(None if alone else made.get(address), released[thread])
        for address, known in made.items():
            for reach in reaches:
                key = address, reach
                before = None if replaces and isinstance(address, int) else self._known.get(key)
                self._known[key] = later(before, known)
                self._releasers[key] = task.number

    def _released(self, task: Actor, at: Moment, bits: Bits, thread: int | None) -> Known:
        """The clock that a task publishes, or one of its threads, as it was at a moment."""
        now, first = np.zeros(self._places, np.int32), task.number - task.slot
        learned = at.learned.everything(bits, thread)
        if learned is not None:
            now[: learned.counts.size] = learned.counts
        for slot in range(self._tasks):
            now[first + slot] = max(now[first + slot], at.known.get(slot, 0))
        threads = {} if learned is None else dict(learned.threads)
        if thread is None:
            now[task.number] = at.position
        else:
            now[task.number] = max(now[task.number], at.settled)
            warp = thread // WARP_SIZE
            own = {thread: at.position}
            if met := at.warps.get(warp, {}).get(task.slot, 0):
                own[SEVERAL + warp] = met
            threads[task.number] = larger(threads.get(task.number, {}), own)
        return Known(now, threads, self._fenced(task, at, learned))

    def _fenced(self, task: Actor, at: Moment, learned: Known | None) -> Known | None:
        """Of what a task publishes, the events that a proxy fence has followed."""
        before = None if learned is None else learned.fenced
        if not at.proxied and not at.own_proxied:
            return before
        now, first = np.zeros(self._places, np.int32), task.number - task.slot
        for slot in range(self._tasks):
            now[first + slot] = at.proxied.get(slot, 0)
        now[task.number] = max(now[task.number], at.own_proxied.get(EVERY, 0))
        own = {thread: count for thread, count in at.own_proxied.items() if thread != EVERY}
        return later(before, Known(now, {task.number: own} if own else {}))

    def fence(self, task: Actor, op: Op, threads: Array | None) -> None:
        """A fence of memory order by these threads (None: all). Relaxed writes of theirs behind it publish the clock of now."""
        reaches = self._reaches(task, op)
        task.clock.learned.fence(threads, lambda key: isinstance(key, tuple) and key[1] in reaches)
        kept = [each for each in self._fences.get(task.number, ()) if not _replaced(each, threads, reaches)]
        self._fences[task.number] = [*kept, (threads, reaches, moment(task, copied=True))]

    def fenced_write(self, touch: Touch, addresses: Array, replaces: bool, latest: int) -> None:
        """A relaxed write publishes the clock of the last fence of its thread that has a scope in common with it."""
        for threads, reaches, at in self._fences.get(touch.task.number, ()):
            within = tuple(reach for reach in self._reaches(touch.task, touch.op) if reach in reaches)
            who = _threads(touch, addresses)
            if threads is None or (who is not None and threads[who].all()):
                self._publish(touch, addresses, replaces, latest, at, within)

    def overwrites(self, task: Actor, place: Touched) -> None:
        """A relaxed store ends other tasks' release sequences there: a read of its value acquires nothing from them."""
        if not self._known:
            return
        everywhere: list[Reach] = [None, task.program, (task.program, task.rank)]
        for address in _addresses(*place, reading=False):
            for reach in everywhere:
                if isinstance(address, int) and self._releasers.get((address, reach), task.number) != task.number:
                    del self._known[address, reach], self._releasers[address, reach]

    def _reaches(self, task: Actor, op: Op) -> tuple[Reach, ...]:
        """The scopes at which an operation releases or acquires, according to its `scope` attribute."""
        scope, cluster = op.attrs["scope"], task.program
        if self._tasks == 1:
            return () if scope in ("cta", "cluster") else (None,)
        reaches: tuple[Reach, ...] = (cluster, task.rank), cluster, None
        return reaches[: {"cta": 1, "cluster": 2}.get(scope, 3)]


def _replaced(
    fence: tuple[Array | None, tuple[Reach, ...], Moment], threads: Array | None, reaches: tuple[Reach, ...]
) -> bool:
    """True if a fence of these threads and scopes leaves nothing to an earlier one."""
    of, wider, _ = fence
    return set(wider) <= set(reaches) and (threads is None or (of is not None and not np.any(of & ~threads)))


def _threads(touch: Touch, addresses: Array) -> Array | None:
    """The thread of each access in code written per thread; None in code written for tiles."""
    if not touch.each or isinstance(touch.threads, int):
        return None
    return np.ravel(np.broadcast_to(touch.threads, np.shape(addresses)))


def _consulted(touch: Touch, addresses: Array) -> dict[Address, Array | None]:
    """The entries that an acquire at these addresses consults, each with its threads (None: all)."""
    places = _addresses(touch.place.segment, addresses, reading=True)
    threads = _threads(touch, addresses)
    if threads is None:
        return dict.fromkeys(places)
    found: dict[Address, Array | None] = {}
    for number, address in enumerate(places):
        mask = np.zeros(touch.task.threads, np.bool_)
        # Entry 0 is the one of the whole storage, which concerns all threads; the tracked addresses follow.
        mask[threads[number - 1] if number else threads] = True
        before = found.get(address)
        found[address] = mask if before is None else mask | before
    return found


def _addresses(segment: Segment, addresses: Array, reading: bool) -> list[Address]:
    """The entries that an acquire consults (`reading`), or to which a release publishes."""
    if np.size(addresses) > SINGLE:
        return [(segment.home, "all")] if reading else [(segment.home, "all"), (segment.home, "wide")]
    each = np.ravel(addresses + (segment.home - segment.start)).tolist()
    return [(segment.home, "wide" if reading else "all"), *each]
