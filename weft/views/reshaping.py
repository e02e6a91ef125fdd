"""Slices, transposes and reshapes of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import is_tuple, plus, times
from weft.layout.nested.layouts import Layout
from weft.views.access import check_along, number, widened
from weft.views.data import AnyView, ViewData
from weft.views.history import called, spelled
from weft.views.modes import (
    Axis,
    Mode,
    axes_of,
    cut,
    element_axes,
    element_layout_of,
    extent,
    is_nested,
    merged,
    minus,
    static_extent,
)
from weft.views.partition import limits_of, rebuilt, whole_number
from weft.views.storage import Index


def sliced(view: AnyView, *parts: Any) -> AnyView:
    """`slice`: a slice keeps an axis, an index removes it."""
    what = called(view.history, "slice", parts)
    if len(parts) != view.rank:
        raise fail(errors.TILE_RANK, what=what, count=len(parts), view=view.history, rank=view.rank)
    offset = view.offset
    axes: list[Axis] = []
    elements: list[Axis] = []
    limits: list[Index | None] = []
    for axis, (part, modes, element) in enumerate(zip(parts, axes_of(view), element_axes(view), strict=True)):
        if is_tuple(part) and len(part) == 2:
            part = slice(*part)
        if not isinstance(part, slice):
            offset = plus(offset, _one(view, axis, number(view, part)))
            continue
        start, kept = _span(view, axis, modes, cast("slice[Any, Any, Any]", part))
        offset = plus(offset, times(widened(view, start), modes[0].stride))
        axes.append(kept)
        elements.append(element)
        limits.append(_left(view, axis, start, kept))
    if not axes:
        axes, elements, limits = [(Mode(1, 0),)], [(Mode(1, 0),)], [None]
    return rebuilt(view, axes, offset, limits, what, elements)


def _one(view: ViewData, axis: int, index: Index) -> Index:
    """The offset of an index along an axis of one mode with scalar elements."""
    modes = axes_of(view)[axis]
    if is_nested(modes) or extent(element_axes(view)[axis]) != 1:
        raise _refused(view, axis, spelled(index))
    check_along(view, axis, index)
    return times(widened(view, index), modes[0].stride)


def _span(view: ViewData, axis: int, modes: Axis, part: slice[Any, Any, Any]) -> tuple[Index, Axis]:
    """The start of a slice along an axis, and its mode. A nested axis can only be kept as a whole."""
    if part.start is part.stop is part.step is None:
        return 0, modes
    size = extent(modes)
    start = 0 if part.start is None else number(view, part.start)
    stop = size if part.stop is None else number(view, part.stop)
    step = 1 if part.step is None else number(view, part.step)
    if is_nested(modes) or not isinstance(step, int) or step < 1:
        raise _refused(view, axis, spelled(part))
    _check_bounds(view, axis, part, start, stop, size)
    length = _length(start, stop, step)
    static = isinstance(length, int) and (part.stop is not None or modes[0].size_known)
    mode = Mode(length, times(modes[0].stride, step), static, modes[0].stride_known)
    return start, (mode,)


def _check_bounds(
    view: ViewData, axis: int, part: slice[Any, Any, Any], start: Index, stop: Index, size: Index
) -> None:
    """Check that 0 <= start <= stop <= size: here as far as they are known, else at run time."""
    for low, high in ((0, start), (start, stop), (stop, size)):
        if isinstance(low, int) and isinstance(high, int) and low > high:
            raise _refused(view, axis, spelled(part))
    late = [
        (*((low - 1, high) if isinstance(low, int) else (low, plus(high, 1))), f"at the {which} of slice")
        for low, high, which in ((start, stop, "start"), (stop, size, "end"))
        if low is not high and not (isinstance(low, int) and (low == 0 or isinstance(high, int)))
    ]
    if late:
        indices, sizes, which = zip(*late, strict=True)
        where = [f"{each} {spelled(part)} along axis {axis} of" for each in which]
        view.storage.check(indices, sizes, view.history, where)


def _length(start: Index, stop: Index, step: int) -> Index:
    left = minus(stop, start)
    return left if step == 1 else (left + (step - 1)) // step


def _left(view: ViewData, axis: int, start: Index, kept: Axis) -> Index | None:
    """The limit of a slice: the rest of the axis's limit after `start`. A step along a masked axis is refused."""
    limit = limits_of(view)[axis]
    if limit is None:
        return None
    stride, before = kept[0].stride, axes_of(view)[axis][0].stride
    # A run-time stride that is a different value is a multiple of the axis's stride, by a step.
    same_steps = stride is before or (isinstance(stride, int) and stride == before)
    if not same_steps and not is_nested(kept):
        raise _refused(view, axis, "with a step, of a masked axis,")
    left = minus(limit, start)
    return max(left, 0) if isinstance(left, int) else left


