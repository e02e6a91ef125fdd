"""Cluster launch control (PTX ISA, "clusterlaunchcontrol.try_cancel"): the program that a request claims, and its response.

A request claims its program at once, in launch order. An agent writes the response in the async proxy and completes its bytes
on the mbarrier. PTX keeps the 16 bytes opaque, to be decoded by `clusterlaunchcontrol.query_cancel`. Here they are four int32:
the program's coordinates, and 1 if there is a program.
"""

from __future__ import annotations

import numpy as np

from weft.errors import Loc, hazard
from weft.ir.core import Op
from weft.ir.types import int64
from weft.ops import clc
from weft.sim.machine.data import Array, Data, Mark, arange, undefined_in, union
from weft.sim.machine.pending import Response
from weft.sim.machine.programs import Pid
from weft.sim.machine.tasks import Block, Task
from weft.sim.memory import places
from weft.sim.memory.events import ELECTED
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.memory.verdicts import MANY
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import barrier_at, peer

HALF = np.int64(32)
LOW_HALF = np.int64(0xFFFFFFFF)
NO_PROGRAM = "the response names no program"


@rule(clc.try_cancel)
def _try_cancel(task: Task, op: Op, result: Handle, bar: Handle) -> None:
    if task.rank:
        return
    cluster = task.block.cluster
    for refused in cluster.refused:
        if task.clock.known.get(refused.component, 0) > refused.value:
            error = task.fail(hazard.CLC_AFTER_NONE, op, partition=task.block.partition(task.slot))
            error.related = _request_line(refused)
            raise error
    if result.base % clc.RESPONSE_BYTES:
        byte = result.base - result.memory.start
        raise task.fail(hazard.CLC_ALIGNMENT, op, byte=byte, name=result.memory.name)
    program = task.machine.pending.cancel()
    receivers = cluster.blocks if op.attrs["multicast"] else cluster.blocks[:1]
    response: Response | None = None
    for block in receivers:
        response = _respond(task, op, result, bar, peer(task, op, block.rank), program, response)


def _respond(
    task: Task, op: Op, result: Handle, bar: Handle, block: Block, program: Pid | None, response: Response | None
) -> Response:
    """Start the write of the response to a block and its mbarrier. `response`: the one sent to another block, if multicast."""
    barrier = barrier_at(task, op, bar, ELECTED, block)
    place = _place(task, result, ELECTED)
    places.check_bounds(task, op, result, place, int64, "requests a response in")
    places.note(
        task, op, result, place, "response", writes=True, component=barrier.component, value=barrier.completed, block=block
    )  # fmt: skip
    if response is None:
        response = Response(op, program, barrier.component, barrier.completed)
    block.expect_response(result.base, response)

    def move() -> None:
        places.put(task, result, place, int64, place.elements, _encoded(program), block)

    barrier.bring(op, task.clock, clc.RESPONSE_BYTES, task.block.agents.start(op, move))
    return response


def _place(task: Task, result: Handle, threads: int) -> Place:
    return places.place_at(result.base, arange(2), int64.itemsize, task.block.store(SHARED).granule, threads)


def _encoded(program: Pid | None) -> Array:
    x, y, z = program or (0, 0, 0)
    return np.array([x, y, z, program is not None], np.int32).view(np.uint64)


@rule(clc.load)
def _load(task: Task, op: Op, result: Handle) -> tuple[Data, Data]:
    found = places.read(task, op, result, _place(task, result, MANY), int64)
    response = task.block.responses.get(result.base)
    if response is not None:
        response.used = True
    mark = found.undefined
    low, high = (Data(half, mark and Mark(mark.mask[i], mark.cause, mark.loc)) for i, half in enumerate(found.array))
    return low, high


@rule(clc.is_canceled)
def _is_canceled(task: Task, op: Op, low: Data, high: Data) -> Data:
    return Data(high.array >> HALF != 0, undefined_in((low, high)))


@rule(clc.program_id)
def _program_id(task: Task, op: Op, low: Data, high: Data) -> Data:
    dim = int(op.attrs["dim"])
    half = high.array if dim == 2 else low.array
    number = half >> HALF if dim == 1 else half & LOW_HALF
    nothing = high.array >> HALF == 0
    mark = Mark(nothing, NO_PROGRAM, op.loc) if np.any(nothing) else None
    return Data(number.astype(np.int32), union(undefined_in((low, high)), mark))


def _request_line(response: Response) -> tuple[tuple[str, Loc], ...]:
    return () if response.op.loc is None else (("that one was requested here", response.op.loc),)
