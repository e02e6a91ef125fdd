"""Functions of the author, applied element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from weft.ir.core import Op, walk
from weft.ir.types import ScalarType, TileType
from weft.layout import LinearLayout
from weft.ops import elements, program
from weft.sim.machine.code import captured
from weft.sim.machine.data import Array, Data, arange, moved, stacked
from weft.sim.machine.hardware import linear_of, to_threads, to_tile
from weft.sim.machine.tasks import Task, execute
from weft.sim.machine.wait import Run
from weft.sim.rule import rule


@rule(elements.map_elements)
def _map_elements(task: Task, op: Op, *values: Data) -> Run:
    region, pack = op.regions[0], op.attrs["pack"]
    if pack == 1 and not _knows_its_thread(task, op):
        part = task.part(op.operands[0])
        with nullcontext() if part is None else task.only(part):
            outputs = yield from execute(task, region, values)
        shape = np.shape(values[0].array)
        return tuple(moved(data, lambda array: np.broadcast_to(array, shape)) for data in outputs)
    return (yield from packed(task, op, values, pack, lambda parts: execute(task, region, parts)))


def _knows_its_thread(task: Task, op: Op) -> bool:
    """True if the mapped function depends on the executing thread, so that it must run on (threads, registers)."""
    if not isinstance(tile_or_regs(op), TileType):
        return False
    asks = any(inner.kind in (program.lane_id, program.warp_id) for inner in walk(op.regions[0]))
    return asks or any(np.ndim(task.env[value].array) for value in captured(op.regions[0]))


def tile_or_regs(op: Op) -> object:
    """The type of the first operand."""
    value = op.operands[0]
    assert value is not None
    return value.type


def packed(task: Task, op: Op, values: Sequence[Data], pack: int, run: Callable[[list[Data]], Run]) -> Run:
    """Call `run` with `pack` (threads, n) arrays per operand, one for each of `pack` consecutive registers. It returns `pack`
    arrays per result."""
    type = tile_or_regs(op)
    layout = linear_of(type) if isinstance(type, TileType) else None
    if isinstance(type, ScalarType):
        outputs = yield from run([data for data in values for _ in range(pack)])
        return tuple(outputs[::pack])
    by_thread = [data if layout is None else to_threads(data, layout, task.rank) for data in values]
    count = np.shape(by_thread[0].array)[-1]
    if count % pack:
        # The last pack is filled with copies of the last register.
        table: Array = np.minimum(arange(-(-count // pack) * pack), count - 1)
        by_thread = [moved(data, lambda array: array[..., table]) for data in by_thread]
    parts = [moved(data, lambda a, j=j: a[..., j::pack]) for data in by_thread for j in range(pack)]
    outputs = yield from run(parts)
    shape = np.shape(parts[0].array)
    groups = [outputs[i : i + pack] for i in range(0, len(outputs), pack)]
    return tuple(_unpacked(task, group, (*shape[:-1], count), layout, type) for group in groups)


def _unpacked(
    task: Task, group: Sequence[Data], shape: tuple[int, ...], layout: LinearLayout | None, type: object
) -> Data:
    """The registers of a tile, of shape (threads, registers), from those of packs."""
    parts = (*shape[:-1], -(-shape[-1] // len(group)))
    full = [moved(data, lambda array: np.broadcast_to(array, parts)) for data in group]
    together = stacked(full, lambda arrays: np.stack(arrays, axis=-1).reshape(*shape[:-1], -1)[..., : shape[-1]])
    if layout is None or not isinstance(type, TileType):
        return together
    return to_tile(together, layout, type.shape, task.rank)
