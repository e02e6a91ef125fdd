"""Checked accesses to shared memory by threads, element by element, vectorised over threads and registers.

Elements are numbered from the start of shared memory, in elements of their type. Arrays have the shape (threads, registers).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from weft.errors import Loc, UserError, hazard
from weft.ir.core import Op
from weft.ir.types import DType, SharedArrayType
from weft.sim.machine import wraps
from weft.sim.machine.data import Array, Data, Mark, arange, union, where, where_marked
from weft.sim.machine.tasks import Task
from weft.sim.memory import places
from weft.sim.memory.events import Area, Event
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.memory.store import pieces
from weft.sim.numbers.arithmetic import bits_of, numpy_dtype

MASKED_LOAD = "the load that gives it is masked off"
Verb = Literal["reads", "writes", "updates"]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The constant part of an operation's accesses: the element type, the constant offsets (threads, registers), the thread of
    each, and the vector width of the instruction in elements."""

    element: DType
    table: Array
    threads: Array
    vec: int


@lru_cache(maxsize=4096)
def _form(op: Op, threads: int) -> Form:
    memory = op.operands[0]
    assert memory is not None and isinstance(memory.type, SharedArrayType)
    vec = int(op.attrs.get("vec", 1))
    row = (np.array(op.attrs.get("offsets", (0,)), np.int32)[:, None] + arange(vec, dtype=np.int32)).ravel()
    numbers = np.repeat(arange(threads, dtype=np.int16)[:, None], row.size, axis=1)
    return Form(memory.type.element, np.repeat(row[None], threads, axis=0), numbers, vec)


