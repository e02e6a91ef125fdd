"""cp.async: asynchronous copies by agents, and the groups by which threads wait for them (PTX ISA, "cp.async")."""

from __future__ import annotations

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ir.types import TileType
from weft.ops import async_copy
from weft.sim.machine import logic
from weft.sim.machine.data import Array, Data, Mark, arange, moved
from weft.sim.machine.hardware import linear_of
from weft.sim.machine.tasks import Task
from weft.sim.memory import global_access as access
from weft.sim.memory import places
from weft.sim.memory.clocks import join
from weft.sim.memory.global_access import Request
from weft.sim.memory.heap import BadAddress
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import Handle
from weft.sim.memory.verdicts import MANY
from weft.sim.numbers.arithmetic import bits_dtype
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import barrier_at
from weft.sim.rules.regs import along, between, per_thread, table_of
from weft.sim.rules.shared import bases, element_of, shared_type

MASKED_OFF = "the copy that writes it is masked off, with `zeros=False`"


@rule(async_copy.global_to_shared)
def _global_to_shared(task: Task, op: Op, handle: Handle, ptr: Data, mask: Data | None) -> None:
    type, pointers = shared_type(op.operands[0]), op.operands[1]
    assert pointers is not None and isinstance(pointers.type, TileType)
    place = places.place_of(task, type, handle, linear_of(pointers.type), reading=False)
    request = Request(task, op, _full(ptr, type.shape), mask, operand=1)
    _start(task, op, handle, place, request, None)


def _full(data: Data, shape: tuple[int, ...]) -> Data:
    return Data(np.broadcast_to(data.array, shape), data.undefined, data.wrapped)


@rule(async_copy.copy)
def _copy(
    task: Task, op: Op, handle: Handle, base: Data, ptr: Data, mask: Data | None, active: Data | None, begin: Data | None,
    end: Data | None, *strides: Data,
) -> None:  # fmt: skip
    """Each thread's copies; inactive ones copy nothing."""
    vec, element = int(op.attrs["vec"]), element_of(op.operands[0])
    constants, *factors = table_of(op, "offsets")
    offset = access.offset_of(constants, strides, factors)
    address = per_thread(task, access.moved_by(ptr, offset, element.itemsize), len(constants))
    elements = bases(task, op, base, "places")[..., None] + arange(vec)
    running = task.under(None if active is None else active.array)
    chosen = np.broadcast_to(True if running is None else running, elements.shape[:2])
    threads = np.broadcast_to(arange(task.threads, dtype=np.int16)[:, None, None], elements.shape)
    if not np.any(chosen):
        return
    _check_aligned(task, op, handle, elements[..., 0], chosen, element.itemsize * vec)
    apart = begin is not None or end is not None
    if apart:
        address, mask = _each(task, address, mask, between(vec, begin, end), element.itemsize)
        vec = 1
    elif vec == 1:
        elements, threads = elements[..., 0], threads[..., 0]
    place = places.some_place(task, handle, element, elements, elements[chosen].ravel(), threads[chosen].ravel())
    with task.only(chosen[..., None] if apart else chosen):
        request = Request(task, op, address, mask, vec, operand=2)
        _start(task, op, handle, place, request, chosen)


def _each(task: Task, address: Data, mask: Data | None, on: Data, itemsize: int) -> tuple[Data, Data]:
    """The address of each element of copies, and its mask: `on`, of the elements of a copy, and the mask of the copy."""
    starts = along(per_thread(task, address, np.shape(address.array)[-1]))
    own = access.moved_by(starts, Data(arange(np.shape(on.array)[-1])), itemsize)
    if mask is not None:
        on = logic.conjunction(along(mask), on)
    return own, moved(on, lambda array: np.broadcast_to(array, np.shape(own.array)))


def _check_aligned(task: Task, op: Op, handle: Handle, starts: Array, chosen: Array, width: int) -> None:
    """Check that active copies write to multiples of their width. Raises Misaligned."""
    first = starts * element_of(op.operands[0]).itemsize + handle.base
    if not int(np.bitwise_or.reduce(first, axis=None)) & (width - 1):
        return
    bad = chosen & (first % width != 0)
    if bad.any():
        thread, access = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        byte, memory = int(first[thread, access]), handle.memory
        raise task.fail(
            hazard.SHARED_MISALIGNED, op, thread=task.names.thread(thread), access="copies into", bytes=width,
            name=memory.name or "shared memory", byte=byte - memory.start, view=task.names.view(op), past=byte % width,
        )  # fmt: skip


def _start(task: Task, op: Op, handle: Handle, place: Place, request: Request, chosen: Array | None) -> None:
    """Start an agent that writes the place's elements `chosen` (None: all): with the values that `request` reads, and with zero
    where its mask is off (the zero-fill of PTX ISA, "cp.async")."""
    places.check_bounds(task, op, handle, place, request.element, "copies into")
    try:
        sources = request.heap.places(request.access)
    except BadAddress:
        raise request.fault("reads") from None
    races, groups = task.machine.races, task.block.cluster.copies[task.slot]
    for touch in () if races is None else request.touches(sources, "read"):
        touch.mode, touch.component, touch.value = "copy", groups.component, groups.batch
        races.touch(touch)  # pyright: ignore[reportOptionalMemberAccess] there are touches only where races are followed
    places.note(task, op, handle, place, "copy", writes=True, component=groups.component, value=groups.batch)

    def move() -> None:
        bits = np.zeros(place.elements.shape, bits_dtype(request.element.itemsize))
        bits[... if request.where is None else request.where] = request.heap.read(request.access, sources)
        at: Array = place.mine if chosen is None else chosen
        at = ... if at is None else at
        places.put(task, handle, place, request.element, place.elements[at], bits[at])
        if request.where is not None and not op.attrs.get("zeros", True):
            off = ~request.where if request.access.vec == 1 else ~request.where[..., None]
            left = Mark(np.broadcast_to(off, place.elements.shape)[at], MASKED_OFF, op.loc)
            places.mark(task, handle, place, request.element, place.elements[at], left)

    running = task.active
    # A thread participates in the group if it made at least one of the copies.
    started = None if running is None else running.reshape(len(running), -1).any(axis=1, keepdims=True)
    groups.add(task.block.agents.start(op, move), started)


@rule(async_copy.commit)
def _commit(task: Task, op: Op) -> None:
    task.block.cluster.copies[task.slot].commit()


@rule(async_copy.wait)
def _wait(task: Task, op: Op) -> None:
    """`cp.async.wait_group` is per thread: only the waiting threads know that their own copies are complete."""
    groups = task.block.cluster.copies[task.slot]
    join(task.clock.each, {groups.component: groups.waited(groups.complete(int(op.attrs["pendings"])), task.active)})


@rule(async_copy.mbarrier_arrive)
def _mbarrier_arrive(task: Task, op: Op, bar: Handle) -> None:
    """`cp.async.mbarrier.arrive`: each thread arrives once its copies so far are complete. A wait for the phase then orders
    the copies of all threads."""
    groups = task.block.cluster.copies[task.slot]
    batches = groups.close()
    agent = task.block.agents.start(op, lambda: groups.finish(batches))
    arrivals = 0 if op.attrs["increment"] else task.threads
    barrier_at(task, op, bar, MANY).arrive_later(op, task.clock, arrivals, {groups.component: batches}, agent)
