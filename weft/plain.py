"""What a user gives for an option, as Python's own value: integers, numbers and truth values of Python or NumPy.

NumPy is not imported: its scalars are known by what they can do, and its truth value by its name.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any, cast


def whole(value: Any) -> int | None:
    """An integer, as Python's own; None for anything else, truth values and whole floats among them.

    >>> whole(4), whole(True), whole(4.0), whole("4")
    (4, None, None, None)
    """
    if truth(value) is not None or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        return None
    try:
        return operator.index(value)
    except TypeError:  # of a class, or an array of floats: both have the method
        return None


def real(value: Any) -> float | None:
    """A finite number, as Python's own; None for anything else.

    >>> real(2), real(1.5), real(True), real(float("nan"))
    (2, 1.5, None, None)
    """
    found = whole(value)
    if found is not None:
        return found
    good = isinstance(value, Real) and truth(value) is None and math.isfinite(value)
    return float(value) if good else None


def truth(value: Any) -> bool | None:
    """A truth value, as Python's own; None for anything else, 0 and 1 among them.

    >>> truth(False), truth(1)
    (False, None)
    """
    return bool(value) if type(value).__name__ in ("bool", "bool_") else None


def one_of(value: Any, *words: str | None) -> bool:
    """True for one of these words. Arrays, which compare element by element, are none."""
    return (value is None or isinstance(value, str)) and value in words


def several(value: Any) -> tuple[Any, ...]:
    """The parts of an option that lists some; one alone, or None, need not stand in a list."""
    if value is None:
        return ()
    return tuple(cast("list[Any]", value)) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
