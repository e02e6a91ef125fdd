"""What is known of the elements of a tile, axis by axis, beside what holds of all of them.

    %o = tile.arange {start = 0, end = 64}        runs of 64 count up, and start at 0
    %p = memory.addptr (tile.splat %in), %o       runs of 64 elements count up, and start at 0 modulo 16 bytes
    %m = arith.cmp %o, (tile.splat %n)            runs of 16 are equal                                (%n is a multiple of 16)

Runs are aligned: a run of 4 starts at an index that is a multiple of 4. They count up modulo the width of the type, so a run
whose first number is a multiple of its length never contains the point where the type wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from weft.analysis.facts import congruence, scalar
from weft.analysis.facts.congruence import UNKNOWN, Congruence, multiple_of, power_of_two_part
from weft.analysis.facts.scalar import Scalar


class Axis(NamedTuple):
    """Along one axis: runs of `contiguous` elements count up by one (pointers: by one element), the first of each is `start`;
    runs of `constant` elements are equal."""

    contiguous: int = 1
    constant: int = 1
    start: Congruence = UNKNOWN


class Facts(NamedTuple):
    """Facts about a value. `hull` holds of each element (of a pointer: its address in bytes), `axes` of a tile's axes; a scalar
    has none. `step` is what counting up by one means in the unit of `hull`."""

    hull: Scalar
    axes: tuple[Axis, ...] = ()
    step: int = 1

    def at(self, axis: int, run: int = 1) -> Congruence:
        """What the elements at multiples of `run` along the axis are (by default all)."""
        (contiguous, _, start), rest = self.axes[axis], self.hull.rest
        if run < contiguous:
            start = start.modulo(run * self.step)
        return start if start.modulus >= rest.modulus else rest

    def multiple(self, axis: int, run: int = 1) -> int:
        """What divides the elements at multiples of `run` along the axis."""
        return max(self.at(axis, run).divisor, self.hull.divisor)

    @property
    def every(self) -> int:
        """What divides every element."""
        return self.hull.divisor

    @property
    def contiguous(self) -> tuple[int, ...]:
        """The lengths of runs that count up, by axis."""
        return tuple([axis.contiguous for axis in self.axes])

    @property
    def constant(self) -> tuple[int, ...]:
        """The lengths of runs that are equal, by axis."""
        return tuple([axis.constant for axis in self.axes])

    @property
    def divisible(self) -> tuple[int, ...]:
        """What divides the first elements of the runs that count up, by axis."""
        return tuple([self.multiple(d, axis.contiguous) for d, axis in enumerate(self.axes)])

    def join(self, other: Facts) -> Facts:
        """What holds of both."""
        if self == other:
            return self
        axes: list[Axis] = []
        for d, (a, b) in enumerate(zip(self.axes, other.axes, strict=True)):
            run = min(a.contiguous, b.contiguous)
            axes.append(Axis(run, min(a.constant, b.constant), self.at(d, run).join(other.at(d, run))))
        return Facts(self.hull.join(other.hull), tuple(axes), self.step)


def of(hull: Scalar, axes: tuple[Axis, ...], step: int = 1) -> Facts:
    """Facts of a tile, of which each axis may say something that holds of all elements."""
    rest = hull.rest
    for axis in axes:
        if axis.start.modulus > rest.modulus:
            every = axis.start.modulo(step) if axis.contiguous > 1 else axis.start
            rest = every if every.modulus > rest.modulus else rest
    return Facts(hull if rest is hull.rest else scalar.between(hull.low, hull.high, rest), axes, step)


def equal(hull: Scalar, shape: tuple[int, ...], step: int = 1) -> Facts:
    """All elements are one number."""
    return Facts(hull, _whole(shape), step)


@cache
def _whole(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple([Axis(1, size) for size in shape])


AxisRule = Callable[[int, Facts, Facts], Axis]
"""The axis of a result, from its number and both operands."""


def elementwise(d: int, a: Facts, b: Facts) -> Axis:
    """Equal operands give equal results, whatever the function."""
    return Axis(1, min(a.axes[d].constant, b.axes[d].constant))


def add(d: int, a: Facts, b: Facts) -> Axis:
    """One operand counts up while the other stays."""
    (up, same, _), (other_up, other_same, _) = a.axes[d], b.axes[d]
    run, other_run = min(up, other_same), min(other_up, same)
    if other_run > run:
        run = other_run
    return Axis(run, min(same, other_same), congruence.add(a.at(d, run), b.at(d, run)))


def sub(d: int, a: Facts, b: Facts) -> Axis:
    """The first counts up while the second stays; where both count up the difference stays."""
    x, y = a.axes[d], b.axes[d]
    run = min(x.contiguous, y.constant)
    same = max(min(x.constant, y.constant), min(x.contiguous, y.contiguous))
    return Axis(run, same, congruence.sub(a.at(d, run), b.at(d, run)))


def mul(d: int, a: Facts, b: Facts) -> Axis:
    """By one nothing changes."""
    return a.axes[d] if b.hull.value == 1 else b.axes[d] if a.hull.value == 1 else elementwise(d, a, b)


def shl(d: int, a: Facts, b: Facts) -> Axis:
    """By nothing nothing changes."""
    return a.axes[d] if b.hull.value == 0 else elementwise(d, a, b)


def minimum(d: int, a: Facts, b: Facts) -> Axis:
    """Where one is always the smaller one, the result is that."""
    if a.hull.high <= b.hull.low:
        return a.axes[d]
    return b.axes[d] if b.hull.high <= a.hull.low else elementwise(d, a, b)


def maximum(d: int, a: Facts, b: Facts) -> Axis:
    """Where one is always the larger one, the result is that."""
    if a.hull.high <= b.hull.low:
        return b.axes[d]
    return a.axes[d] if b.hull.high <= a.hull.low else elementwise(d, a, b)


def _counts_within(d: int, a: Facts, b: Facts, block: int) -> int:
    """Runs of `a` that count up from a multiple of their length, no longer than `block`, while `b` stays."""
    x = a.axes[d]
    return min(x.contiguous, a.multiple(d, x.contiguous), b.axes[d].constant, block)


def div(d: int, a: Facts, b: Facts) -> Axis:
    """Below zero truncation breaks runs: -8 ... -1 divided by 8 gives -1 once and then zeros."""
    return quotient(d, a, b) if b.hull.value == 1 or a.hull.nonnegative else elementwise(d, a, b)


def quotient(d: int, a: Facts, b: Facts) -> Axis:
    """A quotient that is rounded down stays while the dividend counts up within one multiple of the divisor."""
    if b.hull.value == 1:
        return a.axes[d]
    return Axis(1, max(min(a.axes[d].constant, b.axes[d].constant), _counts_within(d, a, b, b.multiple(d))))


def rem(d: int, a: Facts, b: Facts) -> Axis:
    """A remainder counts up with the dividend, within one multiple of the divisor."""
    if -b.hull.low < a.hull.low and a.hull.high < b.hull.low:
        return a.axes[d]
    run = _counts_within(d, a, b, b.multiple(d)) if a.hull.nonnegative else 1
    return Axis(run, min(a.axes[d].constant, b.axes[d].constant), a.at(d, run).modulo(b.multiple(d)))


def and_(d: int, a: Facts, b: Facts) -> Axis:
    """Low bits that are kept count up, low bits that are cleared make what is left stay."""
    pairs = (a, b), (b, a)
    kept = max(_counts_within(d, x, y, _ones(y.at(d))) for x, y in pairs)
    cleared = max(_counts_within(d, x, y, y.multiple(d)) for x, y in pairs)
    return Axis(
        kept, max(min(a.axes[d].constant, b.axes[d].constant), cleared), congruence.and_(a.at(d, kept), b.at(d, kept))
    )


def or_(d: int, a: Facts, b: Facts) -> Axis:
    """Low bits that are free count up, low bits that are set make what is left stay."""
    pairs = (a, b), (b, a)
    free = max(_counts_within(d, x, y, y.multiple(d)) for x, y in pairs)
    covered = max(_counts_within(d, x, y, _ones(y.at(d))) for x, y in pairs)
    return Axis(
        free, max(min(a.axes[d].constant, b.axes[d].constant), covered), congruence.or_(a.at(d, free), b.at(d, free))
    )


def xor(d: int, a: Facts, b: Facts) -> Axis:
    """Low bits that are free count up."""
    free = max(_counts_within(d, x, y, y.multiple(d)) for x, y in ((a, b), (b, a)))
    return Axis(free, min(a.axes[d].constant, b.axes[d].constant), congruence.xor(a.at(d, free), b.at(d, free)))


def _ones(rest: Congruence) -> int:
    """The power of two below which all bits are known to be set."""
    return min(rest.modulus, power_of_two_part(rest.residue + 1))


def lower(d: int, a: Facts, b: Facts) -> int:
    """Runs in which a < b holds for all or for none: `a` counts up to a multiple of the run, or `b` from one less."""
    x, y = a.axes[d], b.axes[d]
    up = max(_counts_within(d, a, b, b.multiple(d)), _counts_within(d, b, a, _ones(a.at(d))))
    if _between_two(a.hull, b.at(d), 0):
        up = max(up, y.constant)
    if _between_two(b.hull, a.at(d), 1):
        up = max(up, x.constant)
    return max(min(x.constant, y.constant), up)


def _between_two(numbers: Scalar, limit: Congruence, above: int) -> bool:
    """Whether no number with the limit's rest, plus `above`, lies among these, so that a limit is over all of them or none."""
    rest = limit.residue + above
    return (numbers.low - rest) // limit.modulus == (numbers.high - rest) // limit.modulus


def select(d: int, condition: Facts, a: Facts, b: Facts) -> Axis:
    """One of the two for a whole run; one of them everywhere where it is known which."""
    if condition.hull.value is not None:
        return a.axes[d] if condition.hull.value else b.axes[d]
    run = min(a.axes[d].contiguous, b.axes[d].contiguous, condition.axes[d].constant)
    constant = min(condition.axes[d].constant, a.axes[d].constant, b.axes[d].constant)
    return Axis(run, constant, a.at(d, run).join(b.at(d, run)))


def hinted(own: Axis, size: int, contiguous: int, divisible: int, constant: int) -> Axis:
    """An axis with the author's promise."""
    run = min(max(own.contiguous, power_of_two_part(contiguous)), size)
    promised = multiple_of(divisible)
    start = promised if promised.modulus > own.start.modulus else own.start
    return Axis(run, min(max(own.constant, power_of_two_part(constant)), size), start)
