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
from weft.passes.lower.exchange import allocate, load_row_major, restored, storable, store_row_major
from weft.passes.lower.forms import Array, Table
from weft.passes.lower.placement import owned, register_table
from weft.passes.lower.shape import linear_of, shape_of
from weft.passes.lower.state import Lowering, LowerRule


def gather(lo: Lowering, op: Op) -> None:
    """Store the source to scratch memory in row-major order; each register loads the element that its index selects."""
    source, index = op.uses
    axis: int = op.attrs["axis"]
    shape, linear = shape_of(source), linear_of(index)
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
    lo.emit(shared.add_at, counts, index, _everywhere(lo, 1, index), active)
    lo.define(op, Array(load_row_major(lo, counts, out)))


def _inside(lo: Lowering, index: Value, bins: int) -> Value:
    """Where an index is a valid bin: one unsigned comparison also excludes negative indices."""
    wide = index if index.type.element.bits >= 32 else lo.emit(arith.cast, index, dtype=int32)
    unsigned = lo.emit(arith.bitcast, wide, element=uint32 if wide.type.element.bits == 32 else uint64)
    return lo.emit(arith.cmp, unsigned, _everywhere(lo, bins, unsigned), predicate="lt")


@cache
def _line(linear: LinearLayout, axis: int, k: int) -> dict[int, Table]:
    """For each coordinate along `axis` that a thread holds, its registers along the other axis, from 0 to `k` - 1."""
    rows, others = register_table(linear, axis), register_table(linear, 1 - axis)
    first: dict[tuple[int, int], int] = {}
    for register, at in enumerate(zip(rows, others, strict=True)):
        first.setdefault(at, register)
    return {row: tuple(first[row, j] for j in range(k)) for row in set(rows)}


def dot_fma(lo: Lowering, op: Op) -> None:
    """Each thread multiplies the rows of `a` with the columns of `b`; it holds both along all of K."""
    a, b, acc = op.uses
    k = shape_of(a)[1]
    a_lines, b_lines = _line(linear_of(a), 0, k), _line(linear_of(b), 1, k)
    a_keys, b_keys = list(a_lines), list(b_lines)
    out = linear_of(acc)
    lo.define(op, Array(lo.emit(
        regs.dot, *(lo.array(lo.form(v)) for v in (a, b, acc)), name=op.result.name,
        rows=tuple(a_keys.index(m) for m in register_table(out, 0)),
        columns=tuple(b_keys.index(n) for n in register_table(out, 1)),
        a_table=tuple(a_lines.values()), b_table=tuple(b_lines.values()),
    )))  # fmt: skip


RULES: dict[OpDef, LowerRule] = {
    tile.gather: gather,
    tile.histogram: histogram,
    tile.dot_fma: dot_fma,
}
