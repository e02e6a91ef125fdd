"""What a user gives, as Python's own value: integers, numbers and truth values of Python, NumPy or any other library.

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


def as_number(value: Any) -> int | float | bool | None:
    """The Python number of a number of any library (NumPy scalars included), or None: for times, complex numbers and texts too.

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
    """True for NumPy's and ml_dtypes' floating scalars, which convert but derive from no Python number."""
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


def array_of(name: str, value: Any) -> str | None:
    """What to write for an array of the numbers that an object has, which itself is none: `numpy.asarray(x)`."""
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
