"""The facts of each operation's result from those of its operands: the rules behind `weft.passes.facts`.

Rules of sums and products give the sign of the exact result; `weft.passes.facts` takes it away where the result may overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.ir.core import Op
from weft.ir.define import OpDef
from weft.ir.types import DType, Pointer, TileType, Type
from weft.ops import arith, memory, program, tile

# The divisor of zero, and the largest that is ever useful.
MOST = 1 << 30


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a value, per axis of its tile (a scalar has one axis, of length one).

    `contiguous`: runs of this length count up by one, modulo 2**bits (pointers: by one element). `divisible`: the first of
    each such run is a multiple of it (pointers: in bytes). `constant`: runs of this length are equal. `value`: the number,
    where it is known. `step`: what counting up by one means in the unit of `divisible`.
    """

    contiguous: tuple[int, ...]
    divisible: tuple[int, ...]
    constant: tuple[int, ...]
    value: int | None = None
    nonnegative: bool = False
    step: int = 1

    def multiple(self, axis: int, run: int = 1) -> int:
        """What divides the elements at multiples of `run` along the axis (by default all elements)."""
        own = self.divisible[axis]
        return own if run >= self.contiguous[axis] else min(own, run * self.step)

    @property
    def every(self) -> int:
        """What divides every element."""
        return max(self.multiple(axis) for axis in range(len(self.divisible)))

    @property
    def axes(self) -> range:
        """The axes' numbers."""
        return range(len(self.divisible))


Known = tuple[Facts, ...]
# The facts of an operation's result (of each of its results) from those of its operands.
Rule = Callable[[Op, Known], Facts]


def unknown(type: Type) -> Facts:
    """Nothing is known."""
    return _uniform(type, 1)


def _uniform(type: Type, divisor: int, **others: int | bool | None) -> Facts:
    """Every element is a multiple of the divisor."""
    ones = (1,) * len(shape_of(type))
    step = type.element.element_ty.itemsize if isinstance(type.element, Pointer) else 1
    return replace(Facts(ones, (divisor,) * len(ones), ones, step=step), **others)


def equal(type: Type, divisor: int, value: int | None = None, nonnegative: bool = False) -> Facts:
    """All elements are one multiple of the divisor."""
    return replace(_uniform(type, divisor, value=value, nonnegative=nonnegative), constant=shape_of(type))


def shape_of(type: Type) -> tuple[int, ...]:
    """A tile's shape; a scalar is one element."""
    return type.shape if isinstance(type, TileType) else (1,)


def power_of_two_part(value: int) -> int:
    """The largest power of two that divides a value, at most `MOST`.

    >>> power_of_two_part(48), power_of_two_part(0) == MOST
    (16, True)
    """
    return min(value & -value, MOST) if value else MOST


def meet(a: Facts, b: Facts) -> Facts:
    """What holds for both."""
    runs = _least(a.contiguous, b.contiguous)
    return Facts(
        runs,
        tuple([min(a.multiple(d, run), b.multiple(d, run)) for d, run in enumerate(runs)]),
        _least(a.constant, b.constant),
        a.value if a.value == b.value else None,
        a.nonnegative and b.nonnegative,
        a.step,
    )


def _least(*rows: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(min, zip(*rows, strict=True)))


# Rules. Operands that are absent are absent from `known`, too.


def _elementwise(op: Op, known: Known) -> Facts:
    """Equal operands give equal results, whatever the function."""
    return replace(unknown(op.result.type), constant=_least(*(f.constant for f in known)))


def _constant(op: Op, known: Known) -> Facts:
    value = op.attrs["value"]
    if not isinstance(value, int):
        return equal(op.result.type, 1)
    return equal(op.result.type, power_of_two_part(value), int(value), value >= 0)


def _arange(op: Op, known: Known) -> Facts:
    start, end = op.attrs["start"], op.attrs["end"]
    return Facts((end - start,), (power_of_two_part(start),), (1,), nonnegative=start >= 0)


def _splat(op: Op, known: Known) -> Facts:
    (x,) = known
    return equal(op.result.type, x.every, x.value, x.nonnegative)


def _same(op: Op, known: Known) -> Facts:
    return known[0]


