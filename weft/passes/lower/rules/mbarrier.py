"""Lowering of mbarriers.

mbarrier.init %bars {count=1}    -->    mbarrier.init %memory {count=1}
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ops import mbarrier
from weft.passes.lower.blocks import in_first, where
from weft.passes.lower.handles import view
from weft.passes.lower.operands import optional, require
from weft.passes.lower.state import Lowering, LowerRule


def on_barrier(lo: Lowering, op: Op) -> None:
    """The same operation on the mbarrier's memory, in the blocks that arrive."""
    require(lo, op, lo.target.has_mbarrier, "mbarriers", "sm_80")
    if op.kind is mbarrier.expect:
        require(lo, op, lo.target.has_mbarrier_tx, "mbarriers that count bytes", "sm_90a")
    bar, *others = op.operands
    with where(lo, in_first(lo, op.attrs["sent_to"])):
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


RULES: dict[OpDef, LowerRule] = {
    mbarrier.init: init,
    mbarrier.invalidate: invalidate,
    mbarrier.expect: on_barrier,
    mbarrier.arrive: on_barrier,
    mbarrier.wait: wait,
}
