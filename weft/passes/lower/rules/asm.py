"""Lowering of inline PTX that runs once in each thread: on register arrays instead of tiles."""

from __future__ import annotations

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import SharedType, TileType
from weft.layout.linear.ends import count
from weft.ops import asm
from weft.passes.lower.forms import Array
from weft.passes.lower.handles import view
from weft.passes.lower.state import Lowering, LowerRule


def block(lo: Lowering, op: Op) -> None:
    """The shapes of the results become numbers of registers, buffers the memory of their tile."""
    values = [None if v is None else _operand(lo, v) for v in op.operands]
    shapes = tuple([(count(v.type.linear),) for v in op.results if isinstance(v.type, TileType) and v.type.linear])
    results = lo.create(op.kind, tuple(values), {**op.attrs, "shapes": shapes, "layouts": ()})
    lo.define(op, *map(Array, results))


def _operand(lo: Lowering, value: Value) -> Value:
    if isinstance(value.type, SharedType):
        return view(lo, value)
    return lo.array(lo.form(value)) if isinstance(value.type, TileType) else lo.scalar(value)


RULES: dict[OpDef, LowerRule] = {asm.block: block, asm.block_volatile: block, asm.block_memory: block}
