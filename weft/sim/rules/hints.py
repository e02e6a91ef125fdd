"""Hints of the author, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ir.types import Pointer
from weft.ops import hints
from weft.sim.machine.data import Array, Data, arange
from weft.sim.machine.tasks import Task
from weft.sim.rule import rule


@rule(hints.axes)
def _axes(task: Task, op: Op, x: Data) -> Data:
    """Check the promises for each axis, except at undefined elements. Register arrays have no axes and are not checked."""
    if task.machine.lowered:
        return x
    value = op.operands[0]
    assert value is not None
    step = value.type.element.element_ty.itemsize if isinstance(value.type.element, Pointer) else 1
    array = np.atleast_1d(x.array)
    known = np.broadcast_to(True if x.undefined is None else ~x.undefined.mask, array.shape)
    part = task.part(value)
    known = known if part is None else known & part
    for axis, amount in enumerate(op.attrs["contiguous"]):
        _check(task, op, "contiguity", amount, axis, array, known & _breaks(array, axis, amount, step))
    for axis, amount in enumerate(op.attrs["constant"]):
        _check(task, op, "constancy", amount, axis, array, known & _breaks(array, axis, amount, 0))
    for axis, amount in enumerate(op.attrs["divisible"]):
        # As in axis analysis, only the first element of a contiguous run must be a multiple.
        broken = (array % array.dtype.type(amount) != 0) & ~_continues(array, axis, step)
        _check(task, op, "divisibility by", amount, axis, array, known & broken)
    return x


def _continues(array: Array, axis: int, step: int) -> Array:
    """Mask of the elements that exceed their predecessor along an axis by `step`."""
    along = np.moveaxis(array, axis, -1)
    out = np.zeros(along.shape, bool)
    out[..., 1:] = along[..., 1:] == along[..., :-1] + array.dtype.type(step)
    return np.moveaxis(out, -1, axis)


def _breaks(array: Array, axis: int, run: int, step: int) -> Array:
    """Mask of the elements that break the promised progression within their run of `run` elements."""
    starts = arange(array.shape[axis]) % run == 0
    shape: Any = [1] * array.ndim
    shape[axis] = -1
    return ~_continues(array, axis, step) & ~starts.reshape(shape)


def _check(task: Task, op: Op, promise: str, amount: int, axis: int, array: Array, broken: Array) -> None:
    if not np.any(broken):
        return
    flat = int(np.argmax(broken))
    where = task.where(array.shape, flat)
    raise task.fail(
        hazard.HINT, op, promise=promise, amount=amount, axis=axis, where=where, value=array.ravel()[flat]
    )  # fmt: skip


@rule(hints.assume)
def _assume(task: Task, op: Op, condition: Data) -> None:
    task.demand(op, condition, "assume()")
    if np.any(task.held(op.operands[0], ~condition.array)):
        raise task.fail(hazard.ASSUME, op)


@rule(hints.uniform)
def _uniform(task: Task, op: Op, x: Data) -> Data:
    check = task.uniform if op.attrs["scope"] == "block" else task.warp_uniform
    return check(op, x, "a value claimed to be uniform")
