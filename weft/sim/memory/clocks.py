"""Happens-before inside a block: the vector clock of each task, and how barriers and fences update it.

A *task* is a partition of a block; its threads run in lockstep. Everything that can be waited for is a *component* of the
clocks with a count: the events of a task, the phases of an mbarrier, the bulk groups or the cp.async batches of a task. An
event is identified by its component and its number there, `value`. It happens before the present of a clock
`{component: count}` if that count is greater than `value`.

`Clock.known` holds for all threads of a task. `each` holds for every thread about its own cp.async copies
(`cp.async.wait_group` is per thread), `elected` for the elected thread about its bulk groups (`cp.async.bulk.wait_group`). A
barrier of the partition merges all of these and the task's own events into `known`. `fenced` counts the generic-proxy events
that a proxy fence has made visible to the async proxy; `own_fenced` counts those that each thread has fenced for itself.
`warps` holds what the threads of each warp know in addition, from barriers of that warp (`bar.warp.sync`), and `links` what
single threads know, from mbarriers at which each arrives and waits by itself.

`proxied` counts the events that a proxy fence of global memory has followed, `own_proxied` those of each thread that it has
fenced for itself, by thread (`EVERY` for all).

For tensor memory, `sealed` counts the events that `tcgen05.fence::before_thread_sync` orders before the next release,
`own_sealed` the task's own such events, valid per thread until the next barrier. `ordered` counts the events that
`tcgen05.fence::after_thread_sync` orders before what follows (PTX ISA, "tcgen05.fence").

`before` counts the events that precede in time, a superset of `known`: an mbarrier phase completes after the copies that
signal it were issued, hence after everything that their task did until then, although no release published those events.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array, where
from weft.sim.memory.learned import Learned
from weft.sim.memory.links import Counts, Link, ThreadCounts, join_threads
from weft.sim.memory.warps import WARPS, of_one_warp, shared_in_warps, warp_of

EVERY = -1
"""In place of a thread's number: all threads of the task."""


def join(into: Counts, other: Counts) -> None:
    """Raise each count of `into` to that of `other`: the join of two vector clocks."""
    for component, count in other.items():
        if into.get(component, 0) < count:
            into[component] = count


def _counts() -> Counts:
    return {}


def _of_warps() -> dict[int, Counts]:
    return {}


@dataclass(slots=True)
class Released:
    """The clocks that a release publishes. The fields are those of `Clock`; `learned` is about other programs, `threads` the
    events of single threads that have released."""

    known: Counts = field(default_factory=_counts)
    fenced: Counts = field(default_factory=_counts)
    before: Counts = field(default_factory=_counts)
    sealed: Counts = field(default_factory=_counts)
    proxied: Counts = field(default_factory=_counts)
    threads: ThreadCounts = field(default_factory=dict[int, Array])
    learned: Learned | None = None

    def join(self, other: Released) -> None:
        """Also publish what `other` publishes."""
        join_threads(self.threads, other.threads)
        if other.learned is not None:
            self.learned = self.learned or Learned()
            self.learned.join(other.learned)
        join(self.known, other.known)
        join(self.fenced, other.fenced)
        join(self.before, other.before)
        join(self.sealed, other.sealed)
        join(self.proxied, other.proxied)


