"""Lowering of print, assert and breakpoint: each element is printed once, with its coordinates in the tile.

debug.print %x    -->    control.if %owner { debug.print %x_registers, %row, %column }
"""

from __future__ import annotations

from typing import Any

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import TileType
from weft.ops import debug, regs
from weft.ops.check import linear_of
from weft.passes.lower.blocks import acting, both, owns_first, where
from weft.passes.lower.placement import owned
from weft.passes.lower.state import Lowering, LowerRule


def print_(lo: Lowering, op: Op) -> None:
    """Each element's owner prints it with its coordinates. Thread 0 prints scalars; in a kernel with an explicit thread block
    each thread of each block prints its own."""
    operands = op.uses
    tiles = [value for value in operands if isinstance(value.type, TileType)]
    if not tiles:
        owner = None if lo.source.attrs.block is not None else both(lo, lo.first_thread(), acting(lo))
        _only_where(lo, owner, [lo.scalar(v) for v in operands], op, 0)
        return
    linear = linear_of(tiles[0])
    registers = owned(linear)
    values = [_array(lo, value, registers, len(registers)) for value in operands]
    rank = len(linear.out_dims)
    places = [lo.array(lo.picked(lo.coordinate(linear, dim), registers)) for dim in range(rank)]
    _only_where(lo, owns_first(lo, linear), [*values, *places], op, rank)


def _only_where(lo: Lowering, owner: Value | None, values: list[Value], op: Op, rank: int) -> None:
    attrs: dict[str, Any] = {**op.attrs, "coordinates": rank}
    with where(lo, owner):
        lo.emit(debug.print_, *values, **attrs)


def _array(lo: Lowering, value: Value, registers: tuple[int, ...], count: int) -> Value:
    if isinstance(value.type, TileType):
        return lo.array(lo.picked(lo.form(value), registers))
    return lo.emit(regs.splat, lo.scalar(value), count=count)


def assert_(lo: Lowering, op: Op) -> None:
    """Each thread checks the registers that it holds, in a debug build or `always`.

    The simulator checks tile IR in any build."""
    if not (lo.source.attrs.debug or op.attrs["always"]):
        return
    condition, mask = op.operands
    assert condition is not None
    if not isinstance(condition.type, TileType):
        lo.emit(debug.assert_, lo.scalar(condition), None if mask is None else lo.scalar(mask), **op.attrs)
        return
    lo.emit(debug.assert_, *(None if v is None else lo.array(lo.form(v)) for v in op.operands), **op.attrs)


def breakpoint_(lo: Lowering, op: Op) -> None:
    """Dropped: breakpoints stop the simulator only."""


RULES: dict[OpDef, LowerRule] = {
    debug.print_: print_,
    debug.assert_: assert_,
    debug.breakpoint_: breakpoint_,
}
