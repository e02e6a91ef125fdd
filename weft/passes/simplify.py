"""Constant folding, algebraic identities and value numbering.

    arith.mul %x, 1                              -->  %x
    arith.add 2, 3                               -->  5
    tile.broadcast (tile.splat %x)               -->  tile.splat %x
    tile.convert (tile.convert %x)               -->  tile.convert %x
    memory.load %p, true, %other                 -->  memory.load %p
    control.if true {a} {b}                      -->  a
    control.for 0, 1, 1 {a}                      -->  a
    control.for with an invariant carried value  -->  the initial value (and so control.while)
    regs.extract (regs.concat %a, %b), 1         -->  %b            (see `weft.passes.registers`)
    memory.load_regs %p, _, _, 8                      -->  the stride among the constant offsets

The rebuild merges equal pure operations by value numbering. The pass works on tile IR and on lowered IR.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.analysis.flow import BOUNDS, LOOPS, unchanged, without
from weft.ir.core import Func, Op, OpDef, Region, Value
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import DType, TileType, Type, uint64, wrap
from weft.ops import arith, async_copy, control, debug, hints, memory, regs, thread, tile
from weft.ops.control import trip_count
from weft.passes.fold import Number, fold
from weft.passes.registers import Registers


def simplify(func: Func) -> Func:
    """The simplified function."""
    return rebuild(func, _Simplifier().rule, number=True)


# Operations whose result has equal elements if their operand has.
KEEP_SPLAT = (tile.broadcast, tile.expand_dims, tile.reshape, tile.permute, tile.convert, tile.set_layout)


class _Simplifier:
    """`constants` maps values to numbers (of every element, for tiles). `splats` maps tiles to their scalar, `converted` maps
    tiles to the operand of their conversion."""

    def __init__(self) -> None:
        self.constants: dict[Value, Number] = {}
        self.splats: dict[Value, Value] = {}
        self.converted: dict[Value, Value] = {}
        self.registers = Registers()

    def rule(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        special = _SPECIAL.get(op.kind)
        if special is not None:
            return special(self, out, op, operands)
        if len(op.results) != 1 or not op.kind.pure:
            return None
        return self._folded(out, op, operands) or self._identity(out, op, operands)

    def constant(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Record the constant."""
        return self._constant(out, op.attrs["value"], op.result.type, op.result.name)

    def _constant(self, out: Rebuilder, value: Number, type: Type, name: str) -> tuple[Value]:
        made: Value = out.emit(arith.constant, value=value, type=type, name=name)
        self.constants[made] = value
        return (made,)

    def _folded(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        values = [self.constants[v] for v in operands if v is not None and v in self.constants]
        if not values or len(values) != len(operands):
            return None
        dtype, source = op.result.type.element, op.uses[0].type.element
        if not isinstance(dtype, DType) or not isinstance(source, DType):
            return None
        value = fold(op.kind, values, dtype, source, op.attrs)
        return None if value is None else self._constant(out, value, op.result.type, op.result.name)

    def _identity(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if len(operands) != 2:
            return None
        lhs, rhs = operands
        if lhs is None or rhs is None:
            return None
        element = rhs.type.element
        if lhs is rhs and not element.is_floating():
            return self._of_itself(out, op, lhs)
        laws = op.kind.laws
        if laws.commutes and lhs in self.constants:
            lhs, rhs = rhs, lhs
        if rhs not in self.constants or not isinstance(element, DType):
            return None
        number = self.constants[rhs]
        if element.is_floating():
            return _spelled(out, lhs, op.result.type) if laws.floats and number == laws.neutral else None
        if laws.absorbing is not None and number == wrap(laws.absorbing, element):
            return self._whatever(out, op, 0, number, element)
        neutral = laws.neutral is not None and number == wrap(laws.neutral, element)
        return _spelled(out, lhs, op.result.type) if neutral else None

    def _of_itself(self, out: Rebuilder, op: Op, x: Value) -> Replacement:
        """An operation with the same integer as both operands."""
        if op.kind.laws.itself == "same":
            return _spelled(out, x, op.result.type)
        element = x.type.element
        constant = op.kind.laws.itself == "constant"
        return self._whatever(out, op, 0, 0, element if isinstance(element, DType) else uint64) if constant else None

    def _whatever(self, out: Rebuilder, op: Op, lhs: Number, rhs: Number, element: DType) -> Replacement:
        """A result that is the same for all operands, computed from two of them."""
        dtype = op.result.type.element
        assert isinstance(dtype, DType)
        value = fold(op.kind, [lhs, rhs], dtype, element, op.attrs)
        return None if value is None else self._constant(out, value, op.result.type, op.result.name)

    def cast(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A cast to the same type is dropped; a constant is folded."""
        (x,) = operands
        assert x is not None
        return (x,) if x.type.element == op.attrs["dtype"] else self._folded(out, op, operands)

    def select(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A select with a constant condition, or with two equal operands."""
        condition, lhs, rhs = operands
        assert condition is not None and lhs is not None and rhs is not None
        if condition in self.constants:
            return _spelled(out, lhs if self.constants[condition] else rhs, op.result.type)
        return (lhs,) if lhs is rhs else None

    def splat(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A splat of a constant is a constant; other splats are recorded."""
        (x,) = operands
        assert x is not None
        if x in self.constants:
            return self._constant(out, self.constants[x], op.result.type, op.result.name)
        made: Value = out.emit(tile.splat, x, name=op.result.name, **op.attrs)
        self.splats[made] = x
        return (made,)

    def moved(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Shape operations: on equal elements they are a splat; identities are dropped; conversions are composed."""
        (x,) = operands
        target = op.result.type
        assert x is not None and isinstance(x.type, TileType) and isinstance(target, TileType)
        if x in self.constants:
            return self._constant(out, self.constants[x], target, op.result.name)
        if x in self.splats:
            scalar = self.splats[x]
            made: Value = out.emit(tile.splat, scalar, shape=target.shape, layout=target.layout, name=op.result.name)
            self.splats[made] = scalar
            return (made,)
        if op.kind in (tile.broadcast, tile.reshape) and x.type.shape == target.shape:
            return (x,)
        if op.kind is tile.permute and list(op.attrs["order"]) == sorted(op.attrs["order"]):
            return (x,)
        return self._converted(out, op, x, target) if op.kind is tile.convert else None

    def _converted(self, out: Rebuilder, op: Op, x: Value, target: TileType) -> Replacement:
        source = self.converted.get(x, x)
        assert isinstance(source.type, TileType)
        if target.resolved and source.type.layout == target.layout:
            return (source,)
        made: Value = out.emit(tile.convert, source, name=op.result.name, **op.attrs)
        self.converted[made] = source
        return (made,)

    def extract(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """An element of a tile with equal elements is the scalar."""
        (x,) = operands
        assert x is not None
        if x in self.constants:
            return self._constant(out, self.constants[x], op.result.type, op.result.name)
        return (self.splats[x],) if x in self.splats else None

    def claimed(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Hints and `uniform` of a constant are dropped, and so are assumptions and assertions of `true`."""
        x = operands[0]
        if x not in self.constants:
            return None
        if op.results:
            return (x,)
        return () if self.constants[x] else None

    def masked(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A mask that is true is dropped. With a mask that is false a store is dropped, and a load is its default value."""
        place = op.kind.operand_index["mask"]
        mask = operands[place]
        if mask not in self.constants:
            return None
        if self.constants[mask]:
            absent = len(operands) - place if op.kind is memory.load else 1
            return out.keep(op, (*operands[:place], *(None,) * absent))
        if op.kind is memory.store:
            return ()
        other = operands[-1]
        return _spelled(out, other, op.result.type) if op.kind is memory.load and other is not None else None

    def array(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """An array of equal constants, or of registers of other arrays."""
        numbers = [self.constants.get(value) for value in operands if value is not None]
        number = numbers[0]
        if number is not None and len({repr(each) for each in numbers}) == 1:
            return self._constant(out, number, op.result.type, op.result.name)
        return _ARRAYS[op.kind](self.registers, out, op, operands)

    def accesses(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """As `masked`. Equal predicates become one predicate, and constant strides are folded into the offsets."""
        place = op.kind.operand_index["mask"]
        mask = operands[place]
        other = operands[op.kind.operand_index["other"]] if op.kind is memory.load_regs else None
        given = list(operands)
        if mask in self.constants:
            if self.constants[mask]:
                given[place : place + 1 + (op.kind is memory.load_regs)] = (None,) * (1 + (op.kind is memory.load_regs))
            elif op.kind in _STORES:
                return ()
            elif other is not None:
                return (other,)
        elif mask is not None:
            given[place] = self.registers.one(mask) or mask
        return self._with_offsets(out, op, tuple(given))

    def parts(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Accesses to vectors that a mask cuts: dropped where it cuts none; constant strides are folded into the offsets."""
        mask = operands[op.kind.operand_index["mask"]]
        if mask in self.constants and not self.constants[mask]:
            if op.kind is memory.store_part:
                return ()
            before = operands[op.kind.operand_index["x"]]
            assert before is not None
            return (before,)
        return self._with_offsets(out, op, operands)

    def _with_offsets(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Fold constant strides into the offsets."""
        fixed = len(op.kind.operands)
        strides = operands[fixed:]
        known = [None if value is None else self.constants.get(value) for value in strides]
        if all(number is None for number in known):
            return out.keep(op, operands)
        constants, *tables = op.attrs["offsets"]
        for number, table in zip(known, tables, strict=True):
            if number is not None:
                constants = tuple([c + int(number) * factor for c, factor in zip(constants, table, strict=True)])
        kept = [i for i, number in enumerate(known) if number is None]
        attrs = {**op.attrs, "offsets": (constants, *(tables[i] for i in kept))}
        changed = Op(op.kind, op.operands, attrs, op.results, (), op.loc)
        return out.keep(changed, (*operands[:fixed], *(strides[i] for i in kept)))

    def if_(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """An `if` with a constant condition is inlined; a result that both regions yield alike is replaced by that value."""
        (condition,) = operands
        if condition in self.constants:
            region = op.regions[0 if self.constants[condition] else 1]
            return _inlined(out, op, region)
        pairs = list(zip(*(region.terminator.operands for region in op.regions), strict=True))
        made = out.keep(op, operands)
        return tuple(
            out.env[a] if a is b and a is not None and a in out.env else new
            for new, (a, b) in zip(made, pairs, strict=True)
        )

    def for_(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """A loop without iterations is dropped; one with one iteration is inlined. The sign of a constant step is recorded."""
        (body,) = op.regions
        bounds, inits = operands[:BOUNDS], [value for value in operands[BOUNDS:] if value is not None]
        known = op if op.attrs["descending"] is not None else self._directed(op, operands[2])
        trips = self._trips(bounds)
        if trips == 0:
            return tuple(inits)
        if trips == 1:
            counter = operands[0]
            assert counter is not None
            out.env.update(zip(body.args, (counter, *inits), strict=True))
            return _inlined(out, op, body)
        return self.loop(out, known, operands) or (None if known is op else out.keep(known, operands))

    def loop(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Loop-invariant carried values are replaced by their initial values."""
        known = {value: out.env[init] for value, init in unchanged(op).items()}
        if not known:
            return None
        out.env.update(known)
        rest = without(op, known.__contains__)
        made = out.keep(rest, tuple(map(out.mapped, rest.operands)))
        results = dict(zip(rest.results, made, strict=True))
        return tuple(results[value] if value in results else known[value] for value in op.results)

    def partitions(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        """Each partition is simplified in isolation: its registers are not visible in others, so values are not shared."""
        regions = tuple(out.copy_isolated(region) for region in op.regions)
        out.loc = op.loc
        made: Value | tuple[Value, ...] | None = out.emit(op.kind, regions=regions, **op.attrs)
        results = () if made is None else made if isinstance(made, tuple) else (made,)
        for new, old in zip(results, op.results, strict=True):
            new.name = old.name
        return results

    def _directed(self, op: Op, step: Value | None) -> Op:
        """The loop with the sign of its step recorded, if the step is constant."""
        number = self.constants[step] if step is not None and step in self.constants else 0
        attrs = {**op.attrs, "descending": number < 0}
        return Op(op.kind, op.operands, attrs, op.results, op.regions, op.loc) if number else op

    def _trips(self, bounds: Operands) -> int | None:
        """The trip count of a loop with constant bounds; None for others, and for a step of 0, which is reported later."""
        if any(value not in self.constants for value in bounds):
            return None
        lower, upper, step = (int(self.constants[value]) for value in bounds if value is not None)
        return trip_count(lower, upper, step) if step else None


def _spelled(out: Rebuilder, value: Value, type: Type) -> tuple[Value]:
    """The value; converted without data movement if its layout is equal to the type's but spelled differently."""
    if isinstance(type, TileType) and isinstance(value.type, TileType) and value.type.layout != type.layout:
        return (out.emit(tile.convert, value, name=value.name, layout=type.layout),)
    return (value,)


def _inlined(out: Rebuilder, op: Op, region: Region) -> tuple[Value, ...]:
    """Inline a region's operations; the values that it yields replace the operation's results."""
    for inner in region.ops[:-1]:
        out.copy_op(inner)
    handed = zip(region.terminator.uses, op.results, strict=True)
    return tuple(_spelled(out, out.env[value], result.type)[0] for value, result in handed)


_ARRAYS = {
    regs.concat: Registers.concat, regs.gather: Registers.gather, regs.splat: Registers.splat,
    regs.extract: Registers.extract,
}  # fmt: skip
_STORES = (memory.store_regs, memory.reduce_regs, thread.store_shared, thread.store_local)
_ACCESSES = (memory.load_regs, *_STORES, thread.load_shared, async_copy.copy)
_SPECIAL: dict[OpDef, Callable[[_Simplifier, Rebuilder, Op, Operands], Replacement]] = {
    arith.constant: _Simplifier.constant,
    arith.cast: _Simplifier.cast,
    arith.select: _Simplifier.select,
    tile.splat: _Simplifier.splat,
    tile.extract: _Simplifier.extract,
    control.if_: _Simplifier.if_,
    **dict.fromkeys(LOOPS, _Simplifier.loop),
    control.for_: _Simplifier.for_,
    control.warp_specialize: _Simplifier.partitions,
    **dict.fromkeys(KEEP_SPLAT, _Simplifier.moved),
    **dict.fromkeys((hints.axes, hints.uniform, hints.assume), _Simplifier.claimed),
    **dict.fromkeys((memory.load, memory.store, memory.atomic), _Simplifier.masked),
    debug.assert_: _Simplifier.claimed,
    **dict.fromkeys(_ARRAYS, _Simplifier.array),
    **dict.fromkeys(_ACCESSES, _Simplifier.accesses),
    **dict.fromkeys((memory.load_part, memory.store_part), _Simplifier.parts),
}