@dataclass(slots=True, eq=False)
class Clock:
    """The vector clock of one task. `slot`: the component of its own events. `position`: their count so far. `touched`: the
    value of `position` after its last access to tensor memory. `arrived`: how often the task has arrived at mbarriers."""

    slot: int
    position: int = 0
    known: Counts = field(default_factory=_counts)
    each: Counts = field(default_factory=_counts)
    elected: Counts = field(default_factory=_counts)
    fenced: Counts = field(default_factory=_counts)
    own_fenced: Counts = field(default_factory=_counts)
    before: Counts = field(default_factory=_counts)
    warps: dict[int, Counts] = field(default_factory=_of_warps)
    links: list[Link] = field(default_factory=list[Link])
    sealed: Counts = field(default_factory=_counts)
    own_sealed: Counts = field(default_factory=_counts)
    ordered: Counts = field(default_factory=_counts)
    proxied: Counts = field(default_factory=_counts)
    own_proxied: Counts = field(default_factory=_counts)
    touched: int = 0
    arrived: int = 0
    learned: Learned = field(default_factory=Learned)

    def tick(self) -> int:
        """Begin a new event of the task and return its number."""
        self.position += 1
        return self.position - 1

    def arrive(self) -> int:
        """Count an arrival of the task at an mbarrier and return its number. Arrivals access no memory, so they are no events
        that a barrier or a fence would have to order: they have a component of their own, `~slot`."""
        self.arrived += 1
        return self.arrived - 1

    def follows(self, arrival: tuple[int, int]) -> bool:
        """True if an arrival (the task's slot, and its number) precedes the present in time."""
        slot, number = arrival
        return slot == self.slot or max(self.before.get(~slot, 0), self.known.get(~slot, 0)) > number

    @property
    def open(self) -> bool:
        """True if a barrier would order anything that is not ordered yet."""
        single = (*self.each.items(), *self.elected.items())
        return self.known.get(self.slot, 0) < self.position or any(self.known.get(c, 0) < count for c, count in single)

    @property
    def unfenced(self) -> bool:
        """True if a proxy fence would order anything that is not ordered yet."""
        others = any(self.fenced.get(c, 0) < count for c, count in self.known.items() if c >= 0)
        return self.own_fenced.get(self.slot, 0) < self.position or others

    def barrier(self) -> None:
        """A barrier at which all threads of the task have arrived."""
        join(self.known, self.each)
        join(self.known, self.elected)
        self.known[self.slot] = self.position
        if self.arrived:
            self.known[~self.slot] = self.arrived
        join(self.fenced, self.own_fenced)
        join(self.sealed, self.own_sealed)
        self.warps.clear()
        links, self.links = self.links, []
        for link in links:
            self._know(None, link.counts, link.threads)
        self.learned.meet(lambda _: None)

    def warp_barrier(self, warps: Collection[int]) -> None:
        """All threads of these warps have arrived, each at the barrier of its own warp."""
        for warp in warps:
            known = self.warps.setdefault(warp, {})
            join(known, self.each)
            known[self.slot] = self.position
        self.links = [link.in_warps(warps) for link in self.links]
        self.learned.meet(lambda threads: shared_in_warps(threads, warps))

    def fence(self) -> None:
        """A proxy fence of every thread: its own accesses, and those it knows of, precede later accesses of the async proxy."""
        join(self.fenced, self.known)
        join(self.own_fenced, self.each)
        self.own_fenced[self.slot] = self.position

    def fence_global(self, threads: Array | None) -> None:
        """A proxy fence of global memory by these threads (None: all): their own accesses, and those they know of."""
        join(self.proxied, self.known)
        if threads is None:
            self.own_proxied = {EVERY: self.position}
        else:
            self.own_proxied.update(dict.fromkeys(np.flatnonzero(threads).tolist(), self.position))
        self.learned.fence_proxy(threads)

    def seal(self, issued: Counts) -> bool:
        """`tcgen05.fence::before_thread_sync`: each thread's accesses to tensor memory precede its next release. The elected
        thread's fence covers the operations that it has `issued`, too. Returns whether there was anything to order."""
        useful = self.own_sealed.get(self.slot, 0) < self.touched or any(
            self.sealed.get(c, 0) < n for c, n in issued.items()
        )
        self.own_sealed[self.slot] = self.position
        join(self.sealed, issued)
        return useful

    def order(self) -> bool:
        """`tcgen05.fence::after_thread_sync`: later accesses to tensor memory follow the sealed events. Returns whether there
        was anything to order."""
        useful = any(self.ordered.get(c, 0) < count for c, count in self.sealed.items())
        join(self.ordered, self.sealed)
        return useful

    def release(self) -> Released:
        """A release by the elected thread."""
        known = dict(self.known)
        join(known, self.elected)
        before = dict(self.before)
        join(before, known)
        learned = self.learned.published()
        return Released(known, dict(self.fenced), before, dict(self.sealed), dict(self.proxied), learned=learned)

    def release_all(self) -> Released:
        """A release by every thread of the task."""
        out = self.release()
        join(out.known, self.each)
        out.known[self.slot] = self.position
        if self.arrived:
            out.known[~self.slot] = self.arrived
        join(out.fenced, self.own_fenced)
        join(out.sealed, self.own_sealed)
        join(out.proxied, {self.slot: self.own_proxied.get(EVERY, 0)})
        for link in self.links:
            join(out.known, link.counts)
            join_threads(out.threads, link.threads)
        join(out.before, out.known)
        return out

    def release_by(self, threads: Array) -> Released:
        """A release by each of these threads, a mask, for itself."""
        if threads.all():
            return self.release_all()
        out = Released(dict(self.known), dict(self.fenced), dict(self.before))
        if threads[0]:
            join(out.known, self.elected)
        counts = np.where(threads, self.position, 0)
        for warp, known in self.warps.items():
            lanes = slice(warp * WARP_SIZE, (warp + 1) * WARP_SIZE)
            if threads[lanes].any():
                counts[lanes] = np.maximum(counts[lanes], known.get(self.slot, 0))
        out.threads[self.slot] = counts
        for link in self.links:
            if link.who is None or np.any(link.who & threads):
                join(out.known, link.counts)
                join_threads(out.threads, link.threads)
        join(out.before, out.known)
        return out

    def acquire_by(self, threads: Array, released: Released) -> None:
        """An acquire by each of these threads, a mask, for itself."""
        if threads.all():
            self.acquire(released)
        else:
            self._know(threads, released.known, released.threads)

    def _know(self, who: Array | None, counts: Counts, threads: ThreadCounts) -> None:
        """Some threads (None: all) know these counts, and those of single threads: what all threads of a task have released
        counts for the task."""
        whole = {**counts}
        join(whole, {slot: int(each.min()) for slot, each in threads.items()})
        if who is None:
            join(self.known, whole)
            whole = {}
        known = self.known if who is None else {}
        single = {slot: each for slot, each in threads.items() if each.max() > known.get(slot, 0)}
        if not (whole or single):
            return
        for number, link in enumerate(self.links):
            if link.is_of(who):
                self.links[number] = link.joined(whole, single)
                return
        self.links.append(Link(who, whole, single))

    def acquire(self, released: Released) -> None:
        """An acquire by all threads of the task."""
        self._know(None, released.known, released.threads)
        join(self.fenced, released.fenced)
        join(self.before, released.before)
        join(self.sealed, released.sealed)
        join(self.proxied, released.proxied)
        if released.learned is not None:
            self.learned.join(released.learned)

    def orders_in_warp(self, component: int, earlier: Any, later: Any, values: Any) -> Array:
        """True where a barrier of their common warp orders earlier accesses before later ones.

        `earlier` and `later` are the entries of both, `values` the event numbers of the earlier ones in `component`."""
        counts = np.array([self.warps.get(warp, {}).get(component, 0) for warp in range(WARPS)])
        alike = of_one_warp(earlier, later)
        return alike & (counts[where(alike, warp_of(earlier), 0)] > values)

    def orders_threads(self, component: int, earlier: Any, later: Any, values: Any) -> Array:
        """True where the later threads know of the earlier accesses by themselves, from an mbarrier. Arguments as for
        `orders_in_warp`."""
        out: Any = np.zeros(np.broadcast_shapes(np.shape(earlier), np.shape(later)), np.bool_)
        for link in self.links:
            out = out | (link.knows(later) & link.orders(component, earlier, values))
        return out

    def orders_readers(self, component: int, reads: Array, alone: Array, later: Any) -> Array:
        """The same of reads by threads of several warps: `reads` has, along its last axis, each warp's last event plus one, and
        `alone` the thread of a warp's reads, if it is only one."""
        one = np.asarray(later)[..., None]
        counts = np.array([self.warps.get(warp, {}).get(component, 0) for warp in range(WARPS)])
        in_warp = (warp_of(one) == np.arange(WARPS)) & (counts >= reads)
        covered: Any = (reads <= self.known.get(component, 0)) | in_warp | (alone == one)
        for link in self.links:
            covered = covered | (np.asarray(link.knows(later))[..., None] & (link.of_warps(component) >= reads))
        return covered.all(axis=-1)

    def counts_of(self, component: int, threads: Array) -> Array:
        """The count of a component that each thread knows, with zeros outside of a mask."""
        out = np.where(threads, self.known.get(component, 0), 0)
        for link in self.links:
            knows = threads if link.who is None else threads & link.who
            out = np.where(knows, np.maximum(out, link.counts.get(component, 0)), out)
        return out