def _hint(op: Op, known: Known) -> Facts:
    (x,) = known

    def raised(own: tuple[int, ...], promised: tuple[int, ...]) -> tuple[int, ...]:
        padded = (*promised, *(1,) * (len(own) - len(promised)))
        return tuple(max(a, power_of_two_part(b)) for a, b in zip(own, padded, strict=True))

    shape = shape_of(op.result.type)
    return replace(
        x,
        contiguous=_least(raised(x.contiguous, op.attrs["contiguous"]), shape),
        divisible=raised(x.divisible, op.attrs["divisible"]),
        constant=_least(raised(x.constant, op.attrs["constant"]), shape),
    )


def _sum(lhs: Facts, rhs: Facts, subtract: bool) -> Facts:
    runs = tuple(
        max(min(a, k), 1 if subtract else min(b, j))
        for a, k, b, j in zip(lhs.contiguous, rhs.constant, rhs.contiguous, lhs.constant, strict=True)
    )
    return Facts(
        runs,
        tuple([min(lhs.multiple(d, run), rhs.multiple(d, run)) for d, run in enumerate(runs)]),
        _least(lhs.constant, rhs.constant),
        nonnegative=lhs.nonnegative and rhs.nonnegative and not subtract,
        step=lhs.step,
    )


def _add(op: Op, known: Known) -> Facts:
    return _sum(*known, subtract=False)


def _sub(op: Op, known: Known) -> Facts:
    return _sum(*known, subtract=True)


def _addptr(op: Op, known: Known) -> Facts:
    ptr, offset = known
    scaled = replace(offset, divisible=tuple([min(m * ptr.step, MOST) for m in offset.divisible]), step=ptr.step)
    return _sum(ptr, scaled, subtract=False)


def _mul(op: Op, known: Known) -> Facts:
    lhs, rhs = known
    if rhs.value == 1 or lhs.value == 1:
        return lhs if rhs.value == 1 else rhs
    return replace(
        _elementwise(op, known),
        divisible=tuple([min(lhs.multiple(d) * rhs.multiple(d), MOST) for d in lhs.axes]),
        nonnegative=lhs.nonnegative and rhs.nonnegative,
    )


def _aligned_runs(lhs: Facts, rhs: Facts) -> tuple[int, ...]:
    """Runs in which `lhs` counts up from a multiple of the run, while `rhs` is one multiple of the run."""
    return _least(lhs.contiguous, lhs.divisible, rhs.constant, tuple([rhs.multiple(d) for d in rhs.axes]))


