"""TMA gather and scatter: parts of arbitrary rows of a matrix, consecutive in shared memory.

In the tile stage, one operation moves a whole tile. In the lowered stage, an operation consists of hardware requests for four
rows each (`.tile::gather4`, `.tile::scatter4`), with the hardware's placement: rows of a box are consecutive, and 16-byte
chunks are swizzled by their address.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op, Value
from weft.ir.types import DescriptorType, DType
from weft.layout import NVMMASharedLayout
from weft.layout.cluster import copies, receivers
from weft.layout.shared import tma as tma_layout
from weft.ops import tma
from weft.sim.machine.data import Array, Data, arange
from weft.sim.machine.tasks import Task
from weft.sim.memory import places
from weft.sim.memory.events import ELECTED
from weft.sim.memory.matrix_operands import swizzled
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import Handle
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import holds
from weft.sim.rules.regs import per_thread
from weft.sim.rules.shared import shared_type
from weft.sim.rules.tma.copies import Request, box_lines, bring, check_column, descriptor_of, integers, start_store

Rows = tuple[list[Array], Place]
"""Coordinates of elements, as an array of rows and one of columns, and their place in shared memory."""


@rule(tma.gather)
def _gather(task: Task, op: Op, desc: Data, bar: Handle, handle: Handle, pred: Data | None, *at: Data) -> None:
    if holds(task, op, pred):
        t = shared_type(op.operands[2])
        sharing = receivers(t.layout.to_linear(t.shape), task.machine.blocks) if op.attrs["multicast"] else 0
        if task.sends(op, sharing):
            _start_gather(task, op, desc, bar, handle, _tile(task, op, desc, op.operands[2], handle, *at), sharing)


@rule(tma.gather4)
def _gather4(task: Task, op: Op, desc: Data, bar: Handle, handle: Handle, pred: Data | None, *at: Data) -> None:
    if holds(task, op, pred):
        _start_gather(task, op, desc, bar, handle, _requests(task, op, desc, handle, *at), op.attrs["receivers"])


@rule(tma.scatter)
def _scatter(task: Task, op: Op, desc: Data, handle: Handle, *at: Data) -> None:
    type = shared_type(op.operands[1])
    if task.acts(op, copies(type.layout.to_linear(type.shape), task.machine.blocks)):
        _start_scatter(task, op, desc, handle, _tile(task, op, desc, op.operands[1], handle, *at))


@rule(tma.scatter4)
def _scatter4(task: Task, op: Op, desc: Data, handle: Handle, *at: Data) -> None:
    _start_scatter(task, op, desc, handle, _requests(task, op, desc, handle, *at))


def _start_gather(task: Task, op: Op, desc: Data, bar: Handle, handle: Handle, rows: Rows, sharing: int) -> None:
    """Start a gather to the blocks whose rank differs from the task's in the bits `sharing` only."""
    coordinates, place = rows
    request = Request(task, op, desc, coordinates, "reads", mine=place.mine)
    bring(task, op, request, bar, handle, place, sharing)


def _start_scatter(task: Task, op: Op, desc: Data, handle: Handle, rows: Rows) -> None:
    coordinates, place = rows
    _check_first(task, op, desc, int(coordinates[1].min()))
    request = Request(task, op, desc, coordinates, "writes", whole_chunks=True, mine=place.mine)
    start_store(task, op, request, handle, place, None)


def _tile(task: Task, op: Op, desc: Data, memory: Value | None, handle: Handle, rows: Data, column: Data) -> Rows:
    """The part of a whole tile that belongs to the task's block."""
    type = shared_type(memory)
    task.demand(op, rows, "the number of a row")
    place = places.place_of(task, type, handle, ELECTED, reading=False)
    return [rows.array.astype(np.int64)[:, None], _first(task, op, desc, column) + arange(type.shape[1])], place


def _requests(task: Task, op: Op, desc: Data, handle: Handle, rows: Data, column: Data) -> Rows:
    """The elements of all requests, each four rows by the columns of a box, stacked. The elected thread holds the rows."""
    task.demand(op, rows, "the number of a row")
    type = descriptor_of(op.operands[0])
    assert isinstance(type.layout, NVMMASharedLayout)
    registers, added, numbers = _elements(type, type.layout, op.attrs["steps"], handle.base)
    mine = per_thread(task, rows, int(registers.max()) + 1).array[ELECTED]
    coordinates = [mine[registers].astype(np.int64)[:, None], _first(task, op, desc, column) + added]
    return coordinates, places.some_place(task, handle, type.element, numbers, numbers.ravel(), ELECTED)


def _first(task: Task, op: Op, desc: Data, column: Data) -> int:
    (first,) = integers(task, op, [column])
    check_column(task, op, desc.array, first)
    return first


def _check_first(task: Task, op: Op, desc: Data, column: int) -> None:
    """Check the column: copies to global memory must not have negative coordinates (PTX ISA, "Restriction on Tensor Copy
    instructions"). Negative rows are skipped nevertheless, because the emitted code maps them past the last row. Raises
    OutOfBounds."""
    if column < 0:
        raise task.fail(hazard.SCATTER_COLUMN, op, column=column, name=desc.array.buffer.name)


@lru_cache(maxsize=256)
def _elements(
    type: DescriptorType, layout: NVMMASharedLayout, steps: tma.GatherSteps, base: int
) -> tuple[Array, Array, Array]:
    """Three arrays: for each row of a request, the register that holds its index; for each row and column of a box, the offset
    from the first column, and the element's number in shared memory from byte `base`."""
    element = type.element
    assert isinstance(element, DType)
    width = tma_layout.box_of(type.block_shape, layout, element.bits)[-1]
    table: Array = np.array(steps, np.int64)
    rows: Array = np.repeat(table, tma.GATHERED, axis=0)
    first, added, offsets = rows.T
    row: Array = arange(len(first)) % tma.GATHERED
    lines = box_lines((tma.GATHERED, width), layout, element.itemsize)[row] + offsets[:, None]
    address = swizzled(base + lines, layout.swizzle_byte_width) - base
    return first + row, added[:, None] + arange(width), address // element.itemsize
