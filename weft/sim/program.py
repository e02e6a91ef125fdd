"""Who and where a program, warp or thread is."""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.layout import WARP_SIZE
from weft.ops import program
from weft.sim.data import Data, arange
from weft.sim.machine import Block
from weft.sim.rules import rule


@rule(program.program_id)
def _program_id(block: Block, op: Op) -> Data:
    return Data(np.int32(block.pid[int(op.attrs["axis"])]))


@rule(program.num_programs)
def _num_programs(block: Block, op: Op) -> Data:
    return Data(np.int32(block.machine.grid[int(op.attrs["axis"])]))


@rule(program.warp_id)
def _warp_id(block: Block, op: Op) -> Data:
    return Data((arange(block.machine.threads, dtype=np.int32) // WARP_SIZE)[:, None])


@rule(program.lane_id)
def _lane_id(block: Block, op: Op) -> Data:
    return Data((arange(block.machine.threads, dtype=np.int32) % WARP_SIZE)[:, None])


@rule(program.thread_id)
def _thread_id(block: Block, op: Op) -> Data:
    return Data(arange(block.machine.threads, dtype=np.int32)[:, None])


@rule(program.uniform)
def _uniform(block: Block, op: Op, x: Data) -> Data:
    return block.uniform(op, x, "a value claimed to be uniform")


@rule(program.barrier)
def _barrier(block: Block, op: Op) -> None:
    """Threads go in step, so for the numbers they have all arrived."""
