"""Facts of `weft.ops.memory`."""

from __future__ import annotations

from weft.analysis.facts import congruence, scalar, tile
from weft.analysis.facts.rule import Hulls, Known, Rule, anything, lifted, of_axes
from weft.analysis.facts.scalar import Scalar, Word
from weft.analysis.facts.tile import Axis, Facts
from weft.analysis.facts.words import step_of
from weft.ir.core import Op, OpDef
from weft.ops import memory


def _address(op: Op, known: Hulls, word: Word) -> Scalar:
    return scalar.add(known[0], scalar.scaled(known[1], step_of(op.results[0].type)))


def _addresses(op: Op, known: Known, hull: Scalar) -> Facts:
    ptr, offset = [lifted(op, facts) for facts in known]
    moved = _scaled(offset, ptr.step)
    return of_axes(op, [tile.add(d, ptr, moved) for d in range(len(ptr.axes))], hull)


def _scaled(offset: Facts, step: int) -> Facts:
    """Converts the facts of an offset in elements to those of an offset in bytes."""
    axes = [Axis(axis.contiguous, axis.constant, congruence.scaled(axis.start, step)) for axis in offset.axes]
    return Facts(scalar.scaled(offset.hull, step), tuple(axes), step)


RULES: dict[OpDef, Rule] = {
    memory.addptr: Rule(_address, _addresses, widens=True),
    memory.load: Rule(anything),  # the default tile rule applies: loads of equal addresses give equal values
}
NOTHING: dict[OpDef, str] = dict.fromkeys(
    (
        memory.atomic, memory.atomic_cas, memory.load_regs, memory.load_part, memory.atomic_regs, memory.atomic_cas_regs,
        memory.poll, memory.poll_regs,
    ),
    "what memory held",
)  # fmt: skip
