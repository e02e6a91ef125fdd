"""Warp-level MMAs: one PTX wrapper for each `mma.sync`, which updates its accumulators, a C array, in place."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits
from weft.cuda.rules.memory import plus
from weft.cuda.text.matrix_operands import (
    PTX,
    PTX_ACCUMULATOR,
    array_of,
    in_place,
    operand_lines,
    ptx_vector,
    struct_of,
    word_operands,
)
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.cuda.text.spelling import C_NAMES
from weft.ir.core import Op
from weft.ir.types import BY_CODE, DType
from weft.ops import mma


@emits(mma.mma_sync)
def _mma_sync(e: Emitter, op: Op) -> None:
    a, b, acc = op.uses
    sums = acc.type.element
    assert isinstance(sums, DType)
    element, other = (BY_CODE[op.attrs[name]] for name in ("element", "other"))
    types = [element.code] if element is other else [element.code, other.code]
    name = "_".join(["mma", f"16x8x{op.attrs['k']}", sums.code, *types])
    e.pieces.define(name, _sync_piece(name, op.attrs["k"], sums, element, other))
    e.copy(op.result, e.refs[acc])
    arrays = (e.variable(op.result).name, array_of(e, a), array_of(e, b))
    columns = [tuple(column) for column in zip(*op.attrs["steps"], strict=True)]

    def step(index: Index) -> str:
        operands = [plus(array, e.entry(column, index)) for array, column in zip(arrays, columns, strict=True)]
        return f"{name}({', '.join(operands)});"

    e.unrolled(len(columns[0]), [(op.loc, step)])


def _sync_piece(name: str, k: int, sums: DType, element: DType, other: DType) -> Piece:
    """`name(x, a, b)`: the instruction m16n8k`k` on the accumulators at `x`."""
    outputs = in_place("x", sums, 4)
    left, needs = word_operands("a", element, k // 2)
    right, more = word_operands("b", other, k // 4)
    first = len(outputs)
    x, types = ptx_vector(0, first), ".".join([PTX[element.code], PTX[other.code]])
    total = PTX_ACCUMULATOR[sums.code]
    a, b = (f"const {C_NAMES[dtype.code]}* {operand}" for operand, dtype in (("a", element), ("b", other)))
    return Piece(
        f"DEV void {name}({C_NAMES[sums.code]}* x, {a}, {b}) {{\n"
        f'  asm volatile("mma.sync.aligned.m16n8k{k}.row.col.{total}.{types}.{total} "\n'
        f'    "{x}, {ptx_vector(first, len(left))}, {ptx_vector(first + len(left), len(right))}, {x};"\n'
        f"    : {operand_lines(outputs)}\n"
        f"    : {', '.join([*left, *right])}); }}",
        (*struct_of(sums), *needs, *more),
    )
