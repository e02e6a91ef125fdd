"""What a task that stops yields: where it stands and what it waits for, for the scheduler and for reports of deadlocks."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from weft.analysis.steering import global_writers
from weft.errors import Loc, UserError
from weft.sim.machine.data import Data
from weft.sim.memory.heap import Access, Segment

if TYPE_CHECKING:
    from weft.sim.machine.tasks import Task


class Wait:
    """What a task yields when it stops: where it stands, and what it waits for."""

    __slots__ = ("loc",)
    follows = False
    """True for a wait that another one causes: for tasks of its own program to meet it or to end."""

    def __init__(self, loc: Loc | None) -> None:
        self.loc = loc

    @property
    def polls(self) -> bool:
        """True for a task that could go on, but lets others have a turn."""
        return False

    def instead(self) -> str:
        """What to write so that such a wait ends."""
        return "give each phase the arrivals and bytes that its mbarrier counts, from somebody who does not wait for the waiter"

    def ready(self) -> bool:
        """Whether the task can go on."""
        raise NotImplementedError

    def words(self) -> str:
        """What it waits for, after 'waits'."""
        return ""

    def memory(self) -> str:
        """What reports call the memory that it waits at, if any."""
        return ""

    def writers(self) -> tuple[tuple[str, Loc], ...]:
        """Where the kernel may do what it waits for, if that is memory."""
        return ()

    def starved(self) -> UserError | None:
        """A better report than a deadlock, where there is one."""
        return None


Run: TypeAlias = Generator[Wait, None, tuple[Data, ...]]


class MemoryWait(Wait):
    """A task repeats a loop that reads memory: it can only go on once memory has changed, or (`stuck` False) it counts."""

    __slots__ = ("_seen", "_stuck", "_task")

    def __init__(self, loc: Loc | None, task: Task, stuck: bool) -> None:
        super().__init__(loc)
        self._task = task
        self._stuck = stuck
        self._seen = task.machine.heap.writes

    @property
    def polls(self) -> bool:
        """Such a task gives others a turn."""
        return True

    def ready(self) -> bool:
        """Whether the loop may do something else than before."""
        return not self._stuck or self._task.machine.heap.writes != self._seen

    def words(self) -> str:
        """The memory that the task read last, and what it holds."""
        access, name = self._task.last_read, self.memory()
        if access is None or not name:
            return ""
        held = int(self._task.machine.heap.read(Access(np.asarray(access.addresses.min()), access.itemsize)))
        return f" for {name}, which holds {held:#x}" if access.itemsize > 4 else f" for {name}, which holds {held}"

    def memory(self) -> str:
        """The first element of those that it read last."""
        access, segment = self._task.last_read, self._segment()
        if access is None or segment is None:
            return ""
        return f"{segment.buffer.name}[{(int(access.addresses.min()) - segment.pointer) // access.itemsize}]"

    def writers(self) -> tuple[tuple[str, Loc], ...]:
        """The other lines that may write the argument that it waits for, through any argument over the same memory."""
        segment, machine = self._segment(), self._task.machine
        if segment is None:
            return ()
        homes = {number: other.home for number, other in machine.heap.segments.items()}
        found = (
            (f"the kernel may write {segment.buffer.name} here", op.loc)
            for op, params in global_writers(machine.func).items()
            if op.loc is not None
            and str(op.loc) != str(self.loc)
            and (not params or segment.home in (homes.get(number) for number in params))
        )
        return tuple(dict.fromkeys(found))

    def instead(self) -> str:
        """A value that somebody stores."""
        name = self.memory() or "the memory"
        if not self.writers():
            return f"store the value that ends this loop to {name} in a program that does not wait: no other line may write it"
        return (
            f"let a program that does not wait itself store the value that ends this loop to {name}; one that has not started, "
            "for want of room, cannot"
        )

    def _segment(self) -> Segment | None:
        access = self._task.last_read
        if access is None or access.addresses.size == 0:
            return None
        return self._task.machine.heap.segment_at(int(access.addresses.min()))
