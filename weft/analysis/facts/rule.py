"""The transfer function of an operation for value facts: the interval of its result, and a tile result's runs along each axis.

The rules themselves are in `rules/`, one file for each file of `weft.ops`.
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
"""The interval and congruence of the exact result, before it wraps."""
TileRule = Callable[[Op, Known, Scalar], Facts]
"""The facts of a tile result, from those of the operands and the wrapped interval of the result."""


def anything(op: Op, known: Hulls, word: Word) -> Scalar:
    """Any number of the type."""
    return word.whole


def where_equal(op: Op, known: Known, hull: Scalar) -> Facts:
    """An elementwise function: equal operands give equal results."""
    type = op.results[0].type
    if hull.low == hull.high:
        return whole(op, known, hull)
    tiles = [facts.axes for facts in known if facts.axes]
    axes = [Axis(1, min([own[d].constant for own in tiles], default=size)) for d, size in enumerate(shape_of(type))]
    return Facts(hull, tuple(axes), step_of(type))


class Rule(NamedTuple):
    """`hull` gives the interval of a result, `tile` the facts of a tile result. `sums`: facts for addresses assume that the
    operation does not overflow. `widens`: the operation extends its last operand to a wider type."""

    hull: HullRule
    tile: TileRule = where_equal
    sums: bool = False
    widens: bool = False


def two(rule: Callable[[Scalar, Scalar], Scalar]) -> HullRule:
    """A rule of two operands that does not depend on their type."""
    return lambda op, known, word: rule(known[0], known[1])


def two_of(rule: Callable[[Scalar, Scalar, Word], Scalar]) -> HullRule:
    """A rule of two operands that depends on their type."""
    return lambda op, known, word: rule(known[0], known[1], word)


def first(op: Op, known: Hulls, word: Word) -> Scalar:
    """The interval of the first operand."""
    return known[0]


def joined(op: Op, known: Hulls, word: Word) -> Scalar:
    """The join of all operands' intervals."""
    return any_of(known)


def any_of(known: Hulls) -> Scalar:
    """The join of several intervals."""
    found = known[0]
    for other in known[1:]:
        found = found.join(other)
    return found


def along(rule: AxisRule) -> TileRule:
    """The tile rule that applies a rule for one axis to each axis."""

    def apply(op: Op, known: Known, hull: Scalar) -> Facts:
        a, b = known
        if not a.axes or not b.axes:
            a, b = lifted(op, a), lifted(op, b)
        return of_axes(op, [rule(d, a, b) for d in range(len(a.axes))], hull)

    return apply


def lifted(op: Op, facts: Facts) -> Facts:
    """The facts of a scalar operand as those of a tile with equal elements."""
    return facts if facts.axes else tile.equal(facts.hull, shape_of(op.results[0].type), facts.step)


def of_axes(op: Op, axes: Sequence[Axis], hull: Scalar) -> Facts:
    """The facts of a tile from its axes. The congruences of run starts are of exact numbers; for wrapped ones they are cut to
    the modulus of the type's width."""
    type = op.results[0].type
    if hull.low == hull.high:
        return tile.equal(hull, shape_of(type), step_of(type))
    size = 1 << type.element.bits
    cut = [a if a.start.modulus <= size else Axis(a.contiguous, a.constant, a.start.modulo(size)) for a in axes]
    return tile.of(hull, tuple(cut), step_of(type))


def whole(op: Op, known: Known, hull: Scalar) -> Facts:
    """All elements are equal."""
    type = op.results[0].type
    return tile.equal(hull, shape_of(type), step_of(type))


def same(op: Op, known: Known, hull: Scalar) -> Facts:
    """The facts of the first operand."""
    return known[0]
