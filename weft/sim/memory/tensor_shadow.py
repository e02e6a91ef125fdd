"""The shadow of a block's tensor memory.

Thread accesses are recorded per warp, because `tcgen05.ld` and `tcgen05.st` are collective operations of a warp. Some pairs of
asynchronous tcgen05 operations execute in issue order (`weft.sim.machine.tensor_order`); this holds for two threads as well, if
the second thread's clock knows that the first operation was issued. All other pairs need the completion of the first one. An
order between two threads needs `tcgen05.fence::before_thread_sync` ahead of the release and
`tcgen05.fence::after_thread_sync` behind the acquire; `tcgen05.commit` implies the former (PTX ISA, "tcgen05.commit").
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
from weft.sim.memory.events import Area, Event
from weft.sim.memory.shadow import Shadow
from weft.sim.memory.verdicts import FINE, TENSOR_CORE, TENSOR_ENDS, Verdict, running


class TensorShadow(Shadow):
    """The last accesses to tensor memory. `pipes`: the tcgen05 pipes of all tasks of the cluster."""

    __slots__ = ("_pipes",)

    def __init__(
        self, program: tuple[int, int, int], tasks: int, blocks: int, rank: int, names: Naming, pipes: Sequence[Pipe],
        found: Findings | None = None,
    ) -> None:  # fmt: skip
        super().__init__(program, tasks, blocks, rank, names=names, found=found)
        self._pipes = pipes

    def access(self, clock: Clock, event: Event, area: Area) -> bool:
        """As for any memory; `clock.touched` also tells the next tcgen05 fence that there is something to order."""
        repeated = super().access(clock, event, area)
        clock.touched = clock.position
        return repeated

    def judge(self, earlier: Event, event: Event, clock: Clock) -> Verdict:
        """The verdict on two accesses to the same cell, at least one of them a write."""
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
        """Why the hardware does not order a tcgen05 operation after an earlier one in flight; empty if it does."""
        if earlier.mode not in TENSOR_CORE or event.mode not in TENSOR_CORE:
            return ""
        pipe, later = self._pipes[earlier.slot], self._pipes[event.slot].started[event.value]
        multiplied = pipe.product > earlier.value
        return disorder(pipe.started[earlier.value], earlier.writes, later, not event.writes, multiplied)

    def _fenced(self, clock: Clock, component: int, value: int) -> Verdict:
        """The verdict on an access after another thread's access, as far as tcgen05 fences are concerned."""
        if clock.ordered.get(component, 0) > value:
            return FINE
        sealed = clock.sealed.get(component, 0) > value
        row = hazard.TENSOR_FENCE_AFTER if sealed else hazard.TENSOR_FENCE_BEFORE
        return row, row

    def under_way(self, clock: Clock) -> Event | None:
        """A tcgen05 operation that the clock's task does not know to be complete; None for none."""
        for channel in self._channels():
            for number in np.unique(channel.events).tolist():
                event = self._events[number] if number else None
                if event is None or event.mode not in TENSOR_CORE:
                    continue
                if clock.known.get(event.component, 0) <= event.value:
                    return event
        return None
