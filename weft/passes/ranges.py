"""Between which numbers integers lie: what can be said without running the kernel, and holds whatever wraps.

    %t = program.thread           0 to 95                (in a block of 96 threads)
    %b = program.id               0 to 22369620          (so many blocks have less than 2**31 threads along the axis)
    %m = arith.mul %b, 96         0 to 2147483520
    %i = arith.add %m, %t         0 to 2147483615
    %j = arith.add %i, %n         -2147483648 to 2147483647

A sum or product that may leave its type is anywhere in the type. The range of a tile or of a register array holds for each of
its elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.ir.core import Func, Op, Region, Value
from weft.ir.define import OpDef
from weft.ir.types import DType, int32
from weft.layout import WARP_SIZE
from weft.ops import arith, control, program, regs, tile

LIMIT = int32.max_value
MOST_ALONG = (LIMIT, 65535, 65535)
"""Blocks along the axes of a grid, at most."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: int
    high: int

    def join(self, other: Range) -> Range:
        """Numbers of either."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def within(self, other: Range) -> bool:
        """Whether all are numbers of the other, too."""
        return other.low <= self.low and self.high <= other.high


Rule = Callable[[Op, tuple[Range, ...]], "Range | None"]
"""The exact range of a result from those of its operands (before it wraps); None where nothing is known."""


def of_type(dtype: DType) -> Range:
    """All numbers of a type."""
    return Range(dtype.min_value, dtype.max_value)


class Ranges:
    """The ranges of a function's integers, in either stage; `exact` are values that are computed without wrapping."""

    def __init__(self, func: Func) -> None:
        self._func = func
        self._block: tuple[int, ...] = func.attrs.get("block", (1, 1, 1))
        self._known: dict[Value, Range] = {}
        self.exact: set[Value] = set()
        self._region(func.body)

    def of(self, value: Value) -> Range | None:
        """The range of an integer value; None for what is none."""
        element = value.type.element
        if not isinstance(element, DType) or element.kind not in ("int", "uint"):
            return None
        return self._known.get(value) or of_type(element)

    def _region(self, region: Region) -> None:
        for op in region.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        if op.kind is control.for_:
            self._counter(op)
        for inner in op.regions:
            self._region(inner)
        if op.kind is control.if_:
            for result, *values in zip(op.results, *(r.terminator.uses for r in op.regions), strict=True):
                found = [self.of(value) for value in values]
                if found[0] is not None and found[1] is not None:
                    self._known[result] = found[0].join(found[1])
        elif len(op.results) == 1 and (whole := self.of(op.result)) is not None:
            self._found(op, whole)

    def _found(self, op: Op, whole: Range) -> None:
        rule = _RULES.get(op.kind)
        found = self._own(op)
        if found is None and rule is not None:
            chosen = list(op.uses)[1:] if op.kind is arith.select else op.uses
            operands = [self.of(value) for value in chosen]
            known = tuple([r for r in operands if r is not None])
            found = rule(op, known) if len(known) == len(operands) else None
        if found is not None and found.within(whole):
            self._known[op.result] = found
            self.exact.add(op.result)

    def _own(self, op: Op) -> Range | None:
        """What says where a thread is."""
        if op.kind is program.thread_id:
            return Range(0, program.threads_of(self._func) - 1)
        if op.kind is tile.arange:
            return Range(op.attrs["start"], op.attrs["end"] - 1)
        if op.kind is program.lane_id:
            return Range(0, WARP_SIZE - 1)
        if op.kind is program.warp_id:
            return Range(0, (program.threads_of(self._func) - 1) // WARP_SIZE)
        if op.kind is program.program_id or op.kind is program.num_programs:
            axis: int = op.attrs["axis"]
            # A grid has less than 2**31 threads along an axis: their numbers are int32.
            most = min(LIMIT // self._block[axis], MOST_ALONG[axis])
            return Range(0, most - 1) if op.kind is program.program_id else Range(1, most)
        return None

    def _counter(self, op: Op) -> None:
        """From the first bound to the last, either way where nothing is known of the step."""
        lower, upper, step = (self.of(value) for value in list(op.uses)[:3])
        assert lower is not None and upper is not None and step is not None
        descending: bool | None = op.attrs["descending"]
        up, down = Range(lower.low, upper.high - 1), Range(upper.low + 1, lower.high)
        if descending is None:
            descending = False if step.low >= 0 else True if step.high <= 0 else None
        found = [way for way, taken in ((up, descending is not True), (down, descending is not False)) if taken]
        found = [way for way in found if way.low <= way.high]
        if found:
            self._known[op.regions[0].args[0]] = found[0].join(found[-1])


def _constant(op: Op, known: tuple[Range, ...]) -> Range | None:
    value = op.attrs["value"]
    return Range(int(value), int(value))


def _add(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    return Range(a.low + b.low, a.high + b.high)


def _sub(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    return Range(a.low - b.high, a.high - b.low)


def _mul(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(corners), max(corners))


def _div(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    return Range(a.low // b.high, a.high // b.low) if a.low >= 0 and b.low > 0 else None


def _rem(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    return Range(0, min(a.high, b.high - 1)) if a.low >= 0 and b.low > 0 else None


def _and(op: Op, known: tuple[Range, ...]) -> Range | None:
    limits = [r.high for r in known if r.low >= 0]
    return Range(0, min(limits)) if limits else None


def _or(op: Op, known: tuple[Range, ...]) -> Range | None:
    if any(r.low < 0 for r in known):
        return None
    return Range(0, (1 << max(r.high for r in known).bit_length()) - 1)


def _shl(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, n = known
    return (
        Range(a.low << n.low, a.high << n.low) if n.low == n.high and 0 <= n.low < op.result.type.element.bits else None
    )


def _shr(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, n = known
    return (
        Range(a.low >> n.low, a.high >> n.low) if n.low == n.high and 0 <= n.low < op.result.type.element.bits else None
    )


def _minimum(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    return Range(min(a.low, b.low), min(a.high, b.high))


def _maximum(op: Op, known: tuple[Range, ...]) -> Range | None:
    a, b = known
    return Range(max(a.low, b.low), max(a.high, b.high))


def _joined(op: Op, known: tuple[Range, ...]) -> Range | None:
    found = known[0]
    for other in known[1:]:
        found = found.join(other)
    return found


def _affine(op: Op, known: tuple[Range, ...]) -> Range | None:
    base, *strides = known
    constants, *tables = op.attrs["offsets"]
    low, high = base.low + min(constants), base.high + max(constants)
    for stride, table in zip(strides, tables, strict=True):
        corners = [edge * factor for edge in (stride.low, stride.high) for factor in (min(table), max(table))]
        low, high = low + min(corners), high + max(corners)
    return Range(low, high)


_RULES: dict[OpDef, Rule] = {
    arith.constant: _constant, arith.add: _add, arith.sub: _sub, arith.mul: _mul, arith.div: _div, arith.rem: _rem,
    arith.and_: _and, arith.or_: _or, arith.xor: _or, arith.shl: _shl, arith.shr: _shr, arith.minimum: _minimum,
    arith.maximum: _maximum, regs.affine: _affine,
    **dict.fromkeys(
        (
            arith.select, arith.cast, program.uniform, tile.hint, tile.splat, tile.expand_dims, tile.broadcast, tile.reshape,
            tile.permute, tile.convert, tile.set_layout, tile.join, tile.extract, regs.splat, regs.extract, regs.gather,
            regs.concat,
        ),
        _joined,
    ),
}  # fmt: skip
