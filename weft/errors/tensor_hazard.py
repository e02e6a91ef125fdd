"""Mistakes around tensor memory and the products of tcgen05, found while a kernel ran in the simulator."""

from __future__ import annotations

from weft.errors.base import Hazard, row
from weft.errors.hazard import OutOfBounds, UninitializedRead


class TensorInFlight(Hazard):
    """Tensor memory is read or written while a product or a copy into it is under way."""


class TensorOperandReused(Hazard):
    """Shared or tensor memory is written while a product or a copy of tcgen05 may still read it."""


class TensorRace(Hazard):
    """Two accesses to the same tensor memory, one of them a write, and nothing orders them."""


class TensorOrder(Hazard):
    """An operation of tcgen05 touches tensor memory that an earlier one is still at work on, and nothing orders the two."""


class MissingTensorFence(Hazard):
    """Accesses to tensor memory by different threads that meet at a barrier without the fences of tcgen05."""


class TensorMemoryLanes(Hazard):
    """A warp accesses lanes of tensor memory that other warps reach."""


class TensorMemoryInUse(Hazard):
    """Tensor memory is given back, or the kernel ends, while a product or a copy into it is under way."""


class TensorMemoryKept(Hazard):
    """A kernel ends without giving its tensor memory back."""


COMMIT = "call tcgen05_commit(bar) after the first line, in {other}, and mbarrier.wait(bar, phase) before the second"

TENSOR_IN_FLIGHT = row(
    "hazard-tensor-in-flight",
    TensorInFlight,
    "program {program}: {partition} {access} {name} while the tcgen05 operation that {other} started may still write it",
    COMMIT,
)
TENSOR_OPERAND = row(
    "hazard-tensor-operand-reused",
    TensorOperandReused,
    "program {program}: {partition} {access} {name} while the tcgen05 operation that {other} started may still read it",
    COMMIT,
)
TENSOR_RACE = row(
    "hazard-tensor-race",
    TensorRace,
    "program {program}: {partition} {access} {name}, which {other} {before}, and nothing orders the two",
    "{order}",
)
TENSOR_ORDER = row(
    "hazard-tensor-order",
    TensorOrder,
    "program {program}: {partition} {access} {name}, which {other} {before} and may still be at work on: {why}",
    COMMIT,
)
TENSOR_FENCE_BEFORE = row(
    "hazard-tensor-fence-before",
    MissingTensorFence,
    "program {program}: {partition} {access} {name} after {other} {before} it, and no tcgen05 fence lies between the first "
    "line and the barrier that orders the two",
    "call tcgen05_fence(before=True) after the first line, before the gl.barrier() or mbarrier.arrive() behind it",
)
TENSOR_FENCE_AFTER = row(
    "hazard-tensor-fence-after",
    MissingTensorFence,
    "program {program}: {partition} {access} {name} after {other} {before} it, and no tcgen05 fence lies between the "
    "barrier that orders the two and the second line",
    "call tcgen05_fence(before=False) before the second line, behind the gl.barrier() or mbarrier.wait() above it",
)
TENSOR_RANGE = row(
    "hazard-tensor-memory-range",
    OutOfBounds,
    "program {program} {access} lanes {lanes} and columns {columns} of tensor memory, but {name} has {owned}",
    "keep indices below the leading dimensions of the allocation, and reinterpret no more than its own columns",
)
TENSOR_UNINITIALIZED = row(
    "hazard-tensor-uninitialized",
    UninitializedRead,
    "program {program} {access} {name}, which was never written{where}",
    "write it first: store to it, or wait for a product into it that does not add (use_acc=False)",
)
TENSOR_LANES = row(
    "hazard-tensor-memory-lanes",
    TensorMemoryLanes,
    "program {program}: warp {warp} accesses lane {lane} of tensor memory, but it reaches lanes {first} to {last}",
    "use the layout that get_tmem_reg_layout() gives, and partitions that begin at a multiple of four warps",
)
TENSOR_AT_EXIT = row(
    "hazard-tensor-at-exit",
    TensorMemoryInUse,
    "program {program} ends while the tcgen05 operation that {other} started may still write {name}",
    "call tcgen05_commit(bar) after it, and mbarrier.wait(bar, phase) before the kernel ends",
)
TENSOR_KEPT = row(
    "hazard-tensor-kept",
    TensorMemoryKept,
    "program {program} ends with {columns} columns of tensor memory that it has not given back",
    "leave the kernel where all of its threads come, so that the columns are given back",
)
