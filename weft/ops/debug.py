"""Printing, assertions and breakpoints in kernels."""

from __future__ import annotations

from weft.ir.core import Effect, Value
from weft.ir.define import op
from weft.ops.check import boolean, same_form
from weft.ops.regs import Table

IO = (Effect("write", "io"),)


@op("debug.print", effects=IO)
def print_(*values: Value, prefix: str, hex: bool = False, coordinates: int = 0) -> None:
    """Print `prefix` and the values, one element per line. Scalars are printed once; in a kernel launched with `block=` each
    thread prints its own. In lowered IR the operands are register arrays of one length, and the last `coordinates` of them are
    the elements' indices in the tile, one array per axis."""


@op("debug.assert", effects=IO)
def assert_(condition: Value, mask: Value | None, message: str, always: bool = False) -> None:
    """Stop the kernel with `message` unless the condition holds for every element where the mask does; on a GPU in debug
    builds, or `always`."""
    boolean(condition)
    boolean(mask)
    same_form(condition, mask)


@op("debug.breakpoint", effects=IO)
def breakpoint_(
    *values: Value, names: tuple[str, ...], views: tuple[str, ...] = (), axes: tuple[tuple[Table, ...], ...] = ()
) -> None:  # fmt: skip
    """Under the simulator, stop at this line in the Python debugger with the named values in view; nothing on a GPU.

    The operands are those of `names`, and then for each of `views` its memory (a pointer, or an array in shared or local
    memory) and its numbers: the first element's offset, size and stride of each mode, and the limit of each axis, -1 for none.
    `axes` has for each axis of a view its number of modes, and size and stride of each mode of an element."""
