"""Shared memory that the author allocates: handles are values, what they point to lies in the block's memory."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op, Value
from weft.ir.types import SharedType, TileType
from weft.layout import LinearLayout, MBarrierLayout, PaddedSharedLayout
from weft.layout.shared_size import allocation_bytes
from weft.ops import shared
from weft.sim import places
from weft.sim.data import Array, Data, arange, where
from weft.sim.hardware import linear_of, owners_of, part_of, readers_of
from weft.sim.machine import Task
from weft.sim.places import Place
from weft.sim.rules import rule
from weft.sim.shared_memory import Handle
from weft.sim.verdicts import MANY


def shared_type(value: Value | None) -> SharedType:
    """The type of a handle."""
    assert value is not None and isinstance(value.type, SharedType)
    return value.type


def _tile(value: Value | None) -> TileType:
    assert value is not None and isinstance(value.type, TileType)
    return value.type


@rule(shared.alloc)
def _alloc(task: Task, op: Op) -> Handle:
    type = shared_type(op.result)
    size = allocation_bytes(type.layout, type.shape, type.element.primitive_bitwidth)
    name = op.result.name or ("an mbarrier" if isinstance(type.layout, MBarrierLayout) else "shared memory")
    leading = type.shape[: len(type.shape) - type.layout.rank]
    return task.block.memory.allocate(op, size, name, leading, places.stage_of(type) if leading else 0)


@rule(shared.index)
def _index(task: Task, op: Op, handle: Handle, index: Data) -> Handle:
    type = shared_type(op.operands[0])
    number = int(task.uniform(op, index, "the number of a part of shared memory").array)
    inner = prod(type.shape[1 : len(type.shape) - type.layout.rank])
    return Handle(handle.memory, handle.base + number * inner * places.stage_of(type), handle.start)


@rule(shared.slice)
def _slice(task: Task, op: Op, handle: Handle) -> Handle:
    type, dim, start = shared_type(op.operands[0]), int(op.attrs["dim"]), int(op.attrs["start"])
    leading = len(type.shape) - type.layout.rank
    if dim < leading:
        inner = prod(type.shape[dim + 1 : leading])
        return Handle(handle.memory, handle.base + start * inner * places.stage_of(type), handle.start)
    coordinates = tuple(start if d == dim - leading else 0 for d in range(type.layout.rank))
    return Handle(handle.memory, handle.base, places.start_of(type, handle.start, coordinates))


@rule(shared.permute, shared.reshape)
def _same_memory(task: Task, op: Op, handle: Handle) -> Handle:
    return handle


@rule(shared.reinterpret)
def _reinterpret(task: Task, op: Op, handle: Handle) -> Handle:
    type = shared_type(op.operands[0])
    start = type.layout.pad(handle.start) if isinstance(type.layout, PaddedSharedLayout) else handle.start
    return Handle(handle.memory, handle.base + start * type.element.itemsize)


@rule(shared.keep_alive)
def _keep_alive(task: Task, op: Op, handle: Handle) -> None:
    """Says something to the allocator only."""


@rule(shared.load)
def _load(task: Task, op: Op, handle: Handle) -> Data:
    type = shared_type(op.operands[0])
    place = places.place_of(task, type, handle, linear_of(_tile(op.result)), reading=True)
    return places.read(task, op, handle, place, type.element)


@rule(shared.store)
def _store(task: Task, op: Op, handle: Handle, value: Data) -> None:
    type = shared_type(op.operands[0])
    place = places.place_of(task, type, handle, linear_of(_tile(op.operands[1])), reading=False)
    places.write_tile(task, op, handle, place, type.element, value)


@rule(shared.gather)
def _gather(task: Task, op: Op, handle: Handle, indices: Data) -> Data:
    type, layout = shared_type(op.operands[0]), linear_of(_tile(op.operands[1]))
    place = _along(task, op, handle, type, indices, layout, "reads")
    return places.read(task, op, handle, place, type.element)


@rule(shared.scatter)
def _scatter(task: Task, op: Op, handle: Handle, value: Data, indices: Data) -> None:
    type, layout = shared_type(op.operands[0]), linear_of(_tile(op.operands[2]))
    place = _along(task, op, handle, type, indices, layout, "writes")
    places.write_tile(task, op, handle, place, type.element, value)


def _along(
    task: Task, op: Op, handle: Handle, type: SharedType, indices: Data, layout: LinearLayout, access: str
) -> Place:
    """The place of the elements at `indices` along an axis. Raises OutOfBounds."""
    task.demand(op, indices, "an index")
    axis = int(op.attrs["axis"])
    at: Array = np.asarray(indices.array).astype(np.int64)
    outside = (at < 0) | (at >= type.shape[axis])
    part = part_of(layout, task.rank)
    mine = None if part is None else part.reshape(at.shape)
    outside = outside if mine is None else outside & mine
    if np.any(outside):
        flat = int(np.argmax(outside))
        raise task.fail(
            hazard.SHARED_INDEX, op, access=access, name=handle.memory.name, index=at.ravel()[flat], axis=axis,
            length=type.shape[axis], last=type.shape[axis] - 1, where=task.where(at.shape, flat),
        )  # fmt: skip
    grid = np.ix_(*map(arange, at.shape))
    if mine is not None:
        at = where(mine, at, np.int64(0))
    coordinates = tuple(at if d == axis else part for d, part in enumerate(grid))
    elements = places.positions(type.layout, type.alloc_shape, coordinates, handle.start)
    threads = readers_of(layout, MANY, task.rank) if access == "reads" else owners_of(layout, task.rank)
    chosen = elements.ravel() if mine is None else elements[mine]
    if mine is not None:
        elements, threads = where(mine, elements, chosen[0]), threads[part]
    return replace(places.some_place(task, handle, type.element, elements, chosen, threads), mine=mine)
