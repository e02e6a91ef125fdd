"""Handles to memory: the common base of handles to shared memory and to tensor memory.

A handle is a value and is passed through calls, loops and branches. The memory it refers to is mutable state.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from weft.errors import fail
from weft.errors import memory as errors
from weft.ir.core import OpDef
from weft.ir.types import DType, SharedType, TensorType
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.layouts import check_tile
from weft.language.runtime_value import RuntimeValue, name_of, wrap
from weft.language.scalars import int32_scalar
from weft.language.shape import check_axis
from weft.language.tensor import tensor

if TYPE_CHECKING:
    from typing_extensions import Self


class memory_handle(RuntimeValue):
    """A handle to memory: one tile, or several along leading dimensions.

    Forming a view never fails at run time; an access outside of the allocation does.
    """

    __slots__ = ()
    INDEX: ClassVar[OpDef]
    SLICE: ClassVar[OpDef]

    @property
    def memory(self) -> SharedType | TensorType:
        """The IR type of the handle."""
        type = self.handle.type
        assert isinstance(type, SharedType | TensorType)
        return type

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.memory.element

    @property
    def shape(self) -> list[int]:
        """Sizes, outermost first; dimensions that count tiles precede those of a tile."""
        return list(self.memory.shape)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.memory.shape)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.memory.shape)

    @property
    def leading(self) -> int:
        """Number of dimensions that count tiles."""
        return self.rank - self.memory.layout.rank

    def index(self, index: int | tensor) -> Self:
        """The subarray at an index of the first dimension, which must count tiles. Raises shared-no-stages, shared-index."""
        current("index")
        if not self.leading:
            raise fail(errors.SHARED_NO_STAGES, got=name_of(self))
        count = self.memory.shape[0]
        if not isinstance(index, tensor) and hasattr(index, "__index__") and not 0 <= int(index) < count:
            raise fail(errors.SHARED_INDEX, index=index, got=name_of(self), count=count, last=count - 1)
        return emit(self.INDEX, self, int32_scalar("index", index))

    def _part(self, start: int, length: int, dim: int) -> Self:
        """Elements `start` to `start + length` along a dimension, all of them compile-time constants.

        Within a tile, lengths are powers of two and starts are multiples of them. Of the dimensions that count tiles only the
        first may be sliced.
        Raises shared-slice, shared-slice-aligned, shared-slice-stages."""
        current("slice")
        axis = check_axis(dim, self.rank)
        first, count, size = check_int("slice", start), check_int("slice", length), self.memory.shape[axis]
        if first < 0 or count < 1 or first + count > size:
            raise fail(errors.SHARED_SLICE, start=first, end=first + count, dim=axis, got=name_of(self), size=size)
        if axis >= self.leading and (count & (count - 1) or first % count):
            return self._unaligned(first, count, axis)
        if 0 < axis < self.leading and count != size:
            raise fail(errors.SHARED_SLICE_STAGES, start=first, length=count, dim=axis, got=name_of(self))
        return emit(self.SLICE, self, start=first, length=count, dim=axis)

    def _unaligned(self, start: int, length: int, axis: int) -> Self:
        """A part of a tile that begins between the multiples of its length, or whose length is no power of two. Raises
        shared-slice-aligned."""
        raise fail(errors.SHARED_SLICE_ALIGNED, start=start, length=length, dim=axis, got=name_of(self))


def check_one_tile(what: str, handle: memory_handle) -> None:
    """Reject a handle to several tiles (shared-several-tiles)."""
    if handle.leading:
        raise fail(errors.SHARED_SEVERAL, what=what, got=name_of(handle))


def check_stored(value: Any, handle: memory_handle) -> None:
    """Reject a stored value that is not a tile of the handle's shape and dtype (shared-store, language-tile-needed)."""
    check_tile("store", value)
    if (value.element, value.tile.shape) != (handle.dtype, handle.memory.shape):
        raise fail(errors.SHARED_STORED, value=name_of(value), got=name_of(handle), dtype=handle.dtype.name)


def emit(kind: OpDef, *operands: RuntimeValue, **attrs: Any) -> Any:
    """Emit an operation with one result, without conversion of its operands, and wrap the result."""
    return wrap(current().builder.emit(kind, *(x.handle for x in operands), **attrs))
