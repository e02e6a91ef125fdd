"""Tensor memory: handles, loads and stores by threads, and the allocation of columns in the lowered stage."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, RegsType, TensorType, TileType, uint32
from weft.layout import WARP_SIZE
from weft.layout.base import WARPGROUP
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.tensor_memory.layouts import COLUMN, COLUMN_BITS, LANES, ROW
from weft.layout.tensor_memory.load_store import FRAGMENTS, LANE, SPLIT, Variant
from weft.ops import tensor_memory
from weft.sim.machine.data import Array, Data, arange, moved
from weft.sim.machine.hardware import linear_of
from weft.sim.machine.tasks import Task
from weft.sim.memory import places
from weft.sim.memory.events import ELECTED
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import CELL, COLUMN_BYTES, COLUMNS, TENSOR, Allocation, Handle
from weft.sim.memory.verdicts import MANY, WORDS
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import holds
from weft.sim.rules.regs import per_thread
from weft.sim.rules.shared import index_of, slice_of

# Handles


@rule(tensor_memory.alloc)
def _alloc(task: Task, op: Op) -> Handle:
    t = tensor_type(op.result)
    each, leading = places.stage_of(t), t.shape[:-2]
    name, column = op.result.name or "tensor memory", int(op.attrs["column"])
    start = column * COLUMN_BYTES if column >= 0 else -1
    return task.block.store(TENSOR).allocate(op, start, prod(leading) * each, name, leading, each if leading else 0)


# Views have the arithmetic of those of shared memory.
rule(tensor_memory.index)(index_of)
rule(tensor_memory.slice)(slice_of)


@rule(tensor_memory.reinterpret)
def _reinterpret(task: Task, op: Op, handle: Handle) -> Handle:
    """Reinterpretation from the view's first column; the compiler accepts only views that begin in lane 0."""
    t = tensor_type(op.operands[0])
    linear = t.layout.to_linear(t.alloc_shape)
    span = Span((*linear.columns[ROW], *linear.columns[COLUMN], *linear.columns["block"]))
    element = solved(span, join(handle.start or (0, 0), t.alloc_shape)) // LANES % linear.in_size(COLUMN)
    column = element * t.element.bits // COLUMN_BITS + int(op.attrs["column"])
    return Handle(handle.memory, handle.base + column * COLUMN_BYTES)


# Tiles


@rule(tensor_memory.load)
def _load(task: Task, op: Op, handle: Handle) -> Data:
    t = tensor_type(op.operands[0])
    place = places.place_of(task, t, handle, linear_of(_tile(op.result)), reading=True)
    return places.read(task, op, handle, place, t.element)


@rule(tensor_memory.store)
def _store(task: Task, op: Op, handle: Handle, value: Data, pred: Data | None) -> None:
    if holds(task, op, pred):
        t = tensor_type(op.operands[0])
        place = places.place_of(task, t, handle, linear_of(_tile(op.operands[1])), reading=False)
        value = moved(value, lambda array: np.broadcast_to(array, t.shape))
        places.write_tile(task, op, handle, place, t.element, value)


def tensor_type(value: Value | None) -> TensorType:
    """The type of a handle."""
    assert value is not None and isinstance(value.type, TensorType)
    return value.type


def _tile(value: Value | None) -> TileType:
    assert value is not None and isinstance(value.type, TileType)
    return value.type


# Allocation of columns


@rule(tensor_memory.reserve)
def _reserve(task: Task, op: Op, room: Handle) -> Data:
    """`tcgen05.alloc` by the first warp writes the address to shared memory; all threads read it behind a barrier."""
    tensor, address = task.block.store(TENSOR), np.uint32(0)
    tensor.reserved = tensor.allocate(op, 0, int(op.attrs["columns"]) * COLUMN_BYTES, "tensor memory").memory
    at: Array = np.zeros(1, np.int64)
    place = places.some_place(task, room, uint32, at, at, ELECTED)
    places.write(task, op, room, place, uint32, place.elements, Data(np.full(1, address)))
    task.barrier()
    found = places.read(task, op, room, places.some_place(task, room, uint32, at, at, MANY), uint32)
    return Data(found.array[0].astype(np.int32))


@rule(tensor_memory.release)
def _release(task: Task, op: Op, address: Data) -> None:
    task.barrier()
    task.block.free_tensor_memory(task.clock)
    task.block.store(TENSOR).reserved = None


def reservation(task: Task, op: Op) -> Allocation:
    """The columns that the kernel has allocated. Raises OutOfBounds if there are none."""
    memory = task.block.store(TENSOR).reserved
    if memory is None:
        raise task.fail(
            hazard.TENSOR_MEMORY_RANGE, op, access="uses", lanes=f"0 to {LANES - 1}", columns="0 and up", name="the kernel",
            owned="none, or has given them back",
        )  # fmt: skip
    return memory


# Registers


