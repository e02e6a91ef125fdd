"""Lowering of `weft.ops.tile`."""

from __future__ import annotations

from weft.ir.core import OpDef
from weft.passes.lower.rules.tile import across, convert, reductions, shape, sorts
from weft.passes.lower.state import LowerRule

RULES: dict[OpDef, LowerRule] = {
    **across.RULES, **convert.RULES, **reductions.RULES, **shape.RULES, **sorts.RULES,
}  # fmt: skip
