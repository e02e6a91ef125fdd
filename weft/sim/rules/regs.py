"""Register arrays as (threads, count) NumPy arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.ir.core import Op
from weft.ir.types import RegsType
from weft.ops import regs
from weft.ops.check import dtype_of
from weft.sim.machine import logic
from weft.sim.machine.data import Array, Data, arange, marked, moved, stacked, undefined_in, union
from weft.sim.machine.tasks import Task
from weft.sim.machine.wraps import CAUSE, WORD, inexact, wrapped_in
from weft.sim.numbers import arithmetic as numbers
from weft.sim.rule import rule


def per_thread(task: Task, data: Data, count: int = 1) -> Data:
    """A scalar or register array, broadcast to (threads, count)."""
    shape = (task.threads, count)
    if np.shape(data.array) == shape:
        return data
    return moved(data, lambda array: np.broadcast_to(array, shape))


def _count(op: Op) -> int:
    type = op.result.type
    assert isinstance(type, RegsType)
    return type.count


@lru_cache(maxsize=4096)
def table_of(op: Op, name: str) -> Array:
    """An attribute of an operation that is a table, as an array of indices."""
    return np.array(op.attrs[name], np.int64)


@rule(regs.gather)
def _gather(task: Task, op: Op, x: Data) -> Data:
    table = table_of(op, "table")
    return moved(x, lambda array: array[:, table])


@rule(regs.concat)
def _concat(task: Task, op: Op, *parts: Data) -> Data:
    full = [p if np.ndim(p.array) else per_thread(task, p) for p in parts]
    return stacked(full, lambda arrays: np.concatenate(arrays, axis=1))


@rule(regs.narrow, regs.widen)
def _narrow(task: Task, op: Op, x: Data) -> Data:
    return Data(numbers.cast(x.array, dtype_of(op.uses[0]), op.attrs["dtype"]), x.undefined)


def along(data: Data) -> Data:
    """A value of each access or run, along a further last axis for the elements of it."""
    return moved(data, lambda array: np.asarray(array)[..., None])


def between(vec: int, begin: Data | None, end: Data | None) -> Data:
    """Which of elements 0 to `vec` - 1 are from number `begin` to before `end`, along a further last axis."""
    number, kept = arange(vec), Data(np.ones(vec, bool))
    for bound, holds in ((begin, np.less_equal), (end, np.greater)):
        if bound is not None:
            each = along(bound)
            kept = logic.conjunction(kept, Data(holds(each.array, number), each.undefined, inexact((each,))))
    return kept


@rule(regs.within)
def _within(
    task: Task, op: Op, x: Data, other: Data, whole: Data, some: Data, begin: Data | None, end: Data | None
) -> Data:
    vec, count = int(op.attrs["vec"]), _count(op)
    part = logic.conjunction(along(some), between(vec, begin, end))
    on = flattened(task, logic.disjunction(along(whole), part), count // vec, vec)
    return logic.selection(on, x, per_thread(task, other, count))


def flattened(task: Task, data: Data, n: int, vec: int) -> Data:
    """A value of each of `vec` elements of `n` accesses or runs, as (threads, n * vec)."""
    return moved(data, lambda array: np.broadcast_to(array, (task.threads, n, vec)).reshape(task.threads, n * vec))


@rule(regs.splat)
def _splat(task: Task, op: Op, x: Data) -> Data:
    return per_thread(task, x, _count(op))


@rule(regs.affine)
def _affine(task: Task, op: Op, base: Data, *strides: Data) -> Data:
    constants, *factors = table_of(op, "offsets")
    dtype = base.array.dtype
    exact = base.array.astype(np.int64) + constants
    for stride, factor in zip(strides, factors, strict=True):
        exact = exact + stride.array.astype(np.int64) * factor
    result = exact.astype(dtype)
    operands = (base, *strides)
    wrapped = marked(result != exact, CAUSE, op.loc, WORD) if dtype == np.int32 else None
    wrapped = union(wrapped_in(operands), wrapped)
    return per_thread(task, Data(result, undefined_in(operands), wrapped), len(constants))


@rule(regs.xor)
def _xor(task: Task, op: Op, base: Data) -> Data:
    offsets = table_of(op, "offsets").astype(base.array.dtype)
    return per_thread(task, Data(base.array ^ offsets, base.undefined, base.wrapped), len(offsets))


@rule(regs.extract)
def _extract(task: Task, op: Op, x: Data) -> Data:
    index = op.attrs["index"]
    return moved(x, lambda array: array[:, index : index + 1])


@rule(regs.dot)
def _dot(task: Task, op: Op, a: Data, b: Data, acc: Data) -> Data:
    for operand in (a, b, acc):
        task.demand(op, operand, "a dot")
    left = table_of(op, "a_table")[table_of(op, "rows")]
    right = table_of(op, "b_table")[table_of(op, "columns")]
    total = acc.array
    for k in range(left.shape[1]):
        total = numbers.fma(a.array[:, left[:, k]], b.array[:, right[:, k]], total)
    return Data(total)
