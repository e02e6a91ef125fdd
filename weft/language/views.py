"""Views in kernels: `LayoutTensor` and its iterator, as values that flow through calls, loops and branches.

Views are made and used as on the host (`weft.views`). Their run-time numbers are leaves like any other; what a kernel is
compiled for, such as their layouts, agrees wherever ways meet.
"""

from __future__ import annotations

from typing import Any

from weft.language.aggregate import AGGREGATE
from weft.language.marks import constexpr
from weft.layout import UNKNOWN, ComposedLayout, Layout, Swizzle
from weft.views import AddressSpace, LayoutTensor, LayoutTensorIter

STATIC = frozenset({"layout", "element_layout", "masked", "history", "axis", "size", "circular"})
"""Fields that are known at compile time."""

for _cls in (LayoutTensor, LayoutTensorIter):
    setattr(_cls, AGGREGATE, {name: constexpr if name in STATIC else Any for name in _cls.FIELDS})

__all__ = ["UNKNOWN", "AddressSpace", "ComposedLayout", "Layout", "LayoutTensor", "LayoutTensorIter", "Swizzle"]
