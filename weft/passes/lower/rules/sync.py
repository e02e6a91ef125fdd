"""Lowering of the proxy fences. Barriers and fences of memory order stay as they are."""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ops import sync
from weft.passes.lower.operands import require
from weft.passes.lower.state import Lowering, LowerRule


def fence_async(lo: Lowering, op: Op) -> None:
    """`fence.proxy.async` exists from sm_90 on, where the async proxy does."""
    require(lo, op, lo.target.has_tma, "TMA", "sm_90a")
    lo.emit(op.kind, **op.attrs)


RULES: dict[OpDef, LowerRule] = dict.fromkeys((sync.fence_async, sync.fence_async_global), fence_async)
