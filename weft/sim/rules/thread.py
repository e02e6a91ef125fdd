"""Code written per thread: thread-private arrays, fragments of tiles, checked indices, and shared memory by element.

A local array is a (threads, count) array that is updated in place, for active threads only.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op, Value
from weft.ir.types import LocalType, TileType
from weft.ops import thread
from weft.sim.machine.data import Array, Data, Mark, arange, marked, undefined_in
from weft.sim.machine.hardware import elements_of, linear_of, to_threads, to_tile
from weft.sim.machine.tasks import NEVER_STORED, Task
from weft.sim.memory import each_thread
from weft.sim.memory.each_thread import Accesses
from weft.sim.memory.global_access import COMBINE, MASKED_ATOMIC
from weft.sim.memory.heap import turns
from weft.sim.memory.spaces import Handle
from weft.sim.numbers.arithmetic import bits_of, numpy_dtype
from weft.sim.rule import rule
from weft.sim.rules.regs import per_thread

IN_MEMORY = (
    "the array is indexed at run time, so a GPU keeps it in local memory rather than in registers; "
    "index it with numbers known at compile time (static_range), or put it in shared memory"
)


class Local:
    """A thread-private array, for all threads: its values, and a mask of the elements without one (None: all have one)."""

    __slots__ = ("cause", "loc", "name", "undefined", "values")

    def __init__(self, name: str, threads: int, type: LocalType) -> None:
        self.name = name
        self.values: Array = np.zeros((threads, type.count), numpy_dtype(type.element))
        self.undefined: Array | None = np.ones((threads, type.count), bool)
        self.cause, self.loc = NEVER_STORED, None

    def mark(self, at: object) -> Mark | None:
        """A mark on the elements without a value among those at an index of the arrays."""
        return None if self.undefined is None else marked(self.undefined[at], self.cause, self.loc)

    def settle(self, at: object, undefined: Array | bool, mark: Mark | None) -> None:
        """Mark the elements at an index as defined, except those in `undefined`; `mark` gives the cause of these."""
        if self.undefined is None:
            if mark is None:
                return
            self.undefined = np.zeros(self.values.shape, bool)
        self.undefined[at] = undefined
        if mark is not None:
            self.cause, self.loc = mark.cause, mark.loc
        elif not self.undefined.any():
            self.undefined = None


@lru_cache(maxsize=4096)
def _columns(op: Op) -> Array:
    """The constant offsets of an operation's accesses."""
    return np.array(op.attrs["offsets"], np.intp)


def _local_type(op: Op) -> LocalType:
    type = op.result.type
    assert isinstance(type, LocalType)
    return type


@rule(thread.alloc_local)
def _alloc_local(task: Task, op: Op) -> Local:
    return Local(op.result.name or "array", task.threads, _local_type(op))


@rule(thread.load_local)
def _load_local(task: Task, op: Op, local: Local, index: Data | None) -> Data:
    columns = _columns(op)
    if index is None:
        values, undefined = local.values[:, columns], local.undefined
        return Data(values, None if undefined is None else local.mark((slice(None), columns)))
    at = arange(task.threads)[:, None], _places(task, op, local, index, columns, "reads", None)
    return Data(local.values[at], local.mark(at))


@rule(thread.store_local)
def _store_local(task: Task, op: Op, local: Local, index: Data | None, value: Data, mask: Data | None) -> None:
    task.demand(op, mask, "a mask")
    columns = _columns(op)
    active = task.under(None if mask is None else mask.array)
    if index is None and active is None:
        places = slice(None), columns
        local.values[places] = value.array
        local.settle(places, False if value.undefined is None else value.undefined.mask, value.undefined)
        return
    shape = (task.threads, columns.size)
    places = columns if index is None else _places(task, op, local, index, columns, "writes", mask)
    places = np.broadcast_to(places, shape)
    here = np.broadcast_to(True if active is None else active, shape)
    at = np.broadcast_to(arange(task.threads)[:, None], shape)[here], places[here]
    local.values[at] = np.broadcast_to(value.array, shape)[here]
    mark = value.undefined
    local.settle(at, False if mark is None else np.broadcast_to(mark.mask, shape)[here], mark)


