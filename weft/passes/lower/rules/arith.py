"""Lowering of elementwise operations to the cheapest form (`weft.passes.lower.forms`).

arith.add (tile.splat %a), (tile.splat %b)    -->    one scalar addition                        (Splat)
arith.add (tile.arange), (tile.splat %b)      -->    one scalar addition to the thread's base   (Affine)
arith.add %x, %y                              -->    one addition per register                  (Array)
"""

from __future__ import annotations

from weft.analysis.facts.congruence import power_of_two_part
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import DType, RegsType, ScalarType, TileType, Type, float32, int32, wrap
from weft.ops import arith, regs
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.cuts import Groups, bounds, cut_runs, whole_and_some
from weft.passes.lower.forms import Affine, Array, Both, Compare, Exact, Form, Splat, bounded, sum_strides
from weft.passes.lower.placement import leaders_of_runs, splits, union
from weft.passes.lower.state import Lowering, LowerRule


def elementwise(lo: Lowering, op: Op) -> None:
    """The default rule: one scalar operation if all operands are uniform, else an operation on register arrays."""
    tiles = [lo.forms.get(v) for v in op.uses]
    attrs = op.attrs
    if isinstance(type := attrs.get("type"), TileType):
        attrs = {**attrs, "type": ScalarType(type.element)}
    if op.kind.pure and attrs.get("pack", 1) == 1 and all(form is None or isinstance(form, Splat) for form in tiles):
        scalars = [f.value if isinstance(f, Splat) else lo.scalar(v) for f, v in zip(tiles, op.uses, strict=True)]
        made = lo.create(op.kind, tuple(scalars), attrs, (), op.results[0].name)
        lo.define(op, *[Splat(value, _count(result.type)) for value, result in zip(made, op.results, strict=True)])
        return
    operands = [lo.array(f) if f is not None else lo.scalar(v) for f, v in zip(tiles, op.uses, strict=True)]
    lo.define(op, *map(Array, lo.create(op.kind, tuple(operands), attrs)))


def _count(type: Type) -> int:
    assert isinstance(type, TileType)
    return type.registers


Strides = tuple[tuple[Value, Table], ...]


def affine(base: Value, const: Table, strides: Strides, exact: Exact | None = None) -> Affine:
    """An affine form with its constants in the range that differences can have (`bounded`)."""
    bits = base.type.element.bits
    return Affine(base, bounded(const, bits), tuple([(s, bounded(table, bits)) for s, table in strides]), exact)


def _exactly(lo: Lowering, kind: OpDef, *forms: Affine) -> Exact | None:
    """The exact value of a sum or product, if an operand has one that may differ from its base plus constants."""
    if all(form.exact is None for form in forms):
        return None
    return lambda registers: lo.emit(kind, *(lo.array(lo.picked(form, registers)) for form in forms))


def _integers(lo: Lowering, op: Op) -> tuple[Affine, Affine] | None:
    """Both operands as affine forms, if they are integers and not both uniform."""
    element = op.result.type.element
    if not isinstance(element, DType) or not element.is_int() or element.is_bool():
        return None
    if not isinstance(op.result.type, TileType):
        return None
    forms = [lo.form(v) for v in op.uses]
    lhs, rhs = (lo.as_affine(form) for form in forms)
    if lhs is None or rhs is None or all(isinstance(form, Splat) for form in forms):
        return None
    return lhs, rhs


def kept_scalar(lo: Lowering, op: Op) -> bool:
    """Copy an operation on scalars; False for one on tiles."""
    if isinstance(op.results[0].type, TileType):
        return False
    lo.env[op.result] = lo.keep(op, tuple(None if v is None else lo.env[v] for v in op.operands))[0]
    return True


def add(lo: Lowering, op: Op) -> None:
    """Sum or difference: the operation is applied to bases, constants and strides separately."""
    if kept_scalar(lo, op):
        return
    both = _integers(lo, op)
    if both is None:
        elementwise(lo, op)
        return
    lhs, rhs = both
    sign = -1 if op.kind is arith.sub else 1
    base: Value = lo.add(lhs.base, rhs.base) if sign > 0 else lo.emit(arith.sub, lhs.base, rhs.base)
    const = tuple([a + sign * b for a, b in zip(lhs.const, rhs.const, strict=True)])
    strides = sum_strides(lhs.strides, rhs.strides, sign)
    lo.define(op, affine(base, const, strides, _exactly(lo, op.kind, lhs, rhs)))