@rule(tensor_memory.load_regs)
def _load_regs(task: Task, op: Op, address: Data) -> Data:
    handle = Handle(reservation(task, op), 0)
    place = _place(task, op, address, handle, WORDS["generic", False][0])
    return places.read(task, op, handle, place, _element(op.result))


@rule(tensor_memory.store_regs)
def _store_regs(task: Task, op: Op, address: Data, value: Data, pred: Data | None) -> None:
    if holds(task, op, pred):
        handle = Handle(reservation(task, op), 0)
        place = _place(task, op, address, handle, WORDS["generic", True][0])
        registers = np.array([register for group in op.attrs["registers"] for register in group])
        value = per_thread(task, value, _count(op.operands[1]))
        value = moved(value, lambda array: array[:, registers])
        places.write_tile(task, op, handle, place, _element(op.operands[1]), value)


def _place(task: Task, op: Op, address: Data, handle: Handle, access: str) -> Place:
    """The place of each thread's elements: in result order for a load, in the order of the named registers for a store. Raises
    TensorMemoryLanes, OutOfBounds."""
    task.demand(op, address, "an address")
    addresses = per_thread(task, address).array[:, 0].astype(np.int64)
    itemsize = _element(op.result if op.results else op.operands[1]).itemsize
    lanes, (low, high), place = _registers(op, addresses.tobytes(), itemsize)
    reach = arange(task.threads)[:, None] // WARP_SIZE % WARPGROUP
    wrong = (lanes < 0) | (lanes // WARP_SIZE != reach)
    if wrong.any():
        thread, word = (int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        first = int(reach[thread, 0]) * WARP_SIZE
        raise task.fail(
            hazard.TENSOR_LANES, op, warp=thread // WARP_SIZE, lane=int(lanes[thread, word]), first=first,
            last=first + WARP_SIZE - 1,
        )  # fmt: skip
    if place is None:
        raise places.outside(task, op, handle.memory, low * COLUMN_BYTES, high * COLUMN_BYTES, access)
    return place


@lru_cache(maxsize=512)
def _registers(op: Op, addresses: bytes, itemsize: int) -> tuple[Array, tuple[int, int], Place | None]:
    """The lanes of the 32-bit cells that each thread accesses, the column range `[first, end)`, and the place of its elements
    (None if some lie outside tensor memory)."""
    variant, packed, split = op.attrs["variant"], bool(op.attrs["packed"]), int(op.attrs["split"])
    start = np.frombuffer(addresses, np.int64)
    steps = np.array(op.attrs["offsets"])[:, None] + _register_steps(variant, int(op.attrs["repeat"]), 1 + packed)
    moved_by = start[:, None, None] + _thread_steps(variant, start.size, split, 1 + packed)[:, None, None] + steps
    per_word = len(op.attrs["registers"][0]) // steps.shape[1]
    # A negative column offset borrows from the lane field of the address, so the difference is taken as signed.
    columns = (moved_by + LANE // 2) % LANE - LANE // 2
    lanes = (moved_by - columns) // LANE
    span = int(columns.min()), int(columns.max()) + 1 + packed
    every = lanes.reshape(start.size, -1)
    if span[0] < 0 or span[1] > COLUMNS or lanes.min() < 0 or lanes.max() >= LANES:
        return every, span, None
    each = CELL // itemsize
    # Narrow elements share the 32-bit cell of a column; with `.pack::16b` / `.unpack::16b` each has a column of its own.
    within = arange(per_word)
    column = columns[..., None] + (within if packed else 0 * within)
    index = (column * LANES + lanes[..., None]) * each + (0 if packed else within)
    index = index.reshape(start.size, -1)
    warps = np.broadcast_to((arange(start.size) // WARP_SIZE).astype(np.int16)[:, None], index.shape)
    place = places.place_at(0, index, itemsize, CELL, warps)
    if op.results:
        order = np.argsort([register for group in op.attrs["registers"] for register in group])
        place = replace(place, elements=place.elements[:, order])
    return every, span, place


def _register_steps(variant: Variant, repeat: int, apart: int) -> Array:
    """The address offset of each register of an instruction; consecutive registers are `apart` columns apart."""
    fragment = FRAGMENTS[variant]
    inside: Array = np.zeros(1, np.int64)
    for step in fragment.registers:
        inside = np.concatenate((inside, inside + (step if step >= LANE else step * apart)))
    return (arange(repeat)[:, None] * fragment.columns * apart + inside).ravel()


def _thread_steps(variant: Variant, threads: int, split: int, apart: int) -> Array:
    """The address offset of each thread, by its lane."""
    total: Array = np.zeros(threads, np.int64)
    for bit, step in enumerate(FRAGMENTS[variant].lanes):
        by = split if step == SPLIT else step if step >= LANE else step * apart
        total = total + (arange(threads) >> bit & 1) * by
    return total


def _element(value: Value | None) -> DType:
    assert value is not None and isinstance(value.type.element, DType)
    return value.type.element


def _count(value: Value | None) -> int:
    assert value is not None and isinstance(value.type, RegsType)
    return value.type.count
