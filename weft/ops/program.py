"""Indices of programs, warps and threads."""

from __future__ import annotations

from math import prod

from weft.ir.core import Func
from weft.ir.define import op
from weft.ir.types import ScalarType, Type, int32
from weft.layout import WARP_SIZE
from weft.ops.check import require


@op("program.id")
def program_id(axis: int) -> Type:
    """Index of this program along grid axis 0, 1 or 2."""
    require(axis in (0, 1, 2), "a grid has axes 0, 1 and 2")
    return ScalarType(int32)


@op("program.count")
def num_programs(axis: int) -> Type:
    """Number of programs along grid axis 0, 1 or 2."""
    require(axis in (0, 1, 2), "a grid has axes 0, 1 and 2")
    return ScalarType(int32)


@op("program.warp", scope="warp")
def warp_id() -> Type:
    """Index of the executing warp in its block (in its partition under warp specialisation)."""
    return ScalarType(int32)


@op("program.lane", scope="thread")
def lane_id() -> Type:
    """Index of the executing thread in its warp."""
    return ScalarType(int32)


@op("program.thread", scope="thread")
def thread_id() -> Type:
    """Index of the executing thread in its block (in its partition under warp specialisation): warp * 32 + lane."""
    return ScalarType(int32)


def threads_of(func: Func) -> int:
    """The number of threads of a block: given by a launch with `block=`, else that of the warps of all partitions."""
    attrs = func.attrs
    if attrs.block is not None and attrs.total_warps is None:
        return prod(attrs.block)
    return attrs.warps_of_block * WARP_SIZE