def mul(lo: Lowering, op: Op) -> None:
    """Product with a uniform factor: it multiplies the base, and becomes a stride of the constants if it is not constant."""
    if kept_scalar(lo, op):
        return
    both = _integers(lo, op)
    if both is None or not (both[0].uniform or both[1].uniform):
        elementwise(lo, op)
        return
    varying, uniform = both if both[1].uniform else (both[1], both[0])
    lo.define(op, _times(lo, varying, uniform.base, _exactly(lo, op.kind, *both)))


def _times(lo: Lowering, form: Affine, factor: Value, exact: Exact | None) -> Affine:
    base = lo.mul(form.base, factor)
    known = lo.constants.get(factor)
    if isinstance(known, int):
        const = tuple([c * known for c in form.const])
        strides = tuple([(stride, tuple([t * known for t in table])) for stride, table in form.strides])
        return affine(base, const, strides if known else (), exact)
    scaled = tuple([(lo.mul(stride, factor), table) for stride, table in form.strides])
    own = ((factor, form.const),) if any(form.const) else ()
    return affine(base, (0,) * form.count, sum_strides(own, scaled), exact)


def shl(lo: Lowering, op: Op) -> None:
    """A left shift by a constant is a product."""
    if kept_scalar(lo, op):
        return
    both = _integers(lo, op)
    amount = lo.constants.get(both[1].base) if both and both[1].uniform else None
    if both is None or not isinstance(amount, int) or not 0 <= amount < both[0].base.type.element.bits:
        elementwise(lo, op)
        return
    element = both[0].base.type.element
    assert isinstance(element, DType)
    factor = lo.constant(wrap(1 << amount, element), element)
    lo.define(op, _times(lo, both[0], factor, _exactly(lo, op.kind, *both)))


def divided(lo: Lowering, op: Op) -> None:
    """Quotient and remainder of a coordinate by a constant power of two. They select bits of the coordinate, so the result is
    again a linear map of the thread's index."""
    if kept_scalar(lo, op):
        return
    part = _bits_of(lo, op)
    if part is None:
        elementwise(lo, op)
    else:
        lo.define(op, part)


LARGEST = int32.max_value
"""The largest constant of an affine form that does not overflow its type."""


