"""Lowering of asynchronous copies: cp.async by each thread, mbarriers, and TMA by the elected thread.

tma.load %desc, %bar, %tile, %x, %y    -->    tma.load %desc, %bar, %memory, %x, %y {boxes=((start, offset), ...)}
mbarrier.init %bars {count=1}          -->    mbarrier.init %memory {count=1}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.analysis.flow import repeated
from weft.errors import cluster as cluster_errors
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DescriptorType, int32, int64
from weft.layout import LinearLayout, NVMMASharedLayout
from weft.layout.cluster import block_bases, copies, receivers
from weft.layout.shared import tma as tma_layout
from weft.ops import arith, async_copy, debug, mbarrier, shared, sync, tma
from weft.ops.check import pointer_of
from weft.passes.lower.blocks import in_first, where
from weft.passes.lower.forms import Form, Table
from weft.passes.lower.handles import slice_of, view
from weft.passes.lower.memory import operand_form, predicate
from weft.passes.lower.operands import optional, require
from weft.passes.lower.shared import places, plan
from weft.passes.lower.state import Lowering, LowerRule
from weft.passes.lower.vectors import Tiles, Vectors, address_operands, vectorize

# cp.async copies 4, 8 or 16 bytes (PTX ISA, cp.async).
LEAST_BYTES = 4


# cp.async


def global_to_shared(lo: Lowering, op: Op) -> None:
    """Copies of the widest vectors that are contiguous in both memories and uniformly masked. An element that several threads
    hold is copied once."""
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
    lo.emit(
        async_copy.copy, view(lo, handle), base, pointer, predicate(lo, masked, vectors.leaders, None),
        lo.has_clear(access.lane_mask, access.warp_mask), *strides,
        offsets=tables, places=tuple([offsets[i] for i in whole]), vec=vectors.vec,
        added=moved if any(moved) else (), pads=access.pads, cache=op.attrs["cache"], eviction=op.attrs["eviction"],
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
    """An arrival of the cp.async copies on the mbarrier's memory."""
    require(lo, op, lo.target.has_cp_async and lo.target.has_mbarrier, "cp.async and mbarriers", "sm_80")
    lo.emit(op.kind, view(lo, op.operands[0]), **op.attrs)


# mbarriers


def on_barrier(lo: Lowering, op: Op) -> None:
    """The same operation on the mbarrier's memory."""
    require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    if op.kind is mbarrier.expect:
        require(lo, op, lo.target.has_mbarrier_tx, "mbarriers that count bytes", "sm_90a")
    bar, *others = op.operands
    lo.emit(op.kind, view(lo, bar), *(optional(lo, value) for value in others), **op.attrs)


def _shared_by(op: Op) -> int:
    bar = op.operands[0]
    assert bar is not None
    return mbarrier.blocks_sharing(bar)


def init(lo: Lowering, op: Op) -> None:
    """Initialise in the first of the blocks that share the mbarrier, for the arrivals of all of them."""
    require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    blocks = _shared_by(op)
    with where(lo, in_first(lo, blocks)):
        lo.emit(op.kind, view(lo, op.operands[0]), count=op.attrs["count"] << blocks.bit_count())


def invalidate(lo: Lowering, op: Op) -> None:
    """Invalidate in the first of the blocks that share the mbarrier."""
    require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    with where(lo, in_first(lo, _shared_by(op))):
        lo.emit(op.kind, view(lo, op.operands[0]))


def wait(lo: Lowering, op: Op) -> None:
    """Wait in the first of the blocks that share the mbarrier. The other operands only extended live ranges, and shared memory
    is allocated already."""
    require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    bar, phase, pred, *_ = op.operands
    blocks = _shared_by(op)
    with where(lo, in_first(lo, blocks)):
        lo.emit(op.kind, view(lo, bar), lo.scalar(phase), optional(lo, pred), shared_by=blocks)


# TMA


def _coordinates(lo: Lowering, op: Op, coords: Sequence[Value | None]) -> list[Value]:
    """The coordinates at which this block's part of a TMA request begins. An im2col request cannot be split among blocks."""
    t, given = _descriptor(op), [lo.scalar(c) for c in coords]
    vectors = block_bases(t.layout.cga, t.block_shape)
    parts = [tuple([vector[d] for vector in vectors]) for d in range(len(t.block_shape))]
    if not any(map(any, parts)):
        return given
    if t.mode == "im2col":
        raise fail(cluster_errors.IM2COL, loc=op.loc, layout=t.layout)
    return [lo.add(c, lo.of_thread((), (), part)) if any(part) else c for c, part in zip(given, parts, strict=True)]


def _linear(op: Op) -> LinearLayout:
    """How the descriptor's block is distributed over the blocks of a cluster."""
    t = _descriptor(op)
    return t.layout.to_linear(t.block_shape)


def _descriptor(op: Op) -> DescriptorType:
    desc = op.operand("desc")
    assert desc is not None and isinstance(desc.type, DescriptorType)
    return desc.type


