"""Outer products of views in thread-private memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import fail
from weft.errors import views as errors
from weft.views.fragments import numbers_along, together

if TYPE_CHECKING:
    from weft.views.tensor import LayoutTensor


def outer_product_acc(acc: LayoutTensor, a: LayoutTensor, b: LayoutTensor) -> None:
    """`acc[i, j] += a[i] * b[j]`, for all i and j; vectors count number by number.

    If the storage of `acc` has an `outer_product`, it is one operation on the values of acc (row-major), a and b.
    Raises ViewError (view-shapes) if the sizes of a and b do not match acc.
    """
    what = "outer_product_acc"
    shape, rows, columns = ([n for n in numbers_along(view) if n != 1] for view in (acc, a, b))
    if len(rows) > 1 or len(columns) > 1 or shape != [*rows, *columns]:
        sizes = f"of shapes {a.shape} and {b.shape}"
        raise fail(errors.SHAPES, view=acc.history, shape=acc.shape, other=f"{a.history} and {b.history}", others=sizes)
    total = together([acc], what, logical=True)[0]
    left, right = (together([view], what, logical=True)[0].load() for view in (a, b))
    fused: Any = getattr(acc.storage, "outer_product", None)
    if fused is not None:
        total.store(fused(total.load(), left, right))
        return
    count = max(columns[0] if columns else 1, 1)
    for place, single in enumerate(total.narrowed(1).apart()):
        single.store(single.load() + left[place // count] * right[place % count])
