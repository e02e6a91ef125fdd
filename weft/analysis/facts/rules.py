"""The facts of an operation's result from those of its operands: one rule for each operation that makes integers or tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from weft.analysis.facts import scalar, tile
from weft.analysis.facts.congruence import MOST, UNKNOWN, Congruence, exactly, multiple_of, power_of_two_part
from weft.analysis.facts.scalar import Scalar, Word, between, constant
from weft.analysis.facts.tile import Axis, AxisRule, Facts
from weft.ir.core import Op
from weft.ir.define import OpDef
from weft.ir.types import DType, Element, Pointer, TileType, Type
from weft.ops import arith, memory, program, reduce, regs
from weft.ops import tile as tiles

Known = tuple[Facts, ...]
HullRule = Callable[[Op, tuple[Scalar, ...], Word], Scalar]
"""Numbers of the result before they wrap."""
Rule = Callable[[Op, Known], Facts]

ANYTHING = Scalar(-MOST, MOST)
"""What is said of floats."""


@cache
def word_of(element: Element, assumed: bool = False) -> Word | None:
    """The integers of an element type; addresses are in bytes. None for floats."""
    if isinstance(element, Pointer):
        return Word(64, signed=False)
    if element.is_floating():
        return None
    return Word(element.bits, element.is_int_signed(), assumed)


def shape_of(type: Type) -> tuple[int, ...]:
    """A tile's shape; () for everything else."""
    return type.shape if isinstance(type, TileType) else ()


def step_of(type: Type) -> int:
    """Bytes by which addresses of neighbours differ; 1 of numbers."""
    return type.element.element_ty.itemsize if isinstance(type.element, Pointer) else 1


def unknown(type: Type, rest: Congruence = UNKNOWN) -> Facts:
    """Nothing is known, but perhaps of the low bits."""
    word = word_of(type.element)
    hull = ANYTHING if word is None else between(word.low, word.high, rest)
    return Facts(hull, (Axis(),) * len(shape_of(type)), step_of(type))


# Numbers.


def _two(rule: Callable[[Scalar, Scalar], Scalar]) -> HullRule:
    return lambda op, known, word: rule(known[0], known[1])


def _two_of(rule: Callable[[Scalar, Scalar, Word], Scalar]) -> HullRule:
    return lambda op, known, word: rule(known[0], known[1], word)


HULLS: dict[OpDef, HullRule] = {
    arith.constant: lambda op, known, word: constant(int(op.attrs["value"])),
    arith.add: _two(scalar.add), arith.sub: _two(scalar.sub), arith.mul: _two(scalar.mul),
    arith.minimum: _two(scalar.minimum), arith.maximum: _two(scalar.maximum),
    arith.div: _two_of(scalar.div), arith.rem: _two_of(scalar.rem), arith.shl: _two_of(scalar.shl),
    arith.shr: _two_of(scalar.shr), arith.and_: _two_of(scalar.and_), arith.or_: _two_of(scalar.or_),
    arith.xor: _two_of(scalar.xor), arith.umulhi: _two_of(scalar.high_half),
    arith.cmp: lambda op, known, word: scalar.compare(op.attrs["predicate"], known[0], known[1]),
    arith.select: lambda op, known, word: _chosen(known[0], known[1], known[2]),
    arith.cast: lambda op, known, word: _cast(op, known[0], word),
    arith.math: lambda op, known, word: _function(op, known[0], word),
    memory.addptr: lambda op, known, word: scalar.add(known[0], scalar.mul(known[1], constant(step_of(op.result.type)))),
    tiles.hint: lambda op, known, word: _promised(op, known[0]),
    reduce.gather: lambda op, known, word: known[0],
    reduce.histogram: lambda op, known, word: between(0, word.high),
    regs.affine: lambda op, known, word: _affine(op, *known),
    regs.xor: lambda op, known, word: _each_xor(op, known[0], word),
    **dict.fromkeys(
        (
            program.uniform, tiles.splat, tiles.expand_dims, tiles.broadcast, tiles.reshape, tiles.permute, tiles.convert,
            tiles.set_layout, tiles.join, tiles.split, tiles.extract, regs.splat, regs.extract, regs.gather, regs.concat,
            regs.shuffle_xor, regs.shuffle_idx,
        ),
        lambda op, known, word: _joined(known[: 1 if op.kind is regs.shuffle_idx else None]),
    ),
}  # fmt: skip


def _promised(op: Op, x: Scalar) -> Scalar:
    """A scalar with the author's promise; those about a tile are about its runs."""
    rest = multiple_of(max([1, *map(power_of_two_part, op.attrs["divisible"])]))
    raise_it = not shape_of(op.result.type) and rest.modulus > x.rest.modulus
    return between(x.low, x.high, rest) if raise_it else x


