"""Operations on whole host views by NumPy: strided arrays over the modes of a layout, without Python loops over elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from weft.views.data import ViewData
from weft.views.fragments import Dim, dims, numbers_along
from weft.views.host import ArrayStorage, open_array
from weft.views.modes import axes_of, element_axes, extent
from weft.views.storage import Storage

Array = np.ndarray[Any, Any]


class Element(np.ndarray[Any, Any]):
    """The value of one element: a vector, or a number that also accepts the index `[0]`."""

    def __getitem__(self, key: Any) -> Any:
        if self.ndim == 0 and key in (0, -1):
            return self[()]
        return super().__getitem__(key)

    def __len__(self) -> int:
        return self.size


class Loop(NamedTuple):
    """One loop over the numbers of several views, with a stride per view."""

    size: int
    strides: tuple[int, ...]
    weight: int


def element(memory: Array, indices: Array, mask: Sequence[Any] | None, accesses: int) -> Any:
    """A copy of elements of memory; masked-off elements are zero."""
    if mask is not None:
        inside = np.repeat(np.asarray(mask, bool), len(indices) // accesses)
        values = np.zeros(len(indices), memory.dtype)
        values[inside] = memory[indices[inside]]
    else:
        values = memory[indices]
    return values.view(Element) if len(indices) != 1 else values.reshape(()).view(Element)


def fill(view: ViewData, value: Any) -> None:
    """Set every valid number."""
    arrays = strided([view], "fill", writing=True)
    if arrays is not None:
        arrays[0][...] = value
    else:
        (offsets,) = gathered([view])
        memory, first = storage_of(view).elements(writing=True)
        memory[offsets + first] = value


def arange(view: ViewData, start: Any, step: Any) -> None:
    """Set every valid number to start + step * its index in logical order."""
    loops = common([view], "arange")
    number = np.int64 if isinstance(start, int) and isinstance(step, int) else np.float64
    if loops is None:
        (offsets,) = gathered([view])
        memory, first = storage_of(view).elements(writing=True)
        memory[offsets + first] = start + step * inside([view])
        return
    target = storage_of(view).strided(
        view.offset, [loop.size for loop in loops], [loop.strides[0] for loop in loops], writing=True
    )
    total: Any = np.asarray(start, number)
    for loop in loops[:-1]:
        total = np.add.outer(total, np.arange(loop.size, dtype=number) * (loop.weight * step))
    if not loops:
        target[...] = total
        return
    last = np.arange(loops[-1].size, dtype=number) * (loops[-1].weight * step)
    np.add(total[..., None], last, out=target, casting="unsafe")


def copy(view: ViewData, source: ViewData) -> None:
    """Copy the numbers that are valid in both views, in logical order."""
    arrays = strided([view, source], "copy_from", writing=True)
    if arrays is not None:
        np.copyto(arrays[0], arrays[1], casting="unsafe")
        return
    to, of = gathered([view, source])
    memory, first = storage_of(view).elements(writing=True)
    others, other_first = storage_of(source).elements()
    memory[to + first] = others[of + other_first].astype(memory.dtype)


def numbers(view: ViewData, dtype: Any = None, copied: bool | None = None) -> Array:
    """The valid numbers in their logical shape: a NumPy view of the memory if each axis has one stride, else a copy.

    Raises ValueError if `copied` is False and a copy is needed.
    """
    shape = [_end(view, axis) for axis in range(view.rank)]
    clipped = _clipped([view], "a NumPy array")
    if clipped is None:
        (offsets,) = gathered([view])
        memory, first = storage_of(view).elements()
        found: Array = memory[offsets + first].reshape(shape)
        shares = False
    else:
        loops = clipped[0]
        flat = storage_of(view).strided(view.offset, [loop.size for loop in loops], [loop.stride for loop in loops])
        found = flat.reshape(shape)
        shares = np.may_share_memory(found, flat)
    if copied is False and not shares:
        raise ValueError(f"{view.history} of layout {view.layout} has no NumPy array without a copy")
    return _converted(found, found.dtype if dtype is None else np.dtype(dtype), bool(copied))


def _converted(array: Any, dtype: np.dtype[Any], copied: bool) -> Array:
    return array.astype(dtype, copy=copied)


def elements(view: ViewData) -> Array:
    """The valid numbers by elements, with vectors as the last axis of the array."""
    found = numbers(view)
    widths = [extent(element) for element in element_axes(view)]
    if all(width == 1 for width in widths):
        return found
    pairs = [(size // width, width) for size, width in zip(found.shape, widths, strict=True)]
    split: Any = found.reshape(tuple(size for pair in pairs for size in pair))
    order = [*range(0, 2 * len(pairs), 2), *range(1, 2 * len(pairs), 2)]
    shape = (*(count for count, _ in pairs), -1)
    return split.transpose(order).reshape(shape)


def storage_of(view: ViewData) -> ArrayStorage:
    """The memory of a host view."""
    storage = view.storage
    assert isinstance(storage, ArrayStorage)
    return storage


# Strided arrays


def strided(views: Sequence[ViewData], what: str, writing: bool = False) -> list[Array] | None:
    """Arrays of one shape over the numbers that are valid in all views; None if their modes have no common loop nest.

    With `writing` the first one is writable.
    """
    loops = common(views, what)
    if loops is None:
        return None
    shape = [loop.size for loop in loops]
    return [
        storage_of(view).strided(view.offset, shape, [loop.strides[i] for loop in loops], writing and i == 0)
        for i, view in enumerate(views)
    ]


def common(views: Sequence[ViewData], what: str) -> list[Loop] | None:
    """The common loop nest over the numbers valid in all views, slowest first and merged; None if there is none."""
    clipped = _clipped(views, what)
    return None if clipped is None else _merged(_refined(clipped))


def _clipped(views: Sequence[ViewData], what: str) -> list[list[Dim]] | None:
    """The loop nest of each view, restricted to numbers valid in all views; None if that is not a loop nest."""
    loops = [dims(view, what) for view in views]
    if all(view.limits is None for view in views):
        return loops
    ends = _ends(views)
    if ends is None:
        return None
    for end, weight, size in ends:
        for each in loops:
            outer = max(
                (loop for loop in each if weight <= loop.weight < weight * size),
                key=lambda loop: loop.weight,
                default=None,
            )
            if outer is None:
                # An axis of one element: either it is valid, or no number of the views is.
                if end == 0:
                    each.append(Dim(0, 0, weight))
                continue
            inner = outer.weight // weight
            if end % inner:
                return None
            each[each.index(outer)] = outer._replace(size=end // inner)
    return loops


def _ends(views: Sequence[ViewData]) -> list[tuple[int, int, int]] | None:
    """For each axis the count of numbers valid in all views, its weight and its size; None for views of different shapes."""
    shapes = {tuple(numbers_along(view)) for view in views}
    if len(shapes) > 1:
        return None
    weight = 1
    found: list[tuple[int, int, int]] = []
    shape = shapes.pop()
    for axis in reversed(range(len(shape))):
        found.append((min(_end(view, axis) for view in views), weight, shape[axis]))
        weight *= shape[axis]
    return found


def _end(view: ViewData, axis: int) -> int:
    """The number of valid numbers along an axis."""
    size, width = extent(axes_of(view)[axis]), extent(element_axes(view)[axis])
    limit = None if view.limits is None else view.limits[axis]
    return width * (size if limit is None else max(min(limit, size), 0))


def _refined(lists: list[list[Dim]]) -> list[Loop] | None:
    """The common refinement of loop nests: a loop is split where a loop of another nest ends. Built from the fastest loop."""
    rest = [list(loops) for loops in lists]
    found: list[Loop] = []
    if any(loop.size == 0 for loops in lists for loop in loops):
        return [Loop(0, (0,) * len(lists), 1)]
    while any(rest):
        if not all(rest):
            return None
        last = [loops.pop() for loops in rest]
        size = min(loop.size for loop in last)
        if any(loop.size % size for loop in last):
            return None
        found.append(Loop(size, tuple(loop.stride for loop in last), last[0].weight))
        for loops, loop in zip(rest, last, strict=True):
            if loop.size > size:
                loops.append(Dim(loop.size // size, loop.stride * size, loop.weight * size))
    return found[::-1]


def _merged(loops: list[Loop] | None) -> list[Loop] | None:
    """The loops, with adjacent ones merged if the slower continues where the faster ends, in all views."""
    if loops is None:
        return None
    out: list[Loop] = []
    for loop in loops:
        before = out[-1] if out else None
        joined = before is not None and before.weight == loop.weight * loop.size
        if (
            before is not None
            and joined
            and all(slow == fast * loop.size for slow, fast in zip(before.strides, loop.strides, strict=True))
        ):
            out[-1] = Loop(before.size * loop.size, loop.strides, loop.weight)
        else:
            out.append(loop)
    return out


# Tables of offsets, for views without a common loop nest


def gathered(views: Sequence[ViewData]) -> list[Array]:
    """For each view the offsets of the numbers valid in all views, in logical order."""
    keep = inside(views)
    return [_offsets(view)[keep] for view in views]


def inside(views: Sequence[ViewData]) -> Array:
    """The logical indices of the numbers valid in all views."""
    keep = np.ones(int(np.prod(numbers_along(views[0]))), bool)
    for view in views:
        within: Any = np.ones((), bool)
        for axis, size in enumerate(numbers_along(view)):
            below = cast("Array", np.arange(size) < _end(view, axis))
            within = np.logical_and.outer(within, below)
        keep &= within.reshape(-1)
    return np.flatnonzero(keep)


def _offsets(view: ViewData) -> Array:
    """The offset of every number in logical order."""
    total: Any = np.asarray(view.offset, np.int64)
    for modes, element_modes in zip(axes_of(view), element_axes(view), strict=True):
        along: Any = np.zeros((), np.int64)
        for mode in (*reversed(modes), *reversed(element_modes)):
            steps = cast("Array", np.arange(mode.size) * mode.stride)
            along = np.add.outer(along, steps).reshape(-1)
        total = np.add.outer(total, along.reshape(-1))
    return total.reshape(-1)


def sent(storage: ArrayStorage) -> tuple[Any, ...]:
    """The result of `__reduce__` of a storage: all memory that its array covers, so that views keep their strides.

    In another process, and in a deep copy, the storage is a NumPy array, whatever the array's library. Raises ViewError:
    view-device-memory, view-memory-gone."""
    memory, first = storage.elements()
    array, itemsize = storage.array, memory.itemsize
    if isinstance(array, np.ndarray):
        shape, strides = cast("Array", array).shape, cast("Array", array).strides
    elif callable(getattr(array, "stride", None)):
        shape, strides = tuple(array.shape), tuple(itemsize * stride for stride in array.stride())
    else:
        shape, strides = (len(memory) - first,), (itemsize,)
    return received, (np.array(memory), first * itemsize, shape, strides, memory.flags.writeable)


def received(memory: Array, start: int, shape: Sequence[int], strides: Sequence[int], writeable: bool) -> Storage:
    """The inverse of `sent`."""
    array = np.ndarray(tuple(shape), memory.dtype, memory.view(np.uint8).data, start, tuple(strides))
    array.flags.writeable = writeable
    opened = open_array(array)
    assert opened is not None
    return opened.storage
