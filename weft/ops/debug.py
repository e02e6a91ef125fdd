"""Printing, assertions and breakpoints in kernels."""

from __future__ import annotations

from weft.ir.core import Effect, Value
from weft.ir.define import op
from weft.ops.check import boolean, same_form

IO = (Effect("write", "io"),)


@op("debug.print", effects=IO)
def print_(*values: Value, prefix: str, hex: bool = False, coordinates: int = 0) -> None:
    """Print `prefix` and the values, an element a line. Scalars are printed once, by kernels launched with `block=` once for
    each thread that comes. In the lowered stage operands are register arrays of one length, of
    which the last `coordinates` are the elements' indices in the tile, one array per axis."""


@op("debug.assert", effects=IO)
def assert_(condition: Value, mask: Value | None, message: str) -> None:
    """Stop the kernel with `message` unless the condition holds for every element where the mask does."""
    boolean(condition)
    boolean(mask)
    same_form(condition, mask)


@op("debug.breakpoint", effects=IO)
def breakpoint_(*values: Value, names: tuple[str, ...]) -> None:
    """Under the simulator, stop at this line in the Python debugger with the named values in view; nothing on a GPU."""
