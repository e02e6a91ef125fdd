"""The cluster's barrier (PTX ISA, "barrier.cluster"), and the rank of a block."""

from __future__ import annotations

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ops import cluster
from weft.sim.machine.data import Data
from weft.sim.machine.tasks import Task
from weft.sim.machine.wait import Run, Wait
from weft.sim.memory.clocks import Released
from weft.sim.rule import rule


@rule(cluster.rank)
def _rank(task: Task, op: Op) -> Data:
    return Data(np.int32(task.rank))


@rule(cluster.arrive)
def _arrive(task: Task, op: Op) -> None:
    """Each thread's arrival is a release unless it is relaxed."""
    if task.arrived != task.awaited:
        raise task.fail(hazard.CLUSTER_PAIR, op, what="arrives at", wanted="cluster.wait()")
    rounds = task.block.cluster.rounds
    if task.arrived == len(rounds):
        rounds.append(Released())
    task.sealed = -1, -1
    if not op.attrs["relaxed"]:
        task.sealed = task.clock.position, task.block.events
        rounds[task.arrived].join(task.clock.release_all())
    task.arrived += 1


class ClusterWait(Wait):
    """A task that waits at the barrier of its cluster."""

    __slots__ = ("_task",)

    def __init__(self, op: Op, task: Task) -> None:
        super().__init__(op.loc)
        self._task = task

    def _missing(self) -> list[Task]:
        """The tasks that have not arrived. The barrier waits for non-exited threads only (PTX ISA, "barrier.cluster")."""
        return [other for other in self._task.block.cluster.tasks if other.arrived < self._task.arrived]

    def ready(self) -> bool:
        """True if all tasks have arrived."""
        return not self._missing()

    def words(self) -> str:
        """Message text for the tasks that have not arrived."""
        missing = ", ".join(other.block.partition(other.slot) for other in self._missing())
        return f" at the barrier of the cluster, to which {missing} has not come"


@rule(cluster.wait)
def _wait(task: Task, op: Op) -> Run:
    if task.arrived == task.awaited:
        raise task.fail(hazard.CLUSTER_PAIR, op, what="waits at", wanted="cluster.arrive()")
    wait = ClusterWait(op, task)
    if not wait.ready():
        yield wait
    task.awaited += 1
    task.clock.acquire(task.block.cluster.rounds[task.arrived - 1])
    position, events = task.sealed
    if position == task.clock.position:
        task.clock.barrier()
    if events >= 0:
        task.block.meet(task.clock, events)
    return ()
