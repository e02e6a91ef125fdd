"""Cluster launch control: a running program claims the work of one that has not been launched yet.

    clc.try_cancel(result, bar)              # with mbarrier.expect(bar, 16) before
    mbarrier.wait(bar, phase)
    response = clc.load_result(result)
    if response.is_canceled():
        tile = response.program_id(0)

One thread issues the request. The 16-byte response is written to shared memory asynchronously and signals an mbarrier, as a TMA
load does. Every program of the launch is either launched or claimed by a running one.
"""

from __future__ import annotations

from typing import Any

from weft.errors import cluster as errors
from weft.errors import fail
from weft.ir.types import int64
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.marks import builtin
from weft.language.nvidia.checks import check_own_barrier, demand
from weft.language.runtime_value import name_of, wrap
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import apply, apply_many, tensor
from weft.layout import MBarrierLayout
from weft.layout.cluster import block_shape
from weft.ops import clc as ops

WORDS = 2
"""The size of a response in int64 elements: 16 bytes (PTX ISA, clusterlaunchcontrol.try_cancel)."""


class clc_result:
    """A response in registers: the program that was claimed, if one was left."""

    __weft_aggregate__ = {"low": tensor, "high": tensor}  # noqa: RUF012 as `aggregate` writes it

    low: tensor
    high: tensor

    def __init__(self, low: tensor, high: tensor) -> None:
        self.low = low
        self.high = high

    def __repr__(self) -> str:
        return f"clc_result({self.low!r}, {self.high!r})"

    def is_canceled(self) -> tensor:
        """True if a program was claimed: it will not be launched, and this program does its work."""
        return apply(ops.is_canceled, self.low, self.high)

    def program_id(self, dim: int) -> tensor:
        """The index of that program along grid axis 0, 1 or 2; undefined if there is none.

        Raises clc-dimension."""
        axis = check_int("program_id", dim)
        if axis not in (0, 1, 2):
            raise fail(errors.CLC_DIMENSION, dim=axis)
        return apply(ops.program_id, self.low, self.high, dim=axis)


@builtin
def try_cancel(result: shared_memory_descriptor, barrier: shared_memory_descriptor, multicast: bool = True) -> None:
    """Request a program that has not been launched. The response is written to `result` and counts 16 bytes on the barrier.

    In a cluster, whose CTAs are one program, the first CTA issues the request for all. With `multicast` the response is written
    to the memory of each CTA and signals its barrier, otherwise only the first CTA's. Raises async-target, clc-result,
    cluster-signal, and the errors of an invalid barrier.
    """
    what = "try_cancel"
    demand(what, "cluster launch control")
    answer, bar = _check_result(what, result), check_own_barrier(what, barrier)
    apply_many(ops.try_cancel, (answer, bar), multicast=bool(multicast) and current().num_ctas > 1)


@builtin
def load_result(src: shared_memory_descriptor) -> clc_result:
    """Load a response, after a wait for its barrier. Raises async-target, clc-result."""
    what = "load_result"
    demand(what, "cluster launch control")
    low, high = current().builder.emit(ops.load, _check_result(what, src).handle)
    return clc_result(wrap(low), wrap(high))


def _check_result(what: str, x: Any) -> shared_memory_descriptor:
    """Checks for a buffer of one response in each CTA. Raises clc-result."""
    if not isinstance(x, shared_memory_descriptor) or isinstance(x.layout, MBarrierLayout):
        raise fail(errors.CLC_RESULT, what=what, got=name_of(x))
    t = x.memory
    if (t.element, t.shape) != (int64, (WORDS,)) or block_shape(t.layout.cga, t.alloc_shape) != (WORDS,):
        raise fail(errors.CLC_RESULT, what=what, got=name_of(x))
    return x


__all__ = ["clc_result", "load_result", "try_cancel"]