def _joined(known: tuple[Scalar, ...]) -> Scalar:
    found = known[0]
    for other in known[1:]:
        found = found.join(other)
    return found


def _chosen(condition: Scalar, lhs: Scalar, rhs: Scalar) -> Scalar:
    return lhs.join(rhs) if condition.value is None else lhs if condition.value else rhs


def _cast(op: Op, x: Scalar, word: Word) -> Scalar:
    (operand,) = op.uses
    source = operand.type.element
    if not isinstance(source, DType) or source.is_floating():
        return word.whole
    return scalar.compare("ne", x, scalar.ZERO) if op.attrs["dtype"].is_bool() else x


def _function(op: Op, x: Scalar, word: Word) -> Scalar:
    if op.attrs["fn"] == "neg":
        return scalar.sub(scalar.ZERO, x)
    return scalar.absolute(x) if op.attrs["fn"] == "abs" else word.whole


def _affine(op: Op, base: Scalar, *strides: Scalar) -> Scalar:
    constants, *tables = op.attrs["offsets"]
    found = scalar.add(base, _joined(tuple(map(constant, constants))))
    for stride, table in zip(strides, tables, strict=True):
        found = scalar.add(found, scalar.mul(stride, _joined(tuple(map(constant, table)))))
    return found


def _each_xor(op: Op, base: Scalar, word: Word) -> Scalar:
    return _joined(tuple([scalar.xor(base, constant(offset), word) for offset in op.attrs["offsets"]]))


# Tiles.

AXES: dict[OpDef, AxisRule] = {
    arith.add: tile.add, arith.sub: tile.sub, memory.addptr: tile.add, arith.div: tile.div, arith.rem: tile.rem,
    arith.and_: tile.and_, arith.or_: tile.or_, arith.xor: tile.xor,
}  # fmt: skip
"""Of elementwise operations with two operands of which more is known than that equal operands give equal results."""


def elementwise(op: Op, known: Known, hull: Scalar) -> Facts:
    """Facts of an elementwise operation on tiles of one shape."""
    shape, step = shape_of(op.result.type), step_of(op.result.type)
    if hull.value is not None:
        return tile.equal(hull, shape, step)
    element = op.result.type.element
    # The first numbers of runs are exact ones: what holds of those holds of wrapped ones as far as the type's width.
    size = 1 << (64 if isinstance(element, Pointer) else element.bits)
    found = [_axis(op, d, known) for d in range(len(shape))]
    axes = [replace(axis, start=axis.start.modulo(size)) if axis.start.modulus > size else axis for axis in found]
    return tile.of(hull, tuple(axes), step)


def _axis(op: Op, d: int, known: Known) -> Axis:
    kind = op.kind
    if kind is arith.select:
        return tile.select(d, *known)
    if kind is arith.cmp:
        return Axis(1, _compared(op.attrs["predicate"], d, *known))
    if kind is arith.cast:
        return _of_cast(op, d, *known)
    if kind is memory.addptr:
        return tile.add(d, known[0], _scaled(known[1], known[0].step))
    same = _the_same(op, known)
    if same is not None:
        return same.axes[d]
    if kind is arith.shr and known[1].hull.value is not None:
        return tile.quotient(d, known[0], _power(known[1]))
    rule = AXES.get(kind)
    return tile.elementwise(d, *known) if rule is None else rule(d, *known)


def _the_same(op: Op, known: Known) -> Facts | None:
    """The operand that the result is, for all its elements."""
    if op.kind in (arith.minimum, arith.maximum, arith.rem, arith.mul):
        for one, other in (known, known[::-1]):
            x, y = one.hull, other.hull
            smaller = x.high <= y.low
            if (
                (op.kind is arith.minimum and smaller)
                or (op.kind is arith.maximum and y.high <= x.low)
                or (op.kind is arith.rem and one is known[0] and x.low >= 0 and x.high < y.low)
                or (op.kind is arith.mul and y.value == 1)
            ):
                return one
    return None


def _power(amount: Facts) -> Facts:
    """The divisor that a shift stands for; by the width or more the sign is left, which the largest divisor leaves as well."""
    bits = amount.hull.low
    assert amount.hull.value is not None
    power = 1 << bits if 0 <= bits < 64 else MOST
    return replace(amount, hull=constant(power))


def _scaled(offset: Facts, step: int) -> Facts:
    """An offset in elements as one in bytes."""
    axes = tuple([replace(axis, start=axis.start * exactly(step)) for axis in offset.axes])
    return Facts(scalar.mul(offset.hull, constant(step)), axes, step)


