"""Checked accesses to tensor memory, shared by the tile and the lowered forms.

A place says where elements lie: numbers of cells (`weft.sim.tensor_store`) and of elements of their size, both from the cell
where a handle's tile begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import cast

import numpy as np

from weft.errors import tensor_hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, TensorType
from weft.layout import WARP_SIZE, LinearLayout
from weft.layout.base import WARPGROUP
from weft.layout.tensor_memory.layouts import COLUMN, LANES, ROW, TensorLayout
from weft.sim.blocks import Block
from weft.sim.data import Array, Data, Mark, arange, union, where
from weft.sim.hardware import owners_of, readers_of
from weft.sim.machine import Task
from weft.sim.numbers import bits_dtype, bits_of, numpy_dtype
from weft.sim.shadow import Area
from weft.sim.shared_memory import Lifetime
from weft.sim.tensor_store import CELL, COLUMN_BYTES, COLUMNS, TENSOR_NEVER_WRITTEN, TensorHandle
from weft.sim.verdicts import MANY, WORDS, Mode


@dataclass(frozen=True, slots=True, eq=False)
class TensorPlace:
    """Elements of a view (any shape): the cell of each, its number among elements of its size, and the columns touched.

    `cells` are all cells that are accessed, each once, `warps` which warp does it (see `weft.sim.verdicts.MANY`). Each element
    lies at its cell plus each of `copies`. `mine`: which elements the block of a cluster has (None: all)."""

    index: Array
    cells: slice | Array
    warps: Array | int
    low: int
    high: int
    itemsize: int
    copies: tuple[int, ...] = (0,)
    mine: Array | None = None

    @property
    def each(self) -> int:
        """Elements in a cell."""
        return CELL // self.itemsize

    def chosen(self, values: Array) -> Array:
        """Of an array of the elements' shape what belongs to the block."""
        return values if self.mine is None else np.broadcast_to(values, self.mine.shape)[self.mine]

    def area(self, base: int) -> Area:
        """What is noted of an access that begins at a cell."""
        cells = self.cells
        if isinstance(cells, slice):
            return Area(slice(cast("int", cells.start) + base, cast("int", cells.stop) + base), self.warps)
        return Area(cells + base, self.warps)


def compact(cells: Array) -> slice | Array:
    """Sorted cells, as a slice if none is left out."""
    first, last = int(cells[0]), int(cells[-1]) + 1
    return slice(first, last) if last - first == cells.size else cells


def by_warps(cells: Array, warps: Array) -> tuple[slice | Array, Array]:
    """Each of some cells once, and the warp that accesses it, `MANY` for several."""
    order = np.argsort(cells, kind="stable")
    once, first = np.unique(cells[order], return_index=True)
    sorted_warps = warps[order]
    low, high = np.minimum.reduceat(sorted_warps, first), np.maximum.reduceat(sorted_warps, first)
    return compact(once), where(low == high, low, np.int16(MANY)).astype(np.int16)


