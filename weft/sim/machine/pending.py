"""Programs of a launch that have not started, and answers to who asks to take one over (cluster launch control)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from weft.ir.core import Op
from weft.sim.machine.programs import Pid


class Pending:
    """Programs that have not started, in the order of the launch. `resident`: how many may be under way together; `running`
    are, and `canceled` will never start, since others have taken them over.

    The programs are asked for one by one, never listed. `_placed` are those that were passed over by requests since they have a
    place and are about to start, at most `resident`; all after `_next` are untouched. `window`: programs are in the order of
    the grid but for windows of this many."""

    __slots__ = ("_next", "_placed", "_programs", "canceled", "resident", "running", "window")

    def __init__(self, programs: Sequence[Pid], resident: int, window: int = 1) -> None:
        self._programs = programs
        self._placed: deque[Pid] = deque()
        self._next = 0
        self.resident = resident
        self.window = window
        self.running = 0
        self.canceled = 0

    def __len__(self) -> int:
        return len(self._placed) + len(self._programs) - self._next

    def start(self, stuck: bool = False) -> Pid | None:
        """The next program, if there is one and a place for it.

        Where those that run are `stuck`, the others of their window start too: in the order of the grid some of them would have
        had the places of some that run, and those that are waited for may be among them."""
        if not self or not (self._free or (stuck and self._next % self.window)):
            return None
        self.running += 1
        return self._placed.popleft() if self._placed else self._take()

    def cancel(self) -> Pid | None:
        """Take over the next program that has no place; None where all that are left have one, and are about to start."""
        if len(self) <= self._free:
            return None
        while len(self._placed) < self._free:
            self._placed.append(self._take())
        self.canceled += 1
        return self._take()

    @property
    def _free(self) -> int:
        """Places that no program has; none while programs run beyond the places because the others were stuck."""
        return max(self.resident - self.running, 0)

    def _take(self) -> Pid:
        self._next += 1
        return self._programs[self._next - 1]


@dataclass(slots=True, eq=False)
class Answer:
    """What a request got: a program or None. It is there when `component` of the clocks has counted past `value`; `used` once
    somebody has read it."""

    op: Op
    program: Pid | None
    component: int
    value: int
    used: bool = False
