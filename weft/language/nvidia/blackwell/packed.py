"""Arithmetic on pairs of floats: `add2`, `sub2`, `mul2`, `fma2`, `min2` and `max2` of tiles.

Each element has the value of the scalar operation with one rounding. Two neighbours in the registers of a thread take one
instruction: float32 since Blackwell (Hopper has no `f32x2`), float16 and bfloat16 since Hopper. Elsewhere the operations take
one instruction each.

ptxas pairs the instructions of operators (`a * b + c`) by itself for float16 and bfloat16, but not for float32. weft does not
do it either: a pair is an aligned pair of registers, so that whole tiles of intermediate results would be held, where the
operators hold one element of each at a time. These functions are for the loops where that is worth it.
"""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, bfloat16, float16, float32
from weft.language.marks import builtin
from weft.language.promote import common_dtype, unify
from weft.language.tensor import apply, tensor
from weft.ops import arith
from weft.ops.arith import Packed

_HALVES = (float16, bfloat16)


def _element(what: str, operands: tuple[Any, ...], dtype: DType | None, allowed: tuple[DType, ...]) -> DType:
    found = common_dtype(what, operands) if dtype is None else dtype
    if found not in allowed:
        known = ", ".join(each.name for each in allowed)
        raise fail(errors.PACKED_TYPE, what=what, dtype=getattr(found, "name", repr(found)), known=known)
    return found


def _packed(kind: Packed, x: Any, y: Any, dtype: DType | None) -> tensor:
    what = f"{kind}2"
    element = _element(what, (x, y), dtype, _HALVES if kind in ("min", "max") else (*_HALVES, float32))
    return apply(arith.packed, *unify(what, x, y, dtype=element), kind=kind)


@builtin
def add2(lhs: Any, rhs: Any, dtype: DType | None = None) -> tensor:
    """Sums, two elements per instruction. Operands are converted to `dtype`, or to their common type, and broadcast.

    float32, float16 and bfloat16. Unlike `+`, it is never contracted with a product. Raises language-packed-type."""
    return _packed("add", lhs, rhs, dtype)


@builtin
def sub2(lhs: Any, rhs: Any, dtype: DType | None = None) -> tensor:
    """Differences; otherwise as `add2`."""
    return _packed("sub", lhs, rhs, dtype)


@builtin
def mul2(lhs: Any, rhs: Any, dtype: DType | None = None) -> tensor:
    """Products; otherwise as `add2`."""
    return _packed("mul", lhs, rhs, dtype)


@builtin
def fma2(lhs: Any, rhs: Any, acc: Any, dtype: DType | None = None) -> tensor:
    """`lhs * rhs + acc` with one rounding; otherwise as `add2`."""
    element = _element("fma2", (lhs, rhs, acc), dtype, (*_HALVES, float32))
    return apply(arith.packed_fma, *unify("fma2", lhs, rhs, acc, dtype=element))


@builtin
def min2(lhs: Any, rhs: Any, dtype: DType | None = None) -> tensor:
    """Minima, of float16 and bfloat16; otherwise as `add2`. Of a NaN and a number it is the number."""
    return _packed("min", lhs, rhs, dtype)


@builtin
def max2(lhs: Any, rhs: Any, dtype: DType | None = None) -> tensor:
    """Maxima; otherwise as `min2`."""
    return _packed("max", lhs, rhs, dtype)


__all__ = ["add2", "fma2", "max2", "min2", "mul2", "sub2"]
