"""Constant folding of integer and bool operations, with the results of simulator and GPU. Floats are not folded.

arith.add 2147483647, 1    -->    -2147483648
"""

from __future__ import annotations

from weft.ir.core import Attrs, OpDef
from weft.ir.types import DType, wrap

Number = int | float | bool


def fold(kind: OpDef, operands: list[Number], dtype: DType, source: DType, attrs: Attrs) -> int | bool | None:
    """The result, of type `dtype`, of an operation on constants of type `source`; None if the operation cannot be folded."""
    if kind.fold is None or not (dtype.is_int() and source.is_int()):
        return None
    value = kind.fold(tuple([wrap(int(number), source) for number in operands]), attrs, source)
    return None if value is None else wrap(value, dtype)
