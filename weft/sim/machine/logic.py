"""Conjunction, disjunction and selection with marks: which results are undefined or wrapped because an operand is.

If one operand alone decides a result, the other may be undefined, as in `inside & flags`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.sim.machine import wraps
from weft.sim.machine.data import Array, Data, Mark, chosen, marked, union


def conjunction(lhs: Data, rhs: Data) -> Data:
    """`lhs & rhs`, of bools or bit by bit."""
    marks = None if lhs.wrapped is None and rhs.wrapped is None else wraps.of_and(lhs, rhs)
    return Data(np.bitwise_and(lhs.array, rhs.array), _undefined(lhs, rhs, lambda x: x == 0), marks)


def disjunction(lhs: Data, rhs: Data) -> Data:
    """`lhs | rhs`, of bools or bit by bit."""
    marks = None if lhs.wrapped is None and rhs.wrapped is None else wraps.of_or(lhs, rhs)
    return Data(np.bitwise_or(lhs.array, rhs.array), _undefined(lhs, rhs, lambda x: np.bitwise_not(x) == 0), marks)


def selection(condition: Data, lhs: Data, rhs: Data) -> Data:
    """`lhs` where the condition holds, else `rhs`."""
    result = chosen(condition.array, lhs, rhs)
    if condition.undefined is None and condition.wrapped is None:
        return result
    undefined = union(condition.undefined, result.undefined)
    return Data(result.array, undefined, union(condition.wrapped, result.wrapped))


def _undefined(lhs: Data, rhs: Data, absorbs: Callable[[Array], Array]) -> Mark | None:
    if lhs.undefined is None and rhs.undefined is None:
        return None
    return union(_unless(lhs, rhs, absorbs), _unless(rhs, lhs, absorbs))


def _unless(data: Data, other: Data, absorbs: Callable[[Array], Array]) -> Mark | None:
    """The undefined elements of `data`, except where `other` alone decides the result."""
    if data.undefined is None:
        return None
    decided = absorbs(other.array)
    if other.undefined is not None:
        decided = decided & ~other.undefined.mask
    return marked(data.undefined.mask & ~decided, data.undefined.cause, data.undefined.loc)
