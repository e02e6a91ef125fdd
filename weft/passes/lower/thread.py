"""Lowering of what threads do by themselves: nearly all stays as it is, but for where tiles and threads meet."""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ir.types import SharedArrayType
from weft.ops import thread
from weft.passes.lower.forms import Array
from weft.passes.lower.handles import memory_as
from weft.passes.lower.state import Lowering, LowerRule


def shared_of(lo: Lowering, op: Op) -> None:
    """The memory of the handle's tile, from its first byte on."""
    (handle,) = op.uses
    assert isinstance(op.result.type, SharedArrayType)
    lo.env[op.result] = memory_as(lo, handle, op.result.type)


def fragment(lo: Lowering, op: Op) -> None:
    """A tile is an array of registers already, or becomes one here."""
    (x,) = op.uses
    lo.env[op.result] = lo.array(lo.form(x))


def assemble(lo: Lowering, op: Op) -> None:
    """The registers are the tile."""
    (x,) = op.uses
    lo.define(op, Array(lo.scalar(x)))


def bounds(lo: Lowering, op: Op) -> None:
    """A check as an assertion is: without `debug` nothing (the simulator checks tile IR, always)."""
    if lo.source.attrs.debug:
        lo.emit(thread.bounds, *(lo.scalar(value) for value in op.uses), **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    thread.shared_of: shared_of,
    thread.fragment: fragment,
    thread.assemble: assemble,
    thread.bounds: bounds,
}
