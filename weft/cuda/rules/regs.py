"""Register arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weft.cuda.emitter import Emitter, emits, refers, spells
from weft.cuda.rules.arith import fma
from weft.cuda.rules.elements import member
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index, Inline, Ref, Variable
from weft.cuda.text.small import widener
from weft.cuda.text.spelling import c_type, constant
from weft.cuda.text.tables import IndexTable, is_wide, parenthesised
from weft.ir.core import Op, Value
from weft.ir.types import DType, RegsType, float32
from weft.ops import regs
from weft.ops.check import dtype_of

# Narrowing conversions are paired. With single conversions that read an accumulator immediately after its wait, ptxas was seen
# to serialize the kernel's wgmma instructions (warning C7514).
_NARROW = (
    "DEV void {name}({type}* y, float low, float high) {{\n"
    '  u32 pair; asm("cvt.rn.{ptx}x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));\n'
    "  unpack16(y, pair); }}"
)
_NARROW_8 = (
    "DEV void {name}({type}* y, float low, float high) {{\n"
    '  u16 pair; asm("cvt.rn.satfinite.{ptx}x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));\n'
    "  memcpy(y, &pair, 2); }}"
)


_NARROW_16 = (
    "DEV void {name}({type}* y, f16 low, f16 high) {{\n"
    '  u16 pair; asm("cvt.rn.satfinite.{ptx}x2.f16x2 %0, %1;" : "=h"(pair) : "r"(pair16(low, high)));\n'
    "  memcpy(y, &pair, 2); }}"
)


@refers(regs.gather)
def _gather(e: Emitter, op: Op) -> Ref:
    (x,) = op.uses
    return e.picked(e.refs[x], op.attrs["table"])


@emits(regs.narrow)
def _narrow(e: Emitter, op: Op) -> None:
    (x,) = op.uses
    dtype, source = dtype_of(op.result), dtype_of(x)
    name = f"narrow_{dtype.code}" if source == float32 else f"narrow_{source.code}_{dtype.code}"
    text, needs = (_NARROW_8, ()) if dtype.is_fp8() else (_NARROW, ("unpack16",))
    if source != float32:
        text, needs = _NARROW_16, (source.code, "pair16")
    text = text.format(name=name, type=c_type(dtype), ptx=dtype.code.removeprefix("f8"))
    needs = (dtype.code, *needs)
    e.pieces.define(name, Piece(text, needs))
    _by_words(e, op, name, 2)


@emits(regs.widen)
def _widen(e: Emitter, op: Op) -> None:
    (x,) = op.uses
    _by_words(e, op, widener(e.pieces, dtype_of(x), dtype_of(op.result)), 32 // dtype_of(x).bits)


def _by_words(e: Emitter, op: Op, name: str, each: int) -> None:
    """`name(y, x0, x1, ...)` for every group of `each` registers."""
    into, source = e.variable(op.result), e.refs[op.uses[0]]

    def group(index: Index) -> str:
        places = [member(index, each, j) for j in range(each)]
        return f"{name}({into.name} + {places[0]}, {', '.join(map(source.at, places))});"

    e.unrolled((into.count or each) // each, [(op.loc, group)])


_WITHIN = Piece(
    "template <int N, typename T> DEV void within(T* x, T other, bool whole, bool some, int begin, int end) {\n"
    "  if (whole) return;\n  if (!some) {\n    #pragma unroll\n"
    "    for (int j = 0; j < N; ++j) x[j] = other;\n    return;\n  }\n  #pragma unroll\n"
    "  for (int j = 0; j < N; ++j) x[j] = begin <= j && j < end ? x[j] : other; }"
)


@emits(regs.within)
def _within(e: Emitter, op: Op) -> None:
    x, other, whole, some, begin, end = op.operands
    assert x is not None and other is not None and whole is not None and some is not None
    vec, into = op.attrs["vec"], e.variable(op.result)
    e.copy(op.result, e.refs[x])
    name = e.pieces.define("within", _WITHIN)

    def text(index: Index) -> str:
        low = "0" if begin is None else e.at(begin, index)
        high = str(vec) if end is None else e.at(end, index)
        kept = ", ".join([e.at(whole, index), e.at(some, index), low, high])
        return f"{name}<{vec}>({into.name} + {member(index, vec, 0)}, {e.at(other)}, {kept});"

    e.unrolled((into.count or vec) // vec, [(op.loc, text)])


@refers(regs.splat)
def _splat(e: Emitter, op: Op) -> Ref:
    (x,) = op.uses
    if (number := e.number(x)) is not None:
        e.constants[op.result] = number
    return Inline(e.at(x, 0))


@refers(regs.extract)
def _extract(e: Emitter, op: Op) -> Ref:
    (x,) = op.uses
    if (number := e.number(x)) is not None:
        e.constants[op.result] = number
    return Inline(e.at(x, op.attrs["index"]))


@emits(regs.concat)
def _concat(e: Emitter, op: Op) -> None:
    into = e.variable(op.result)
    start = 0
    for part in op.uses:
        count = part.type.count if isinstance(part.type, RegsType) else 1
        e.unrolled(count, [(op.loc, partial(_put, e, into, part, start))])
        start += count


def _put(e: Emitter, into: Variable, part: Value, start: int, index: Index) -> str:
    return f"{into.at(_after(start, index))} = {e.at(part, index)};"


def _after(start: int, index: Index) -> Index:
    if isinstance(index, int):
        return start + index
    return f"{index} + {start}" if start else index


@spells(regs.affine)
def _affine(e: Emitter, op: Op, base: str, *strides: str) -> str:
    dtype = op.result.type.element
    assert isinstance(dtype, DType)
    constants, *tables = op.attrs["offsets"]
    text = base
    for stride, table in zip(strides, tables, strict=True):
        text = _plus(e, dtype, text, _product(e, dtype, stride, table))
    return _plus(e, dtype, text, _entry(e, dtype, constants))


def _entry(e: Emitter, dtype: DType, table: IndexTable) -> str:
    """The table's entry as a constant of the type."""
    if isinstance(e.index, int) or len(set(table)) == 1:
        return constant(table[0 if isinstance(e.index, str) else e.index], dtype)
    text = e.entry(table, e.index)
    return text if dtype.code == "i32" and not is_wide(table) else f"({c_type(dtype)}){parenthesised(text)}"


