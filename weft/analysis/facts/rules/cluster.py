"""Facts of `weft.ops.cluster`."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule
from weft.ir.core import OpDef

RULES: dict[OpDef, Rule] = {}
NOTHING: dict[OpDef, str] = {}
