"""What is known about the elements of integer and pointer tiles without running the kernel: axis facts.

    %o = tile.arange {start = 0, end = 64}        contiguous [64]  divisible [2**30]  constant [1]
    %p = memory.addptr (tile.splat %in), %o       contiguous [64]  divisible [16]     constant [1]      (%in is 16-byte aligned)
    %m = arith.cmp %o, (tile.splat %n)            contiguous [1]   divisible [1]      constant [16]     (%n is a multiple of 16)

Runs are aligned: a run of 4 starts at an index that is a multiple of 4. Integers wrap, and every fact holds nevertheless:

- divisors are powers of two, which survive wrapping;
- a run whose first number is a multiple of its length never contains the point where a type wraps, so it survives division,
  comparison and widening; of other runs only the aligned part does;
- that a sum, product or left shift is not negative follows from intervals alone (`weft.passes.ranges`).

Facts that are asked for `addresses` assume one thing more: that no int32 sum or product overflows. The simulator follows one
that does to the access whose address or mask depends on it, and reports it there. Masks are not judged by them: a mask that
wraps is computed as it stands. Nothing here looks at layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.ir.core import Func, Op, Region, Value
from weft.ir.types import DType, Pointer, TileType, int32
from weft.ops import arith, control, memory
from weft.passes.fact_rules import ELEMENTWISE, RULES, Facts, Known, equal, meet, power_of_two_part, shape_of, unknown
from weft.passes.ranges import Ranges

OVERFLOWS = (arith.add, arith.sub, arith.mul, arith.shl)
"""Operations whose result may have another sign than the exact one."""
WIDENS = (arith.cast, memory.addptr)
"""Operations that take the last operand into a type in which it may go on where its own wraps."""


def facts(func: Func, addresses: bool = False) -> dict[Value, Facts]:
    """Facts about every value of a function in tile IR. With `addresses`, those that pointers may be judged by."""
    analysis = _Analysis(Ranges(func), addresses)
    for arg, given in zip(func.params, func.attrs["params"], strict=True):
        analysis.known[arg] = replace(unknown(arg.type), divisible=(power_of_two_part(given.get("divisible", 1)),))
    analysis.region(func.body)
    return analysis.known


class _Analysis:
    """Walks regions in program order; loops are walked until what they carry holds."""

    def __init__(self, ranges: Ranges, addresses: bool) -> None:
        self.known: dict[Value, Facts] = {}
        self._ranges = ranges
        self._addresses = addresses

    def region(self, region: Region) -> Known:
        """Facts about what the region hands on."""
        for op in region.ops:
            self._op(op)
        return self._of(region.terminator.operands)

    def _of(self, values: tuple[Value | None, ...]) -> Known:
        return tuple([self.known[value] for value in values if value is not None])

    def _set(self, values: tuple[Value, ...], found: Known) -> None:
        self.known.update(zip(values, found, strict=True))

    def _op(self, op: Op) -> None:
        if op.kind in RULES:
            found = self._with_sign(op, RULES[op.kind](op, self._unwrapped(op, self._lifted(op))))
            self.known.update(dict.fromkeys(op.results, found))
        elif op.kind is control.for_:
            self._for(op)
        elif op.kind is control.while_:
            self._while(op)
        elif op.kind is control.if_:
            then, orelse = map(self.region, op.regions)
            self._set(op.results, tuple(map(meet, then, orelse)))
        elif op.kind is control.warp_specialize:
            yielded, *_ = map(self.region, op.regions)
            self._set(op.results, yielded)
        else:
            for region in op.regions:
                self._set(region.args, tuple(unknown(arg.type) for arg in region.args))
                self.region(region)
            self._set(op.results, tuple(unknown(result.type) for result in op.results))

    def _with_sign(self, op: Op, found: Facts) -> Facts:
        """The facts with what is known of the sign, though the operation may overflow."""
        element = op.results[0].type.element
        if not isinstance(element, DType) or element.is_floating():
            return found
        if element.is_int_unsigned() or element.is_bool():
            return replace(found, nonnegative=True)
        believed = found.nonnegative and (op.kind not in OVERFLOWS or self._assumed(element))
        span = self._ranges.of(op.results[0])
        return replace(found, nonnegative=believed or (span is not None and span.low >= 0))

    def _unwrapped(self, op: Op, known: Known) -> Known:
        """Operands' facts where a wider type takes them: runs that may go over the point where the narrow one wraps are cut."""
        if op.kind not in WIDENS:
            return known
        *_, operand = op.uses
        element, last = operand.type.element, known[-1]
        if isinstance(element, Pointer) or element.bits == 64 or self._assumed(element):
            return known
        runs = tuple(map(min, last.contiguous, last.divisible))
        divisible = tuple([last.multiple(d, run) for d, run in enumerate(runs)])
        return (*known[:-1], replace(last, contiguous=runs, divisible=divisible))

    def _assumed(self, element: DType) -> bool:
        """Whether sums of the type are taken as if they never overflowed."""
        return self._addresses and element == int32

    def _lifted(self, op: Op) -> Known:
        """Operands' facts; in elementwise operations on tiles those of a scalar hold for each element."""
        known = self._of(op.operands)
        shape = shape_of(op.results[0].type)
        if op.kind not in ELEMENTWISE or not isinstance(op.results[0].type, TileType):
            return known
        ones = (1,) * len(shape)

        def lifted(f: Facts) -> Facts:
            return replace(f, contiguous=ones, divisible=(f.every,) * len(shape), constant=shape)

        pairs = zip(known, op.uses, strict=True)
        return tuple(f if isinstance(value.type, TileType) else lifted(f) for f, value in pairs)

    def _for(self, op: Op) -> None:
        lower, _, step, *inits = self._of(op.operands)
        (body,) = op.regions
        counter = equal(body.args[0].type, min(lower.every, step.every))
        descending: bool | None = op.attrs["descending"]
        ascending = step.nonnegative if descending is None else not descending
        self.known[body.args[0]] = replace(counter, nonnegative=lower.nonnegative and ascending)
        self._set(op.results, self._carried(tuple(inits), body.args[1:], lambda: self.region(body)))

    def _while(self, op: Op) -> None:
        before, after = op.regions

        def once() -> Known:
            self._set(after.args, self.region(before)[1:])
            return self.region(after)

        self._carried(self._of(op.operands), before.args, once)
        self._set(op.results, tuple(self.known[arg] for arg in after.args))

    def _carried(self, inits: Known, args: tuple[Value, ...], walk: Callable[[], Known]) -> Known:
        while True:
            self._set(args, inits)
            met = tuple(map(meet, inits, walk()))
            if met == inits:
                return inits
            inits = met