def _product(e: Emitter, dtype: DType, stride: str, table: IndexTable) -> str:
    factor = _entry(e, dtype, table)
    if factor in (constant(0, dtype), constant(1, dtype)):
        return factor if factor == constant(0, dtype) else stride
    return e.call("mul_wrap", stride, factor)


def _plus(e: Emitter, dtype: DType, x: str, y: str) -> str:
    zero = constant(0, dtype)
    if zero in (x, y):
        return x if y == zero else y
    return e.call("add_wrap", x, y)


@spells(regs.xor)
def _xor(e: Emitter, op: Op, base: str) -> str:
    dtype = op.result.type.element
    assert isinstance(dtype, DType)
    return f"{base} ^ {parenthesised(_entry(e, dtype, op.attrs['offsets']))}"


@emits(regs.dot)
def _dot(e: Emitter, op: Op) -> None:
    a, b, acc = op.uses
    dtype = op.result.type.element
    assert isinstance(dtype, DType)
    into = e.variable(op.result)
    e.copy(op.result, e.refs[acc])
    a_rows = tuple([op.attrs["a_table"][row] for row in op.attrs["rows"]])
    b_rows = tuple([op.attrs["b_table"][column] for column in op.attrs["columns"]])

    def step(index: Index) -> str:
        x, y = _element(e, a, a_rows, index), _element(e, b, b_rows, index)
        return f"{into.at(index)} = {fma(e, op, dtype, x, y, into.at(index))};"

    e.out.bare("#pragma unroll")
    with e.out.braces(f"for (int k = 0; k < {len(a_rows[0])}; ++k)"):
        e.unrolled(into.count or 1, [(op.loc, step)])


def _element(e: Emitter, x: Value, rows: Sequence[IndexTable], index: Index) -> str:
    """The register of `x` at a table indexed by accumulator and k, as a sum of two terms if the table is separable."""
    first = tuple([row[0] for row in rows])
    steps = tuple([entry - rows[0][0] for entry in rows[0]])
    if all(row == tuple([row[0] + step for step in steps]) for row in rows):
        terms = [e.entry(first, index), e.entry(steps, "k")]
        return e.at(x, " + ".join(term for term in terms if term != "0") or 0)
    flat = tuple([entry for row in rows for entry in row])
    return e.at(x, f"{e.array(flat)}[{len(rows[0])} * {index} + k]")
