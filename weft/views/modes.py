"""The modes of a view, axis by axis: sizes and strides, each either static or known at run time.

A view's layout has ints and UNKNOWN; its `sizes` and `strides` have the actual values (on the host always ints). A `Mode`
combines both. Partitions of a view are computed on modes, from which a view is built again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from weft.layout.nested.int_tuple import UNKNOWN, ceil_div, divided, flatten, is_tuple, modulo, plus, times
from weft.layout.nested.layouts import Layout
from weft.views.data import ViewData
from weft.views.storage import Index

WIDE = 1 << 31
"""Offsets from here on do not fit into an int32 scalar."""


class Mode(NamedTuple):
    """One mode: its size and stride, and whether each is static (otherwise UNKNOWN in the layout)."""

    size: Index
    stride: Index
    size_known: bool = True
    stride_known: bool = True

    @property
    def static_size(self) -> Any:
        """The size in the layout: an int or UNKNOWN."""
        return self.size if self.size_known else UNKNOWN

    @property
    def static_stride(self) -> Any:
        """The stride in the layout: an int or UNKNOWN."""
        return self.stride if self.stride_known else UNKNOWN

    def resized(self, size: Index, known: bool = True) -> Mode:
        """The mode with another size."""
        return Mode(size, self.stride, known, self.stride_known)

    def beyond(self, count: int, rounded_up: bool = False) -> Mode:
        """The outer mode when elements are grouped by `count`: one step per group."""
        size = ceil_div(self.size, count) if rounded_up else divided(self.size, count)
        return Mode(size, times(self.stride, count), self.size_known, self.stride_known)


# The modes of an axis, fastest first, as in a nested layout.
Axis: TypeAlias = tuple[Mode, ...]
ONE: Axis = (Mode(1, 0),)


def axes_of(view: ViewData) -> tuple[Axis, ...]:
    """The modes of a view's layout, per axis."""
    return _grouped(view.layout, view.sizes, view.strides)


def element_axes(view: ViewData) -> tuple[Axis, ...]:
    """The modes of one element, per axis of the view; all of size 1 for scalar elements."""
    layout = view.element_layout
    if layout.rank() != view.rank:
        return (ONE,) * view.rank
    return _grouped(layout, layout.flat_shape, layout.flat_stride)


def shape_of(view: ViewData) -> tuple[Any, ...]:
    """Elements along each axis by the layout: ints or UNKNOWN."""
    return tuple(static_extent(axis) for axis in axes_of(view))


def _grouped(layout: Layout, sizes: Sequence[Index], strides: Sequence[Index]) -> tuple[Axis, ...]:
    modes = [
        Mode(size, stride, static_size is not UNKNOWN, static_stride is not UNKNOWN)
        for size, stride, static_size, static_stride in zip(
            sizes, strides, layout.flat_shape, layout.flat_stride, strict=True
        )
    ]
    if not is_tuple(layout.shape):
        return (tuple(modes),)
    axes: list[Axis] = []
    for part in layout.shape:
        count = len(flatten(part))
        axes.append(tuple(modes[:count]))
        modes = modes[count:]
    return tuple(axes)


def layout_of(axes: Sequence[Axis], plain: bool = False) -> Layout:
    """The nested layout of these axes; with `plain` a single axis of one mode is not wrapped in a tuple."""
    shape = tuple(_nested([mode.static_size for mode in axis]) for axis in axes)
    stride = tuple(_nested([mode.static_stride for mode in axis]) for axis in axes)
    if plain and len(axes) == 1 and len(axes[0]) == 1:
        return Layout(shape[0], stride[0])
    return Layout(shape, stride)


def _nested(numbers: list[Any]) -> Any:
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def element_layout_of(axes: Sequence[Axis]) -> Layout:
    """The layout of an element with these modes, in canonical form: `SCALAR` for one number, stride 0 for modes of size 1."""
    trimmed = tuple(tuple(mode for mode in axis if not is_one(mode)) or ONE for axis in axes)
    return SCALAR if all(axis == ONE for axis in trimmed) else layout_of(trimmed)


