"""Structured control flow.

If the condition is uniform, one region executes. Under divergence both regions execute, each under the mask of its threads or
elements, and the results are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import settings
from weft.errors import Loc, hazard
from weft.ir.core import Op, Region, Value
from weft.layout import WARP_SIZE
from weft.ops import control
from weft.sim.machine import late
from weft.sim.machine.code import captured
from weft.sim.machine.data import Array, Data, chosen
from weft.sim.machine.parting import parted
from weft.sim.machine.sides import Parted, Side, Values, run_sides
from weft.sim.machine.spin import deciding
from weft.sim.machine.tasks import Meeting, Task, execute
from weft.sim.machine.wait import MemoryWait, Run, Wait
from weft.sim.memory.heap import HeapAccess
from weft.sim.numbers.arithmetic import bits_dtype
from weft.sim.rule import rule

# A loop that polls memory but changes its own state runs this many iterations before it yields to other tasks.
TURNS = 256


class Turn(Wait):
    """A task that yields to others without a condition."""

    __slots__ = ()

    def ready(self) -> bool:
        """Always."""
        return True


class Overtaken(Turn):
    """A task whose polling loop has ended, but that lets other programs run first."""

    __slots__ = ()

    @property
    def polls(self) -> bool:
        """Always: other programs run as well."""
        return True


class MeetingWait(Wait):
    """A task that waits at a barrier between tasks."""

    __slots__ = ("_generation", "_meeting", "_what")
    follows = True

    def __init__(self, loc: Loc | None, meeting: Meeting, what: str) -> None:
        super().__init__(loc)
        self._meeting = meeting
        self._generation = meeting.generation
        self._what = what

    def ready(self) -> bool:
        """True if the awaited generation of the barrier is complete."""
        return self._meeting.generation != self._generation

    def words(self) -> str:
        """Message text: the barrier, and the number of warps that have arrived."""
        return f" at {self._what}, where {self._meeting.arrived} warps have come"


class JoinWait(Wait):
    """A task that waits for partitions to end."""

    __slots__ = ("_workers",)
    follows = True

    def __init__(self, loc: Loc | None, workers: Sequence[Task]) -> None:
        super().__init__(loc)
        self._workers = workers

    def ready(self) -> bool:
        """True if all partitions have ended."""
        return all(worker.ended for worker in self._workers)

    def words(self) -> str:
        """Message text for the partitions that are still running."""
        return " for the end of " + ", ".join(
            worker.block.partition(worker.slot) for worker in self._workers if not worker.ended
        )


def decide(task: Task, op: Op, condition: Data, sink: str) -> bool | None:
    """The condition if it is uniform over the active threads, None if they diverge. Raises UndefinedValue."""
    task.demand(op, condition, sink)
    if condition.array.ndim == 0:
        return bool(condition.array)
    if not np.any(task.under(condition.array)):
        return False
    return True if not np.any(task.under(~condition.array)) else None


def merged(condition: Array, lhs: Sequence[Data], rhs: Sequence[Data]) -> tuple[Data, ...]:
    """The phi of divergent regions: for each value, `lhs` where the condition is True, else `rhs`."""
    return tuple(a if a is b else chosen(condition, a, b) for a, b in zip(lhs, rhs, strict=True))


@rule(control.yield_, control.return_)
def _terminate(task: Task, op: Op, *values: Data) -> tuple[Data, ...]:
    return values


@rule(control.condition)
def _condition(task: Task, op: Op, condition: Data, *values: Data) -> tuple[Data, ...]:
    return (condition, *values)


@rule(control.if_)
def _if(task: Task, op: Op, condition: Data) -> Run:
    way = decide(task, op, condition, "a branch")
    by = task.machine.steering.decided.get(op)
    if by is None:
        return (yield from _branch(task, op, condition, way))
    with task.clock.learned.within(by):
        results = yield from _branch(task, op, condition, way)
    # Behind the branch both sides rejoin, so what one side acquired holds only if the other side has to acquire as well.
    then, orelse = task.machine.steering.joins[op]
    if (then or orelse) if way is None else (orelse if way else then):
        task.clock.learned.decided(by)
    return results


def _branch(task: Task, op: Op, condition: Data, way: bool | None) -> Run:
    then, orelse = op.regions
    if way is not None:
        return (yield from execute(task, then if way else orelse, ()))
    regions = (then, condition.array), (orelse, ~condition.array)
    sides = [Side(task, execute(task, region, ()), mask) for region, mask in regions]
    around = task.active
    for wait in run_sides(sides, op.loc):
        over = [_over(side, mask, around) for side, (_, mask) in zip(sides, regions, strict=True)]
        (one, results), *others = [each for each in over if each is not None] or [(None, ())]
        for left, values in others:
            one, results = one | left, merged(left, values, results)
        yield wait if one is None else Parted(wait, op, one, results, around)
    return merged(condition.array, sides[0].results, sides[1].results)


def _over(side: Side, mask: Array, around: Array | None) -> tuple[Array, Values] | None:
    """The threads of a side of a branch that have come to its end, and their values."""
    if side.ended:
        return _both(mask, around), side.results
    return None if side.parted is None else (side.parted.left, side.parted.results)


@rule(control.trips)
def _trips(task: Task, op: Op, lower: Data, upper: Data, step: Data) -> Data:
    return Data(_trip_count(task, op, lower, upper, step))


_counts: Callable[[Array, Array, Array], Array] = np.frompyfunc(control.trip_count, 3, 1)


def _trip_count(task: Task, op: Op, lower: Data, upper: Data, step: Data) -> Array:
    """The trip count of a loop, per thread if bounds differ between threads. Raises EndlessLoop for a step of 0."""
    bounds = (lower, upper, step)
    for bound in bounds:
        task.demand(op, bound, "a loop bound")
    still = task.under(step.array == 0)
    if still is not None and np.any(still):
        flat, shape = int(np.argmax(still)), np.shape(still)
        first, last = (int(np.broadcast_to(bound.array, shape).ravel()[flat]) for bound in (lower, upper))
        raise task.fail(hazard.LOOP_STEP, op, lower=first, upper=last)
    unsigned = bits_dtype(lower.array.dtype.itemsize)
    if not any(np.ndim(bound.array) for bound in bounds):
        return unsigned.type(control.trip_count(*(int(bound.array) for bound in bounds)))
    return np.asarray(_counts(*(bound.array.astype(object) for bound in bounds))).astype(unsigned)[()]


@rule(control.for_)
def _for(task: Task, op: Op, *operands: Data) -> Run:
    by = task.machine.steering.decided.get(op)
    if by is None:
        return (yield from _counted(task, op, *operands))
    with task.clock.learned.within(by):
        return (yield from _counted(task, op, *operands))


def _counted(task: Task, op: Op, lower: Data, upper: Data, step: Data, *inits: Data) -> Run:
    count = _trip_count(task, op, lower, upper, step)
    state: tuple[Data, ...] = inits
    if np.ndim(count):
        return (yield from _divergent_for(task, op, count, lower.array, step.array, state))
    first, by, kind = int(lower.array), int(step.array), lower.array.dtype.type
    for number in range(int(count)):
        state = yield from execute(task, op.regions[0], (Data(kind(first + number * by)), *state))
    return state


def _divergent_for(task: Task, op: Op, count: Array, counter: Array, step: Array, state: tuple[Data, ...]) -> Run:
    number = 0
    while True:
        running = number < count
        if not np.any(task.under(running)):
            return state
        if np.any(task.under(~running)):
            around = task.active
            with task.only(running):
                body = execute(task, op.regions[0], (Data(counter), *state))
                after = yield from parted(body, op, _both(~running, around), state, around)
            state = merged(running, after, state)
        else:
            # Nothing to merge, which an accumulator in flight does not allow.
            state = yield from execute(task, op.regions[0], (Data(counter), *state))
        counter, number = counter + step, number + 1


@rule(control.while_)
def _while(task: Task, op: Op, *inits: Data) -> Run:
    by = task.machine.steering.decided.get(op)
    if by is None:
        return (yield from _loop(task, op, *inits))
    with task.clock.learned.within(by):
        results = yield from _loop(task, op, *inits)
    # The loop has ended because of the values that these reads returned, so they decide everything that follows.
    task.clock.learned.decided(by)
    if task.machine.overtakes():
        yield Overtaken(op.loc)
    return results


def _loop(task: Task, op: Op, *inits: Data) -> Run:
    condition, body = op.regions
    heap = task.machine.heap
    state: tuple[Data, ...] = inits
    turns = 0
    bound = Bound(task, op)
    since: int | None = None
    while True:
        reads, writes = task.reads, heap.writes
        going, *passed = yield from execute(task, condition, state)
        way = decide(task, condition.terminator, going, "a loop condition")
        if way is None:
            return (yield from _divergent_while(task, op, going.array, passed, bound))
        if not way:
            late.advise(task, op, since)
            return tuple(passed)
        before, state = state, (yield from execute(task, body, passed))
        bound.count()
        if task.reads == reads or heap.writes != writes:
            continue
        stuck = all(_same(before[number], state[number]) for number in deciding(op))
        turns += 1
        if stuck or turns % TURNS == 0:
            since = task.machine.started if since is None else since
            yield _polling(task, op, stuck)


def _polling(task: Task, op: Op, stuck: bool) -> Wait:
    """What a task waits for whose loop polls what it read last."""
    last = task.last_read
    if last is None or isinstance(last, HeapAccess):
        return MemoryWait(op.loc, task.machine, last, stuck)
    return last.wait(op.loc, stuck)


class Bound:
    """The limit on the iterations of a `while`. A loop that reaches it may be correct on a GPU: here threads run in
    step, and those that have left a loop go on only while all others wait (`weft.sim.machine.parting`)."""

    __slots__ = ("_iterations", "_most", "_op", "_task")

    def __init__(self, task: Task, op: Op) -> None:
        self._task, self._op = task, op
        self._iterations, self._most = 0, settings.current().max_iterations

    def count(self) -> None:
        """Count an iteration. Raises EndlessLoop."""
        self._iterations += 1
        if self._iterations >= self._most:
            raise self._task.fail(hazard.LOOP_ENDLESS, self._op, iterations=self._iterations)


def _divergent_while(task: Task, op: Op, going: Array, passed: Sequence[Data], bound: Bound) -> Run:
    """Iterate for the threads whose condition is True. Each thread's results are the values at its own last condition."""
    condition, body = op.regions
    results, around = tuple(passed), task.active
    running = _both(going, around)
    since: int | None = None
    while np.any(running):
        bound.count()
        before, kept = passed, running
        reads, writes = task.reads, task.machine.heap.writes
        left = _both(~running, around)
        with task.only(running):
            state = yield from parted(execute(task, body, passed), op, left, results, around)
            again, *passed = yield from parted(execute(task, condition, state), op, left, results, around)
            task.demand(condition.terminator, again, "a loop condition")
        results = merged(running, passed, results)
        running = running & again.array
        if task.reads != reads and task.machine.heap.writes == writes:
            # If the same threads continue with the same values, further iterations repeat until memory changes.
            same = all(_same(a, b) for a, b in zip(before, passed, strict=True))
            since = task.machine.started if since is None else since
            wait = _polling(task, op, stuck=same and bool(np.all(running == kept)))
            yield Parted(wait, op, _both(~running, around), results, around)
    late.advise(task, op, since)
    return results


