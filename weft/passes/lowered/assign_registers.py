"""Coalesce values into shared C variables, so that phis of loops and branches need no register moves.

    %acc = regs.splat 0                          storage: {%a: 0, %next: 0, %sum: 0}
    %sum = control.for ... (%acc) {
    ^(%i, %a):                            -->    float a[16];
      %next = arith.add %a, %x                   a = 0; for (...) a += x; use(a)
      control.yield %next
    }
    use %sum

All values of a phi should share one variable: a loop's argument, its initial value, the yielded value and the result, or a
branch's result and the values that its regions yield. They do unless two of them interfere. The result of an operation may
overwrite an operand only if the operation reads each register before it writes it: elementwise operations do, and MMAs
with respect to their accumulator. The accumulator of a wgmma in flight must not move: wgmmas and waits update it in place.

The result is `func.attrs.storage`: the class of each value that shares a variable. Any other value has a variable of its own.
After any later rewrite of the function the pass must run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from weft.analysis.flow import Pair, pairs
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ops import arith, control, elements, regs, shared, thread, warp

Live = frozenset[Value]

# Emitted inline at their uses, so they have no variable to share. That is a property of the CUDA text, not of the operation.
_NO_VARIABLE = frozenset({arith.constant, regs.splat, regs.extract, shared.array, shared.scratch, thread.alloc_local})
# Not elementwise, as lanes exchange values, but like these they read register `i` of their operand before they write register
# `i` of their result: the CUDA text has one shuffle per register.
_EXCHANGES = frozenset({warp.shuffle_xor, warp.shuffle_idx})


def assign_registers(func: Func) -> Func:
    """The function with `storage` set."""
    wanted = [pair for op in walk(func.body) for pair in _wanted(op)]
    excluded = {*func.params, *(result for op in walk(func.body) if op.kind in _NO_VARIABLE for result in op.results)}
    wanted = [(a, b) for a, b in wanted if a.type == b.type and not {a, b} & excluded]
    candidates = frozenset(value for pair in wanted for value in pair)
    graph = _Interference(candidates)
    graph.region(func.body, frozenset())
    return func.with_attrs(storage=_classes(wanted, graph))


# Pairs of values to coalesce


def _wanted(op: Op) -> Iterator[Pair]:
    """Pairs of values that should share a variable: along a control flow edge, or an operation's accumulator and result."""
    yield from pairs(op)
    for result, number in _updates(op):
        value = op.operands[number]
        assert value is not None
        yield result, value


def _updates(op: Op) -> Iterator[tuple[Value, int]]:
    """Each result that takes over the registers of an operand, with the operand's number."""
    kind = op.kind
    if kind.updates is not None:
        # Variadic operands follow the others.
        first = kind.operand_index.get(kind.updates, len(kind.operands))
        yield from ((result, first + i) for i, result in enumerate(op.results))


class _Class:
    """Values that share a variable (`members`), and the values that interfere with one of them (`barred`)."""

    __slots__ = ("barred", "members")

    def __init__(self, value: Value, graph: _Interference) -> None:
        self.members = [value]
        self.barred = set(graph.neighbours(value))


def _class_of(value: Value, classes: dict[Value, _Class], graph: _Interference) -> _Class:
    if value not in classes:
        classes[value] = _Class(value, graph)
    return classes[value]


def _classes(pairs: Iterable[Pair], graph: _Interference) -> dict[Value, int]:
    """Merge the pairs in their order, unless values of the two classes interfere.

    The smaller class is merged into the larger one, so that the cost is O(n log n)."""
    classes: dict[Value, _Class] = {}
    for pair in pairs:
        first, second = (_class_of(value, classes, graph) for value in pair)
        small, large = sorted((first, second), key=lambda each: len(each.members))
        if small is large or not large.barred.isdisjoint(small.members):
            continue
        large.barred |= small.barred
        large.members += small.members
        for value in small.members:
            classes[value] = large
    numbers: dict[_Class, int] = {}
    common = {value: each for value, each in classes.items() if len(each.members) > 1}
    return {value: numbers.setdefault(each, len(numbers)) for value, each in common.items()}


# Interference


class _Interference:
    """The interference graph: pairs of candidates of which one is written while the other is live, from one backward walk."""

    def __init__(self, candidates: frozenset[Value]) -> None:
        self._candidates = candidates
        self._apart: defaultdict[Value, set[Value]] = defaultdict(set)
        self._outer: dict[Region, Live] = {}

    def neighbours(self, value: Value) -> set[Value]:
        """The values that cannot share a variable with this one."""
        return self._apart[value]

    def region(self, region: Region, after: Live, args: tuple[Value, ...] = ()) -> Live:
        """Walk a region past which `after` is live; returns what is live before it.

        `args` are written in parallel at its begin."""
        live = after | self._needed(region.terminator.uses)
        for op in reversed(region.ops[:-1]):
            live = self._op(op, live)
        self._written(args, live)
        return live - frozenset(region.args)

    def _op(self, op: Op, after: Live) -> Live:
        if op.regions:
            return self._nested(op, after)
        results, needed = self._needed(op.results), self._needed(op.uses)
        for result in results:
            self._written([result], after | self._needed((*_read_to_the_end(op, result), *op.results)))
        # Most operations change nothing; for these the cost must not be proportional to the number of live values.
        return after if results.isdisjoint(after) and needed <= after else (after - results) | needed

    def _nested(self, op: Op, after: Live) -> Live:
        results = frozenset(op.results)
        self._written(op.results, after)
        after -= results
        entering = self._needed(op.uses)
        if op.kind is control.if_:
            # Each region ends by writing the results, in parallel.
            return entering.union(*(self.region(region, after) for region in op.regions))
        if op.kind is elements.map_elements:
            # Each iteration over registers reads operands and writes results.
            self._written(op.results, after | entering)
        through = after | self._free(op)
        if op.kind is control.for_:
            # The head of a C loop reads the bounds in every iteration.
            through |= self._needed(op.operands[:3])
        for region in op.regions:
            self.region(region, through, region.args)
        return through | entering

    def _written(self, values: Iterable[Value], needed: Live) -> None:
        """The values are written while `needed` is live. Values that are written in parallel interfere with each other too."""
        written = [value for value in values if value in self._candidates]
        for value in written:
            others = needed.union(written) - {value}
            self._apart[value] |= others
            for other in others:
                self._apart[other].add(value)

    def _needed(self, values: Iterable[Value | None]) -> Live:
        return self._candidates.intersection(values)

    def _free(self, op: Op) -> Live:
        """Candidates from outside that the operation's regions use: in a loop they are live throughout."""
        return frozenset(value for region in op.regions for value in self._from_outside(region))

    def _from_outside(self, region: Region) -> Live:
        if region not in self._outer:
            inner = [value for op in region.ops for value in op.uses]
            used = self._needed(inner).union(*(self._free(op) for op in region.ops))
            made = {*region.args, *(result for op in region.ops for result in op.results)}
            self._outer[region] = used - made
        return self._outer[region]


def _read_to_the_end(op: Op, result: Value) -> list[Value]:
    """Operands that are still read when the first register of a result is written."""
    if op.kind.elementwise or op.kind in _EXCHANGES:
        return []
    own = {number for updated, number in _updates(op) if updated is result}
    return [value for number, value in enumerate(op.operands) if value is not None and number not in own]
