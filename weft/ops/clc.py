"""Cluster launch control: a running program cancels one that has not been launched yet and does its work.

    clc.try_cancel %result, %bar                request; a 16-byte response is written and completes bytes of the mbarrier
    %low, %high = clc.load %result
    %taken = clc.is_canceled %low, %high        whether a program was cancelled
    %x = clc.program_id %low, %high {dim=0}     its index

(PTX ISA, clusterlaunchcontrol.)
"""

from __future__ import annotations

from weft.ir.core import Effect, Value
from weft.ir.define import op, reads
from weft.ir.types import ScalarType, SharedArrayType, Type, int1, int32, int64
from weft.ops.check import barrier, require, scalar, shared

RESPONSE_BYTES = 16
"""The size and alignment of a response in bytes."""

REQUEST = (
    Effect("write", "shared", "result", "async", "mbarrier", by="elected"),
    Effect("update", "shared", "bar", "async", by="elected"),
)


@op("clc.try_cancel", effects=REQUEST, needs="block")
def try_cancel(result: Value, bar: Value, multicast: bool = False) -> None:
    """Request to cancel a program that has not been launched. The response, two int64, is written to `result` asynchronously;
    its bytes complete on the mbarrier.

    In a cluster the first block issues one request for all blocks. With `multicast` the response is written to the memory of
    each block and completes on each block's mbarrier."""
    _check_response(result)
    barrier(bar)


@op("clc.load", effects=(reads("result", "shared"),), needs="block")
def load(result: Value) -> tuple[Type, ...]:
    """A response that has arrived, as two scalars."""
    _check_response(result)
    return ScalarType(int64), ScalarType(int64)


@op("clc.is_canceled")
def is_canceled(low: Value, high: Value) -> Type:
    """Whether a request succeeded: the program of the response is cancelled and will not be launched."""
    _halves(low, high)
    return ScalarType(int1)


@op("clc.program_id")
def program_id(low: Value, high: Value, dim: int) -> Type:
    """The index of the cancelled program in a response; undefined if none was cancelled. Programs are clusters."""
    _halves(low, high)
    require(dim in (0, 1, 2), "there is no dimension {}", dim)
    return ScalarType(int32)


def _check_response(result: Value) -> None:
    t = result.type
    if isinstance(t, SharedArrayType):
        require((t.element, t.count) == (int64, 2), "a response is two int64, not {}", t)
        return
    t = shared(result)
    require((t.element, t.shape) == (int64, (2,)), "a response is two int64, not {}", t)


def _halves(low: Value, high: Value) -> None:
    scalar(low, int64)
    scalar(high, int64)
