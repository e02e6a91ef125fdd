"""Facts of `weft.ops.control`. The phis of control flow are joined by `weft.analysis.facts.infer`."""

from __future__ import annotations

from weft.analysis.facts.rule import Rule
from weft.ir.core import OpDef
from weft.ops import control

RULES: dict[OpDef, Rule] = {}
FLOW = (control.for_, control.while_, control.if_, control.warp_specialize)
NOTHING: dict[OpDef, str] = {control.trips: "as many as the bounds say, which no client queries"}
