"""Checked accesses to a block's shared or tensor memory, for tile IR and for lowered IR.

A `Place` holds the elements that an operation accesses, numbered from the handle's base, and the granules that the shadow
records for the access.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from weft.errors import Row, UserError, hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, SharedType, TensorType
from weft.layout import WARP_SIZE, LinearLayout, SharedLayout
from weft.layout.base import WARPGROUP, whole_shape
from weft.layout.linear.columns import combinations
from weft.layout.shared.homes import Homes, homes
from weft.layout.shared.layouts import padded
from weft.layout.shared.sizes import stage_bytes
from weft.layout.tensor_memory.layouts import COLUMN, LANES, ROW, TensorLayout
from weft.sim.machine.data import Array, Data, Mark, arange, union, where
from weft.sim.machine.hardware import owners_of, part_of, readers_of
from weft.sim.machine.tasks import Block, Task
from weft.sim.memory.events import Area, EventMode
from weft.sim.memory.spaces import COLUMN_BYTES, SHARED, TENSOR, Allocation, Handle
from weft.sim.memory.store import pieces
from weft.sim.memory.verdicts import MANY, WORDS
from weft.sim.numbers.arithmetic import bits_dtype, bits_of, numpy_dtype


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Element numbers of a handle (any shape), relative to `low`, the first accessed element; `high` is one past the last.

    Elements that are not accessed have an arbitrary number in that range. `area`: the granules recorded for the access.
    `mine`: mask of the elements that this block of the cluster holds (None: all); the others get the numbers of held ones.
    `copies`: offsets in elements. A write goes to each of them, because several lanes of tensor memory may hold the same
    element; a read uses the first, which is 0."""

    elements: Array
    low: int
    high: int
    area: Area
    mine: Array | None = None
    copies: tuple[int, ...] = (0,)

    @property
    def written(self) -> Array:
        """The element numbers of a write to the whole place, in the order of `chosen`."""
        return self.elements if self.mine is None else self.elements[self.mine]

    def chosen(self, values: Array) -> Array:
        """The entries of an array of the elements' shape that belong to this block."""
        return values if self.mine is None else np.broadcast_to(values, self.mine.shape)[self.mine]


# Where elements lie


