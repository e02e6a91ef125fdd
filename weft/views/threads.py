"""Thread layouts: a thread's coordinates along the axes of a view that is divided among threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import divided, plus, times
from weft.layout.nested.layouts import Layout
from weft.views.access import require_axis
from weft.views.data import ViewData
from weft.views.modes import Axis, Mode, axes_of, extent, merged
from weft.views.storage import Index


@dataclass(frozen=True, slots=True)
class Share:
    """Modes of a view and the modes of a thread layout that divide them, counted by one coordinate."""

    modes: Axis
    threads: Axis

    @property
    def count(self) -> Index:
        """The number of threads."""
        return extent(self.threads)


def shares_of(view: ViewData, threads: Any, axis: Any, paired: bool = False) -> list[list[Share]]:
    """What threads divide, per axis of the view: its modes together; or if `paired` each mode by its own mode of the threads,
    along axes that have as many of them."""
    found: list[list[Share]] = []
    for modes, layout in zip(axes_of(view), _thread_axes(view, threads, axis), strict=True):
        own = _modes(layout)
        if paired and len(modes) == len(own) > 1:
            found.append([Share((mode,), (each,)) for mode, each in zip(modes, own, strict=True)])
        else:
            found.append([Share(modes, merged(own))])
    return found


def _thread_axes(view: ViewData, threads: Any, axis: Any) -> list[Layout]:
    """The thread layout along each axis of the view; one thread along an axis that is not divided."""
    check_layout_of_threads(threads)
    rank = threads.rank()
    if axis is None:
        if rank != view.rank:
            raise fail(errors.THREADS_RANK, threads=threads, count=rank, view=view.history, rank=view.rank)
        return list(threads)
    if not isinstance(axis, int) or not 0 <= axis < rank:
        raise fail(errors.AXIS, view=f"thread layout {threads}", axis=axis, rank=rank, last=rank - 1)
    if view.rank == 1:
        return [threads[axis]]
    require_axis(view, axis)
    return [threads[axis] if each == axis else Layout(1, 0) for each in range(view.rank)]


def check_layout_of_threads(threads: Any) -> None:
    """Raises ViewError (view-threads-unknown) unless the argument is a static layout with at least one thread."""
    if not isinstance(threads, Layout) or not threads.all_dims_known or threads.size() == 0:
        raise fail(errors.THREADS_UNKNOWN, threads=repr(threads))


def _modes(layout: Layout) -> Axis:
    return tuple(Mode(size, stride) for size, stride in zip(layout.flat_shape, layout.flat_stride, strict=True))


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
