"""Happens-before between programs: what a task has acquired by strong reads of global memory.

An acquire that reads the value of a release orders nothing by itself, because in another run the read may come first and see
an older value. It orders what follows once its value decides control flow or an address (`weft.analysis.steering`): the rest
of the task when a loop ends because of it; the region of a branch or loop, or the access, that depends on it; and what
follows a branch if the other side of the branch acquires, too.

Events of other programs are counted per task across the launch, as in `weft.sim.memory.races`. These arrays are never changed
in place. In code written per thread, each thread releases its own accesses and acquires for itself; the other threads of its
warp or block are ordered only after a barrier.
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
"""Identifies a published clock: the address, and the scope."""
Threads: TypeAlias = dict[int, int]
"""Per thread or warp of one task (encoded as in `weft.sim.memory.warps`), the count of its events that happen before; never
changed in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A vector clock over the tasks of the launch. `counts`: per task, the count for all of its threads. `threads`: larger
    counts for single threads and warps of a task, encoded as in `weft.sim.memory.warps`. They are kept per task so that
    merging shares the entries that did not change; otherwise an atomic by every thread of a thousand programs on one counter
    would copy everything published so far each time. `fenced`: the events that a proxy fence of global memory has followed on
    the way here."""

    counts: Array
    threads: dict[int, Threads] = field(default_factory=dict[int, Threads])
    fenced: Known | None = None

    def has(self, owners: Array, positions: Array, notes: Any) -> Array:
        """Mask of the events that happen before, given their tasks, their numbers there, and their threads."""
        # The last count belongs to a task that has not started.
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
        """The count of a task's events by the thread or warp `note`, beyond the count for all threads of the task."""
        counts = self.threads.get(task)
        if counts is None:
            return 0
        in_warp = SEVERAL + note // WARP_SIZE if note < SEVERAL else note
        return max(counts.get(note, 0), counts.get(in_warp, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The clock that a strong read found published. `acquires`: the read orders what follows once its value decides
    something. `threads`: mask of the task's threads that read (None: all)."""

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
    """`world`: clock of the events that happen before the task's present. `single`: clocks that hold for some threads only.
    `pending`: what strong reads saw, by the number of the read, whose values have not decided anything for good yet.
    `active`: the reads whose values decided that the current region runs. `noticed`: what relaxed reads saw whose values did
    decide something; a later acquire at the same address turns it into knowledge."""

    world: Known | None = None
    single: list[tuple[Array, Known]] = field(default_factory=_single)
    pending: dict[tuple[int, Key], Seen] = field(default_factory=_seen)
    noticed: dict[Key, Known] = field(default_factory=_noticed)
    active: Bits = 0

    def see(self, reader: int, key: Key, acquires: bool, published: Known | None, threads: Array | None) -> None:
        """A strong read by these threads (None: all) at a key where `published` is published (None: nothing)."""
        if acquires and key in self.noticed:
            self._learn(self.noticed[key], threads)
        if published is not None:
            before = self.pending.get((reader, key))
            if before is not None and threads is not None:
                threads = None if before.threads is None else threads | before.threads
            self.pending[reader, key] = Seen(acquires, published, threads)

    def fence(self, threads: Array | None, concerns: Callable[[Key], bool]) -> None:
        """A fence of memory order by these threads (None: all): relaxed reads before it, at the keys that it `concerns`,
        acquire once their values decide something, or at once if they have."""
        for key in [key for key in self.noticed if concerns(key)]:
            self._learn(self.noticed.pop(key), threads)
        for (reader, key), seen in self.pending.items():
            if not seen.acquires and concerns(key) and _covers(threads, seen.threads):
                self.pending[reader, key] = Seen(True, seen.published, seen.threads)

    def fence_proxy(self, threads: Array | None) -> None:
        """A proxy fence by these threads: what they have acquired precedes their later accesses in the async proxy."""
        if self.world is not None:
            self._learn(fenced(self.world), threads)
        self.single = [(of, fenced(known) if _covers(threads, of) else known) for of, known in self.single]
        for place, seen in self.pending.items():
            if _covers(threads, seen.threads):
                self.pending[place] = Seen(seen.acquires, fenced(seen.published), seen.threads)

    def fenced(self, owners: Array, positions: Array, notes: Any, thread: int | None, bits: Bits = 0) -> Array:
        """Mask of the other tasks' events that a proxy fence has followed, for a thread of the task (None: for all)."""
        known = self.everything(bits, thread)
        if known is None or known.fenced is None:
            return np.zeros(np.shape(owners), np.bool_)
        return known.fenced.has(owners, positions, notes)

    def copy(self) -> Learned:
        """The present state."""
        return Learned(self.world, list(self.single), dict(self.pending), dict(self.noticed), self.active)

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
        """The values of these reads have decided the control flow of everything that follows."""
        for (reader, key), seen in list(self.pending.items()):
            if bits >> reader & 1:
                del self.pending[reader, key]
                if seen.acquires:
                    self._learn(seen.published, seen.threads)
                else:
                    self.noticed[key] = later(self.noticed.get(key), seen.published)

    def meet(self, together: Callable[[Array], Array | None]) -> None:
        """A barrier: what a set of threads knew now holds for the set that `together` returns for it (None: all threads)."""
        single, self.single = self.single, []
        for threads, known in single:
            self._learn(known, together(threads))
        for key, seen in self.pending.items():
            if seen.threads is not None:
                self.pending[key] = Seen(seen.acquires, seen.published, together(seen.threads))

    @contextmanager
    def within(self, bits: Bits) -> Generator[None, None, None]:
        """The scope of a region that runs because of the values of these reads."""
        before = self.active
        self.active |= bits
        try:
            yield
        finally:
            self.active = before

    def knows(self, owners: Array, positions: Array, notes: Any, threads: Any, bits: Bits = 0) -> Array | bool:
        """Mask of the other tasks' events that happen before what these threads do now, given `bits`, the deciding reads."""
        out: Array | bool = False
        for of, known in self._known(bits):
            has = known.has(owners, positions, notes)
            out = out | (has if of is None else has & _among(of, threads))
        return out

    def everything(self, bits: Bits = 0, thread: int | None = None) -> Known | None:
        """The joined clock of all that happens before now: for one thread, or (None) for all threads."""
        out: Known | None = None
        for of, known in self._known(bits):
            if of is None or thread is None or of[thread]:
                out = later(out, known)
        return out

    def _known(self, bits: Bits) -> Iterator[tuple[Array | None, Known]]:
        """The clocks that hold now, those of the deciding reads `bits` included, each with its threads (None: all)."""
        if self.world is not None:
            yield None, self.world
        yield from self.single
        bits |= self.active
        for (reader, _), seen in self.pending.items():
            if seen.acquires and bits >> reader & 1:
                yield seen.threads, seen.published

    def published(self) -> Learned | None:
        """What a barrier inside the program publishes; None for nothing."""
        if self.world is None and not self.pending and not self.noticed:
            return None
        return Learned(self.everything(), [], dict(self.pending), dict(self.noticed))

    def join(self, other: Learned) -> None:
        """Acquire what another task of the program has published."""
        if other.world is not None:
            self.world = later(self.world, other.world)
        self.pending.update(other.pending)
        for key, known in other.noticed.items():
            self.noticed[key] = later(self.noticed.get(key), known)


def _covers(threads: Array | None, some: Array | None) -> bool:
    """True if these threads (None: all) include some others."""
    return threads is None or (some is not None and not np.any(some & ~threads))


def _among(some: Array, threads: Any) -> Any:
    """True where an access is by one thread, and that thread is in `some`."""
    return is_one(threads) & some.take(threads, mode="clip")


def later(first: Known | None, second: Known) -> Known:
    """The join of two clocks. Each array ends with a task that has not started, so a shorter one is padded with zeros."""
    if first is None or first is second:
        return second
    one, other = first.counts, second.counts
    size = max(one.size, other.size)
    one, other = (each if each.size == size else np.pad(each, (0, size - each.size)) for each in (one, other))
    counts = one if one is other else np.maximum(one, other)
    fenced = first.fenced if second.fenced is None else later(first.fenced, second.fenced)
    return Known(counts, _merged(first.threads, second.threads), fenced)


def fenced(known: Known) -> Known:
    """The clock behind a proxy fence."""
    return Known(known.counts, known.threads, Known(known.counts, known.threads))


def _merged(first: dict[int, Threads], second: dict[int, Threads]) -> dict[int, Threads]:
    """The join of the per-thread counts. Tasks that only one side has, or that are equal, are shared instead of copied."""
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
    """The larger count for each thread or warp."""
    out = first.copy()
    for note, count in second.items():
        out[note] = max(out.get(note, 0), count)
    return out
