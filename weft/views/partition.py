"""Partitions of a view: tiles, splits, vectors, and threads' fragments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import ceil_div, divided, flatten, is_tuple, plus, times
from weft.layout.nested.layouts import Layout
from weft.views.access import aligned, dim, number, require_axis, vector_width, widened
from weft.views.data import AnyView, ViewData
from weft.views.history import called
from weft.views.modes import (
    Axis,
    Mode,
    axes_of,
    boundaries,
    cut,
    element_axes,
    element_layout_of,
    extent,
    is_nested,
    is_one,
    layout_of,
    merged,
    minus,
    offset_along,
    static_extent,
)
from weft.views.storage import AddressSpace, Index
from weft.views.swizzles import Swizzling, by_elements, is_repeated, starts, steps
from weft.views.threads import Share, check_thread, shares_of, thread_coordinate

Limits = Sequence["Index | None"]
WithOffset = tuple[AnyView, tuple[Index, ...], Index]
"""A part of a view, its coordinate, and the offset of its first number from the view's."""


@dataclass(frozen=True, slots=True)
class ViewType:
    """The static properties of a view."""

    dtype: Any
    layout: Layout
    element_layout: Layout
    address_space: AddressSpace
    masked: bool

    def __call__(self) -> ViewType:
        """Itself, so that `t.tile_type(4, 4)()` is `t.tile_type[4, 4]()`."""
        return self


def rebuilt(
    view: AnyView,
    axes: Sequence[Axis],
    offset: Index,
    limits: Limits,
    history: str,
    elements: Sequence[Axis] | None = None,
) -> AnyView:
    """A view of the same memory with these axes. `limits` has the limit of each axis, None if all of it is valid."""
    modes = [mode for axis in axes for mode in axis]
    return view.replaced(
        layout=layout_of(axes, plain=not is_tuple(view.layout.shape)),
        element_layout=view.element_layout if elements is None else element_layout_of(elements),
        sizes=tuple(mode.size for mode in modes),
        strides=tuple(mode.stride for mode in modes),
        offset=offset,
        limits=tuple(limits) if any(limit is not None for limit in limits) else None,
        history=history,
    )


def limits_of(view: ViewData) -> Limits:
    """The limit of each axis."""
    return view.limits or (None,) * view.rank


def whole_numbers(view: ViewData, what: str, numbers: Sequence[Any]) -> list[int]:
    """Compile-time sizes, one per axis, each at least 1. Raises ViewError: view-tile-rank, view-tile-size."""
    if len(numbers) != view.rank:
        raise fail(errors.TILE_RANK, what=what, count=len(numbers), view=view.history, rank=view.rank)
    return [whole_number(what, size, axis) for axis, size in enumerate(numbers)]


def whole_number(what: str, size: Any, axis: int) -> int:
    """One such size."""
    if not hasattr(size, "__index__") or operator.index(size) < 1:
        raise fail(errors.TILE_SIZE, what=what, size=size, axis=axis)
    return operator.index(size)


# Tiles


def tiles(view: AnyView, *sizes: Any) -> Callable[..., AnyView]:
    """`tile` with its sizes given."""
    make = tiles_with_offset(view, *sizes)

    def tile(*coordinates: Any) -> AnyView:
        return make(*coordinates)[0]

    return tile


def tiles_with_offset(view: AnyView, *sizes: Any) -> Callable[..., WithOffset[AnyView]]:
    """`tile_with_offset` with its sizes given."""
    view, inside, outside, numbers = _tiling(view, sizes)

    def tile(*coordinates: Any) -> WithOffset[AnyView]:
        coordinates = flatten(coordinates)
        what = called(view.history, "tile", numbers, coordinates)
        if len(coordinates) != view.rank:
            raise fail(errors.TILE_RANK, what=what, count=len(coordinates), view=view.history, rank=view.rank)
        offset: Index = 0
        limits: list[Index | None] = []
        indices = [number(view, coordinate) for coordinate in coordinates]
        for axis, index in enumerate(indices):
            check_tile(view, what, axis, index, numbers[axis], outside[axis])
            offset = plus(offset, offset_along(outside[axis], widened(view, index)))
            limits.append(tile_limit(view, axis, index, numbers[axis]))
        corner = tuple(map(times, indices, numbers))
        return rebuilt(view, inside, plus(view.offset, offset), limits, what), corner, offset

    return tile


def tile_type(view: ViewData, *sizes: Any) -> ViewType:
    """The static properties of tiles of this size."""
    view, inside, _, _ = _tiling(view, sizes)
    layout = layout_of(inside, plain=not is_tuple(view.layout.shape))
    return ViewType(view.dtype, layout, view.element_layout, view.address_space, view.masked)


