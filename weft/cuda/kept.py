"""Which numbers of blocks a kernel keeps in registers, where the compiler would read them again."""

from __future__ import annotations

from weft.ir.core import Func, Op, Value, walk
from weft.ops import control, program, tma

_LOADS = (tma.load, tma.load_im2col)


def kept_ids(func: Func) -> frozenset[Op]:
    """Those of which coordinates of TMA requests in loops are made before the loops: a request waits until they are read."""
    loops = [op for op in walk(func.body) if op.kind in (control.for_, control.while_)]
    inside = {op for loop in loops for region in loop.regions for op in walk(region)}
    todo, seen = [value for op in inside if op.kind in _LOADS for value in op.uses], set[Value]()
    before = (op for op in walk(func.body) if op.kind.pure and op not in inside) if todo else ()
    makers = {value: op for op in before for value in op.results}
    while todo:
        value = todo.pop()
        if value not in seen and value in makers:
            todo += makers[value].uses
            seen.add(value)
    return frozenset(makers[value] for value in seen if makers[value].kind is program.program_id)