def _both(mask: Array, around: Array | None) -> Array:
    """The threads of a mask among those that are active around an operation."""
    return mask if around is None else mask & around


def meet(task: Task, op: Op, number: int, warps: int, what: str) -> Run:
    """Arrive and wait at a barrier of the block until `warps` warps have arrived; includes a barrier of the task's threads."""
    task.barrier()
    meeting = task.block.meetings.setdefault(number, Meeting())
    wait = MeetingWait(op.loc, meeting, what)
    meeting.arrive(task.warps, warps, task.clock.release_all())
    if not wait.ready():
        yield wait
    task.clock.acquire(meeting.published)
    return ()


def _spawn(task: Task, regions: Sequence[Region], num_warps: Sequence[int]) -> list[Task]:
    """Start a task for each region, concurrent to this one. The new tasks acquire this task's clock and captured values."""
    task.barrier()
    workers: list[Task] = []
    for slot, (region, warps) in enumerate(zip(regions, num_warps, strict=True), 1):
        env: dict[Value, Data] = {value: task.env[value] for value in captured(region)}
        worker = task.block.start(slot, region, (), warps * WARP_SIZE, env)
        worker.clock.acquire(task.clock.release_all())
        worker.arrived, worker.awaited = task.arrived, task.awaited
        workers.append(worker)
    return workers


