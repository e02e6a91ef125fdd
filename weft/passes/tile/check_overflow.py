"""Assertions that integer sums, differences and products fit their type, for launches with `sanitize_overflow=True`.

    %s = arith.add %a, %b : i32     -->     %s = arith.add %a, %b
                                            debug.assert (i64(%a) + i64(%b) == i64(%s)), always

The pass runs on the author's operations, before any other pass adds its own. Integers of 64 bits are not checked, as in
Gluon. Neither are the functions that reductions and scans combine elements with: lanes beyond a tile's elements run them too,
on values that no element has.
"""

from __future__ import annotations

from weft.ir.core import Func, Op, walk
from weft.ir.define import OpDef
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import DType, int64, uint64
from weft.ops import arith, debug, elements, tile

CHECKED: dict[OpDef, str] = {arith.add: "sum", arith.sub: "difference", arith.mul: "product"}
COMBINING = (tile.reduce, tile.scan, elements.map_elements)
_WIDEST = 32


def check_overflow(func: Func) -> Func:
    """The function, in the author's tile IR, with its integer arithmetic checked."""
    combine = frozenset(inner for op in walk(func.body) if op.kind in COMBINING for inner in _inside(op))

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind not in CHECKED or op in combine:
            return None
        dtype = op.result.type.element
        if not isinstance(dtype, DType) or not dtype.is_int() or not 1 < dtype.bits <= _WIDEST:
            return None
        wide = int64 if dtype.is_int_signed() else uint64
        results = out.keep(op, operands)
        exact = out.emit(op.kind, *(out.emit(arith.cast, value, dtype=wide) for value in operands))
        fits = out.emit(arith.cmp, exact, out.emit(arith.cast, results[0], dtype=wide), predicate="eq")
        out.emit(debug.assert_, fits, None, message=f"this {CHECKED[op.kind]} overflows {dtype.name}", always=True)
        return results

    return rebuild(func, rule)


def _inside(op: Op) -> list[Op]:
    return [inner for region in op.regions for inner in walk(region)]
