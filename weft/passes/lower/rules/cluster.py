"""Lowering of the barrier of partitions across a cluster, and of conversions between blocks (`weft.passes.lower.cluster`).

cluster.barrier %bars    -->    cluster.barrier %memory
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ops import cluster
from weft.ops.check import linear_of
from weft.passes.lower.handles import view
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


RULES: dict[OpDef, LowerRule] = {cluster.barrier: barrier, cluster.convert: convert}
