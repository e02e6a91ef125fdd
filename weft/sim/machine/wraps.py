"""Int32 results that overflowed: how the mark goes from operands to results, and its report where memory is accessed.

A wrapped integer is a value like any other; only where an address or the mask of an access depends on one is it reported.
Sums, products and bitwise operations keep a number of low bits that are those of the exact result (`Mark.low`). Where nothing
else is left of a value, wrapping made no difference and the mark ends: `x * 40503 & 255`, or a cast to `uint32`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.errors import Row, fail
from weft.ir.core import Op
from weft.ir.types import DType
from weft.sim.machine.data import Array, Data, Mark, marked, union, where_marked
from weft.sim.machine.tasks import Task

CAUSE = "it wrapped"
WORD = 32
"""Bits of the integers whose overflow is followed."""


def wrapped_in(operands: Iterable[Data]) -> Mark | None:
    """Elements that depend on a wrapped one in any operand, with as many exact low bits as the operands have."""
    mark = None
    for data in operands:
        if data.wrapped is not None:
            mark = union(mark, data.wrapped)
    return mark


def inexact(operands: Iterable[Data]) -> Mark | None:
    """As `wrapped_in`, for operations whose result has no exact bits: quotients, comparisons, extremes."""
    mark = wrapped_in(operands)
    return mark if mark is None or not mark.low else Mark(mark.mask, mark.cause, mark.loc)


def shifted_right(lhs: Data, rhs: Data) -> Mark | None:
    """Of a right shift, which drops exact bits."""
    mark = wrapped_in((lhs, rhs))
    if mark is None:
        return None
    amount = int(np.max(rhs.array)) if rhs.wrapped is None and np.min(rhs.array) >= 0 else mark.low
    return Mark(mark.mask, mark.cause, mark.loc, max(mark.low - amount, 0))


def shifted_left(lhs: Data, rhs: Data) -> Mark | None:
    """Of a left shift, which adds none."""
    return lhs.wrapped if rhs.wrapped is None else inexact((lhs, rhs))


def of_and(lhs: Data, rhs: Data) -> Mark | None:
    """Of `and`: the mark ends where the other operand keeps exact bits only."""
    return union(_unless_masked(lhs, rhs), _unless_masked(rhs, lhs))


def _unless_masked(data: Data, other: Data) -> Mark | None:
    mark = data.wrapped
    if mark is None:
        return None
    # Of a bool both bits are one: `False` keeps none of the other operand.
    known = (other.array >= 0) & (other.array < 1 << mark.low)
    return _except(mark, known, other)


def of_or(lhs: Data, rhs: Data) -> Mark | None:
    """Of `or`: the mark ends where the other operand has all bits set."""
    return union(_unless_set(lhs, rhs), _unless_set(rhs, lhs))


def _unless_set(data: Data, other: Data) -> Mark | None:
    return None if data.wrapped is None else _except(data.wrapped, np.bitwise_not(other.array) == 0, other)


def _except(mark: Mark, known: Array, other: Data) -> Mark | None:
    """The mark without the elements that are known, given that the other operand did not wrap there."""
    if other.wrapped is not None:
        known = known & ~other.wrapped.mask
    return marked(mark.mask & ~known, mark.cause, mark.loc, mark.low)


def of_cast(x: Data, target: DType) -> Mark | None:
    """Of a cast: the mark ends in an unsigned or narrow type that has room for exact bits only."""
    mark = x.wrapped
    if mark is None or target.is_floating():
        return None
    if target.is_bool():
        return inexact((x,))
    modular = target.is_int_unsigned() or target.bits < WORD
    return None if modular and target.bits <= mark.low else mark


def check(task: Task, op: Op, data: Data, entry: Row, shape: tuple[int, ...], active: Array | None) -> None:
    """Refuse an access one of whose active elements depends on a wrapped integer. Raises WrappedOffset."""
    mark = data.wrapped
    bad = where_marked(mark, shape, active)
    if mark is None or bad is None:
        return
    where = f" ({task.where(bad.shape, int(np.argmax(bad)))})" if bad.ndim else ""
    used = () if op.loc is None else (("the access that it decides", op.loc),)
    raise fail(entry, loc=mark.loc or op.loc, related=used, program=task.pid, where=where)