class Accesses:
    """An operation's accesses: `elements` (inactive ones are arbitrary elements of the allocation), the mask `active` (None:
    all), and `at`, the active elements. `words`: the memory as elements of the type (bools as bytes).

    Raises UndefinedValue, OutOfBounds, Misaligned."""

    __slots__ = ("access", "active", "at", "elements", "form", "handle", "memory", "op", "task", "words")

    def __init__(self, task: Task, op: Op, handle: Handle, index: Data, mask: Data | None, access: Verb) -> None:
        own = None
        if mask is not None:
            task.demand(op, mask, "a mask")
            own = mask.array
        if index.undefined is not None:
            task.demand(op, index, "an index", own)
        self.task, self.op, self.handle, self.access = task, op, handle, access
        self.form = form = _form(op, task.threads)
        self.memory = task.block.store(SHARED)
        dtype = np.dtype(np.uint8) if form.element.is_bool() else numpy_dtype(form.element)
        self.words = self.memory.words(dtype)
        size = dtype.itemsize
        self.elements = index.array + form.table
        if handle.base:
            self.elements = self.elements + np.int32(handle.base // size)
        under = task.under(own)
        self.active = None if under is None else self._spread(under)
        self.at = self.elements if self.active is None else self.elements[self.active]
        if not self.at.size:
            self.elements = np.zeros_like(self.elements)
            return
        # `weft.passes.lowered.sort_indices` splits indices on the assumption that they do not wrap.
        wraps.check(task, op, index, hazard.WRAPPED, np.shape(index.array), under)
        if mask is not None:
            wraps.check(task, op, mask, hazard.WRAPPED_MASK, np.shape(mask.array), under)
        first = handle.memory.start // size
        self._check(size, first, handle.memory.size // size)
        if self.active is not None:
            self.elements = where(self.active, self.elements, self.at.flat[0])

    def _spread(self, mask: Array) -> Array | None:
        """A mask per thread, or per access, broadcast to every register; None if it is True everywhere."""
        if mask.all():
            return None
        if mask.ndim == 2 and mask.shape[1] > 1 and self.form.vec > 1:
            mask = np.repeat(mask, self.form.vec, axis=1)
        return np.broadcast_to(mask, self.elements.shape)

    def _check(self, size: int, first: int, count: int) -> None:
        relative = self.at - np.int32(first) if first else self.at
        if int(np.maximum.reduce(bits_of(relative), axis=None)) >= count:
            raise self._outside(relative, count)
        vec = self.form.vec
        if self.handle.base % size or (
            vec > 1 and int(np.bitwise_or.reduce(self.elements[:, ::vec], axis=None)) & (vec - 1)
        ):
            error = self._misaligned(size, vec)
            if error is not None:
                raise error

    def _thread(self, position: int) -> str:
        """The name in reports of an active element's thread."""
        threads = self.form.threads if self.active is None else self.form.threads[self.active]
        return self.task.names.thread(int(threads.flat[position]))

    def _outside(self, relative: Array, count: int) -> UserError:
        position = int(np.argmax((relative < 0) | (relative >= count)))
        name = self.handle.memory.name or "shared memory"
        return self.task.fail(
            hazard.SHARED_ELEMENT, self.op, thread=self._thread(position), access=self.access, name=name,
            index=int(relative.flat[position]), view=self.task.names.view(self.op), last=count - 1,
        )  # fmt: skip

    def _named(self, position: int) -> str:
        """The name in reports of the element at a position of the access: `tile[5] through t.tile[4, 4](0, 0)`."""
        memory = self.handle.memory
        index = int(self.elements.flat[position]) - memory.start // self.words.itemsize
        return f"{memory.name}[{index}]{self.task.names.view(self.op)}"

    def _misaligned(self, size: int, vec: int) -> UserError | None:
        """The error for the first active vector that does not start at a multiple of its width; None for none."""
        width = size * vec
        starts = (self.elements[:, ::vec] - self.handle.base // size) * size + self.handle.base
        bad = starts % width != 0
        if self.active is not None:
            bad = bad & self.active[:, ::vec]
        if not bad.any():
            return None
        number, access = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        byte = int(starts[number, access])
        return self.task.fail(
            hazard.SHARED_MISALIGNED, self.op, thread=self.task.names.thread(number), access=self.access, bytes=width,
            name=self.handle.memory.name or "shared memory", byte=byte - self.handle.memory.start,
            view=self.task.names.view(self.op), past=byte % width,
        )  # fmt: skip

    @property
    def _each(self) -> int:
        return self.words.itemsize // self.memory.granule

    def granules(self, elements: Array) -> Array:
        """The granules of elements, with a last axis if an element has several."""
        return pieces(0, elements, self.words.itemsize, self.memory.granule)

    def demand(self, data: Data, sink: str) -> None:
        """Check that a value has no undefined elements where accesses are active. Raises UndefinedValue."""
        if data.undefined is None:
            return
        bad = where_marked(data.undefined, self.elements.shape, self.active)
        if bad is not None:
            self.task.refuse(self.op, data.undefined, sink, bad)

    def note(self, writes: bool, atomic: bool = False, values: Array | None = None) -> bool:
        """Check the accesses against earlier ones, and record them. `values`: what a store writes, in the shape of `at`.

        Returns whether several threads write the same element. Raises the hazard of a conflict."""
        task, shadow = self.task, self.memory.shadow
        if shadow is None:
            return False
        threads = self.form.threads if self.active is None else self.form.threads[self.active]
        each = self._each
        if each > 1:
            threads = np.repeat(threads, each).reshape(*threads.shape, each)
        area = Area(self.granules(self.at), threads, repeats=True)
        if values is not None:
            area.excuse = lambda earlier, here: self._equal(earlier, here, values)
        return shadow.access(
            task.clock, task.event(self.op, "generic", writes, self.handle.memory, atomic=atomic), area
        )

    def _equal(self, earlier: Event, here: Array, values: Array) -> bool:
        """True if an earlier store wrote these granules with equal values, which is benign; adds advice."""
        if earlier.mode != "generic" or not earlier.writes or earlier.atomic:
            return False
        same = bits_of(self.words[self.at]) == bits_of(values)
        if not same[here.any(axis=-1) if self._each > 1 else here].all():
            return False
        self._advise("and nothing orders the two stores")
        return True

    def _advise(self, more: str) -> None:
        name = self.handle.memory.name or "shared memory"
        message = f"several threads store equal values to the same elements of {name}, {more}"
        self.task.machine.report.advise("equal-stores", message, self.op.loc)

    def marks(self, cause: str) -> Mark | None:
        """A mark on the undefined ones among the elements read; inactive accesses are undefined because of `cause`.

        Raises UninitializedRead."""
        memory, active = self.memory, self.active
        undefined: Mark | None = None
        if memory.holds_undefined:
            undefined = memory.undefined(0, self.elements, self.words.itemsize)
        if not memory.is_full(self.handle.memory):
            fresh = memory.never_written(self.handle.memory, 0, self.elements, self.words.itemsize)
            if active is not None:
                fresh = fresh & active
            if fresh.any():
                if self.task.machine.uninitialized == "error" and self.handle.memory.name:
                    name = self._named(int(np.argmax(fresh)))
                    places.unwritten(self.task, self.op, self.handle, fresh, name)
                else:
                    undefined = union(Mark(fresh, SHARED.never_written, self.op.loc), undefined)
        return undefined if active is None else off(active, undefined, cause, self.op.loc)

    def wrote(self) -> None:
        """Mark the active elements as written."""
        if self.at.size:
            self.memory.written(self.handle.memory, self.granules(self.at))
            self.task.machine.heap.changes.count += 1

    def stored(self, values: Array) -> None:
        """After a store in which several threads wrote an element: report different values. Raises ThreadRace."""
        lost = bits_of(self.words[self.at]) != bits_of(values)
        threads = self.form.threads if self.active is None else self.form.threads[self.active]
        for position in np.flatnonzero(lost):
            other = np.flatnonzero((self.at == self.at.flat[position]) & (threads != threads.flat[position]))
            if other.size:
                memory, element = self.handle.memory, int(self.at.flat[position])
                name = f"{memory.name or 'shared memory'}[{element - memory.start // self.words.itemsize}]"
                if not self.task.machine.found.known(hazard.SHARED_STORE, self.op):
                    error = self.task.fail(
                        hazard.SHARED_STORE, self.op, thread=self._thread(int(position)), name=name,
                        other=self._thread(int(other[-1])), view=self.task.names.view(self.op),
                    )  # fmt: skip
                    self.task.machine.found.add(error, hazard.SHARED_STORE, self.op)
                return
        self._advise("by one store")


def off(active: Array, undefined: Mark | None, cause: str, loc: Loc | None) -> Mark:
    """The union of a mark on the inactive elements and another mark."""
    return (
        Mark(~active, cause, loc)
        if undefined is None
        else Mark(~active | undefined.mask, undefined.cause, undefined.loc)
    )


def load(accesses: Accesses) -> Data:
    """Read the elements; inactive accesses give undefined values. Raises UninitializedRead, races."""
    task = accesses.task
    task.reads += 1
    if not accesses.at.size:
        empty = np.zeros(accesses.elements.shape, numpy_dtype(accesses.form.element))
        return Data(empty, Mark(np.ones(empty.shape, bool), MASKED_LOAD, accesses.op.loc))
    accesses.note(writes=False)
    values = accesses.words.take(accesses.elements)
    undefined = accesses.marks(MASKED_LOAD)
    return Data(values != 0 if accesses.form.element.is_bool() else values, undefined)


def store(accesses: Accesses, value: Data) -> None:
    """Write the active elements of a value. Raises races."""
    if not accesses.at.size:
        return
    values, active = value.array, accesses.active
    if values.shape != accesses.elements.shape:
        values = np.broadcast_to(values, accesses.elements.shape)
    if accesses.form.element.is_bool():
        values = values.view(np.uint8)
    if active is not None:
        values = values[active]
    repeated = accesses.note(writes=True, values=values if value.undefined is None else None)
    accesses.words[accesses.at] = values
    accesses.wrote()
    if repeated:
        accesses.stored(values)
    if value.undefined is not None:
        mask = np.broadcast_to(value.undefined.mask, accesses.elements.shape)
        undefined = mask if active is None else mask[active]
        accesses.memory.mark(0, accesses.at, accesses.words.itemsize, value.undefined, undefined)
