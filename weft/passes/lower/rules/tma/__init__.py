"""Lowering of `weft.ops.tma`."""

from __future__ import annotations

from weft.ir.core import OpDef
from weft.passes.lower.rules.tma import copies, descriptors, gather
from weft.passes.lower.state import LowerRule

RULES: dict[OpDef, LowerRule] = {**copies.RULES, **descriptors.RULES, **gather.RULES}
