"""Functions over views that belong to no view: layouts, allocation, and coordinates.

gl.row_major[16, 16]()                                           # Layout.row_major(16, 16)
gl.stack_allocation[gl.float32, gl.AddressSpace.SHARED](layout)  # a view of new shared memory
t.load[4](gl.Index(i, j))                                        # as t.load[4](i, j)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from weft.layout.nested.layouts import Layout
from weft.views.brackets import Brackets, Complete, Direct, Size
from weft.views.data import ViewData
from weft.views.storage import AddressSpace
from weft.views.tensor import LayoutTensor


def _row_major(_: None, *shape: Any) -> Layout:
    return Layout.row_major(*_sizes(shape))


def _col_major(_: None, *shape: Any) -> Layout:
    return Layout.col_major(*_sizes(shape))


def _sizes(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    only = shape[0] if len(shape) == 1 else shape
    return cast("tuple[Any, ...]", only) if isinstance(only, tuple) else shape


def _allocation(
    _: None, dtype: Any, address_space: AddressSpace = AddressSpace.GENERIC
) -> Callable[[Layout], LayoutTensor]:
    def allocate(layout: Layout) -> LayoutTensor:
        return LayoutTensor.stack_allocation(dtype, layout, address_space=address_space)

    return allocate


def _allocation_like(_: None, address_space: AddressSpace = AddressSpace.GENERIC) -> Callable[[ViewData], LayoutTensor]:
    def allocate(view: ViewData) -> LayoutTensor:
        return LayoutTensor.stack_allocation(view.dtype, view.layout, address_space=address_space)

    return allocate


class RowMajor(Complete[Layout]):
    """`row_major[4, 8]()`, or `row_major(4, 8)`: the layout `Layout.row_major(4, 8)`."""


class ColMajor(Complete[Layout]):
    """`col_major[4, 8]()`, or `col_major(4, 8)`: the layout `Layout.col_major(4, 8)`."""


class StackAllocation(Brackets[Callable[[Layout], LayoutTensor]]):
    """`stack_allocation[dtype, address_space](layout)`: a view of new memory, as `LayoutTensor.stack_allocation` makes it.

    With names in parentheses: `stack_allocation(dtype=gl.float32, address_space=gl.AddressSpace.SHARED)(layout)`."""


class StackAllocationLike(Direct[Callable[[ViewData], LayoutTensor]]):
    """`stack_allocation_like(t)`, `stack_allocation_like[address_space](t)`: a view of new memory with dtype and layout of t.

    Elements are numbers. With the name: `stack_allocation_like(address_space=gl.AddressSpace.SHARED)(t)`."""


class StaticIndex:
    """`Idx[4]` and `Idx(i)`: the numbers themselves, which are as known as they are."""

    __slots__ = ()

    def __getitem__(self, number: int) -> Size:
        return Size(number)

    def __call__(self, number: Any) -> Any:
        """The number."""
        return number


row_major = RowMajor(None, _row_major)
col_major = ColMajor(None, _col_major)
stack_allocation = StackAllocation(None, _allocation)
stack_allocation_like = StackAllocationLike(None, _allocation_like)
Idx = StaticIndex()
All = slice(None)
"""A whole axis, for `t.slice(i, All)`."""


def coord(*indices: Any) -> tuple[Any, ...]:
    """A coordinate, which may be nested: a tuple of its indices, for `t.load`, `t.store`, `t[...]` and `t.tile`."""
    return indices
