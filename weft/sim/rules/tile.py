"""Tiles as arrays of their logical shape. Layouts have an effect only on the order in which reductions and scans combine."""

from __future__ import annotations

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ir.types import TileType
from weft.layout.distributed.layouts import drop_dim
from weft.ops import tile
from weft.sim.machine.data import Data, arange, moved, stacked, union
from weft.sim.machine.hardware import linear_of, to_threads, to_tile
from weft.sim.machine.tasks import Task
from weft.sim.machine.wait import Run
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers import combine
from weft.sim.rule import rule


@rule(tile.arange)
def _arange(task: Task, op: Op) -> Data:
    return Data(arange(op.attrs["start"], op.attrs["end"], dtype=np.int32))


@rule(tile.splat)
def _splat(task: Task, op: Op, x: Data) -> Data:
    shape = op.attrs["shape"]
    return moved(task.uniform(op, x, "the scalar that fills a tile"), lambda array: np.broadcast_to(array, shape))


@rule(tile.expand_dims)
def _expand_dims(task: Task, op: Op, x: Data) -> Data:
    axis = op.attrs["axis"]
    return moved(x, lambda array: np.expand_dims(array, axis))


@rule(tile.broadcast)
def _broadcast(task: Task, op: Op, x: Data) -> Data:
    shape = op.attrs["shape"]
    return moved(x, lambda array: np.broadcast_to(array, shape))


@rule(tile.reshape)
def _reshape(task: Task, op: Op, x: Data) -> Data:
    shape = op.attrs["shape"]
    return moved(x, lambda array: array.reshape(shape))


@rule(tile.permute)
def _permute(task: Task, op: Op, x: Data) -> Data:
    order = op.attrs["order"]
    return moved(x, lambda array: array.transpose(order))


@rule(tile.join)
def _join(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    return stacked([lhs, rhs], lambda arrays: np.stack(arrays, axis=-1))


@rule(tile.split)
def _split(task: Task, op: Op, x: Data) -> tuple[Data, Data]:
    return moved(x, lambda array: array[..., 0]), moved(x, lambda array: array[..., 1])


@rule(tile.slice_)
def _slice(task: Task, op: Op, x: Data) -> Data:
    part = tuple(slice(start, start + size) for start, size in zip(op.attrs["offsets"], op.attrs["shape"], strict=True))
    return moved(x, lambda array: array[part])


@rule(tile.cat)
def _cat(task: Task, op: Op, lhs: Data, rhs: Data) -> Data:
    return stacked([lhs, rhs], lambda arrays: np.concatenate(arrays, axis=op.attrs["axis"]))


@rule(tile.convert, tile.set_layout)
def _convert(task: Task, op: Op, x: Data) -> Data:
    return moved(x, lambda array: array)


@rule(tile.extract)
def _extract(task: Task, op: Op, x: Data) -> Data:
    return moved(x, lambda array: array.reshape(-1)[0])


def tile_type_of(op: Op) -> TileType:
    """The type of the first operand, which is a tile."""
    value = op.operands[0]
    assert value is not None and isinstance(value.type, TileType)
    return value.type


@rule(tile.reduce)
def _reduce(task: Task, op: Op, *values: Data) -> Run:
    type = tile_type_of(op)
    layout, axis = linear_of(type), op.attrs["axis"] % len(type.shape)
    held = tuple(to_threads(data, layout, task.rank) for data in values)
    x = yield from combine.reduce_tile(task, op.regions[0], layout, axis, op.attrs["in_order"], held)
    shape = type.shape[:axis] + type.shape[axis + 1 :]
    return tuple(to_tile(data, drop_dim(layout, axis), shape, task.rank) for data in x)


@rule(tile.scan)
def _scan(task: Task, op: Op, *values: Data) -> Run:
    type = tile_type_of(op)
    layout = linear_of(type)
    held = tuple(to_threads(data, layout, task.rank) for data in values)
    x = yield from combine.scan_tile(task, op.regions[0], layout, op.attrs["axis"], op.attrs["reverse"], held)
    return tuple(to_tile(data, layout, type.shape, task.rank) for data in x)


@rule(tile.sort_step)
def _sort_step(task: Task, op: Op, x: Data) -> Data:
    task.demand(op, x, "a sort")
    axis: int = op.attrs["axis"]
    stride: int = op.attrs["stride"]
    mask: int = stride | op.attrs["flip"]
    size = x.array.shape[axis]
    partner = np.take(x.array, [i ^ stride for i in range(size)], axis)
    odd = [bool((i & mask).bit_count() & 1) ^ op.attrs["descending"] for i in range(size)]
    larger = np.array(odd).reshape([-1 if d == axis else 1 for d in range(x.array.ndim)])
    return Data(np.where(larger, np.maximum(x.array, partner), np.minimum(x.array, partner)))


@rule(tile.histogram)
def _histogram(task: Task, op: Op, x: Data, mask: Data | None) -> Data:
    task.demand(op, mask, "a mask")
    task.demand(op, x, "a histogram", None if mask is None else mask.array)
    chosen = x.array if mask is None else x.array[mask.array]
    bins = op.attrs["bins"]
    inside = chosen[(chosen >= 0) & (chosen < bins)].astype(np.int64)
    return Data(np.bincount(inside, minlength=bins).astype(np.int32))


@rule(tile.gather)
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


@rule(tile.dot_fma)
def _dot_fma(task: Task, op: Op, a: Data, b: Data, acc: Data) -> Data:
    for operand in (a, b, acc):
        task.demand(op, operand, "a dot")
    total = acc.array
    for k in range(a.array.shape[-1]):
        total = numbers.fma(a.array[..., :, k, None], b.array[..., None, k, :], total)
    return Data(total)
