"""mbarriers: what they count, when a phase is complete, and who learns what from that.

A phase is complete when all arrivals have come and the copies that signal it have brought the bytes that it expects. Copies
take as long as they may: a phase that only copies hold up is completed when somebody needs it (`Barrier.settle`).
Phases are numbered from 0; the one of number k has parity k % 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Hazard, Loc, Row, fail, hazard
from weft.ir.core import Op
from weft.sim.memory.clocks import Clock, Counts, Released, join


@dataclass(slots=True, eq=False)
class Agent:
    """A copy under way: the operation that started it, how it moves its data, and what reports call the shared memory."""

    op: Op
    move: Callable[[], None] | None
    name: str = ""

    def finish(self) -> None:
        """Move the data, once."""
        move, self.move = self.move, None
        if move is not None:
            move()


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody who waits, or has waited, for a phase: their task, the number of that event, and the operation."""

    slot: int
    position: int
    op: Op


def _waiters() -> dict[int, list[Waiter]]:
    return {}


@dataclass(slots=True, eq=False)
class Barrier:
    """One mbarrier that was initialised. `component` counts its complete phases; `pending` the arrivals that the current
    phase still takes, `expected` and `brought` its bytes, `flights` the copies that signal it."""

    program: tuple[int, int, int]
    name: str
    component: int
    count: int
    op: Op
    partition: Callable[[int], str]
    # How many arrivals are counted for one that the author wrote.
    share: Callable[[], int] = lambda: 1
    completed: int = 0
    pending: int = 0
    expected: int = 0
    brought: int = 0
    flights: list[Agent] = field(default_factory=list[Agent])
    arrivals: list[Op] = field(default_factory=list[Op])
    invalidated: Op | None = None
    # What the current phase publishes, and what the last complete one published.
    clock: Released = field(default_factory=Released)
    published: Released = field(default_factory=Released)
    waiters: dict[int, list[Waiter]] = field(default_factory=_waiters)
    # The arrivals of the last complete phase.
    earlier: list[Op] = field(default_factory=list[Op])
    # What is complete once the copies of the current phase are, and of the last one. One commit tells several barriers at once.
    holding: Counts = field(default_factory=dict[int, int])
    held_up: Counts = field(default_factory=dict[int, int])
    # Copies whose threads added their own arrivals to the current phase: task, number of that event, what is complete then.
    added: list[tuple[int, int, Counts]] = field(default_factory=list[tuple[int, int, Counts]])

    def __post_init__(self) -> None:
        self.pending = self.count

    def usable(self, op: Op, slot: int) -> None:
        """Refuse what comes after `invalidate`. Raises BarrierInvalidated."""
        if self.invalidated is not None:
            raise self._report(hazard.BARRIER_INVALIDATED, op, self.invalidated, "it was invalidated here", slot=slot)

    def invalidate(self, op: Op) -> None:
        """End of the barrier. Raises BarrierInvalidated where a copy is on its way."""
        if self.flights:
            raise self._report(hazard.BARRIER_BUSY, op, self.flights[0].op, "the copy was started here")
        self.invalidated = op

    def idle(self, clock: Clock) -> bool:
        """Whether nothing has come since the phases that a task knows to be complete."""
        return self.pending == self.count and not self.brought and clock.known.get(self.component, 0) >= self.completed

    def expect(self, op: Op, clock: Clock, size: int) -> None:
        """An arrival, and more bytes to come. Raises TooManyArrivals, TransactionBytes."""
        self._room(op, clock, 1)
        self.expected += size
        self.arrive(op, clock, 1, clock.release())

    def arrive(self, op: Op, clock: Clock, count: int, released: Released) -> None:
        """Arrivals, and what they publish. Raises TooManyArrivals, TransactionBytes, PhaseAliasing."""
        self._room(op, clock, count)
        self.pending -= count
        self.arrivals.append(op)
        self.clock.join(released)
        self._check_bytes(op)
        if not self.flights:
            self.settle()

    def arrive_later(self, op: Op, clock: Clock, count: int, copies: Counts, agent: Agent) -> None:
        """All threads of a task arrive once their `copies` so far are complete; with a `count` of 0 each adds to what the phase
        takes, which somebody else has to hold up until all have come. Raises TooManyArrivals, TransactionBytes."""
        self._room(op, clock, count)
        self.pending -= count
        self.arrivals.append(op)
        # That copies are complete says nothing of a thread's other accesses; only that the thread came here before.
        self.clock.join(clock.release())
        if count:
            join(self.clock.known, copies)
            join(self.clock.before, clock.release_all().before)
        else:
            self.added.append((clock.slot, clock.position - 1, copies))
        self._hold(agent, {self.component: self.completed + 1})
        self._check_bytes(op)

    def arrive_behind(self, op: Op, clock: Clock, done: Counts, agent: Agent) -> None:
        """One arrival, which comes when the agent has finished; then `done` is complete, of tensor memory too. Raises
        TooManyArrivals, TransactionBytes."""
        self._room(op, clock, 1)
        self.pending -= 1
        self.arrivals.append(op)
        self.clock.join(clock.release())
        join(self.clock.known, done)
        join(self.clock.sealed, done)
        self._hold(agent, done)
        self._check_bytes(op)

    def bring(self, op: Op, clock: Clock, size: int, agent: Agent) -> None:
        """A copy that will bring bytes to the current phase. Raises TransactionBytes."""
        self.brought += size
        self._hold(agent, {self.component: self.completed + 1})
        join(self.clock.before, clock.release().before)
        self._check_bytes(op)

    def _hold(self, agent: Agent, done: Counts) -> None:
        """A copy holds the phase up; once it has finished, so much is done."""
        self.flights.append(agent)
        join(self.holding, done)

    def _room(self, op: Op, clock: Clock, count: int) -> None:
        # Who does not come after the copies that completed a phase may arrive before they do.
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
        """What to report of a waiter that will never go on because only bytes are missing."""
        return self._bytes(hazard.MISSING_BYTES, op) if self.pending == 0 and self.brought < self.expected else None

    def settle(self) -> None:
        """Let copies finish if nothing else holds the phase up. Raises PhaseAliasing."""
        if self.pending or self.brought != self.expected:
            return
        self.held_up, self.holding = self.holding, {}
        for agent in self.flights:
            agent.finish()
        for waiter in self.waiters.pop(self.completed - 1, ()):
            if self.clock.before.get(waiter.slot, 0) <= waiter.position:
                raise self._report(
                    hazard.PHASE_ALIASING, waiter.op, self.arrivals[-1], f"phase {self.completed} is completed here",
                    slot=waiter.slot, done=self.completed, phase=_phase(self.completed - 1),
                )  # fmt: skip
        for slot, position, copies in self.added:
            if self.clock.before.get(slot, 0) > position:
                join(self.clock.known, copies)
        self.published, self.clock = self.clock, Released()
        self.flights, self.added, self.earlier, self.arrivals = [], [], self.arrivals, []
        self.pending, self.expected, self.brought = self.count, 0, 0
        self.completed += 1

    def awaited(self, op: Op, clock: Clock, parity: int, position: int) -> int:
        """The phase that a wait for a parity means: the last or the next of those the waiter knows (-1 before the first).

        Raises PhaseAliasing where a later one is complete already."""
        known = clock.known.get(self.component, 0)
        phase = known - 1 if (known - 1) % 2 == parity else known
        if self.completed > phase + 1:
            raise self._report(
                hazard.PHASE_ALIASING, op, (self.earlier or [self.op])[-1], f"phase {self.completed - 1} was completed here",
                slot=clock.slot, done=self.completed - 1, phase=_phase(phase),
            )  # fmt: skip
        self.waiters.setdefault(phase, []).append(Waiter(clock.slot, position, op))
        return phase

    def passed(self, phase: int) -> bool:
        """Whether a phase is complete, now that somebody needs it."""
        if self.completed <= phase:
            self.settle()
        return self.completed > phase

    def learn(self, clock: Clock, phase: int) -> None:
        """A waiter passes."""
        if phase >= 0:
            clock.acquire(self.published)
            join(clock.known, {self.component: phase + 1})

    def missing(self, phase: int, arriving: Sequence[Op]) -> str:
        """Words for what a phase still lacks. `arriving` are the operations of the kernel that may arrive at the barrier."""
        words: list[str] = []
        if self.pending:
            share = self.share()
            words.append(f"{-(-self.pending // share)} of {-(-self.count // share)} arrivals")
        if self.expected > self.brought:
            words.append(f"{self.expected - self.brought} of {self.expected} bytes")
        if self.expected < self.brought:
            words.append(
                f"an expect of the {self.brought - self.expected} bytes that copies bring beyond those expected"
            )
        return f"phase {phase} of {self.name}, which lacks {' and '.join(words) or 'nothing'}{self._absent(arriving)}"

    def _absent(self, arriving: Sequence[Op]) -> str:
        """Words for the arrivals that have not come: those of the phase before, or any that the kernel has."""
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


def _phase(number: int) -> str:
    """Words for a phase that is waited for; the one before the first counts as complete."""
    return f"phase {number}" if number >= 0 else "the phase before the first"


def _lines(ops: Sequence[Op]) -> str:
    """Where operations stand, each line once."""
    return " or ".join(dict.fromkeys(str(op.loc) for op in ops))
