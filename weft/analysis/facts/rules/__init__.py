"""The transfer functions of value facts: one file for each file of `weft.ops`, with the same name."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule
from weft.analysis.facts.rules import (
    arith,
    cluster,
    control,
    elements,
    hints,
    libdevice,
    memory,
    program,
    regs,
    tile,
    warp,
)
from weft.ir.core import OpDef

FAMILIES = (arith, cluster, control, elements, hints, libdevice, memory, program, regs, tile, warp)
RULES: dict[OpDef, Rule] = {op: rule for family in FAMILIES for op, rule in family.RULES.items()}
NOTHING: dict[OpDef, str] = {op: why for family in FAMILIES for op, why in family.NOTHING.items()}
"""Operations whose results have no facts, each with the reason."""
