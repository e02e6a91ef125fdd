"""Bitwise and logical operations, comparison and selection."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.core import OpDef
from weft.ir.types import DType, Pointer, float16, int1, int32, uint64
from weft.language.broadcast import common_form, constant
from weft.language.marks import builtin
from weft.language.promote import common_dtype, convert, is_number, place, unify
from weft.language.runtime_value import describe
from weft.language.tensor import Operand, apply, tensor
from weft.ops import arith
from weft.ops.arith import Predicate

_SYMBOLS: dict[str, str] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@builtin
def bit_and(x: Operand, y: Operand) -> tensor:
    """`x & y` of integers or bools."""
    return _bitwise(arith.and_, "&", x, y)


@builtin
def bit_or(x: Operand, y: Operand) -> tensor:
    """`x | y` of integers or bools."""
    return _bitwise(arith.or_, "|", x, y)


@builtin
def bit_xor(x: Operand, y: Operand) -> tensor:
    """`x ^ y` of integers or bools."""
    return _bitwise(arith.xor, "^", x, y)


@builtin
def shift_left(x: Operand, y: Operand) -> tensor:
    """`x << y` of integers; a shift by the width or more gives 0."""
    return _shift(arith.shl, "<<", x, y)


@builtin
def shift_right(x: Operand, y: Operand) -> tensor:
    """`x >> y` of integers: an arithmetic shift of signed, a logical shift of unsigned integers."""
    return _shift(arith.shr, ">>", x, y)


@builtin
def bit_not(x: tensor) -> tensor:
    """`~x`: bitwise NOT of an integer, logical NOT of a bool."""
    dtype = _integer_dtype("~", x)
    ones = constant(-1 if dtype.is_int_signed() else dtype.max_value, dtype, common_form("~", (x,)))
    return apply(arith.xor, x, ones)


@builtin
def compare(predicate: Predicate, x: Any, y: Any) -> tensor:
    """The int1 result of a comparison (`eq ne lt le gt ge`) in the promoted type; pointers compare with pointers."""
    what = _SYMBOLS[predicate]
    if _both_pointers(x, y):
        x, y = (apply(arith.bitcast, ptr, element=uint64) for ptr in (x, y))
    dtype = common_dtype(what, (x, y))
    # setp has no fp8 types (PTX ISA, setp). float16 represents every fp8 number exactly.
    return apply(arith.cmp, *unify(what, x, y, dtype=float16 if dtype.is_fp8() else dtype), predicate=predicate)


@builtin
def logical_and(x: Operand, y: Operand) -> tensor:
    """Element-wise logical AND; non-zero is true."""
    return _bitwise(arith.and_, "and", truth(x), truth(y))


@builtin
def logical_or(x: Operand, y: Operand) -> tensor:
    """Element-wise logical OR; non-zero is true."""
    return _bitwise(arith.or_, "or", truth(x), truth(y))


@builtin
def logical_not(x: Operand) -> tensor:
    """Element-wise logical NOT: true where `x` is zero."""
    return bit_not(truth(x))


def truth(x: Any) -> tensor:
    """A value or number converted to int1: `!= 0`."""
    return constant(bool(x), int1) if is_number("a condition", x) else convert(x, int1)


@builtin
def where(condition: Operand, x: Any, y: Any) -> tensor:
    """`x` where the condition is non-zero, else `y`; both are evaluated. All three operands broadcast.

    `x` and `y` are promoted to one type; two pointers must have the same type (language-pointer-types).
    """
    chosen = truth(condition)
    dtype = _pointer_dtype(x, y) if _both_pointers(x, y) else common_dtype("where", (x, y))
    form = common_form("where", (x, y, chosen))
    left, right = place(x, dtype, form), place(y, dtype, form)
    # A scalar condition selects whole tiles.
    return apply(arith.select, chosen if chosen.is_scalar else place(chosen, int1, form), left, right)


def _bitwise(kind: OpDef, what: str, x: Any, y: Any) -> tensor:
    return apply(kind, *unify(what, x, y, dtype=_integer_dtype(what, x, y)))


def _shift(kind: OpDef, what: str, x: Any, y: Any) -> tensor:
    dtype = _integer_dtype(what, x, y)
    return apply(kind, *unify(what, x, y, dtype=int32 if dtype == int1 else dtype))


def _integer_dtype(what: str, *operands: Any) -> DType:
    dtype = common_dtype(what, operands)
    if dtype.is_floating():
        floats = [x for x in operands if isinstance(x, float) or (isinstance(x, tensor) and x.dtype.is_floating())]
        raise fail(errors.INTEGER_NEEDED, what=what, got=describe(floats[0]))
    return dtype


def _both_pointers(x: object, y: object) -> bool:
    return all(isinstance(v, tensor) and isinstance(v.element, Pointer) for v in (x, y))


def _pointer_dtype(x: tensor, y: tensor) -> Pointer:
    if x.dtype != y.dtype:
        raise fail(errors.POINTER_TYPES, left=describe(x), right=describe(y))
    return x.dtype
