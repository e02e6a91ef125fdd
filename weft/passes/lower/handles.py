"""Lowering of handles to shared and tensor memory: a handle becomes a byte offset in an allocation, or a tensor memory address,
and a constant start within its tile.

    %t = shared.index %bufs, %i          -->    %b = arith.mul %i, 16384
    shared.store %t, %x                         %t = shared.view %bufs, %b {element=f16, count=8192}
                                                shared.store_regs %t, ...

A handle costs only the arithmetic of its run-time indices. Slices, permutations and reshapes within a tile are known at compile
time and end in the constant offsets of accesses.
"""

from __future__ import annotations

from math import prod

from weft.analysis.tensor_handles import tensor_type, tile_columns
from weft.errors import fail, memory
from weft.ir.core import Op, Value
from weft.ir.types import SharedArrayType, SharedType, TensorType, int32
from weft.layout.shared.sizes import allocation_bytes, stage_bytes, tile_bytes
from weft.layout.shared.tma import Crossing, Slice
from weft.layout.shared.views import contiguous
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.layout.tensor_memory.load_store import TensorSide
from weft.ops import shared
from weft.ops.regs import Table
from weft.passes.lower.forms import Origin
from weft.passes.lower.state import Lowering
from weft.passes.lower.views import Tiled, first_step, steps_from, tiled


def type_of(value: Value) -> SharedType:
    """The type of a handle to shared memory."""
    assert isinstance(value.type, SharedType)
    return value.type


def shared_side(lo: Lowering, value: Value) -> SharedSide:
    """The shared memory operand that layout plans take, from a handle."""
    t = type_of(value)
    return SharedSide(t.layout, t.alloc_shape, t.shape, lo.start(value))


def slice_of(lo: Lowering, value: Value) -> Slice | None:
    """The part of a tile that a handle to shared memory refers to; None for the whole tile."""
    t = type_of(value)
    return None if t.shape == t.alloc_shape else Slice(t.alloc_shape, lo.start(value))


def tensor_side(lo: Lowering, value: Value) -> TensorSide:
    """The tensor memory operand that layout plans take, from a handle."""
    t = tensor_type(value)
    return TensorSide(t.layout, t.alloc_shape, t.shape, lo.start(value))


def address_of(lo: Lowering, value: Value) -> Value:
    """The tensor memory address of a handle's first tile."""
    assert isinstance(value.type, TensorType)
    return lo.handles[value].begin


def view(lo: Lowering, value: Value | None) -> Value:
    """The memory of a handle's first tile, as an array of its elements."""
    assert value is not None
    return memory_as(lo, value, _tile_type(type_of(value)))


def _tile_type(t: SharedType) -> SharedArrayType:
    """The type of the memory of one tile."""
    return SharedArrayType(t.element, tile_bytes(t.layout, t.alloc_shape, t.element.bits) // t.element.itemsize)


def remote_view(lo: Lowering, value: Value, crossing: Crossing) -> Value:
    """The memory from a block's part of a slice on, in the block that `crossing` names, as an array of its elements."""
    part = lo.of_thread((), (), crossing.offsets)
    begin = lo.handles[value].begin
    return _memory(lo, value, lo.add(begin, part) if any(crossing.offsets) else begin, _tile_type(type_of(value)))


def memory_as(lo: Lowering, value: Value, type: SharedArrayType) -> Value:
    """The memory from a handle's first tile on, as an array of the given type."""
    return _memory(lo, value, lo.handles[value].begin, type)


def _memory(lo: Lowering, value: Value, begin: Value, type: SharedArrayType) -> Value:
    room = lo.handles[value].room
    assert room is not None
    if lo.constants.get(begin) == 0 and room.type == type:
        return room
    return lo.emit(shared.view, room, begin, element=type.element, count=type.count, name=value.name)


def define(lo: Lowering, op: Op, handle: Origin, steps: Value | None = None) -> None:
    """Record a result handle, `steps` bytes or columns past `handle`. The view of a single shared memory tile is emitted here,
    where it dominates all uses."""
    moved = handle if steps is None else Origin(handle.room, lo.add(handle.begin, steps))
    lo.handles[op.result] = moved
    t = tiled(op.result)
    if moved.room is not None and len(t.shape) == t.layout.rank:
        view(lo, op.result)


def _stride(t: Tiled) -> int:
    """The stride of the first dimension, in bytes of shared memory or columns of tensor memory."""
    if isinstance(t, SharedType):
        each = stage_bytes(t.layout, t.alloc_shape, t.element.bits)
    else:
        each = tile_columns(t)
    return prod(t.shape[1 : len(t.shape) - t.layout.rank]) * each


def index(lo: Lowering, op: Op) -> None:
    """Advance by a multiple of the stride."""
    source, number = op.uses
    define(lo, op, lo.handles[source], lo.scaled(lo.scalar(number), _stride(tiled(source))))


def slice_(lo: Lowering, op: Op) -> None:
    """A slice of the stages advances the offset; a slice within a tile changes the start (`weft.passes.lower.views`)."""
    (source,) = op.uses
    t = tiled(source)
    # Slices of the other leading dimensions are always the whole dimension.
    leading = op.attrs["dim"] < len(t.shape) - t.layout.rank
    define(lo, op, lo.handles[source], lo.constant(op.attrs["start"] * _stride(t), int32) if leading else None)


def reinterpret(lo: Lowering, op: Op) -> None:
    """Tiles of another type from the handle's first byte, or from one of its columns, on. Raises CompilationError
    (tmem-reinterpret)."""
    (source,) = op.uses
    t = tiled(source)
    first = first_step(t, lo.start(source))
    if isinstance(t, SharedType) and first:
        # A swizzle may place another element of a slice first.
        first -= first % (contiguous(t.layout, t.alloc_shape, t.shape[-t.layout.rank :]) * t.element.itemsize)
    if first is None:
        raise fail(memory.TMEM_REINTERPRET, loc=op.loc, got=t, tile=list(t.alloc_shape))
    define(lo, op, lo.handles[source], lo.constant(first + op.attrs.get("column", 0), int32))


# Handles on control flow edges.


def begin_from(lo: Lowering, value: Value, start: Table) -> Value:
    """The offset of a handle for a phi whose view has another start within the tile."""
    own, begin = lo.start(value), lo.handles[value].begin
    if own == start:
        return begin
    steps = steps_from(tiled(value), own)
    assert steps is not None
    return lo.add(begin, lo.constant(steps, int32))


def memory_type(t: SharedType) -> SharedArrayType:
    """The type of all memory of a handle, which is carried for a phi of handles to different allocations."""
    leading = t.shape[: len(t.shape) - t.layout.rank]
    bits = t.element.bits
    return SharedArrayType(
        t.element, allocation_bytes(t.layout, (*leading, *t.alloc_shape), bits) // t.element.itemsize
    )


def memory_from(lo: Lowering, value: Value, start: Table) -> Value:
    """The memory of a handle for a phi whose view has another start within the tile."""
    return _memory(lo, value, begin_from(lo, value, start), memory_type(type_of(value)))
