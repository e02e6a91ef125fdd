"""What a task has learned of other programs: from strong reads of global memory whose values decide what it does.

A read that acquires what a release has published orders nothing by itself: in another run the program comes first. It orders
what follows once its value decides something (`weft.analysis.steering`): for good when a loop ends because of it, and within
the region of a branch or loop, or for the access, that depends on it; behind a branch where the other way waits for
others as well.

What others have done is counted by task across the launch, as in `weft.sim.memory.races`; these arrays are never changed in
place. Where threads compute by themselves, each publishes what it did and knows itself, and learns for itself: the others of
its warp or block know of it behind a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from weft.analysis.steering import Bits
from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array
from weft.sim.memory.warps import SEVERAL, is_one

Key: TypeAlias = Hashable
"""Where something is published: an address, and for whom."""
Threads: TypeAlias = dict[int, int]
"""Events of one task that come before, by the notes of threads and warps that did them; never changed in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Events that come before: of each task so many, and more than that of some of its threads and warps, which stand as notes
    of accesses have them (`weft.sim.memory.warps`). By task, so that what is merged shares the tasks that did not change: an
    atomic by every thread of a thousand programs on one counter would copy what each of them published, each time."""

    counts: Array
    threads: dict[int, Threads] = field(default_factory=dict[int, Threads])

    def has(self, owners: Array, positions: Array, notes: Any) -> Array:
        """Which events are among these, by their tasks, their numbers there, and threads."""
        # The last count is of a task that has not started.
        out: Array = np.array(self.counts.take(owners, mode="clip") > positions)
        if not self.threads or out.all():
            return out
        left = ~out
        pairs = np.stack([owners[left], np.broadcast_to(notes, np.shape(owners))[left]], axis=1)
        each, which = np.unique(pairs, axis=0, return_inverse=True)
        counts = np.array([self._count(task, note) for task, note in each.tolist()])
        out[left] = counts[which.ravel()] > positions[left]
        return out

    def _count(self, task: int, note: int) -> int:
        """How many events of a task are known where they are by threads of this note, beside those of all threads."""
        counts = self.threads.get(task)
        if counts is None:
            return 0
        in_warp = SEVERAL + note // WARP_SIZE if note < SEVERAL else note
        return max(counts.get(note, 0), counts.get(in_warp, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What was published where a read looked; `acquires` tells that the read orders what follows, if it decides anything, for
    these of the task's threads (None: all)."""

    acquires: bool
    published: Known
    threads: Array | None = None


def _seen() -> dict[tuple[int, Key], Seen]:
    return {}


def _noticed() -> dict[Key, Known]:
    return {}


def _single() -> list[tuple[Array, Known]]:
    return []


