"""Views as kernel arguments: the part that kernels are specialised on, and the numbers passed at each launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import UNKNOWN
from weft.layout.nested.layouts import Layout
from weft.views.data import ViewData
from weft.views.history import History
from weft.views.host import ArrayStorage
from weft.views.modes import WIDE
from weft.views.partition import require_alignment
from weft.views.storage import Index, Storage


@dataclass(frozen=True, slots=True)
class ViewKey:
    """The part of a view that a kernel is specialised on. `limited` marks the axes with a limit; None if no axis has one."""

    layout: Layout
    element_layout: Layout
    masked: bool
    limited: tuple[bool, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its numbers, in order: UNKNOWN sizes, UNKNOWN strides, limits."""
        return (
            *(f"size_{mode}" for mode, size in enumerate(self.layout.flat_shape) if size is UNKNOWN),
            *(f"stride_{mode}" for mode, stride in enumerate(self.layout.flat_stride) if stride is UNKNOWN),
            *(f"limit_{axis}" for axis, limited in enumerate(self.limited or ()) if limited),
        )


@dataclass(eq=False, slots=True)
class ViewArgument:
    """A host view for a launch: its array, the byte offset from the array's first element to the view's, key and numbers.

    The numbers have the names `key.names`. `wide`: offsets in the view exceed 32 bits, so the numbers are int64. `memo` caches
    what launches derive from this argument.
    """

    array: Any
    byte_offset: int
    key: ViewKey
    numbers: tuple[int, ...]
    wide: bool = False
    memo: Any = field(default=None, repr=False)
    kinds: None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return self.key.names

    def __weft_view__(self) -> ViewArgument:
        """Itself, so that it can be passed to a launch in place of the view."""
        return self


def describe(view: ViewData) -> ViewArgument:
    """The argument of a host view."""
    storage = view.storage
    if not isinstance(storage, ArrayStorage):
        raise fail(errors.OPEN, got=f"{view.history}, a view inside of a kernel,", example="")
    require_alignment(view)
    limits = view.limits
    key = ViewKey(
        view.layout,
        view.element_layout,
        view.masked,
        None if limits is None else tuple(limit is not None for limit in limits),
    )
    numbers = (
        *_unknown(view.layout.flat_shape, view.sizes),
        *_unknown(view.layout.flat_stride, view.strides),
        *(limit for limit in limits or () if limit is not None),
    )
    reach = sum((size - 1) * abs(stride) for size, stride in zip(view.sizes, view.strides, strict=True))
    wide = reach + view.element_layout.cosize() >= WIDE
    return ViewArgument(storage.array, view.offset * storage.dtype.itemsize, key, numbers, wide)


def _unknown(static: Sequence[Any], numbers: Sequence[int]) -> list[int]:
    return [number for known, number in zip(static, numbers, strict=True) if known is UNKNOWN]


def fields(storage: Storage, key: ViewKey, numbers: Sequence[Index], name: str) -> tuple[Any, ...]:
    """The fields of the view inside a kernel, with its first element at the storage's start."""
    rest = iter(numbers)
    sizes = tuple(next(rest) if size is UNKNOWN else size for size in key.layout.flat_shape)
    strides = tuple(next(rest) if stride is UNKNOWN else stride for stride in key.layout.flat_stride)
    limits = None if key.limited is None else tuple(next(rest) if limited else None for limited in key.limited)
    return (storage, 0, key.layout, key.element_layout, sizes, strides, limits, key.masked, History(name))
