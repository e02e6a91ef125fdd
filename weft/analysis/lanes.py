"""How a value may differ between the lanes of a warp: in no way, in its low bits alone, or in any way.

    program.thread                  5          bits 0 to 4 number the lanes
    program.id * 128 + thread       5          a multiple of 32 carries nothing into the bits above
    thread // 32, thread >> 5       WARP       the bits that differ are gone
    thread < 64                     WARP       bits 5 and up decide it
    thread * 3, thread < 50         ANY

`weft.analysis.scopes` computes the spread of every value, and has the rules for control flow. Transfer functions here are for
operations on integers; other operations on values that differ give values that differ in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.analysis.facts import ValueFacts
from weft.analysis.facts.scalar import Scalar
from weft.ir.core import Op, OpDef, Scope, Value
from weft.ir.types import DType
from weft.ops import arith, program, warp

Spread = int
"""BLOCK, WARP, or the number of low bits in which lanes of a warp may differ. The join of two is the maximum."""
BLOCK, WARP, ANY = -1, 0, 64
LANES = 5
"""The bits of a lane's number."""

STARTS: dict[OpDef, Spread] = {program.thread_id: LANES, program.lane_id: LANES, warp.shuffle_idx: BLOCK}
"""Operations whose results differ less than their scope says, if their operands are uniform."""


def spread_of(scope: Scope) -> Spread:
    """The spread of a value of which only the scope is known."""
    return {"block": BLOCK, "warp": WARP, "thread": ANY}[scope]


def scope_of(spread: Spread) -> Scope:
    """The scope of a value."""
    return "block" if spread == BLOCK else "warp" if spread == WARP else "thread"


Hull = Callable[[int], "Scalar | None"]
"""What is known of an operand, by its number, if it is an integer."""
Rule = Callable[[Op, Sequence[Spread], Hull], Spread]


def spread_after(op: Op, given: Sequence[Spread], facts: ValueFacts) -> Spread:
    """The spread of an operation's results; that of some operand is above WARP."""
    rule = RULES.get(op.kind)
    if rule is None:
        return ANY

    operands = tuple(op.uses)

    def hull(number: int) -> Scalar | None:
        return _hull(operands[number], facts)

    spread = rule(op, given, hull)
    known = _hull(op.result, facts) if spread > BLOCK and op.kind is not warp.shuffle_idx else None
    if known is not None and known.value is not None:
        return BLOCK
    return spread if spread < op.result.type.element.bits else ANY


def _hull(value: Value, facts: ValueFacts) -> Scalar | None:
    element = value.type.element
    return facts.hull(value) if isinstance(element, DType) and element.kind in ("int", "uint") else None


def _sum(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """The sum of a value and a uniform multiple of its low part, which carries nothing into the bits above it."""
    one, other = given
    if min(one, other) > WARP:
        return ANY
    varying, uniform = (one, hull(1)) if one > other else (other, hull(0))
    return varying if _is_multiple(uniform, varying) else ANY


def _difference(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    varying, uniform = given
    return varying if uniform <= WARP and _is_multiple(hull(1), varying) else ANY


def _product(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """A multiplication by a power of two, as a shift."""
    one, other = given
    varying, factor = (one, hull(1)) if one > other else (other, hull(0))
    exponent = _exponent(factor)
    return ANY if exponent is None else varying + exponent


def _quotient(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """A quotient by a power of two as a shift; one by a multiple of the low part depends on the bits above it alone."""
    varying, divided, divisor = given[0], hull(0), hull(1)
    if given[1] > WARP or divided is None or not divided.nonnegative or divisor is None or divisor.low < 1:
        return ANY
    exponent = _exponent(divisor)
    if exponent is not None:
        return max(varying - exponent, WARP)
    return WARP if _is_multiple(divisor, varying) else ANY


def _remainder(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    varying, divided, divisor = given[0], hull(0), hull(1)
    if given[1] > WARP or divided is None or not divided.nonnegative or divisor is None or divisor.low < 1:
        return ANY
    exponent = _exponent(divisor)
    if exponent is not None:
        return min(varying, exponent)
    return varying if _is_multiple(divisor, varying) else ANY


def _bitwise(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    return max(*given, WARP)


def _masked(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """`x & mask`: the varying bits that a constant mask keeps."""
    one, other = given
    varying, mask = (one, hull(1)) if one > other else (other, hull(0))
    if mask is None or mask.value is None or min(one, other) > WARP:
        return max(*given, WARP)
    return (mask.value & ((1 << varying) - 1)).bit_length()


def _left(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    amount = hull(1)
    return ANY if amount is None or amount.value is None or amount.low < 0 else given[0] + amount.low


def _right(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    amount = hull(1)
    if amount is None or amount.value is None or amount.low < 0 or given[0] == ANY:
        return ANY
    return max(given[0] - amount.low, WARP)


def _compared(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """A comparison with a uniform value that the low part cannot decide, or one that is always true or false."""
    predicate: str = op.attrs["predicate"]
    one, other = hull(0), hull(1)
    if one is None or other is None:
        return ANY
    if _decided(one, other, predicate):
        return BLOCK
    varying, uniform = given
    if uniform > varying:
        varying, uniform, other, predicate = uniform, varying, one, _SWAPPED.get(predicate, predicate)
    if uniform > WARP or varying == ANY:
        return ANY
    size = 1 << varying
    # The upper bits decide `x < n` and `x >= n` if the low bits of n are zeros, `x <= n` and `x > n` if they are ones.
    wanted = {"lt": 0, "ge": 0, "le": size - 1, "gt": size - 1}.get(predicate)
    return WARP if other.rest.modulus % size == 0 and other.rest.residue % size == wanted else ANY


_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _decided(one: Scalar, other: Scalar, predicate: str) -> bool:
    below, above = one.high < other.low, one.low > other.high
    if predicate in ("lt", "ge"):
        return below or one.low >= other.high
    if predicate in ("le", "gt"):
        return above or one.high <= other.low
    return below or above


def _selected(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    condition, *chosen = given
    return max(condition, *chosen) if condition <= WARP else ANY


def _cast(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """Between integers the low bits stay, and the bits above them are copies of uniform ones."""
    dtype: DType = op.attrs["dtype"]
    return given[0] if hull(0) is not None and dtype.kind in ("int", "uint") else ANY


def _shuffled(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """All lanes of the warp take the value of one lane."""
    return WARP if given[1] <= WARP else ANY


def _voted(op: Op, given: Sequence[Spread], hull: Hull) -> Spread:
    """All lanes of the warp get the same word."""
    return WARP


def _is_multiple(uniform: Scalar | None, bits: Spread) -> bool:
    return uniform is not None and bits < ANY and uniform.divisor % (1 << bits) == 0


def _exponent(number: Scalar | None) -> int | None:
    """The exponent of a constant power of two."""
    value = None if number is None else number.value
    return value.bit_length() - 1 if value is not None and value > 0 and value & (value - 1) == 0 else None


RULES: dict[OpDef, Rule] = {
    arith.add: _sum,
    arith.sub: _difference,
    arith.mul: _product,
    arith.div: _quotient,
    arith.rem: _remainder,
    arith.and_: _masked,
    arith.or_: _bitwise,
    arith.xor: _bitwise,
    arith.shl: _left,
    arith.shr: _right,
    arith.cmp: _compared,
    arith.select: _selected,
    arith.cast: _cast,
    warp.shuffle_idx: _shuffled,
    warp.vote: _voted,
}
