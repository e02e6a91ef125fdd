"""Arithmetic on constants, as the simulator and the GPU would do it. Integers and bools only: floats are left to run time."""

from __future__ import annotations

import operator
from collections.abc import Callable

from weft.ir.core import Attrs
from weft.ir.define import OpDef
from weft.ir.types import DType, wrap
from weft.ops import arith, control

Number = int | float | bool


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return a - _quotient(a, b) * b


# Exact results; they are wrapped to the type afterwards.
INTEGER: dict[OpDef, Callable[[int, int], int]] = {
    arith.add: operator.add, arith.sub: operator.sub, arith.mul: operator.mul, arith.div: _quotient, arith.rem: _remainder,
    arith.and_: operator.and_, arith.or_: operator.or_, arith.xor: operator.xor, arith.minimum: min, arith.maximum: max,
}  # fmt: skip
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
SIGN: dict[str, Callable[[int], int]] = {"neg": lambda a: -a, "abs": abs}


def fold(kind: OpDef, operands: list[Number], dtype: DType, source: DType, attrs: Attrs) -> int | bool | None:
    """The value of an operation on constants of type `source`, as a number of type `dtype`; None where it is not known here."""
    if not (dtype.is_int() and source.is_int()):
        return None
    numbers = [wrap(int(value), source) for value in operands]
    if kind is arith.cmp:
        return COMPARE[attrs["predicate"]](*numbers)
    if kind is arith.math:
        return wrap(SIGN[attrs["fn"]](*numbers), dtype)
    if kind is arith.shl or kind is arith.shr:
        return wrap(_shifted(kind, *numbers, bits=dtype.bits), dtype)
    if kind is arith.umulhi:
        mask = (1 << dtype.bits) - 1
        return wrap((numbers[0] & mask) * (numbers[1] & mask) >> dtype.bits, dtype)
    if kind is control.trips:
        # A step of 0 is reported when it runs.
        return control.trip_count(*numbers) if numbers[2] else None
    if kind is arith.cast:
        return wrap(numbers[0], dtype)
    if kind not in INTEGER or (kind in (arith.div, arith.rem) and not numbers[1]):
        return None
    return wrap(INTEGER[kind](*numbers), dtype)


def _shifted(kind: OpDef, value: int, amount: int, bits: int) -> int:
    """Amounts of the width or more, and negative ones, clamp to the width."""
    amount = amount if 0 <= amount < bits else bits
    return value << amount if kind is arith.shl else value >> amount
