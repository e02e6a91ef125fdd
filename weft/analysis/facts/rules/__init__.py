"""The facts of each operation's result from those of its operands: a file for each file of `weft.ops`, of the same name."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule
from weft.analysis.facts.rules import arith, cluster, control, memory, program, reduce, regs, tile
from weft.ir.core import OpDef

FAMILIES = (arith, cluster, control, memory, program, reduce, regs, tile)
RULES: dict[OpDef, Rule] = {op: rule for family in FAMILIES for op, rule in family.RULES.items()}
NOTHING: dict[OpDef, str] = {op: why for family in FAMILIES for op, why in family.NOTHING.items()}
"""Operations of whose results nothing is known, with what those are."""