def place_at(
    base: int, elements: Array, itemsize: int, granule: int, threads: Array | int, mine: Array | None = None,
    copies: tuple[int, ...] = (0,),
) -> Place:  # fmt: skip
    """The place of elements that are numbered from byte `base`. `threads`: the accessing thread of each, or one for all."""
    own = elements.ravel() if mine is None else elements[mine]
    spread = own if copies == (0,) else (own[:, None] + np.array(copies)).ravel()
    granules = pieces(base, spread, itemsize, granule)
    if not isinstance(threads, int):
        threads = np.repeat(np.ravel(threads if mine is None else threads[mine]), granules.size // own.size)
    low, high = int(own.min()), int(own.max()) + 1
    return Place(elements - low, low, high, area_of(granules.ravel(), threads), mine, copies)


def area_of(granules: Array, threads: Array | int) -> Area:
    """The distinct granules, each with the thread that accesses it (`MANY` if several threads do)."""
    if isinstance(threads, int):
        return Area(_compact(np.unique(granules)), threads)
    order = np.argsort(granules, kind="stable")
    ordered, who = granules[order], threads[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if first.size < ordered.size:
        low, high = np.minimum.reduceat(who, first), np.maximum.reduceat(who, first)
        ordered, who = ordered[first], where(low == high, low, np.int16(MANY)).astype(np.int16)
    return Area(_compact(ordered), who)


def _compact(granules: Array) -> slice | Array:
    """Sorted granules; a slice if they are contiguous."""
    first, last = int(granules[0]), int(granules[-1]) + 1
    return slice(first, last) if last - first == granules.size else granules


@lru_cache(maxsize=1024)
def tile_place(
    layout: SharedLayout | TensorLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], start: tuple[int, ...],
    base: int, itemsize: int, granule: int, threads: LinearLayout | int, warps: int, reading: bool, rank: int = 0,
) -> Place:  # fmt: skip
    """The place of a view that begins at coordinates `start` of a tile at byte `base`. `threads`: the register layout of the
    value across `warps` warps, or the one thread that accesses the whole view. `rank`: the block's rank in its cluster."""
    if isinstance(layout, TensorLayout):
        return _tensor_place(layout, alloc_shape, shape, start, base, itemsize, granule, threads, warps, reading, rank)
    elements = positions(layout, alloc_shape, tuple(np.ix_(*map(arange, shape))), start)
    mine = _part(layout, alloc_shape, shape, threads, rank)
    return place_at(base, elements, itemsize, granule, _holders(threads, shape, reading, rank), mine)


def _holders(threads: LinearLayout | int, shape: tuple[int, ...], reading: bool, rank: int) -> Array | int:
    """The thread that accesses each element of a tile."""
    if isinstance(threads, int):
        return threads
    return (readers_of(threads, MANY, rank) if reading else owners_of(threads, rank)).reshape(shape)


def positions(
    layout: SharedLayout, alloc_shape: tuple[int, ...], coordinates: tuple[Array, ...], start: tuple[int, ...]
) -> Array:
    """Offsets of the elements at some coordinates of a view, in elements from the tile's first."""
    inverse = layout.to_linear(alloc_shape).pseudo_invert()
    inverse = inverse.sublayout(inverse.in_dims, ("offset",))
    at = coordinates if not any(start) else [c + first for c, first in zip(coordinates, start, strict=True)]
    full = np.broadcast_arrays(*at)
    # For a tile of one element `flat` returns a plain number.
    offsets = np.broadcast_to(inverse.flat(**dict(zip(inverse.in_dims, full, strict=True))), full[0].shape)
    return padded(offsets, layout.pads_of(alloc_shape))


def _part(
    layout: SharedLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], threads: LinearLayout | int, rank: int
) -> Array | None:  # fmt: skip
    """Mask of the tile's elements that lie in this block's shared memory; None for all."""
    if not isinstance(threads, int):
        held = part_of(threads, rank)
        return None if held is None else held.reshape(shape)
    size = layout.to_linear(alloc_shape).in_size("block")
    if size == 1:
        return None
    linear = layout.to_linear(shape)
    held = np.zeros(linear.out_sizes, bool)
    held.ravel()[linear.flat(offset=arange(linear.in_size("offset")), block=rank & size - 1)] = True
    held = held[tuple(map(slice, shape))]
    return None if held.all() else held


