"""mbarriers as operations; what they count is in `weft.sim.barriers`.

An operation on a barrier is also an access to its 8 bytes: `init` and `invalidate` write them, all others only read them as
far as races go, since arrivals are atomic.
"""

from __future__ import annotations

from weft.errors import Loc, UserError, hazard
from weft.ir.core import Op
from weft.ops import mbarrier
from weft.sim import places
from weft.sim.barriers import Barrier
from weft.sim.data import Data
from weft.sim.machine import Run, Task, Wait
from weft.sim.rules import rule
from weft.sim.shadow import ELECTED, MANY, Area
from weft.sim.shared_memory import Handle

BYTES = 8


def _note(task: Task, op: Op, bar: Handle, threads: int, writes: bool = False) -> int:
    """Access the barrier's bytes; the number of the event. Raises OutOfBounds, races."""
    memory = task.block.memory
    first = bar.base - bar.memory.start
    if first < 0 or first + BYTES > bar.memory.size:
        raise places.outside(task, op, bar, first, first + BYTES, "uses")
    granules = slice(bar.base // memory.granule, (bar.base + BYTES) // memory.granule)
    event = task.event(op, "generic", writes, name_of(bar))
    if memory.shadow is not None:
        memory.shadow.access(task.clock, event, Area(granules, threads))
    if writes:
        memory.written(bar, granules)
    return event.value


def name_of(bar: Handle) -> str:
    """What reports call a barrier."""
    name = bar.memory.name or "an mbarrier"
    return name if bar.memory.size == BYTES else f"{name}[{(bar.base - bar.memory.start) // BYTES}]"


def barrier_at(task: Task, op: Op, bar: Handle, threads: int = ELECTED) -> Barrier:
    """The barrier, for an operation other than its initialisation. Raises BarrierNotInitialised, BarrierInvalidated, races."""
    barrier = task.block.barriers.get(bar.base)
    if barrier is None:
        _note(task, op, bar, threads)
        partition = task.block.partition(task.slot)
        raise task.fail(hazard.BARRIER_FRESH, op, partition=partition, name=name_of(bar))
    barrier.usable(op, task.slot)
    _note(task, op, bar, threads)
    return barrier


def holds(task: Task, op: Op, pred: Data | None) -> bool:
    """Whether an operation's predicate, the same for all threads, holds."""
    if pred is None:
        return True
    task.demand(op, pred, "a predicate")
    return bool(task.uniform(op, pred, "a predicate").array)


@rule(mbarrier.init)
def _init(task: Task, op: Op, bar: Handle) -> None:
    known = task.block.barriers.get(bar.base)
    if known is not None and known.invalidated is None:
        related: tuple[tuple[str, Loc], ...] = (
            () if known.op.loc is None else (("it was initialised here", known.op.loc),)
        )
        error = task.fail(hazard.BARRIER_REINITIALISED, op, name=name_of(bar))
        error.related = related
        raise error
    _note(task, op, bar, ELECTED, writes=True)
    block = task.block
    block.barriers[bar.base] = Barrier(
        block.pid, name_of(bar), block.component(), int(op.attrs["count"]), op, block.partition
    )  # fmt: skip


@rule(mbarrier.invalidate)
def _invalidate(task: Task, op: Op, bar: Handle) -> None:
    barrier_at(task, op, bar).invalidate(op)
    _note(task, op, bar, ELECTED, writes=True)


@rule(mbarrier.expect)
def _expect(task: Task, op: Op, bar: Handle, pred: Data | None) -> None:
    if holds(task, op, pred):
        barrier_at(task, op, bar).expect(op, task.clock, int(op.attrs["bytes"]))


@rule(mbarrier.arrive)
def _arrive(task: Task, op: Op, bar: Handle, pred: Data | None) -> None:
    if holds(task, op, pred):
        barrier_at(task, op, bar).arrive(op, task.clock, int(op.attrs["count"]), task.clock.release())


class PhaseWait(Wait):
    """A task waits for a phase of an mbarrier."""

    __slots__ = ("_barrier", "_op", "_phase")

    def __init__(self, op: Op, barrier: Barrier, phase: int) -> None:
        super().__init__(op.loc)
        self._op = op
        self._barrier = barrier
        self._phase = phase

    def ready(self) -> bool:
        """Whether the phase is complete."""
        return self._barrier.passed(self._phase)

    def words(self) -> str:
        """The phase, and what it lacks."""
        return f" for {self._barrier.missing(self._phase)}"

    def starved(self) -> UserError | None:
        """The report where only bytes are missing."""
        return self._barrier.starved(self._op)


@rule(mbarrier.wait)
def _wait(task: Task, op: Op, bar: Handle, phase: Data, pred: Data | None, *deps: Handle) -> Run:
    if not holds(task, op, pred):
        return ()
    task.demand(op, phase, "a phase")
    parity = int(task.uniform(op, phase, "a phase").array) & 1
    barrier = barrier_at(task, op, bar, MANY)
    task.block.agents.step()
    awaited = barrier.awaited(op, task.clock, parity, task.clock.position - 1)
    if not barrier.passed(awaited):
        yield PhaseWait(op, barrier, awaited)
    barrier.learn(task.clock, awaited)
    return ()
