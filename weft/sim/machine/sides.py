"""Groups of a task's threads that run concurrently: the two sides of a divergent branch, and the warps of a crew.

While the threads of one side wait, those of the others go on, as on a GPU since sm_70 (CUDA C++ Programming Guide, "Independent
Thread Scheduling"). A side runs until it waits or ends, so that without waits the sides run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from weft.errors import Loc, UserError
from weft.ir.core import Op, Region, Value
from weft.ops import control
from weft.sim.machine.data import Array, Data
from weft.sim.machine.wait import Run, Wait

Values: TypeAlias = tuple[Data, ...]


class Parted(Wait):
    """A wait of threads in a loop or branch, or in the region `where` of one, that others have `left` with these `results`.
    `around`: the threads that are active around it (None: all). `weft.sim.machine.parting` takes it apart, so that it never
    reaches the scheduler."""

    __slots__ = ("around", "inner", "left", "results", "where")

    def __init__(self, inner: Wait, where: Op | Region, left: Array, results: Values, around: Array | None) -> None:
        super().__init__(inner.loc)
        self.inner, self.where, self.left, self.results, self.around = inner, where, left, results, around

    def of(self, op: Op) -> bool:
        """Whether the threads have left this operation: a branch ends where its region does."""
        return self.where is op or (op.kind is control.if_ and any(self.where is region for region in op.regions))


class Side:
    """Some threads of a task, what they run, and what they wait for. `env`: values of their own (None: the task's)."""

    __slots__ = ("_active", "_decided", "_env", "_run", "_task", "ended", "parted", "results", "wait")

    def __init__(self, task: Any, run: Run, mask: Array | None, env: dict[Value, Data] | None = None) -> None:
        self._task, self._run = task, run
        # What differs between the sides of the task's state: its active threads, the reads that have decided its way, values.
        self._active = task.under(mask)
        self._decided = task.clock.learned.active
        self._env = env
        self.ended = False
        self.wait: Wait | None = None
        # Which of its threads have come to the end of what it runs, while the others wait.
        self.parted: Parted | None = None
        self.results: tuple[Data, ...] = ()

    def able(self) -> bool:
        """Whether it can continue."""
        return not self.ended and (self.wait is None or self.wait.ready())

    def resume(self) -> None:
        """Run it until it waits or ends."""
        task, learned = self._task, self._task.clock.learned
        before = task.active, learned.active, task.env
        task.active, learned.active = self._active, self._decided
        if self._env is not None:
            task.env = self._env
        try:
            wait = next(self._run)
            self.parted = wait if isinstance(wait, Parted) else None
            self.wait = wait.inner if isinstance(wait, Parted) else wait
        except StopIteration as end:
            self.ended, self.wait, self.parted, self.results = True, None, None, end.value
        finally:
            self._active, self._decided = task.active, learned.active
            task.active, learned.active, task.env = before

    def adopt(self) -> None:
        """The task goes on as this side, which has ended."""
        self._task.active, self._task.clock.learned.active = self._active, self._decided


def run_sides(sides: Sequence[Side], loc: Loc | None) -> Run:
    """Run all sides to their ends; yields only when none of them can continue, or all that wait poll."""
    while not all(side.ended for side in sides):
        able = [side for side in sides if side.able()]
        for side in able:
            side.resume()
        waits = [side.wait for side in sides if side.wait is not None]
        if waits and (not able or all(wait.polls for wait in waits)):
            yield SidesWait(loc, waits)
    return ()


class SidesWait(Wait):
    """A task whose threads wait on each side of a divergent branch that has not ended."""

    __slots__ = ("_waits",)

    def __init__(self, loc: Loc | None, waits: Sequence[Wait]) -> None:
        super().__init__(waits[0].loc or loc)
        self._waits = waits

    @property
    def polls(self) -> bool:
        """True if one of them does."""
        return any(wait.polls for wait in self._waits)

    @property
    def expires(self) -> int | None:
        """The shortest time-out."""
        return min((wait.expires for wait in self._waits if wait.expires is not None), default=None)

    def expire(self) -> None:
        """The time of those with that time-out is over."""
        first = self.expires
        for wait in self._waits:
            if wait.expires == first:
                wait.expire()

    def ready(self) -> bool:
        """True if one of the sides can continue."""
        return any(wait.ready() for wait in self._waits)

    def instead(self) -> str:
        """The fix for the first of them."""
        return self._waits[0].instead()

    def words(self) -> str:
        """What the sides wait for."""
        return "; other threads of it wait".join(wait.words() for wait in self._waits)

    def memory(self) -> str:
        """The memory of the first of them."""
        return self._waits[0].memory()

    def writers(self) -> tuple[tuple[str, Loc], ...]:
        """Source lines that may write what they wait for."""
        return tuple(writer for wait in self._waits for writer in wait.writers())

    def starved(self) -> UserError | None:
        """The first specific error."""
        return next((error for wait in self._waits if (error := wait.starved()) is not None), None)
