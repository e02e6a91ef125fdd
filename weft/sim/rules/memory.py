"""Address arithmetic, global memory and atomics, on scalars, tiles and register arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.ir.core import Op
from weft.ops import memory
from weft.sim.machine import late, logic
from weft.sim.machine.data import Array, Data, arange, moved
from weft.sim.machine.tasks import Task
from weft.sim.machine.wait import PollWait, Run
from weft.sim.memory import global_access as access
from weft.sim.memory.global_access import Request
from weft.sim.memory.heap import HeapAccess
from weft.sim.rule import rule
from weft.sim.rules.control import Overtaken
from weft.sim.rules.regs import along, between, flattened, per_thread, table_of


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


@rule(memory.poll)
def _poll(task: Task, op: Op, ptr: Data, expected: Data, timeout: Data | None, *_: Data) -> Run:
    return (yield from _polled(task, op, _stretched(ptr, expected), expected, None, timeout))


def _polled(task: Task, op: Op, ptr: Data, expected: Data, mask: Data | None, timeout: Data | None) -> Run:
    """Wait until each active element has held the expected value. Without a time-out everything after that is ordered."""
    machine, request = task.machine, Request(task, op, ptr, mask)
    if timeout is not None:
        task.demand(op, timeout, "a time-out")
    longest = None if timeout is None else int(np.max(timeout.array))
    wanted, met = access.awaited(request, expected)
    since: int | None = None
    while not met.all() and longest != 0:
        left = HeapAccess(np.asarray(request.access.addresses)[~met], request.access.itemsize)
        wait = PollWait(op.loc, machine, left, wanted[~met], longest)
        since = machine.started if since is None else since
        yield wait
        if wait.expired:
            break
        met = met | access.awaited(request, expected)[1]
    result = access.poll_ended(request, met, expected)
    if timeout is None and machine.races is not None:
        task.clock.learned.decided(1 << machine.steering.readers[op])
    if machine.member is None:
        late.advise(task, op, since if met.any() else None)
    if machine.overtakes():
        yield Overtaken(op.loc)
    return (result,)


def _stretched(ptr: Data, *others: Data) -> Data:
    """A uniform address, broadcast to all threads if another operand differs between threads."""
    if np.ndim(ptr.array) or not any(np.ndim(other.array) for other in others):
        return ptr
    array, *_ = np.broadcast_arrays(ptr.array, *[other.array for other in others])
    return Data(array, ptr.undefined, ptr.wrapped)


# Register arrays: accesses are (threads, n) arrays, with a last axis for the `vec` registers of a vector access


def _request(task: Task, op: Op, ptr: Data, mask: Data | None, strides: tuple[Data, ...]) -> Request:
    constants, *factors = table_of(op, "offsets")
    offset = access.offset_of(constants, strides, factors)
    address = access.moved_by(ptr, offset, access.pointee(op).itemsize)
    return Request(task, op, per_thread(task, address, len(constants)), mask, op.attrs["vec"])


def _grouped(data: Data, op: Op) -> Data:
    """Registers in the order of the accesses: (threads, n), with a last axis of `vec` if that is more than one."""
    registers = table_of(op, "registers")
    if registers.shape == (1, 1) and np.shape(data.array)[-1] == 1:
        return data
    table = registers if op.attrs["vec"] > 1 else registers[:, 0]
    return moved(data, lambda array: array[:, table])


@rule(memory.load_regs)
def _load_regs(task: Task, op: Op, ptr: Data, mask: Data | None, other: Data | None, *strides: Data) -> Data:
    request = _request(task, op, ptr, mask, strides)
    loaded = access.load(request, None if other is None else _grouped(other, op))
    back = _back(op)
    if back is None:
        return moved(loaded, lambda array: array.reshape(task.threads, -1))
    return moved(loaded, lambda array: array.reshape(task.threads, -1)[:, back])


def _part(
    task: Task, op: Op, ptr: Data, mask: Data, begin: Data | None, end: Data | None, strides: tuple[Data, ...]
) -> Request:
    """The elements of each access from number `begin` to before `end`, as accesses of their own: (threads, n * vec)."""
    vec, n, size = op.attrs["vec"], len(op.attrs["registers"]), access.pointee(op).itemsize
    constants, *factors = table_of(op, "offsets")
    on = flattened(task, logic.conjunction(along(mask), between(vec, begin, end)), n, vec)
    starts = per_thread(task, access.moved_by(ptr, access.offset_of(constants, strides, factors), size), n)
    every = moved(starts, lambda array: np.repeat(array, vec, 1))
    address = access.moved_by(every, Data(np.tile(arange(vec), n)), size)
    return Request(task, op, address, on)


@rule(memory.load_part)
def _load_part(
    task: Task, op: Op, ptr: Data, x: Data, mask: Data, begin: Data | None, end: Data | None, *strides: Data
) -> Data:
    table = table_of(op, "registers").ravel()
    loaded = access.load(_part(task, op, ptr, mask, begin, end, strides), moved(x, lambda array: array[:, table]))
    return moved(loaded, lambda array: array[:, np.argsort(table)])


@rule(memory.store_part)
def _store_part(
    task: Task, op: Op, ptr: Data, value: Data, mask: Data, begin: Data | None, end: Data | None, *strides: Data
) -> None:
    each = moved(value, lambda array: array[:, table_of(op, "registers").ravel()])
    access.store(_part(task, op, ptr, mask, begin, end, strides), each)


@lru_cache(maxsize=4096)
def _back(op: Op) -> Array | None:
    """For each register, the index of the element that it receives; None if registers are in access order."""
    # Element k of the access goes to register `registers[k]`; this is the inverse permutation.
    back = np.argsort(table_of(op, "registers").ravel())
    return None if (back == arange(back.size)).all() else back


@rule(memory.store_regs)
def _store_regs(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None, *strides: Data) -> None:
    access.store(_request(task, op, ptr, mask, strides), _grouped(value, op))


@rule(memory.atomic_regs)
def _atomic_regs(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None) -> Data:
    return access.atomic(Request(task, op, ptr, mask), op.attrs["kind"], value)


@rule(memory.reduce_regs)
def _reduce_regs(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None, *strides: Data) -> None:
    """Element by element, as PTX defines it."""
    vec, size = op.attrs["vec"], access.pointee(op).itemsize
    constants, *factors = table_of(op, "offsets")
    first = access.moved_by(ptr, access.offset_of(constants, strides, factors), size)
    starts = moved(per_thread(task, first, len(constants)), lambda array: np.repeat(array, vec, 1))
    address = access.moved_by(starts, Data(np.tile(arange(vec), len(constants))), size)
    on = None if mask is None else moved(per_thread(task, mask, len(constants)), lambda array: np.repeat(array, vec, 1))
    each = moved(value, lambda array: array[:, table_of(op, "registers").ravel()])
    access.atomic(Request(task, op, address, on), op.attrs["kind"], each)


@rule(memory.atomic_cas_regs)
def _atomic_cas_regs(task: Task, op: Op, ptr: Data, compare: Data, value: Data, mask: Data | None) -> Data:
    return access.compare_and_swap(Request(task, op, ptr, mask), compare, value)


@rule(memory.poll_regs)
def _poll_regs(task: Task, op: Op, ptr: Data, expected: Data, mask: Data | None, timeout: Data | None, *_: Data) -> Run:
    return (yield from _polled(task, op, ptr, expected, mask, timeout))