SCALAR = Layout(1, 1)
"""The element layout of views whose elements are single numbers."""


def extent(axis: Axis) -> Index:
    """Elements along an axis."""
    total: Index = 1
    for mode in axis:
        total = times(total, mode.size)
    return total


def static_extent(axis: Axis) -> Any:
    """Elements along an axis by the layout: an int or UNKNOWN."""
    total: Any = 1
    for mode in axis:
        total = times(total, mode.static_size)
    return total


def is_nested(axis: Axis) -> bool:
    """Whether an axis has more than one mode."""
    return len(axis) > 1


def offset_along(axis: Axis, coordinate: Index) -> Index:
    """The offset of a coordinate along an axis. The last mode takes the whole quotient, without a modulo."""
    offset: Index = 0
    for mode in axis[:-1]:
        offset = plus(offset, times(modulo(coordinate, mode.size), mode.stride))
        coordinate = divided(coordinate, mode.size)
    return plus(offset, times(coordinate, axis[-1].stride)) if axis else offset


def cut(axis: Axis, count: int, rounded_up: bool = False) -> tuple[Axis, Axis] | None:
    """The first `count` elements of an axis, and the modes that step from group to group; None if `count` does not fit the
    modes.

    `rounded_up` allows a partial last group. A mode with a run-time size accepts any count.

    >>> cut((Mode(8, 1), Mode(4, 64)), 16)
    ((Mode(size=8, stride=1, size_known=True, stride_known=True), Mode(size=2, stride=64, size_known=True, stride_known=True)),
     (Mode(size=2, stride=128, size_known=True, stride_known=True),))
    """
    inside: list[Mode] = []
    for position, mode in enumerate(axis):
        up = rounded_up and position == len(axis) - 1
        if count == 1 and inside:
            return tuple(inside), axis[position:]
        if mode.size_known and count >= mode.size > 0 and count % mode.size == 0 and not up:
            inside.append(mode)
            count //= mode.size
            continue
        if isinstance(mode.size, int) and mode.size % count and not up:
            return None
        return (*inside, mode.resized(count)), (mode.beyond(count, up), *axis[position + 1 :])
    return (tuple(inside), ONE) if count == 1 else None


def boundaries(axis: Axis) -> list[int]:
    """The tile sizes that end at a mode boundary of a nested axis.

    >>> boundaries((Mode(8, 1), Mode(4, 64)))
    [8, 32]
    """
    sizes: list[int] = []
    count = 1
    for mode in axis:
        if not isinstance(mode.size, int):
            break
        count *= mode.size
        sizes.append(count)
    return sizes


def merged(axis: Axis) -> Axis:
    """The coalesced axis: a mode that continues where the previous one ends is merged with it."""
    out: list[Mode] = []
    for mode in axis:
        if is_one(mode):
            continue
        before = out[-1] if out else None
        if before is not None and _goes_on(before, mode):
            out[-1] = before.resized(before.size * mode.size, before.size_known and mode.size_known)
        else:
            out.append(mode)
    return tuple(out) or ONE


def _goes_on(before: Mode, mode: Mode) -> bool:
    numbers = (before.size, before.stride, mode.stride)
    known = before.size_known and before.stride_known and mode.stride_known
    return known and all(isinstance(n, int) for n in numbers) and before.size * before.stride == mode.stride


def is_one(mode: Mode) -> bool:
    """Whether the mode has the static size 1."""
    return isinstance(mode.size, int) and mode.size == 1 and mode.size_known


def is_wide(layout: Layout, sizes: Sequence[Index]) -> bool:
    """Whether offsets in a layout may exceed 32 bits: by its static numbers, or because a launch passed 64-bit sizes."""
    cosize = layout.cosize()
    if isinstance(cosize, int):
        return cosize >= WIDE
    return any(getattr(getattr(size, "dtype", None), "bits", 32) > 32 for size in sizes)


def minus(a: Index, b: Index) -> Index:
    """a - b, without an operation if b is 0."""
    return a if isinstance(b, int) and b == 0 else a - b
