"""Facts of `weft.ops.hints`: what the author asserts."""

from __future__ import annotations

from weft.analysis.facts import tile
from weft.analysis.facts.congruence import multiple_of, power_of_two_part
from weft.analysis.facts.rule import Hulls, Known, Rule, first
from weft.analysis.facts.scalar import Scalar, Word, between
from weft.analysis.facts.tile import Facts
from weft.analysis.facts.words import shape_of
from weft.ir.core import Op, OpDef
from weft.ops import hints


def _promised(op: Op, known: Hulls, word: Word) -> Scalar:
    """A hint about a scalar strengthens its congruence; hints about a tile are about its runs (`_axes`)."""
    (x,) = known
    rest = multiple_of(max([1, *map(power_of_two_part, op.attrs["divisible"])]))
    raised = not shape_of(op.results[0].type) and rest.modulus > x.rest.modulus
    return between(x.low, x.high, rest) if raised else x


def _axes(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), attrs = known, op.attrs
    rest = len(x.axes)
    rows = [(*attrs[name], *(1,) * (rest - len(attrs[name]))) for name in ("contiguous", "divisible", "constant")]
    promised = zip(x.axes, shape_of(op.results[0].type), *rows, strict=True)
    axes = [tile.hinted(own, size, c, d, k) for own, size, c, d, k in promised]
    return tile.of(x.hull, tuple(axes), x.step)


RULES: dict[OpDef, Rule] = {
    hints.axes: Rule(_promised, _axes),
    hints.uniform: Rule(first),
}
NOTHING: dict[OpDef, str] = {}