@lru_cache(maxsize=1024)
def tile_place(
    layout: TensorLayout, alloc_shape: tuple[int, ...], shape: tuple[int, ...], start: tuple[int, int], itemsize: int,
    threads: LinearLayout | int, warps: int, reading: bool, rank: int,
) -> TensorPlace:  # fmt: skip
    """The place of a view from `start` on. `threads`: the layout in which `warps` warps hold it, or the warp that accesses all
    of it. `rank` numbers the block in a cluster."""
    linear = layout.to_linear(alloc_shape)
    width = linear.in_size(COLUMN)
    held = linear.flat(
        row=arange(LANES)[:, None], column=arange(width)[None, :], block=rank & linear.in_size("block") - 1
    )
    held = np.broadcast_to(held, (LANES, width))
    # Of several places of an element the first one counts.
    places = np.full(prod(alloc_shape), -1)
    places[held.ravel()[::-1]] = arange(held.size)[::-1]
    rows, columns = (at + first for at, first in zip(np.ix_(*map(arange, shape)), start, strict=True))
    at = places[rows * alloc_shape[1] + columns]
    mine = None if (at >= 0).all() else at >= 0
    at = where(at >= 0, at, at.max())
    lane, column = at // width, at % width
    each = CELL // itemsize
    cell = column // each * LANES + lane
    own = np.ravel(cell if mine is None else cell[mine])
    copies = _copies(linear) if layout.has_copies else (0,)
    spread = (own[:, None] + np.array(copies)).ravel()
    if isinstance(threads, int):
        cells, who = compact(np.unique(spread)), threads
    elif warps == WARPGROUP:
        cells, who = by_warps(spread, (spread % LANES // WARP_SIZE).astype(np.int16))
    else:
        holders = readers_of(threads, MANY, rank) if reading else owners_of(threads, rank)
        holder = where(holders < 0, np.int16(MANY), holders // WARP_SIZE).reshape(shape)
        holder = np.repeat(np.ravel(holder if mine is None else holder[mine]), len(copies))
        cells, who = by_warps(spread, holder)
    touched = spread // LANES
    return TensorPlace(
        cell * each + column % each, cells, who, int(touched.min()), int(touched.max()) + 1, itemsize, copies, mine
    )  # fmt: skip


def _copies(linear: LinearLayout) -> tuple[int, ...]:
    """Lanes from an element's first to each that holds it."""
    free = [1 << bit for bit, vector in enumerate(linear.columns[ROW]) if not vector]
    return tuple(sum(chosen) for chosen in product(*[(0, bit) for bit in free]))


def tensor_type(value: Value | None) -> TensorType:
    """The type of a handle."""
    assert value is not None and isinstance(value.type, TensorType)
    return value.type


def place_of(
    task: Task, type: TensorType, handle: TensorHandle, threads: LinearLayout | int, reading: bool, rank: int | None = None
) -> TensorPlace:  # fmt: skip
    """The place of a tile that a handle is a view of, in the task's block or in that of a `rank`."""
    own = task.rank if rank is None else rank
    size = type.element.itemsize
    return tile_place(type.layout, type.alloc_shape, type.shape, handle.start, size, threads, task.warps, reading, own)


def check_bounds(task: Task, op: Op, handle: TensorHandle, place: TensorPlace, access: str) -> None:
    """Refuse what lies outside of the allocation. Raises OutOfBounds."""
    columns_within(task, op, handle.memory, handle.column + place.low, handle.column + place.high, access)


def columns_within(task: Task, op: Op, memory: Lifetime, low: int, high: int, access: str) -> None:
    """Refuse columns that an allocation does not have. Raises OutOfBounds."""
    first, last = memory.start // COLUMN_BYTES, (memory.start + memory.size) // COLUMN_BYTES
    if low < first or high > min(last, COLUMNS):
        error = task.fail(
            tensor_hazard.TENSOR_RANGE, op, access=access, lanes=f"0 to {LANES - 1}", columns=f"{low} to {high - 1}",
            name=memory.name, owned=f"columns {first} to {last - 1}",
        )  # fmt: skip
        error.related = () if memory.op.loc is None else (("it was allocated here", memory.op.loc),)
        raise error


def note(
    task: Task, op: Op, memory: Lifetime, area: Area, mode: Mode, writes: bool, component: int = -1, value: int = 0,
    block: Block | None = None,
) -> None:  # fmt: skip
    """Check an access against earlier ones, and remember it. Raises the hazard of a clash. `block`: whose memory, if not the
    task's own."""
    shadow = (block or task.block).tensor.shadow
    if shadow is not None:
        shadow.access(task.clock, task.event(op, mode, writes, memory, component, value), area)
        task.clock.touched = task.clock.position


def fetch(block: Block, base: int, place: TensorPlace, element: DType) -> Array:
    """The elements of a block as they are, from a cell on."""
    return block.tensor.words(numpy_dtype(element))[place.index + base * place.each]


def put(block: Block, base: int, place: TensorPlace, bits: Array) -> None:
    """Change the elements that the block has, all copies."""
    index = place.chosen(place.index) + base * place.each
    words, values = block.tensor.words(bits_dtype(place.itemsize)), place.chosen(bits)
    for copy in place.copies:
        words[index + copy * place.each] = values
    block.machine.heap.writes += 1


def marked_values(
    task: Task, op: Op, memory: Lifetime, base: int, place: TensorPlace, values: Array, access: str, block: Block | None = None
) -> Data:  # fmt: skip
    """Values that were read, and which of them are undefined. Raises UninitializedRead."""
    tensor = (block or task.block).tensor
    undefined = tensor.undefined(place.index + base * place.each, place.itemsize) if tensor.holds_undefined else None
    if not tensor.unwritten(memory, place.area(base).where):
        return Data(values, undefined)
    cell = place.index // place.each + base
    fresh = np.any([tensor.never_written(memory, cell + copy) for copy in place.copies], axis=0)
    if place.mine is not None:
        fresh = fresh & place.mine
    if task.machine.uninitialized == "error" and task.machine.found.known(tensor_hazard.TENSOR_UNINITIALIZED, op):
        return Data(values, undefined)
    if task.machine.uninitialized == "error":
        at = f" ({task.where(np.shape(fresh), int(np.argmax(fresh)))})" if np.ndim(fresh) else ""
        name = memory.part(base * CELL)
        error = task.fail(tensor_hazard.TENSOR_UNINITIALIZED, op, access=access, name=name, where=at)
        error.related = () if memory.op.loc is None else (("it was allocated here", memory.op.loc),)
        task.machine.found.add(error, tensor_hazard.TENSOR_UNINITIALIZED, op)
        return Data(values, undefined)
    if values.dtype.kind not in "iub":
        values = where(fresh, values.dtype.type(np.nan), values)
    return Data(values, union(Mark(fresh, TENSOR_NEVER_WRITTEN, op.loc), undefined))


def read(task: Task, op: Op, memory: Lifetime, base: int, place: TensorPlace, element: DType) -> Data:
    """Threads read the elements. Raises hazards of tensor memory, UninitializedRead."""
    task.reads += 1
    note(task, op, memory, place.area(base), "generic", writes=False)
    values = fetch(task.block, base, place, element)
    return marked_values(task, op, memory, base, place, values, WORDS["generic", False][0])


def write(task: Task, op: Op, memory: Lifetime, base: int, place: TensorPlace, value: Data) -> None:
    """Threads write the elements. Raises hazards of tensor memory."""
    note(task, op, memory, place.area(base), "generic", writes=True)
    put(task.block, base, place, bits_of(np.asarray(value.array)))
    tensor = task.block.tensor
    tensor.written(memory, place.area(base).where)
    if value.undefined is not None:
        mask = place.chosen(np.broadcast_to(value.undefined.mask, np.shape(place.index)))
        tensor.mark(place.chosen(place.index) + base * place.each, place.itemsize, value.undefined, mask)
