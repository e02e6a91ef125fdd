"""Elementwise arithmetic of views, with a number or a view of the same shape; and functions of each number in its place."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.layouts import Layout
from weft.views.construct import allocated
from weft.views.data import AnyView, ViewData
from weft.views.fragments import numbers_along, together
from weft.views.history import History
from weft.views.host import ArrayStorage
from weft.views.modes import element_axes, extent, shape_of
from weft.views.partition import vectorized
from weft.views.storage import AddressSpace

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv,
}  # fmt: skip
"""Operators of values in a kernel. The language enters `min` and `max`."""
FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": operator.abs}
"""Functions of values in a kernel. The language enters `exp`."""


def combined(view: AnyView, other: Any, name: str, swapped: bool = False) -> AnyView:
    """The result in new memory, row-major with the vector widths of the first operand."""
    _check(view, other)
    if isinstance(view.storage, ArrayStorage):
        from weft.views import host_arithmetic

        dtype, space = host_arithmetic.result_type(view, other, name), AddressSpace.GENERIC
    else:
        dtype, space = view.dtype, AddressSpace.LOCAL
    out = _like(view, dtype, space)
    _apply(out, view, other, name, swapped)
    return out


def update(view: ViewData, other: Any, name: str) -> None:
    """The result in place of the first operand."""
    _check(view, other)
    _apply(view, view, other, name, swapped=False)


def change(view: ViewData, name: str, *numbers: Any) -> None:
    """A function of every number in its place."""
    if isinstance(view.storage, ArrayStorage):
        from weft.views import host_arithmetic

        host_arithmetic.change(view, name, numbers)
        return
    (fragment,) = together([view], name)
    fragment.store(FUNCTIONS[name](fragment.load(), *numbers))


def update_swapped(view: ViewData, number: Any, name: str) -> None:
    """`number op view` in place of the view."""
    _apply(view, view, number, name, swapped=True)


def _apply(out: ViewData, view: ViewData, other: Any, name: str, swapped: bool) -> None:
    if isinstance(view.storage, ArrayStorage):
        from weft.views import host_arithmetic

        host_arithmetic.apply(out, view, other, name, swapped)
        return
    views = [out, view, other] if isinstance(other, ViewData) else [out, view]
    to, *operands = together(views, name)
    values = [fragment.load() for fragment in operands]
    left, right = values if len(values) == 2 else (values[0], other)
    to.store(OPERATORS[name](right, left) if swapped else OPERATORS[name](left, right))


def _check(view: ViewData, other: Any) -> None:
    if not isinstance(other, ViewData):
        return
    if isinstance(view.storage, ArrayStorage) != isinstance(other.storage, ArrayStorage):
        raise fail(errors.SOURCE, what="arithmetic in a kernel", got="a view of the host")
    if numbers_along(view) != numbers_along(other):
        raise fail(errors.SHAPES, view=view.history, shape=shape_of(view), other=other.history, others=shape_of(other))


def _like(view: AnyView, dtype: Any, space: AddressSpace) -> AnyView:
    """A view of new memory with the same shape, vector widths and limits."""
    made = type(view).from_fields(*allocated(dtype, Layout.row_major(tuple(numbers_along(view))), space, masked=False))
    widths = [extent(element) for element in element_axes(view)]
    if any(width > 1 for width in widths):
        made = vectorized(made, *widths)
    return made.replaced(limits=view.limits, masked=view.masked, history=History(f"({view.history} and more)"))
