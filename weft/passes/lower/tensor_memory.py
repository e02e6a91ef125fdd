"""Lowering of tensor memory: the kernel's columns, handles to it, and what moves its tiles to registers and back.

    %acc = tmem.alloc {column=64}    -->    %base = tmem.reserve ...           at the kernel's entry
                                            %acc = arith.add %base, 64
    %x = tmem.load %acc              -->    %own = arith.add %acc, lanes of the warp
                                            %x = tmem.load_regs %own {offsets=(0, 32)}

A handle is the address of its first tile, an int32 scalar (lane << 16 | column), and a start within the tile, which is known
while compiling and ends in the offsets of accesses.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from weft.analysis.tensor_handles import tensor_type, tile_columns
from weft.errors import Loc, fail, memory
from weft.errors import compiler as errors
from weft.ir.core import Op, Value
from weft.ir.define import OpDef
from weft.ir.types import TensorType, TileType, int32, uint32
from weft.layout.base import Unreadable
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.tensor_memory.layouts import COLUMN_BITS
from weft.layout.tensor_memory.load_store import TensorAccess, TensorSide, plan_tensor_access
from weft.ops import control, scratch, tensor_memory
from weft.passes.lower.forms import Array, Table
from weft.passes.lower.numbers import mapped_warp
from weft.passes.lower.operands import optional, require
from weft.passes.lower.shape import linear_of
from weft.passes.lower.state import Lowering, LowerRule


@dataclass(frozen=True, slots=True)
class TensorHandle:
    """Where a handle's tiles lie. `start`: the view's first element in its tile. `address`: of the first tile."""

    start: Table
    address: Value = field(compare=False)


def side_of(lo: Lowering, value: Value) -> TensorSide:
    """The memory of a handle, as plans see it."""
    t = tensor_type(value)
    return TensorSide(t.layout, t.alloc_shape, t.shape, lo.tensors[value].start)


def address_of(lo: Lowering, value: Value) -> Value:
    """The address of a handle's first tile."""
    return lo.tensors[value].address


def require_tcgen05(lo: Lowering, op: Op) -> None:
    """Raises CompilationError (lower-target)."""
    require(lo, op, lo.target.has_tcgen05, "tensor memory and tcgen05", "sm_100a")


# The kernel's columns


def reserve(lo: Lowering) -> None:
    """Take all columns that the kernel has at its entry."""
    columns = lo.source.attrs.tensor_columns
    if not columns:
        return
    with lo.at_entry():
        room = lo.emit(scratch.alloc, dtype=uint32, count=1, tag=lo.tag())
        lo.tensor_memory = lo.emit(
            tensor_memory.reserve, room, columns=columns, two_ctas=lo.two_ctas, name="tensor_memory"
        )


def leave(lo: Lowering, op: Op) -> None:
    """The kernel gives its columns back when all else is done."""
    if lo.tensor_memory is not None:
        columns = lo.source.attrs.tensor_columns
        lo.emit(tensor_memory.release, lo.tensor_memory, columns=columns, two_ctas=lo.two_ctas)
    lo.emit(op.kind)


# Handles


def _moved(lo: Lowering, address: Value, columns: int) -> Value:
    return lo.add(address, lo.constant(columns, int32))


def _stride(t: TensorType) -> int:
    """Columns from one part along the first of the leading dimensions to the next."""
    return prod(t.shape[1:-2]) * tile_columns(t)


def alloc(lo: Lowering, op: Op) -> None:
    """Columns of the kernel's, at the place that `allocate_tensor_memory` has found."""
    require_tcgen05(lo, op)
    assert lo.tensor_memory is not None
    address = _moved(lo, lo.tensor_memory, op.attrs["column"])
    lo.tensors[op.result] = TensorHandle((0, 0), address)


def index(lo: Lowering, op: Op) -> None:
    """A multiple of the stride further on."""
    source, number = op.uses
    handle = lo.tensors[source]
    step = lo.scaled(lo.scalar(number), _stride(tensor_type(source)))
    lo.tensors[op.result] = replace(handle, address=lo.add(handle.address, step))


def slice_(lo: Lowering, op: Op) -> None:
    """Along the first of the leading dimensions some columns further on, within a tile a later start."""
    (source,) = op.uses
    handle, t = lo.tensors[source], tensor_type(source)
    dim: int = op.attrs["dim"]
    start: int = op.attrs["start"]
    leading = len(t.shape) - 2
    if dim < leading:
        # Of the other leading dimensions a slice is all there is, from 0 on.
        lo.tensors[op.result] = replace(handle, address=_moved(lo, handle.address, start * _stride(t)))
        return
    moved = tuple([at + start if d == dim - leading else at for d, at in enumerate(handle.start)])
    lo.tensors[op.result] = replace(handle, start=moved)


