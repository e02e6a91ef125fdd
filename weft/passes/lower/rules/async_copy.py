"""Lowering of cp.async, which each thread issues for itself."""

from __future__ import annotations

from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Op, OpDef, Value
from weft.ops import arith, async_copy
from weft.ops.check import pointer_of
from weft.ops.regs import Table
from weft.passes.lower.cuts import Cuts, at_ends, bounds
from weft.passes.lower.forms import Form
from weft.passes.lower.handles import view
from weft.passes.lower.operands import require
from weft.passes.lower.rules.memory import operand_form, predicate
from weft.passes.lower.rules.shared import places, plan
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.vectors import Tiles, Vectors, address_operands, vectorize

# cp.async copies 4, 8 or 16 bytes (PTX ISA, cp.async).
LEAST_BYTES = 4


def global_to_shared(lo: Lowering, op: Op) -> None:
    """Copies of the widest vectors that are contiguous in both memories, also of those that the mask cuts. An element that
    several threads hold is copied once."""
    handle, ptr, mask = op.operands
    assert handle is not None and ptr is not None
    require(lo, op, lo.target.has_cp_async, "cp.async", "sm_80")
    access = plan(lo, handle, ptr, store=True).access
    base, offsets, added = places(lo, access)
    address, masked = lo.form(ptr), operand_form(lo, mask)
    vectors, order = _vectors(lo, op, access.registers, address, masked)
    pieces = access.vec // vectors.vec
    whole, piece = [i // pieces for i in order], [i % pieces * vectors.vec for i in order]
    pointer, strides, tables = address_operands(lo, address, vectors.leaders)
    moved = tuple([(added[i] if added else 0) + p for i, p in zip(whole, piece, strict=True)])
    begin, end = None, None
    if vectors.cut and masked is not None:
        # A copy also reads the bytes before `begin`. They cannot fault: they are in the same aligned 16 bytes as an element of
        # the mask, so in a mapped page. Where a copy has no element of the mask, it must not read.
        on: Value | None = lo.array(at_ends(masked, vectors.groups, whole=False))
        begin, end = bounds(lo, masked, vectors.groups)
        if begin is not None and end is not None:
            on = lo.emit(arith.and_, on, lo.emit(arith.cmp, begin, end, predicate="lt"))
    else:
        on = predicate(lo, masked, vectors.leaders, None)
    lo.emit(
        async_copy.copy, view(lo, handle), base, pointer, on, lo.has_clear(access.lane_mask, access.warp_mask), begin, end,
        *strides,
        offsets=tables, places=tuple([offsets[i] for i in whole]), vec=vectors.vec,
        added=moved if any(moved) else (), pads=access.pads, cache=op.attrs["cache"], l2=op.attrs["l2"],
        prefetch=op.attrs["prefetch"], zeros=op.attrs["zeros"],
    )  # fmt: skip


def _vectors(
    lo: Lowering, op: Op, registers: tuple[Table, ...], address: Form, masked: Form | None
) -> tuple[Vectors, list[int]]:
    """Vectors that are contiguous in global and shared memory. The list gives the index of each vector among the groups of
    `registers` when those are split to the same width.

    cp.async copies 4, 8 or 16 bytes. Raises CompilationError (async-copy-width) if no vector has at least 4."""
    _, ptr, mask = op.operands
    assert ptr is not None
    element = pointer_of(ptr).element_ty
    every = tuple(sorted(r for group in registers for r in group))
    widest = len(registers[0])
    # Of a copy that the mask cuts zeros can be written for the last elements only.
    cuts: Cuts = "ends" if op.attrs["zeros"] else "anywhere"
    found = vectorize(lo, Tiles(ptr, mask), address, masked, every, element.itemsize, cuts=cuts)
    in_global, vec = found.vec, min(found.vec, widest)
    while vec * element.itemsize >= LEAST_BYTES:
        found = vectorize(lo, Tiles(ptr, mask), address, masked, every, element.itemsize, limit=vec, cuts=cuts)
        parts = [group[i : i + found.vec] for group in registers for i in range(0, widest, found.vec)]
        if found.vec == vec and set(parts) == set(found.groups):
            return found, [parts.index(group) for group in found.groups]
        vec //= 2
    raise fail(
        errors.ASYNC_COPY_WIDTH, loc=op.loc, dtype=element.name, bits=element.itemsize * 8,
        in_global=in_global, in_shared=widest, least=max(LEAST_BYTES // element.itemsize, 1),
    )  # fmt: skip


def mbarrier_arrive(lo: Lowering, op: Op) -> None:
    """An arrival of the cp.async copies on the mbarrier's memory."""
    require(lo, op, lo.target.has_cp_async and lo.target.has_mbarrier, "cp.async and mbarriers", "sm_80")
    lo.emit(op.kind, view(lo, op.operands[0]), **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    async_copy.global_to_shared: global_to_shared,
    async_copy.mbarrier_arrive: mbarrier_arrive,
}
