"""Hints: facts about values that the author asserts. The compiler assumes them, and the simulator checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import Pointer, int1, int64
from weft.language.creation import check_shape
from weft.language.logic import truth
from weft.language.marks import builtin
from weft.language.promote import is_number
from weft.language.runtime_value import name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.ops import hints


@builtin
def assume(cond: Any) -> None:
    """Assume that a scalar condition is true. Raises language-assume-false if it is false at compile time."""
    if is_number("assume", cond):
        if not cond:
            raise fail(errors.ASSUME_FALSE)
        return
    if not cond.is_scalar:
        raise fail(errors.SCALAR_NEEDED, what="assume", got=name_of(cond))
    apply_many(hints.assume, (cond if cond.element == int1 else truth(cond),))


@builtin
def multiple_of(input: tensor | int, values: int | Sequence[int]) -> tensor:
    """Assume that along each axis the first element of every run of consecutive integers is a multiple of the entry.

    `values` has one entry per axis; a scalar has one axis. Raises language-hint.
    """
    return _hint("multiple_of", "divisible", input, values)


@builtin
def max_contiguous(input: tensor | int, values: int | Sequence[int]) -> tensor:
    """Assume that along each axis elements form runs of consecutive integers, of the entry's length. Raises language-hint."""
    return _hint("max_contiguous", "contiguous", input, values)


@builtin
def max_constancy(input: tensor | int, values: int | Sequence[int]) -> tensor:
    """Assume that along each axis elements form runs of equal values, of the entry's length. Raises language-hint."""
    return _hint("max_constancy", "constant", input, values)


def _hint(what: str, field: str, input: Any, values: Any) -> Any:
    if not isinstance(input, tensor):
        return input
    entries = check_shape(what, values)
    axes = max(input.rank, 1)
    whole = isinstance(input.element, Pointer) or input.element.is_int()
    if len(entries) != axes or any(entry < 1 for entry in entries) or not whole:
        raise fail(errors.HINT, what=what, values=list(entries), value=name_of(input), axes=axes)
    most = (int64 if isinstance(input.element, Pointer) else input.element).max_value
    if max(entries) > most:
        raise fail(errors.HINT_RANGE, what=what, values=list(entries), value=name_of(input), most=most)
    return apply(hints.axes, input, **{field: entries})
