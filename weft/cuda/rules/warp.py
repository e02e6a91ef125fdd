"""Warp shuffles and votes."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, spells
from weft.cuda.text.tables import parenthesised
from weft.ir.core import Op
from weft.ops import warp


@spells(warp.shuffle_xor)
def _shuffle_xor(e: Emitter, op: Op, x: str) -> str:
    return e.call("shuffle_xor", x, str(op.attrs["mask"]))


@spells(warp.shuffle_idx)
def _shuffle_idx(e: Emitter, op: Op, x: str, lane: str) -> str:
    return e.call("shuffle_idx", x, f"(int){parenthesised(lane)}")


@spells(warp.vote)
def _vote(e: Emitter, op: Op, x: str) -> str:
    return e.call("vote", x)