def _compared(predicate: str, d: int, a: Facts, b: Facts) -> int:
    # i < n holds for all or none of an aligned run of i where n is a multiple of the run; i <= n does not.
    if predicate in ("lt", "ge"):
        return tile.lower(d, a, b)
    if predicate in ("gt", "le"):
        return tile.lower(d, b, a)
    return tile.elementwise(d, a, b).constant


def _of_cast(op: Op, d: int, x: Facts) -> Axis:
    (operand,) = op.uses
    source, target = operand.type.element, op.attrs["dtype"]
    if not isinstance(source, DType) or not (source.is_int() and target.is_int()) or target.is_bool():
        return tile.elementwise(d, x)
    own = x.axes[d]
    if target.bits > source.bits or (target.bits == source.bits and target.kind == source.kind):
        return own
    # A run may pass the largest number of a narrower type; an aligned one that is short enough cannot.
    run = min(own.contiguous, x.multiple(d, own.contiguous), 1 << target.bits - 1)
    return Axis(run, own.constant, x.at(d, run))


def cut_where_it_wraps(x: Facts, word: Word) -> Facts:
    """Facts of numbers that a wider type takes: runs that may go over the point where the narrow one wraps are cut."""
    if x.hull.low > word.low or x.hull.high < word.high or word.assumed:
        return x
    axes: list[Axis] = []
    for d, own in enumerate(x.axes):
        run = min(own.contiguous, x.multiple(d, own.contiguous))
        axes.append(Axis(run, own.constant, x.at(d, run)))
    return replace(x, axes=tuple(axes))


def _whole(op: Op, known: Known, hull: Scalar) -> Facts:
    return tile.equal(hull, shape_of(op.result.type), step_of(op.result.type))


def _same(op: Op, known: Known, hull: Scalar) -> Facts:
    return known[0]


def _arange(op: Op, known: Known, hull: Scalar) -> Facts:
    return tile.of(hull, (Axis(op.attrs["end"] - op.attrs["start"], 1, constant(op.attrs["start"]).rest),))


def _hint(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), attrs = known, op.attrs
    if not x.axes:
        return replace(x, hull=hull)
    rest = len(x.axes)
    rows = [(*attrs[name], *(1,) * (rest - len(attrs[name]))) for name in ("contiguous", "divisible", "constant")]
    promised = zip(x.axes, shape_of(op.result.type), *rows, strict=True)
    axes = [tile.hinted(own, size, c, d, k) for own, size, c, d, k in promised]
    return tile.of(x.hull, tuple(axes), x.step)


def _expand_dims(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), axis = known, op.attrs["axis"]
    return replace(x, axes=(*x.axes[:axis], Axis(), *x.axes[axis:]))


def _broadcast(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), (operand,) = known, op.uses
    sizes = zip(x.axes, shape_of(operand.type), shape_of(op.result.type), strict=True)
    return replace(
        x, axes=tuple([replace(own, constant=new) if own.constant == old else own for own, old, new in sizes])
    )


def _permute(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), order = known, op.attrs["order"]
    axes: list[Axis] = [x.axes[d] for d in order]
    return replace(x, axes=tuple(axes))


def _reshape(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,), (operand,) = known, op.uses
    old, new = shape_of(operand.type), shape_of(op.result.type)
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
    return replace(met, axes=(*met.axes, Axis()))


def _split(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,) = known
    return replace(x, axes=x.axes[:-1])


def _extract(op: Op, known: Known, hull: Scalar) -> Facts:
    (x,) = known
    return Facts(x.hull, (), x.step)


STRUCTURAL: dict[OpDef, Callable[[Op, Known, Scalar], Facts]] = {
    arith.constant: _whole, tiles.splat: _whole, tiles.arange: _arange, tiles.hint: _hint, tiles.expand_dims: _expand_dims,
    tiles.broadcast: _broadcast, tiles.permute: _permute, tiles.reshape: _reshape, tiles.join: _join, tiles.split: _split,
    tiles.extract: _extract, tiles.convert: _same, tiles.set_layout: _same,
}  # fmt: skip
"""Operations that say where elements are."""
ELEMENTWISE = frozenset((
    *AXES, arith.mul, arith.shl, arith.shr, arith.cmp, arith.select, arith.minimum, arith.maximum, arith.cast, arith.div_rn,
    arith.umulhi, arith.fma, arith.bitcast, arith.math, arith.clamp, memory.load,
))  # fmt: skip
"""Operations that take each element by itself; a load too, since equal addresses hold equal values."""
