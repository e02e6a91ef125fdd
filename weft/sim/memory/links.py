"""Happens-before between single threads of a block, from mbarriers at which threads arrive and wait by themselves.

What all threads of a task know is in its clock (`weft.sim.memory.clocks`); a link is what some of them have acquired besides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array
from weft.sim.memory.warps import SEVERAL, WARPS, shared_in_warps

Counts = dict[int, int]
ThreadCounts = dict[int, Array]
"""By task slot: for each of its threads, the count of that thread's events."""


def join_threads(into: ThreadCounts, other: ThreadCounts) -> None:
    """Raise the counts of `into` to those of `other`."""
    for slot, counts in other.items():
        into[slot] = np.maximum(into[slot], counts) if slot in into else counts


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """What the threads `who` (a mask; None: all) of a task have acquired: counts of components, and of threads' events."""

    who: Array | None
    counts: Counts = field(default_factory=dict[int, int])
    threads: ThreadCounts = field(default_factory=dict[int, Array])

    def knows(self, entries: Any) -> Any:
        """True for entries (`weft.sim.memory.warps`) all of whose threads have acquired it."""
        return np.bool_(True) if self.who is None else _per_entry(self.who)[entries]

    def orders(self, component: int, entries: Any, value: Any) -> Any:
        """True where it covers an event of a component by the threads `entries`."""
        whole = self.counts.get(component, 0) > np.asarray(value)
        own = self.threads.get(component)
        return whole if own is None else whole | (_per_entry(own)[entries] > value)

    def of_warps(self, component: int) -> Array:
        """The count of a component's events that it covers, by warp."""
        own, whole = self.threads.get(component), self.counts.get(component, 0)
        return np.full(WARPS, whole) if own is None else np.maximum(_of_warps(own), whole)

    def is_of(self, who: Array | None) -> bool:
        """Whether it is of exactly these threads."""
        return self.who is who or (self.who is not None and who is not None and np.array_equal(self.who, who))

    def joined(self, counts: Counts, threads: ThreadCounts) -> Link:
        """With these counts as well."""
        whole, single = dict(self.counts), dict(self.threads)
        for component, count in counts.items():
            whole[component] = max(whole.get(component, 0), count)
        join_threads(single, threads)
        return Link(self.who, whole, single)

    def in_warps(self, warps: Any) -> Link:
        """What a barrier of each of these warps makes of it."""
        return self if self.who is None else Link(shared_in_warps(self.who, warps), self.counts, self.threads)


def _per_entry(of_threads: Array) -> Array:
    """For each entry of one thread, of one warp (from SEVERAL on) and of several warps (the last): the least of its threads."""
    table = np.zeros(SEVERAL + WARPS + 1, of_threads.dtype)
    table[: of_threads.size] = of_threads
    table[SEVERAL:-1] = _of_warps(of_threads)
    table[-1] = of_threads.min()
    return table


def _of_warps(of_threads: Array) -> Array:
    """The least of each warp's threads; the most of all for a warp that the block does not have."""
    parts = (of_threads[warp * WARP_SIZE : (warp + 1) * WARP_SIZE] for warp in range(WARPS))
    return np.array([part.min(initial=of_threads.max()) for part in parts], of_threads.dtype)
