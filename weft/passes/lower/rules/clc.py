"""Lowering of cluster launch control: the handles become memory, and the first block of a cluster issues the request.

clc.try_cancel %result, %bar    -->    control.if (rank == 0) { clc.try_cancel %result_memory, %bar_memory }
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ops import clc
from weft.passes.lower.blocks import in_first, where
from weft.passes.lower.handles import view
from weft.passes.lower.operands import require
from weft.passes.lower.state import Lowering, LowerRule


def _require(lo: Lowering, op: Op) -> None:
    require(lo, op, lo.target.has_cluster_launch_control, "cluster launch control", "sm_100a")


def try_cancel(lo: Lowering, op: Op) -> None:
    """Issue one request for the whole cluster. Raises CompilationError (lower-target)."""
    _require(lo, op)
    result, bar = op.uses
    with where(lo, in_first(lo)):
        lo.emit(op.kind, view(lo, result), view(lo, bar), **op.attrs)


def load(lo: Lowering, op: Op) -> None:
    """Every thread loads the response."""
    _require(lo, op)
    (result,) = op.uses
    halves = lo.create(op.kind, (view(lo, result),), op.attrs)
    for old, new in zip(op.results, halves, strict=True):
        new.name = old.name
        lo.env[old] = new


RULES: dict[OpDef, LowerRule] = {
    clc.try_cancel: try_cancel,
    clc.load: load,
}
