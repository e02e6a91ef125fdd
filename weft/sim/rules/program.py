"""Identifiers of programs, warps and threads."""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.layout import WARP_SIZE
from weft.ops import program
from weft.sim.machine.data import Data, arange
from weft.sim.machine.tasks import Task
from weft.sim.rule import rule


@rule(program.program_id)
def _program_id(task: Task, op: Op) -> Data:
    return Data(np.int32(task.pid[int(op.attrs["axis"])]))


@rule(program.num_programs)
def _num_programs(task: Task, op: Op) -> Data:
    return Data(np.int32(task.machine.grid[int(op.attrs["axis"])]))


@rule(program.warp_id)
def _warp_id(task: Task, op: Op) -> Data:
    return Data((arange(task.threads, dtype=np.int32) // WARP_SIZE)[:, None])


@rule(program.lane_id)
def _lane_id(task: Task, op: Op) -> Data:
    return Data((arange(task.threads, dtype=np.int32) % WARP_SIZE)[:, None])


@rule(program.thread_id)
def _thread_id(task: Task, op: Op) -> Data:
    return Data(arange(task.threads, dtype=np.int32)[:, None])
