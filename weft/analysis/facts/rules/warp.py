"""Facts of `weft.ops.warp`: a shuffle gives a value that some lane has, a vote any word."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule, first
from weft.ir.core import OpDef
from weft.ops import warp

RULES: dict[OpDef, Rule] = dict.fromkeys((warp.shuffle_xor, warp.shuffle_idx), Rule(first))
NOTHING: dict[OpDef, str] = {warp.vote: "one bit for each lane"}
