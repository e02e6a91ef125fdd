"""Who and where a program, warp or thread is; block barriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda.refs import Ref
from weft.cuda.rules import emits, refers, spells
from weft.ir.core import Op
from weft.ops import program

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter


@spells(program.program_id)
def _program_id(e: Emitter, op: Op) -> str:
    return f"(int)blockIdx.{'xyz'[op.attrs['axis']]}"


@spells(program.num_programs)
def _num_programs(e: Emitter, op: Op) -> str:
    return f"(int)gridDim.{'xyz'[op.attrs['axis']]}"


@spells(program.warp_id)
def _warp_id(e: Emitter, op: Op) -> str:
    # By way of a shuffle, so that ptxas sees that a warp's threads agree.
    return "(int)__shfl_sync(0xffffffffu, threadIdx.x >> 5, 0)"


@spells(program.lane_id)
def _lane_id(e: Emitter, op: Op) -> str:
    return "(int)(threadIdx.x & 31u)"


@spells(program.thread_id)
def _thread_id(e: Emitter, op: Op) -> str:
    return "(int)threadIdx.x"


@refers(program.uniform)
def _uniform(e: Emitter, op: Op) -> Ref:
    (x,) = op.uses
    return e.refs[x]


@emits(program.barrier)
def _barrier(e: Emitter, op: Op) -> None:
    e.out.line("__syncthreads();")
