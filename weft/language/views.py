"""Views in kernels: `LayoutTensor` and its iterator as values that are carried through calls, loops and branches.

Views are created and used as on the host (`weft.views`). Their run-time sizes and strides are leaves. Compile-time fields, such
as their layouts, must be equal on all paths that merge.
"""

from __future__ import annotations

from typing import Any

from weft.language import arith, math
from weft.language.aggregate import AGGREGATE
from weft.language.marks import anywhere, constexpr
from weft.layout import UNKNOWN, ComposedLayout, Layout, Swizzle
from weft.views import (
    AddressSpace,
    All,
    Idx,
    LayoutTensor,
    LayoutTensorIter,
    col_major,
    coord,
    row_major,
    stack_allocation,
    stack_allocation_like,
)
from weft.views.elementwise import FUNCTIONS, OPERATORS

STATIC = frozenset({"layout", "element_layout", "masked", "history", "axis", "size", "circular"})
"""Compile-time fields."""

for _cls in (LayoutTensor, LayoutTensorIter):
    setattr(_cls, AGGREGATE, {name: constexpr if name in STATIC else Any for name in _cls.FIELDS})


def _exp(x: Any, scale: Any) -> Any:
    return math.exp(arith.mul(x, scale))


OPERATORS.update(min=arith.minimum, max=arith.maximum)
FUNCTIONS.update(exp=_exp)

TileTensor = LayoutTensor
"""The newer name of `LayoutTensor`; it is the same class."""

Coord = Index = anywhere(coord)

__all__ = [
    "UNKNOWN", "AddressSpace", "All", "ComposedLayout", "Coord", "Idx", "Index", "Layout", "LayoutTensor", "LayoutTensorIter",
    "Swizzle", "TileTensor", "col_major", "row_major", "stack_allocation", "stack_allocation_like",
]  # fmt: skip
