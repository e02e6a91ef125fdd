"""Launches that run side by side: programmatic dependent launch (PTX ISA, "griddepcontrol").

A launch with `launch_pdl=True` may start before the launch before it is complete; its `gdc_wait` returns when that is. The
simulator runs launches one after the other. What it checks does not depend on that: an access that a program makes without
knowing of a `gdc_wait` conflicts with any access of a launch that may still be running then, of which one is a write.

Which launches may still be running when a dependent launch starts: the one before, and those that may run beside that one until
its first `gdc_launch_dependents`. A block that waited before it released the dependents, or that waited and never released
them, ends the second part. Every launch waits, or is reported: otherwise its end would say nothing about the launches before
it, and a `gdc_wait` for it nothing to those that follow. (On an H200 with driver 580 a launch that did not wait still ended
after the one before. PTX does not promise that: dependent grids must use griddepcontrol.wait, it says.)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from weft.errors import Hazard, fail, hazard
from weft.ir.core import Func, Op, walk
from weft.ops import sync
from weft.sim.machine.findings import Findings
from weft.sim.memory.clocks import Clock
from weft.sim.memory.tracks import VERBS, Touch, Way, element_at

PRIMARY = -(1 << 30)
"""The component of the clocks for the end of the launch that this one depends on. It counts to 1."""


class Recorded(Protocol):
    """The race detector of a launch, once it has ended."""

    def conflict(self, touch: Touch) -> tuple[int, Op, Way] | None:
        """The first recorded access that conflicts with one of a later launch: the number of the accessed element among those
        of `touch`, the operation that was recorded, and the way in which it accessed the element."""
        ...


@dataclass(slots=True)
class Dependence:
    """What a launch has to do with the launches before it and after it. `dependent`: launched with `launch_pdl=True`. `before`:
    the launches that may still be running when it starts, the latest first. `waited`: some block has called `gdc_wait`. `late`:
    some block did so before it let the next launch start. `accesses`: its accesses to global memory."""

    dependent: bool = False
    before: tuple[Accesses, ...] = ()
    waited: bool = False
    late: bool = False
    accesses: Accesses | None = None

    def wait(self, clock: Clock) -> None:
        """`gdc_wait` of all threads of a task."""
        self.waited = True
        clock.known[PRIMARY] = 1

    def release(self, clock: Clock) -> None:
        """A block lets the next launch start, or ends without having done so."""
        self.late = self.late or clock.known.get(PRIMARY, 0) > 0

    def finish(self, func: Func, races: Recorded | None, found: Findings) -> None:
        """The end of the launch. Raises DependentLaunch if no block of it has waited."""
        if races is not None:
            self.accesses = Accesses(func.name, races)
        if self.dependent and not self.waited and races is not None:
            op = next(op for op in walk(func.body) if op.kind is sync.gdc_wait)
            found.add(fail(hazard.DEPENDENT_NEVER_WAITS, loc=op.loc, name=func.name), hazard.DEPENDENT_NEVER_WAITS, op)

    def running(self) -> tuple[Accesses, ...]:
        """The launches that may still be running when a dependent launch after this one starts."""
        own = () if self.accesses is None else (self.accesses,)
        return own if self.late or not self.dependent else (*own, *self.before)

    def check(self, touch: Touch, found: Findings) -> None:
        """Check an access against the launches that may still be running. Raises DependentLaunch."""
        if touch.task.clock.known.get(PRIMARY, 0):
            return
        for earlier in self.before:
            if earlier.meets(touch, found):
                return


@dataclass(slots=True, eq=False)
class Accesses:
    """A launch that has been simulated: its kernel, and its accesses to global memory."""

    kernel: str
    races: Recorded

    def meets(self, touch: Touch, found: Findings) -> bool:
        """Whether it made an access that conflicts with one of a later launch; if so, report it. Raises DependentLaunch."""
        clash = self.races.conflict(touch)
        if clash is None:
            return False
        flat, op, way = clash
        key = hazard.DEPENDENT_LAUNCH, op, touch.op
        if found.known(*key):
            return True
        name, index = element_at(touch.place, touch.itemsize, flat)
        before = VERBS[way][1]
        related = () if op.loc is None else ((f"{self.kernel} {before} it here", op.loc),)
        error = fail(
            hazard.DEPENDENT_LAUNCH, loc=touch.op.loc, related=related, program=touch.task.pid, access=VERBS[touch.way][0],
            name=name, index=index, kernel=self.kernel, before=before,
        )  # fmt: skip
        assert isinstance(error, Hazard)
        error.buffer = name
        found.add(error, *key)
        return True


class _Chain(threading.local):
    """The launches of a thread that may still be running when its next dependent launch starts."""

    running: tuple[Accesses, ...] = ()


_chain = _Chain()


@contextmanager
def launching(dependent: bool) -> Iterator[Dependence]:
    """The next launch of this thread, which may be simulated several times. One that fails ends the chain."""
    made = Dependence(dependent, _chain.running if dependent else ())
    _chain.running = ()
    yield made
    _chain.running = made.running()