def _attrs(lo: Lowering, op: Op) -> dict[str, Any]:
    """The operation's attributes with its boxes; one TMA instruction moves one box (see `weft.layout.shared.tma`).

    Raises CompilationError (tma-im2col-pixels)."""
    require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    d = _descriptor(op)
    assert isinstance(d.layout, NVMMASharedLayout)
    handle = op.operand("handle")
    assert handle is not None
    split = tma_layout.boxes(d.block_shape, d.layout, d.element.bits, slice_of(lo, handle))
    if d.mode == "im2col" and any(start[0] for start, _ in split.placements):
        raise fail(errors.IM2COL_PIXELS, loc=op.loc, pixels=d.block_shape[0], limit=split.box[0])
    return {**op.attrs, "boxes": tuple([(start, offset) for start, offset in split.placements])}


def tma_load(lo: Lowering, op: Op) -> None:
    """One TMA load per box, all on one mbarrier. A multicast load is issued by one of the receiving blocks."""
    attrs = _attrs(lo, op)
    desc, bar, handle, pred, *coords = op.operands
    shared = receivers(_linear(op), lo.num_ctas) if op.attrs["multicast"] else 0
    attrs["multicast"] = bool(shared)
    with where(lo, in_first(lo, shared, op.attrs.get("sender", 0))):
        lo.emit(
            op.kind, lo.scalar(desc), view(lo, bar), view(lo, handle), optional(lo, pred), *_coordinates(lo, op, coords),
            **attrs,
        )  # fmt: skip


def tma_store(lo: Lowering, op: Op) -> None:
    """One TMA store per box, all in one bulk group. If several blocks hold the same data, the first of them stores it."""
    attrs = _attrs(lo, op)
    desc, handle, *coords = op.operands
    with where(lo, in_first(lo, copies(_linear(op), lo.num_ctas))):
        lo.emit(op.kind, lo.scalar(desc), view(lo, handle), *_coordinates(lo, op, coords), **attrs)


def make_descriptor(lo: Lowering, op: Op) -> None:
    """Each operation in the code has its own slot in the workspace; in a loop, each iteration overwrites the descriptor of the
    previous one.

    Each partition makes the descriptors that it uses (see `split_partitions`), so unused ones are dropped here."""
    require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    if op.result not in lo.used:
        return
    operands = [lo.scalar(value) for value in op.uses]
    if lo.source.attrs.debug:
        _assert_describable(lo, op, operands)
    size, slot = tma.DESCRIPTOR_BYTES, lo.workspace
    lo.workspace += size
    room = lo.emit(shared.scratch, dtype=int32, count=size // int32.itemsize, tag=lo.tag(), align=size)
    attrs: dict[str, Any] = {**op.attrs, "slot": slot, "again": op in repeated(lo.source.body)}
    lo.env[op.result] = lo.emit(tma.write_descriptor, room, *operands, name=op.result.name, **attrs)


def _assert_describable(lo: Lowering, op: Op, operands: list[Value]) -> None:
    """Assertions of a debug build: the alignment of addresses and strides, and the extents, that TMA requires (CUDA
    Driver API, cuTensorMapEncodeTiled). The language has checked constants already."""
    base, *numbers = operands
    rank = len(numbers) // 2
    zero, granule = lo.constant(0, int64), lo.constant(15, int64)

    def demand(condition: Value, message: str) -> None:
        lo.emit(debug.assert_, condition, None, message=f"make_tensor_descriptor: {message}")

    def whole(size: Value) -> Value:
        return lo.emit(arith.cmp, lo.emit(arith.and_, size, granule), zero, predicate="eq")

    demand(whole(lo.emit(arith.bitcast, base, element=int64)), "the address is no multiple of 16 bytes")
    one = lo.constant(1, int32)
    for dim, extent in enumerate(numbers[:rank]):
        if extent not in lo.constants:
            demand(lo.emit(arith.cmp, extent, one, predicate="ge"), f"extent {dim} is below 1")
    for dim, (extent, stride) in enumerate(zip(numbers[: rank - 1], numbers[rank:-1], strict=True)):
        if stride in lo.constants:
            continue
        steps = whole(lo.scaled(stride, pointer_of(base).element_ty.itemsize))
        single = lo.emit(arith.cmp, extent, one, predicate="eq")
        demand(lo.emit(arith.or_, steps, single), f"stride {dim} is no multiple of 16 bytes")


def fence_async(lo: Lowering, op: Op) -> None:
    """`fence.proxy.async` exists from sm_90 on, where the async proxy does."""
    require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    lo.emit(op.kind, **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    async_copy.global_to_shared: global_to_shared,
    async_copy.mbarrier_arrive: mbarrier_arrive,
    mbarrier.init: init,
    mbarrier.invalidate: invalidate,
    mbarrier.expect: on_barrier,
    mbarrier.arrive: on_barrier,
    mbarrier.wait: wait,
    tma.load: tma_load,
    tma.load_im2col: tma_load,
    tma.store: tma_store,
    tma.reduce: tma_store,
    tma.make_descriptor: make_descriptor,
    sync.fence_async: fence_async,
}
