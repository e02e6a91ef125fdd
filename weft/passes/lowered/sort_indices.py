"""Reassociate indices so that constants and loop counters are added last, where they fold into immediate offsets.

    %down = arith.add %row, %i                           %m = arith.mul %row, 96
    %m = arith.mul %down, 96                             %n = arith.add %m, %column
    %at = arith.add %m, %column                  -->     %q = memory.addptr %x, %n
    %p = memory.addptr %x, %at                           %p = memory.addptr %q, (arith.mul %i, 96)

%i counts a loop of constant bounds, which the C compiler may unroll: the addresses of all iterations are then one base plus
constants. The same holds for accesses at constant distances. Only nonnegative counters and positive constants are split off, so
that the rest is the index of an earlier element. Like the index itself, it is assumed not to overflow (see
`weft.passes.lowered.mark_exact`). The pass applies to thread-level kernels (with the attribute "block").
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.analysis.facts import facts
from weft.ir.core import Func, Op, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import ScalarType, int32
from weft.ops import arith, control, memory
from weft.passes.lowered.mark_exact import SHARED, SUMS, only_addresses

SCALAR = ScalarType(int32)


def sort_indices(func: Func) -> Func:
    """The lowered function with such indices; unchanged if it is not a thread-level kernel."""
    if func.attrs.block is None:
        return func
    sorter = _Sorter(func)

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind is not memory.addptr and op.kind not in SHARED:
            return None
        index = op.operands[1]
        if index is None or index.type != SCALAR or index not in sorter.made:
            return None
        first, rest = sorter.parts(out, index)
        if rest is None:
            return None
        if first is None:
            return out.keep(op, (operands[0], rest, *operands[2:]))
        if op.kind is memory.addptr:
            return (out.emit(op.kind, out.emit(op.kind, operands[0], first), rest, name=op.result.name),)
        return out.keep(op, (operands[0], out.emit(arith.add, first, rest), *operands[2:]))

    return rebuild(func, rule, number=True)


@dataclass(slots=True)
class _Sum:
    """`rest + constant + sum(factor * counter)`; None for `rest` is zero."""

    rest: Value | None = None
    constant: int = 0
    counters: dict[Value, int] = field(default_factory=dict[Value, int])

    @property
    def known(self) -> bool:
        """Whether there is a constant or a counter to split off."""
        return bool(self.constant or self.counters)


class _Sorter:
    """Splits indices. `made` are the sums and products that may be reassociated."""

    def __init__(self, func: Func) -> None:
        known, addresses, ops = facts(func), only_addresses(func), walk(func.body)
        self.numbers: dict[Value, int] = {op.result: op.attrs["value"] for op in ops if op.kind is arith.constant}
        sums = [op for op in ops if op.kind in SUMS and op.result.type == SCALAR]
        self.made = {op.result: op for op in sums if op.result in addresses or known.exact(op)}
        self.counters = {op.regions[0].args[0] for op in ops if op.kind is control.for_ and self._is_fixed(op)}

    def _is_fixed(self, loop: Op) -> bool:
        """Whether a loop has constant, nonnegative bounds."""
        return all(self.numbers.get(bound, -1) >= 0 for bound in list(loop.uses)[:2])

    def parts(self, out: Rebuilder, index: Value) -> tuple[Value | None, Value | None]:
        """The rest of an index, and the part that is split off; None for an empty one."""
        found = self._apart(out, index)
        total: Value | None = None
        for counter, factor in found.counters.items():
            total = _plus(out, total, _times(out, out.env[counter], factor))
        if found.constant:
            total = _plus(out, total, _number(out, found.constant))
        return found.rest, total

    def _apart(self, out: Rebuilder, value: Value) -> _Sum:
        if value in self.counters:
            return _Sum(counters={value: 1})
        number = self.numbers.get(value)
        if number is not None and number > 0:
            return _Sum(constant=number)
        op = self.made.get(value)
        if op is None:
            return _Sum(out.env[value])
        lhs, rhs = op.uses
        if op.kind is arith.mul:
            return self._product(out, value, lhs, rhs)
        a, b = self._apart(out, lhs), self._apart(out, rhs)
        if op.kind is arith.add:
            counters = {c: a.counters.get(c, 0) + b.counters.get(c, 0) for c in (*a.counters, *b.counters)}
            rest = _plus(out, a.rest, b.rest) if b.rest is not None else a.rest
            return _Sum(rest, a.constant + b.constant, counters)
        if not a.known or a.rest is None or b.known:
            return _Sum(out.env[value])
        return _Sum(out.emit(arith.sub, a.rest, out.env[rhs]), a.constant, a.counters)

    def _product(self, out: Rebuilder, value: Value, lhs: Value, rhs: Value) -> _Sum:
        """A product with a positive constant is distributed over the parts of the other factor."""
        if lhs in self.numbers:
            lhs, rhs = rhs, lhs
        factor = self.numbers.get(rhs, 0)
        inner = self._apart(out, lhs) if factor > 0 else _Sum()
        if not inner.known:
            return _Sum(out.env[value])
        rest = None if inner.rest is None else _times(out, inner.rest, factor)
        return _Sum(rest, inner.constant * factor, {c: factor * each for c, each in inner.counters.items()})


def _number(out: Rebuilder, value: int) -> Value:
    return out.emit(arith.constant, value=value, type=SCALAR)


def _plus(out: Rebuilder, lhs: Value | None, rhs: Value) -> Value:
    return rhs if lhs is None else out.emit(arith.add, lhs, rhs)


def _times(out: Rebuilder, value: Value, factor: int) -> Value:
    return value if factor == 1 else out.emit(arith.mul, value, _number(out, factor))
