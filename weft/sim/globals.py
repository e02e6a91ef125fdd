"""Global memory in the lowered stage: each thread's accesses, several registers in one instruction.

Accesses are arrays (threads, n); the registers that they move form a last axis of `vec`.
"""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.ops import globals as ops
from weft.sim import access
from weft.sim.access import Request
from weft.sim.data import Data, moved
from weft.sim.machine import Task
from weft.sim.regs import per_thread
from weft.sim.rules import rule


def _request(task: Task, op: Op, ptr: Data, mask: Data | None, strides: tuple[Data, ...]) -> Request:
    constants, *factors = (np.array(table, np.int64) for table in op.attrs["offsets"])
    offset = Data(constants)
    for stride, factor in zip(strides, factors, strict=True):
        offset = Data(offset.array + stride.array.astype(np.int64) * factor, stride.undefined, stride.wrapped)
    address = access.moved_by(ptr, offset, access.pointee(op).itemsize)
    return Request(task, op, per_thread(task, address, len(constants)), mask, op.attrs["vec"])


def _grouped(data: Data, op: Op) -> Data:
    """Registers in the order of the accesses: (threads, n), and a last axis of `vec` where that is more than one."""
    vec, registers = op.attrs["vec"], np.array(op.attrs["registers"])
    table = registers if vec > 1 else registers[:, 0]
    return moved(data, lambda array: array[:, table])


@rule(ops.load)
def _load(task: Task, op: Op, ptr: Data, mask: Data | None, other: Data | None, *strides: Data) -> Data:
    request = _request(task, op, ptr, mask, strides)
    loaded = access.load(request, None if other is None else _grouped(other, op))
    # Element k that was read goes to register named[k].
    named = np.array(op.attrs["registers"]).ravel()
    back = np.argsort(named)
    return moved(loaded, lambda array: array.reshape(task.threads, -1)[:, back])


@rule(ops.store)
def _store(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None, *strides: Data) -> None:
    access.store(_request(task, op, ptr, mask, strides), _grouped(value, op))


@rule(ops.atomic)
def _atomic(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None) -> Data:
    return access.atomic(Request(task, op, ptr, mask), op.attrs["kind"], value)


@rule(ops.atomic_cas)
def _atomic_cas(task: Task, op: Op, ptr: Data, compare: Data, value: Data, mask: Data | None) -> Data:
    return access.compare_and_swap(Request(task, op, ptr, mask), compare, value)
