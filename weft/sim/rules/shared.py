"""Shared memory, accessed by tiles and by elements. A handle is a run-time value; the data is in the block's store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from weft.analysis.blocks import reaches_blocks
from weft.errors import hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, RegsType, SharedArrayType, SharedType, TileType
from weft.layout import WARP_SIZE, LinearLayout, MBarrierLayout
from weft.layout.shared.homes import homes
from weft.layout.shared.layouts import padded
from weft.layout.shared.sizes import allocation_bytes
from weft.layout.shared.views import contiguous
from weft.ops import shared
from weft.sim.machine.data import Array, Data, Mark, arange, moved, where
from weft.sim.machine.hardware import linear_of, owners_of, part_of, readers_of
from weft.sim.machine.tasks import Block, Task
from weft.sim.memory import places
from weft.sim.memory.events import ELECTED
from weft.sim.memory.global_access import COMBINE
from weft.sim.memory.heap import turns
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import SHARED, Handle
from weft.sim.memory.verdicts import MANY, WORDS
from weft.sim.numbers.arithmetic import bits_of, numpy_dtype
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import barrier_at, peer
from weft.sim.rules.regs import per_thread


def shared_type(value: Value | None) -> SharedType:
    """The type of a handle."""
    assert value is not None and isinstance(value.type, SharedType)
    return value.type


def tile_of(value: Value | None) -> TileType:
    """The type of a tile."""
    assert value is not None and isinstance(value.type, TileType)
    return value.type


@rule(shared.alloc)
def _alloc(task: Task, op: Op) -> Handle:
    type = shared_type(op.result)
    size = allocation_bytes(type.layout, type.shape, type.element.primitive_bitwidth)
    name = op.result.name or ("an mbarrier" if isinstance(type.layout, MBarrierLayout) else "shared memory")
    leading = type.shape[: len(type.shape) - type.layout.rank]
    start = int(op.attrs["offset"])
    return task.block.store(SHARED).allocate(op, start, size, name, leading, places.stage_of(type) if leading else 0)


@rule(shared.index)
def index_of(task: Task, op: Op, handle: Handle, index: Data) -> Handle:
    """The view at an index along the first dimension."""
    number = int(task.uniform(op, index, handle.memory.space.part_number).array)
    return Handle(handle.memory, handle.base + number * _stride(op), handle.start)


@lru_cache(maxsize=4096)
def _stride(op: Op) -> int:
    """The stride in bytes of a handle's first dimension."""
    type = places.type_of(op.operands[0])
    return prod(type.shape[1 : len(type.shape) - type.layout.rank]) * places.stage_of(type)


@rule(shared.slice)
def slice_of(task: Task, op: Op, handle: Handle) -> Handle:
    """The view of a part of a dimension: of the stages, or within a tile."""
    type, dim, start = places.type_of(op.operands[0]), int(op.attrs["dim"]), int(op.attrs["start"])
    leading = len(type.shape) - type.layout.rank
    if dim < leading:
        inner = prod(type.shape[dim + 1 : leading])
        return replace(handle, base=handle.base + start * inner * places.stage_of(type))
    first = handle.start or (0,) * type.layout.rank
    return replace(handle, start=tuple(at + start * (d == dim - leading) for d, at in enumerate(first)))


@rule(shared.permute)
def _permute(task: Task, op: Op, handle: Handle) -> Handle:
    type = shared_type(op.operands[0])
    leading = len(type.shape) - type.layout.rank
    order: tuple[int, ...] = op.attrs["order"]
    return replace(handle, start=tuple(handle.start[d - leading] for d in order[leading:] if handle.start))


@rule(shared.reshape)
def _reshape(task: Task, op: Op, handle: Handle) -> Handle:
    """Only whole tiles can be reshaped, so the handle's base does not change."""
    return replace(handle, start=())


@rule(shared.reinterpret)
def _reinterpret(task: Task, op: Op, handle: Handle) -> Handle:
    return Handle(handle.memory, handle.base + _first_byte(op, handle.start) if any(handle.start) else handle.base)


