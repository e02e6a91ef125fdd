"""The turns of the ranks of a simulated world: their host functions are threads of Python, of which exactly one runs.

A rank hands on between the turns of its programs, when none of them can continue, and where its host function waits for other
ranks. Who is next is a function of the seed: without one, the next rank in order; with one, the rank of highest priority that
can continue. Priorities are drawn anew now and then, so that a rank may stand still until no other can continue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from weft.errors import UserError, fail, hazard
from weft.sim.machine.schedule import stuck, time_out
from weft.sim.machine.tasks import Block

REDRAWN = 1 / 16
"""The probability of new priorities at a turn."""


class Stopped(BaseException):
    """Another rank has failed, which ends this one. No handler of the author's code should see it."""


@dataclass(slots=True)
class Halt:
    """Why a rank does not run: whether it can continue, the blocks of its launch, how many programs have not started, and what
    its host function waits for (empty: nothing)."""

    ready: Callable[[], bool]
    live: Sequence[Block] = ()
    pending: int = 0
    waits: str = ""


@dataclass(slots=True)
class Seat:
    """One rank: its baton, why it halts (None: it can run), and whether its host function has returned."""

    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    halt: Halt | None = None
    done: bool = False


class Turns:
    """Who runs. `failed`: the error that ends all ranks."""

    __slots__ = ("_priorities", "_random", "_seats", "failed")

    def __init__(self, ranks: int, seed: int) -> None:
        self._seats = [Seat() for _ in range(ranks)]
        self._random = Random(seed) if seed else None
        self._priorities = list(range(ranks))
        self.failed: BaseException | None = None

    def begin(self) -> None:
        """Let the first rank run."""
        self._seats[self._next(-1)].baton.release()

    def enter(self, rank: int) -> None:
        """The thread of a rank has started: wait for its turn."""
        self._seats[rank].baton.acquire()
        self._check()

    def turn(self, rank: int) -> None:
        """Another rank may run before this one continues."""
        self._hand_on(rank, self._next(rank))

    def wait(self, rank: int, halt: Halt) -> None:
        """Continue once the rank is ready. Raises Deadlock if no rank can continue."""
        seat = self._seats[rank]
        seat.halt = halt
        while not halt.ready():
            following = self._next(rank)
            if following == rank and not halt.ready() and not self._time_out():
                raise self._deadlock()
            self._hand_on(rank, following)
        seat.halt = None

    def leave(self, rank: int) -> None:
        """The host function of a rank has returned, or failed."""
        self._seats[rank].done = True
        if self.failed is None and not all(seat.done for seat in self._seats):
            following = self._next(rank)
            if following == rank and self._time_out():
                following = self._next(rank)
            if following == rank:
                self.fail(self._deadlock())
            else:
                self._seats[following].baton.release()

    def fail(self, error: BaseException) -> None:
        """End all ranks with an error."""
        self.failed = self.failed or error
        for seat in self._seats:
            seat.baton.release()

    def _check(self) -> None:
        if self.failed is not None:
            raise Stopped

    def _hand_on(self, rank: int, following: int) -> None:
        if following != rank:
            self._seats[following].baton.release()
            self._seats[rank].baton.acquire()
        self._check()

    def _next(self, rank: int) -> int:
        """The rank that runs next; the given one if no other can, whether or not it can itself."""
        ranks = len(self._seats)
        order = [(rank + 1 + step) % ranks for step in range(ranks)]
        if self._random is not None:
            if rank < 0 or self._random.random() < REDRAWN:
                self._random.shuffle(self._priorities)
            order = sorted(range(ranks), key=self._priorities.__getitem__)
        return next((other for other in order if self._able(other)), rank)

    def _able(self, rank: int) -> bool:
        seat = self._seats[rank]
        return not seat.done and (seat.halt is None or seat.halt.ready())

    def _halts(self) -> list[tuple[int, Halt]]:
        return [(rank, seat.halt) for rank, seat in enumerate(self._seats) if seat.halt is not None and not seat.done]

    def _time_out(self) -> bool:
        """No rank can continue: the waits with the shortest time-out give up. Returns whether there is one."""
        return time_out([block for _, halt in self._halts() for block in halt.live])

    def _deadlock(self) -> UserError:
        halts = self._halts()
        live = [block for _, halt in halts for block in halt.live]
        back = [f"rank {rank} has returned" for rank, seat in enumerate(self._seats) if seat.done]
        hosts = [f"rank {rank} waits {halt.waits}" for rank, halt in halts if halt.waits]
        also = "".join(f"; {each}" for each in (*hosts, *back))
        if not live:
            return fail(hazard.RANKS_APART, ranks="; ".join([*hosts, *back]))
        return stuck(live, sum(halt.pending for _, halt in halts), also)
