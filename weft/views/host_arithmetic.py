"""Arithmetic of host views by NumPy ufuncs, on the strided arrays of `weft.views.host_arrays`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.views.data import ViewData
from weft.views.host_arrays import Array, gathered, storage_of, strided

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "min": np.fmin, "max": np.fmax,
}  # fmt: skip


def _exp(x: Array, scale: Any) -> Any:
    return np.exp(x * scale)


FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": np.abs, "exp": _exp}


def result_type(view: ViewData, other: Any, name: str) -> np.dtype[Any]:
    """The result type by NumPy's promotion rules."""
    return UFUNCS[name](np.ones(0, view.dtype), _one(other)).dtype


def _one(other: Any) -> Any:
    """A number, or an empty-extent array of a view's type, for type promotion."""
    return np.ones(0, other.dtype) if hasattr(other, "storage") else other


def apply(out: ViewData, view: ViewData, other: Any, name: str, swapped: bool) -> None:
    """Write the result of an operator to a view of the same shape."""
    views = [out, view, other] if hasattr(other, "storage") else [out, view]
    arrays = strided(views, name, writing=True)
    to, *operands = arrays if arrays is not None else _gathered(views)
    left, right = operands if len(operands) == 2 else (operands[0], other)
    UFUNCS[name](*((right, left) if swapped else (left, right)), out=to, casting="unsafe")
    if arrays is None:
        (offsets,) = gathered([out])
        memory, first = storage_of(out).elements(writing=True)
        memory[offsets + first] = to


def change(view: ViewData, name: str, numbers: Sequence[Any]) -> None:
    """Write a function of every number of a view to its place."""
    arrays = strided([view], name, writing=True)
    if arrays is not None:
        arrays[0][...] = FUNCTIONS[name](arrays[0], *numbers)
        return
    (offsets,) = gathered([view])
    memory, first = storage_of(view).elements(writing=True)
    memory[offsets + first] = FUNCTIONS[name](memory[offsets + first], *numbers)


def _gathered(views: list[ViewData]) -> list[Array]:
    found: list[Array] = []
    for view, offsets in zip(views, gathered(views), strict=True):
        memory, first = storage_of(view).elements()
        found.append(memory[offsets + first])
    return found