@lru_cache(maxsize=4096)
def _first_byte(op: Op, start: tuple[int, ...]) -> int:
    """The first byte of a contiguous slice, which by a swizzle need not be its first element's."""
    type = shared_type(op.operands[0])
    origin: tuple[Array, ...] = (np.zeros((), np.int64),) * type.layout.rank
    first = int(places.positions(type.layout, type.alloc_shape, origin, start))
    count = contiguous(type.layout, type.alloc_shape, type.shape[-type.layout.rank :])
    return first // count * count * type.element.itemsize


@rule(shared.keep_alive)
def _keep_alive(task: Task, op: Op, handle: Handle) -> None:
    """Affects the allocator's liveness only."""


@rule(shared.load)
def _load(task: Task, op: Op, handle: Handle) -> Data:
    type, layout = shared_type(op.operands[0]), linear_of(tile_of(op.result))
    if reaches_blocks(op):
        return _read_blocks(task, op, handle, _grid(type.shape), layout)
    place = places.place_of(task, type, handle, layout, reading=True)
    return places.read(task, op, handle, place, type.element)


@rule(shared.store)
def _store(task: Task, op: Op, handle: Handle, value: Data) -> None:
    type, layout = shared_type(op.operands[0]), linear_of(tile_of(op.operands[1]))
    if reaches_blocks(op):
        _write_blocks(task, op, handle, _grid(type.shape), layout, value)
        return
    place = places.place_of(task, type, handle, layout, reading=False)
    places.write_tile(task, op, handle, place, type.element, value)


@rule(shared.async_store)
def _async_store(task: Task, op: Op, handle: Handle, value: Data, bar: Handle) -> None:
    type, layout = shared_type(op.operands[0]), linear_of(tile_of(op.operands[1]))
    if reaches_blocks(op):
        for block, place in _stored_places(task, op, handle, _grid(type.shape), layout):
            send(task, op, handle, place, type.element, value, bar, block)
        return
    place = places.place_of(task, type, handle, layout, reading=False)
    send(task, op, handle, place, type.element, value, bar)


def send(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, value: Data, bar: Handle, block: Block | None = None
) -> None:  # fmt: skip
    """Start an agent that stores values to a place, and completes their bytes on an mbarrier (PTX ISA, st.async), both in the
    memory of `block` (default: the task's own)."""
    if block is not None:
        peer(task, op, block.rank)
    at, chosen = place.written, place.chosen(np.broadcast_to(value.array, np.shape(place.elements)))
    if not at.size:
        return
    places.check_bounds(task, op, handle, place, element, WORDS["sent", True][0])
    # Another block may invalidate its barrier once it has waited for the phase: the signals of that phase have come.
    barrier = barrier_at(task, op, bar, MANY if block is None else ELECTED, block)
    places.note(
        task, op, handle, place, "sent", writes=True, component=barrier.component, value=barrier.completed, block=block
    )  # fmt: skip
    mark = value.undefined
    undefined = None if mark is None else place.chosen(np.broadcast_to(mark.mask, np.shape(place.elements)))

    def move() -> None:
        places.put(task, handle, place, element, at, bits_of(chosen), block)
        if mark is not None and undefined is not None:
            (block or task.block).store(SHARED).mark(handle.base, at + place.low, element.itemsize, mark, undefined)

    barrier.bring(op, task.clock, at.size * element.itemsize, task.block.agents.start(op, move))


# Elements in the memory of other blocks.


