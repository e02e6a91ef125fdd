"""Swizzled partitions: offsets of a thread's elements under a permutation of offsets, such as XOR.

Offsets are relative to a view's first number; those of a partition count elements, those of a copy numbers. Without a swizzle
an element's offset is the thread's first offset plus a step that is the same for all threads. Under a swizzle it may still be
such a sum, or the XOR of both parts, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import plus
from weft.views.data import AnyView, ViewData
from weft.views.modes import Axis, cut, element_axes, extent, offset_along
from weft.views.storage import Index
from weft.views.threads import Share

Swizzling = Callable[[Any], Any]


def by_elements(view: AnyView) -> AnyView:
    """The view at offset 0 with strides in elements. Raises ViewError (view-swizzle-stride)."""
    width = 1
    for axis in element_axes(view):
        width *= extent(axis)
    if any(not isinstance(stride, int) or stride % width for stride in view.strides) or not all(
        isinstance(size, int) for size in view.sizes
    ):
        raise fail(errors.SWIZZLE_STRIDE, view=view.history, layout=view.layout, width=width)
    return view.replaced(offset=0, strides=tuple(stride // width for stride in view.strides))


def by_numbers(view: AnyView) -> AnyView:
    """The view at offset 0. Raises ViewError (view-swizzle-stride) for sizes or strides that are not known."""
    if not all(isinstance(each, int) for each in (*view.strides, *view.sizes)):
        raise fail(errors.SWIZZLE_STRIDE, view=view.history, layout=view.layout, width=1)
    return view.replaced(offset=0)


def starts(view: ViewData, shares: Sequence[Sequence[Share]]) -> list[int]:
    """The offset of every thread's first element; `shares` are what threads divide, per axis."""
    offsets = [0]
    for share in (share for parts in shares for share in parts):
        found = cut(share.modes, share.count, rounded_up=view.masked)
        own = found[0] if found else share.modes
        offsets = [offset + offset_along(own, index) for offset in offsets for index in range(share.count)]
    return offsets


def steps(axes: Sequence[Axis]) -> list[int]:
    """Offsets of a fragment's elements relative to its first."""
    offsets = [0]
    for axis in axes:
        for mode in axis:
            offsets = [offset + step * mode.stride for offset in offsets for step in range(mode.size)]
    return offsets


def is_repeated(swizzle: Swizzling, firsts: Sequence[int], inside: Sequence[int]) -> bool:
    """Whether the swizzle keeps the distance of every thread's elements from its first."""
    return all(swizzle(first + step) == swizzle(first) + step for first in firsts for step in inside)


def is_linear(swizzle: Swizzling, firsts: Sequence[int], inside: Sequence[int]) -> bool:
    """Whether every element's swizzled offset is the XOR of the swizzled thread part and the swizzled step."""
    return all(swizzle(first + step) == swizzle(first) ^ swizzle(step) for first in firsts for step in inside)


def scattered(swizzle: Swizzling, firsts: Sequence[int], first: Index, inside: Sequence[int]) -> Iterator[Index]:
    """The swizzled offset of each element of one thread. If the swizzle is linear, it costs one XOR per element."""
    if is_linear(swizzle, firsts, inside):
        base = swizzle(first)
        yield from (base ^ swizzle(step) if swizzle(step) else base for step in inside)
    else:
        yield from (swizzle(plus(first, step)) for step in inside)