def _places(task: Task, op: Op, local: Local, index: Data, columns: Array, access: str, mask: Data | None) -> Array:
    """The element numbers of a run-time index, (threads, n); inactive ones are arbitrary elements of the array."""
    own = None if mask is None else mask.array
    task.demand(op, index, "an index", own)
    task.machine.report.advise("local-index", f"{local.name}: {IN_MEMORY}", op.loc)
    places = index.array.astype(np.intp) + columns
    last = local.values.shape[1] - 1
    outside = (places < 0) | (places > last)
    if not outside.any():
        return places
    active = task.under(own)
    bad = outside if active is None else outside & active
    if bad.any():
        full = np.broadcast_to(bad, (task.threads, columns.size))
        flat = int(np.argmax(full))
        raise task.fail(
            hazard.LOCAL_INDEX, op, thread=task.names.thread(flat // columns.size), access=access, name=local.name,
            index=int(np.broadcast_to(places, full.shape).ravel()[flat]), last=last,
        )  # fmt: skip
    return np.clip(places, 0, last)


# Shared memory


@rule(thread.load_shared)
def _load_shared(task: Task, op: Op, handle: Handle, index: Data, mask: Data | None) -> Data:
    return each_thread.load(Accesses(task, op, handle, index, mask, "reads"))


@rule(thread.store_shared)
def _store_shared(task: Task, op: Op, handle: Handle, index: Data, value: Data, mask: Data | None) -> None:
    each_thread.store(Accesses(task, op, handle, index, mask, "writes"), value)


@rule(thread.atomic_shared)
def _atomic_shared(task: Task, op: Op, handle: Handle, index: Data, value: Data, mask: Data | None) -> Data:
    accesses = Accesses(task, op, handle, index, mask, "updates")
    accesses.demand(value, "an atomic")
    accesses.note(writes=True, atomic=True)
    undefined = accesses.marks(each_thread.MASKED_LOAD)
    words, combine = accesses.words, COMBINE[op.attrs["kind"]]
    new = np.broadcast_to(value.array, accesses.elements.shape)
    active = accesses.active
    at, new = (np.ravel(a if active is None else a[active]) for a in (accesses.elements, new))
    old = np.zeros(at.size, words.dtype)
    for turn in turns(at):
        old[turn] = before = words[at[turn]]
        words[at[turn]] = combine(before, new[turn])
    accesses.wrote()
    if active is None:
        return Data(old.reshape(accesses.elements.shape), undefined)
    out = np.zeros(active.shape, old.dtype)
    out[active] = old
    return Data(out, undefined if mask is None else each_thread.off(active, undefined, MASKED_ATOMIC, op.loc))


@rule(thread.shared_of)
def _shared_of(task: Task, op: Op, handle: Handle) -> Handle:
    return Handle(handle.memory, handle.base)


# Fragments of tiles


def _tile(value: Value | None) -> TileType:
    assert value is not None and isinstance(value.type, TileType)
    return value.type


@rule(thread.fragment)
def _fragment(task: Task, op: Op, x: Data) -> Data:
    return to_threads(x, linear_of(_tile(op.operands[0])), task.rank)


@rule(thread.assemble)
def _assemble(task: Task, op: Op, x: Data) -> Data:
    type = _tile(op.result)
    layout = linear_of(type)
    held = per_thread(task, x, type.registers)
    tile = to_tile(held, layout, type.shape, task.rank)
    common = to_threads(tile, layout, task.rank)
    differs = (bits_of(held.array) != bits_of(common.array)) & np.logical_not(_nan(held.array, common.array))
    undefined = undefined_in((held, common))
    if undefined is not None:
        differs = differs & ~undefined.mask
    if differs.any():
        raise _disagreement(task, op, type, held.array, common.array, differs)
    return tile


def _nan(first: Array, second: Array) -> Array | bool:
    """True where both are NaN: payloads are unspecified, so NaNs count as equal."""
    return False if first.dtype.kind in "iub" else (first != first) & (second != second)


def _disagreement(task: Task, op: Op, type: TileType, held: Array, common: Array, differs: Array) -> Exception:
    elements = elements_of(linear_of(type), task.rank)
    number, register = (int(i) for i in np.unravel_index(int(np.argmax(differs)), differs.shape))
    flat = int(elements[number, register])
    first = int(np.argmax((elements == flat).any(axis=1)))
    index = tuple(int(i) for i in np.unravel_index(flat, type.shape))
    return task.fail(
        hazard.ASSEMBLED, op, thread=task.names.thread(first), other=task.names.thread(number), index=index,
        value=common[number, register], other_value=held[number, register],
    )  # fmt: skip


# Indices into views


@rule(thread.bounds)
def _bounds(task: Task, op: Op, *values: Data) -> None:
    sizes: tuple[int, ...] = op.attrs["sizes"]
    further = iter(values[len(sizes) :])
    for position, size in enumerate(sizes):
        index = values[position]
        limit = next(further) if size < 0 else None
        if index.undefined is not None:
            task.demand(op, index, "an index")
        if limit is None and _below(index.array, size):
            continue
        _check(task, op, position, index, size if limit is None else limit.array)


def _below(index: Array, size: int) -> bool:
    """True if all indices are at least 0 and below `size`."""
    if index.ndim == 0:
        return 0 <= int(index) < size
    return int(np.maximum.reduce(bits_of(index), axis=None)) < size


def _check(task: Task, op: Op, position: int, index: Data, size: Array | int) -> None:
    bad = task.under((index.array < 0) | (index.array >= size))
    assert bad is not None
    if not bad.any():
        return
    flat = int(np.argmax(bad))
    shape = np.shape(bad)
    where: tuple[str, ...] = op.attrs["where"]
    error = task.fail(
        hazard.VIEW_BOUNDS, op, thread=task.names.thread(flat), view=op.attrs["view"],
        where=where[position] if where else f"at position {position} of",
        index=int(np.broadcast_to(index.array, shape).ravel()[flat]), size=int(np.broadcast_to(size, shape).ravel()[flat]),
    )  # fmt: skip
    if not task.names.launched_by_threads:
        error.fix += f"; launched without block=, a block has {task.threads} threads"
    raise error
