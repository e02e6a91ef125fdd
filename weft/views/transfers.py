"""Filling and copying whole views.

On the host NumPy does it on strided arrays (`weft.views.host_arrays`); in a kernel it is one load and one store of a fragment.
"""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import views as errors
from weft.layout.nested.int_tuple import plus, times
from weft.views.data import ViewData
from weft.views.fragments import count, dims, evened, together
from weft.views.host import ArrayStorage
from weft.views.storage import AddressSpace

ASYNC_BYTES = (4, 8, 16)
"""Sizes of one cp.async in bytes (PTX: cp-size is 4, 8 or 16)."""


def fill(view: ViewData, value: Any) -> None:
    """Set every number to one value."""
    if isinstance(view.storage, ArrayStorage):
        from weft.views import host_arrays

        host_arrays.fill(view, value)
        return
    together([view], "fill")[0].store(value)


def arange(view: ViewData, start: Any, step: Any) -> None:
    """Set numbers to start, start + step, ... in logical order."""
    if isinstance(view.storage, ArrayStorage):
        from weft.views import host_arrays

        host_arrays.arange(view, start, step)
        return
    for single in together([view], "arange")[0].narrowed(1).apart():
        single.store(plus(start, times(single.order[0], step)))


def copy(view: ViewData, source: Any) -> None:
    """Copy all numbers of a source, in logical order."""
    check_source(view, source, "copy_from")
    if isinstance(view.storage, ArrayStorage) and isinstance(source.storage, ArrayStorage):
        from weft.views import host_arrays

        host_arrays.copy(view, source)
        return
    to, of = together([view, source], "copy_from")
    to.store(of.load())


def copy_async(view: ViewData, source: Any) -> None:
    """Issue an asynchronous copy from global to shared memory, with zeros for out-of-bounds elements of a masked view."""
    check_source(view, source, "copy_from_async")
    for each, wanted in ((view, AddressSpace.SHARED), (source, AddressSpace.GLOBAL)):
        if each.address_space is not wanted or isinstance(each.storage, ArrayStorage):
            raise fail(errors.ASYNC_HOST, view=each.history, space=repr(each.address_space))
    to, of = evened(together([view, source], "copy_from_async"))
    check_async_width(view, source, to.places.width)
    view.storage.copy_async(view.offset, to.places, source.storage, source.offset, of.places, of.mask)


def check_async_width(view: ViewData, source: ViewData, width: int) -> None:
    """Check that an access can be one cp.async. Raises ViewError: view-async-width, view-async-type."""
    if view.dtype != source.dtype:
        mine, others = view.dtype.name, source.dtype.name
        raise fail(errors.ASYNC_TYPE, other=source.history, others=others, view=view.history, dtype=mine)
    itemsize = view.dtype.itemsize
    if width * itemsize not in ASYNC_BYTES:
        raise fail(
            errors.ASYNC_WIDTH,
            width=width,
            dtype=view.dtype.name,
            other=source.history,
            view=view.history,
            nbytes=width * itemsize,
            want=max(ASYNC_BYTES[-1] // itemsize, 1),
        )


def check_source(view: ViewData, source: Any, what: str) -> None:
    """Check that a source is a view with the same number of numbers. Raises view-source, view-copy-count, view-unknown-size."""
    if not isinstance(source, ViewData):
        kind = type(source).__name__
        raise fail(errors.SOURCE, what=what, got=f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    mine, others = count(dims(view, what)), count(dims(source, what))
    if mine != others:
        raise fail(errors.COPY_COUNT, view=view.history, count=mine, other=source.history, others=others)
