"""Facts of `weft.ops.libdevice`: which numbers the functions that count bits can give."""

from __future__ import annotations

from weft.analysis.facts import scalar
from weft.analysis.facts.rule import Hulls, Rule
from weft.analysis.facts.scalar import Scalar, Word, between
from weft.ir.core import Op, OpDef
from weft.ops import libdevice


def _result(op: Op, known: Hulls, word: Word) -> Scalar:
    bits = op.uses[0].type.element.bits
    match op.attrs["fn"]:
        case "popc":
            return scalar.popcount(known[0], bits)
        case "clz" | "ffs":
            return between(0, bits)
        case "signbit":
            return between(0, 1)
        case _:
            return word.whole


RULES: dict[OpDef, Rule] = {libdevice.call: Rule(_result)}
NOTHING: dict[OpDef, str] = {}
