"""Functions of the author, applied register by register."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits
from weft.cuda.text.refs import Index, Inline
from weft.cuda.text.spelling import count_of
from weft.ir.core import Op
from weft.ops import elements


@emits(elements.map_elements)
def _map(e: Emitter, op: Op) -> None:
    pack, (body,) = op.attrs["pack"], op.regions
    outputs = [e.variable(result) for result in op.results]
    count = count_of(op.results[0].type) or 1
    with e.registers(count // pack) as index:
        places = [member(index, pack, j) for j in range(pack)]
        operands = [(value, place) for value in op.uses for place in places]
        for arg, (value, place) in zip(body.args, operands, strict=True):
            e.refs[arg] = Inline(e.at(value, place))
        e.region(body)
        targets = [(output, place) for output in outputs for place in places]
        for (output, place), value in zip(targets, body.terminator.uses, strict=True):
            e.out.statement(f"{output.at(place)} = {e.at(value)};")
    e.out.loc = op.loc


def member(index: Index, pack: int, j: int) -> Index:
    """Register `j` of group `index` of `pack` registers each."""
    if isinstance(index, int):
        return index * pack + j
    scaled = index if pack == 1 else f"{pack} * {index}"
    return f"{scaled} + {j}" if j else scaled
