"""Run-time values: an array and, for elements with a fault, marks.

A tile is an array of the tile's logical shape. A scalar has shape `()`. A scalar that differs between threads has shape
`(threads, 1)` and a register array of the lowered stage `(threads, count)`, so that NumPy broadcasts one against the other.
Inside a function that is mapped over elements, a scalar has the shape of the mapped array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from weft.errors import Loc

Array: TypeAlias = Any
"""A NumPy array, or a NumPy scalar for shape `()`."""

# NumPy's functions without their overloads, which do not accept arrays of unknown element type.
where: Callable[[Array, Array, Array], Array] = np.where
arange: Callable[..., Array] = np.arange


class Mark:
    """Elements with a fault that is reported only when they are used. `mask` broadcasts to the value; `cause` and `loc` say
    why and where the fault arose.

    For wrapped integers, the `low` lowest bits still equal those of the exact result.
    """

    __slots__ = ("cause", "loc", "low", "mask")

    def __init__(self, mask: Array, cause: str, loc: Loc | None, low: int = 0) -> None:
        self.mask = mask
        self.cause = cause
        self.loc = loc
        self.low = low


class Data:
    """A value. `undefined` marks elements without a value, `wrapped` those that depend on an int32 overflow."""

    __slots__ = ("array", "undefined", "wrapped")

    def __init__(self, array: Array, undefined: Mark | None = None, wrapped: Mark | None = None) -> None:
        self.array = array
        self.undefined = undefined
        self.wrapped = wrapped


def union(first: Mark | None, second: Mark | None) -> Mark | None:
    """The union of two marks, with the cause of the first."""
    if first is None or second is None:
        return second if first is None else first
    return Mark(first.mask | second.mask, first.cause, first.loc, min(first.low, second.low))


def undefined_in(operands: Iterable[Data | None]) -> Mark | None:
    """A mark on the elements that are undefined in any operand."""
    mark = None
    for data in operands:
        if data is not None and data.undefined is not None:
            mark = union(mark, data.undefined)
    return mark


def marked(mask: Array, cause: str, loc: Loc | None, low: int = 0) -> Mark | None:
    """A mark, or None if the mask is empty."""
    return Mark(mask, cause, loc, low) if mask.any() else None


def where_marked(mark: Mark | None, shape: tuple[int, ...], active: Array | None = None) -> Array | None:
    """A mask, at least of `shape`, of the marked elements that are active; None if there are none."""
    if mark is None:
        return None
    mask = mark.mask if active is None else mark.mask & active
    return np.broadcast_to(mask, np.broadcast_shapes(shape, np.shape(mask))) if np.any(mask) else None


def moved(data: Data, move: Callable[[Array], Array]) -> Data:
    """A value whose elements `move`, a function of an array, rearranges; marks included."""
    if data.undefined is None and data.wrapped is None:
        return Data(move(data.array))
    return Data(move(data.array), _moved(data.undefined, data, move), _moved(data.wrapped, data, move))


def _moved(mark: Mark | None, data: Data, move: Callable[[Array], Array]) -> Mark | None:
    if mark is None:
        return None
    return Mark(move(np.broadcast_to(mark.mask, np.shape(data.array))), mark.cause, mark.loc, mark.low)


def stacked(parts: list[Data], stack: Callable[[list[Array]], Array]) -> Data:
    """Several values combined by `stack`, a function of a list of arrays; marks included."""
    array = stack([part.array for part in parts])
    return Data(
        array, _stacked([p.undefined for p in parts], parts, stack), _stacked([p.wrapped for p in parts], parts, stack)
    )


def _stacked(marks: list[Mark | None], parts: list[Data], stack: Callable[[list[Array]], Array]) -> Mark | None:
    first = next((mark for mark in marks if mark is not None), None)
    if first is None:
        return None
    masks = [
        np.broadcast_to(False if m is None else m.mask, np.shape(p.array)) for m, p in zip(marks, parts, strict=True)
    ]
    return Mark(stack(masks), first.cause, first.loc, min(mark.low for mark in marks if mark is not None))


def chosen(condition: Array, lhs: Data, rhs: Data) -> Data:
    """`lhs` where the condition is True, else `rhs`; marks included."""
    if np.ndim(condition) == 0:
        return lhs if condition else rhs
    array = where(condition, lhs.array, rhs.array)
    if lhs.undefined is rhs.undefined is lhs.wrapped is rhs.wrapped is None:
        return Data(array)
    return Data(array, _chosen(condition, lhs.undefined, rhs.undefined), _chosen(condition, lhs.wrapped, rhs.wrapped))


def _chosen(condition: Array, lhs: Mark | None, rhs: Mark | None) -> Mark | None:
    left = None if lhs is None else marked(condition & lhs.mask, lhs.cause, lhs.loc, lhs.low)
    right = None if rhs is None else marked(~condition & rhs.mask, rhs.cause, rhs.loc, rhs.low)
    return union(left, right)
