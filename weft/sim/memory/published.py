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
from weft.sim.memory.history import Address, History, Reach
from weft.sim.memory.learned import Known, Learned, larger, later
from weft.sim.memory.tracks import Actor, Touch
from weft.sim.memory.warps import SEVERAL

Touched: TypeAlias = tuple[Segment, Array]
"""Addresses in a segment."""
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


Fenced: TypeAlias = "tuple[Array | None, tuple[Reach, ...], Moment]"
"""A fence of memory order: its threads (None: all), its scopes, and the clock of its task then."""


class Published:
    """What releases publish, and strong reads find, in a launch: by address and scope, in the launch's history. `rank`: the
    rank of the launch in its world, if it has one."""

    __slots__ = ("_log", "_rank", "_steering", "_tasks", "enabled")

    def __init__(self, steering: Steering, tasks: int, log: History, rank: int | None = None) -> None:
        self._steering = steering
        self._tasks = tasks
        self._log = log
        self._rank = rank
        # Releases need not be recorded if no strong read decides anything; those of a world may be read by other kernels.
        self.enabled = bool(steering.deciding) or rank is not None

    def strong_read(self, touch: Touch, addresses: Array, acquires: bool, counts: Array | None = None) -> None:
        """A strong read of these addresses finds the clocks that are published there.

        `counts`: for waits on signals, how many signals each of them waits for. It finds what these many published: the next
        one may have come already, but in another run it would not have."""
        task, op = touch.task, touch.op
        reader = self._steering.readers[op]
        if counts is not None:
            threads = _threads(touch, addresses)
            wanted: list[int] = np.ravel(counts).tolist()
            each = zip(_each(touch.place.segment, addresses), wanted, strict=True)
            for number, (address, count) in enumerate(each):
                who = None if threads is None else np.arange(task.threads) == threads[number]
                for reach in self._reaches(task, op):
                    sent = self._log.signals.get((address, reach), [])
                    published: Known | None = sent[min(count, len(sent)) - 1] if count > 0 and sent else None
                    task.clock.learned.see(reader, (address, reach, count), acquires, published, who)
            return
        for address, threads in _consulted(touch, addresses).items():
            for reach in self._reaches(task, op):
                key = address, reach
                task.clock.learned.see(reader, key, acquires, self._log.known.get(key), threads)

    def release(self, touch: Touch, addresses: Array, replaces: bool) -> None:
        """A release at these addresses publishes the task's clock. An atomic continues the release sequences of earlier
        releases there, so it joins their clocks; a store `replaces` them (PTX ISA, memory consistency model, "Release and
        Acquire Patterns")."""
        self._publish(touch, addresses, replaces, moment(touch.task), self._reaches(touch.task, touch.op))

    def _publish(
        self, touch: Touch, addresses: Array, replaces: bool, at: Moment, reaches: tuple[Reach, ...]
    ) -> None:  # fmt: skip
        task, bits = touch.task, self._steering.told.get(touch.op, 0)
        if touch.place.segment.buffer.signals:
            self._signal(touch, addresses, at, bits, reaches)
            return
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
                before = None if replaces and isinstance(address, int) else self._log.known.get(key)
                self._log.known[key] = later(before, known)
                self._log.releasers[key] = task.number

    def _signal(
        self, touch: Touch, addresses: Array, at: Moment, bits: Bits, reaches: tuple[Reach, ...]
    ) -> None:  # fmt: skip
        """Signals: each is one release in the sequence of its address, and joins those before it."""
        threads = _threads(touch, addresses)
        pad = touch.place.segment.buffer.signals
        puts = None if pad is None else self._log.puts.get((touch.task.number, pad.rank))
        for number, address in enumerate(_each(touch.place.segment, addresses)):
            known = self._released(touch.task, at, bits, None if threads is None else int(threads[number]))
            if puts is not None:
                known = later(known, self.after(puts))
            for reach in reaches:
                sent = self._log.signals.setdefault((address, reach), [])
                sent.append(later(sent[-1] if sent else None, known))
            self._log.senders[address] = touch.task.pid, touch.op

    def after(self, puts: Actor) -> Known:
        """The clock of a program's puts to one rank: all so far are complete."""
        counts = np.zeros(self._log.room(), np.int32)
        counts[puts.number] = puts.clock.position + 1
        return Known(counts)

    def present(self, task: Actor, op: Op) -> Known:
        """The clock that a task would publish now by an operation."""
        return self._released(task, moment(task), self._steering.told.get(op, 0), None)

    def _released(self, task: Actor, at: Moment, bits: Bits, thread: int | None) -> Known:
        """The clock that a task publishes, or one of its threads, as it was at a moment."""
        now, first = np.zeros(self._log.room(), np.int32), task.number - task.slot
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
        now, first = np.zeros(self._log.room(), np.int32), task.number - task.slot
        for slot in range(self._tasks):
            now[first + slot] = at.proxied.get(slot, 0)
        now[task.number] = max(now[task.number], at.own_proxied.get(EVERY, 0))
        own = {thread: count for thread, count in at.own_proxied.items() if thread != EVERY}
        return later(before, Known(now, {task.number: own} if own else {}))

    def fence(self, task: Actor, op: Op, threads: Array | None) -> None:
        """A fence of memory order by these threads (None: all). Relaxed writes of theirs behind it publish the clock of now."""
        reaches = self._reaches(task, op)
        task.clock.learned.fence(threads, lambda key: isinstance(key, tuple) and key[1] in reaches)
        kept = [each for each in self._log.fences.get(task.number, ()) if not _replaced(each, threads, reaches)]
        self._log.fences[task.number] = [*kept, (threads, reaches, moment(task, copied=True))]

    def fenced_write(self, touch: Touch, addresses: Array, replaces: bool) -> None:
        """A relaxed write publishes the clock of the last fence of its thread that has a scope in common with it."""
        for threads, reaches, at in self._log.fences.get(touch.task.number, ()):
            within = tuple(reach for reach in self._reaches(touch.task, touch.op) if reach in reaches)
            who = _threads(touch, addresses)
            if threads is None or (who is not None and threads[who].all()):
                self._publish(touch, addresses, replaces, at, within)

    def overwrites(self, task: Actor, place: Touched) -> None:
        """A relaxed store ends other tasks' release sequences there: a read of its value acquires nothing from them."""
        if not self._log.known:
            return
        everywhere: list[Reach] = [None, task.program, (task.program, task.rank)]
        everywhere += [("rank", rank) for rank in range(self._log.ranks)]
        for address in _addresses(*place, reading=False):
            for reach in everywhere:
                if isinstance(address, int) and self._log.releasers.get((address, reach), task.number) != task.number:
                    del self._log.known[address, reach], self._log.releasers[address, reach]

    def _reaches(self, task: Actor, op: Op) -> tuple[Reach, ...]:
        """The scopes at which an operation releases or acquires, according to its `scope` attribute."""
        scope, cluster = scope_of(op), task.program
        wide: tuple[Reach, ...] = (None,)
        if self._rank is not None:
            wide = (("rank", self._rank), None) if scope == "sys" else (("rank", self._rank),)
        if self._tasks == 1:
            return () if scope in ("cta", "cluster") else wide
        narrow: tuple[Reach, ...] = (cluster, task.rank), cluster
        return narrow[:1] if scope == "cta" else narrow if scope == "cluster" else (*narrow, *wide)


def scope_of(op: Op) -> str:
    """The scope of a strong access or a fence. A volatile access is relaxed with the widest one (PTX ISA, "ld.volatile")."""
    return "sys" if op.attrs.get("volatile") else op.attrs["scope"]


def _replaced(fence: Fenced, threads: Array | None, reaches: tuple[Reach, ...]) -> bool:
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
    return [(segment.home, "wide" if reading else "all"), *_each(segment, addresses)]


def _each(segment: Segment, addresses: Array) -> list[int]:
    """The addresses, relative to the first segment over their storage."""
    return np.ravel(addresses + (segment.home - segment.start)).tolist()
