"""Swizzles over partitions: where the elements of a thread lie when offsets are permuted, as by XOR.

Offsets here count elements of a view, from its first one. A thread's elements lie at the thread's own offset plus steps that
are the same for all threads; under a swizzle that sum may still be one, or an XOR, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import plus
from weft.views.modes import Axis, axes_of, cut, element_axes, extent, offset_along
from weft.views.storage import Index

if TYPE_CHECKING:
    from weft.views.tensor import LayoutTensor

Swizzling = Callable[[Any], Any]


def by_elements(view: LayoutTensor) -> LayoutTensor:
    """The view from offset 0 on with strides that count elements. Raises ViewError (view-swizzle-stride)."""
    width = 1
    for axis in element_axes(view):
        width *= extent(axis)
    if any(not isinstance(stride, int) or stride % width for stride in view.strides) or not all(
        isinstance(size, int) for size in view.sizes
    ):
        raise fail(errors.SWIZZLE_STRIDE, view=view.history, layout=view.layout, width=width)
    return view.replaced(offset=0, strides=tuple(stride // width for stride in view.strides))


def starts(view: LayoutTensor, counts: Sequence[int]) -> list[int]:
    """The offset of every thread's first element; `counts` are threads along each axis."""
    offsets = [0]
    for modes, count in zip(axes_of(view), counts, strict=True):
        found = cut(modes, count, rounded_up=view.masked)
        own = found[0] if found else modes
        offsets = [offset + offset_along(own, index) for offset in offsets for index in range(count)]
    return offsets


def steps(axes: Sequence[Axis]) -> list[int]:
    """Offsets of the elements of a fragment from its first."""
    offsets = [0]
    for axis in axes:
        for mode in axis:
            offsets = [offset + step * mode.stride for offset in offsets for step in range(mode.size)]
    return offsets


def is_repeated(swizzle: Swizzling, firsts: Sequence[int], inside: Sequence[int]) -> bool:
    """Whether every thread's elements lie as far from its first as without the swizzle."""
    return all(swizzle(first + step) == swizzle(first) + step for first in firsts for step in inside)


def is_linear(swizzle: Swizzling, firsts: Sequence[int], inside: Sequence[int]) -> bool:
    """Whether every element's place is the XOR of its thread's and its own."""
    return all(swizzle(first + step) == swizzle(first) ^ swizzle(step) for first in firsts for step in inside)


def scattered(swizzle: Swizzling, firsts: Sequence[int], first: Index, inside: Sequence[int]) -> Iterator[Index]:
    """The swizzled offset of each element of one thread, by one XOR where the swizzle allows."""
    if is_linear(swizzle, firsts, inside):
        base = swizzle(first)
        yield from (base ^ swizzle(step) if swizzle(step) else base for step in inside)
    else:
        yield from (swizzle(plus(first, step)) for step in inside)
