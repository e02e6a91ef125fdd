"""Addresses, global memory and atomics on scalars and tiles."""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.ops import memory
from weft.sim import access
from weft.sim.access import Request
from weft.sim.data import Data
from weft.sim.machine import Task
from weft.sim.rules import rule


@rule(memory.addptr)
def _addptr(task: Task, op: Op, ptr: Data, offset: Data) -> Data:
    return access.moved_by(ptr, offset, access.pointee(op).itemsize)


@rule(memory.load)
def _load(task: Task, op: Op, ptr: Data, mask: Data | None, other: Data | None) -> Data:
    return access.load(Request(task, op, ptr, mask), other)


@rule(memory.store)
def _store(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None) -> None:
    access.store(Request(task, op, _stretched(ptr, value), mask), value)


@rule(memory.atomic)
def _atomic(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None) -> Data:
    return access.atomic(Request(task, op, _stretched(ptr, value), mask), op.attrs["kind"], value)


@rule(memory.atomic_cas)
def _atomic_cas(task: Task, op: Op, ptr: Data, compare: Data, value: Data) -> Data:
    return access.compare_and_swap(Request(task, op, _stretched(ptr, compare, value), None), compare, value)


def _stretched(ptr: Data, *others: Data) -> Data:
    """An address for each thread, where the block's one address meets values that threads have of their own."""
    if np.ndim(ptr.array) or not any(np.ndim(other.array) for other in others):
        return ptr
    array, *_ = np.broadcast_arrays(ptr.array, *[other.array for other in others])
    return Data(array, ptr.undefined, ptr.wrapped)
