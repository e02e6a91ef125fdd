"""Lowering of asynchronous copies: cp.async by each thread, mbarriers, and TMA by the elected thread."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import lowering as errors
from weft.ir.core import Op, Value
from weft.ir.define import OpDef
from weft.ir.types import DescriptorType
from weft.layout import NVMMASharedLayout
from weft.layout import tma as tma_layout
from weft.ops import async_copy, mbarrier, program, tma
from weft.ops.check import pointer_of
from weft.passes.lower.forms import Form, Table
from weft.passes.lower.handles import view
from weft.passes.lower.memory import operand_form, predicate
from weft.passes.lower.shared import places, plan
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.vectors import Tiles, Vectors, address_operands, vectorize

LEAST_BYTES = 4


def _require(lo: Lowering, op: Op, has: bool, needs: str, since: str) -> None:
    if not has:
        raise fail(errors.TARGET, loc=op.loc, what=op.name, needs=needs, target=lo.target.name, since=since)


def _optional(lo: Lowering, value: Value | None) -> Value | None:
    return None if value is None else lo.scalar(value)


# cp.async


def global_to_shared(lo: Lowering, op: Op) -> None:
    """Copies as wide as both memories and the mask allow. Elements that several threads hold are copied once."""
    handle, ptr, mask = op.operands
    assert handle is not None and ptr is not None
    _require(lo, op, lo.target.has_cp_async, "cp.async", "sm_80")
    access = plan(lo, handle, ptr, store=True).access
    base, offsets, added = places(lo, access)
    address, masked = lo.form(ptr), operand_form(lo, mask)
    vectors, order = _vectors(lo, op, access.registers, address, masked)
    pieces = access.vec // vectors.vec
    whole, piece = [i // pieces for i in order], [i % pieces * vectors.vec for i in order]
    pointer, strides, tables = address_operands(lo, address, vectors.leaders)
    moved = tuple([(added[i] if added else 0) + p for i, p in zip(whole, piece, strict=True)])
    lo.emit(
        async_copy.copy, view(lo, handle), base, pointer, predicate(lo, masked, vectors.leaders, None),
        lo.has_clear(access.lane_mask, access.warp_mask), *strides,
        offsets=tables, places=tuple([offsets[i] for i in whole]), vec=vectors.vec,
        added=moved if any(moved) else (), pads=access.pads, cache=op.attrs["cache"], eviction=op.attrs["eviction"],
    )  # fmt: skip


def _vectors(
    lo: Lowering, op: Op, registers: tuple[Table, ...], address: Form, masked: Form | None
) -> tuple[Vectors, list[int]]:
    """Vectors that are neighbours in both memories, and which part of `registers`, cut to their width, each of them is.

    Raises CompilationError (async-copy-width)."""
    _, ptr, mask = op.operands
    assert ptr is not None
    element = pointer_of(ptr).element_ty
    every = tuple(sorted(r for group in registers for r in group))
    widest = len(registers[0])
    found = vectorize(lo, Tiles(ptr, mask), address, masked, every, element.itemsize)
    in_global, vec = found.vec, min(found.vec, widest)
    while vec * element.itemsize >= LEAST_BYTES:
        found = vectorize(lo, Tiles(ptr, mask), address, masked, every, element.itemsize, limit=vec)
        parts = [group[i : i + found.vec] for group in registers for i in range(0, widest, found.vec)]
        if found.vec == vec and set(parts) == set(found.groups):
            return found, [parts.index(group) for group in found.groups]
        vec //= 2
    raise fail(
        errors.ASYNC_COPY_WIDTH, loc=op.loc, dtype=element.name, bits=element.itemsize * 8,
        in_global=in_global, in_shared=widest, least=max(LEAST_BYTES // element.itemsize, 1),
    )  # fmt: skip


def mbarrier_arrive(lo: Lowering, op: Op) -> None:
    """On the barrier's memory."""
    _require(lo, op, lo.target.has_cp_async and lo.target.has_mbarrier, "cp.async and mbarriers", "sm_80")
    lo.emit(op.kind, view(lo, op.operands[0]), **op.attrs)


# mbarriers


def on_barrier(lo: Lowering, op: Op) -> None:
    """The same operation on the barrier's memory."""
    _require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    if op.kind is mbarrier.expect:
        _require(lo, op, lo.target.has_mbarrier_tx, "mbarriers that count bytes", "sm_90a")
    bar, *others = op.operands
    lo.emit(op.kind, view(lo, bar), *(_optional(lo, value) for value in others), **op.attrs)


def wait(lo: Lowering, op: Op) -> None:
    """On the barrier's memory; what the wait keeps alive has its place already."""
    _require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    bar, phase, pred, *_ = op.operands
    lo.emit(op.kind, view(lo, bar), lo.scalar(phase), _optional(lo, pred))


# TMA


def _attrs(lo: Lowering, op: Op) -> dict[str, Any]:
    """The operation's attributes with its boxes, what the hardware moves in one instruction each: see `weft.layout.tma`.

    Raises CompilationError (tma-im2col-pixels)."""
    _require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    desc = op.operand("desc")
    assert desc is not None and isinstance(desc.type, DescriptorType)
    d = desc.type
    assert isinstance(d.layout, NVMMASharedLayout)
    split = tma_layout.boxes(d.block_shape, d.layout, d.element.bits)
    if d.mode == "im2col" and any(start[0] for start, _ in split.placements):
        raise fail(errors.IM2COL_PIXELS, loc=op.loc, pixels=d.block_shape[0], limit=split.box[0])
    return {**op.attrs, "boxes": tuple([(start, offset) for start, offset in split.placements])}


def tma_load(lo: Lowering, op: Op) -> None:
    """One request per box, all on one barrier."""
    attrs = _attrs(lo, op)
    desc, bar, handle, pred, *coords = op.operands
    lo.emit(
        op.kind, lo.scalar(desc), view(lo, bar), view(lo, handle), _optional(lo, pred), *map(lo.scalar, coords),
        **attrs,
    )  # fmt: skip


def tma_store(lo: Lowering, op: Op) -> None:
    """One request per box, all in one group."""
    attrs = _attrs(lo, op)
    desc, handle, *coords = op.operands
    lo.emit(op.kind, lo.scalar(desc), view(lo, handle), *map(lo.scalar, coords), **attrs)


def make_descriptor(lo: Lowering, op: Op) -> None:
    """Raises CompilationError (tma-make-descriptor)."""
    raise fail(errors.DEVICE_DESCRIPTOR, loc=op.loc)


def fence_async(lo: Lowering, op: Op) -> None:
    """Only GPUs that have an async proxy have the fence."""
    _require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    lo.emit(op.kind, **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    async_copy.global_to_shared: global_to_shared,
    async_copy.mbarrier_arrive: mbarrier_arrive,
    mbarrier.init: on_barrier,
    mbarrier.invalidate: on_barrier,
    mbarrier.expect: on_barrier,
    mbarrier.arrive: on_barrier,
    mbarrier.wait: wait,
    tma.load: tma_load,
    tma.load_im2col: tma_load,
    tma.store: tma_store,
    tma.reduce: tma_store,
    tma.make_descriptor: make_descriptor,
    program.fence_async: fence_async,
}
