"""What a rule of facts is: the numbers of an operation's result, and where it is a tile what they do along its axes.

The rules themselves stand in `rules/`, one file for each file of `weft.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft.analysis.facts import tile
from weft.analysis.facts.scalar import Scalar, Word
from weft.analysis.facts.tile import Axis, AxisRule, Facts
from weft.analysis.facts.words import shape_of, step_of
from weft.ir.core import Op

Known = Sequence[Facts]
Hulls = Sequence[Scalar]
HullRule = Callable[[Op, Hulls, Word], Scalar]
"""Numbers of the result before they wrap."""
TileRule = Callable[[Op, Known, Scalar], Facts]
"""Facts of a tile, from those of the operands and the numbers of the result."""


def anything(op: Op, known: Hulls, word: Word) -> Scalar:
    """Any number of the type."""
    return word.whole


def where_equal(op: Op, known: Known, hull: Scalar) -> Facts:
    """A function of each element by itself: equal operands give equal results."""
    type = op.results[0].type
    if hull.low == hull.high:
        return whole(op, known, hull)
    tiles = [facts.axes for facts in known if facts.axes]
    axes = [Axis(1, min([own[d].constant for own in tiles], default=size)) for d, size in enumerate(shape_of(type))]
    return Facts(hull, tuple(axes), step_of(type))


class Rule(NamedTuple):
    """`hull` are the numbers of a result, `tile` its facts where it is a tile. With `sums`, they are taken as if they never
    wrapped where addresses are judged; with `widens`, the result's type takes the last operand on to where its own wraps."""

    hull: HullRule
    tile: TileRule = where_equal
    sums: bool = False
    widens: bool = False


def two(rule: Callable[[Scalar, Scalar], Scalar]) -> HullRule:
    """A function of two numbers, whatever their type."""
    return lambda op, known, word: rule(known[0], known[1])


def two_of(rule: Callable[[Scalar, Scalar, Word], Scalar]) -> HullRule:
    """A function of two numbers of a type."""
    return lambda op, known, word: rule(known[0], known[1], word)


def first(op: Op, known: Hulls, word: Word) -> Scalar:
    """The numbers of the first operand."""
    return known[0]


def joined(op: Op, known: Hulls, word: Word) -> Scalar:
    """The numbers of all operands."""
    return any_of(known)


def any_of(known: Hulls) -> Scalar:
    """Numbers of any of these."""
    found = known[0]
    for other in known[1:]:
        found = found.join(other)
    return found


def along(rule: AxisRule) -> TileRule:
    """A function of two elements, by what it does along an axis."""

    def apply(op: Op, known: Known, hull: Scalar) -> Facts:
        a, b = known
        if not a.axes or not b.axes:
            a, b = lifted(op, a), lifted(op, b)
        return of_axes(op, [rule(d, a, b) for d in range(len(a.axes))], hull)

    return apply


def lifted(op: Op, facts: Facts) -> Facts:
    """What is known of a scalar holds for each element."""
    return facts if facts.axes else tile.equal(facts.hull, shape_of(op.results[0].type), facts.step)


def of_axes(op: Op, axes: Sequence[Axis], hull: Scalar) -> Facts:
    """Facts of a tile, from exact first numbers of runs: of wrapped ones they hold as far as the type's width."""
    type = op.results[0].type
    if hull.low == hull.high:
        return tile.equal(hull, shape_of(type), step_of(type))
    size = 1 << type.element.bits
    cut = [a if a.start.modulus <= size else Axis(a.contiguous, a.constant, a.start.modulo(size)) for a in axes]
    return tile.of(hull, tuple(cut), step_of(type))


def whole(op: Op, known: Known, hull: Scalar) -> Facts:
    """All elements are one number."""
    type = op.results[0].type
    return tile.equal(hull, shape_of(type), step_of(type))


def same(op: Op, known: Known, hull: Scalar) -> Facts:
    """The tile of the first operand."""
    return known[0]
