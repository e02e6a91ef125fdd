"""The lattice of tile facts: contiguous and constant runs along each axis, next to the interval of all elements.

    %o = tile.arange {start = 0, end = 64}        contiguous runs of 64 that start at 0
    %p = memory.addptr (tile.splat %in), %o       contiguous runs of 64 elements, 16-byte aligned
    %m = arith.cmp %o, (tile.splat %n)            constant runs of 16                          (%n is a multiple of 16)

Runs are aligned: a run of 4 starts at an index that is a multiple of 4. A run is contiguous modulo the width of the type. If
its first number is a multiple of its length, it does not contain the type's wrap point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from weft.analysis.facts import congruence, scalar
from weft.analysis.facts.congruence import UNKNOWN, Congruence, multiple_of, power_of_two_part
from weft.analysis.facts.scalar import Scalar


class Axis(NamedTuple):
    """The runs along one axis: the elements of a run of length `contiguous` increase by one (pointers: by one element) from a
    first number that satisfies `start`. The elements of a run of length `constant` are equal."""

    contiguous: int = 1
    constant: int = 1
    start: Congruence = UNKNOWN


class Facts(NamedTuple):
    """The facts of a value. `hull` is the interval of all elements (of byte addresses, for pointers). `axes` are the runs along
    a tile's axes; a scalar has none. `step` is the difference of neighbours in a contiguous run, in the unit of `hull`."""

    hull: Scalar
    axes: tuple[Axis, ...] = ()
    step: int = 1

    def at(self, axis: int, run: int = 1) -> Congruence:
        """The congruence of the elements whose index along the axis is a multiple of `run` (by default all elements)."""
        (contiguous, _, start), rest = self.axes[axis], self.hull.rest
        if run < contiguous:
            start = start.modulo(run * self.step)
        return start if start.modulus >= rest.modulus else rest

    def multiple(self, axis: int, run: int = 1) -> int:
        """The largest known divisor of the elements whose index along the axis is a multiple of `run`."""
        return max(self.at(axis, run).divisor, self.hull.divisor)

    @property
    def every(self) -> int:
        """The largest known divisor of every element."""
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
        """The facts that hold for both."""
        if self == other:
            return self
        axes: list[Axis] = []
        for d, (a, b) in enumerate(zip(self.axes, other.axes, strict=True)):
            run = min(a.contiguous, b.contiguous)
            axes.append(Axis(run, min(a.constant, b.constant), self.at(d, run).join(other.at(d, run))))
        return Facts(self.hull.join(other.hull), tuple(axes), self.step)


def of(hull: Scalar, axes: tuple[Axis, ...], step: int = 1) -> Facts:
    """The facts of a tile. A congruence of an axis that holds for all elements strengthens the hull."""
    rest = hull.rest
    for axis in axes:
        if axis.start.modulus > rest.modulus:
            every = axis.start.modulo(step) if axis.contiguous > 1 else axis.start
            rest = every if every.modulus > rest.modulus else rest
    return Facts(hull if rest is hull.rest else scalar.between(hull.low, hull.high, rest), axes, step)


def equal(hull: Scalar, shape: tuple[int, ...], step: int = 1) -> Facts:
    """The facts of a tile whose elements are equal."""
    return Facts(hull, _whole(shape), step)


