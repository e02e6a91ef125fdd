"""Block indices that are kept in registers, where the compiler would read the special registers again."""

from __future__ import annotations

from weft.analysis.flow import reach, repeated
from weft.ir.core import Func, Op, walk
from weft.ops import program, tma

_LOADS = (tma.load, tma.load_im2col)


def kept_ids(func: Func) -> frozenset[Op]:
    """The block indices that are read before a loop and used in coordinates of TMA instructions inside it.

    Otherwise the compiler reads the special register again in the loop, and the TMA instruction waits for that read."""
    inside = repeated(func.body)
    used = [value for op in inside if op.kind in _LOADS for value in op.uses]
    before = (op for op in walk(func.body) if op.kind.pure and op not in inside) if used else ()
    makers = {value: op for op in before for value in op.results}
    needed = reach(used, lambda value: makers[value].uses if value in makers else ())
    return frozenset(op for value, op in makers.items() if value in needed and op.kind is program.program_id)
