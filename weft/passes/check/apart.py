"""Reject what all blocks of a cluster do together where they part.

    control.if (rank == 1) { tile.reduce %x over an axis that is split over the blocks }    error (cluster-divided)

Under a condition that differs between blocks (`weft.analysis.apart`) each block acts for itself. It cannot exchange elements
with blocks that are elsewhere, nor use what the first of several blocks does for all of them. Barriers of the whole cluster are
no such operations: blocks may arrive in different branches. The pass runs after `exchange_blocks` and
`meet_partitions`, which insert exchanges and barriers of partitions.
"""

from __future__ import annotations

from weft.analysis.apart import apart
from weft.errors import cluster as errors
from weft.errors import fail
from weft.ir.core import Func, Op
from weft.ir.types import TensorType
from weft.ops import clc, cluster, mbarrier

_SHARED = (mbarrier.init, mbarrier.invalidate, mbarrier.wait)


def check_apart(func: Func) -> Func:
    """Check a function. Raises CompilationError (cluster-divided)."""
    for op, condition in apart(func).under.items():
        what = _of_all(op)
        if what:
            related = () if condition is None else (("the condition", condition),)
            raise fail(errors.DIVIDED, loc=op.loc, related=related, what=what)
    return func


def _of_all(op: Op) -> str:
    """What of an operation needs other blocks than those that reach it; empty for nothing."""
    if op.kind is cluster.convert:
        return "an exchange of elements between blocks"
    if op.kind is cluster.barrier:
        return "the barrier of a partition's threads in all blocks"
    if op.kind is clc.try_cancel:
        return "a request of cluster launch control"
    if op.kind in _SHARED and op.operands[0] is not None and mbarrier.blocks_sharing(op.operands[0]):
        return f"{op.name} of a barrier that blocks share"
    pairs = any(isinstance(value.type, TensorType) and value.type.layout.two_ctas for value in op.uses)
    if pairs and any(effect.by == "elected" for effect in op.effects):
        return f"{op.name} of two blocks"
    return ""
