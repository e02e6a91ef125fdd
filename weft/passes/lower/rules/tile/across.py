"""Lowering of gathers and histograms, through scratch shared memory, and of FMA dots, within each thread.

%y = tile.gather %x, %i    -->    shared.store_regs %scratch, %x         in row-major order
                                  %y = shared.load_at %scratch, %i       after a barrier
"""

from __future__ import annotations

from functools import cache
from math import prod

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DType, int32, uint32, uint64
from weft.layout import LinearLayout
from weft.ops import arith, regs, shared, tile
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.exchange import allocate, load_row_major, restored, storable, store_row_major
from weft.passes.lower.forms import Array
from weft.passes.lower.placement import owned, register_table
from weft.passes.lower.state import Lowering, LowerRule


def gather(lo: Lowering, op: Op) -> None:
    """Store the source to scratch memory in row-major order; each register loads the element that its index selects."""
    source, index = op.uses
    axis: int = op.attrs["axis"]
    shape, linear = linear_of(source).out_sizes, linear_of(index)
    value = lo.array(lo.form(source))
    data = storable(lo, value)
    memory = allocate(lo, data, prod(shape))
    store_row_major(lo, memory, data, linear_of(source))
    total: Value | None = None
    for d in range(len(shape)):
        part = _int32(lo, lo.array(lo.form(index) if d == axis else lo.coordinate(linear, d)))
        term = _scaled(lo, part, prod(shape[d + 1 :]))
        total = term if total is None else lo.emit(arith.add, total, term)
    assert total is not None
    lo.define(op, Array(restored(lo, lo.emit(shared.load_at, memory, total), value)))


def _int32(lo: Lowering, value: Value) -> Value:
    return value if value.type.element == int32 else lo.emit(arith.cast, value, dtype=int32)


def _everywhere(lo: Lowering, number: int, like: Value) -> Value:
    element = like.type.element
    assert isinstance(element, DType)
    return lo.emit(regs.splat, lo.constant(number, element), count=lo.count(Array(like)))


def _scaled(lo: Lowering, value: Value, factor: int) -> Value:
    return value if factor == 1 else lo.emit(arith.mul, value, _everywhere(lo, factor, value))


def histogram(lo: Lowering, op: Op) -> None:
    """Count in scratch memory: the owner of each element adds 1 to its bin with a shared memory atomic."""
    x, mask = op.operands
    assert x is not None
    bins: int = op.attrs["bins"]
    out, linear = linear_of(op.result), linear_of(x)
    registers = owned(linear)
    counts: Value = lo.emit(shared.scratch, dtype=int32, count=bins, tag=lo.tag())
    zeros = lo.emit(regs.splat, lo.constant(0, int32), count=len(owned(out)))
    store_row_major(lo, counts, zeros, out)
    index = lo.array(lo.picked(lo.form(x), registers))
    active = _inside(lo, index, bins)
    if mask is not None:
        active = lo.emit(arith.and_, active, lo.array(lo.picked(lo.form(mask), registers)))
    owner = lo.owns(linear)
    if owner is not None:
        active = lo.emit(arith.and_, active, lo.emit(regs.splat, owner, count=len(registers)))
    index = _int32(lo, index)
    lo.emit(shared.atomic_at, counts, index, _everywhere(lo, 1, index), active, kind="add")
    lo.define(op, Array(load_row_major(lo, counts, out)))


def _inside(lo: Lowering, index: Value, bins: int) -> Value:
    """Where an index is a valid bin: one unsigned comparison also excludes negative indices."""
    wide = index if index.type.element.bits >= 32 else lo.emit(arith.cast, index, dtype=int32)
    unsigned = lo.emit(arith.bitcast, wide, element=uint32 if wide.type.element.bits == 32 else uint64)
    return lo.emit(arith.cmp, unsigned, _everywhere(lo, bins, unsigned), predicate="lt")


@cache
def _lines(linear: LinearLayout, k_dim: int) -> tuple[list[tuple[int, ...]], tuple[Table, ...]]:
    """The rows (or columns) of an operand that a thread holds, each with its registers along `k_dim`.

    A row is named by its coordinates along the other dimensions."""
    k = linear.sizes[k_dim]
    first: dict[tuple[int, ...], dict[int, int]] = {}
    for register, at in enumerate(zip(*(register_table(linear, d) for d in range(len(linear.out_sizes))), strict=True)):
        first.setdefault((*at[:k_dim], *at[k_dim + 1 :]), {}).setdefault(at[k_dim], register)
    return list(first), tuple(tuple(row[j] for j in range(k)) for row in first.values())


def dot_fma(lo: Lowering, op: Op) -> None:
    """Each thread multiplies the rows of `a` with the columns of `b`; it holds both along all of K."""
    a, b, acc = op.uses
    out = linear_of(acc)
    rank = len(out.out_sizes)
    rows, a_table = _lines(linear_of(a), rank - 1)
    columns, b_table = _lines(linear_of(b), rank - 2)
    *batch, m, n = (register_table(out, d) for d in range(rank))
    lo.define(op, Array(lo.emit(
        regs.dot, *(lo.array(lo.form(v)) for v in (a, b, acc)), name=op.result.name,
        rows=tuple(rows.index(at) for at in zip(*batch, m, strict=True)),
        columns=tuple(columns.index(at) for at in zip(*batch, n, strict=True)),
        a_table=a_table, b_table=b_table,
    )))  # fmt: skip


RULES: dict[OpDef, LowerRule] = {
    tile.gather: gather,
    tile.histogram: histogram,
    tile.dot_fma: dot_fma,
}
