"""Warp shuffles, as indexing by thread, and votes."""

from __future__ import annotations

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.layout import WARP_SIZE
from weft.ops import warp
from weft.sim.machine.data import Array, Data, arange, moved
from weft.sim.machine.tasks import Task
from weft.sim.rule import rule
from weft.sim.rules.regs import per_thread


@rule(warp.shuffle_xor)
def _shuffle_xor(task: Task, op: Op, x: Data) -> Data:
    return _taken(task, op, x, arange(task.threads) ^ op.attrs["mask"])


@rule(warp.shuffle_idx)
def _shuffle_idx(task: Task, op: Op, x: Data, lane: Data) -> Data:
    task.demand(op, lane, "a lane number")
    threads: Array = arange(task.threads)
    named = per_thread(task, lane).array[:, 0].astype(np.int64) % WARP_SIZE
    return _taken(task, op, x, threads - threads % WARP_SIZE + named)


@rule(warp.vote)
def _vote(task: Task, op: Op, x: Data) -> Data:
    task.demand(op, x, "a vote")
    flags = per_thread(task, x).array.reshape(-1, WARP_SIZE)
    words: Array = np.packbits(flags, axis=1, bitorder="little").view("<u4")
    return Data(np.repeat(words.astype(np.uint32), WARP_SIZE, axis=0))


def _taken(task: Task, op: Op, x: Data, source: Array) -> Data:
    """Each thread's value of the thread `source`. Raises InactiveLane if a source lane is inactive: its value is undefined in
    `shfl.sync` (PTX ISA, "shfl.sync")."""
    active = task.active
    absent = source >= task.threads
    if active is not None and np.shape(active) == (task.threads, 1):
        away = ~active[:, 0]
        absent = (absent | away[np.minimum(source, task.threads - 1)]) & ~away
    if absent.any():
        thread = int(np.argmax(absent))
        lane = int(source[thread])
        why = "does not exist in this block" if lane >= task.threads else "does not run this line"
        raise task.fail(
            hazard.SHUFFLE_LANE, op, thread=task.names.thread(thread), lane=lane % WARP_SIZE, why=why
        )  # fmt: skip
    if np.ndim(x.array) == 0:
        return x
    within = np.minimum(source, task.threads - 1)
    return moved(x, lambda array: array[within])
