"""Int32 overflow: propagation of the `wrapped` mark from operands to results, and its report at memory accesses.

A wrapped integer is an ordinary value. It is reported only if an address or the mask of an access depends on it. Addition,
multiplication and bitwise operations preserve a number of low bits of the exact result (`Mark.low`). If a value consists of
such bits alone, wrapping made no difference and the mark is dropped: `x * 40503 & 255`, or a cast to `uint32`.
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
"""Width of the integers whose overflow is tracked."""


def wrapped_in(operands: Iterable[Data]) -> Mark | None:
    """A mark on the elements that depend on a wrapped operand, with the least number of exact low bits of the operands."""
    mark = None
    for data in operands:
        if data.wrapped is not None:
            mark = union(mark, data.wrapped)
    return mark


def inexact(operands: Iterable[Data]) -> Mark | None:
    """`wrapped_in` for operations whose result has no exact low bits: division, comparison, minimum, maximum."""
    mark = wrapped_in(operands)
    return mark if mark is None or not mark.low else Mark(mark.mask, mark.cause, mark.loc)


def shifted_right(lhs: Data, rhs: Data) -> Mark | None:
    """The mark of a right shift, which drops exact low bits."""
    mark = wrapped_in((lhs, rhs))
    if mark is None:
        return None
    amount = int(np.max(rhs.array)) if rhs.wrapped is None and np.min(rhs.array) >= 0 else mark.low
    return Mark(mark.mask, mark.cause, mark.loc, max(mark.low - amount, 0))


def shifted_left(lhs: Data, rhs: Data) -> Mark | None:
    """The mark of a left shift, which keeps the number of exact low bits."""
    return lhs.wrapped if rhs.wrapped is None else inexact((lhs, rhs))


def of_and(lhs: Data, rhs: Data) -> Mark | None:
    """The mark of `and`, which is dropped where the other operand masks all but exact bits."""
    return union(_unless_masked(lhs, rhs), _unless_masked(rhs, lhs))


def _unless_masked(data: Data, other: Data) -> Mark | None:
    mark = data.wrapped
    if mark is None:
        return None
    # For bools, `False` masks the other operand completely.
    known = (other.array >= 0) & (other.array < 1 << mark.low)
    return _except(mark, known, other)


def of_or(lhs: Data, rhs: Data) -> Mark | None:
    """The mark of `or`, which is dropped where the other operand has all bits set."""
    return union(_unless_set(lhs, rhs), _unless_set(rhs, lhs))


def _unless_set(data: Data, other: Data) -> Mark | None:
    return None if data.wrapped is None else _except(data.wrapped, np.bitwise_not(other.array) == 0, other)


def _except(mark: Mark, known: Array, other: Data) -> Mark | None:
    """The mark without the `known` elements, provided that the other operand did not wrap there."""
    if other.wrapped is not None:
        known = known & ~other.wrapped.mask
    return marked(mark.mask & ~known, mark.cause, mark.loc, mark.low)


def of_cast(x: Data, target: DType) -> Mark | None:
    """The mark of a cast, which is dropped for an unsigned or narrow type that holds exact bits only."""
    mark = x.wrapped
    if mark is None or target.is_floating():
        return None
    if target.is_bool():
        return inexact((x,))
    modular = target.is_int_unsigned() or target.bits < WORD
    return None if modular and target.bits <= mark.low else mark


def check(task: Task, op: Op, data: Data, entry: Row, shape: tuple[int, ...], active: Array | None) -> None:
    """Check that no active element of an access depends on a wrapped integer. Raises WrappedOffset."""
    mark = data.wrapped
    bad = where_marked(mark, shape, active)
    if mark is None or bad is None:
        return
    where = f" ({task.where(bad.shape, int(np.argmax(bad)))})" if bad.ndim else ""
    used = () if op.loc is None else (("the access that it decides", op.loc),)
    raise fail(entry, loc=mark.loc or op.loc, related=used, program=task.pid, where=where)
