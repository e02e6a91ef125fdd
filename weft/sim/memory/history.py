"""What was recorded about accesses to global memory: the events, the last ones at each granule, and what releases published.

A launch has a history of its own. The launches of all ranks of a simulated world (`weft.sim.machine.world`) share one, so that
an access is judged against those of other ranks and of earlier launches. Tasks, programs and events are numbered across all of
them. This class records and judges nothing; `weft.sim.memory.races` and `weft.sim.memory.published` do.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from weft.ir.core import Op
from weft.sim.machine.data import Array
from weft.sim.memory.events import EventMode
from weft.sim.memory.learned import Known
from weft.sim.memory.tracks import PLAIN, Actor, Tracks

Address: TypeAlias = "int | tuple[int, str]"
"""An address, relative to the first segment over the storage; or the whole storage, for accesses with many addresses."""
Reach: TypeAlias = "int | tuple[int, int] | tuple[str, int] | None"
"""The scope of a release: all programs (None), in a world those of one rank ("rank" and its number), a cluster, or one block of
a cluster."""


class History:
    """The events of one launch, or of all launches of a world. Event 0 stands for no event.

    For each event: its task, its number in the task, the component and the value that complete it (for an asynchronous copy),
    its operation, its mode and whether it writes. `unsettled`: by program, events of asynchronous copies whose completion no
    release has published yet. `programs` and `tasks` count those that have started; `of_task` has the program of each task, and
    `launches` the launch of each program."""

    __slots__ = (
        "components", "count", "fences", "kinds", "known", "launches", "of_task", "ops", "owners", "pids", "places",
        "positions", "programs", "puts", "ranks", "releasers", "senders", "signals", "tasks", "tracks", "unsettled", "values",
    )  # fmt: skip

    def __init__(self, ranks: int = 0) -> None:
        # The number of ranks of the world; 0 without one.
        self.ranks = ranks
        self.programs = self.tasks = 0
        self.of_task: list[int] = []
        self.launches: list[int] = []
        self.pids: dict[int, tuple[int, int, int]] = {}
        self.tracks: dict[int, Tracks] = {}
        self.count = 1
        self.owners: Array = np.zeros(1024, np.int32)
        self.positions: Array = np.full(1024, -1, np.int32)
        self.components: Array = np.full(1024, PLAIN, np.int32)
        self.values: Array = np.zeros(1024, np.int32)
        self.ops: list[Op | None] = [None]
        self.kinds: list[tuple[EventMode, bool]] = [("generic", False)]
        self.unsettled: dict[int, list[int]] = {}
        # What releases have published, by address and scope, and the task that released there last.
        self.known: dict[tuple[Address, Reach], Known] = {}
        self.releasers: dict[tuple[Address, Reach], int] = {}
        # By address and scope, what each signal published, joined with those before it; and the last signal.
        self.signals: dict[tuple[int, Reach], list[Known]] = {}
        self.senders: dict[int, tuple[tuple[int, int, int], Op]] = {}
        # By task and rank, the actor of its puts to that rank.
        self.puts: dict[tuple[int, int], Actor] = {}
        # By task, its last fences (`weft.sim.memory.published.Fenced`).
        self.fences: dict[int, list[Any]] = {}
        # The length of the clocks: at least one more than the tasks that have started, so that the last count is always 0.
        self.places = 2

    def begin(self, tasks: int, launch: int) -> tuple[int, int]:
        """Number a program with its tasks; returns the program's number and the first task's."""
        program, first = self.programs, self.tasks
        self.programs += 1
        self.tasks += tasks
        self.of_task += [program] * tasks
        self.launches.append(launch)
        return program, first

    def room(self) -> int:
        """The length of clocks that have a count for every task that has started."""
        while self.tasks >= self.places:
            self.places *= 2
        return self.places

    def grow(self) -> int:
        """The number of a new event, for which there is room in the arrays."""
        number = self.count
        if number == self.owners.size:
            self.owners = np.append(self.owners, np.zeros(number, np.int32))
            self.positions = np.append(self.positions, np.zeros(number, np.int32))
            self.components = np.append(self.components, np.full(number, PLAIN, np.int32))
            self.values = np.append(self.values, np.zeros(number, np.int32))
        self.count += 1
        return number
