"""Checked accesses to shared memory, shared by the tile and the lowered forms.

A place is the elements that an operation touches, numbered from the handle's base, and the granules that are noted of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from weft.errors import UserError, hazard
from weft.ir.core import Op
from weft.ir.types import DType, SharedType
from weft.layout import LinearLayout, PaddedSharedLayout, SharedLayout
from weft.layout.shared.sizes import stage_bytes
from weft.sim.blocks import Block
from weft.sim.data import Array, Data, Mark, arange, union, where
from weft.sim.hardware import owners_of, part_of, readers_of
from weft.sim.machine import Task
from weft.sim.numbers import bits_dtype, bits_of, numpy_dtype
from weft.sim.shadow import Area
from weft.sim.shared_memory import NEVER_WRITTEN, Handle
from weft.sim.verdicts import MANY, WORDS, Mode


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Elements of a handle (any shape) as their distance from `low`, the first that is accessed; `high` is one past the last.

    Elements that are not accessed stand anywhere in between. `area` is what is noted of the access. `mine`: which elements
    the block of a cluster has (None: all); the others stand where its own do."""

    elements: Array
    low: int
    high: int
    area: Area
    mine: Array | None = None

    @property
    def written(self) -> Array:
        """The elements of a place that is written as a whole, in the order of `chosen`."""
        return self.elements if self.mine is None else self.elements[self.mine]

    def chosen(self, values: Array) -> Array:
        """Of an array of the elements' shape what belongs to the block."""
        return values if self.mine is None else np.broadcast_to(values, self.mine.shape)[self.mine]


@lru_cache(maxsize=4096)
def elements_of(layout: SharedLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], start: int) -> Array:
    """Where the elements of a view lie, in elements, as an array of its shape; `start` as `Handle.start`."""
    return positions(layout, alloc_shape, tuple(np.ix_(*map(np.arange, shape))), start)


def positions(layout: SharedLayout, alloc_shape: tuple[int, ...], coordinates: tuple[Array, ...], start: int) -> Array:
    """Where elements at some coordinates of a view lie, in elements."""
    linear = layout.to_linear(alloc_shape)
    inverse = linear.pseudo_invert().sublayout(linear.out_dims, ("offset",))
    full = np.broadcast_arrays(*coordinates)
    # Of a tile of one element, the number alone would come back.
    offsets = np.broadcast_to(inverse.flat(**dict(zip(linear.out_dims, full, strict=True))), full[0].shape) ^ start
    return layout.pad(offsets) if isinstance(layout, PaddedSharedLayout) else offsets


def start_of(type: SharedType, start: int, coordinates: tuple[int, ...]) -> int:
    """`Handle.start` of a view that begins at some coordinates of another one."""
    linear = type.layout.to_linear(type.alloc_shape)
    inverse = linear.pseudo_invert().sublayout(linear.out_dims, ("offset",))
    return start ^ int(inverse.flat(**dict(zip(linear.out_dims, coordinates, strict=True))))


@lru_cache(maxsize=4096)
def stage_of(type: SharedType) -> int:
    """Bytes from one tile of an allocation to the next."""
    return stage_bytes(type.layout, type.alloc_shape, type.element.primitive_bitwidth)


@lru_cache(maxsize=4096)
def tile_place(
    layout: SharedLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], start: int, first: int, each: int,
    threads: LinearLayout | int, reading: bool, rank: int = 0,
) -> Place:  # fmt: skip
    """The place of a whole tile whose base is granule `first`, of elements of `each` granules. `threads`: the layout in which
    threads hold it, or the thread that accesses all of it. `rank` numbers the block in a cluster."""
    elements = elements_of(layout, alloc_shape, shape, start)
    mine = _part(layout, alloc_shape, shape, threads, rank)
    flat = elements.ravel() if mine is None else elements[mine]
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    low, high = int(ordered[0]), int(ordered[-1]) + 1
    granules: slice | Array
    if high - low == flat.size:
        granules = slice(first + low * each, first + high * each)
    else:
        granules = (first + ordered[:, None] * each + arange(each)).ravel()
    if isinstance(threads, int):
        return Place(elements - low, low, high, Area(granules, threads), mine)
    who = readers_of(threads, MANY, rank) if reading else owners_of(threads, rank)
    who = (who if mine is None else who[mine.ravel()])[order]
    return Place(elements - low, low, high, Area(granules, np.repeat(who, each)), mine)


