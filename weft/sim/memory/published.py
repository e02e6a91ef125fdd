"""What programs publish for one another: by releases, at addresses of global memory where strong reads look for it.

Who looks remembers what was published there (`weft.sim.memory.learned`); what that orders is decided later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from weft.analysis.steering import Steering
from weft.ir.core import Op
from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array
from weft.sim.memory.heap import Segment
from weft.sim.memory.learned import Known, larger, later
from weft.sim.memory.tracks import Touch
from weft.sim.memory.warps import SEVERAL

if TYPE_CHECKING:
    from weft.sim.machine.tasks import Task

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

    __slots__ = ("_known", "_places", "_steering", "_tasks", "_tellers", "told")

    def __init__(self, steering: Steering, tasks: int) -> None:
        self._steering = steering
        self._tasks = tasks
        # Counts are kept for so many tasks; one more than have started, so that the last is always 0.
        self._places = tasks + 1
        self._known: dict[tuple[Address, Reach], Known] = {}
        self._tellers: dict[tuple[Address, Reach], int] = {}
        self.told = bool(steering.deciding)

    def looks(self, touch: Touch, addresses: Array, acquires: bool) -> None:
        """A strong read of these addresses sees what is published there."""
        task, op = touch.task, touch.op
        reader = self._steering.readers[op]
        for address, threads in _looked_at(touch, addresses).items():
            for reach in self._reaches(task, op):
                key = address, reach
                task.clock.learned.see(reader, key, acquires, self._known.get(key), threads)

    def tells(self, touch: Touch, addresses: Array, replaces: bool, latest: int) -> None:
        """Whoever learns of others through these addresses learns what the task did and knows. What an atomic leaves there is
        still what others have published; a store `replaces` it. `latest`: the last task that has started."""
        task, op = touch.task, touch.op
        while max(latest + 1, task.place - task.slot + self._tasks) >= self._places:
            self._places *= 2
        places = _addresses(touch.place.segment, addresses, reading=False)
        threads = _threads(touch, addresses)
        # An address of many stands for all that threads do by one operation.
        single = threads is not None and len(places) == 1 + threads.size
        tellers = [None, *threads.tolist()] if single and threads is not None else [None] * len(places)
        told = {thread: self._all(task, op, thread) for thread in dict.fromkeys(tellers)}
        # Threads that tell at one address are joined first: what has been published there is copied once.
        made: dict[Address, Known] = {}
        for address, thread in zip(places, tellers, strict=True):
            alone = replaces and isinstance(address, int)
            made[address] = later(None if alone else made.get(address), told[thread])
        for address, known in made.items():
            for reach in self._reaches(task, op):
                key = address, reach
                before = None if replaces and isinstance(address, int) else self._known.get(key)
                self._known[key] = later(before, known)
                self._tellers[key] = task.place

    def _all(self, task: Task, op: Op, thread: int | None) -> Known:
        """What a task did and knows, or one of its threads by itself."""
        now = np.zeros(self._places, np.int32)
        clock, first = task.clock, task.place - task.slot
        learned = clock.learned.everything(self._steering.told.get(op, 0), thread)
        if learned is not None:
            now[: learned.counts.size] = learned.counts
        for slot in range(self._tasks):
            now[first + slot] = max(now[first + slot], clock.known.get(slot, 0))
        threads = {} if learned is None else dict(learned.threads)
        if thread is None:
            now[task.place] = clock.position
        else:
            now[task.place] = max(now[task.place], task.settled)
            warp = thread // WARP_SIZE
            own = {thread: clock.position}
            if met := clock.warps.get(warp, {}).get(task.slot, 0):
                own[SEVERAL + warp] = met
            threads[task.place] = larger(threads.get(task.place, {}), own)
        return Known(now, threads)

    def overwrites(self, task: Task, place: Touched) -> None:
        """A relaxed store: its value does not tell what others have published there."""
        if not self._known:
            return
        everywhere: list[Reach] = [None, task.block.cluster.number, (task.block.cluster.number, task.rank)]
        for address in _addresses(*place, reading=False):
            for reach in everywhere:
                if isinstance(address, int) and self._tellers.get((address, reach), task.place) != task.place:
                    del self._known[address, reach], self._tellers[address, reach]

    def _reaches(self, task: Task, op: Op) -> tuple[Reach, ...]:
        """For whom an operation of some scope publishes, or of whom it learns."""
        scope, cluster = op.attrs["scope"], task.block.cluster.number
        if self._tasks == 1:
            return () if scope in ("cta", "cluster") else (None,)
        reaches: tuple[Reach, ...] = (cluster, task.rank), cluster, None
        return reaches[: {"cta": 1, "cluster": 2}.get(scope, 3)]


def _threads(touch: Touch, addresses: Array) -> Array | None:
    """The thread of each access, where threads compute by themselves."""
    if not touch.each or isinstance(touch.threads, int):
        return None
    return np.ravel(np.broadcast_to(touch.threads, np.shape(addresses)))


def _looked_at(touch: Touch, addresses: Array) -> dict[Address, Array | None]:
    """Where to look for what is published, and for which threads (None: all)."""
    places = _addresses(touch.place.segment, addresses, reading=True)
    threads = _threads(touch, addresses)
    if threads is None:
        return dict.fromkeys(places)
    found: dict[Address, Array | None] = {}
    for number, address in enumerate(places):
        mask = np.zeros(touch.task.threads, np.bool_)
        # Before the addresses that are followed one by one stands that of the accesses that have many.
        mask[threads[number - 1] if number else threads] = True
        before = found.get(address)
        found[address] = mask if before is None else mask | before
    return found


def _addresses(segment: Segment, addresses: Array, reading: bool) -> list[Address]:
    """Where to look for what is published, or where to publish it."""
    if np.size(addresses) > SINGLE:
        return [(segment.home, "all")] if reading else [(segment.home, "all"), (segment.home, "wide")]
    each = np.ravel(addresses + (segment.home - segment.start)).tolist()
    return [(segment.home, "wide" if reading else "all"), *each]