def reinterpret(lo: Lowering, op: Op) -> None:
    """Other tiles from the handle's first column on. Raises CompilationError (tmem-reinterpret)."""
    (source,) = op.uses
    handle, t = lo.tensors[source], tensor_type(source)
    first = _first_column(t, handle.start)
    if first is None:
        raise fail(memory.TMEM_REINTERPRET, loc=op.loc, got=t, tile=list(t.alloc_shape))
    lo.tensors[op.result] = TensorHandle((0, 0), _moved(lo, handle.address, first))


# Handles that come together at the edges of control flow.


def meet_tensors(a: TensorHandle, b: TensorHandle, t: TensorType, loc: Loc | None) -> TensorHandle:
    """What two handles of one type have in common. Raises CompilationError (lower-handles)."""
    if a.start == b.start:
        return a
    if any(_levelled(t, handle.start) is None for handle in (a, b)):
        raise fail(errors.HANDLES, loc=loc, type=t, first=list(a.start), second=list(b.start))
    return replace(a, start=(0, 0))


def address_like(lo: Lowering, value: Value, common: TensorHandle) -> Value:
    """The address of a handle that has come together with others: see `meet_tensors`."""
    handle = lo.tensors[value]
    if handle.start == common.start:
        return handle.address
    columns = _levelled(tensor_type(value), handle.start)
    assert columns is not None
    return _moved(lo, handle.address, columns)


def _levelled(t: TensorType, start: Table) -> int | None:
    """How many columns to go on, if elements lie the same from there on as from the tile's first: else None."""
    inside = 0
    for d, size in enumerate(t.shape[-2:]):
        for bit in range(size.bit_length() - 1):
            inside |= _place(t, (1 << bit, 0) if d == 0 else (0, 1 << bit))
    return None if _place(t, start) & inside else _first_column(t, start)


def _first_column(t: TensorType, start: Table) -> int | None:
    """The column of a start that is in the first lane of the tile, and at the beginning of a column: else None."""
    linear = t.layout.to_linear(t.alloc_shape)
    beyond, row = divmod(_place(t, start), linear.in_size("row"))
    block, element = divmod(beyond, linear.in_size("column"))
    column, rest = divmod(element * t.element.bits, COLUMN_BITS)
    return None if row or block or rest else column


def _place(t: TensorType, start: Table) -> int:
    """The bits of the row, of the column and of the block of an element, the row's lowest."""
    columns = t.layout.to_linear(t.alloc_shape).columns
    return solved(Span((*columns["row"], *columns["column"], *columns["block"])), join(start, t.alloc_shape))


# Accesses


def _plan(lo: Lowering, op: Op, handle: Value, tile: Value) -> TensorAccess:
    """The instructions. Raises CompilationError (lower-target), LayoutError (tmem-access)."""
    require_tcgen05(lo, op)
    t = tensor_type(handle)
    found = plan_tensor_access(linear_of(tile), side_of(lo, handle), t.element.bits, lo.num_warps)
    if isinstance(found, Unreadable):
        assert isinstance(tile.type, TileType)
        raise fail(
            memory.TMEM_ACCESS, loc=op.loc, what=op.name, got=t, layout=t.layout, tile=tile.type.layout,
            reason=found.reason, fix=found.fix,
        )  # fmt: skip
    return found


def _own(lo: Lowering, handle: Value, access: TensorAccess) -> Value:
    """The address from which the warp accesses the tile."""
    return lo.add(address_of(lo, handle), mapped_warp(lo, access.warps))


def load(lo: Lowering, op: Op) -> None:
    """Each warp reads its lanes, each register that differs once."""
    (handle,) = op.uses
    access = _plan(lo, op, handle, op.result)
    slot = {register: i for i, register in enumerate(sorted(r for group in access.registers for r in group))}
    value = lo.emit(
        tensor_memory.load_regs, _own(lo, handle, access), element=tensor_type(handle).element, variant=access.variant,
        repeat=access.repeat, offsets=access.offsets,
        registers=tuple(tuple([slot[r] for r in group]) for group in access.registers),
        packed=access.packed, split=access.split,
    )  # fmt: skip
    lo.define(op, lo.picked(Array(value), tuple([slot[r] for r in access.result])))


def store(lo: Lowering, op: Op) -> None:
    """Each warp writes its lanes."""
    handle, value, pred = op.operands
    assert handle is not None and value is not None
    access = _plan(lo, op, handle, value)
    lo.emit(
        tensor_memory.store_regs, _own(lo, handle, access), lo.array(lo.form(value)),
        optional(lo, pred), variant=access.variant, repeat=access.repeat,
        offsets=access.offsets, registers=access.registers, packed=access.packed, split=access.split,
    )  # fmt: skip


RULES: dict[OpDef, LowerRule] = {
    control.return_: leave,
    tensor_memory.alloc: alloc,
    tensor_memory.index: index,
    tensor_memory.slice: slice_,
    tensor_memory.reinterpret: reinterpret,
    tensor_memory.load: load,
    tensor_memory.store: store,
}
