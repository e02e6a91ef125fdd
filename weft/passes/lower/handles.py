"""Lowering of handles to shared memory: where a tile lies is a byte in an allocation and a start within the tile.

    %t = shared.index %bufs, %i          -->    %b = arith.mul %i, 16384
    shared.store %t, %x                         %t = shared.view %bufs, %b {element=f16, count=8192}
                                                shared.store_regs %t, ...

Forming a handle costs at most the arithmetic of its run-time indices. What is inside of a tile (slices, permutations, other
shapes) is known while compiling and ends in the offsets of accesses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from weft.errors import Loc, fail
from weft.errors import compiler as errors
from weft.ir.core import Op, Value
from weft.ir.define import OpDef
from weft.ir.types import SharedArrayType, SharedType, int32
from weft.layout import PaddedSharedLayout, SharedLayout
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.shared.layouts import Pads, padded
from weft.layout.shared.sizes import allocation_bytes, stage_bytes, tile_bytes
from weft.ops import shared
from weft.passes.lower.forms import Table
from weft.passes.lower.state import Lowering, LowerRule


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a handle's tiles lie.

    `room`: scratch memory, mostly an allocation. `start`: the view's first element in its tile. `bytes`: where the first tile
    begins in the room, an int32 scalar.
    """

    room: Value
    start: Table
    bytes: Value = field(compare=False)


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
    start = (0,) * t.layout.rank
    lo.handles[op.result] = Handle(memory, start, lo.constant(0, int32))


def index(lo: Lowering, op: Op) -> None:
    """A multiple of the stride further on."""
    source, number = op.uses
    handle = lo.handles[source]
    step = lo.scaled(lo.scalar(number), _stride(type_of(source)))
    _define(lo, op, replace(handle, bytes=lo.add(handle.bytes, step)))


def slice_(lo: Lowering, op: Op) -> None:
    """Along the first of the leading dimensions some bytes further on, within a tile a later start."""
    (source,) = op.uses
    handle, t = lo.handles[source], type_of(source)
    dim: int = op.attrs["dim"]
    start: int = op.attrs["start"]
    leading = len(t.shape) - t.layout.rank
    if dim < leading:
        # Of the other leading dimensions a slice is all there is, from 0 on.
        step = lo.constant(start * _stride(t), int32)
        _define(lo, op, replace(handle, bytes=lo.add(handle.bytes, step)))
        return
    moved = tuple([at + start if d == dim - leading else at for d, at in enumerate(handle.start)])
    _define(lo, op, replace(handle, start=moved))


def permute(lo: Lowering, op: Op) -> None:
    """Names of dimensions change."""
    (source,) = op.uses
    handle, t = lo.handles[source], type_of(source)
    leading = len(t.shape) - t.layout.rank
    order: Table = op.attrs["order"]
    start = tuple([handle.start[d - leading] for d in order[leading:]])
    _define(lo, op, replace(handle, start=start))


def reshape(lo: Lowering, op: Op) -> None:
    """A whole tile begins where it began."""
    (source,) = op.uses
    _define(lo, op, replace(lo.handles[source], start=(0,) * type_of(op.result).layout.rank))


def reinterpret(lo: Lowering, op: Op) -> None:
    """Other tiles from the handle's first byte on."""
    (source,) = op.uses
    handle, t = lo.handles[source], type_of(op.result)
    first = _place(type_of(source), handle.start)[0] * type_of(source).element.itemsize
    begin = lo.add(handle.bytes, lo.constant(first, int32))
    _define(lo, op, Handle(handle.room, (0,) * t.layout.rank, begin))


def keep_alive(lo: Lowering, op: Op) -> None:
    """Only `allocate_shared` takes note of it."""


# Handles that come together at the edges of control flow.


def meet(lo: Lowering, a: Handle, b: Handle, t: SharedType, loc: Loc | None) -> Handle:
    """What two handles of one type have in common, in the room and at the bytes of the first.

    Raises CompilationError (lower-handles)."""
    if a.start != b.start:
        a, b = _levelled(lo, a, t), _levelled(lo, b, t)
    if a.start != b.start:
        raise fail(errors.HANDLES, loc=loc, type=t, first=list(a.start), second=list(b.start))
    return a


def bytes_like(lo: Lowering, value: Value, common: Handle) -> Value:
    """The bytes of a handle that has come together with others: see `meet`."""
    handle = lo.handles[value]
    return (handle if handle.start == common.start else _levelled(lo, handle, type_of(value))).bytes


def memory_type(t: SharedType) -> SharedArrayType:
    """All memory of a handle: what is carried for one that may lie in different rooms."""
    leading = t.shape[: len(t.shape) - t.layout.rank]
    bits = t.element.bits
    return SharedArrayType(
        t.element, allocation_bytes(t.layout, (*leading, *t.alloc_shape), bits) // t.element.itemsize
    )


def memory_like(lo: Lowering, value: Value, common: Handle) -> Value:
    """The memory of a handle that has come together with others."""
    return _memory(lo, value, bytes_like(lo, value, common), memory_type(type_of(value)))


def _levelled(lo: Lowering, handle: Handle, t: SharedType) -> Handle:
    """The same handle with its start among its bytes, if elements lie the same from there on as from the tile's first."""
    place, inside = _place(t, handle.start)
    if place & inside:
        return handle
    first = lo.constant(padded(place, pads_of(t.layout)) * t.element.itemsize, int32)
    return replace(handle, start=(0,) * len(handle.start), bytes=lo.add(handle.bytes, first))


def _place(t: SharedType, start: Table) -> tuple[int, int]:
    """The offset in elements, before padding, of a view's first element, and the union of those of the others from it."""
    linear = t.layout.to_linear(t.alloc_shape)
    places = Span((*linear.columns["offset"], *linear.columns["block"]))
    rank = t.layout.rank
    inside = 0
    for d, size in enumerate(t.shape[len(t.shape) - rank :]):
        for bit in range(size.bit_length() - 1):
            inside |= solved(places, join([1 << bit if e == d else 0 for e in range(rank)], t.alloc_shape))
    return solved(places, join(start, t.alloc_shape)), inside


RULES: dict[OpDef, LowerRule] = {
    shared.alloc: alloc,
    shared.index: index,
    shared.slice: slice_,
    shared.permute: permute,
    shared.reshape: reshape,
    shared.reinterpret: reinterpret,
    shared.keep_alive: keep_alive,
}
