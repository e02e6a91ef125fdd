"""Access to single elements and vectors of a view: index checks, offsets, loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from numbers import Integral
from typing import Any, TypeAlias, cast

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import divided, flatten, modulo, plus, times
from weft.layout.nested.layouts import Layout
from weft.views.data import ViewData
from weft.views.history import spelled
from weft.views.modes import ONE, SCALAR, Axis, Mode, axes_of, element_axes, extent, is_wide, merged
from weft.views.storage import ONE_PLACE, AddressSpace, Index, Places

VECTOR_BYTES = 16
"""The widest access of one thread, and so the largest alignment that an access requires."""


def get(view: ViewData, key: Any) -> Any:
    """The element at an index or a tuple of indices."""
    return view.storage.load(place(view, key), element_places(view.element_layout), None)


def put(view: ViewData, key: Any, value: Any) -> None:
    """Write an element."""
    view.storage.store(place(view, key), element_places(view.element_layout), value, None)


def place(view: ViewData, key: Any, reach: Sequence[int] = ()) -> Index:
    """The offset of the element at an index. Raises ViewIndexError.

    `reach` has for each mode the number of further elements that the access covers."""
    given = modes_at(view, key)
    check(view, given, reach)
    offset = view.offset
    for index, stride in zip(given, view.strides, strict=True):
        offset = plus(offset, times(widened(view, index), stride))
    return offset


def modes_at(view: ViewData, key: Any) -> list[Index]:
    """The index of each mode of the flattened layout, of which `key` has one per mode or one per axis: along a nested axis
    such an index counts with the first mode fastest. Raises ViewIndexError (view-index-count)."""
    parts = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    flat = flatten(parts)
    if len(flat) == len(view.sizes):
        return [number(view, index) for index in flat]
    found: list[Index] = []
    for modes, part in zip(axes_of(view), parts, strict=False):
        inside = flatten(part)
        one = len(inside) == 1 != len(modes)
        found += _digits(modes, number(view, inside[0])) if one else [number(view, index) for index in inside]
    if len(parts) != view.rank or len(found) != len(view.sizes):
        flat_rank = len(view.sizes)
        raise fail(
            errors.INDEX_COUNT,
            view=view.history,
            flat=f"{flat_rank} {'index' if flat_rank == 1 else 'indices'}",
            count=len(flat),
            layout=view.layout,
            rank=view.rank,
            flat_rank=flat_rank,
            example=f"{view.history}[{', '.join('ijklmnpq'[:flat_rank])}]",
        )
    return found


def _digits(modes: Axis, index: Index) -> list[Index]:
    """An index along an axis as one of each mode; the last takes the whole quotient, so that a check sees what is beyond."""
    found: list[Index] = []
    for mode in modes[:-1]:
        found.append(modulo(index, mode.size))
        index = divided(index, mode.size)
    return [*found, index]


def number(view: ViewData, index: Any) -> Index:
    """An index as an int or a run-time scalar. Raises ViewIndexError (view-index-kind) for anything else."""
    if type(index) is int:
        return index
    if isinstance(index, Integral):
        return int(index)
    if not isinstance(index, float) and hasattr(index, "__floordiv__"):
        # A zero-dimensional array is converted; a run-time scalar of a kernel stays symbolic.
        return int(index) if hasattr(index, "__array_interface__") and index.shape == () else index
    shown = spelled(index) if isinstance(index, slice) else repr(index)
    raise fail(errors.INDEX_KIND, index=shown, view=view.history, instead=_instead(index))


def _instead(index: Any) -> str:
    """The fix for a value that is not an index."""
    if isinstance(index, slice):
        return "index with whole numbers; for a part of a view write .tile[...](...), or .slice[0:4, :]()"
    if isinstance(index, float):
        return "index with whole numbers; // in place of / divides into one"
    if hasattr(index, "x") and hasattr(index, "y"):
        return f"take one of its axes, as in {index!r}.x"
    return "index with whole numbers"


def check(view: ViewData, indices: Sequence[Index], reach: Sequence[int] = ()) -> None:
    """Check that the index of every mode, plus its `reach`, is in bounds.

    Known indices are checked here (view-index), run-time ones by the storage.
    """
    late: list[Late] = []
    mode = 0
    for axis, modes in enumerate(axes_of(view)):
        coordinate: Index = 0
        count: Index = 1
        for each in modes:
            last = plus(indices[mode], reach[mode]) if reach else indices[mode]
            _check_one(view, f"axis {axis}" if len(modes) == 1 else f"mode {mode}", last, each.size, late)
            coordinate = plus(coordinate, times(last, count))
            count = times(count, each.size)
            mode += 1
        limit = None if view.limits is None else view.limits[axis]
        if limit is not None:
            _check_one(view, f"axis {axis}", coordinate, limit, late)
    _check_late(view, late)


def check_along(view: ViewData, axis: int, index: Index) -> None:
    """Check an index along an axis of one mode, as `check` does."""
    late: list[Late] = []
    for size in (axes_of(view)[axis][0].size, None if view.limits is None else view.limits[axis]):
        if size is not None:
            _check_one(view, f"axis {axis}", index, size, late)
    _check_late(view, late)


# A check deferred to run time: index, size, and a description of the index.
Late: TypeAlias = "tuple[Index, Index, str]"


def _check_late(view: ViewData, late: Sequence[Late]) -> None:
    if late:
        indices, sizes, where = zip(*late, strict=True)
        view.storage.check(indices, sizes, view.history, where)


def _check_one(view: ViewData, axis: str, index: Index, size: Index, late: list[Late]) -> None:
    if not isinstance(index, int):
        late.append((index, size, f"along {axis} of"))
    elif index < 0 or (isinstance(size, int) and index >= size):
        raise fail(errors.INDEX, index=index, axis=axis, view=view.history, size=size)
    elif not isinstance(size, int):
        late.append((index, size, f"along {axis} of"))


def widened(view: ViewData, index: Index) -> Index:
    """The index, as int64 if offsets in the view may exceed 32 bits."""
    return view.storage.wide(index) if not isinstance(index, int) and is_wide(view.layout, view.sizes) else index


def dim(view: ViewData, axis: int) -> Index:
    """Valid elements along an axis, which in a masked view may be fewer than its extent."""
    require_axis(view, axis)
    size = extent(axes_of(view)[axis])
    limit = None if view.limits is None else view.limits[axis]
    if limit is None:
        return size
    if isinstance(limit, int) and isinstance(size, int):
        return min(max(limit, 0), size)
    return view.storage.clamp(limit, 0, size)


def require_axis(view: ViewData, axis: Any) -> int:
    """The axis. Raises ViewError (view-axis) for an axis out of range."""
    if not isinstance(axis, int) or not 0 <= axis < view.rank:
        raise fail(errors.AXIS, view=view.history, axis=axis, rank=view.rank, last=view.rank - 1)
    return axis


# Vectors


@lru_cache(maxsize=1024)
def element_places(element: Layout) -> Places:
    """The accesses of one element, in logical order (last axis fastest) and as wide as possible."""
    if element == SCALAR:
        return ONE_PLACE
    starts = [0]
    axes: list[Axis] = [merged(_static(element, axis)) for axis in range(element.rank())]
    modes = [mode for axis in axes for mode in reversed(axis)]
    width = 1
    while modes and modes[-1].stride == width:
        width *= modes.pop().size
    for mode in modes:
        starts = [start + step * mode.stride for start in starts for step in range(mode.size)]
    return Places(tuple(starts), width)


def _static(element: Layout, axis: int) -> Axis:
    part = element[axis]
    return tuple(Mode(size, stride) for size, stride in zip(part.flat_shape, part.flat_stride, strict=True))


def loader(view: ViewData, *widths: Any, width: Any = None, load_alignment: Any = None) -> Callable[..., Any]:
    """`load` with its width given. Raises ViewError (view-load-width) for anything but one width."""
    given = widths if width is None else (*widths, width)
    count = given[0] if len(given) == 1 else given
    what = f"{view.history}.load[{', '.join(map(str, given))}]"
    _require_width(count, what)

    def load(*indices: Any) -> Any:
        base, places = _vector(view, indices, count, what, load_alignment)
        return view.storage.load(base, places, None)

    return load


def storer(view: ViewData, width: Any = None, store_alignment: Any = None) -> Callable[..., None]:
    """`store`; without a width, that of the value."""
    what = f"{view.history}.store"
    if width is not None:
        _require_width(width, what)

    def store(*arguments: Any) -> None:
        *indices, value = arguments
        count = view.storage.width(value) if width is None else width
        _require_width(count, what)
        base, places = _vector(view, indices, count, what, store_alignment)
        view.storage.store(base, places, value, None)

    return store


def load_scalar(view: ViewData, *indices: Any) -> Any:
    """The number of an element, or the first one of a vector."""
    return view.storage.load(place(view, indices), ONE_PLACE, None)


def pointer_at(view: ViewData, indices: Sequence[Any]) -> Any:
    """The pointer to the element at an index."""
    return view.storage.pointer_to(place(view, tuple(indices)))


def _require_width(width: Any, what: str) -> None:
    if not isinstance(width, int) or width < 1:
        raise fail(errors.LOAD_WIDTH, what=what, width=repr(width))


def _vector(view: ViewData, indices: Sequence[Any], width: Any, what: str, alignment: Any) -> tuple[Index, Places]:
    """The accesses of `width` consecutive numbers starting at an index: one, or several as wide as their `alignment` allows.

    `alignment` is in bytes; None is the whole width."""
    if len(indices) == 1 and isinstance(indices[0], tuple):
        indices = cast("tuple[Any, ...]", indices[0])
    if view.element_layout != SCALAR:
        raise fail(errors.LOAD_VECTORS, what=what, view=view.history, width=view.element_size)
    if width == 1:
        return place(view, tuple(indices)), ONE_PLACE
    static = view.layout.flat_stride
    along = next((mode for mode, stride in reversed([*enumerate(static)]) if type(stride) is int and stride == 1), None)
    if along is None:
        raise fail(errors.LOAD_CONTIGUOUS, what=what, width=width, view=view.history, layout=view.layout)
    base = place(view, tuple(indices), [width - 1 if mode == along else 0 for mode in range(len(static))])
    each = width if alignment is None else gcd(width, _numbers_in(view, alignment, what))
    if view.address_space is not AddressSpace.GENERIC:
        aligned(view, each, base, [stride for mode, stride in enumerate(static) if mode != along])
    return base, Places(tuple(range(0, width, each)), each)


def _numbers_in(view: ViewData, alignment: Any, what: str) -> int:
    """The numbers in an alignment in bytes. Raises ViewError (view-alignment)."""
    itemsize = view.dtype.itemsize
    if not isinstance(alignment, int) or alignment < itemsize or alignment & (alignment - 1):
        raise fail(errors.ALIGNMENT, what=what, alignment=repr(alignment), itemsize=itemsize, dtype=view.dtype.name)
    return alignment // itemsize


def aligned(view: ViewData, width: int, base: Index, strides: Sequence[Any]) -> None:
    """Check the alignment of vector accesses, as far as offsets and strides are known. Raises view-vector-aligned.

    A misaligned vector access faults on the GPU. Thread-private memory is in registers and needs no alignment.
    """
    if view.address_space is AddressSpace.LOCAL:
        return
    alignment = min(width & -width, max(VECTOR_BYTES // view.dtype.itemsize, 1))
    for offset in (base, *strides):
        if isinstance(offset, int) and offset % alignment:
            raise fail(errors.ALIGNED, width=width, view=view.history, offset=offset, alignment=alignment)


def vector_width(view: ViewData) -> int:
    """The number of consecutive numbers of an element: the access width for copies of whole views."""
    run = 1
    for mode in sorted((mode for axis in element_axes(view) for mode in merged(axis)), key=lambda mode: mode.stride):
        if mode != ONE[0] and mode.stride == run:
            run *= mode.size
    return run
