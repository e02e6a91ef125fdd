"""Programs of a launch that have not started, and responses to requests that claim one (clusterlaunchcontrol.try_cancel)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from weft.ir.core import Op
from weft.sim.machine.programs import Pid


class Pending:
    """Programs that have not started, in launch order. `resident`: the number that may run at the same time. `running`: the
    number that does. `canceled`: the number that will never start, because running programs have claimed them.

    Programs are computed one by one and never listed. `_placed`: programs that requests skipped because a free slot means that
    they are about to start, at most `resident`. Programs from `_next` on are untouched. `window`: the launch order is that of
    the grid, except for reordering within windows of this many. `together`: a cooperative launch, which starts as a whole."""

    __slots__ = ("_next", "_placed", "_programs", "canceled", "resident", "running", "together", "window")

    def __init__(self, programs: Sequence[Pid], resident: int, window: int = 1, together: bool = False) -> None:
        self._programs = programs
        self._placed: deque[Pid] = deque()
        self._next = 0
        self.resident = resident
        self.window = window
        self.together = together
        self.running = 0
        self.canceled = 0

    def __len__(self) -> int:
        return len(self._placed) + len(self._programs) - self._next

    def start(self, stuck: bool = False) -> Pid | None:
        """Start the next program if there is one and a free slot for it.

        If the running programs are `stuck`, the rest of their window starts as well: in grid order, some of these would have
        been resident instead of some that run, and the running programs may wait for exactly those."""
        return self.next() if self._free or (stuck and self._next % self.window) else None

    def next(self) -> Pid | None:
        """The next program, whether or not there is a slot for it; None if all have started."""
        if not self:
            return None
        self.running += 1
        return self._placed.popleft() if self._placed else self._take()

    def cancel(self) -> Pid | None:
        """Claim the next program without a slot; None if all that are left have a slot, and are about to start."""
        if len(self) <= self._free:
            return None
        while len(self._placed) < self._free:
            self._placed.append(self._take())
        self.canceled += 1
        return self._take()

    @property
    def _free(self) -> int:
        """Free slots. 0 while more programs run than there are slots, which happens after a start with `stuck`."""
        return max(self.resident - self.running, 0)

    def _take(self) -> Pid:
        self._next += 1
        return self._programs[self._next - 1]


@dataclass(slots=True, eq=False)
class Response:
    """The result of a request: a program or None. It has been written when `component` of the clocks has counted past `value`.
    `used`: some task has read it."""

    op: Op
    program: Pid | None
    component: int
    value: int
    used: bool = False