def _tiling(view: AnyView, sizes: Sequence[Any]) -> tuple[AnyView, list[Axis], list[Axis], list[int]]:
    """The view, masked if need be; per axis the modes inside one tile and the modes over tiles; and the sizes."""
    what = called(view.history, "tile", sizes).removesuffix("()")
    numbers = whole_numbers(view, what, sizes)
    view = masked_for(view, numbers)
    pairs = [tiled_axis(view, what, axis, count) for axis, count in enumerate(numbers)]
    return view, [inside for inside, _ in pairs], [outside for _, outside in pairs], numbers


def masked_for(view: AnyView, numbers: Sequence[int]) -> AnyView:
    """The view; masked if one of these tile sizes is known not to divide it, so that tiles at its edge are smaller."""
    sizes = [static_extent(axis) for axis in axes_of(view)]
    odd = any(isinstance(size, int) and size % count for size, count in zip(sizes, numbers, strict=True))
    return view.replaced(masked=True) if odd and not view.masked else view


def tiled_axis(view: ViewData, what: str, axis: int, count: int) -> tuple[Axis, Axis]:
    """One axis divided into tiles of `count`. Raises ViewError (view-tile-nested)."""
    modes = axes_of(view)[axis]
    size = extent(modes)
    found = cut(modes, count, rounded_up=view.masked and not is_nested(modes))
    if found is None or (is_nested(modes) and isinstance(size, int) and size % count):
        shown = ", ".join(map(str, boundaries(modes)))
        raise fail(
            errors.TILE_NESTED, what=what, part=count, view=view.history, axis=axis, layout=view.layout, sizes=shown
        )
    return found


def check_tile(view: ViewData, what: str, axis: int, index: Index, size: int, outside: Axis) -> None:
    """Check a tile coordinate: here if it is known, otherwise at run time. Run-time coordinates of masked views are not
    checked, since a tile out of bounds has the limit 0."""
    count = extent(outside)
    if isinstance(index, int) and isinstance(count, int):
        if not 0 <= index < count:
            raise fail(errors.TILE_INDEX, what=what, index=index, axis=axis, view=view.history, count=count)
    elif not view.masked:
        # Checked in elements: a check in tiles would need a division for the number of tiles.
        last = plus(times(index, size), size - 1)
        where = f"along axis {axis} of {view.history} as the last of"
        view.storage.check((last,), (extent(axes_of(view)[axis]),), what, (where,))


def tile_limit(view: ViewData, axis: int, index: Index, size: int) -> Index | None:
    """The number of valid elements of a tile along an axis; None if all are. A run-time tile of a masked view may be out of
    bounds."""
    if isinstance(index, int):
        limit = limit_along(view, axis, size)
    else:
        limit = dim(view, axis) if view.masked else None
    if limit is None:
        return None
    left = minus(limit, times(widened(view, index), size))
    if isinstance(left, int) and isinstance(static_extent(axes_of(view)[axis]), int):
        return None if left >= size else max(left, 0)
    return left


def limit_along(view: ViewData, axis: int, count: int) -> Index | None:
    """The number of valid elements along an axis that is divided into groups of `count`; None if every group is whole."""
    limit, size = limits_of(view)[axis], static_extent(axes_of(view)[axis])
    even = isinstance(size, int) and size % count == 0
    if not view.masked or (even and limit is None):
        return None
    # A limit may exceed the extent of the axis, and a partial last group reaches beyond the extent, so `dim` clamps it.
    return limit if even else dim(view, axis)


# Splits


