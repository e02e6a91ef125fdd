"""Lowering of handles to shared memory: where a tile lies is a byte in an allocation and a start within the tile.

    %t = shared.index %bufs, %i          -->    %b = arith.mul %i, 16384
    shared.store %t, %x                         %t = shared.view %bufs, %b {element=f16, count=8192}
                                                shared.store_regs %t, ...

Forming a handle costs at most the arithmetic of its run-time indices. What is inside of a tile (slices, permutations, other
shapes) is known while compiling and ends in the offsets of accesses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from weft.ir.core import Op, Value
from weft.ir.define import OpDef
from weft.ir.types import SharedArrayType, SharedType, int32
from weft.layout import PaddedSharedLayout, SharedLayout
from weft.layout.shared.layouts import Pads, padded
from weft.layout.shared.sizes import allocation_bytes, stage_bytes, tile_bytes
from weft.ops import shared
from weft.passes.lower.forms import Table
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.views import shared_place


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a handle's tiles lie; where a view begins within its tile, `Lowering.start` says.

    `room`: shared memory, mostly an allocation. `bytes`: where the first tile begins in the room, an int32 scalar.
    """

    room: Value
    bytes: Value


def type_of(value: Value) -> SharedType:
    """The type of a handle."""
    assert isinstance(value.type, SharedType)
    return value.type


def pads_of(layout: SharedLayout) -> Pads:
    """The padding of a layout."""
    return layout.pads if isinstance(layout, PaddedSharedLayout) else ()


def view(lo: Lowering, value: Value | None) -> Value:
    """The memory of a handle's tile."""
    assert value is not None
    t = type_of(value)
    count = tile_bytes(t.layout, t.alloc_shape, t.element.bits) // t.element.itemsize
    return memory_as(lo, value, SharedArrayType(t.element, count))


def memory_as(lo: Lowering, value: Value, type: SharedArrayType) -> Value:
    """The memory from a handle's first tile on, as so many elements."""
    return _memory(lo, value, lo.handles[value].bytes, type)


def _memory(lo: Lowering, value: Value, begin: Value, type: SharedArrayType) -> Value:
    room = lo.handles[value].room
    if lo.constants.get(begin) == 0 and room.type == type:
        return room
    return lo.emit(shared.view, room, begin, element=type.element, count=type.count, name=value.name)


def _define(lo: Lowering, op: Op, handle: Handle) -> None:
    """Record a handle. Memory of one tile is formed here, so that later uses share it."""
    lo.handles[op.result] = handle
    t = type_of(op.result)
    if len(t.shape) == t.layout.rank:
        view(lo, op.result)


def _stride(t: SharedType) -> int:
    """Bytes from one part along the first dimension to the next."""
    return prod(t.shape[1 : len(t.shape) - t.layout.rank]) * stage_bytes(t.layout, t.alloc_shape, t.element.bits)


def alloc(lo: Lowering, op: Op) -> None:
    """The author's memory is an allocation like the compiler's, with an offset of its own."""
    t = type_of(op.result)
    count = allocation_bytes(t.layout, t.shape, t.element.bits) // t.element.itemsize
    offset: int = op.attrs["offset"]
    memory = lo.emit(shared.array, dtype=t.element, count=count, tag=lo.tag(), offset=offset, name=op.result.name)
    lo.handles[op.result] = Handle(memory, lo.constant(0, int32))


def index(lo: Lowering, op: Op) -> None:
    """A multiple of the stride further on."""
    source, number = op.uses
    handle = lo.handles[source]
    step = lo.scaled(lo.scalar(number), _stride(type_of(source)))
    _define(lo, op, replace(handle, bytes=lo.add(handle.bytes, step)))


def slice_(lo: Lowering, op: Op) -> None:
    """Along the first of the leading dimensions some bytes further on; within a tile it begins later."""
    (source,) = op.uses
    handle, t = lo.handles[source], type_of(source)
    if op.attrs["dim"] < len(t.shape) - t.layout.rank:
        # Of the other leading dimensions a slice is all there is, from 0 on.
        step = lo.constant(op.attrs["start"] * _stride(t), int32)
        handle = replace(handle, bytes=lo.add(handle.bytes, step))
    _define(lo, op, handle)


def renamed(lo: Lowering, op: Op) -> None:
    """Dimensions change, and no byte does."""
    (source,) = op.uses
    _define(lo, op, lo.handles[source])


def reinterpret(lo: Lowering, op: Op) -> None:
    """Other tiles from the handle's first byte on."""
    (source,) = op.uses
    handle = lo.handles[source]
    first = shared_place(type_of(source), lo.start(source))[0] * type_of(source).element.itemsize
    _define(lo, op, replace(handle, bytes=lo.add(handle.bytes, lo.constant(first, int32))))


def keep_alive(lo: Lowering, op: Op) -> None:
    """Only `allocate_shared` takes note of it."""


# Handles that come together at the edges of control flow.


def bytes_from(lo: Lowering, value: Value, start: Table) -> Value:
    """The bytes of a handle, from which it begins at another start."""
    own, handle = lo.start(value), lo.handles[value]
    if own == start:
        return handle.bytes
    t = type_of(value)
    first = padded(shared_place(t, own)[0], pads_of(t.layout)) * t.element.itemsize
    return lo.add(handle.bytes, lo.constant(first, int32))


def memory_type(t: SharedType) -> SharedArrayType:
    """All memory of a handle: what is carried for one that may lie in different rooms."""
    leading = t.shape[: len(t.shape) - t.layout.rank]
    bits = t.element.bits
    return SharedArrayType(
        t.element, allocation_bytes(t.layout, (*leading, *t.alloc_shape), bits) // t.element.itemsize
    )


def memory_from(lo: Lowering, value: Value, start: Table) -> Value:
    """The memory of a handle, in which it begins at another start."""
    return _memory(lo, value, bytes_from(lo, value, start), memory_type(type_of(value)))


RULES: dict[OpDef, LowerRule] = {
    shared.alloc: alloc,
    shared.index: index,
    shared.slice: slice_,
    shared.permute: renamed,
    shared.reshape: renamed,
    shared.reinterpret: reinterpret,
    shared.keep_alive: keep_alive,
}