def _part(
    layout: SharedLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], threads: LinearLayout | int, rank: int
) -> Array | None:  # fmt: skip
    """Which elements of a tile lie in a block's memory."""
    if not isinstance(threads, int):
        held = part_of(threads, rank)
        return None if held is None else held.reshape(shape)
    size = layout.to_linear(alloc_shape).in_size("block")
    if size == 1:
        return None
    linear = layout.to_linear(shape)
    held = np.zeros(linear.out_sizes, bool)
    held.ravel()[linear.flat(offset=arange(linear.in_size("offset")), block=rank & size - 1)] = True
    return None if held.all() else held


def place_of(task: Task, type: SharedType, handle: Handle, threads: LinearLayout | int, reading: bool) -> Place:
    """The place of a tile that a handle is a view of."""
    granule = task.block.memory.granule
    each = type.element.itemsize // granule
    return tile_place(
        type.layout, type.alloc_shape, type.shape, handle.start, handle.base // granule, each, threads, reading, task.rank
    )  # fmt: skip


def some_place(
    task: Task, handle: Handle, element: DType, elements: Array, chosen: Array, threads: Array | int
) -> Place:
    """The place of elements of any shape, of which those `chosen` (a flat array) are accessed, by a thread each."""
    memory = task.block.memory
    granules = memory.granules(handle, chosen, element.itemsize)
    if not isinstance(threads, int) and granules.ndim > 1:
        threads = np.repeat(threads, granules.shape[-1])
    low, high = (int(chosen.min()), int(chosen.max()) + 1) if chosen.size else (0, 0)
    inside = np.clip(elements - low, 0, max(high - low - 1, 0))
    return Place(inside, low, high, Area(granules.ravel(), threads, repeats=True))


def check_bounds(task: Task, op: Op, handle: Handle, place: Place, element: DType, access: str) -> None:
    """Refuse what lies outside of the allocation. Raises OutOfBounds."""
    size = element.itemsize
    first = handle.base - handle.memory.start + place.low * size
    last = handle.base - handle.memory.start + place.high * size
    if first < 0 or last > handle.memory.size:
        raise outside(task, op, handle, first, last, access)


def outside(task: Task, op: Op, handle: Handle, first: int, last: int, access: str) -> UserError:
    """The report of bytes that an allocation does not have."""
    memory = handle.memory
    name = memory.name or "the compiler's scratch memory"
    related = () if memory.op.loc is None else (("it was allocated here", memory.op.loc),)
    error = task.fail(hazard.SHARED_RANGE, op, access=access, first=first, last=last - 1, name=name, size=memory.size)
    error.related = related
    return error


def note(
    task: Task, op: Op, handle: Handle, place: Place, mode: Mode, writes: bool, component: int = -1, value: int = 0,
    atomic: bool = False, block: Block | None = None,
) -> None:  # fmt: skip
    """Check an access against earlier ones, and remember it. Raises the hazard of a clash. `block`: whose memory, if not the
    task's own."""
    shadow = (block or task.block).memory.shadow
    if shadow is not None:
        shadow.access(task.clock, task.event(op, mode, writes, handle.memory, component, value, atomic), place.area)


def read(task: Task, op: Op, handle: Handle, place: Place, element: DType) -> Data:
    """The elements; those never written are an error, or undefined. Raises UninitializedRead, OutOfBounds, races."""
    check_bounds(task, op, handle, place, element, WORDS["generic", False][0])
    task.reads += 1
    note(task, op, handle, place, "generic", writes=False)
    values = fetch(task, handle, place, element)
    return Data(*marked_values(task, op, handle, place, element, values))


