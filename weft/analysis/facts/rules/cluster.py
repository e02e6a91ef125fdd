"""Facts of `weft.ops.cluster`."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule
from weft.ir.core import OpDef
from weft.ops import cluster

RULES: dict[OpDef, Rule] = {}
NOTHING: dict[OpDef, str] = {cluster.rank: "less than the blocks of a cluster, which no client queries"}
