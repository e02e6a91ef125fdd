"""What programs publish for one another: by releases, at addresses of global memory where strong reads look for it.

Who looks remembers what was published there (`weft.sim.learned`); what that orders is decided later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from weft.ir.core import Op
from weft.sim.data import Array
from weft.sim.heap import Segment
from weft.sim.learned import later
from weft.sim.steering import Steering

if TYPE_CHECKING:
    from weft.sim.machine import Task

Touched: TypeAlias = tuple[Segment, Array]
"""Addresses in a segment."""
Address: TypeAlias = "int | tuple[int, str]"
"""An address of the first segment over some storage; or the whole of the storage, as accesses see it that have many."""
Reach: TypeAlias = "int | tuple[int, int] | None"
"""For whom something is published: all, a cluster, or one of its blocks."""
SINGLE = 32
"""So many addresses of an access are followed one by one; a wider one counts for the whole array."""


class Published:
    """By address and reach, the counts of events that a release there has published; and which task did so last."""

    __slots__ = ("_counts", "_places", "_steering", "_tasks", "_tellers", "told")

    def __init__(self, steering: Steering, tasks: int) -> None:
        self._steering = steering
        self._tasks = tasks
        # Counts are kept for so many tasks; one more than have started, so that the last is always 0.
        self._places = tasks + 1
        self._counts: dict[tuple[Address, Reach], Array] = {}
        self._tellers: dict[tuple[Address, Reach], int] = {}
        self.told = bool(steering.deciding)

    def looks(self, task: Task, op: Op, place: Touched, acquires: bool) -> None:
        """A strong read of these addresses sees what is published there."""
        reader = self._steering.readers[op]
        for address in _addresses(*place, reading=True):
            for reach in self._reaches(task, op):
                task.clock.learned.see(reader, (address, reach), acquires, self._counts.get((address, reach)))

    def tells(self, task: Task, op: Op, place: Touched, replaces: bool, latest: int) -> None:
        """Whoever learns of others through these addresses learns what the task did and knows. What an atomic leaves there is
        still what others have published; a store `replaces` it. `latest`: the last task that has started."""
        first = task.place - task.slot
        while max(latest + 1, first + self._tasks) >= self._places:
            self._places *= 2
        now = np.zeros(self._places, np.int32)
        learned = task.clock.learned.everything(self._steering.told.get(op, 0))
        if learned is not None:
            now[: learned.size] = learned
        for slot in range(self._tasks):
            now[first + slot] = max(now[first + slot], task.clock.known.get(slot, 0))
        now[task.place] = task.clock.position
        for address in _addresses(*place, reading=False):
            for reach in self._reaches(task, op):
                key = address, reach
                before = None if replaces and isinstance(address, int) else self._counts.get(key)
                self._counts[key] = later(before, now)
                self._tellers[key] = task.place

    def overwrites(self, task: Task, place: Touched) -> None:
        """A relaxed store: its value does not tell what others have published there."""
        if not self._counts:
            return
        everywhere: list[Reach] = [None, task.block.cluster.number, (task.block.cluster.number, task.rank)]
        for address in _addresses(*place, reading=False):
            for reach in everywhere:
                if isinstance(address, int) and self._tellers.get((address, reach), task.place) != task.place:
                    del self._counts[address, reach], self._tellers[address, reach]

    def _reaches(self, task: Task, op: Op) -> tuple[Reach, ...]:
        """For whom an operation of some scope publishes, or of whom it learns."""
        scope, cluster = op.attrs["scope"], task.block.cluster.number
        if self._tasks == 1:
            return () if scope in ("cta", "cluster") else (None,)
        reaches: tuple[Reach, ...] = (cluster, task.rank), cluster, None
        return reaches[: {"cta": 1, "cluster": 2}.get(scope, 3)]


def _addresses(segment: Segment, addresses: Array, reading: bool) -> list[Address]:
    """Where to look for what is published, or where to publish it."""
    if np.size(addresses) > SINGLE:
        return [(segment.home, "all")] if reading else [(segment.home, "all"), (segment.home, "wide")]
    each = np.ravel(addresses + (segment.home - segment.start)).tolist()
    return [(segment.home, "wide" if reading else "all"), *each]
