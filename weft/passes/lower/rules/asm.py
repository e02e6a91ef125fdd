"""Lowering of inline PTX: on register arrays instead of tiles."""

from __future__ import annotations

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import SharedType, TileType
from weft.layout.linear.ends import count
from weft.ops import asm
from weft.passes.lower.forms import Array
from weft.passes.lower.handles import view
from weft.passes.lower.rules.elements import in_packs
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


def inline(lo: Lowering, op: Op) -> None:
    """Text that runs for each pack of registers. Without packs it is elementwise."""
    if op.attrs["pack"] > 1:
        in_packs(lo, op, lambda arrays: lo.create(op.kind, arrays, op.attrs))
    elif any(isinstance(value.type, TileType) for value in op.uses):
        lo.default(lo, op)
    else:
        lo.env.update(zip(op.results, lo.keep(op, tuple([lo.scalar(v) for v in op.uses])), strict=True))


RULES: dict[OpDef, LowerRule] = {
    **dict.fromkeys((asm.inline_asm, asm.inline_asm_volatile), inline),
    **dict.fromkeys((asm.block, asm.block_volatile, asm.block_memory), block),
}