def splits(view: ViewData, count: Any = None, axis: Any = 0, *, split_alignment: Any = 1) -> Callable[..., Any]:
    """`split` with its numbers given: a function of an index; without an index it returns all parts.

    Without a count it is a function of a count and an index."""
    along = require_axis(view, axis)
    if count is None:
        return _uneven_splits(view, along, whole_number(f"{view.history}.split", split_alignment, along))
    parts = whole_number(called(view.history, "split", (count, axis)), count, along)
    modes = axes_of(view)[along]
    size = static_extent(modes)
    if not isinstance(size, int):
        raise fail(errors.UNKNOWN_SIZE, what="split", view=view.history, layout=view.layout)
    found = None if size % parts else cut(modes, size // parts)
    if found is None:
        raise fail(errors.SPLIT, count=parts, size=size, axis=along, view=view.history)
    inside, outside = found
    length = size // parts
    axes = [inside if each == along else whole for each, whole in enumerate(axes_of(view))]

    def split(index: Any = None) -> Any:
        return tuple(map(part, range(parts))) if index is None else part(number(view, index))

    def part(index: Index) -> ViewData:
        what = called(view.history, "split", (parts, along), (index,))
        check_tile(view, what, along, index, length, outside)
        limits = list(limits_of(view))
        limits[along] = tile_limit(view, along, index, length)
        offset = plus(view.offset, offset_along(outside, widened(view, index)))
        return rebuilt(view, axes, offset, limits, what)

    return split


def _uneven_splits(view: ViewData, axis: int, alignment: int) -> Callable[..., Any]:
    """`split` with a run-time count: slices, of which the last may be smaller or empty."""
    from weft.views.reshaping import sliced

    size = extent(axes_of(view)[axis])

    def split(count: Any, index: Any) -> Any:
        parts, which = number(view, count), number(view, index)
        what = called(view.history, "split", (f"axis={axis}",), (parts, which))
        if isinstance(parts, int) and isinstance(which, int):
            if not 0 <= which < parts:
                raise fail(errors.TILE_INDEX, what=what, index=which, axis=axis, view=view.history, count=parts)
        else:
            view.storage.check((which,), (parts,), what, ("as the part of",))
        length = times(ceil_div(ceil_div(size, parts), alignment), alignment)
        first = times(which, length)
        start, stop = (view.storage.clamp(bound, 0, size) for bound in (first, plus(first, length)))
        kept = [slice(start, stop) if each == axis else slice(None) for each in range(view.rank)]
        return sliced(view, *kept).replaced(history=what)

    return split


# Vectors


def vectorized(view: AnyView, *widths: Any) -> AnyView:
    """`vectorize`: groups of neighbours along each axis become one element."""
    what = called(view.history, "vectorize", widths)
    numbers = whole_numbers(view, what, widths)
    axes: list[Axis] = []
    elements: list[Axis] = []
    limits: list[Index | None] = []
    for axis, (width, modes, element) in enumerate(zip(numbers, axes_of(view), element_axes(view), strict=True)):
        size = modes[0].size if is_nested(modes) else extent(modes)
        if isinstance(size, int) and size % width:
            raise fail(errors.VECTOR_DIVIDES, what=what, part=width, size=size, axis=axis, view=view.history)
        check_groups(view, what, axis, size, width)
        if width > 1 and not modes[0].stride_known:
            raise fail(errors.VECTOR_STRIDE, what=what, axis=axis, view=view.history)
        axes.append((modes[0].beyond(width), *modes[1:]))
        elements.append(merged((*element, Mode(width, modes[0].stride))) if width > 1 else element)
        limits.append(_vector_limit(view, what, axis, width))
    made = rebuilt(view, axes, view.offset, limits, what, elements)
    if made.address_space is not AddressSpace.GENERIC:
        require_alignment(made)
    return made


def _vector_limit(view: ViewData, what: str, axis: int, width: int) -> Index | None:
    limit = limits_of(view)[axis]
    if limit is None or width == 1:
        return limit
    if isinstance(limit, int) and limit % width:
        raise fail(errors.VECTOR_DIVIDES, what=what, part=width, size=limit, axis=axis, view=view.history)
    check_groups(view, what, axis, limit, width)
    return divided(limit, width)


def check_groups(view: ViewData, what: str, axis: int, size: Index, count: int) -> None:
    """Check at run time that a run-time number of elements is a multiple of `count`."""
    if count > 1 and not isinstance(size, int):
        where = f"as the remainder of axis {axis} of {view.history} by {count} in"
        view.storage.check((size % count,), (1,), what, (where,))


def require_alignment(view: ViewData) -> None:
    """Check that the vectors of a view are aligned, as far as its numbers are known. Raises ViewError (view-vector-aligned).

    NumPy needs no alignment, so a view of the host is checked when it becomes an argument of a kernel."""
    width = vector_width(view)
    if width > 1:
        # Strides between elements, and strides between vectors inside an element.
        steps = [mode.stride for axis in axes_of(view) for mode in axis if mode.stride_known and not is_one(mode)]
        inside = [mode.stride for axis in element_axes(view) for mode in axis if not 0 <= mode.stride < width]
        aligned(view, width, view.offset, [*steps, *inside])


# Fragments of threads


def distributor(
    view: AnyView, threads: Any, axis: Any = None, swizzle: Swizzling | None = None
) -> Callable[[Index], AnyView]:
    """`distribute` with its layout of threads given."""

    def distribute(index: Index) -> AnyView:
        return distributed(view, threads, index, axis, swizzle, paired=True)

    return distribute


def distributed(
    view: AnyView,
    threads: Any,
    index: Any,
    axis: Any = None,
    swizzle: Swizzling | None = None,
    guarded: bool = False,
    paired: bool = False,
) -> AnyView:
    """`distribute` with all arguments. `guarded`: the caller predicates the accesses, so `index` may exceed the thread
    layout. `paired`: nested threads divide a nested axis mode by mode, see `shares_of`."""
    return _distributed(view, threads, index, axis, swizzle, guarded, paired)[0]


def distributor_with_offset(
    view: AnyView, threads: Any, axis: Any = None, swizzle: Swizzling | None = None
) -> Callable[[Index], WithOffset[AnyView]]:
    """`distribute_with_offset` with its layout of threads given."""

    def distribute(index: Index) -> WithOffset[AnyView]:
        made, offset = _distributed(view, threads, index, axis, swizzle, guarded=False, paired=True)
        thread = number(view, index)
        coordinates = tuple(
            _nested([thread_coordinate(share.threads, threads, thread) for share in parts])
            for parts in shares_of(view, threads, axis, paired=True)
        )
        return made, coordinates, offset

    return distribute


def _nested(numbers: list[Index]) -> Any:
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def _distributed(
    view: AnyView, threads: Any, index: Any, axis: Any, swizzle: Swizzling | None, guarded: bool, paired: bool
) -> tuple[AnyView, Index]:
    """A thread's fragment, and the offset of its first number from the view's."""
    what = called(view.history, "distribute", (threads,) if axis is None else (threads, f"axis={axis}"), (index,))
    shares = shares_of(view, threads, axis, paired)
    thread = number(view, index)
    if not guarded:
        check_thread(view, threads, thread, what)
    axes: list[Axis] = []
    limits: list[Index | None] = []
    for each, parts in enumerate(shares):
        if not view.masked:
            for share in parts:
                check_groups(view, what, each, extent(share.modes), share.count)
        axes.append(_fragment_axis(view, threads, each, parts))
        limits.append(_fragment_limit(view, threads, each, parts, thread))
    if swizzle is None:
        offset = first_offset(view, shares, threads, thread)
    else:
        offset = _swizzled_offset(view, shares_of(by_elements(view), threads, axis, paired), threads, thread, swizzle)
    return rebuilt(view, axes, plus(view.offset, offset), limits, what), offset


def first_offset(view: ViewData, shares: Sequence[Sequence[Share]], threads: Layout, thread: Index) -> Index:
    """The offset of a thread's first element from the view's."""
    offset: Index = 0
    for axis, parts in enumerate(shares):
        for share in parts:
            own, _ = _fragment(view, threads, axis, share)
            coordinate = thread_coordinate(share.threads, threads, thread)
            offset = plus(offset, offset_along(own, widened(view, coordinate)))
    return offset


def _swizzled_offset(
    view: ViewData, shares: Sequence[Sequence[Share]], threads: Layout, thread: Index, swizzle: Swizzling
) -> Index:
    """A thread's first offset under a swizzle. The swizzle must keep the distances of the thread's other elements from it.

    `shares` have strides in elements."""
    inside = steps([_fragment_axis(view, threads, axis, parts) for axis, parts in enumerate(shares)])
    if not is_repeated(swizzle, starts(view, shares), inside):
        raise fail(errors.SWIZZLE, swizzle=swizzle, view=view.history, threads=threads)
    return times(swizzle(first_offset(view, shares, threads, thread)), view.element_size)


def _fragment_axis(view: ViewData, threads: Layout, axis: int, parts: Sequence[Share]) -> Axis:
    """The modes of one thread along an axis."""
    return tuple(mode for share in parts for mode in _fragment(view, threads, axis, share)[1])


def _fragment(view: ViewData, threads: Layout, axis: int, share: Share) -> tuple[Axis, Axis]:
    """Modes of an axis divided into the modes over threads and the modes inside one thread."""
    size, count = extent(share.modes), share.count
    found = cut(share.modes, count, rounded_up=view.masked and count > 1)
    if found is None or (isinstance(size, int) and size % count and not view.masked):
        raise fail(errors.THREADS, threads=threads, count=count, axis=axis, view=view.history, size=size)
    return found


def _fragment_limit(view: ViewData, threads: Layout, axis: int, parts: Sequence[Share], thread: Index) -> Index | None:
    """The number of a thread's valid elements along an axis: every `count`-th, starting at its coordinate."""
    before = limits_of(view)[axis]
    if len(parts) > 1:
        if before is not None:
            raise fail(errors.THREADS_MASKED, threads=threads, axis=axis, view=view.history)
        return None
    share = parts[0]
    if share.count == 1:
        return before
    limit = limit_along(view, axis, share.count)
    if limit is None:
        return None
    coordinate = thread_coordinate(share.threads, threads, thread)
    return divided(minus(plus(limit, share.count - 1), coordinate), share.count)
