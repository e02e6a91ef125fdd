"""Indices of programs, warps and threads."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, refers, spells
from weft.cuda.text.refs import Inline, Ref
from weft.ir.core import Op
from weft.ops import program


def _of_programs(e: Emitter, built_in: str, axis: int) -> str:
    """A count or index of CTAs converted to programs; the CTAs of a program are adjacent along x."""
    blocks = e.func.attrs.num_ctas
    number = f"{built_in}.{'xyz'[axis]}"
    return number if axis or blocks == 1 else f"({number} / {blocks})"


def program_index(e: Emitter, axis: int) -> str:
    """The text of the program's index along an axis of the grid."""
    return _of_programs(e, "blockIdx", axis)


@spells(program.program_id)
def _program_id(e: Emitter, op: Op) -> str:
    if op not in e.kept:
        return f"(int){program_index(e, op.attrs['axis'])}"
    axis, blocks = op.attrs["axis"], e.func.attrs.num_ctas
    number = e.call(f"block_{'xyz'[axis]}")
    return number if axis or blocks == 1 else f"{number} / {blocks}"


@spells(program.num_programs)
def _num_programs(e: Emitter, op: Op) -> str:
    return f"(int){_of_programs(e, 'gridDim', op.attrs['axis'])}"


@refers(program.warp_id)
def _warp_id(e: Emitter, op: Op) -> Ref:
    first = e.partition.first_warp
    if program.threads_of(e.func) % e.target.warp_size:
        # The last warp may be partial, and a shuffle with a full mask requires all lanes.
        return Inline("(int)(threadIdx.x >> 5)")
    return Inline(f"(int)({e.warp} - {first}u)" if first else f"(int){e.warp}")


@spells(program.lane_id)
def _lane_id(e: Emitter, op: Op) -> str:
    return "(int)(threadIdx.x & 31u)"


@spells(program.thread_id)
def _thread_id(e: Emitter, op: Op) -> str:
    first = e.partition.first_warp * e.target.warp_size
    return f"(int)(threadIdx.x - {first}u)" if first else "(int)threadIdx.x"
