"""mbarriers: arrival and transaction counts, phase completion, and the clocks that a phase publishes to its waiters.

A phase completes when its pending arrival count and its transaction count are both zero (PTX ISA, "Phase Completion of the
mbarrier object"). Agents are late by default: a phase that is pending on agents alone completes when a waiter needs it
(`Barrier.settle`). Phases are numbered from 0; phase k has parity k % 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.errors import Hazard, Loc, Row, fail, hazard
from weft.ir.core import Op
from weft.sim.machine.data import Array, where
from weft.sim.memory.clocks import Clock, Counts, Released, join


@dataclass(slots=True, eq=False)
class Agent:
    """An asynchronous operation in flight: the op, the function that moves its data, and the memory's name in reports. Whoever
    knows the counts `done` knows that it has signalled its mbarrier."""

    op: Op
    move: Callable[[], None] | None
    name: str = ""
    done: Counts = field(default_factory=dict[int, int])

    def finish(self) -> None:
        """Move the data, once."""
        move, self.move = self.move, None
        if move is not None:
            move()


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A wait for a phase, finished or not: the waiting task, the event number of the wait, the operation, and the threads
    (None: all of the task's together)."""

    slot: int
    position: int
    op: Op
    threads: Array | None = None

    def seen_by(self, clock: Released) -> bool:
        """Whether the wait precedes in time what has released a clock."""
        if clock.before.get(self.slot, 0) > self.position:
            return True
        counts = clock.threads.get(self.slot)
        return counts is not None and self.threads is not None and bool((counts[self.threads] > self.position).all())


@dataclass(frozen=True, slots=True, eq=False)
class ThreadArrivals:
    """Arrivals by threads (a mask) of a task for themselves, and the number of that event."""

    slot: int
    position: int
    threads: Array


def _waiters() -> dict[int, list[Waiter]]:
    return {}


