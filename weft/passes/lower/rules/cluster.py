"""Lowering of the barrier of partitions across a cluster, of conversions between blocks (`weft.passes.lower.cluster`), and of
accesses to the memory of a block by its rank.

cluster.barrier %bars    -->    cluster.barrier %memory
"""

from __future__ import annotations

from typing import Any

from weft.ir.core import Op, OpDef, Value
from weft.layout.shared.vectors import VectorAccess
from weft.ops import cluster
from weft.ops.check import linear_of
from weft.passes.lower.forms import Array
from weft.passes.lower.handles import type_of, view
from weft.passes.lower.operands import require
from weft.passes.lower.rules.shared import check_sent, places, plan, slots
from weft.passes.lower.rules.tile.convert import converted
from weft.passes.lower.state import Lowering, LowerRule


def barrier(lo: Lowering, op: Op) -> None:
    """The same operation on the mbarrier's memory."""
    lo.emit(cluster.barrier, view(lo, op.operands[0]), **op.attrs)


def convert(lo: Lowering, op: Op) -> None:
    """Convert a tile to a layout whose blocks hold other elements."""
    source, bar = op.operands
    assert source is not None
    first, form, bits = bool(op.attrs["first"]), lo.form(source), source.type.element.bits
    lo.define(op, converted(lo, form, linear_of(source), linear_of(op.result), bits, first, bar))


def load(lo: Lowering, op: Op) -> None:
    """As a load of the block's own memory, from that of another."""
    handle, peer = op.uses
    found = plan(lo, handle, op.result, store=False)
    slot = slots(found.access.registers)
    registers = tuple(tuple([slot[r] for r in group]) for group in found.access.registers)
    base, each = _places(lo, found.access)
    value = lo.emit(
        cluster.load_regs, view(lo, handle), base, lo.scalar(peer),
        registers=registers, vec=found.access.vec, pads=found.access.pads, **each,
    )  # fmt: skip
    lo.define(op, lo.picked(Array(value), tuple([slot[r] for r in found.result])))


def store(lo: Lowering, op: Op) -> None:
    """As a store to the block's own memory, to that of another, with a barrier asynchronously. Raises CompilationError
    (async-store-width, lower-target)."""
    handle, peer, value, *bars = op.uses
    access = plan(lo, handle, value, store=True).access
    if bars:
        require(lo, op, lo.target.has_st_async, "st.async", "sm_90a")
        check_sent(op, type_of(handle), access)
    base, each = _places(lo, access)
    lo.emit(
        cluster.async_store_regs if bars else cluster.store_regs,
        view(lo, handle), base, lo.scalar(peer), lo.array(lo.form(value)), *(view(lo, bar) for bar in bars),
        lo.has_clear(access.lane_mask, access.warp_mask),
        registers=access.registers, vec=access.vec, pads=access.pads, **each,
    )  # fmt: skip


def _places(lo: Lowering, access: VectorAccess) -> tuple[Value, dict[str, Any]]:
    base, offsets, added = places(lo, access)
    return base, {"offsets": offsets, "added": added, "peers": (0,) * len(offsets)}


RULES: dict[OpDef, LowerRule] = {
    cluster.barrier: barrier,
    cluster.convert: convert,
    cluster.load: load,
    cluster.store: store,
    cluster.async_store: store,
}