def _join(task: Task, op: Op, workers: Sequence[Task]) -> Run:
    """Wait for the partitions to end, and acquire their clocks: a barrier of all threads of the block."""
    wait = JoinWait(op.loc, workers)
    if not wait.ready():
        yield wait
    task.barrier()
    for worker in workers:
        task.clock.acquire(worker.clock.release_all())
        worker.barrier()
    return ()


@rule(control.warp_specialize)
def _warp_specialize(task: Task, op: Op) -> Run:
    first, *others = op.regions
    workers = _spawn(task, others, op.attrs["num_warps"])
    yield Turn(op.loc)
    results = yield from execute(task, first, ())
    yield from _join(task, op, workers)
    return results


@rule(control.partitions)
def _partitions(task: Task, op: Op) -> Run:
    """The lowered form: the task that runs the kernel becomes the first partition, with that partition's number of warps."""
    first, *others = op.regions
    own, *num_warps = op.attrs["num_warps"]
    task.threads = own * WARP_SIZE
    workers = _spawn(task, others, num_warps)
    yield Turn(op.loc)
    results = yield from execute(task, first, ())
    yield from _join(task, op, workers)
    return results


def _same(first: Any, second: Any) -> bool:
    if not isinstance(first, Data) or not isinstance(second, Data):
        return first == second
    a, b = np.asarray(first.array), np.asarray(second.array)
    return a.shape == b.shape and a.tobytes() == b.tobytes()
