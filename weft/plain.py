"""Conversion of a user's scalars (of Python, NumPy or another library) to Python integers, floats and booleans.

NumPy is not imported: its scalars are recognised by their methods, its booleans by the name of their type.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any, cast


def whole(value: Any) -> int | None:
    """A Python integer for an integer of any library; None for anything else, including booleans and integral floats.

    >>> whole(4), whole(True), whole(4.0), whole("4")
    (4, None, None, None)
    """
    if truth(value) is not None or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        return None
    try:
        return operator.index(value)
    except TypeError:  # Classes and arrays of floats have `__index__` but do not support it.
        return None


def real(value: Any) -> float | None:
    """A Python number for a finite real number of any library; None for anything else, including booleans.

    >>> real(2), real(1.5), real(True), real(float("nan"))
    (2, 1.5, None, None)
    """
    found = whole(value)
    if found is not None:
        return found
    good = isinstance(value, Real) and truth(value) is None and math.isfinite(value)
    return float(value) if good else None


def as_number(value: Any) -> int | float | bool | None:
    """The Python number of a scalar of any library. None for anything else, including times, complex numbers and strings.

    >>> as_number(2), as_number(True), as_number(1j)
    (2, True, None)
    """
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, type):
        return None
    found = truth(value)
    if found is None:
        found = whole(value)
    return float(value) if found is None and _is_floating(value) else found


def _is_floating(value: Any) -> bool:
    """True for floating-point scalars of NumPy and ml_dtypes, which are not subclasses of Python's `float`."""
    dtype = getattr(value, "dtype", None)
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    return name.startswith(("float", "bfloat")) and getattr(value, "shape", ()) == ()


def own(value: Any) -> Any:
    """The Python number that a scalar of NumPy or ml_dtypes holds; anything else as it is."""
    if type(value).__module__ not in ("numpy", "ml_dtypes") or not hasattr(value, "item") or hasattr(value, "__len__"):
        return value
    found = as_number(value)
    return value if found is None else found


def truth(value: Any) -> bool | None:
    """A Python bool for a boolean of any library; None for anything else, including 0 and 1.

    >>> truth(False), truth(1)
    (False, None)
    """
    return bool(value) if type(value).__name__ in ("bool", "bool_") else None


def one_of(value: Any, *choices: str | None) -> bool:
    """Whether a value is one of these strings. The type is checked first because arrays compare element by element."""
    return (value is None or isinstance(value, str)) and value in choices


def several(value: Any) -> tuple[Any, ...]:
    """The items of an option that takes a list, where None means an empty list and a bare item a list of one."""
    if value is None:
        return ()
    return tuple(cast("list[Any]", value)) if isinstance(value, (list, tuple, set, frozenset)) else (value,)


def array_of(name: str, value: Any) -> str | None:
    """The expression that converts an array-like object to a NumPy array, for messages: `numpy.asarray(x)`. None when the
    object is not array-like."""
    if isinstance(value, (type, str)) or getattr(value, "shape", None) == ():
        return None
    for method in ("toarray", "to_numpy"):
        if callable(getattr(value, method, None)):
            return f"{name}.{method}()"
    if isinstance(value, (bytes, bytearray)):
        return f"numpy.frombuffer({name}, numpy.float32)"
    if isinstance(value, (list, tuple, range)):
        return f"numpy.array({name}, numpy.float32)"
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__") or _has_buffer(value):
        return f"numpy.asarray({name})"
    return None


def _has_buffer(value: Any) -> bool:
    try:
        return memoryview(value).ndim > 0
    except TypeError:
        return False