@dataclass(slots=True, eq=False)
class Barrier:
    """One initialised mbarrier. `component` of the clocks counts its completed phases. `pending`: arrivals that the current
    phase still lacks. `expected` and `brought`: the bytes announced by expect_tx, and the bytes of the copies that signal it.
    `flights`: the agents that signal the current phase."""

    program: tuple[int, int, int]
    name: str
    component: int
    count: int
    op: Op
    partition: Callable[[int], str]
    # The number of counted arrivals per arrival in the source (one per warp where warps arrive separately).
    share: Callable[[], int] = lambda: 1
    completed: int = 0
    pending: int = 0
    expected: int = 0
    brought: int = 0
    flights: list[Agent] = field(default_factory=list[Agent])
    arrivals: list[Op] = field(default_factory=list[Op])
    invalidated: Op | None = None
    # The clock that arrivals of the current phase have released, and the one that the last completed phase published.
    clock: Released = field(default_factory=Released)
    published: Released = field(default_factory=Released)
    waiters: dict[int, list[Waiter]] = field(default_factory=_waiters)
    # The arrivals of the last completed phase.
    earlier: list[Op] = field(default_factory=list[Op])
    # The counts that hold once the agents of the current phase have finished, and the same for the last phase. They may
    # include components of other barriers, because one multicast tcgen05.commit signals several.
    holding: Counts = field(default_factory=dict[int, int])
    held_up: Counts = field(default_factory=dict[int, int])
    # Arrivals by cp.async.mbarrier.arrive without .noinc in the current phase: the task, the event number, and the counts that
    # hold once its copies are complete.
    added: list[tuple[int, int, Counts]] = field(default_factory=list[tuple[int, int, Counts]])
    # The task and number of each arrival (`Clock.arrive`) of the current phase, and of the last few phases by number, except of
    # those that waited for agents.
    events: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    completing: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    # Arrivals of threads by themselves: those of the current phase, and of the last one.
    own: list[ThreadArrivals] = field(default_factory=list[ThreadArrivals])
    own_before: list[ThreadArrivals] = field(default_factory=list[ThreadArrivals])
    # By phase and task, the threads whose probe has found it incomplete.
    probed: dict[tuple[int, int], Array] = field(default_factory=dict[tuple[int, int], Array])

    def __post_init__(self) -> None:
        self.pending = self.count

    def usable(self, op: Op, slot: int) -> None:
        """Check that the barrier has not been invalidated. Raises BarrierInvalidated."""
        if self.invalidated is not None:
            raise self._report(hazard.BARRIER_INVALIDATED, op, self.invalidated, "it was invalidated here", slot=slot)

    def invalidate(self, op: Op, clock: Clock) -> None:
        """`mbarrier.inval`. Raises BarrierInvalidated if an agent may still signal the barrier.

        The tensor core arrives for a commit when the operations before it are complete (PTX ISA, "tcgen05.commit"), which a
        thread also knows that has waited for a later commit."""
        for agent in self.flights:
            if any(clock.known.get(c, 0) < count for c, count in agent.done.items()):
                what = "commit" if agent.op.kind.family == "tcgen05" else "copy"
                raise self._report(hazard.BARRIER_BUSY, op, agent.op, f"the {what} was started here", what=what)
        self.invalidated = op

    def idle(self, clock: Clock) -> bool:
        """True if the barrier has seen nothing since the last phase that a task knows to be complete."""
        return self.pending == self.count and not self.brought and clock.known.get(self.component, 0) >= self.completed

    def expect(self, op: Op, clock: Clock, size: int) -> None:
        """`mbarrier.arrive.expect_tx`: one arrival, and `size` more bytes. Raises TooManyArrivals, TransactionBytes."""
        self._check_arrivals(op, clock, 1)
        self.expected += size
        self.arrive(op, clock, 1, clock.release())

    def arrive(self, op: Op, clock: Clock, count: int, released: Released) -> None:
        """`count` arrivals that release a clock. Raises TooManyArrivals, TransactionBytes, PhaseAliasing."""
        self._check_arrivals(op, clock, count)
        self.pending -= count
        self.arrivals.append(op)
        self.events.append((clock.slot, clock.arrive()))
        self.clock.join(released)
        self._check_bytes(op)
        if not self.flights:
            self.settle()

    def arrive_each(self, op: Op, clock: Clock, threads: Array, size: int, named: Callable[[int], str]) -> int:
        """One arrival of each of these threads, a mask, for itself, each with `size` more bytes if that is not negative.
        Returns the number of the phase. Raises EarlyArrival, TooManyArrivals, TransactionBytes, PhaseAliasing."""
        count, position = int(threads.sum()), clock.tick()
        phase = self.completed
        self._check_arrivals(op, clock, count)
        self._check_early(op, clock, threads, named)
        self.expected += max(size, 0) * count
        self.own.append(ThreadArrivals(clock.slot, position, threads))
        self.arrive(op, clock, count, clock.release_by(threads))
        return phase

    def _check_early(self, op: Op, clock: Clock, threads: Array, named: Callable[[int], str]) -> None:
        """Threads that arrive for a phase must know that the one before is complete, or their arrivals may count for it."""
        early = threads & (clock.counts_of(self.component, threads) < self.completed)
        if not early.any() or not self.own_before:
            return
        for arrival in self.own_before:
            if clock.known.get(arrival.slot, 0) > arrival.position:
                continue
            numbers = np.flatnonzero(arrival.threads)
            for thread in np.flatnonzero(early).tolist():
                others = numbers[numbers != thread] if arrival.slot == clock.slot else numbers
                if not clock.orders_threads(arrival.slot, others, thread, arrival.position).all():
                    raise self._report(
                        hazard.EARLY_ARRIVAL, op, (self.earlier or [self.op])[-1], "the phase before has an arrival here",
                        phase=self.completed - 1, thread=named(thread), slot=clock.slot,
                    )  # fmt: skip

    def phases_of(self, clock: Clock, parity: Array, threads: Array) -> Array:
        """The phase that each of these threads, a mask, means by a parity: the last that it knows, or the next one."""
        known = clock.counts_of(self.component, threads)
        return where((known - 1) % 2 == parity, known - 1, known)

    def probe(self, op: Op, clock: Clock, phase: int, threads: Array) -> Array:
        """Whether each of these threads, a mask, finds a phase complete, from which it then acquires. Raises PhaseAliasing.

        A probe that nothing orders after the phase may come too early, so the first one of a thread fails."""
        if self.completed > phase + 1:
            raise self._report(
                hazard.PHASE_ALIASING, op, (self.earlier or [self.op])[-1], f"phase {self.completed - 1} was completed here",
                slot=clock.slot, done=self.completed - 1, phase=_phase(phase),
            )  # fmt: skip
        if not self.passed(phase):
            self._probed(clock, phase, threads)
            return np.zeros_like(threads)
        known = threads & (clock.counts_of(self.component, threads) > phase)
        again = threads & self.probed.get((phase, clock.slot), np.zeros_like(threads))
        self._probed(clock, phase, threads & ~known)
        found = known | again
        if (again & ~known).any():
            self.waiters.setdefault(phase, []).append(Waiter(clock.slot, clock.tick(), op, again & ~known))
            clock.acquire_by(found, self.published)
            clock.acquire_by(found, Released({self.component: phase + 1}))
        return found

    def _probed(self, clock: Clock, phase: int, threads: Array) -> None:
        if threads.any():
            before = self.probed.get((phase, clock.slot))
            self.probed[phase, clock.slot] = threads if before is None else threads | before

    def arrive_later(self, op: Op, clock: Clock, count: int, copies: Counts, agent: Agent) -> None:
        """`cp.async.mbarrier.arrive`: each thread of a task arrives once its cp.async copies so far (`copies`) are complete.
        A `count` of 0 is the form without `.noinc`: each thread first increments the pending count, so other arrivals have to
        keep the phase incomplete until all threads have done so. Raises TooManyArrivals, TransactionBytes."""
        self._check_arrivals(op, clock, count)
        self.pending -= count
        self.arrivals.append(op)
        # Completed copies order none of the thread's other accesses; those only precede in time.
        self.clock.join(clock.release())
        if count:
            join(self.clock.known, copies)
            join(self.clock.before, clock.release_all().before)
        else:
            self.added.append((clock.slot, clock.position - 1, copies))
        self._pend_on(agent, {self.component: self.completed + 1})
        self._check_bytes(op)

    def arrive_behind(self, op: Op, clock: Clock, done: Counts, agent: Agent) -> None:
        """`tcgen05.commit`: one arrival when the agent has finished. It publishes the counts `done`, which are sealed because a
        commit implies `tcgen05.fence::before_thread_sync`. Raises TooManyArrivals, TransactionBytes."""
        self._check_arrivals(op, clock, 1)
        self.pending -= 1
        self.arrivals.append(op)
        self.clock.join(clock.release())
        join(self.clock.known, done)
        join(self.clock.sealed, done)
        self._pend_on(agent, done)
        self._check_bytes(op)

    def bring(self, op: Op, clock: Clock, size: int, agent: Agent) -> None:
        """A copy that will complete `size` bytes (complete_tx) of the current phase. Raises TransactionBytes."""
        self.brought += size
        self._pend_on(agent, {self.component: self.completed + 1})
        join(self.clock.before, clock.release().before)
        self._check_bytes(op)

    def _pend_on(self, agent: Agent, done: Counts) -> None:
        """Make the phase pend on an agent, whose completion publishes the counts `done`."""
        self.flights.append(agent)
        agent.done = done
        join(self.holding, done)

    def _check_arrivals(self, op: Op, clock: Clock, count: int) -> None:
        # An arrival that is not ordered after the agents of the last phase may come before they finish, and then counts
        # toward that phase.
        after = (clock.known, clock.before)
        unknown = any(all(counts.get(c, 0) < done for counts in after) for c, done in self.held_up.items())
        if count > self.pending or unknown:
            related, share = self.arrivals or self.earlier or [self.op], self.share()
            times = -(-count // share)
            raise self._report(
                hazard.TOO_MANY_ARRIVALS, op, related[-1], "the phase has an arrival here", slot=clock.slot,
                times="once" if times == 1 else f"{times} times", phase=self.completed - unknown,
                over=times if unknown else -(-(count - self.pending) // share),
                had=(self.count - self.pending * (not unknown)) // share, expected=self.count // share,
            )  # fmt: skip

    def _check_bytes(self, op: Op) -> None:
        if self.pending == 0 and self.brought > self.expected:
            raise self._bytes(hazard.TOO_MANY_BYTES, op)

    def _bytes(self, entry: Row, op: Op) -> Hazard:
        label, other = (
            ("the phase has an arrival here", self.arrivals[-1]) if self.arrivals else ("it was made here", self.op)
        )
        if self.flights and other is op:
            label, other = "a copy was started here", self.flights[-1].op
        return self._report(
            entry, op, other, label, phase=self.completed, expected=self.expected, brought=self.brought
        )  # fmt: skip

    def starved(self, op: Op) -> Hazard | None:
        """The hazard of a wait that cannot end because the phase lacks nothing but bytes; None otherwise."""
        return self._bytes(hazard.MISSING_BYTES, op) if self.pending == 0 and self.brought < self.expected else None

    def settle(self) -> None:
        """Complete the phase if it is pending on agents alone: they finish now. Raises PhaseAliasing."""
        if self.pending or self.brought != self.expected:
            return
        self.held_up, self.holding = self.holding, {}
        for agent in self.flights:
            agent.finish()
        for waiter in self.waiters.pop(self.completed - 1, ()):
            if not waiter.seen_by(self.clock):
                raise self._report(
                    hazard.PHASE_ALIASING, waiter.op, self.arrivals[-1], f"phase {self.completed} is completed here",
                    slot=waiter.slot, done=self.completed, phase=_phase(self.completed - 1),
                )  # fmt: skip
        for slot, position, copies in self.added:
            if self.clock.before.get(slot, 0) > position:
                join(self.clock.known, copies)
        self.published, self.clock = self.clock, Released()
        if not self.flights:
            self.completing[self.completed] = self.events
        self.completing.pop(self.completed - _PHASES_KEPT, None)
        self.events = []
        self.flights, self.added, self.earlier, self.arrivals = [], [], self.arrivals, []
        self.own, self.own_before = [], self.own
        self.probed = {at: threads for at, threads in self.probed.items() if at[0] >= self.completed}
        self.pending, self.expected, self.brought = self.count, 0, 0
        self.completed += 1

    def awaited(self, op: Op, clock: Clock, parity: int, position: int) -> int:
        """The phase that a wait for a parity refers to: the last phase that the waiter knows, or the next one (-1 before the
        first).

        A waiter knows a phase that it has waited for, and one whose every arrival precedes it in time. Raises PhaseAliasing if
        a later phase has completed already: the parity no longer identifies the phase."""
        seen = (phase + 1 for phase, arrivals in self.completing.items() if all(map(clock.follows, arrivals)))
        known = max(clock.known.get(self.component, 0), max(seen, default=0))
        phase = known - 1 if (known - 1) % 2 == parity else known
        if self.completed > phase + 1:
            raise self._report(
                hazard.PHASE_ALIASING, op, (self.earlier or [self.op])[-1], f"phase {self.completed - 1} was completed here",
                slot=clock.slot, done=self.completed - 1, phase=_phase(phase),
            )  # fmt: skip
        self.waiters.setdefault(phase, []).append(Waiter(clock.slot, position, op))
        return phase

    def passed(self, phase: int) -> bool:
        """True if a phase is complete, after an attempt to complete it."""
        if self.completed <= phase:
            self.settle()
        return self.completed > phase

    def learn(self, clock: Clock, phase: int) -> None:
        """A wait for a phase has succeeded: the waiter acquires what the phase published."""
        if phase >= 0:
            clock.acquire(self.published)
            join(clock.known, {self.component: phase + 1})

    def missing(self, phase: int, arriving: Sequence[Op]) -> str:
        """Message text for what a phase lacks. `arriving`: the operations of the kernel that may arrive at the barrier."""
        words: list[str] = []
        if self.pending:
            share = self.share()
            words.append(f"{-(-self.pending // share)} of {-(-self.count // share)} arrivals")
        if self.expected > self.brought:
            words.append(f"{self.expected - self.brought} of {self.expected} bytes")
        if self.expected < self.brought:
            words.append(
                f"an expect of the {self.brought - self.expected} bytes that copies complete beyond those expected"
            )
        return f"phase {phase} of {self.name}, which lacks {' and '.join(words) or 'nothing'}{self._missing_arrivals(arriving)}"

    def _missing_arrivals(self, arriving: Sequence[Op]) -> str:
        """Message text for missing arrivals: those that the previous phase had, or any in the kernel."""
        if not self.pending:
            return ""
        absent = [op for op in self.earlier or arriving if op not in self.arrivals]
        if absent:
            return f"; the arrival at {_lines(absent)} has not come"
        return (
            f"; it has had one at {_lines(self.arrivals)}" if self.arrivals else "; nothing in the kernel arrives at it"
        )

    def _report(self, entry: Row, op: Op, other: Op, label: str, slot: int | None = None, **fields: Any) -> Hazard:
        related: tuple[tuple[str, Loc], ...] = () if other.loc is None else ((label, other.loc),)
        if slot is not None:
            fields["partition"] = self.partition(slot)
        error = fail(entry, loc=op.loc, related=related, program=self.program, name=self.name, **fields)
        assert isinstance(error, Hazard)
        error.buffer = self.name
        if slot is not None:
            error.partitions = (self.partition(slot),)
        return error


_PHASES_KEPT = 4
"""A waiter that is further behind has lost the phase in any case."""


def _phase(number: int) -> str:
    """The name of a phase in reports. The phase before the first, of parity 1, counts as complete."""
    return f"phase {number}" if number >= 0 else "the phase before the first"


def _lines(ops: Sequence[Op]) -> str:
    """The source lines of operations, each once."""
    return " or ".join(dict.fromkeys(str(op.loc) for op in ops))
