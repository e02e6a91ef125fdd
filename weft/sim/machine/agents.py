"""Asynchronous operations: the moment at which an agent moves its data, and the groups by which threads wait.

An agent moves its data as late as possible (when a completed wait requires it, or at the end of the block), at once, or at a
random moment in between. The choice changes the results of incorrect kernels only; it never changes a verdict.
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
    """The agents of a block, in issue order."""

    __slots__ = ("_random", "_running", "_schedule")

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._running: list[Agent] = []

    def start(self, op: Op, move: Callable[[], None], name: str = "") -> Agent:
        """Start an agent. `name`: the name in reports of the shared memory that it reads or writes."""
        agent = Agent(op, move, name)
        if self._schedule == "early":
            agent.finish()
            return agent
        self._running = [other for other in self._running if other.move is not None]
        self._running.append(agent)
        self.step()
        return agent

    def step(self) -> None:
        """Advance time: under the random schedule, some agents move their data."""
        if self._schedule == "random":
            for agent in self._running:
                if self._random.random() < 0.25:
                    agent.finish()

    def finish(self) -> None:
        """At the end of the block: all agents move their data."""
        for agent in self._running:
            agent.finish()


class Groups:
    """One task's bulk groups, cp.async batches or wgmma groups, which `component` of the clocks counts. A batch closes at a
    commit, or at a `cp.async.mbarrier.arrive`. Under divergence, only some of the threads may start copies or wait.

    For bulk groups, `component` counts those whose sources have been read, and `written` those that have been written."""

    __slots__ = ("_agents", "_committed", "_known", "_unaware", "batch", "component", "positions", "written")

    def __init__(self, component: int, written: int = -1) -> None:
        self.component = component
        self.written = written
        self.batch = 0
        self._committed: list[int] = []
        self._agents: list[tuple[int, Agent]] = []
        # By batch, the threads that started its copies and have not waited for them (None: all); and the number of leading
        # batches without such threads.
        self._unaware: dict[int, Array | None] = {}
        self._known = 0
        # For wgmma, the task's event count when each MMA was issued.
        self.positions: list[int] = []

    def add(self, agent: Agent, threads: Array | None = None) -> None:
        """Add an agent to the open batch. `threads`: the threads that started it (None: all)."""
        self._agents.append((self.batch, agent))
        before = self._unaware.get(self.batch, False)
        self._unaware[self.batch] = None if threads is None or before is None else before | threads

    def waited(self, batches: int, threads: Array | None) -> int:
        """Record that `threads` (None: all) have waited for the first `batches`. Returns the number of leading batches for
        which every participating thread has waited."""
        for batch in range(self._known, batches):
            left = self._unaware.get(batch, False)
            self._unaware[batch] = False if threads is None else ~threads if left is None else left & ~threads
        while self._known < batches and not np.any(self._unaware[self._known]):
            del self._unaware[self._known]
            self._known += 1
        return self._known

    def close(self) -> int:
        """Close the open batch. Returns the number of batches closed so far."""
        self.batch += 1
        return self.batch

    def commit(self) -> None:
        """Commit everything since the last commit as a group."""
        self._committed.append(self.close())

    def complete(self, pendings: int) -> int:
        """Complete all but the latest `pendings` groups. Returns the number of complete batches."""
        done = len(self._committed) - pendings
        if done <= 0:
            return 0
        self.finish(self._committed[done - 1])
        return self._committed[done - 1]

    def finish(self, batches: int) -> None:
        """Move the data of the first `batches` batches."""
        for batch, agent in self._agents:
            if batch < batches:
                agent.finish()
        self._agents = [(batch, agent) for batch, agent in self._agents if batch >= batches]

    @property
    def running(self) -> list[Agent]:
        """The agents that no thread has waited for."""
        return [agent for _, agent in self._agents]


class Pipe:
    """The tcgen05 operations that one task's elected thread has issued. The simulator executes them in issue order, which is
    one of the orders that the hardware may choose (`weft.sim.machine.tensor_order` decides which pairs may rely on it).

    Two components of the clocks: `component` counts completed operations, `issued` counts issued ones. `count` operations
    have been issued, `done` of them executed. `started`: the kind of each operation, including one about to be issued.
    `product`: the number of the last MMA (-1 before there is one)."""

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
        """Announce an operation that is about to be issued."""
        self.started.append(what)
        if what is not None:
            self.product = self.count

    def add(self, work: Callable[[], None]) -> int:
        """Issue an operation. Returns the number issued so far."""
        self._waiting.append(work)
        self.count += 1
        return self.count

    def run(self, count: int) -> None:
        """Execute the first `count` operations."""
        while self.done < count:
            self.done += 1
            self._waiting.popleft()()
