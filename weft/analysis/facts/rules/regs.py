"""Facts of `weft.ops.regs`: the interval that holds for every register of an array."""

from __future__ import annotations

from weft.analysis.facts import scalar
from weft.analysis.facts.rule import Hulls, Rule, any_of, first, joined
from weft.analysis.facts.scalar import Scalar, Word, constant
from weft.ir.core import Op, OpDef
from weft.ops import regs


def _affine(op: Op, known: Hulls, word: Word) -> Scalar:
    (base, *strides), (constants, *tables) = known, op.attrs["offsets"]
    found = scalar.add(base, any_of([constant(entry) for entry in constants]))
    for stride, table in zip(strides, tables, strict=True):
        found = scalar.add(found, scalar.mul(stride, any_of([constant(entry) for entry in table])))
    return found


def _each_xor(op: Op, known: Hulls, word: Word) -> Scalar:
    (base,) = known
    return any_of([scalar.xor(base, constant(offset), word) for offset in op.attrs["offsets"]])


def _either(op: Op, known: Hulls, word: Word) -> Scalar:
    return any_of(known[:2])


RULES: dict[OpDef, Rule] = {
    regs.affine: Rule(_affine),
    regs.xor: Rule(_each_xor),
    regs.concat: Rule(joined),
    regs.within: Rule(_either),
    **dict.fromkeys((regs.splat, regs.extract, regs.gather), Rule(first)),
}
NOTHING: dict[OpDef, str] = dict.fromkeys((regs.narrow, regs.widen, regs.dot), "floats")
