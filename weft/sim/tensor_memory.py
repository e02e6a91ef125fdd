"""Tensor memory: handles to it, what threads do to it, and the kernel's columns in the lowered stage."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from weft.errors import tensor_hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, RegsType, TileType, uint32
from weft.layout import WARP_SIZE
from weft.layout.base import WARPGROUP
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.tensor_memory.layouts import COLUMN, COLUMN_BITS, LANES, ROW
from weft.layout.tensor_memory.load_store import FRAGMENTS, LANE, SPLIT, Variant
from weft.ops import tensor_memory
from weft.sim import places, tensor_places
from weft.sim.data import Array, Data, arange, moved
from weft.sim.hardware import linear_of
from weft.sim.machine import Task
from weft.sim.mbarrier import holds
from weft.sim.regs import per_thread
from weft.sim.rules import rule
from weft.sim.shadow import ELECTED
from weft.sim.shared_memory import Handle, Lifetime
from weft.sim.tensor_places import TensorPlace, by_warps, tensor_type
from weft.sim.tensor_store import CELL, COLUMNS, TensorHandle
from weft.sim.verdicts import MANY, WORDS

# Handles


@rule(tensor_memory.alloc)
def _alloc(task: Task, op: Op) -> TensorHandle:
    t = tensor_type(op.result)
    each, leading = t.layout.columns(t.alloc_shape, t.element.bits), t.shape[:-2]
    name = op.result.name or "tensor memory"
    return task.block.tensor.allocate(op, prod(leading) * each, name, leading, each if leading else 0)


@rule(tensor_memory.index)
def _index(task: Task, op: Op, handle: TensorHandle, index: Data) -> TensorHandle:
    t = tensor_type(op.operands[0])
    number = int(task.uniform(op, index, "the number of a part of tensor memory").array)
    step = prod(t.shape[1:-2]) * t.layout.columns(t.alloc_shape, t.element.bits)
    return TensorHandle(handle.memory, handle.column + number * step, handle.start)


@rule(tensor_memory.slice)
def _slice(task: Task, op: Op, handle: TensorHandle) -> TensorHandle:
    t, dim, start = tensor_type(op.operands[0]), int(op.attrs["dim"]), int(op.attrs["start"])
    leading = len(t.shape) - 2
    if dim < leading:
        step = prod(t.shape[dim + 1 : leading]) * t.layout.columns(t.alloc_shape, t.element.bits)
        return TensorHandle(handle.memory, handle.column + start * step, handle.start)
    row, column = handle.start
    return TensorHandle(
        handle.memory, handle.column, (row + start, column) if dim == leading else (row, column + start)
    )


@rule(tensor_memory.reinterpret)
def _reinterpret(task: Task, op: Op, handle: TensorHandle) -> TensorHandle:
    """From the view's first column on; the compiler refuses views that begin elsewhere than in the first lane."""
    t = tensor_type(op.operands[0])
    linear = t.layout.to_linear(t.alloc_shape)
    span = Span((*linear.columns[ROW], *linear.columns[COLUMN], *linear.columns["block"]))
    element = solved(span, join(handle.start, t.alloc_shape)) // LANES % linear.in_size(COLUMN)
    return TensorHandle(handle.memory, handle.column + element * t.element.bits // COLUMN_BITS)


# Tiles


@rule(tensor_memory.load)
def _load(task: Task, op: Op, handle: TensorHandle) -> Data:
    t = tensor_type(op.operands[0])
    place = tensor_places.place_of(task, t, handle, linear_of(_tile(op.result)), reading=True)
    tensor_places.check_bounds(task, op, handle, place, WORDS["generic", False][0])
    return tensor_places.read(task, op, handle.memory, handle.column * LANES, place, t.element)


@rule(tensor_memory.store)
def _store(task: Task, op: Op, handle: TensorHandle, value: Data, pred: Data | None) -> None:
    if holds(task, op, pred):
        t = tensor_type(op.operands[0])
        place = tensor_places.place_of(task, t, handle, linear_of(_tile(op.operands[1])), reading=False)
        tensor_places.check_bounds(task, op, handle, place, WORDS["generic", True][0])
        value = moved(value, lambda array: np.broadcast_to(array, t.shape))
        tensor_places.write(task, op, handle.memory, handle.column * LANES, place, value)


def _tile(value: Value | None) -> TileType:
    assert value is not None and isinstance(value.type, TileType)
    return value.type


# The kernel's columns


@rule(tensor_memory.reserve)
def _reserve(task: Task, op: Op, room: Handle) -> Data:
    """The first warp writes the address, a barrier, and all read it."""
    tensor, address = task.block.tensor, np.uint32(0)
    tensor.reserved = tensor.begin(op, 0, int(op.attrs["columns"]), "tensor memory")
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
    task.block.tensor.reserved = None


def reservation(task: Task, op: Op) -> Lifetime:
    """The columns that the kernel has. Raises OutOfBounds where it has none."""
    memory = task.block.tensor.reserved
    if memory is None:
        raise task.fail(
            tensor_hazard.TENSOR_RANGE, op, access="uses", lanes=f"0 to {LANES - 1}", columns="0 and up", name="the kernel",
            owned="none, or has given them back",
        )  # fmt: skip
    return memory


# Registers


@rule(tensor_memory.load_regs)
def _load_regs(task: Task, op: Op, address: Data) -> Data:
    memory = reservation(task, op)
    place = _place(task, op, address, memory, WORDS["generic", False][0])
    return tensor_places.read(task, op, memory, 0, place, _element(op.result))


@rule(tensor_memory.store_regs)
def _store_regs(task: Task, op: Op, address: Data, value: Data, pred: Data | None) -> None:
    if holds(task, op, pred):
        memory = reservation(task, op)
        place = _place(task, op, address, memory, WORDS["generic", True][0])
        registers = np.array([register for group in op.attrs["registers"] for register in group])
        value = per_thread(task, value, _count(op.operands[1]))
        tensor_places.write(task, op, memory, 0, place, moved(value, lambda array: array[:, registers]))


def _place(task: Task, op: Op, address: Data, memory: Lifetime, access: str) -> TensorPlace:
    """What each thread accesses: of a load in the order of its result, of a store in that of the registers it names. Raises
    TensorMemoryLanes, OutOfBounds."""
    task.demand(op, address, "an address")
    addresses = per_thread(task, address).array[:, 0].astype(np.int64)
    itemsize = _element(op.result if op.results else op.operands[1]).itemsize
    lanes, columns, place = _registers(op, addresses.tobytes(), itemsize)
    reach = arange(task.threads)[:, None] // WARP_SIZE % WARPGROUP
    wrong = (lanes < 0) | (lanes // WARP_SIZE != reach)
    if wrong.any():
        thread, word = (int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
        first = int(reach[thread, 0]) * WARP_SIZE
        raise task.fail(
            tensor_hazard.TENSOR_LANES, op, warp=thread // WARP_SIZE, lane=int(lanes[thread, word]), first=first,
            last=first + WARP_SIZE - 1,
        )  # fmt: skip
    tensor_places.columns_within(task, op, memory, int(columns.min()), int(columns.max()) + 1, access)
    return place


@lru_cache(maxsize=512)
def _registers(op: Op, addresses: bytes, itemsize: int) -> tuple[Array, Array, TensorPlace]:
    """Lanes and columns of the words that each thread accesses, and the place of its elements (see `_place`)."""
    variant, packed, split = op.attrs["variant"], bool(op.attrs["packed"]), int(op.attrs["split"])
    start = np.frombuffer(addresses, np.int64)
    steps = np.array(op.attrs["offsets"])[:, None] + _words(variant, int(op.attrs["repeat"]), 1 + packed)
    moved_by = start[:, None, None] + _thread_steps(variant, start.size, split, 1 + packed)[:, None, None] + steps
    per_word = len(op.attrs["registers"][0]) // steps.shape[1]
    # Columns before the first borrow from the lanes.
    columns = (moved_by + LANE // 2) % LANE - LANE // 2
    lanes = (moved_by - columns) // LANE
    each = CELL // itemsize
    # Elements of a word lie side by side in its column; packed, each has a column of its own.
    within = arange(per_word)
    column = columns[..., None] + (within if packed else 0 * within)
    index = (column * LANES + lanes[..., None]) * each + (0 if packed else within)
    cell, index = (index // each).reshape(start.size, -1), index.reshape(start.size, -1)
    warps = np.broadcast_to((arange(start.size) // WARP_SIZE).astype(np.int16)[:, None], cell.shape)
    cells, who = by_warps(cell.ravel(), warps.ravel())
    if op.results:
        order = np.argsort([register for group in op.attrs["registers"] for register in group])
        index = index[:, order]
    low, high = int(columns.min()), int(columns.max()) + 1 + packed
    inside_of_memory = low >= 0 and high <= COLUMNS and lanes.min() >= 0 and lanes.max() < LANES
    place = TensorPlace(index if inside_of_memory else np.zeros_like(index), cells, who, low, high, itemsize)
    return lanes.reshape(start.size, -1), columns.reshape(start.size, -1), place


def _words(variant: Variant, repeat: int, apart: int) -> Array:
    """What each word of an instruction adds to the address; words lie `apart` columns from each other."""
    fragment = FRAGMENTS[variant]
    inside: Array = np.zeros(1, np.int64)
    for step in fragment.registers:
        inside = np.concatenate((inside, inside + (step if step >= LANE else step * apart)))
    return (arange(repeat)[:, None] * fragment.columns * apart + inside).ravel()


def _thread_steps(variant: Variant, threads: int, split: int, apart: int) -> Array:
    """What each thread's number in its warp adds to the address."""
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