def _refused(view: ViewData, axis: int, part: str) -> Exception:
    return fail(errors.SLICE, part=part, axis=axis, view=view.history, size=extent(axes_of(view)[axis]))


def transposed(view: AnyView, order: Sequence[int]) -> AnyView:
    """`transpose`: axes in another order."""
    order = tuple(order) or tuple(reversed(range(view.rank)))
    if sorted(order) != list(range(view.rank)):
        raise fail(errors.ORDER, order=order, rank=view.rank, view=view.history)
    axes, elements, limits = axes_of(view), element_axes(view), limits_of(view)
    history = called(view.history, "transpose", None, order)
    return rebuilt(
        view, [axes[k] for k in order], view.offset, [limits[k] for k in order], history, [elements[k] for k in order]
    )


def flattened(view: AnyView) -> AnyView:
    """`coalesce`: all elements along one axis."""
    _, count = _open(view, called(view.history, "coalesce", None))
    return reshaped(view, count)


def reshaped(view: AnyView, *shape: Any) -> AnyView:
    """`reshape`: to sizes in logical row-major order, or to a layout relative to the first element."""
    if len(shape) == 1 and isinstance(shape[0], Layout):
        return _under(view, shape[0])
    if len(shape) == 1 and is_tuple(shape[0]):
        shape = shape[0]
    history = called(view.history, "reshape", shape)
    axes, count = _open(view, history)
    sizes = [whole_number(history, size, axis) for axis, size in enumerate(shape)]
    wanted = 1
    for size in sizes:
        wanted *= size
    if wanted != count:
        raise fail(errors.RESHAPE_COUNT, view=view.history, size=count, shape=tuple(sizes), count=wanted)
    rest = merged(tuple(mode for axis in reversed(axes) for mode in axis))
    made: list[Axis] = []
    for size in reversed(sizes):
        found = cut(rest, size)
        if found is None:
            raise fail(errors.RESHAPE, view=view.history, layout=view.layout, shape=tuple(sizes))
        own, rest = found
        made.append(merged(own))
    elements = _vector_axes(view, len(made))
    return rebuilt(view, made[::-1], view.offset, (None,) * len(made), history, elements)


def _vector_axes(view: ViewData, rank: int) -> list[Axis]:
    """The modes of an element in another shape: its numbers are consecutive along the last of `rank` axes."""
    inner = merged(tuple(mode for axis in reversed(element_axes(view)) for mode in axis))
    return [*((Mode(1, 0),) for _ in range(rank - 1)), inner]


def _under(view: AnyView, layout: Layout) -> AnyView:
    history = called(view.history, "reshape", (layout,))
    _, count = _open(view, history)
    if not layout.all_dims_known:
        raise fail(errors.UNKNOWN_SIZE, what=history, view="the new shape", layout=layout)
    if layout.size() != count or layout.cosize() > view.layout.cosize():
        raise fail(
            errors.RESHAPE_COUNT,
            view=f"{view.history} with layout {view.layout}",
            size=count,
            shape=layout,
            count=layout.size() if layout.size() != count else f"{count} that reach over {layout.cosize()}",
        )
    return view.replaced(
        layout=layout,
        element_layout=view.element_layout if layout.rank() == view.rank else _elements(view, layout.rank()),
        sizes=layout.flat_shape,
        strides=layout.flat_stride,
        history=history,
    )


def _elements(view: ViewData, rank: int) -> Layout:
    return element_layout_of(_vector_axes(view, rank))


def _open(view: ViewData, what: str) -> tuple[tuple[Axis, ...], int]:
    """The axes and number of elements of a view, checked for reshaping."""
    if view.limits is not None:
        raise fail(errors.RESHAPE_MASKED, view=view.history)
    count = 1
    for axis in axes_of(view):
        size = static_extent(axis)
        if not isinstance(size, int):
            raise fail(errors.UNKNOWN_SIZE, what=what, view=view.history, layout=view.layout)
        count *= size
    return axes_of(view), count
