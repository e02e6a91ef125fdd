"""Puts by NVSHMEM, and signals that follow them.

A put is made by an actor of its own, one for each task and rank that it puts to, whose clock begins with what the task knows.
It moves its data when a quiet or a signal to that rank requires it, at the end of the block, or at a random moment before. A
quiet joins the clocks of these actors to the task's, a signal that of its rank's to what it publishes.
"""

from __future__ import annotations

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ops import nvshmem
from weft.sim.machine.data import Data, arange
from weft.sim.machine.tasks import Task
from weft.sim.memory import global_access as access
from weft.sim.memory.global_access import Request
from weft.sim.memory.heap import BadAddress, GlobalPlace
from weft.sim.memory.learned import later
from weft.sim.rule import rule


@rule(nvshmem.put)
def _put(task: Task, op: Op, ptr: Data, source: Data, count: Data, pe: Data) -> None:
    for data, sink in ((count, "a number of elements"), (pe, "a rank")):
        task.demand(op, data, sink)
    _settle(task)
    size = int(np.ravel(count.array)[0])
    if size <= 0:
        return
    into, target = _elements(task, op, ptr, 0, size, "writes")
    origin, read = _elements(task, op, source, 1, size, "reads")
    member, races = task.machine.member, task.machine.races
    # Memory of NVSHMEM is that of a world.
    assert member is not None
    rank = member.rank_of(target.segment.buffer.data)
    assert rank is not None
    if member.rank_of(read.segment.buffer.data) != member.rank:
        raise task.fail(hazard.PUT_LOCAL, op, name=read.segment.buffer.name)
    if races is not None:
        known = races.present(task, op)
        actor = task.machine.log.puts.get((task.number, rank))
        if actor is None:
            actor = task.machine.log.puts[task.number, rank] = member.puts(task.pid, known)
        actor.clock.learned.world = later(actor.clock.learned.world, known)
        member.access(actor, op, "read", read, origin.element.itemsize)
        member.access(actor, op, "write", target, into.element.itemsize)
    heap = task.machine.heap
    agent = task.block.agents.start(op, lambda: heap.write(into.access, heap.read(origin.access)))
    task.block.puts.setdefault((task.number, rank), []).append(agent)


def _elements(
    task: Task, op: Op, start: Data, operand: int, count: int, verb: str
) -> tuple[Request, GlobalPlace]:  # fmt: skip
    """Consecutive elements, and their place."""
    pointer = Data(np.ravel(start.array)[:1], start.undefined, start.wrapped)
    every = access.moved_by(pointer, Data(arange(count)), access.pointee(op, operand).itemsize)
    request = Request(task, op, every, None, operand=operand)
    try:
        (place,) = request.heap.places(request.access)
    except BadAddress:
        raise request.fault(verb) from None
    return request, place


@rule(nvshmem.quiet)
def _quiet(task: Task, op: Op) -> None:
    _settle(task)
    races = task.machine.races
    for (number, rank), agents in task.block.puts.items():
        if number != task.number:
            continue
        for agent in agents:
            agent.finish()
        agents.clear()
        actor = task.machine.log.puts.get((number, rank))
        if races is not None and actor is not None:
            task.clock.learned.world = later(task.clock.learned.world, races.published.after(actor))


@rule(nvshmem.acquire)
def _acquire(task: Task, op: Op) -> None:
    """The poll before it has acquired; here is no network that would still have to write."""
    _settle(task)


@rule(nvshmem.signal)
def _signal(task: Task, op: Op, ptr: Data, value: Data, pe: Data) -> None:
    _send(task, op, ptr, value, None)


@rule(nvshmem.signal_regs)
def _signal_regs(task: Task, op: Op, ptr: Data, value: Data, pe: Data, mask: Data | None) -> None:
    _send(task, op, ptr, value, mask)


def _send(task: Task, op: Op, ptr: Data, value: Data, mask: Data | None) -> None:
    request = Request(task, op, ptr, mask)
    for place in request.heap.places(request.access):
        pad = place.segment.buffer.signals
        agents = [] if pad is None else task.block.puts.get((task.number, pad.rank), [])
        for agent in agents:
            agent.finish()
        agents.clear()
    access.atomic(request, "add", value)


def _settle(task: Task) -> None:
    """Lowering puts barriers around these operations. Tile IR does not contain them yet, so their order is applied here."""
    attrs = task.machine.func.attrs
    if not task.machine.lowered and attrs.sync != "none" and attrs.block is None:
        task.settled = task.clock.position