@dataclass(slots=True, eq=False)
class Learned:
    """`world`: events of each task that come before what this one does now; `single`: more that do for some of its threads.
    `pending`: what reads saw, by their numbers, that has decided nothing for good yet; `active` are the reads that decided that
    the current region runs. `noticed`: what relaxed reads that did decide saw, which an acquire at the same place makes
    known."""

    world: Known | None = None
    single: list[tuple[Array, Known]] = field(default_factory=_single)
    pending: dict[tuple[int, Key], Seen] = field(default_factory=_seen)
    noticed: dict[Key, Known] = field(default_factory=_noticed)
    active: Bits = 0

    def see(self, reader: int, key: Key, acquires: bool, published: Known | None, threads: Array | None) -> None:
        """These threads (None: all) look at a place where this is published (None: nothing)."""
        if acquires and key in self.noticed:
            self._learn(self.noticed[key], threads)
        if published is not None:
            before = self.pending.get((reader, key))
            if before is not None and threads is not None:
                threads = None if before.threads is None else threads | before.threads
            self.pending[reader, key] = Seen(acquires, published, threads)

    def _learn(self, known: Known, threads: Array | None) -> None:
        if threads is None or threads.all():
            self.world = later(self.world, known)
            return
        for number, (of, before) in enumerate(self.single):
            if np.array_equal(of, threads):
                self.single[number] = of, later(before, known)
                return
        self.single.append((threads, known))

    def decided(self, bits: Bits) -> None:
        """The values of these reads have decided what happens from now on."""
        for (reader, key), seen in list(self.pending.items()):
            if bits >> reader & 1:
                del self.pending[reader, key]
                if seen.acquires:
                    self._learn(seen.published, seen.threads)
                else:
                    self.noticed[key] = later(self.noticed.get(key), seen.published)

    def meet(self, together: Callable[[Array], Array | None]) -> None:
        """Threads have met at a barrier: what some knew those know whom `together` gives for them (None: all)."""
        single, self.single = self.single, []
        for threads, known in single:
            self._learn(known, together(threads))
        for key, seen in self.pending.items():
            if seen.threads is not None:
                self.pending[key] = Seen(seen.acquires, seen.published, together(seen.threads))

    @contextmanager
    def within(self, bits: Bits) -> Generator[None, None, None]:
        """A region runs because of what these reads gave."""
        before = self.active
        self.active |= bits
        try:
            yield
        finally:
            self.active = before

    def knows(self, owners: Array, positions: Array, notes: Any, threads: Any, bits: Bits = 0) -> Array | bool:
        """Which events of other tasks come before what these threads do now, because of what is known and of these reads."""
        out: Array | bool = False
        for of, known in self._known(bits):
            has = known.has(owners, positions, notes)
            out = out | (has if of is None else has & _among(of, threads))
        return out

    def everything(self, bits: Bits = 0, thread: int | None = None) -> Known | None:
        """All that comes before what happens now: for one thread, or (None) for all that happens."""
        out: Known | None = None
        for of, known in self._known(bits):
            if of is None or thread is None or of[thread]:
                out = later(out, known)
        return out

    def _known(self, bits: Bits) -> Iterator[tuple[Array | None, Known]]:
        """What comes before, because of these reads as well, and for which threads (None: all)."""
        if self.world is not None:
            yield None, self.world
        yield from self.single
        bits |= self.active
        for (reader, _), seen in self.pending.items():
            if seen.acquires and bits >> reader & 1:
                yield seen.threads, seen.published

    def published(self) -> Learned | None:
        """What a barrier inside of the program hands on; None for nothing."""
        if self.world is None and not self.pending and not self.noticed:
            return None
        return Learned(self.everything(), [], dict(self.pending), dict(self.noticed))

    def join(self, other: Learned) -> None:
        """Know what another task of the program has handed on."""
        if other.world is not None:
            self.world = later(self.world, other.world)
        self.pending.update(other.pending)
        for key, known in other.noticed.items():
            self.noticed[key] = later(self.noticed.get(key), known)


def _among(some: Array, threads: Any) -> Any:
    """Whether accesses are made by these threads only."""
    return is_one(threads) & some.take(threads, mode="clip")


def later(first: Known | None, second: Known) -> Known:
    """The larger counts. Arrays end with a task that has not started, so that longer ones go on from there."""
    if first is None or first is second:
        return second
    one, other = first.counts, second.counts
    size = max(one.size, other.size)
    one, other = (each if each.size == size else np.pad(each, (0, size - each.size)) for each in (one, other))
    counts = one if one is other else np.maximum(one, other)
    return Known(counts, _merged(first.threads, second.threads))


def _merged(first: dict[int, Threads], second: dict[int, Threads]) -> dict[int, Threads]:
    """The larger counts of threads; tasks of one side, or alike on both, are shared and not copied."""
    if len(first) < len(second):
        first, second = second, first
    if not second:
        return first
    out = first.copy()
    for task, counts in second.items():
        before = out.get(task, counts)
        out[task] = counts if before is counts else larger(before, counts)
    return out


def larger(first: Threads, second: Threads) -> Threads:
    """The larger count of each note."""
    out = first.copy()
    for note, count in second.items():
        out[note] = max(out.get(note, 0), count)
    return out