def _div(op: Op, known: Known) -> Facts:
    lhs, rhs = known
    if rhs.value == 1:
        return lhs
    # Truncation breaks runs below zero: -8 ... -1 divided by 8 gives -1 once and then zeros.
    runs = _aligned_runs(lhs, rhs) if lhs.nonnegative else (1,) * len(lhs.constant)
    exact = rhs.value is not None and rhs.value == power_of_two_part(rhs.value)
    return replace(
        unknown(op.result.type),
        divisible=tuple([max(lhs.multiple(d) // rhs.multiple(d), 1) if exact else 1 for d in lhs.axes]),
        constant=tuple(map(max, _least(lhs.constant, rhs.constant), runs)),
        nonnegative=lhs.nonnegative and rhs.nonnegative,
    )


def _rem(op: Op, known: Known) -> Facts:
    lhs, rhs = known
    runs = _aligned_runs(lhs, rhs) if lhs.nonnegative else (1,) * len(lhs.constant)
    return Facts(
        runs,
        tuple([min(lhs.multiple(d, run), rhs.multiple(d)) for d, run in enumerate(runs)]),
        _least(lhs.constant, rhs.constant),
        nonnegative=lhs.nonnegative,
    )


def _shl(op: Op, known: Known) -> Facts:
    lhs, rhs = known
    if rhs.value is None or not 0 <= rhs.value < _bits(op):
        return _elementwise(op, known)
    return _mul(op, (lhs, replace(rhs, value=None, divisible=(min(1 << rhs.value, MOST),) * len(rhs.divisible))))


def _shr(op: Op, known: Known) -> Facts:
    """As a division that rounds down, so runs hold below zero too."""
    lhs, rhs = known
    if rhs.value is None or not 0 <= rhs.value < _bits(op):
        return _elementwise(op, known)
    divisor = 1 << rhs.value
    power = replace(rhs, value=divisor, divisible=(min(divisor, MOST),) * len(rhs.divisible), nonnegative=True)
    found = _div(op, (replace(lhs, nonnegative=True), power))
    return replace(found, nonnegative=lhs.nonnegative)


def _bits(op: Op) -> int:
    return op.result.type.element.bits


def _and(op: Op, known: Known) -> Facts:
    lhs, rhs = known if known[1].value is not None else (known[1], known[0])
    equal, nonnegative = _least(lhs.constant, rhs.constant), lhs.nonnegative or rhs.nonnegative
    if rhs.value is not None and rhs.value > 0 and not rhs.value & (rhs.value + 1):
        return replace(_low_bits(lhs, rhs.value + 1), constant=equal, nonnegative=True)
    cleared = power_of_two_part(rhs.value) if rhs.value is not None else 1
    runs = _least(lhs.contiguous, lhs.divisible, (cleared,) * len(equal))
    divisible = tuple([max(lhs.multiple(d), rhs.multiple(d)) for d in lhs.axes])
    return Facts((1,) * len(equal), divisible, tuple(map(max, equal, runs)), nonnegative=nonnegative)


def _low_bits(x: Facts, modulus: int) -> Facts:
    runs = _least(x.contiguous, x.divisible, (modulus,) * len(x.divisible))
    divisors = [x.multiple(d, run) for d, run in enumerate(runs)]
    return Facts(runs, tuple([m if m < modulus else MOST for m in divisors]), x.constant)


def _or(op: Op, known: Known) -> Facts:
    lhs, rhs = known
    divisible = tuple([min(lhs.multiple(d), rhs.multiple(d)) for d in lhs.axes])
    return replace(_elementwise(op, known), divisible=divisible, nonnegative=lhs.nonnegative and rhs.nonnegative)


def _cmp(op: Op, known: Known) -> Facts:
    lhs, rhs = known
    equal = _least(lhs.constant, rhs.constant)
    # i < n holds for all or none of an aligned run of i where n is a multiple of the run; i <= n does not.
    runs = {"lt": (lhs, rhs), "ge": (lhs, rhs), "gt": (rhs, lhs), "le": (rhs, lhs)}.get(op.attrs["predicate"])
    return replace(unknown(op.result.type), constant=tuple(map(max, equal, _aligned_runs(*runs))) if runs else equal)


def _select(op: Op, known: Known) -> Facts:
    condition, lhs, rhs = known
    met = meet(lhs, rhs)
    runs = _least(met.contiguous, condition.constant)
    divisible = tuple([min(lhs.multiple(d, run), rhs.multiple(d, run)) for d, run in enumerate(runs)])
    return replace(met, contiguous=runs, divisible=divisible, constant=_least(met.constant, condition.constant))


def _extreme(op: Op, known: Known) -> Facts:
    found = _or(op, known)
    if op.kind is arith.maximum:
        return replace(found, nonnegative=any(f.nonnegative for f in known))
    return found


def _cast(op: Op, known: Known) -> Facts:
    (x,) = known
    (operand,) = op.uses
    source, target = operand.type.element, op.attrs["dtype"]
    if not (source.is_int() and target.is_int()) or target.is_bool():
        return _elementwise(op, known)
    assert isinstance(source, DType)
    grows = target.bits > source.bits or (target.bits == source.bits and target.kind == source.kind)
    # A run may pass the largest number of a narrower type; an aligned one that is short enough cannot.
    runs = x.contiguous if grows else _least(x.contiguous, x.divisible, (1 << target.bits - 1,) * len(x.contiguous))
    divisible = tuple([x.multiple(d, run) for d, run in enumerate(runs)])
    value = x.value if grows and x.nonnegative else None
    return replace(x, contiguous=runs, divisible=divisible, value=value, nonnegative=grows and x.nonnegative)


def _load(op: Op, known: Known) -> Facts:
    """Equal addresses hold equal values."""
    return _elementwise(op, known)


def _program(op: Op, known: Known) -> Facts:
    return replace(unknown(op.result.type), nonnegative=True)


def _expand_dims(op: Op, known: Known) -> Facts:
    (x,) = known
    return _with_axis(x, op.attrs["axis"], 1, x.every)


def _with_axis(x: Facts, axis: int, constant: int, divisor: int) -> Facts:
    def insert(row: tuple[int, ...], entry: int) -> tuple[int, ...]:
        return (*row[:axis], entry, *row[axis:])

    return replace(
        x,
        contiguous=insert(x.contiguous, 1),
        divisible=insert(x.divisible, divisor),
        constant=insert(x.constant, constant),
    )


def _broadcast(op: Op, known: Known) -> Facts:
    (x,) = known
    assert op.operands[0] is not None
    sizes = zip(x.constant, shape_of(op.operands[0].type), shape_of(op.result.type), strict=True)
    return replace(x, constant=tuple([run if old == new else new for run, old, new in sizes]))


def _permute(op: Op, known: Known) -> Facts:
    (x,) = known
    order: tuple[int, ...] = op.attrs["order"]

    def moved(row: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([row[d] for d in order])

    return replace(x, contiguous=moved(x.contiguous), divisible=moved(x.divisible), constant=moved(x.constant))


def _reshape(op: Op, known: Known) -> Facts:
    (x,) = known
    assert op.operands[0] is not None
    old, new = shape_of(op.operands[0].type), shape_of(op.result.type)
    base = replace(_uniform(op.result.type, x.every), value=x.value, nonnegative=x.nonnegative)
    if x.constant == old:
        return replace(base, constant=new)
    kept, places = ([d for d, size in enumerate(shape) if size > 1] for shape in (old, new))
    if [old[d] for d in kept] != [new[d] for d in places]:
        kept, places = kept[-1:], places[-1:]
    for d, place in zip(kept, places, strict=True):
        run = min(x.contiguous[d], new[place])
        base = replace(
            base,
            contiguous=_put(base.contiguous, place, run),
            divisible=_put(base.divisible, place, x.multiple(d, run)),
            constant=_put(base.constant, place, min(x.constant[d], new[place])),
        )
    return base


def _put(row: tuple[int, ...], index: int, entry: int) -> tuple[int, ...]:
    return (*row[:index], entry, *row[index + 1 :])


def _join(op: Op, known: Known) -> Facts:
    met = meet(*known)
    return _with_axis(met, len(met.divisible), 1, met.every)


def _split(op: Op, known: Known) -> Facts:
    """Of either half."""
    (x,) = known
    return replace(x, contiguous=x.contiguous[:-1], divisible=x.divisible[:-1], constant=x.constant[:-1])


def _extract(op: Op, known: Known) -> Facts:
    (x,) = known
    return equal(op.result.type, x.every, x.value, x.nonnegative)


ELEMENTWISE: dict[OpDef, Rule] = {
    arith.add: _add, arith.sub: _sub, arith.mul: _mul, arith.div: _div, arith.rem: _rem, arith.shl: _shl, arith.shr: _shr,
    arith.and_: _and, arith.or_: _or, arith.xor: _or, arith.cmp: _cmp, arith.select: _select, arith.minimum: _extreme,
    arith.maximum: _extreme, arith.cast: _cast, memory.addptr: _addptr, memory.load: _load,
    **dict.fromkeys((arith.div_rn, arith.umulhi, arith.fma, arith.bitcast, arith.math, arith.clamp), _elementwise),
}  # fmt: skip
RULES: dict[OpDef, Rule] = {
    **ELEMENTWISE,
    arith.constant: _constant, tile.arange: _arange, tile.splat: _splat, tile.expand_dims: _expand_dims,
    tile.broadcast: _broadcast, tile.reshape: _reshape, tile.permute: _permute, tile.join: _join, tile.split: _split,
    tile.convert: _same, tile.set_layout: _same, tile.extract: _extract, tile.hint: _hint, program.uniform: _same,
    program.program_id: _program, program.num_programs: _program, program.lane_id: _program, program.warp_id: _program,
    program.thread_id: _program,
}  # fmt: skip
