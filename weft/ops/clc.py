"""Cluster launch control: a running program takes over the work of one that has not been launched yet.

    clc.try_cancel %result, %bar                ask; 16 bytes of answer come to shared memory, and arrive on the barrier
    %low, %high = clc.load %result
    %taken = clc.is_canceled %low, %high        whether there was one left
    %x = clc.program_id %low, %high {dim=0}     which

(PTX ISA, clusterlaunchcontrol.)
"""

from __future__ import annotations

from weft.ir.core import Effect, Value
from weft.ir.define import op, reads
from weft.ir.types import ScalarType, SharedArrayType, Type, int1, int32, int64
from weft.ops.check import barrier, require, scalar, shared

ANSWER_BYTES = 16
"""Bytes of an answer, and its alignment."""

ASKS = (
    Effect("write", "shared", "result", "async", "mbarrier", by="elected"),
    Effect("update", "shared", "bar", "async", by="elected"),
)


@op("clc.try_cancel", effects=ASKS, needs="block")
def try_cancel(result: Value, bar: Value, multicast: bool = False) -> None:
    """Ask for a program that has not been launched. The answer comes to `result`, two int64, its bytes to the barrier's phase.

    In a cluster one request is made for all blocks, by the first, and with `multicast` the answer comes to each block's memory
    and barrier."""
    _answer(result)
    barrier(bar)


@op("clc.load", effects=(reads("result", "shared"),), needs="block")
def load(result: Value) -> tuple[Type, ...]:
    """An answer that has come, as two scalars."""
    _answer(result)
    return ScalarType(int64), ScalarType(int64)


@op("clc.is_canceled")
def is_canceled(low: Value, high: Value) -> Type:
    """Whether an answer names a program, which will not be launched."""
    _halves(low, high)
    return ScalarType(int1)


@op("clc.program_id")
def program_id(low: Value, high: Value, dim: int) -> Type:
    """The index of the program that an answer names; undefined where it names none. Programs are clusters."""
    _halves(low, high)
    require(dim in (0, 1, 2), "there is no dimension {}", dim)
    return ScalarType(int32)


def _answer(result: Value) -> None:
    t = result.type
    if isinstance(t, SharedArrayType):
        require((t.element, t.count) == (int64, 2), "an answer is two int64, not {}", t)
        return
    t = shared(result)
    require((t.element, t.shape) == (int64, (2,)), "an answer is two int64, not {}", t)


def _halves(low: Value, high: Value) -> None:
    scalar(low, int64)
    scalar(high, int64)
