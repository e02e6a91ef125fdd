"""Elementwise arithmetic of views, with a number or a view of the same shape."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.layouts import Layout
from weft.views.fragments import numbers_along, together
from weft.views.history import History
from weft.views.host import ArrayStorage
from weft.views.modes import element_axes, extent
from weft.views.partition import vectorized
from weft.views.storage import AddressSpace

if TYPE_CHECKING:
    from weft.views.tensor import LayoutTensor

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
}  # fmt: skip


def combined(view: LayoutTensor, other: Any, name: str, swapped: bool = False) -> LayoutTensor:
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


def update(view: LayoutTensor, other: Any, name: str) -> None:
    """The result in place of the first operand."""
    _check(view, other)
    _apply(view, view, other, name, swapped=False)


def _apply(out: LayoutTensor, view: LayoutTensor, other: Any, name: str, swapped: bool) -> None:
    if isinstance(view.storage, ArrayStorage):
        from weft.views import host_arithmetic

        host_arithmetic.apply(out, view, other, name, swapped)
        return
    views = [out, view, other] if _is_view(other) else [out, view]
    to, *operands = together(views, name)
    values = [fragment.load() for fragment in operands]
    left, right = values if len(values) == 2 else (values[0], other)
    to.store(OPERATORS[name](right, left) if swapped else OPERATORS[name](left, right))


def _check(view: LayoutTensor, other: Any) -> None:
    if not _is_view(other):
        return
    if isinstance(view.storage, ArrayStorage) != isinstance(other.storage, ArrayStorage):
        raise fail(errors.SOURCE, what="arithmetic in a kernel", got="a view of the host")
    if numbers_along(view) != numbers_along(other):
        raise fail(errors.SHAPES, view=view.history, shape=view.shape, other=other.history, others=other.shape)


def _is_view(value: Any) -> bool:
    from weft.views.tensor import LayoutTensor

    return isinstance(value, LayoutTensor)


def _like(view: LayoutTensor, dtype: Any, space: AddressSpace) -> LayoutTensor:
    """A view of new memory with the same shape, vector widths and limits."""
    made = type(view).stack_allocation(dtype, Layout.row_major(tuple(numbers_along(view))), address_space=space)
    widths = [extent(element) for element in element_axes(view)]
    if any(width > 1 for width in widths):
        made = vectorized(made, *widths)
    return made.replaced(limits=view.limits, masked=view.masked, history=History(f"({view.history} and more)"))
