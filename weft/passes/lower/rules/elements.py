"""Lowering of the author's element functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import RegsType, TileType
from weft.ops import elements, regs
from weft.passes.lower.forms import Array
from weft.passes.lower.state import Lowering, LowerRule


def map_elements(lo: Lowering, op: Op) -> None:
    """The function stays a region over scalars, which is executed for each pack of registers."""
    body = lo.copy_region(op.regions[0])
    lo.loc = op.loc
    in_packs(lo, op, lambda arrays: lo.create(elements.map_elements, arrays, op.attrs, (body,)))


def in_packs(lo: Lowering, op: Op, create: Callable[[tuple[Value, ...]], Sequence[Value]]) -> None:
    """Lower an operation on packs of registers to what `create` makes of register arrays. Where a thread's registers are not
    whole packs, the last pack is filled with copies of the last register, and the results of these are dropped."""
    arrays = [_array(lo, value) for value in op.uses]
    count, pack = _count(arrays[0]), op.attrs["pack"]
    whole = -(-count // pack) * pack
    if whole != count:
        arrays = [lo.gather(array, tuple([min(i, count - 1) for i in range(whole)])) for array in arrays]
    made = create(tuple(arrays))
    if whole != count:
        made = [lo.gather(value, tuple(range(count))) for value in made]
    for result, value in zip(op.results, made, strict=True):
        if isinstance(result.type, TileType):
            lo.forms[result] = Array(value)
        else:
            lo.env[result] = value if isinstance(result.type, RegsType) else lo.emit(regs.extract, value, index=0)


def _array(lo: Lowering, value: Value) -> Value:
    """The registers of a tile; an array, or an array of one scalar."""
    if isinstance(value.type, TileType):
        return lo.array(lo.form(value))
    own = lo.scalar(value)
    return own if isinstance(own.type, RegsType) else lo.emit(regs.concat, own)


def _count(array: Value) -> int:
    assert isinstance(array.type, RegsType)
    return array.type.count


RULES: dict[OpDef, LowerRule] = {elements.map_elements: map_elements}
