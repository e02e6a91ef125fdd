"""Facts of `weft.ops.arith`."""

from __future__ import annotations

from weft.analysis.facts import scalar, tile
from weft.analysis.facts.congruence import MOST
from weft.analysis.facts.rule import (
    Hulls,
    Known,
    Rule,
    along,
    anything,
    lifted,
    of_axes,
    two,
    two_of,
    where_equal,
    whole,
)  # fmt: skip
from weft.analysis.facts.scalar import Scalar, Word, constant
from weft.analysis.facts.tile import Axis, Facts
from weft.ir.core import Op, OpDef
from weft.ir.types import DType, Pointer
from weft.ops import arith


def _constant(op: Op, known: Hulls, word: Word) -> Scalar:
    return constant(int(op.attrs["value"]))


def _compared(op: Op, known: Hulls, word: Word) -> Scalar:
    return scalar.compare(op.attrs["predicate"], known[0], known[1])


def _chosen(op: Op, known: Hulls, word: Word) -> Scalar:
    condition, lhs, rhs = known
    return lhs.join(rhs) if condition.value is None else lhs if condition.value else rhs


def _cast(op: Op, known: Hulls, word: Word) -> Scalar:
    (x,), (operand,) = known, op.uses
    source = operand.type.element
    if not isinstance(source, DType) or source.is_floating():
        return word.whole
    return scalar.compare("ne", x, scalar.ZERO) if op.attrs["dtype"].is_bool() else x


def _same_bits(op: Op, known: Hulls, word: Word) -> Scalar:
    """An address is the same for elements of another type, and as an integer modulo its size."""
    (x,), (operand,) = known, op.uses
    source, target = operand.type.element, op.attrs["element"]
    if isinstance(source, Pointer) and isinstance(target, Pointer):
        return x
    if isinstance(source, Pointer) or isinstance(target, Pointer):
        return scalar.between(word.whole.low, word.whole.high, x.rest)
    return word.whole


def _function(op: Op, known: Hulls, word: Word) -> Scalar:
    (x,) = known
    if op.attrs["fn"] == "neg":
        return scalar.sub(scalar.ZERO, x)
    return scalar.absolute(x) if op.attrs["fn"] == "abs" else word.whole


def _shifted_right(op: Op, known: Known, hull: Scalar) -> Facts:
    """A right shift by a constant is a floor division. By the width or more only the sign remains, as if divided by `MOST`."""
    x, amount = (lifted(op, facts) for facts in known)
    bits = amount.hull.value
    if bits is None:
        return where_equal(op, known, hull)
    power = Facts(constant(1 << bits if 0 <= bits < 64 else MOST), amount.axes)
    return of_axes(op, [tile.quotient(d, x, power) for d in range(len(x.axes))], hull)


def _mask(op: Op, known: Known, hull: Scalar) -> Facts:
    a, b = (lifted(op, facts) for facts in known)
    return of_axes(op, [Axis(1, _equal(op.attrs["predicate"], d, a, b)) for d in range(len(a.axes))], hull)


def _equal(predicate: str, d: int, a: Facts, b: Facts) -> int:
    # i < n is constant in an aligned run of i if n is a multiple of the run length; i <= n if n is one less than a multiple.
    if predicate in ("lt", "ge"):
        return tile.lower(d, a, b)
    if predicate in ("gt", "le"):
        return tile.lower(d, b, a)
    return tile.elementwise(d, a, b).constant


def _selected(op: Op, known: Known, hull: Scalar) -> Facts:
    condition, a, b = (lifted(op, facts) for facts in known)
    return of_axes(op, [tile.select(d, condition, a, b) for d in range(len(a.axes))], hull)


def _taken(op: Op, known: Known, hull: Scalar) -> Facts:
    """An integer cast keeps runs: a run that is contiguous modulo one width is so modulo a smaller one too."""
    (x,), (operand,) = known, op.uses
    source, target = operand.type.element, op.attrs["dtype"]
    if not isinstance(source, DType) or not (source.is_int() and target.is_int()) or target.is_bool():
        return where_equal(op, known, hull)
    return of_axes(op, x.axes, hull)


def _set_bits(op: Op, known: Hulls, word: Word) -> Scalar:
    (x,), (operand,) = known, op.uses
    return scalar.popcount(x, operand.type.element.bits)


RULES: dict[OpDef, Rule] = {
    arith.constant: Rule(_constant, whole),
    arith.add: Rule(two(scalar.add), along(tile.add), sums=True),
    arith.sub: Rule(two(scalar.sub), along(tile.sub), sums=True),
    arith.mul: Rule(two(scalar.mul), along(tile.mul), sums=True),
    arith.div: Rule(two_of(scalar.div), along(tile.div)),
    arith.rem: Rule(two_of(scalar.rem), along(tile.rem)),
    arith.shl: Rule(two_of(scalar.shl), along(tile.shl), sums=True),
    arith.shr: Rule(two_of(scalar.shr), _shifted_right),
    arith.and_: Rule(two_of(scalar.and_), along(tile.and_)),
    arith.or_: Rule(two_of(scalar.or_), along(tile.or_)),
    arith.xor: Rule(two_of(scalar.xor), along(tile.xor)),
    arith.minimum: Rule(two(scalar.minimum), along(tile.minimum)),
    arith.maximum: Rule(two(scalar.maximum), along(tile.maximum)),
    arith.popcount: Rule(_set_bits),
    arith.umulhi: Rule(two_of(scalar.high_half)),
    arith.cmp: Rule(_compared, _mask),
    arith.select: Rule(_chosen, _selected),
    arith.cast: Rule(_cast, _taken, widens=True),
    arith.bitcast: Rule(_same_bits),
    arith.math: Rule(_function),
    **dict.fromkeys(
        (arith.clamp, arith.div_rn, arith.fma, arith.packed, arith.packed_fma, arith.unpack_int4),
        Rule(anything),
    ),
}
NOTHING: dict[OpDef, str] = {}
