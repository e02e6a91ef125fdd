"""Lowering of inline PTX that runs once in each thread: on register arrays instead of tiles."""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ir.types import TileType
from weft.layout.linear.ends import count
from weft.ops import asm
from weft.passes.lower.forms import Array
from weft.passes.lower.state import Lowering, LowerRule


def block(lo: Lowering, op: Op) -> None:
    """The shapes of the results become numbers of registers."""
    values = [lo.array(lo.form(v)) if isinstance(v.type, TileType) else lo.scalar(v) for v in op.uses]
    shapes = tuple([(count(v.type.linear),) for v in op.results if isinstance(v.type, TileType) and v.type.linear])
    results = lo.create(op.kind, tuple(values), {**op.attrs, "shapes": shapes, "layouts": ()})
    lo.define(op, *map(Array, results))


RULES: dict[OpDef, LowerRule] = {asm.block: block, asm.block_volatile: block}
