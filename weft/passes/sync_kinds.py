"""What kinds of operations `insert_sync` tells apart, by their declared effects."""

from __future__ import annotations

from weft.ir.core import Op
from weft.ops import tma


def is_elected(op: Op) -> bool:
    """Whether the elected thread does it and goes on; waits are not so."""
    effects = op.kind.effects
    alone = any(effect.elected for effect in effects) and not op.attrs.get("each_warp") and not tma.by_several(op)
    return alone and all((e.elected and e.kind != "sync") or e.kind == "release" for e in effects)


def is_product(op: Op) -> bool:
    """Whether an operation starts a product of a warpgroup."""
    return any(effect.completes == "wgmma" and effect.kind == "read" for effect in op.kind.effects)


def touches_global(op: Op) -> bool:
    """Whether threads access global memory themselves."""
    return any(effect.space == "global" and effect.proxy == "generic" for effect in op.kind.effects)


def is_commit(op: Op) -> bool:
    """Whether an mbarrier is told by it that tcgen05 operations are complete."""
    return any(effect.kind == "update" and effect.completes == "tcgen05" for effect in op.kind.effects)


def threads_touch_tensor(op: Op) -> bool:
    """Whether all threads access tensor memory, not the elected one alone."""
    return any(each.space == "tensor" and each.kind != "sync" and not each.elected for each in op.kind.effects)


def publishes(op: Op) -> bool:
    """Whether an atomic publishes what its block did before."""
    return op.attrs.get("order") in ("release", "acq_rel")