@cache
def _whole(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple([Axis(1, size) for size in shape])


AxisRule = Callable[[int, Facts, Facts], Axis]
"""The runs of a result along one axis, from the index of the axis and the facts of both operands."""


def elementwise(d: int, a: Facts, b: Facts) -> Axis:
    """Any elementwise function: equal operands give equal results."""
    return Axis(1, min(a.axes[d].constant, b.axes[d].constant))


def add(d: int, a: Facts, b: Facts) -> Axis:
    """The sum is contiguous where one operand is contiguous and the other is constant."""
    (up, same, _), (other_up, other_same, _) = a.axes[d], b.axes[d]
    run, other_run = min(up, other_same), min(other_up, same)
    if other_run > run:
        run = other_run
    return Axis(run, min(same, other_same), congruence.add(a.at(d, run), b.at(d, run)))


def sub(d: int, a: Facts, b: Facts) -> Axis:
    """The difference is contiguous where the first operand is contiguous and the second constant; it is constant where both are
    contiguous."""
    x, y = a.axes[d], b.axes[d]
    run = min(x.contiguous, y.constant)
    same = max(min(x.constant, y.constant), min(x.contiguous, y.contiguous))
    return Axis(run, same, congruence.sub(a.at(d, run), b.at(d, run)))


def mul(d: int, a: Facts, b: Facts) -> Axis:
    """Multiplication by one keeps the runs."""
    return a.axes[d] if b.hull.value == 1 else b.axes[d] if a.hull.value == 1 else elementwise(d, a, b)


def shl(d: int, a: Facts, b: Facts) -> Axis:
    """A shift by zero keeps the runs."""
    return a.axes[d] if b.hull.value == 0 else elementwise(d, a, b)


def minimum(d: int, a: Facts, b: Facts) -> Axis:
    """If one operand is always the smaller one, the result is that operand."""
    if a.hull.high <= b.hull.low:
        return a.axes[d]
    return b.axes[d] if b.hull.high <= a.hull.low else elementwise(d, a, b)


def maximum(d: int, a: Facts, b: Facts) -> Axis:
    """If one operand is always the larger one, the result is that operand."""
    if a.hull.high <= b.hull.low:
        return b.axes[d]
    return a.axes[d] if b.hull.high <= a.hull.low else elementwise(d, a, b)


def _counts_within(d: int, a: Facts, b: Facts, block: int) -> int:
    """The length of contiguous runs of `a` that start at a multiple of their length, limited to `block` and to constant runs of
    `b`."""
    x = a.axes[d]
    return min(x.contiguous, a.multiple(d, x.contiguous), b.axes[d].constant, block)


def div(d: int, a: Facts, b: Facts) -> Axis:
    """Truncating division. Negative dividends break runs: -8 ... -1 divided by 8 gives one -1 and then zeros."""
    return quotient(d, a, b) if b.hull.value == 1 or a.hull.nonnegative else elementwise(d, a, b)


def quotient(d: int, a: Facts, b: Facts) -> Axis:
    """Floor division: the quotient is constant while the dividend is contiguous within one multiple of the divisor."""
    if b.hull.value == 1:
        return a.axes[d]
    return Axis(1, max(min(a.axes[d].constant, b.axes[d].constant), _counts_within(d, a, b, b.multiple(d))))


def rem(d: int, a: Facts, b: Facts) -> Axis:
    """The remainder is contiguous with the dividend, within one multiple of the divisor."""
    if -b.hull.low < a.hull.low and a.hull.high < b.hull.low:
        return a.axes[d]
    run = _counts_within(d, a, b, b.multiple(d)) if a.hull.nonnegative else 1
    return Axis(run, min(a.axes[d].constant, b.axes[d].constant), a.at(d, run).modulo(b.multiple(d)))


def and_(d: int, a: Facts, b: Facts) -> Axis:
    """A mask that keeps the low bits keeps contiguous runs; one that clears the low bits makes them constant."""
    pairs = (a, b), (b, a)
    kept = max(_counts_within(d, x, y, _ones(y.at(d))) for x, y in pairs)
    cleared = max(_counts_within(d, x, y, y.multiple(d)) for x, y in pairs)
    return Axis(
        kept, max(min(a.axes[d].constant, b.axes[d].constant), cleared), congruence.and_(a.at(d, kept), b.at(d, kept))
    )


def or_(d: int, a: Facts, b: Facts) -> Axis:
    """Where the other operand's low bits are 0, contiguous runs stay contiguous; where they are 1, runs become constant."""
    pairs = (a, b), (b, a)
    free = max(_counts_within(d, x, y, y.multiple(d)) for x, y in pairs)
    covered = max(_counts_within(d, x, y, _ones(y.at(d))) for x, y in pairs)
    return Axis(
        free, max(min(a.axes[d].constant, b.axes[d].constant), covered), congruence.or_(a.at(d, free), b.at(d, free))
    )


def xor(d: int, a: Facts, b: Facts) -> Axis:
    """Where the other operand's low bits are 0, contiguous runs stay contiguous."""
    free = max(_counts_within(d, x, y, y.multiple(d)) for x, y in ((a, b), (b, a)))
    return Axis(free, min(a.axes[d].constant, b.axes[d].constant), congruence.xor(a.at(d, free), b.at(d, free)))


def _ones(rest: Congruence) -> int:
    """The power of two below which all bits are known to be set."""
    return min(rest.modulus, power_of_two_part(rest.residue + 1))


def lower(d: int, a: Facts, b: Facts) -> int:
    """The length of runs in which a < b is constant: `a` is contiguous and `b` a multiple of the run length, or `b` is
    contiguous and `a` is one less than a multiple of it."""
    x, y = a.axes[d], b.axes[d]
    up = max(_counts_within(d, a, b, b.multiple(d)), _counts_within(d, b, a, _ones(a.at(d))))
    if _between_two(a.hull, b.at(d), 0):
        up = max(up, y.constant)
    if _between_two(b.hull, a.at(d), 1):
        up = max(up, x.constant)
    return max(min(x.constant, y.constant), up)


def _between_two(numbers: Scalar, limit: Congruence, above: int) -> bool:
    """Whether a limit with the given congruence, plus `above`, never splits the interval: all numbers are on one side of it."""
    rest = limit.residue + above
    return (numbers.low - rest) // limit.modulus == (numbers.high - rest) // limit.modulus


def select(d: int, condition: Facts, a: Facts, b: Facts) -> Axis:
    """A run of the result comes from one operand where the condition is constant; a known condition selects one operand."""
    if condition.hull.value is not None:
        return a.axes[d] if condition.hull.value else b.axes[d]
    run = min(a.axes[d].contiguous, b.axes[d].contiguous, condition.axes[d].constant)
    constant = min(condition.axes[d].constant, a.axes[d].constant, b.axes[d].constant)
    return Axis(run, constant, a.at(d, run).join(b.at(d, run)))


def hinted(own: Axis, size: int, contiguous: int, divisible: int, constant: int) -> Axis:
    """The runs along an axis with the author's hints `gl.max_contiguous`, `gl.multiple_of` and `gl.max_constancy`."""
    run = min(max(own.contiguous, power_of_two_part(contiguous)), size)
    promised = multiple_of(divisible)
    start = promised if promised.modulus > own.start.modulus else own.start
    return Axis(run, min(max(own.constant, power_of_two_part(constant)), size), start)