def _bits_of(lo: Lowering, op: Op) -> Affine | None:
    both = _integers(lo, op)
    if both is None or not both[1].uniform:
        return None
    form, divisor = both[0], lo.constants.get(both[1].base)
    columns = lo.map_of(form.base)
    if columns is None or form.strides or form.exact is not None or not isinstance(divisor, int):
        return None
    if divisor <= 0 or divisor & (divisor - 1) or min(form.const) < 0 or max(form.const) > LARGEST:
        return None
    if not splits(union(form.const), *map(union, columns)):
        return None

    def part(table: Table) -> Table:
        return tuple([entry // divisor if op.kind is arith.div else entry % divisor for entry in table])

    return Affine(lo.of_thread(*map(part, columns)), part(form.const))


def cast(lo: Lowering, op: Op) -> None:
    """A widening integer cast keeps the affine form for addresses. `exact` computes the wrapped value if it is needed itself.

    A cast of whole words of registers between narrow numbers and floats uses packed instructions, of a thread's vectors too."""
    dtype: DType = op.attrs["dtype"]
    (source,) = op.uses
    was = source.type.element
    if isinstance(op.result.type, RegsType) and isinstance(was, DType) and dtype.is_floating():
        packed = _packed(lo, lo.scalar(source), was, dtype, op.attrs["rounding"])
        if packed is not None:
            lo.env[op.result] = packed
            return
    if kept_scalar(lo, op):
        return
    form = lo.form(source)
    widens = isinstance(was, DType) and was.is_int() and not was.is_bool() and dtype.is_int() and dtype.bits > was.bits
    if isinstance(was, DType) and not isinstance(form, Splat):
        packed = _packed(lo, lo.array(form), was, dtype, op.attrs["rounding"]) if dtype.is_floating() else None
        if packed is not None:
            lo.define(op, Array(packed))
            return
    if not isinstance(form, Affine) or not widens:
        elementwise(lo, op)
        return

    def exact(registers: Table) -> Value:
        return lo.emit(arith.cast, lo.array(lo.picked(form, registers)), dtype=dtype)

    strides = tuple([(lo.cast(stride, dtype), table) for stride, table in form.strides])
    lo.define(op, Affine(lo.cast(form.base, dtype), form.const, strides, None if form.uniform else exact))


def _packed(lo: Lowering, x: Value, was: DType, dtype: DType, rounding: str) -> Value | None:
    """A cast to floats by `regs.widen` and `regs.narrow`; if need be by way of float32, which has every number that widens."""
    assert isinstance(x.type, RegsType)
    if (was.is_fp8() or dtype.is_fp8()) and not lo.target.has_fp8_cvt:
        return None
    if was in regs.NARROW.get(dtype, ()) and rounding == "rn" and x.type.count % 2 == 0:
        return lo.emit(regs.narrow, x, dtype=dtype)
    if was not in regs.WIDEN or x.type.count % (32 // was.bits):
        return None
    if dtype in regs.WIDEN[was]:
        return lo.emit(regs.widen, x, dtype=dtype)
    wide = lo.emit(regs.widen, x, dtype=float32)
    return _packed(lo, wide, float32, dtype, rounding) or lo.emit(arith.cast, wide, dtype=dtype, rounding=rounding)


def cmp(lo: Lowering, op: Op) -> None:
    """An integer comparison is deferred until it is known for which registers it is needed."""
    if kept_scalar(lo, op):
        return
    lhs, rhs = (lo.form(v) for v in op.uses)
    a, b = lo.as_affine(lhs), lo.as_affine(rhs)
    pointers = not isinstance(op.uses[0].type.element, DType)
    if a is None or b is None or pointers or (isinstance(lhs, Splat) and isinstance(rhs, Splat)):
        elementwise(lo, op)
        return
    # One comparison serves a run of elements for which it is known to be the same, as of columns with a multiple of 8.
    linear, runs = linear_of(op.result), lo.facts()[op.result].constant
    alike = leaders_of_runs(linear, tuple(map(power_of_two_part, runs)))
    lo.define(op, Compare(op.attrs["predicate"], a, b, alike))


def and_(lo: Lowering, op: Op) -> None:
    """A conjunction of deferred comparisons is deferred too."""
    if kept_scalar(lo, op):
        return
    lhs, rhs = (lo.form(v) for v in op.uses)
    lazy = isinstance(lhs, Compare | Both) or isinstance(rhs, Compare | Both)
    if not lazy or isinstance(lhs, Affine) or isinstance(rhs, Affine):
        elementwise(lo, op)
        return
    lo.define(op, Both(lhs, rhs, lo.count(lhs)))


MOST_BITS = 16
"""Of registers that lie several in a word, so that selecting them one by one takes them apart."""


def select(lo: Lowering, op: Op) -> None:
    """Where a mask cuts runs of narrow registers, only those that it does not have whole are looked at one by one."""
    if not isinstance(op.result.type, TileType):
        kept_scalar(lo, op)
        return
    mask, x, other = (lo.forms.get(v) for v in op.uses)
    runs = _runs(op, mask) if isinstance(x, Array) and isinstance(other, Splat) else ()
    if not runs or mask is None or not isinstance(x, Array) or not isinstance(other, Splat):
        elementwise(lo, op)
        return
    kept = *whole_and_some(lo, mask, runs), *bounds(lo, mask, runs)
    made: Value = lo.emit(regs.within, x.value, other.value, *kept, vec=len(runs[0]), name=op.result.name)
    lo.define(op, Array(made))


def _runs(op: Op, mask: Form | None) -> Groups:
    """The runs of neighbouring registers that a mask may cut, if they are long; empty if there are none."""
    element = op.result.type.element
    if not isinstance(element, DType) or element.bits > MOST_BITS or mask is None:
        return ()
    return cut_runs(mask, _count(op.result.type))


RULES: dict[OpDef, LowerRule] = {
    arith.select: select,
    arith.add: add,
    arith.sub: add,
    arith.mul: mul,
    arith.shl: shl,
    arith.div: divided,
    arith.rem: divided,
    arith.cast: cast,
    arith.cmp: cmp,
    arith.and_: and_,
}
