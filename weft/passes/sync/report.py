"""A report of the synchronisation in a kernel by source line: inserted with its reason, moved, or the author's own.

kernel.py:12: fence.async, inserted before tma.store of c (written at line 11)
kernel.py:14: barrier, as written
kernel.py:15: barrier, as written, but it orders nothing
kernel.py:17: arrive on empty, once by each of 4 warps
kernel.py:21: wait for MMAs, moved behind the MMA of line 24, which accumulates in place
kernel.py:26: schedule_barrier, inserted to keep line 23 before the wait for MMAs
kernel.py:30: tcgen05.fence after, inserted behind mbarrier.wait, for tensor_memory.load at line 31
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.analysis.handles import handles
from weft.errors import Loc
from weft.ir.core import Func, OpDef, walk
from weft.ops import cluster, mma, sync, tcgen05
from weft.ops.control import run_by
from weft.passes.sync.insert_sync import unneeded

Kind = Literal[
    "barrier", "fence", "fence.async", "fence.async.global", "cluster barrier", "arrive", "wait for MMAs",
    "tcgen05.fence before", "tcgen05.fence after", "schedule_barrier",
]  # fmt: skip
KINDS: dict[OpDef, Kind] = {
    sync.barrier: "barrier",
    sync.fence: "fence",
    sync.fence_async: "fence.async",
    sync.fence_async_global: "fence.async.global",
    cluster.wait: "cluster barrier",
    cluster.barrier: "cluster barrier",
}
FENCES: dict[bool, Kind] = {True: "tcgen05.fence before", False: "tcgen05.fence after"}


@dataclass(frozen=True, slots=True)
class Sync:
    """A barrier or fence: its line, why it was inserted (empty: the author wrote it), and whether it orders anything.

    Or an arrival without a barrier before it: `reason` gives the mbarrier, and why none is needed. Or a wait that was moved:
    `reason` gives its new place and why.
    """

    kind: Kind
    loc: Loc | None
    reason: str = ""
    needed: bool = True

    def __str__(self) -> str:
        if self.kind == "arrive":
            return f"{self.kind} {self.reason}"
        if self.kind == "wait for MMAs":
            return f"{self.kind}, {self.reason}"
        if self.reason:
            return f"{self.kind}, inserted {self.reason}"
        return f"{self.kind}, as written" + ("" if self.needed else ", but it orders nothing")


def synchronisation(lowered: Func, tile: Func) -> list[Sync]:
    """The synchronisation of a lowered function, in program order. `tile` is the tile IR that it was lowered from.

    Whether a barrier of the author is needed is decided on tile IR, which has the author's buffers.
    """
    vain = unneeded(tile) if tile.attrs.sync != "none" else []
    # Several operations may have the same line, as in a helper that is called twice: it is needed if one of them is.
    used = {(op.kind, op.loc) for op in walk(tile.body) if op.kind in KINDS and op not in vain}
    places = handles(lowered)
    found: list[Sync] = []
    for op, warps in run_by(lowered):
        if op.kind in KINDS:
            needed = not vain or bool(op.attrs.get("of")) or (op.kind, op.loc) in used
            # Some fences are the author's only, and need no reason.
            found.append(Sync(KINDS[op.kind], op.loc, op.attrs.get("reason", ""), needed))
        elif op.kind is tcgen05.fence:
            found.append(Sync(FENCES[op.attrs["before"]], op.loc, op.attrs["reason"]))
        elif op.by == "each warp":
            (bar, *_) = op.uses
            name = min(place.alloc.result.name for place in places[bar])
            found.append(Sync("arrive", op.loc, f"on {name or 'a barrier'}, once by each of {warps} warps"))
        elif op.kind is sync.schedule_barrier:
            found.append(Sync("schedule_barrier", op.loc, op.attrs["reason"]))
        elif op.kind is mma.warpgroup_wait and op.attrs["reason"]:
            found.append(Sync("wait for MMAs", op.loc, op.attrs["reason"]))
    return found


def sync_report(lowered: Func, tile: Func) -> str:
    """The report as text, one line per barrier, fence or wait, in program order."""
    lines = dict.fromkeys(f"{each.loc}: {each}" for each in synchronisation(lowered, tile))
    return "\n".join(lines) if lines else f"{lowered.name}: no barriers"
