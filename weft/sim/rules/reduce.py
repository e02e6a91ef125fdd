"""Operations that combine elements of a tile: reductions, scans, mapped functions, histograms, gathers, and `dot_fma`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op, walk
from weft.ir.types import TileType
from weft.layout import LinearLayout
from weft.layout.reduction import plan_ordered_reduction, plan_reduction, plan_scan
from weft.ops import program, reduce
from weft.sim.machine.code import captured
from weft.sim.machine.data import Data, moved, stacked, union
from weft.sim.machine.hardware import linear_of, to_threads, to_tile
from weft.sim.machine.tasks import Task, execute
from weft.sim.machine.wait import Run
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers import combine
from weft.sim.rule import rule


def tile_type_of(op: Op) -> TileType:
    """The type of the first operand, which is a tile."""
    value = op.operands[0]
    assert value is not None and isinstance(value.type, TileType)
    return value.type


@rule(reduce.reduce)
def _reduce(task: Task, op: Op, *values: Data) -> Run:
    type = tile_type_of(op)
    layout, axis = linear_of(type), op.attrs["axis"] % len(type.shape)
    plan = (plan_ordered_reduction if op.attrs["in_order"] else plan_reduction)(layout, axis)
    x = yield from combine.reduce(
        task, op.regions[0], plan, tuple(to_threads(data, layout, task.rank) for data in values)
    )
    shape = type.shape[:axis] + type.shape[axis + 1 :]
    return tuple(to_tile(data, plan.result, shape, task.rank) for data in x)


@rule(reduce.scan)
def _scan(task: Task, op: Op, *values: Data) -> Run:
    type = tile_type_of(op)
    layout = linear_of(type)
    plan = plan_scan(layout, op.attrs["axis"], op.attrs["reverse"])
    x = yield from combine.scan(
        task, op.regions[0], plan, tuple(to_threads(data, layout, task.rank) for data in values)
    )
    return tuple(to_tile(data, layout, type.shape, task.rank) for data in x)


@rule(reduce.map_elements)
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
    by_thread = [data if layout is None else to_threads(data, layout, task.rank) for data in values]
    parts = [moved(data, lambda a, j=j: a[..., j::pack]) for data in by_thread for j in range(pack)]
    outputs = yield from run(parts)
    shape = np.shape(parts[0].array)
    groups = [outputs[i : i + pack] for i in range(0, len(outputs), pack)]
    return tuple(_unpacked(task, group, shape, layout, type) for group in groups)


def _unpacked(
    task: Task, group: Sequence[Data], shape: tuple[int, ...], layout: LinearLayout | None, type: object
) -> Data:
    full = [moved(data, lambda array: np.broadcast_to(array, shape)) for data in group]
    together = stacked(full, lambda arrays: np.stack(arrays, axis=-1).reshape(*shape[:-1], -1))
    if layout is None or not isinstance(type, TileType):
        return together
    return to_tile(together, layout, type.shape, task.rank)


@rule(reduce.histogram)
def _histogram(task: Task, op: Op, x: Data, mask: Data | None) -> Data:
    task.demand(op, mask, "a mask")
    task.demand(op, x, "a histogram", None if mask is None else mask.array)
    chosen = x.array if mask is None else x.array[mask.array]
    bins = op.attrs["bins"]
    inside = chosen[(chosen >= 0) & (chosen < bins)].astype(np.int64)
    return Data(np.bincount(inside, minlength=bins).astype(np.int32))


@rule(reduce.gather)
def _gather(task: Task, op: Op, src: Data, index: Data) -> Data:
    axis = op.attrs["axis"] % src.array.ndim
    length = src.array.shape[axis]
    outside = (index.array < 0) | (index.array >= length)
    if index.undefined is not None:
        outside = outside & ~index.undefined.mask
    part = task.part(op.operands[1])
    if part is not None:
        outside = outside & part
    if np.any(outside):
        flat = int(np.argmax(outside))
        raise task.fail(
            hazard.GATHER_RANGE, op, index=index.array.ravel()[flat], axis=axis, length=length, last=length - 1,
            where=task.where(index.array.shape, flat),
        )  # fmt: skip
    at = np.clip(index.array, 0, length - 1).astype(np.int64)
    result = moved(src, lambda array: np.take_along_axis(array, at, axis))
    return Data(result.array, union(result.undefined, index.undefined), result.wrapped)


@rule(reduce.dot_fma)
def _dot_fma(task: Task, op: Op, a: Data, b: Data, acc: Data) -> Data:
    for operand in (a, b, acc):
        task.demand(op, operand, "a dot")
    total = acc.array
    for k in range(a.array.shape[1]):
        total = numbers.fma(a.array[:, k, None], b.array[None, k, :], total)
    return Data(total)
