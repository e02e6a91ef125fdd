"""Programs of a launch that have not started, and answers to who asks to take one over (cluster launch control)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from weft.ir.core import Op

Pid = tuple[int, int, int]


class Pending:
    """Programs that have not started, in the order of the launch. `resident`: how many may be under way together; `running`
    are, and `canceled` will never start, since others have taken them over."""

    __slots__ = ("_programs", "canceled", "resident", "running")

    def __init__(self, programs: Iterable[Pid], resident: int) -> None:
        self._programs = deque(programs)
        self.resident = resident
        self.running = 0
        self.canceled = 0

    def __len__(self) -> int:
        return len(self._programs)

    def start(self) -> Pid | None:
        """The next program, if there is one and a place for it."""
        if not self._programs or self.running >= self.resident:
            return None
        self.running += 1
        return self._programs.popleft()

    def cancel(self) -> Pid | None:
        """Take over the next program that has no place; None where all that are left have one, and are about to start."""
        places = self.resident - self.running
        if len(self._programs) <= places:
            return None
        self.canceled += 1
        program = self._programs[places]
        del self._programs[places]
        return program


@dataclass(slots=True, eq=False)
class Answer:
    """What a request got: a program or None. It is there when `component` of the clocks has counted past `value`; `used` once
    somebody has read it."""

    op: Op
    program: Pid | None
    component: int
    value: int
    used: bool = False
