"""Decide which values share one C variable, so that loops and branches move no data at their edges.

    %acc = regs.splat 0                          storage: {%a: 0, %next: 0, %sum: 0}
    %sum = control.for ... (%acc) {
    ^(%i, %a):                            -->    float a[16];
      %next = arith.add %a, %x                   a = 0; for (...) a += x; use(a)
      control.yield %next
    }
    use %sum

A loop's argument, its initial value, what the body yields and the result want one variable; so do a branch's result and what
its sides yield. They get it unless two of them must be kept at a time. An operation may write its result over an operand only
where it reads each register before it writes that register: elementwise ones, and products over their accumulator. A product
in flight must not be moved: its accumulator is updated in place, and goes in place through the waits.

The result is `func.attrs.storage`: the class of each value that shares; a value that is not in it has its own variable. Any
later rewrite of the function must run the pass again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from weft.analysis.flow import Pair, pairs
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ops import arith, control, mma, reduce, regs, scratch, shared, thread

Live = frozenset[Value]

# Written inline by whoever uses them, so that they have no variable to share.
_NO_VARIABLE = frozenset({arith.constant, regs.splat, regs.extract, shared.array, scratch.alloc, thread.alloc_local})
# As elementwise operations: they read register `i` of their operand before they write register `i` of their result.
_EXCHANGES = frozenset({regs.shuffle_xor, regs.shuffle_idx})
# Write their result over their third operand, their accumulator, and read the others to the end.
_PRODUCTS = frozenset({regs.dot, mma.wgmma, mma.mma_sync})
# Leave each operand where it is, as the result of the same number.
_IN_PLACE = frozenset({mma.begin, mma.warpgroup_wait})


def assign_registers(func: Func) -> Func:
    """The function with `storage` set."""
    wanted = [pair for op in walk(func.body) for pair in _wanted(op)]
    excluded = {*func.params, *(result for op in walk(func.body) if op.kind in _NO_VARIABLE for result in op.results)}
    wanted = [(a, b) for a, b in wanted if a.type == b.type and not {a, b} & excluded]
    candidates = frozenset(value for pair in wanted for value in pair)
    graph = _Interference(candidates)
    graph.region(func.body, frozenset())
    return func.with_attrs(storage=_classes(wanted, graph))


# What wants one variable


def _wanted(op: Op) -> Iterator[Pair]:
    """Pairs of values of which one takes the other's place: on an edge of control flow, or in the operation."""
    yield from pairs(op)
    if op.kind in _PRODUCTS:
        yield op.result, list(op.uses)[2]
    elif op.kind in _IN_PLACE:
        yield from zip(op.results, op.uses, strict=True)


class _Class:
    """Values that share a variable, and what may not join them."""

    __slots__ = ("barred", "members")

    def __init__(self, value: Value, graph: _Interference) -> None:
        self.members = [value]
        self.barred = set(graph.neighbours(value))


def _class_of(value: Value, classes: dict[Value, _Class], graph: _Interference) -> _Class:
    if value not in classes:
        classes[value] = _Class(value, graph)
    return classes[value]


def _classes(pairs: Iterable[Pair], graph: _Interference) -> dict[Value, int]:
    """Merge the pairs in their order, as long as no two values of a class interfere.

    The smaller class goes into the larger one, so that merging costs n log n."""
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
    shared = {value: each for value, each in classes.items() if len(each.members) > 1}
    return {value: numbers.setdefault(each, len(numbers)) for value, each in shared.items()}


# What must be kept at a time


class _Interference:
    """Pairs of candidates of which one is written while the other is still needed. One backward walk finds them all."""

    def __init__(self, candidates: frozenset[Value]) -> None:
        self._candidates = candidates
        self._apart: defaultdict[Value, set[Value]] = defaultdict(set)
        self._outer: dict[Region, Live] = {}

    def neighbours(self, value: Value) -> set[Value]:
        """What cannot share a variable with the value."""
        return self._apart[value]

    def region(self, region: Region, after: Live, args: tuple[Value, ...] = ()) -> Live:
        """Walk a region that is followed by a need for `after`; returns what it needs from outside.

        `args` are written together at its start."""
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
        # Most operations change nothing, and must not cost as much as there are live values.
        return after if results.isdisjoint(after) and needed <= after else (after - results) | needed

    def _nested(self, op: Op, after: Live) -> Live:
        results = frozenset(op.results)
        self._written(op.results, after)
        after -= results
        entering = self._needed(op.uses)
        if op.kind is control.if_:
            # A side ends by writing the results, all at once.
            return entering.union(*(self.region(region, after) for region in op.regions))
        if op.kind is reduce.map_elements:
            # Operands are read in every pass, results are written in every pass.
            self._written(op.results, after | entering)
        through = after | self._free(op)
        if op.kind is control.for_:
            # The head of a C loop reads its bounds in every round.
            through |= self._needed(op.operands[:3])
        for region in op.regions:
            self.region(region, through, region.args)
        return through | entering

    def _written(self, values: Iterable[Value], needed: Live) -> None:
        """The values are written while the others are needed; values that are written together are apart too."""
        written = [value for value in values if value in self._candidates]
        for value in written:
            others = needed.union(written) - {value}
            self._apart[value] |= others
            for other in others:
                self._apart[other].add(value)

    def _needed(self, values: Iterable[Value | None]) -> Live:
        return self._candidates.intersection(values)

    def _free(self, op: Op) -> Live:
        """Candidates that the operation's regions use from outside: they are needed in every round of a loop."""
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
    if op.kind in _IN_PLACE:
        return [value for value, own in zip(op.uses, op.results, strict=True) if own is not result]
    operands = list(op.uses)
    if op.kind in _PRODUCTS:
        del operands[2]
    return operands
