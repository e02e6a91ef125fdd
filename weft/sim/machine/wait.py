"""Waits: what a suspended task yields to the scheduler, with the texts for deadlock reports."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol, TypeAlias

import numpy as np

from weft.analysis.steering import global_writers
from weft.errors import Loc, UserError
from weft.sim.machine.data import Array, Data
from weft.sim.machine.machine import Machine
from weft.sim.memory.heap import HeapAccess, Segment


class Wait:
    """A suspended task's position in the source, and the condition that it waits for."""

    __slots__ = ("loc",)
    follows = False
    """True for a wait on tasks of the same program (a barrier or a join), which another wait causes."""

    def __init__(self, loc: Loc | None) -> None:
        self.loc = loc

    @property
    def polls(self) -> bool:
        """True for a task that could continue but yields to others."""
        return False

    @property
    def expires(self) -> int | None:
        """The nanoseconds after which the task gives up; None if it never does."""
        return None

    def expire(self) -> None:
        """The time is over: the task can continue."""

    def instead(self) -> str:
        """The fix that a deadlock report suggests for this wait."""
        return "give each phase the arrivals and bytes that its mbarrier counts, from a thread that does not need this wait"

    def ready(self) -> bool:
        """True if the task can continue."""
        raise NotImplementedError

    def words(self) -> str:
        """The report's text behind 'waits'."""
        return ""

    def memory(self) -> str:
        """The name in reports of the memory that the task waits on, if any."""
        return ""

    def writers(self) -> tuple[tuple[str, Loc], ...]:
        """Source lines that may write the memory that the task waits on."""
        return ()

    def starved(self) -> UserError | None:
        """A more specific error than a deadlock, or None."""
        return None


class Polled(Protocol):
    """What a loop polls other than global memory."""

    def wait(self, loc: Loc | None, stuck: bool) -> Wait:
        """What a task waits for whose loop repeats the read; with `stuck` it can continue only after a change."""
        ...


Run: TypeAlias = Generator[Wait, None, tuple[Data, ...]]


class MemoryWait(Wait):
    """A task in a loop that polls memory; `read` is its last access. With `stuck` it can continue only after memory has
    changed; otherwise the loop still changes its own state, and the task merely yields."""

    __slots__ = ("_machine", "_read", "_seen", "_stuck")

    def __init__(self, loc: Loc | None, machine: Machine, read: HeapAccess | None, stuck: bool) -> None:
        super().__init__(loc)
        self._machine = machine
        self._read = read
        self._stuck = stuck
        self._seen = machine.heap.writes

    @property
    def polls(self) -> bool:
        """Always: a polling task yields to others."""
        return True

    @property
    def read(self) -> HeapAccess | None:
        """The last access of the loop."""
        return self._read

    def ready(self) -> bool:
        """True if another iteration may differ from the last one."""
        return not self._stuck or self._machine.heap.writes != self._seen

    def words(self) -> str:
        """The memory that the task read last, and its value."""
        access, name = self._read, self.memory()
        if access is None or not name:
            return ""
        held = self.value(access)
        return f" for {name}, which holds {held:#x}" if access.itemsize > 4 else f" for {name}, which holds {held}"

    def memory(self) -> str:
        """The first element of the last read."""
        access, segment = self._read, self._segment()
        if access is None or segment is None:
            return ""
        return f"{segment.buffer.name}[{(int(np.ravel(access.addresses)[0]) - segment.pointer) // access.itemsize}]"

    def writers(self) -> tuple[tuple[str, Loc], ...]:
        """The other lines that may write the polled argument, through any argument that shares its storage."""
        segment, machine = self._segment(), self._machine
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
        """The fix: another program has to store the awaited value."""
        name = self.memory() or "the memory"
        if not self.writers() and self._machine.member is not None:
            return (
                f"let a rank set {name} to the value that ends this wait, with weft.distributed.write_value() behind what it "
                "announces, or in a kernel with gl.atomic_store(..., scope='sys')"
            )
        if not self.writers():
            return f"store the value that ends this wait to {name} in a program that does not wait: no other line may write it"
        return (
            f"let a program that does not wait itself store the value that ends this wait to {name}; one that has not started, "
            "for want of room, cannot"
        )

    def value(self, access: HeapAccess) -> int:
        """What the memory holds now."""
        return int(self._machine.heap.read(HeapAccess(np.asarray(np.ravel(access.addresses)[0]), access.itemsize)))

    def _segment(self) -> Segment | None:
        access = self._read
        if access is None or access.addresses.size == 0:
            return None
        return self._machine.heap.segment_at(int(np.ravel(access.addresses)[0]))


class PollWait(MemoryWait):
    """A task that polls memory until each element of `read` equals `wanted` (`gl.atomic_poll`), or until its time is over.

    The simulator has no clock: a time-out is over when nothing else can run."""

    __slots__ = ("_expires", "_wanted", "expired")

    def __init__(self, loc: Loc | None, machine: Machine, read: HeapAccess, wanted: Array, expires: int | None) -> None:
        super().__init__(loc, machine, read, stuck=True)
        self._wanted = wanted
        self._expires = expires
        self.expired = False

    @property
    def expires(self) -> int | None:
        """The time-out."""
        return self._expires

    def expire(self) -> None:
        """The time is over."""
        self.expired = True

    def ready(self) -> bool:
        """True if memory has changed, or the time is over."""
        return self.expired or super().ready()

    def words(self) -> str:
        """The first element that differs, and both values; or the signal."""
        access, name = self._read, self.memory()
        assert access is not None
        signal = self._signal()
        if signal is not None:
            flag, source = signal
            wanted, held = int(self._wanted.ravel()[0]), self.value(access)
            return f" for signal {wanted} of rank {source} on flag {flag}, which has sent {held}"
        return f" for {name} to become {int(self._wanted.ravel()[0])}; it holds {self.value(access)}" if name else ""

    def instead(self) -> str:
        """The fix: for a signal, its rank has to send it."""
        signal, segment = self._signal(), self._segment()
        if signal is None or segment is None or segment.buffer.signals is None:
            return super().instead()
        flag, source = signal
        return (
            f"let rank {source} call gl.signal() for rank {segment.buffer.signals.rank} on flag {flag} as often as that rank "
            "waits for it, before it waits for a signal that follows from this one"
        )

    def writers(self) -> tuple[tuple[str, Loc], ...]:
        """The lines that may write the memory; for a signal those are another rank's."""
        return () if self._signal() is not None else super().writers()

    def _signal(self) -> tuple[int, int] | None:
        """The flag that the task waits on and the rank that signals it; None for other memory."""
        access, segment = self._read, self._segment()
        if access is None or segment is None or segment.buffer.signals is None:
            return None
        index = (int(np.ravel(access.addresses)[0]) - segment.pointer) // access.itemsize
        return segment.buffer.signals.place(index)
