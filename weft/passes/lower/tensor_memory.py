"""Lowering of tensor memory: the kernel's columns, handles to it, and what moves its tiles to registers and back.

    %acc = tmem.alloc {column=64}    -->    %base = tmem.reserve ...           at the kernel's entry
                                            %acc = arith.add %base, 64
    %x = tmem.load %acc              -->    %own = arith.add %acc, lanes of the warp
                                            %x = tmem.load_regs %own {offsets=(0, 32)}

A handle is the address of its first tile, an int32 scalar (lane << 16 | column); where a view begins within its tile is known
while compiling (`Lowering.start`) and ends in the offsets of accesses.
"""

from __future__ import annotations

from math import prod

from weft.analysis.tensor_handles import tensor_type, tile_columns
from weft.errors import fail, memory
from weft.ir.core import Op, Value
from weft.ir.define import OpDef
from weft.ir.types import TensorType, TileType, int32, uint32
from weft.layout.base import Unreadable
from weft.layout.tensor_memory.load_store import TensorAccess, TensorSide, plan_tensor_access
from weft.ops import control, scratch, tensor_memory
from weft.passes.lower.forms import Array, Table
from weft.passes.lower.numbers import mapped_warp
from weft.passes.lower.operands import optional, require
from weft.passes.lower.shape import linear_of
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.views import columns_from, first_column


def side_of(lo: Lowering, value: Value) -> TensorSide:
    """The memory of a handle, as plans see it."""
    t = tensor_type(value)
    return TensorSide(t.layout, t.alloc_shape, t.shape, lo.start(value))


def address_of(lo: Lowering, value: Value) -> Value:
    """The address of a handle's first tile."""
    return lo.tensors[value]


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
    lo.tensors[op.result] = address


def index(lo: Lowering, op: Op) -> None:
    """A multiple of the stride further on."""
    source, number = op.uses
    step = lo.scaled(lo.scalar(number), _stride(tensor_type(source)))
    lo.tensors[op.result] = lo.add(lo.tensors[source], step)


def slice_(lo: Lowering, op: Op) -> None:
    """Along the first of the leading dimensions some columns further on; within a tile it begins later."""
    (source,) = op.uses
    address, t = lo.tensors[source], tensor_type(source)
    # Of the other leading dimensions a slice is all there is, from 0 on.
    leading = op.attrs["dim"] < len(t.shape) - 2
    lo.tensors[op.result] = _moved(lo, address, op.attrs["start"] * _stride(t)) if leading else address


def reinterpret(lo: Lowering, op: Op) -> None:
    """Other tiles from the handle's first column on. Raises CompilationError (tmem-reinterpret)."""
    (source,) = op.uses
    t = tensor_type(source)
    first = first_column(t, lo.start(source))
    if first is None:
        raise fail(memory.TMEM_REINTERPRET, loc=op.loc, got=t, tile=list(t.alloc_shape))
    lo.tensors[op.result] = _moved(lo, lo.tensors[source], first)


# Handles that come together at the edges of control flow.


def address_from(lo: Lowering, value: Value, start: Table) -> Value:
    """The address of a handle, from which it begins at another start."""
    own = lo.start(value)
    columns = 0 if own == start else columns_from(tensor_type(value), own)
    assert columns is not None
    return _moved(lo, lo.tensors[value], columns) if columns else lo.tensors[value]


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
