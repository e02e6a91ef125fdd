"""Register arrays, for lowered IR and thread-level code.

Every index is a compile-time constant, so that arrays stay in registers. Each thread has its own value of a scalar, uniform or
not.
"""

from __future__ import annotations

from weft.ir.core import Value
from weft.ir.define import op
from weft.ir.types import (
    DType,
    RegsType,
    ScalarType,
    Type,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int8,
    int32,
    uint8,
)
from weft.ops.check import boolean, dtype_of, floating, integer, regs, require, same_type, scalar

Table = tuple[int, ...]
NARROW = {float16: (float32,), bfloat16: (float32,), float8e4nv: (float32, float16), float8e5: (float32, float16)}
"""The result types of `narrow`, and what it takes for each; the last two only on targets with fp8 conversions."""
WIDEN = {
    bfloat16: (float32,),
    **dict.fromkeys((float8e4nv, float8e5, int8, uint8), (float16, float32)),
}
"""The operand types of `widen`, and what it gives for each; fp8 only on targets with its conversions."""


@op("regs.gather")
def gather(x: Value, table: Table) -> Type:
    """`out[i] = x[table[i]]`: permute, repeat or drop registers."""
    t = regs(x)
    require(all(0 <= i < t.count for i in table), "a table entry is outside the array")
    return RegsType(t.element, len(table))


@op("regs.concat")
def concat(*parts: Value) -> Type:
    """Concatenation of register arrays; a scalar is an array of one."""
    counts = [p.type.count if isinstance(p.type, RegsType) else 1 for p in parts]
    require(len({p.type.element for p in parts}) == 1, "parts of different element types")
    return RegsType(parts[0].type.element, sum(counts))


@op("regs.narrow", stage="lowered")
def narrow(x: Value, dtype: DType) -> Type:
    """Registers of floats cast to 16- or 8-bit floats, rounded as by `arith.cast`, two registers per instruction."""
    t = regs(x)
    require(t.count % 2 == 0, "pairs are needed: {}", t)
    require(t.element in NARROW.get(dtype, ()), "no type to narrow to: {}", dtype)
    return RegsType(dtype, t.count)


@op("regs.widen", stage="lowered")
def widen(x: Value, dtype: DType) -> Type:
    """Registers of 8- or 16-bit numbers cast to wider floats, which is exact, a 32-bit word of them at a time: without the
    conversion instructions that take one number each."""
    t, source = regs(x), dtype_of(x)
    require(t.count % (32 // source.bits) == 0, "whole words are needed: {}", t)
    require(dtype in WIDEN.get(source, ()), "{} does not widen to {}", source, dtype)
    return RegsType(dtype, t.count)


@op("regs.within", stage="lowered")
def within(x: Value, other: Value, whole: Value, some: Value, begin: Value | None, end: Value | None, vec: int) -> Type:
    """`x` in runs of `vec` registers that are `whole`, the scalar `other` in those of which there are not even `some`, and in
    the others `x` from number `begin` to before `end`."""
    t = regs(x)
    scalar(other)
    boolean(whole)
    runs = t.count // vec
    boolean(some)
    require(t.count % vec == 0 and regs(whole).count == runs == regs(some).count, "a predicate per run")
    require(other.type.element == t.element, "{} among {}", other.type, t)
    require(all(n is None or n.type == RegsType(int32, runs) for n in (begin, end)), "a number per run")
    return t


@op("regs.splat")
def splat(x: Value, count: int) -> Type:
    """`count` copies of a scalar."""
    scalar(x)
    return RegsType(x.type.element, count)


@op("regs.affine")
def affine(base: Value, *strides: Value, offsets: tuple[Table, ...]) -> Type:
    """`out[i] = base + offsets[0][i] + strides[0] * offsets[1][i] + strides[1] * offsets[2][i] + ...` of integers."""
    scalar(base)
    integer(base)
    for stride in strides:
        same_type(base, stride)
    require(len(offsets) == len(strides) + 1, "one table of constants, and one per stride")
    return RegsType(base.type.element, len(offsets[0]))


@op("regs.xor", stage="lowered")
def xor(base: Value, offsets: Table) -> Type:
    """`out[i] = base ^ offsets[i]` of integers."""
    scalar(base)
    integer(base)
    return RegsType(base.type.element, len(offsets))


@op("regs.extract")
def extract(x: Value, index: int) -> Type:
    """One register as a scalar."""
    t = regs(x)
    require(0 <= index < t.count, "the index is outside the array")
    return ScalarType(t.element)


@op("regs.dot", updates="acc")
def dot(
    a: Value, b: Value, acc: Value, rows: Table, columns: Table, a_table: tuple[Table, ...], b_table: tuple[Table, ...]
) -> Type:
    """`acc[r] = fma(a[a_table[rows[r]][k]], b[b_table[columns[r]][k]], acc[r])` for k in increasing order."""
    t = regs(acc)
    floating(acc)
    require(len(rows) == len(columns) == t.count, "a row and a column per accumulator")
    return t
