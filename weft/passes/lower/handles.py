"""Lowering of handles to shared and tensor memory: where a tile lies is a byte in an allocation, or an address of tensor
memory, and a start within the tile.

    %t = shared.index %bufs, %i          -->    %b = arith.mul %i, 16384
    shared.store %t, %x                         %t = shared.view %bufs, %b {element=f16, count=8192}
                                                shared.store_regs %t, ...

Forming a handle costs at most the arithmetic of its run-time indices. What is inside of a tile (slices, permutations, other
shapes) is known while compiling and ends in the offsets of accesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from weft.analysis.tensor_handles import tensor_type, tile_columns
from weft.errors import fail, memory
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import SharedArrayType, SharedType, TensorType, int32
from weft.layout.shared.sizes import allocation_bytes, stage_bytes, tile_bytes
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.layout.tensor_memory.load_store import TensorSide
from weft.ops import shared, tensor_memory
from weft.passes.lower.forms import Table
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.views import Tiled, first_step, steps_from, tiled


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a handle's tiles lie; where a view begins within its tile, `Lowering.start` says.

    `room`: shared memory, mostly an allocation; None in tensor memory, of which a kernel has all columns together. `begin`:
    where the first tile begins, an int32 scalar: a byte of the room, or an address of tensor memory (lane << 16 | column)."""

    room: Value | None
    begin: Value


def type_of(value: Value) -> SharedType:
    """The type of a handle to shared memory."""
    assert isinstance(value.type, SharedType)
    return value.type


def shared_side(lo: Lowering, value: Value) -> SharedSide:
    """The memory of a handle to shared memory, as plans see it."""
    t = type_of(value)
    return SharedSide(t.layout, t.alloc_shape, t.shape, lo.start(value))


def tensor_side(lo: Lowering, value: Value) -> TensorSide:
    """The memory of a handle to tensor memory, as plans see it."""
    t = tensor_type(value)
    return TensorSide(t.layout, t.alloc_shape, t.shape, lo.start(value))


def address_of(lo: Lowering, value: Value) -> Value:
    """The address in tensor memory of a handle's first tile."""
    assert isinstance(value.type, TensorType)
    return lo.handles[value].begin


def view(lo: Lowering, value: Value | None) -> Value:
    """The memory of a handle's tile."""
    assert value is not None
    t = type_of(value)
    count = tile_bytes(t.layout, t.alloc_shape, t.element.bits) // t.element.itemsize
    return memory_as(lo, value, SharedArrayType(t.element, count))


def memory_as(lo: Lowering, value: Value, type: SharedArrayType) -> Value:
    """The memory from a handle's first tile on, as so many elements."""
    return _memory(lo, value, lo.handles[value].begin, type)


def _memory(lo: Lowering, value: Value, begin: Value, type: SharedArrayType) -> Value:
    room = lo.handles[value].room
    assert room is not None
    if lo.constants.get(begin) == 0 and room.type == type:
        return room
    return lo.emit(shared.view, room, begin, element=type.element, count=type.count, name=value.name)


def _define(lo: Lowering, op: Op, handle: Handle, steps: Value | None = None) -> None:
    """Record a handle, so many steps further on. Shared memory of one tile is formed here, so that later uses share it."""
    moved = handle if steps is None else Handle(handle.room, lo.add(handle.begin, steps))
    lo.handles[op.result] = moved
    t = tiled(op.result)
    if moved.room is not None and len(t.shape) == t.layout.rank:
        view(lo, op.result)


def _stride(t: Tiled) -> int:
    """Steps from one part along the first dimension to the next: bytes of shared memory, or columns of tensor memory."""
    if isinstance(t, SharedType):
        each = stage_bytes(t.layout, t.alloc_shape, t.element.bits)
    else:
        each = tile_columns(t)
    return prod(t.shape[1 : len(t.shape) - t.layout.rank]) * each


def alloc(lo: Lowering, op: Op) -> None:
    """The author's memory is an allocation like the compiler's, with an offset of its own."""
    t = type_of(op.result)
    count = allocation_bytes(t.layout, t.shape, t.element.bits) // t.element.itemsize
    offset: int = op.attrs["offset"]
    room = lo.emit(shared.array, dtype=t.element, count=count, tag=lo.tag(), offset=offset, name=op.result.name)
    lo.handles[op.result] = Handle(room, lo.constant(0, int32))


def index(lo: Lowering, op: Op) -> None:
    """A multiple of the stride further on."""
    source, number = op.uses
    _define(lo, op, lo.handles[source], lo.scaled(lo.scalar(number), _stride(tiled(source))))


def slice_(lo: Lowering, op: Op) -> None:
    """Along the first of the leading dimensions some steps further on; within a tile it begins later."""
    (source,) = op.uses
    t = tiled(source)
    # Of the other leading dimensions a slice is all there is, from 0 on.
    leading = op.attrs["dim"] < len(t.shape) - t.layout.rank
    _define(lo, op, lo.handles[source], lo.constant(op.attrs["start"] * _stride(t), int32) if leading else None)


def renamed(lo: Lowering, op: Op) -> None:
    """Dimensions change, and no byte does."""
    (source,) = op.uses
    _define(lo, op, lo.handles[source])


def reinterpret(lo: Lowering, op: Op) -> None:
    """Other tiles from the handle's first byte or column on. Raises CompilationError (tmem-reinterpret)."""
    (source,) = op.uses
    t = tiled(source)
    first = first_step(t, lo.start(source))
    if first is None:
        raise fail(memory.TMEM_REINTERPRET, loc=op.loc, got=t, tile=list(t.alloc_shape))
    _define(lo, op, lo.handles[source], lo.constant(first, int32))


def keep_alive(lo: Lowering, op: Op) -> None:
    """Only `allocate_shared` takes note of it."""


# Handles that come together at the edges of control flow.


def begin_from(lo: Lowering, value: Value, start: Table) -> Value:
    """Where a handle begins, that begins at another start within its tile."""
    own, begin = lo.start(value), lo.handles[value].begin
    if own == start:
        return begin
    steps = steps_from(tiled(value), own)
    assert steps is not None
    return lo.add(begin, lo.constant(steps, int32))


def memory_type(t: SharedType) -> SharedArrayType:
    """All memory of a handle: what is carried for one that may lie in different rooms."""
    leading = t.shape[: len(t.shape) - t.layout.rank]
    bits = t.element.bits
    return SharedArrayType(
        t.element, allocation_bytes(t.layout, (*leading, *t.alloc_shape), bits) // t.element.itemsize
    )


def memory_from(lo: Lowering, value: Value, start: Table) -> Value:
    """The memory of a handle, in which it begins at another start."""
    return _memory(lo, value, begin_from(lo, value, start), memory_type(type_of(value)))


RULES: dict[OpDef, LowerRule] = {
    shared.alloc: alloc,
    shared.index: index,
    shared.slice: slice_,
    shared.permute: renamed,
    shared.reshape: renamed,
    shared.reinterpret: reinterpret,
    shared.keep_alive: keep_alive,
    tensor_memory.index: index,
    tensor_memory.slice: slice_,
    tensor_memory.reinterpret: reinterpret,
}
