"""Facts of `weft.ops.reduce`."""

from __future__ import annotations

from weft.analysis.facts.rule import Hulls, Known, Rule, first
from weft.analysis.facts.scalar import Scalar, Word, between
from weft.analysis.facts.tile import Axis, Facts
from weft.analysis.facts.words import shape_of, step_of
from weft.ir.core import Op, OpDef
from weft.ops import reduce


def _counts(op: Op, known: Hulls, word: Word) -> Scalar:
    return between(0, word.high)


def _scattered(op: Op, known: Known, hull: Scalar) -> Facts:
    """The result has no runs."""
    type = op.results[0].type
    return Facts(hull, (Axis(),) * len(shape_of(type)), step_of(type))


RULES: dict[OpDef, Rule] = {
    reduce.gather: Rule(first, _scattered),
    reduce.histogram: Rule(_counts, _scattered),
}
NOTHING: dict[OpDef, str] = {
    reduce.dot_fma: "floats",
    **dict.fromkeys((reduce.reduce, reduce.scan, reduce.map_elements), "what a function of the author's makes"),
}
