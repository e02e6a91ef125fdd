"""Thread layouts: a thread's coordinates along the axes of a view that is divided among threads."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import divided, plus, times
from weft.layout.nested.layouts import Layout
from weft.views.access import require_axis
from weft.views.data import ViewData
from weft.views.modes import Axis, Mode, merged
from weft.views.storage import Index


def thread_axes(view: ViewData, threads: Any, axis: Any) -> list[Axis]:
    """The modes of a thread layout per axis of the view; a mode of size 1 for an axis that is not divided."""
    check_layout_of_threads(threads)
    modes = [_modes(threads[each]) for each in range(threads.rank())]
    if axis is None:
        if len(modes) != view.rank:
            raise fail(errors.THREADS_RANK, threads=threads, count=len(modes), view=view.history, rank=view.rank)
        return modes
    if not isinstance(axis, int) or not 0 <= axis < len(modes):
        raise fail(errors.AXIS, view=f"thread layout {threads}", axis=axis, rank=len(modes), last=len(modes) - 1)
    if view.rank == 1:
        return [modes[axis]]
    require_axis(view, axis)
    return [modes[axis] if each == axis else (Mode(1, 0),) for each in range(view.rank)]


def check_layout_of_threads(threads: Any) -> None:
    """Raises ViewError (view-threads-unknown) unless the argument is a static layout with at least one thread."""
    if not isinstance(threads, Layout) or not threads.all_dims_known or threads.size() == 0:
        raise fail(errors.THREADS_UNKNOWN, threads=repr(threads))


def _modes(layout: Layout) -> Axis:
    return merged(tuple(Mode(size, stride) for size, stride in zip(layout.flat_shape, layout.flat_stride, strict=True)))


def check_thread(view: ViewData, threads: Layout, thread: Index, what: str) -> None:
    """Check that a thread number is within a thread layout, at run time if it is not known. Raises view-thread-index."""
    if not isinstance(thread, int):
        view.storage.check((thread,), (threads.cosize(),), what, ("as the thread of",))
    elif not 0 <= thread < threads.cosize():
        raise fail(errors.THREAD_INDEX, index=thread, threads=threads, count=threads.cosize())


def thread_coordinate(modes: Axis, threads: Layout, thread: Index) -> Index:
    """The coordinate of a thread along one axis of a thread layout.

    Its part in each mode is `thread // stride % size`; the outermost mode needs no modulo.
    """
    coordinate: Index = 0
    before = 1
    for size, stride in ((mode.size, mode.stride) for mode in modes):
        part = divided(thread, stride) if stride else 0
        if size * stride < threads.cosize():
            part = part % size
        coordinate = plus(coordinate, times(part, before))
        before *= size
    return coordinate
