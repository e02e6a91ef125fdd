"""Facts of `weft.ops.tile`: index tiles, shape operations, gather and histogram."""

from __future__ import annotations

from weft.analysis.facts import tile
from weft.analysis.facts.congruence import exactly, power_of_two_part
from weft.analysis.facts.rule import Hulls, Known, Rule, first, joined, same, whole
from weft.analysis.facts.scalar import Scalar, Word, between
from weft.analysis.facts.tile import Axis, Facts
from weft.analysis.facts.words import shape_of, step_of
from weft.ir.core import Op, OpDef
from weft.ops import tile as tiles


def _counted(op: Op, known: Hulls, word: Word) -> Scalar:
    return between(op.attrs["start"], op.attrs["end"] - 1)


def _arange(op: Op, known: Known, hull: Scalar) -> Facts:
    run = power_of_two_part(op.attrs["end"] - op.attrs["start"])
    return tile.of(hull, (Axis(run, 1, exactly(op.attrs["start"])),))


def _expand_dims(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), axis = known, op.attrs["axis"]
    return Facts(x.hull, (*x.axes[:axis], Axis(), *x.axes[axis:]), x.step)


def _broadcast(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), (operand,) = known, op.uses
    sizes = zip(x.axes, shape_of(operand.type), shape_of(op.results[0].type), strict=True)
    axes = [Axis(own.contiguous, new, own.start) if own.constant == old else own for own, old, new in sizes]
    return Facts(x.hull, tuple(axes), x.step)


def _permute(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), order = known, op.attrs["order"]
    axes: list[Axis] = [x.axes[d] for d in order]
    return Facts(x.hull, tuple(axes), x.step)


def _reshape(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), (operand,) = known, op.uses
    old, new = shape_of(operand.type), shape_of(op.results[0].type)
    if x.constant == old:
        return tile.equal(x.hull, new, x.step)
    kept, places = ([d for d, size in enumerate(shape) if size > 1] for shape in (old, new))
    if [old[d] for d in kept] != [new[d] for d in places]:
        kept, places = kept[-1:], places[-1:]
    axes = [Axis()] * len(new)
    for d, place in zip(kept, places, strict=True):
        run = min(x.axes[d].contiguous, new[place])
        axes[place] = Axis(run, min(x.axes[d].constant, new[place]), x.at(d, run))
    return Facts(x.hull, tuple(axes), x.step)


def _join(op: Op, known: Known, hull: Scalar) -> Facts:
    lhs, rhs = known
    met = lhs.join(rhs)
    return Facts(met.hull, (*met.axes, Axis()), met.step)


def _split(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,) = known
    return Facts(x.hull, x.axes[:-1], x.step)


def _slice(op: Op, known: Known, hull: Scalar) -> Facts:
    """Runs are cut to what divides the offset and the size."""
    (x,) = known
    axes: list[Axis] = []
    for d, (start, size) in enumerate(zip(op.attrs["offsets"], op.attrs["shape"], strict=True)):
        most = power_of_two_part(start | size)
        run = min(x.axes[d].contiguous, most)
        axes.append(Axis(run, min(x.axes[d].constant, most), x.at(d, run)))
    return tile.of(hull, tuple(axes), x.step)


def _cat(op: Op, known: Known, hull: Scalar) -> Facts:
    """No run crosses from one operand to the other, as runs are aligned and no longer than an operand."""
    lhs, rhs = known
    return lhs.join(rhs)


def _counts(op: Op, known: Hulls, word: Word) -> Scalar:
    return between(0, word.high)


def _scattered(op: Op, known: Known, hull: Scalar) -> Facts:
    """The result has no runs."""
    type = op.results[0].type
    return Facts(hull, (Axis(),) * len(shape_of(type)), step_of(type))


RULES: dict[OpDef, Rule] = {
    tiles.arange: Rule(_counted, _arange),
    tiles.splat: Rule(first, whole),
    tiles.expand_dims: Rule(first, _expand_dims),
    tiles.broadcast: Rule(first, _broadcast),
    tiles.permute: Rule(first, _permute),
    tiles.reshape: Rule(first, _reshape),
    tiles.join: Rule(joined, _join),
    tiles.split: Rule(first, _split),
    tiles.slice_: Rule(first, _slice),
    tiles.cat: Rule(joined, _cat),
    tiles.convert: Rule(first, same),
    tiles.set_layout: Rule(first, same),
    tiles.extract: Rule(first),
    tiles.gather: Rule(first, _scattered),
    tiles.sort_step: Rule(first, _scattered),
    tiles.histogram: Rule(_counts, _scattered),
}
NOTHING: dict[OpDef, str] = {
    tiles.dot_fma: "floats",
    **dict.fromkeys((tiles.reduce, tiles.scan), "what a function of the author's makes"),
}
