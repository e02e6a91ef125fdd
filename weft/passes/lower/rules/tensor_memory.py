"""Lowering of tensor memory: the kernel's allocation of columns, and loads and stores between its tiles and registers.

    %acc = tensor_memory.alloc {column=64}    -->    %base = tensor_memory.reserve ...           at the kernel's entry
                                                     %acc = arith.add %base, 64
    %x = tensor_memory.load %acc              -->    %own = arith.add %acc, lanes of the warp
                                                     %x = tensor_memory.load_regs %own {offsets=(0, 32)}

Handles are those of `weft.passes.lower.handles`.
"""

from __future__ import annotations

from weft.analysis.tensor_handles import tensor_type
from weft.errors import fail, memory
from weft.ir.core import Op, OpDef, Value, walk
from weft.ir.types import TileType, int32, uint32
from weft.layout.base import Unreadable
from weft.layout.tensor_memory.load_store import TensorAccess, plan_tensor_access
from weft.ops import shared, tensor_memory
from weft.ops.check import linear_of
from weft.passes.lower.forms import Array, Origin
from weft.passes.lower.handles import address_of, index, reinterpret, slice_, tensor_side
from weft.passes.lower.operands import optional, require
from weft.passes.lower.state import Lowering, LowerRule


def require_tcgen05(lo: Lowering, op: Op) -> None:
    """Require a target with tcgen05. Raises CompilationError (lower-target)."""
    require(lo, op, lo.target.has_tcgen05, "tensor memory and tcgen05", "sm_100a")


# The kernel's columns


def reserve(lo: Lowering) -> None:
    """Allocate all columns of the kernel at its entry, with one `tcgen05.alloc`; its line is that of the first allocation."""
    columns = lo.source.attrs.tensor_columns
    if not columns:
        return
    # A `tcgen05.alloc` takes a power of two of at least 32 columns (PTX ISA, tcgen05.alloc): several would each round up, and
    # the block could relinquish its permit only after the last.
    lines = (op.loc for op in walk(lo.source.body) if op.kind is tensor_memory.alloc)
    with lo.at_entry():
        lo.loc = next(lines, lo.loc)
        room = lo.emit(shared.scratch, dtype=uint32, count=1, tag=lo.tag())
        lo.tensor_memory = lo.emit(
            tensor_memory.reserve, room, columns=columns, two_ctas=lo.two_ctas, name="tensor_memory"
        )


def leave(lo: Lowering, op: Op) -> None:
    """Deallocate the kernel's columns before it returns."""
    if lo.tensor_memory is not None:
        columns = lo.source.attrs.tensor_columns
        lo.emit(tensor_memory.release, lo.tensor_memory, columns=columns, two_ctas=lo.two_ctas)
    lo.emit(op.kind)


# Accesses


def alloc(lo: Lowering, op: Op) -> None:
    """The address of the columns that `allocate_tensor_memory` has assigned."""
    require_tcgen05(lo, op)
    assert lo.tensor_memory is not None
    lo.handles[op.result] = Origin(None, lo.add(lo.tensor_memory, lo.constant(op.attrs["column"], int32)))


def _plan(lo: Lowering, op: Op, handle: Value, tile: Value) -> TensorAccess:
    """The instructions. Raises CompilationError (lower-target), LayoutError (tmem-access)."""
    require_tcgen05(lo, op)
    t = tensor_type(handle)
    found = plan_tensor_access(linear_of(tile), tensor_side(lo, handle), t.element.bits, lo.num_warps)
    if isinstance(found, Unreadable):
        assert isinstance(tile.type, TileType)
        raise fail(
            memory.TMEM_ACCESS, loc=op.loc, what=op.name, got=t, layout=t.layout, tile=tile.type.layout,
            reason=found.reason, fix=found.fix,
        )  # fmt: skip
    return found


def _own(lo: Lowering, handle: Value, access: TensorAccess) -> Value:
    """The address at which the warp accesses the tile: a warp can access only its own 32 lanes."""
    return lo.add(address_of(lo, handle), lo.of_warp(access.warps))


def load(lo: Lowering, op: Op) -> None:
    """Each warp loads from its lanes; registers with equal elements are loaded once."""
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
    """Each warp stores to its lanes."""
    handle, value, pred = op.operands
    assert handle is not None and value is not None
    access = _plan(lo, op, handle, value)
    lo.emit(
        tensor_memory.store_regs, _own(lo, handle, access), lo.array(lo.form(value)),
        optional(lo, pred), variant=access.variant, repeat=access.repeat,
        offsets=access.offsets, registers=access.registers, packed=access.packed, split=access.split,
    )  # fmt: skip


RULES: dict[OpDef, LowerRule] = {
    tensor_memory.alloc: alloc,
    tensor_memory.index: index,
    tensor_memory.slice: slice_,
    tensor_memory.reinterpret: reinterpret,
    tensor_memory.load: load,
    tensor_memory.store: store,
}
