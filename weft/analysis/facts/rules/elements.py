"""Facts of `weft.ops.elements`."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule
from weft.ir.core import OpDef
from weft.ops import elements

RULES: dict[OpDef, Rule] = {}
NOTHING: dict[OpDef, str] = {elements.map_elements: "what a function of the author's makes"}
