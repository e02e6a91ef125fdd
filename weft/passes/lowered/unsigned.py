"""Strength reduction of divisions whose operands are known to be nonnegative.

    arith.div %thread, 4         -->    arith.shr %thread, 2
    arith.rem %thread, 4         -->    arith.and %thread, 3
    arith.rem %thread, 12        -->    arith.cast (arith.rem (arith.cast %thread) : u32, 12 : u32) : i32

Unsigned division needs no correction for negative dividends. The pass applies to thread-level kernels (with the attribute
"block"), whose index arithmetic has such divisions.
"""

from __future__ import annotations

from weft.analysis.facts import facts
from weft.analysis.facts.scalar import Scalar
from weft.ir.core import Func, Op, Value
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import DType, Type, int64, uint32, uint64
from weft.ops import arith

WORD = Scalar(0, uint32.max_value)


def unsigned(func: Func) -> Func:
    """The lowered function with such divisions replaced; unchanged if it is not a thread-level kernel."""
    if func.attrs.block is None:
        return func
    known = facts(func)

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind is not arith.div and op.kind is not arith.rem:
            return None
        lhs, rhs = operands
        old = op.uses
        x, y = (known.hull(value) for value in old)
        if lhs is None or rhs is None or x is None or y is None or x.low < 0 or y.low <= 0:
            return None
        return _divided(out, op, lhs, rhs, x, y)

    return rebuild(func, rule, number=True)


def _divided(out: Rebuilder, op: Op, lhs: Value, rhs: Value, x: Scalar, y: Scalar) -> Replacement:
    """The quotient or remainder of operands with these intervals."""
    quotient, name = op.kind is arith.div, op.result.name
    if x.high < y.low:
        return (_number(out, op.result.type, 0) if quotient else lhs,)
    if y.low == y.high and y.low & (y.low - 1) == 0:
        if quotient:
            return (out.emit(arith.shr, lhs, _number(out, op.result.type, y.low.bit_length() - 1), name=name),)
        return (out.emit(arith.and_, lhs, _number(out, op.result.type, y.low - 1), name=name),)
    dtype = lhs.type.element
    assert isinstance(dtype, DType)
    fits = x.within(WORD) and y.within(WORD) and dtype.bits >= 32
    word = uint32 if fits else uint64 if dtype == int64 else dtype
    if word == dtype:
        return None
    a = out.emit(arith.cast, lhs, dtype=word)
    b = _number(out, a.type, y.low) if y.low == y.high else out.emit(arith.cast, rhs, dtype=word)
    return (out.emit(arith.cast, out.emit(op.kind, a, b), dtype=dtype, name=name),)


def _number(out: Rebuilder, type: Type, value: int) -> Value:
    return out.emit(arith.constant, value=value, type=type)
