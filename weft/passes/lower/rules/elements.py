"""Lowering of the author's element functions."""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ir.types import TileType
from weft.ops import elements
from weft.passes.lower.forms import Array
from weft.passes.lower.state import Lowering, LowerRule


def map_elements(lo: Lowering, op: Op) -> None:
    """The function stays a region over scalars, which is executed for each register."""
    if not isinstance(op.results[0].type, TileType):
        lo.env.update(zip(op.results, lo.keep(op, tuple([lo.scalar(v) for v in op.uses])), strict=True))
        return
    arrays = [lo.array(lo.form(value)) for value in op.uses]
    body = lo.copy_region(op.regions[0])
    lo.loc = op.loc
    results = lo.create(elements.map_elements, tuple(arrays), op.attrs, (body,))
    lo.define(op, *(Array(value) for value in results))


RULES: dict[OpDef, LowerRule] = {elements.map_elements: map_elements}
