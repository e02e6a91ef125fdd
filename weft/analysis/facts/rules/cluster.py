"""Facts of `weft.ops.cluster`."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule, first, same
from weft.ir.core import OpDef
from weft.ops import cluster

RULES: dict[OpDef, Rule] = {cluster.convert: Rule(first, same)}
NOTHING: dict[OpDef, str] = dict.fromkeys(
    (cluster.load, cluster.load_regs, cluster.load_at, cluster.atomic_at), "what memory held"
)
