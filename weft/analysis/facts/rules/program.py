"""Facts of `weft.ops.program`: the ranges of thread, warp and block indices, from the kernel's launch attributes."""

from __future__ import annotations

from collections.abc import Callable

from weft.analysis.facts.rule import Rule
from weft.analysis.facts.scalar import Scalar, between
from weft.ir.core import Func, Op, OpDef
from weft.ir.types import int32
from weft.layout import WARP_SIZE
from weft.ops import cluster, program

MOST_ALONG = (int32.max_value, 65535, 65535)
"""The largest grid dimensions: 2**31 - 1, 65535, 65535 (CUDA C++ Programming Guide, "Technical Specifications")."""


def _most(op: Op, func: Func) -> int:
    # A grid has less than 2**31 threads along an axis, since global thread indices are int32.
    axis: int = op.attrs["axis"]
    threads: int = (func.attrs.block or (1, 1, 1))[axis]
    blocks: int = 1 if axis else func.attrs.num_ctas
    return min(int32.max_value // (threads * blocks), MOST_ALONG[axis])


PLACES: dict[OpDef, Callable[[Op, Func], Scalar]] = {
    program.thread_id: lambda op, func: between(0, program.threads_of(func) - 1),
    program.lane_id: lambda op, func: between(0, WARP_SIZE - 1),
    program.warp_id: lambda op, func: between(0, (program.threads_of(func) - 1) // WARP_SIZE),
    program.program_id: lambda op, func: between(0, _most(op, func) - 1),
    program.num_programs: lambda op, func: between(1, _most(op, func)),
    cluster.rank: lambda op, func: between(0, func.attrs.num_ctas - 1),
}
RULES: dict[OpDef, Rule] = {}
NOTHING: dict[OpDef, str] = {}
