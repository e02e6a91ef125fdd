"""Arithmetic on constants, as the simulator and the GPU would do it. Integers and bools only: floats are left to run time."""

from __future__ import annotations

from weft.ir.core import Attrs, OpDef
from weft.ir.types import DType, wrap

Number = int | float | bool


def fold(kind: OpDef, operands: list[Number], dtype: DType, source: DType, attrs: Attrs) -> int | bool | None:
    """The value of an operation on constants of type `source`, as a number of type `dtype`; None where it is not known here."""
    if kind.fold is None or not (dtype.is_int() and source.is_int()):
        return None
    value = kind.fold(tuple([wrap(int(number), source) for number in operands]), attrs, source)
    return None if value is None else wrap(value, dtype)
