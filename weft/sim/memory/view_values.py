"""The values of views at a breakpoint, read from memory without being accesses of the kernel.

A view is its memory and numbers of run time: the offset of its first element, size and stride of every mode, and the limit of
every axis (-1 for none). If the memory or a number differs between threads, the values have a leading axis of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.ir.types import DType
from weft.sim.machine.data import Array, Data, arange
from weft.sim.machine.tasks import Task
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.numbers.arithmetic import bits_of, numpy_dtype

Table = tuple[int, ...]


def values_of(task: Task, memory: Any, element: DType, numbers: Sequence[Data], axes: Sequence[Table]) -> Array:
    """The elements of a view; of a masked array those are hidden that do not exist or have no value.

    `axes` has for each axis its number of modes, and then size and stride of each mode of an element."""
    given = [np.asarray(each.array).reshape(-1).astype(np.int64) for each in numbers]
    offset, *rest = given
    places, hidden = _elements(rest, axes)
    private = hasattr(memory, "values")
    alike = not private and all(array.size == 1 or (array == array[0]).all() for array in (offset, *_pointers(memory)))
    chosen = slice(0, 1) if alike else slice(None)
    count = 1 if alike else task.threads
    shape = (count, *places.shape)
    at = np.broadcast_to(offset, (count,) if offset.size == 1 else offset.shape)[chosen].reshape(-1, *[1] * places.ndim)
    at = np.broadcast_to(at + places, shape)
    if private:
        found, without = _local(memory, at)
    elif isinstance(memory, Handle):
        found, without = _shared(task, memory, element, at)
    else:
        pointers = np.asarray(memory.array).reshape(-1)
        first = np.broadcast_to(pointers, (count,) if pointers.size == 1 else pointers.shape)[chosen]
        found, without = _global(task, first.reshape(-1, *[1] * places.ndim), element, at)
    missing: Array = without | hidden
    found, missing = (found[0], missing[0]) if alike else (found, missing)
    return np.ma.masked_array(found, mask=missing) if missing.any() else found


def _pointers(memory: Any) -> list[Array]:
    return [np.asarray(memory.array).reshape(-1)] if isinstance(memory, Data) else []


def _elements(numbers: Sequence[Array], axes: Sequence[Table]) -> tuple[Array, Array]:
    """Offsets of all elements from the first, and a mask of those beyond a limit; numbers are those of the first thread."""
    rest = iter([int(array[0]) for array in numbers])
    places: Array = np.zeros((), np.int64)
    hidden: Array = np.zeros((), bool)
    along: list[tuple[Array, int]] = []
    for modes, *element in axes:
        offsets: Array = np.zeros(1, np.int64)
        sizes = [*zip(element[::2], element[1::2], strict=True), *((next(rest), next(rest)) for _ in range(modes))]
        for size, stride in sizes:
            offsets = (arange(size)[:, None] * stride + offsets).reshape(-1)
        along.append((offsets, prod(element[::2])))
    for offsets, width in along:
        limit = next(rest)
        beyond: Array = arange(offsets.size) >= (offsets.size if limit < 0 else limit * width)
        places = places[..., None] + offsets
        hidden = hidden[..., None] | beyond
    return places, hidden


def _local(memory: Any, at: Array) -> tuple[Array, Array]:
    threads: Array = arange(at.shape[0]).reshape(-1, *[1] * (at.ndim - 1))
    beyond = (at < 0) | (at >= memory.values.shape[1])
    at = np.where(beyond, 0, at)
    undefined = np.zeros(at.shape, bool) if memory.undefined is None else memory.undefined[threads, at]
    return memory.values[threads, at], undefined | beyond


def _shared(task: Task, handle: Handle, element: DType, at: Array) -> tuple[Array, Array]:
    store, dtype = task.block.store(SHARED), np.dtype(np.uint8) if element.is_bool() else numpy_dtype(element)
    words, size = store.words(dtype), dtype.itemsize
    beyond = (at < 0) | ((at + 1) * size > handle.memory.size)
    at = np.where(beyond, 0, at) + handle.base // size
    missing = store.never_written(handle.memory, 0, at, size) | beyond
    mark = store.undefined(0, at, size)
    found = words[at]
    return found != 0 if element.is_bool() else found, missing if mark is None else missing | mark.mask


def _global(task: Task, first: Array, element: DType, at: Array) -> tuple[Array, Array]:
    size, dtype = element.itemsize, numpy_dtype(element)
    addresses = first.astype(np.int64) + at * size
    segment = task.machine.heap.segment_at(int(addresses.flat[0])) if addresses.size else None
    if segment is None:
        return np.zeros(at.shape, dtype), np.ones(at.shape, bool)
    beyond = (addresses < segment.low) | (addresses + size > segment.high)
    origin, words = segment.view(size)
    index = np.where(beyond, 0, (addresses - origin) // size)
    found = words[index]
    return found != 0 if element.is_bool() else found.view(bits_of(np.zeros(1, dtype)).dtype).view(dtype), beyond
