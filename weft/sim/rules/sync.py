"""Barriers of a block and of a warp, fences of memory order, proxy fences, and the order between launches."""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.layout import WARP_SIZE
from weft.ops import sync
from weft.sim.machine.data import Array, arange
from weft.sim.machine.tasks import Meeting, Task
from weft.sim.machine.wait import Run
from weft.sim.rule import rule
from weft.sim.rules.control import meet

BLOCK = -1
"""The number of the barrier between all tasks of a block, distinct from named barriers."""


@rule(sync.barrier)
def _barrier(task: Task, op: Op) -> None:
    """Threads run in lockstep, so a barrier never suspends the task; only the clocks change."""
    task.machine.ordered(op, task.clock.open)
    task.barrier()


@rule(sync.fence_async)
def _fence_async(task: Task, op: Op) -> None:
    task.machine.ordered(op, task.clock.unfenced)
    task.clock.fence()


@rule(sync.schedule_barrier)
def _schedule_barrier(task: Task, op: Op) -> None:
    """The simulator executes operations in their order anyway."""


@rule(sync.fence)
def _fence(task: Task, op: Op) -> None:
    races = task.machine.races
    if races is not None:
        races.fence(task, op, *_fencing(task))


@rule(sync.fence_async_global)
def _fence_async_global(task: Task, op: Op) -> None:
    races = task.machine.races
    if races is not None:
        races.fence_proxy(task, *_fencing(task))


def _fencing(task: Task) -> tuple[Array | None, bool]:
    """The threads that execute a fence (None: all), and whether the code is written per thread. In tile kernels lowering puts
    barriers around a fence that all threads execute; tile IR does not contain them yet, so their order is applied here."""
    func, active = task.machine.func, task.active
    each = func.attrs.block is not None or active is not None
    if not each and not task.machine.lowered and func.attrs.sync != "none":
        task.settled = task.clock.position
    return (None if active is None else np.ravel(np.broadcast_to(active, (task.threads, 1)))), each


@rule(sync.warp_barrier)
def _warp_barrier(task: Task, op: Op) -> None:
    """Control flow is uniform within a warp here: either all threads of a warp arrive or none."""
    active = arange(task.threads) if task.active is None else np.flatnonzero(task.active)
    task.clock.warp_barrier(np.unique(active // WARP_SIZE).tolist())


@rule(sync.block_barrier)
def _block_barrier(task: Task, op: Op) -> Run:
    warps = sum(other.warps for other in task.block.tasks)
    return (yield from meet(task, op, BLOCK, warps, "the barrier of the block"))


@rule(sync.named_barrier)
def _named_barrier(task: Task, op: Op) -> Run:
    number, warps = int(op.attrs["number"]), int(op.attrs["warps"])
    if op.attrs["arrive"]:
        task.block.meetings.setdefault(number, Meeting()).arrive(task.warps, warps, task.clock.release_all())
        return ()
    return (yield from meet(task, op, number, warps, f"named barrier {number} of {warps} warps"))


@rule(sync.gdc_wait)
def _gdc_wait(task: Task, op: Op) -> None:
    task.machine.dependence.wait(task.clock)


@rule(sync.gdc_launch_dependents)
def _gdc_launch_dependents(task: Task, op: Op) -> None:
    if not task.block.released:
        task.block.released = True
        task.machine.dependence.release(task.clock)
