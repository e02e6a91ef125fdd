"""What synchronisation a kernel has, by the author's line: inserted with its reason, or the author's own.

kernel.py:12: fence.async, inserted before tma.store of c (written at line 11)
kernel.py:14: barrier, as written
kernel.py:15: barrier, as written, but nothing was left to order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.errors import Loc
from weft.ir.core import Func, walk
from weft.ir.define import OpDef
from weft.ops import cluster, program
from weft.passes.insert_sync import unneeded

Kind = Literal["barrier", "fence.async", "barrier of the cluster"]
KINDS: dict[OpDef, Kind] = {
    program.barrier: "barrier",
    program.fence_async: "fence.async",
    cluster.wait: "barrier of the cluster",
}


@dataclass(frozen=True, slots=True)
class Sync:
    """A barrier or fence: its line, why it was inserted (empty: the author wrote it), and whether it has a use."""

    kind: Kind
    loc: Loc | None
    reason: str = ""
    needed: bool = True

    def __str__(self) -> str:
        if self.reason:
            return f"{self.kind}, inserted {self.reason}"
        return f"{self.kind}, as written" + ("" if self.needed else ", but nothing was left to order")


def synchronisation(lowered: Func, tile: Func) -> list[Sync]:
    """The barriers and fences of a lowered function, in program order; `tile` is what it was lowered from.

    Only tile IR has the author's view of what there is to order.
    """
    vain = unneeded(tile) if tile.attrs.get("sync") != "none" else []
    # One line may stand for several operations, as in a helper that is called twice: it has a use if one of them has.
    used = {(op.kind, op.loc) for op in walk(tile.body) if op.kind in KINDS and op not in vain}
    return [
        Sync(KINDS[op.kind], op.loc, op.attrs["reason"], not vain or (op.kind, op.loc) in used)
        for op in walk(lowered.body)
        if op.kind in KINDS
    ]


def sync_report(lowered: Func, tile: Func) -> str:
    """What there is at each line, in program order; says so when there is nothing."""
    lines = dict.fromkeys(f"{sync.loc}: {sync}" for sync in synchronisation(lowered, tile))
    return "\n".join(lines) if lines else f"{lowered.name}: no barriers"