def fetch(task: Task, handle: Handle, place: Place, element: DType, block: Block | None = None) -> Array:
    """The elements as they are, of the task's block if no other is given."""
    bits = (block or task.block).memory.view(handle, bits_dtype(element.itemsize), place.low, place.high)
    if not bits.size:
        return np.zeros(np.shape(place.elements), numpy_dtype(element))
    found = bits[place.elements]
    return found != 0 if element.is_bool() else found.view(numpy_dtype(element))


def marked_values(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, values: Array, block: Block | None = None
) -> tuple[Array, Mark | None]:
    """Values that were read, and which of them are undefined. Raises UninitializedRead."""
    memory = (block or task.block).memory
    undefined: Mark | None = None
    if memory.holds_undefined:
        granules = memory.granules(handle, place.elements + place.low, element.itemsize)
        undefined = memory.undefined(granules, granules.ndim > np.ndim(place.elements))
    if not memory.unwritten(handle, place.area.where):
        return values, undefined
    granules = memory.granules(handle, place.elements + place.low, element.itemsize)
    fresh = memory.never_written(handle, granules, granules.ndim > np.ndim(place.elements))
    if task.machine.uninitialized == "error" and handle.memory.name:
        unwritten(task, op, handle, fresh)
        return values, undefined
    if element.is_floating():
        values = where(fresh, values.dtype.type(np.nan), values)
    return values, union(Mark(fresh, NEVER_WRITTEN, op.loc), undefined)


def demand_written(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, sink: str, block: Block | None = None
) -> None:  # fmt: skip
    """Refuse a place with elements that have no value. Raises UninitializedRead, UndefinedValue."""
    memory = (block or task.block).memory
    if memory.holds_undefined or memory.unwritten(handle, place.area.where):
        now = fetch(task, handle, place, element, block)
        _, undefined = marked_values(task, op, handle, place, element, now, block)
        task.demand(op, Data(now, undefined), sink)


def unwritten(task: Task, op: Op, handle: Handle, fresh: Array, name: str = "") -> None:
    """Report a read of memory that was never written; `name` is what it calls the element, if that is known."""
    if task.machine.found.known(hazard.UNINITIALIZED, op):
        return
    at = f" ({task.where(np.shape(fresh), int(np.argmax(fresh)))})" if np.ndim(fresh) else ""
    error = task.fail(hazard.UNINITIALIZED, op, name=name or handle.memory.part(handle.base), where=at)
    allocated = handle.memory.op.loc
    error.related = () if allocated is None else (("it was allocated here", allocated),)
    task.machine.found.add(error, hazard.UNINITIALIZED, op)


def write_tile(task: Task, op: Op, handle: Handle, place: Place, element: DType, value: Data) -> None:
    """Put the block's elements of a tile in their places. Raises OutOfBounds, races."""
    undefined = value.undefined
    if place.mine is not None:
        mark = undefined and Mark(place.chosen(undefined.mask), undefined.cause, undefined.loc)
        value = Data(place.chosen(value.array), mark)
    write(task, op, handle, place, element, place.written, value)


def write(task: Task, op: Op, handle: Handle, place: Place, element: DType, at: Array, value: Data) -> None:
    """Put a value's elements where `at` says (those of `place.elements` that are accessed). Raises OutOfBounds, races."""
    check_bounds(task, op, handle, place, element, WORDS["generic", True][0])
    note(task, op, handle, place, "generic", writes=True)
    put(task, handle, place, element, at, bits_of(np.asarray(value.array)))
    if value.undefined is not None:
        memory = task.block.memory
        mask = np.broadcast_to(value.undefined.mask, np.shape(at))
        memory.mark(memory.granules(handle, at + place.low, element.itemsize), value.undefined, mask)


def put(
    task: Task, handle: Handle, place: Place, element: DType, at: Array, bits: Array, block: Block | None = None
) -> None:  # fmt: skip
    """Change memory (of the task's block, if no other is given) where `at` says; the whole place has values from now on."""
    memory = (block or task.block).memory
    memory.view(handle, bits_dtype(element.itemsize), place.low, place.high)[at] = bits
    memory.written(handle, place.area.where)
    if handle.memory.name:
        # Nobody waits for a change of the compiler's memory; a loop that only passes on there what it polls does not progress.
        task.machine.heap.writes += 1
