"""Lowering of thread-level code. Most of it is copied unchanged; these rules are the conversions between tiles and threads.

%r = thread.fragment %x    -->    %r = the register array of tile %x
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef
from weft.ir.types import SharedArrayType
from weft.ops import thread
from weft.passes.lower.forms import Array
from weft.passes.lower.handles import memory_as
from weft.passes.lower.state import Lowering, LowerRule


def shared_of(lo: Lowering, op: Op) -> None:
    """The memory from the first byte of the handle's tile on."""
    (handle,) = op.uses
    assert isinstance(op.result.type, SharedArrayType)
    lo.env[op.result] = memory_as(lo, handle, op.result.type)


def fragment(lo: Lowering, op: Op) -> None:
    """The register array of a tile; other forms are converted to one."""
    (x,) = op.uses
    lo.env[op.result] = lo.array(lo.form(x))


def assemble(lo: Lowering, op: Op) -> None:
    """A tile whose form is the given register array."""
    (x,) = op.uses
    lo.define(op, Array(lo.scalar(x)))


def bounds(lo: Lowering, op: Op) -> None:
    """A bounds check, in a debug build only. The simulator checks tile IR in any build."""
    if lo.source.attrs.debug:
        lo.emit(thread.bounds, *(lo.scalar(value) for value in op.uses), **op.attrs)


RULES: dict[OpDef, LowerRule] = {
    thread.shared_of: shared_of,
    thread.fragment: fragment,
    thread.assemble: assemble,
    thread.bounds: bounds,
}
