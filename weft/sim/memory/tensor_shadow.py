"""Which accesses to a block's tensor memory clash.

Accesses of threads are noted by warp, since the threads of a warp access tensor memory together. Of the operations of tcgen05
that one thread starts some follow one another (`weft.sim.machine.tensor_order`), and so do those of two threads where the
second knows that the first has been started; all others wait until the first is complete. Whatever passes from one thread to
another goes through a fence on both sides of what orders the threads, but a commit needs none before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.errors import hazard
from weft.sim.machine.agents import Pipe
from weft.sim.machine.findings import Findings
from weft.sim.machine.naming import Naming
from weft.sim.machine.tensor_order import disorder
from weft.sim.memory.clocks import Clock
from weft.sim.memory.shadow import Area, Event, Shadow
from weft.sim.memory.verdicts import FINE, TENSOR_CORE, TENSOR_ENDS, Verdict, running


class TensorShadow(Shadow):
    """The last accesses to tensor memory. `pipes` are those of all tasks of the cluster."""

    __slots__ = ("_pipes",)

    def __init__(
        self, program: tuple[int, int, int], tasks: int, blocks: int, rank: int, names: Naming, pipes: Sequence[Pipe],
        found: Findings | None = None,
    ) -> None:  # fmt: skip
        super().__init__(program, tasks, blocks, rank, names=names, found=found)
        self._pipes = pipes

    def access(self, clock: Clock, event: Event, area: Area) -> bool:
        """As of any memory; a fence of tensor memory orders what the clock says was touched."""
        repeated = super().access(clock, event, area)
        clock.touched = clock.position
        return repeated

    def judge(self, earlier: Event, event: Event, clock: Clock) -> Verdict:
        """What is wrong between two accesses to the same cell, one of them a write."""
        own = earlier.slot == clock.slot
        done = clock.known.get(earlier.component, 0) > earlier.value
        if earlier.mode not in TENSOR_CORE:
            if not done:
                return (hazard.TENSOR_RACE, None if own else hazard.TENSOR_RACE)
            other, same = self._fenced(clock, earlier.component, earlier.value)
            return other, None if own else same
        if event.mode not in TENSOR_CORE:
            under_way = running(TENSOR_ENDS, earlier, event, clock)
            return under_way or self._fenced(clock, earlier.component, earlier.value)
        waited = done or not self._why(earlier, event)
        if own:
            return FINE if waited else (hazard.TENSOR_ORDER, hazard.TENSOR_ORDER)
        either = earlier.component, self._pipes[earlier.slot].issued
        found = [self._fenced(clock, c, earlier.value) for c in either if clock.known.get(c, 0) > earlier.value]
        if not found:
            return hazard.TENSOR_RACE, hazard.TENSOR_RACE
        if FINE not in found:
            return found[0]
        return FINE if waited else (hazard.TENSOR_ORDER, hazard.TENSOR_ORDER)

    def _why(self, earlier: Event, event: Event) -> str:
        """Why an operation of tcgen05 does not come after an earlier one that is under way; empty where it does."""
        if earlier.mode not in TENSOR_CORE or event.mode not in TENSOR_CORE:
            return ""
        pipe, later = self._pipes[earlier.slot], self._pipes[event.slot].started[event.value]
        multiplied = pipe.product > earlier.value
        return disorder(pipe.started[earlier.value], earlier.writes, later, not event.writes, multiplied)

    def _fenced(self, clock: Clock, component: int, value: int) -> Verdict:
        """What is wrong with an access that comes after another thread's, as far as fences go."""
        if clock.ordered.get(component, 0) > value:
            return FINE
        sealed = clock.sealed.get(component, 0) > value
        row = hazard.TENSOR_FENCE_AFTER if sealed else hazard.TENSOR_FENCE_BEFORE
        return row, row

    def under_way(self, clock: Clock) -> Event | None:
        """An operation of tcgen05 that the clock's task does not know to be complete."""
        for channel in self._channels():
            for number in np.unique(channel.events).tolist():
                event = self._events[number] if number else None
                if event is None or event.mode not in TENSOR_CORE:
                    continue
                if clock.known.get(event.component, 0) <= event.value:
                    return event
        return None