def _tensor_place(
    layout: TensorLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], start: tuple[int, ...], base: int,
    itemsize: int, granule: int, threads: LinearLayout | int, warps: int, reading: bool, rank: int,
) -> Place:  # fmt: skip
    """`tile_place` for tensor memory. Accesses are recorded per warp, because `tcgen05.ld` and `tcgen05.st` are collective
    operations of a warp (PTX ISA, "tcgen05.ld" and "tcgen05.st")."""
    linear, each = layout.to_linear(alloc_shape), granule // itemsize
    width = linear.in_size(COLUMN)
    held = linear.flat(
        row=arange(LANES)[:, None], column=arange(width)[None, :], block=rank & linear.in_size("block") - 1
    )
    held = np.broadcast_to(held, (LANES, width))
    # The first of an element's positions stands for the element.
    places = np.full(prod(alloc_shape), -1)
    places[held.ravel()[::-1]] = arange(held.size)[::-1]
    rows, columns = (at + first for at, first in zip(np.ix_(*map(arange, shape)), start or (0, 0), strict=True))
    at = places[rows * alloc_shape[1] + columns]
    mine = None if (at >= 0).all() else at >= 0
    at = where(at >= 0, at, at.max())
    lane, column = at // width, at % width
    elements = (column // each * LANES + lane) * each + column % each
    copies = tuple(lanes * each for lanes in _copies(linear)) if layout.has_copies else (0,)
    holders = _holders(threads, shape, reading, rank)
    if not isinstance(holders, int):
        holders = where(holders < 0, np.int16(MANY), holders // WARP_SIZE).astype(np.int16)
    place = place_at(base, elements, itemsize, granule, holders, mine, copies)
    if isinstance(threads, int) or warps != WARPGROUP:
        return place
    # Warp w of a warpgroup can access lanes 32w to 32w+31 only (PTX ISA, tcgen05, "Access restrictions").
    granules: Any = place.area.where
    touched: Array = np.r_[granules]
    return replace(place, area=Area(granules, (touched % LANES // WARP_SIZE).astype(np.int16)))


def _copies(linear: LinearLayout) -> tuple[int, ...]:
    """Distances in lanes from the first lane that holds an element to each lane that does."""
    free = [1 << bit for bit, vector in enumerate(linear.columns[ROW]) if not vector]
    return tuple(sum(chosen) for chosen in product(*[(0, bit) for bit in free]))


def type_of(value: Value | None) -> SharedType | TensorType:
    """The type of a handle to tiles."""
    assert value is not None and isinstance(value.type, SharedType | TensorType)
    return value.type


@lru_cache(maxsize=1024)
def stage_of(type: SharedType | TensorType) -> int:
    """Bytes from one tile of an allocation to the next."""
    if isinstance(type, TensorType):
        return type.layout.columns(type.alloc_shape, type.element.bits) * COLUMN_BYTES
    return stage_bytes(type.layout, type.alloc_shape, type.element.primitive_bitwidth)


def place_of(
    task: Task, type: SharedType | TensorType, handle: Handle, threads: LinearLayout | int, reading: bool,
    block: Block | None = None,
) -> Place:  # fmt: skip
    """The place of the view that a handle denotes, in the memory of `block` (default: the task's own block)."""
    block = block or task.block
    return tile_place(
        type.layout, type.alloc_shape, type.shape, handle.start, handle.base, type.element.itemsize,
        block.store(handle.memory.space).granule, threads, task.warps, reading, block.rank,
    )  # fmt: skip


def some_place(
    task: Task, handle: Handle, element: DType, elements: Array, chosen: Array, threads: Array | int
) -> Place:
    """The place of elements of any shape. Only those in `chosen` (a flat array) are accessed, one thread for each."""
    granules = pieces(handle.base, chosen, element.itemsize, task.block.store(handle.memory.space).granule)
    if not isinstance(threads, int) and granules.ndim > 1:
        threads = np.repeat(threads, granules.shape[-1])
    low, high = (int(chosen.min()), int(chosen.max()) + 1) if chosen.size else (0, 0)
    inside = np.clip(elements - low, 0, max(high - low - 1, 0))
    return Place(inside, low, high, Area(granules.ravel(), threads, repeats=True))


def in_blocks(
    task: Task, type: SharedType, handle: Handle, coordinates: tuple[Array, ...], held: Array, threads: Array, copy: int | None
) -> Iterator[tuple[Block, Place]]:  # fmt: skip
    """The places of the elements at some coordinates of a view, of which this block accesses those in `held`, in each block of
    the cluster. `copy`: which copy of the elements (`Homes.copies`); None: the block's own, where it has one."""
    found, table = _homes_of(type.layout, type.alloc_shape, task.machine.blocks)
    at = coordinates if not handle.start else [c + first for c, first in zip(coordinates, handle.start, strict=True)]
    flat: Array = np.ravel_multi_index(np.broadcast_arrays(*at), whole_shape(type.alloc_shape))
    spots = table[flat] ^ (found.own(task.rank) if copy is None else copy)
    offsets, ranks = found.split(spots)
    offsets = padded(offsets, type.layout.pads_of(type.alloc_shape))
    for rank in np.unique(ranks[held]).tolist():
        mine = held & (ranks == rank)
        spread = where(mine, offsets, offsets[mine][0])
        block = task.block.cluster.blocks[int(rank)]
        granule = block.store(SHARED).granule
        yield block, place_at(handle.base, spread, type.element.itemsize, granule, threads.reshape(held.shape), mine)


@lru_cache(maxsize=256)
def _homes_of(layout: SharedLayout, shape: tuple[int, ...], blocks: int) -> tuple[Homes, Array]:
    """The homes of a tile's elements, and the place of each by its row-major index."""
    found = homes(layout.to_linear(shape), blocks.bit_length() - 1)
    bits = prod(whole_shape(shape)).bit_length() - 1
    return found, np.array(combinations([found.of(1 << bit) for bit in range(bits)]), np.int64)


# Accesses


def check_bounds(task: Task, op: Op, handle: Handle, place: Place, element: DType, access: str) -> None:
    """Check that the place lies inside the allocation. Raises OutOfBounds."""
    size, memory = element.itemsize, handle.memory
    first, last = handle.base + place.low * size, handle.base + place.high * size
    if first < memory.start or last > memory.start + memory.size or (memory.space.limit and last > memory.space.limit):
        raise outside(task, op, memory, first, last, access)


def outside(task: Task, op: Op, memory: Allocation, first: int, last: int, access: str) -> UserError:
    """The error for an access to bytes `first` to `last` (exclusive) that leaves an allocation."""
    entry: Row = hazard.SHARED_RANGE
    fields: dict[str, Any]
    if memory.space is TENSOR:
        entry = hazard.TENSOR_MEMORY_RANGE
        begin, end = memory.start // COLUMN_BYTES, (memory.start + memory.size) // COLUMN_BYTES
        columns = f"{first // COLUMN_BYTES} to {(last - 1) // COLUMN_BYTES}"
        owned = f"columns {begin} to {end - 1}"
        fields = {"lanes": f"0 to {LANES - 1}", "columns": columns, "name": memory.name, "owned": owned}
    else:
        name = memory.name or "the compiler's scratch memory"
        fields = {"first": first - memory.start, "last": last - 1 - memory.start, "name": name, "size": memory.size}
    error = task.fail(entry, op, access=access, **fields)
    error.related = () if memory.op.loc is None else (("it was allocated here", memory.op.loc),)
    return error


def note(
    task: Task, op: Op, handle: Handle, place: Place, mode: EventMode, writes: bool, component: int = -1, value: int = 0,
    atomic: bool = False, block: Block | None = None,
) -> None:  # fmt: skip
    """Check an access against earlier ones, and record it. Raises the hazard of a conflict. `block`: the block whose memory
    is accessed (default: the task's own)."""
    shadow = (block or task.block).store(handle.memory.space).shadow
    if shadow is not None:
        if block is not None and block.ended and mode == "generic":
            raise block.exited(op, task.slot)
        shadow.access(task.clock, task.event(op, mode, writes, handle.memory, component, value, atomic), place.area)


def read(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, block: Block | None = None
) -> Data:  # fmt: skip
    """Read the elements, from `block` (default: the task's own). Elements never written are an error or undefined. Raises
    UninitializedRead, OutOfBounds, races."""
    check_bounds(task, op, handle, place, element, WORDS["generic", False][0])
    task.reads += 1
    note(task, op, handle, place, "generic", writes=False, block=block)
    values = fetch(task, handle, place, element, block)
    return Data(*marked_values(task, op, handle, place, element, values, block))


def fetch(task: Task, handle: Handle, place: Place, element: DType, block: Block | None = None) -> Array:
    """The stored elements, unchecked, from `block` (default: the task's own)."""
    store = (block or task.block).store(handle.memory.space)
    bits = store.view(handle, bits_dtype(element.itemsize), place.low, place.high)
    if not bits.size:
        return np.zeros(np.shape(place.elements), numpy_dtype(element))
    found = bits[place.elements]
    return found != 0 if element.is_bool() else found.view(numpy_dtype(element))


def marked_values(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, values: Array, block: Block | None = None,
    access: str = WORDS["generic", False][0],
) -> tuple[Array, Mark | None]:  # fmt: skip
    """Values that were read, and a mark on the undefined ones. Raises UninitializedRead."""
    store, memory = (block or task.block).store(handle.memory.space), handle.memory
    undefined: Mark | None = None
    if store.holds_undefined:
        undefined = store.undefined(handle.base, place.elements + place.low, element.itemsize)
    if not store.unwritten(memory, place.area.where):
        return values, undefined
    elements = place.elements + place.low
    fresh = store.never_written(memory, handle.base, elements, element.itemsize)
    for copy in place.copies[1:]:
        fresh = fresh | store.never_written(memory, handle.base, elements + copy, element.itemsize)
    if place.mine is not None:
        fresh = fresh & place.mine
    if task.machine.uninitialized == "error" and memory.name:
        unwritten(task, op, handle, fresh, access=access)
        return values, undefined
    if element.is_floating():
        values = where(fresh, values.dtype.type(np.nan), values)
    return values, union(Mark(fresh, memory.space.never_written, op.loc), undefined)


def demand_written(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, sink: str, block: Block | None = None,
    access: str = WORDS["generic", False][0],
) -> None:  # fmt: skip
    """Check that every element of a place has a value. Raises UninitializedRead, UndefinedValue."""
    store = (block or task.block).store(handle.memory.space)
    if store.holds_undefined or store.unwritten(handle.memory, place.area.where):
        now = fetch(task, handle, place, element, block)
        task.demand(op, Data(*marked_values(task, op, handle, place, element, now, block, access)), sink)


def unwritten(task: Task, op: Op, handle: Handle, fresh: Array, name: str = "", access: str = "") -> None:
    """Report a read of memory that was never written. `name`: the element's name in the report, if it is known."""
    memory = handle.memory
    entry = memory.space.uninitialized
    if task.machine.found.known(entry, op):
        return
    at = f" ({task.where(np.shape(fresh), int(np.argmax(fresh)))})" if np.ndim(fresh) else ""
    fields: dict[str, Any] = {"access": access} if memory.space is TENSOR else {}
    error = task.fail(entry, op, name=name or memory.part(handle.base), where=at, **fields)
    error.related = () if memory.op.loc is None else (("it was allocated here", memory.op.loc),)
    task.machine.found.add(error, entry, op)


def write_tile(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, value: Data, block: Block | None = None
) -> None:
    """Write this block's elements of a tile, to the memory of `block` (default: the task's own). Raises OutOfBounds, races."""
    undefined = value.undefined
    if place.mine is not None:
        mark = undefined and Mark(place.chosen(undefined.mask), undefined.cause, undefined.loc)
        value = Data(place.chosen(value.array), mark)
    write(task, op, handle, place, element, place.written, value, block)


def write(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, at: Array, value: Data, block: Block | None = None
) -> None:
    """Write a value to the elements `at` (those of `place.elements` that are accessed), in the memory of `block` (default: the
    task's own). Raises OutOfBounds, races."""
    check_bounds(task, op, handle, place, element, WORDS["generic", True][0])
    note(task, op, handle, place, "generic", writes=True, block=block)
    put(task, handle, place, element, at, bits_of(np.asarray(value.array)), block)
    if value.undefined is not None:
        mark(task, handle, place, element, at, value.undefined, block)


def mark(
    task: Task, handle: Handle, place: Place, element: DType, at: Array, undefined: Mark, block: Block | None = None
) -> None:  # fmt: skip
    """Mark elements `at` that were just written as undefined, where the mark holds."""
    mask = np.broadcast_to(undefined.mask, np.shape(at))
    store = (block or task.block).store(handle.memory.space)
    store.mark(handle.base, at + place.low, element.itemsize, undefined, mask)


def put(
    task: Task, handle: Handle, place: Place, element: DType, at: Array, bits: Array, block: Block | None = None
) -> None:  # fmt: skip
    """Store bits at the elements `at`, and mark the whole place as written."""
    change(task, handle, place, element, at, bits, block)
    (block or task.block).store(handle.memory.space).written(handle.memory, place.area.where)


def change(
    task: Task, handle: Handle, place: Place, element: DType, at: Array, bits: Array, block: Block | None = None
) -> None:  # fmt: skip
    """Store bits at the elements `at`, in the memory of `block` (default: the task's own)."""
    store = (block or task.block).store(handle.memory.space)
    view = store.view(handle, bits_dtype(element.itemsize), place.low, place.high + place.copies[-1])
    for copy in place.copies:
        view[at + copy if copy else at] = bits
    if handle.memory.name or handle.memory.space is not SHARED:
        # No task waits for a change of the compiler's scratch memory: a polling loop that only stages its value there does
        # not make progress, so such a write does not count as one.
        task.machine.heap.changes.count += 1