def _grid(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """The coordinates of a view's elements."""
    return tuple(np.broadcast_arrays(*np.ix_(*map(arange, shape))))


def _read_blocks(task: Task, op: Op, handle: Handle, coordinates: tuple[Array, ...], layout: LinearLayout) -> Data:
    """Read elements at some coordinates, each from the block in whose memory it lies."""
    type, shape = shared_type(op.operands[0]), np.shape(coordinates[0])
    part, threads = part_of(layout, task.rank), readers_of(layout, MANY, task.rank)
    held = np.ones(shape, bool) if part is None else part.reshape(shape)
    out: Array = np.zeros(shape, numpy_dtype(type.element))
    undefined: Array = np.zeros(shape, bool)
    mark: Mark | None = None
    for block, place in places.in_blocks(task, type, handle, coordinates, held, threads, None):
        found, mine = places.read(task, op, handle, place, type.element, block), place.mine
        out[mine] = found.array[mine]
        if found.undefined is not None:
            mark = found.undefined
            undefined[mine] = np.broadcast_to(mark.mask, shape)[mine]
    return Data(out, mark and Mark(undefined, mark.cause, mark.loc))


def _write_blocks(
    task: Task, op: Op, handle: Handle, coordinates: tuple[Array, ...], layout: LinearLayout, value: Data
) -> None:
    """Write elements to all copies in the memory of blocks."""
    for block, place in _stored_places(task, op, handle, coordinates, layout):
        places.write_tile(task, op, handle, place, shared_type(op.operands[0]).element, value, block)


def _stored_places(
    task: Task, op: Op, handle: Handle, coordinates: tuple[Array, ...], layout: LinearLayout, on: Array | None = None
) -> Iterator[tuple[Block, Place]]:
    """The places of all copies, in the memory of blocks, of the elements that the block holds and writes for all, where `on`
    holds."""
    type, shape = shared_type(op.operands[0]), np.shape(coordinates[0])
    threads = owners_of(layout, task.rank)
    part = task.own(op, op.operands[1], on)
    held = np.ones(shape, bool) if part is None else np.broadcast_to(part, shape)
    bits = task.machine.blocks.bit_length() - 1
    for copy in homes(type.layout.to_linear(type.alloc_shape), bits).copies:
        yield from places.in_blocks(task, type, handle, coordinates, held, threads, copy)


@rule(shared.gather)
def _gather(task: Task, op: Op, handle: Handle, indices: Data) -> Data:
    type, layout = shared_type(op.operands[0]), linear_of(tile_of(op.operands[1]))
    if reaches_blocks(op):
        return _read_blocks(task, op, handle, _named(task, op, handle, type, indices, layout, "reads")[0], layout)
    place = _along(task, op, handle, type, indices, layout, "reads")
    return places.read(task, op, handle, place, type.element)


@rule(shared.atomic)
def _atomic(task: Task, op: Op, handle: Handle, value: Data, mask: Data | None, indices: Data) -> Data:
    type, layout = shared_type(op.operands[0]), linear_of(tile_of(op.operands[3]))
    task.demand(op, mask, "a mask")
    on = None if mask is None else mask.array
    if not reaches_blocks(op):
        place = _along(task, op, handle, type, indices, layout, "updates", on)
        return combine(task, op, handle, place, type.element, value)
    coordinates, _ = _named(task, op, handle, type, indices, layout, "updates", on)
    return combine_all(task, op, handle, type.element, value, _stored_places(task, op, handle, coordinates, layout, on))


@rule(shared.scatter)
def _scatter(task: Task, op: Op, handle: Handle, value: Data, indices: Data) -> None:
    type, layout = shared_type(op.operands[0]), linear_of(tile_of(op.operands[2]))
    if reaches_blocks(op):
        coordinates, _ = _named(task, op, handle, type, indices, layout, "writes")
        _write_blocks(task, op, handle, coordinates, layout, value)
        return
    place = _along(task, op, handle, type, indices, layout, "writes")
    places.write_tile(task, op, handle, place, type.element, value)


def _named(
    task: Task, op: Op, handle: Handle, type: SharedType, indices: Data, layout: LinearLayout, access: str,
    mask: Array | None = None,
) -> tuple[tuple[Array, ...], Array | None]:  # fmt: skip
    """The coordinates of the elements at `indices` along an axis, and the mask of those that the block accesses (None: all),
    where `mask` holds. Raises OutOfBounds."""
    task.demand(op, indices, "an index", mask)
    axis = int(op.attrs["axis"])
    at: Array = np.asarray(indices.array).astype(np.int64)
    outside = (at < 0) | (at >= type.shape[axis])
    part = part_of(layout, task.rank)
    mine = None if part is None else part.reshape(at.shape)
    if mask is not None:
        mine = np.broadcast_to(mask, at.shape) if mine is None else mine & mask
    outside = outside if mine is None else outside & mine
    if np.any(outside):
        flat = int(np.argmax(outside))
        raise task.fail(
            hazard.SHARED_INDEX, op, access=access, name=handle.memory.name, index=at.ravel()[flat], axis=axis,
            length=type.shape[axis], last=type.shape[axis] - 1, where=task.where(at.shape, flat),
        )  # fmt: skip
    grid = np.ix_(*map(arange, at.shape))
    if mine is not None:
        at = where(mine, at, np.int64(0))
    return tuple(np.broadcast_arrays(*(at if d == axis else part for d, part in enumerate(grid)))), mine


def _along(
    task: Task, op: Op, handle: Handle, type: SharedType, indices: Data, layout: LinearLayout, access: str,
    mask: Array | None = None,
) -> Place:  # fmt: skip
    """The place of the elements at `indices` along an axis, where `mask` holds. Raises OutOfBounds."""
    coordinates, mine = _named(task, op, handle, type, indices, layout, access, mask)
    elements = places.positions(type.layout, type.alloc_shape, coordinates, handle.start)
    threads = readers_of(layout, MANY, task.rank) if access == "reads" else owners_of(layout, task.rank)
    chosen = elements.ravel() if mine is None else elements[mine]
    if mine is not None:
        threads = threads[mine.ravel()]
    return replace(places.some_place(task, handle, type.element, elements, chosen, threads), mine=mine)


# Arrays: accesses per thread, (threads, n), with a last axis for the elements of a vector access


def element_of(value: Value | None) -> DType:
    """The element type of an array."""
    assert value is not None and isinstance(value.type, SharedArrayType)
    return value.type.element


@rule(shared.array, shared.scratch)
def _array(task: Task, op: Op) -> Handle:
    type = op.result.type
    assert isinstance(type, SharedArrayType)
    name = op.result.name or ("shared memory" if op.kind is shared.array else "")
    size = type.count * type.element.itemsize
    return task.block.store(SHARED).allocate(op, int(op.attrs["offset"]), size, name)


@rule(shared.view)
def _view(task: Task, op: Op, handle: Handle, offset: Data) -> Handle:
    offset = task.uniform(op, offset, "the place of a part of shared memory")
    return Handle(handle.memory, handle.base + int(offset.array))


def bases(task: Task, op: Op, base: Data, table: str = "offsets") -> Array:
    """The first element of each access, (threads, n). `table`: the name of the attribute that holds the offsets."""
    task.demand(op, base, "an address")
    offsets = np.array(op.attrs[table], np.int64)
    return spread(op, np.broadcast_to(base.array.astype(np.int64) ^ offsets, (task.threads, len(offsets))))


def spread(op: Op, index: Array) -> Array:
    """Element numbers with padding and constant offsets applied."""
    added = op.attrs.get("added", ())
    index = padded(index, op.attrs.get("pads", ()))
    return index + np.array(added, np.int64) if added else index


def place_in(task: Task, op: Op, handle: Handle, elements: Array, active: Array) -> Place:
    """The place of the active elements of a (threads, ...) array."""
    shape = (task.threads,) + (1,) * (elements.ndim - 1)
    threads = np.broadcast_to(arange(task.threads, dtype=np.int16).reshape(shape), elements.shape)
    return places.some_place(task, handle, element_of(op.operands[0]), elements, elements[active], threads[active])


def mask_of(task: Task, mask: Data | None, shape: tuple[int, ...]) -> Array:
    """The active threads' accesses under a mask, as an array of a shape that begins with the threads."""
    under = task.under(None if mask is None else mask.array)
    if under is None:
        return np.ones(shape, bool)
    aligned = under[..., None] if len(shape) > 2 and np.ndim(under) else under
    return np.broadcast_to(aligned, shape)


def _write(task: Task, op: Op, handle: Handle, elements: Array, value: Data, mask: Data | None, table: Array) -> None:
    """Write each thread's registers `table` to `elements`, whose shape is that of `table`, or that with a leading axis of
    threads."""
    task.demand(op, mask, "a mask")
    write_registers(task, op, handle, elements, mask_of(task, mask, elements.shape), value, table)


def write_registers(
    task: Task, op: Op, handle: Handle, elements: Array, active: Array, value: Data, table: Array,
    block: Block | None = None,
) -> None:  # fmt: skip
    """Write the active threads' registers `table` to `elements`, in the memory of `block` (default: the task's own)."""
    place, stored = place_in(task, op, handle, elements, active), op.operand("value")
    values = per_thread(task, value, count_of(stored)).array[:, table]
    undefined = None
    if value.undefined is not None:
        full = np.broadcast_to(value.undefined.mask, (task.threads, count_of(stored)))
        undefined = Mark(full[:, table][active], value.undefined.cause, value.undefined.loc)
    data = Data(values[active], undefined)
    places.write(task, op, handle, place, element_of(op.operands[0]), place.elements[active], data, block)


def count_of(value: Value | None) -> int:
    """The number of registers of an array."""
    assert value is not None and isinstance(value.type, RegsType)
    return value.type.count


def _read(task: Task, op: Op, handle: Handle, elements: Array) -> Data:
    """Read elements as (threads, count); the values of inactive threads are arbitrary."""
    place = place_in(task, op, handle, elements, mask_of(task, None, elements.shape))
    return places.read(task, op, handle, place, element_of(op.operands[0]))


@rule(shared.store_regs)
def _store_regs(task: Task, op: Op, handle: Handle, base: Data, value: Data, mask: Data | None) -> None:
    elements = bases(task, op, base)[..., None] + arange(op.attrs["vec"])
    _write(task, op, handle, elements, value, mask, np.array(op.attrs["registers"]))


@rule(shared.async_store_regs)
def _async_store_regs(
    task: Task, op: Op, handle: Handle, base: Data, value: Data, bar: Handle, mask: Data | None
) -> None:
    elements = bases(task, op, base)[..., None] + arange(op.attrs["vec"])
    task.demand(op, mask, "a mask")
    active = mask_of(task, mask, elements.shape)
    place = replace(place_in(task, op, handle, elements, active), mine=active)
    table = np.array(op.attrs["registers"])
    data = moved(per_thread(task, value, count_of(op.operands[2])), lambda array: array[:, table])
    send(task, op, handle, place, element_of(op.operands[0]), data, bar)


@rule(shared.load_regs)
def _load_regs(task: Task, op: Op, handle: Handle, base: Data) -> Data:
    elements = bases(task, op, base)[..., None] + arange(op.attrs["vec"])
    return _read(task, op, handle, by_register(op, elements))


def by_register(op: Op, elements: Array) -> Array:
    """Elements reordered by the register that receives them, (threads, count)."""
    return elements.reshape(len(elements), -1)[:, np.argsort(np.array(op.attrs["registers"]).ravel())]


@rule(shared.load_at)
def _load_at(task: Task, op: Op, handle: Handle, index: Data) -> Data:
    task.demand(op, index, "an address")
    return _read(task, op, handle, spread(op, per_thread(task, index, count_of(op.operands[1])).array.astype(np.int64)))


@rule(shared.store_at)
def _store_at(task: Task, op: Op, handle: Handle, index: Data, value: Data, mask: Data | None) -> None:
    task.demand(op, index, "an address")
    count = count_of(op.operands[1])
    elements = spread(op, per_thread(task, index, count).array.astype(np.int64))
    _write(task, op, handle, elements, value, mask, arange(count))


@rule(shared.atomic_at)
def _atomic_at(task: Task, op: Op, handle: Handle, index: Data, value: Data, mask: Data | None) -> Data:
    own = None if mask is None else mask.array
    task.demand(op, mask, "a mask")
    task.demand(op, index, "an address", own)
    count = count_of(op.operands[1])
    elements = spread(op, per_thread(task, index, count).array.astype(np.int64))
    active = mask_of(task, mask, elements.shape)
    place = replace(place_in(task, op, handle, elements, active), mine=active)
    return combine(task, op, handle, place, element_of(op.operands[0]), per_thread(task, value, count))


def combine(
    task: Task, op: Op, handle: Handle, place: Place, element: DType, value: Data, block: Block | None = None
) -> Data:
    """Combine values atomically into the elements of a place, one after another, in the memory of `block` (default: the task's
    own); returns the old values, 0 where the place is masked off."""
    active = place.mine
    task.demand(op, value, "an atomic", active)
    out = np.zeros(np.shape(place.elements), numpy_dtype(element))
    at, new = np.ravel(place.written), np.ravel(place.chosen(np.broadcast_to(value.array, out.shape)))
    if not at.size:
        return Data(out)
    places.check_bounds(task, op, handle, place, element, "updates")
    task.reads += 1
    places.note(task, op, handle, place, "generic", writes=True, atomic=True, block=block)
    store = (block or task.block).store(SHARED)
    cells = store.view(handle, numpy_dtype(element), place.low, place.high)
    _, undefined = places.marked_values(task, op, handle, place, element, cells[place.elements], block)
    old, change = np.zeros(at.size, cells.dtype), COMBINE[op.attrs["kind"]]
    for turn in turns(at):
        old[turn] = before = cells[at[turn]]
        cells[at[turn]] = change(before, new[turn])
    store.written(handle.memory, place.area.where)
    task.machine.heap.changes.count += 1
    if active is None:
        return Data(old.reshape(out.shape), undefined)
    out[active] = old
    return Data(out, undefined)


def combine_all(
    task: Task, op: Op, handle: Handle, element: DType, value: Data, where: Iterator[tuple[Block, Place]]
) -> Data:
    """Combine values into all copies of elements, in the memory of blocks; returns the old values of the first copy of each, 0
    where there is none."""
    out: Array = np.zeros(np.shape(value.array), numpy_dtype(element))
    undefined, found = np.zeros(out.shape, bool), np.zeros(out.shape, bool)
    cause: Mark | None = None
    for block, place in where:
        old, mine = combine(task, op, handle, place, element, value, block), place.mine
        assert mine is not None
        first, found = mine & ~found, found | mine
        out[first] = old.array[first]
        if old.undefined is not None:
            cause = old.undefined
            undefined[first] = np.broadcast_to(cause.mask, out.shape)[first]
    return Data(out, cause and Mark(undefined, cause.cause, cause.loc))


# ldmatrix and stmatrix: matrices of 8 rows of 16 bytes


def _rows(task: Task, op: Op, base: Data) -> Array:
    """The elements of each lane's fragment, (threads, accesses, elements), in register order."""
    per_word = 4 // element_of(op.operands[0]).itemsize
    threads = arange(task.threads)
    lane, warp = threads % WARP_SIZE, threads // WARP_SIZE * WARP_SIZE
    if op.attrs["transposed"]:
        rows, columns = lane[:, None] % 4 * 2 + arange(2), lane[:, None] // 4
    else:
        rows, columns = lane[:, None] // 4, lane[:, None] % 4 * per_word + arange(per_word)
    starts = bases(task, op, base)
    parts = [starts[warp[:, None] + 8 * i + rows] + columns[..., None] for i in range(op.attrs["matrices"])]
    # One entry per matrix: (threads, elements of a 32-bit register, accesses).
    elements: Array = np.concatenate(parts, axis=1)
    return elements.transpose(0, 2, 1)


@rule(shared.load_matrix)
def _load_matrix(task: Task, op: Op, handle: Handle, base: Data) -> Data:
    return _read(task, op, handle, by_register(op, _rows(task, op, base)))


@rule(shared.store_matrix)
def _store_matrix(task: Task, op: Op, handle: Handle, base: Data, value: Data, mask: Data | None) -> None:
    _write(task, op, handle, _rows(task, op, base), value, mask, np.array(op.attrs["registers"]))
