"""Copies that are carried out while threads go on: when they move their data, and how threads wait for groups of them.

An agent moves its data as late as it may (when somebody needs that it is done, or at the end of the block), at once, or at
random in between. Which one changes numbers of kernels that are wrong, never a verdict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Literal

import numpy as np

from weft.ir.core import Op
from weft.sim.machine.barriers import Agent
from weft.sim.machine.data import Array
from weft.sim.machine.tensor_order import Operation

Schedule = Literal["late", "early", "random"]


class Agents:
    """The agents of a block, in the order in which they were started."""

    __slots__ = ("_random", "_running", "_schedule")

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._running: list[Agent] = []

    def start(self, op: Op, move: Callable[[], None], name: str = "") -> Agent:
        """A new agent; `name` is what reports call the shared memory that it moves data from or to."""
        agent = Agent(op, move, name)
        if self._schedule == "early":
            agent.finish()
            return agent
        self._running = [other for other in self._running if other.move is not None]
        self._running.append(agent)
        self.step()
        return agent

    def step(self) -> None:
        """Time passes: at random, some move their data."""
        if self._schedule == "random":
            for agent in self._running:
                if self._random.random() < 0.25:
                    agent.finish()

    def finish(self) -> None:
        """The block ends."""
        for agent in self._running:
            agent.finish()


class Groups:
    """One task's bulk groups or cp.async batches: `component` counts them. A batch closes at a commit, or where an mbarrier is
    told of it. Where threads part ways, some may start copies, or wait for theirs, and others not."""

    __slots__ = ("_agents", "_committed", "_known", "_unaware", "batch", "component", "positions")

    def __init__(self, component: int) -> None:
        self.component = component
        self.batch = 0
        self._committed: list[int] = []
        self._agents: list[tuple[int, Agent]] = []
        # By batch the threads that started its copies and have not waited for them (None: all), and how many batches at the
        # beginning have no such threads.
        self._unaware: dict[int, Array | None] = {}
        self._known = 0
        # For products, how many events the task had had when each began.
        self.positions: list[int] = []

    def add(self, agent: Agent, threads: Array | None = None) -> None:
        """A copy of the open batch, which these threads (None: all) have started."""
        self._agents.append((self.batch, agent))
        before = self._unaware.get(self.batch, False)
        self._unaware[self.batch] = None if threads is None or before is None else before | threads

    def waited(self, batches: int, threads: Array | None) -> int:
        """These threads (None: all) have waited for the first batches; for how many all that take part in them have."""
        for batch in range(self._known, batches):
            left = self._unaware.get(batch, False)
            self._unaware[batch] = False if threads is None else ~threads if left is None else left & ~threads
        while self._known < batches and not np.any(self._unaware[self._known]):
            del self._unaware[self._known]
            self._known += 1
        return self._known

    def close(self) -> int:
        """Close the batch; the number of batches closed so far."""
        self.batch += 1
        return self.batch

    def commit(self) -> None:
        """Everything since the last commit is a group."""
        self._committed.append(self.close())

    def complete(self, pendings: int) -> int:
        """Wait for all but the latest `pendings` groups; how many batches are complete then."""
        done = len(self._committed) - pendings
        if done <= 0:
            return 0
        self.finish(self._committed[done - 1])
        return self._committed[done - 1]

    def finish(self, batches: int) -> None:
        """Move the data of the first batches."""
        for batch, agent in self._agents:
            if batch < batches:
                agent.finish()
        self._agents = [(batch, agent) for batch, agent in self._agents if batch >= batches]

    @property
    def running(self) -> list[Agent]:
        """The copies that nobody has waited for."""
        return [agent for _, agent in self._agents]


class Pipe:
    """The tcgen05 operations that one task's elected thread has started. Here they are carried out in order, which is one of
    the orders that hardware may choose (`weft.sim.machine.tensor_order` says what may rely on it).

    `component` counts those that are known to be complete, `issued` those that are known to have been started; `count` have
    been, `done` are. `started` says what each is, the one that is about to start included, and `product` is the number of the
    last product among them (-1 before there is one)."""

    __slots__ = ("_waiting", "component", "count", "done", "issued", "product", "started")

    def __init__(self, component: int, issued: int) -> None:
        self.component = component
        self.issued = issued
        self.count = 0
        self.done = 0
        self.started: list[Operation] = []
        self.product = -1
        self._waiting: deque[Callable[[], None]] = deque()

    def begin(self, what: Operation) -> None:
        """An operation is about to start."""
        self.started.append(what)
        if what is not None:
            self.product = self.count

    def add(self, work: Callable[[], None]) -> int:
        """One more operation; how many there are then."""
        self._waiting.append(work)
        self.count += 1
        return self.count

    def run(self, count: int) -> None:
        """Carry out the first `count` operations."""
        while self.done < count:
            self.done += 1
            self._waiting.popleft()()
