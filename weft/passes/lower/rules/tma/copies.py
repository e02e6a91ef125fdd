"""Lowering of TMA loads and stores, issued by the elected thread.

tma.load %desc, %bar, %tile, %x, %y    -->    tma.load %desc, %bar, %memory, %x, %y {boxes=((start, offset), ...)}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import cluster as cluster_errors
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DescriptorType
from weft.layout import LinearLayout, NVMMASharedLayout
from weft.layout.cluster import block_bases, copies, receivers
from weft.layout.shared import tma as tma_layout
from weft.ops import tma
from weft.passes.lower.blocks import acting, sending, where
from weft.passes.lower.handles import remote_view, slice_of, type_of, view
from weft.passes.lower.operands import optional, require
from weft.passes.lower.state import Lowering, LowerRule


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
    split = tma_layout.boxes(d.block_shape, d.layout, d.element.bits, slice_of(lo, handle), d.mode == "im2col")
    if d.mode == "im2col" and any(start[0] for start, _ in split.placements):
        raise fail(errors.IM2COL_PIXELS, loc=op.loc, pixels=d.block_shape[0], limit=split.box[0])
    return {**op.attrs, "boxes": tuple([(start, offset) for start, offset in split.placements])}


def load(lo: Lowering, op: Op) -> None:
    """One TMA load per box, all on one mbarrier. A multicast load is issued by one of the receiving blocks."""
    attrs = _attrs(lo, op)
    desc, bar, _, pred, *coords = op.operands
    sharing = receivers(_linear(op), lo.num_ctas) if op.attrs["multicast"] else 0
    attrs["multicast"] = bool(sharing)
    memory, crossing = destination(lo, op)
    with where(lo, sending(lo, op, sharing)):
        lo.emit(
            op.kind, lo.scalar(desc), view(lo, bar), memory, optional(lo, pred), *_coordinates(lo, op, coords),
            **{**attrs, **crossing},
        )  # fmt: skip


def destination(lo: Lowering, op: Op) -> tuple[Value, dict[str, Any]]:
    """The memory that a load writes to, and for slices in the memory of other blocks the attribute that says in which."""
    handle = op.operand("handle")
    assert handle is not None
    if not op.attrs.get("remote"):
        return view(lo, handle), {}
    t, part = type_of(handle), slice_of(lo, handle)
    assert part is not None and isinstance(t.layout, NVMMASharedLayout)
    found = tma_layout.crossing(t.shape, t.layout, t.element.bits, part, lo.num_ctas)
    return remote_view(lo, handle, found), {"crossing": found.blocks}


def store(lo: Lowering, op: Op) -> None:
    """One TMA store per box, all in one bulk group. If several blocks hold the same data, the first of them stores it."""
    attrs = _attrs(lo, op)
    desc, handle, *coords = op.operands
    with where(lo, acting(lo, copies(_linear(op), lo.num_ctas))):
        lo.emit(op.kind, lo.scalar(desc), view(lo, handle), *_coordinates(lo, op, coords), **attrs)


RULES: dict[OpDef, LowerRule] = {
    tma.load: load,
    tma.load_im2col: load,
    tma.store: store,
    tma.reduce: store,
}
