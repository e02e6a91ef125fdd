"""Control flow edges between the regions of an operation, and the dataflow engines that iterate over them to a fixpoint.

    %r = control.while (%init) {                joints of this loop, with the values that each of them passes (its phis):
    ^before(%a): ... control.condition %c, %p     entry, end of after  -->  begin of before     %init, %y  -->  %a
    ^after(%b):  ... control.yield %y             end of before  -->  begin of after, exit      %p         -->  %b, %r
    }

A `Joint` has an edge from each of its sources to each of its targets. Only `joints` knows the control flow of loops, branches
and partitions. Everything else is derived from it: the values that are one variable (`pairs`, `Joint.rows`), and three engines
that iterate over loops to a fixpoint. Program order (`program_order`) numbers the operations of all regions.

- `Values`: forward, one fact for each value (scopes, handles, value facts).
- `States`: forward or backward, one state for each program point; a transfer function may also replace the operation
  (synchronisation, wgmmas in flight).
- `reach`: the transitive closure of a relation (live operations, connected values).

A subclass gives the transfer function of an operation and the join of two facts. The facts must form a lattice of finite
height, or `Values.join` must widen by the number of the iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from weft.errors import Loc
from weft.ir.core import Op, OpDef, Region, Value, walk
from weft.ops import control

Pair = tuple[Value, Value]
Row = tuple[Value, ...]
S = TypeVar("S")
F = TypeVar("F")
C = TypeVar("C")
T = TypeVar("T", bound=Hashable)

LOOPS = (control.for_, control.while_)
PARALLEL = (control.warp_specialize, control.partitions)
"""Operations whose regions all run concurrently. Of any other operation one region runs at a time."""


# The structure


@dataclass(frozen=True, slots=True)
class Port:
    """One end of control flow edges, and the values that are passed there.

    A source is the end of a region, with operands of its terminator, or the operation's entry, with its operands. A target is
    the begin of a region, with its arguments, or the operation's exit, with its results. `region` is None for entry and exit.
    `first` is the index of the first of `values` in their list: the bounds of a `for`, for example, precede its initial values
    and are passed to no target."""

    region: int | None
    values: Row = ()
    first: int = 0


@dataclass(frozen=True, slots=True)
class Joint:
    """Edges from each source to each target. The values of a source become those of a target by position."""

    sources: tuple[Port, ...]
    targets: tuple[Port, ...]

    @property
    def rows(self) -> Iterator[Row]:
        """For each position the values that are one variable (a phi): those of the sources, then those of the targets."""
        return zip(*(port.values for port in (*self.sources, *self.targets)), strict=True)


def joints(op: Op) -> tuple[Joint, ...]:
    """The control flow of an operation with regions. The region of an elementwise function runs any number of times, and its
    edges pass no values."""
    if not op.regions:
        return ()
    described = _JOINTS.get(op.kind)
    if described is not None:
        return described(op)
    inside = tuple([Port(number) for number in range(len(op.regions))])
    return (Joint((*inside, Port(None)), (*inside, Port(None))),)


def _for(op: Op) -> tuple[Joint, ...]:
    (body,) = op.regions
    inits = op.uses[BOUNDS:]
    return (
        Joint((_end(body, 0), Port(None, inits, BOUNDS)), (Port(0, body.args[1:], 1), Port(None, op.results))),
    )  # fmt: skip


def _while(op: Op) -> tuple[Joint, ...]:
    before, after = op.regions
    return (
        Joint((_end(after, 1), Port(None, op.uses)), (Port(0, before.args),)),
        Joint((_end(before, 0, 1),), (Port(1, after.args), Port(None, op.results))),
    )


def _if(op: Op) -> tuple[Joint, ...]:
    ends = tuple([_end(region, number) for number, region in enumerate(op.regions)])
    return (Joint((Port(None),), (Port(0), Port(1))), Joint(ends, (Port(None, op.results),)))


def _parallel(op: Op) -> tuple[Joint, ...]:
    """Only the first partition, the default one, yields results."""
    numbers = range(len(op.regions))
    return (
        Joint((Port(None),), tuple(map(Port, numbers))),
        Joint((_end(op.regions[0], 0),), (Port(None, op.results),)),
        Joint(tuple(map(Port, numbers[1:])), (Port(None),)),
    )


def _end(region: Region, number: int, first: int = 0) -> Port:
    return Port(number, region.terminator.uses[first:], first)


BOUNDS = 3
"""The number of operands of a `for` that precede its initial values: start, stop and step."""
STRUCTURED = (*LOOPS, control.if_, *PARALLEL)
"""Operations whose regions are statements of the kernel. The regions of all others are elementwise functions."""
_JOINTS: dict[OpDef, Callable[[Op], tuple[Joint, ...]]] = {
    control.for_: _for,
    control.while_: _while,
    control.if_: _if,
    **dict.fromkeys(PARALLEL, _parallel),
}


def decides(op: Op) -> Row:
    """The values that decide which region of an operation runs, and how often."""
    if op.kind is control.for_:
        return op.uses[:BOUNDS]
    if op.kind is control.while_:
        return op.regions[0].terminator.uses[:1]
    return op.uses if op.kind is control.if_ else ()


def decided_at(op: Op) -> Loc | None:
    """The line of the condition or of the bounds that `decides` gives the values of."""
    return op.regions[0].terminator.loc if op.kind is control.while_ else op.loc


def pairs(op: Op) -> Iterator[Pair]:
    """Pairs of values that connect all values of each row. The pairs of back edges precede those of the entry of a loop."""
    entering: list[Pair] = []
    for joint in joints(op):
        hub, *others = joint.targets
        if len(joint.sources) == 1:
            for target in joint.targets:
                yield from zip(target.values, joint.sources[0].values, strict=True)
            continue
        for source in joint.sources:
            found = zip(hub.values, source.values, strict=True)
            if source.region is None:
                entering += found
            else:
                yield from found
        for other in others:
            yield from zip(hub.values, other.values, strict=True)
    yield from entering


def unchanged(loop: Op) -> dict[Value, Value]:
    """Loop-invariant carried values: those that each iteration yields unchanged, with their initial values."""
    one = [joint for joint in joints(loop) if len(joint.sources) == 1]
    several = [joint for joint in joints(loop) if len(joint.sources) > 1]
    copies = {target: source for joint in one for source, *targets in joint.rows for target in targets}
    found: dict[Value, Value] = {}
    for joint in several:
        for last, init, *targets in joint.rows:
            if copies.get(last, last) in (init, *targets):
                found.update(dict.fromkeys(targets, init))
    found.update((target, found[source]) for target, source in copies.items() if source in found)
    return found


def regions(region: Region) -> Iterator[Region]:
    """A region and all regions nested in it, outer before inner."""
    yield region
    for op in region.ops:
        for inner in op.regions:
            yield from regions(inner)


@dataclass(frozen=True, slots=True)
class ProgramOrder:
    """Operations numbered in program order, from 1. An operation precedes those in its regions, and ends at a position of its
    own past them.

    `ops`: the operation that begins at each position; None at 0 and where one ends. `ends`: the position at which an operation
    with regions ends, inner operations before outer."""

    ops: list[Op | None]
    positions: dict[Op, int]
    ends: dict[Op, int]

    @property
    def last(self) -> int:
        """The last position."""
        return len(self.ops) - 1


def program_order(region: Region) -> ProgramOrder:
    """The positions of a region's operations, nested ones included."""
    ops: list[Op | None] = [None]
    ends: dict[Op, int] = {}

    def enter(region: Region) -> None:
        for op in region.ops:
            ops.append(op)
            if op.regions:
                for inner in op.regions:
                    enter(inner)
                ends[op] = len(ops)
                ops.append(None)

    enter(region)
    return ProgramOrder(ops, {op: at for at, op in enumerate(ops) if op is not None}, ends)


def repeated(region: Region) -> set[Op]:
    """The operations of a region that are inside a loop of it."""
    return {inner for op in walk(region) if op.kind in LOOPS for inner in inside(op)}


def inside(op: Op) -> Iterator[Op]:
    """The operations nested in the regions of an operation."""
    return (inner for region in op.regions for inner in walk(region))


def with_regions(op: Op, new: Sequence[Region]) -> Op:
    """The operation with other regions; the same object if no region changes."""
    if all(a is b for a, b in zip(new, op.regions, strict=True)):
        return op
    return Op(op.kind, op.operands, op.attrs, op.results, tuple(new), op.loc)


def with_ops(region: Region, ops: Sequence[Op]) -> Region:
    """The region with other operations; the same object if no operation changes."""
    if len(ops) == len(region.ops) and all(a is b for a, b in zip(ops, region.ops, strict=True)):
        return region
    return Region(region.args, tuple(ops))


def without(op: Op, gone: Callable[[Value], bool]) -> Op:
    """The operation without the phis whose targets are all gone; the same object if there are none."""
    operands, results = _Kept(op.operands), _Kept(op.results)
    ends = [_Kept(region.terminator.operands) for region in op.regions]
    args = [_Kept(region.args) for region in op.regions]
    for joint in joints(op):
        for number, row in enumerate(joint.rows):
            if all(map(gone, row[len(joint.sources) :])):
                for port in joint.sources:
                    (operands if port.region is None else ends[port.region]).drop(port.first + number)
                for port in joint.targets:
                    (results if port.region is None else args[port.region]).drop(port.first + number)
    if not any(each.dropped for each in (operands, *ends)):
        return op
    inner: list[Region] = []
    for region, taken, handed in zip(op.regions, args, ends, strict=True):
        end = region.terminator
        last = Op(end.kind, handed.rest, end.attrs, (), (), end.loc) if handed.dropped else end
        inner.append(Region(taken.values, (*region.ops[:-1], last)))
    return Op(op.kind, operands.rest, op.attrs, results.values, tuple(inner), op.loc)


class _Kept:
    """Operands, results or arguments, some of which are dropped by index."""

    def __init__(self, given: tuple[Value | None, ...]) -> None:
        self._given = given
        self.dropped: set[int] = set()

    def drop(self, number: int) -> None:
        self.dropped.add(number)

    @property
    def rest(self) -> tuple[Value | None, ...]:
        return tuple([value for number, value in enumerate(self._given) if number not in self.dropped])

    @property
    def values(self) -> Row:
        return tuple([value for value in self.rest if value is not None])


# The engines


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from one source to one target. `source` and `target` are indices of regions; None is the entry or exit."""

    source: int | None
    target: int | None
    handed: Row
    taken: Row

    @property
    def back(self) -> bool:
        """Whether it is a back edge."""
        return self.source is not None and self.target is not None and self.source >= self.target

    @property
    def reversed(self) -> Edge:
        """The edge of the reversed control flow graph, for backward analyses."""
        return Edge(self.target, self.source, self.taken, self.handed)


def edges(op: Op) -> list[Edge]:
    """The edges of an operation; those into one target are in the order of the joint's sources."""
    return [
        Edge(source.region, target.region, source.values, target.values)
        for joint in joints(op)
        for source in joint.sources
        for target in joint.targets
    ]


class Values(ABC, Generic[F, C]):
    """A forward analysis with one fact for each value, kept in `known`.

    Each region has a context: what is known of the code rather than of a value, such as the conditions around it.
    """

    def __init__(self) -> None:
        self.known: dict[Value, F] = {}
        self.version = 0

    @abstractmethod
    def visit(self, op: Op, context: C) -> None:
        """The transfer function of an operation without regions: enter the facts of its results."""

    @abstractmethod
    def join(self, value: Value, old: F, new: F, number: int) -> F:
        """The join of two facts. `number` is the iteration of the fixpoint for the loop at hand; 0 is its entry edge."""

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> F | None:
        """The fact that an edge passes from a value to its target; None if nothing is known."""
        return self.known.get(value)

    def begin(self, op: Op, context: C) -> None:
        """Enter the facts of region arguments that no edge passes, such as a loop counter, before the first iteration."""

    def within(self, op: Op, number: int, context: C) -> C:
        """The context of one of an operation's regions."""
        return context

    def end(self, op: Op, context: C) -> None:
        """Enter the facts of results that no edge passes."""

    def settle(self, region: Region, context: C) -> None:
        """Repeat `run` until facts that flow outside of values, such as through memory, are at a fixpoint too. A subclass
        increments `version` when such a fact changes."""
        before = None
        while before != self.version:
            before = self.version
            self.run(region, context)

    def run(self, region: Region, context: C) -> None:
        """Apply the transfer functions of a region's operations in order."""
        for op in region.ops:
            if op.regions:
                self.through(op, context)
            else:
                self.visit(op, context)

    def through(self, op: Op, context: C) -> None:
        """Analyse an operation's regions; those of a loop to a fixpoint."""
        ways = edges(op)
        back = [edge for edge in ways if edge.back]
        heads = {edge.target for edge in back}
        self.begin(op, context)
        for edge in ways:
            if edge.source is None and edge.target in heads:
                self._hand(op, edge, 0)
        for number in count(1):
            contexts = [self._enter(op, region, ways, heads, context) for region in range(len(op.regions))]
            news = [self._hand(op, edge, number) for edge in back]
            if not any(news) and all(self.within(op, i, context) == inner for i, inner in enumerate(contexts)):
                break
        self._meet(op, [edge for edge in ways if edge.target is None])
        self.end(op, context)

    def _enter(self, op: Op, number: int, ways: list[Edge], heads: set[int | None], context: C) -> C:
        if number not in heads:
            self._meet(op, [edge for edge in ways if edge.target == number])
        inner = self.within(op, number, context)
        self.run(op.regions[number], inner)
        return inner

    def _meet(self, op: Op, ways: list[Edge]) -> None:
        """Recompute the facts of the targets of these edges from scratch."""
        for edge in ways:
            for value in edge.taken:
                self.known.pop(value, None)
        for edge in ways:
            self._hand(op, edge, 0)

    def _hand(self, op: Op, edge: Edge, number: int) -> bool:
        """Pass all values of an edge at once, as parallel copies; returns whether a fact changed."""
        news = False
        found = [self.handed(op, edge, *pair) for pair in zip(edge.handed, edge.taken, strict=True)]
        for target, new in zip(edge.taken, found, strict=True):
            if new is None:
                continue
            old = self.known.get(target)
            joined = new if old is None else self.join(target, old, new, number)
            if old is None or joined != old:
                self.known[target] = joined
                news = True
        return news


class States(ABC, Generic[S]):
    """An analysis with one state for each program point; backward if `backward` is set. States may be mutated in place."""

    backward = False

    @abstractmethod
    def visit(self, op: Op, state: S) -> tuple[Sequence[Op], S]:
        """The transfer function: the operations that replace this one, in program order, and the state past it."""

    @abstractmethod
    def join(self, state: S, other: S) -> tuple[S, bool]:
        """The join of two states, and whether it differs from the first."""

    def both(self, state: S, other: S) -> S:
        """The state past two regions that both run, concurrently."""
        return self.join(state, other)[0]

    def copy(self, state: S) -> S:
        """An independent copy of a state. Subclasses that mutate states override this."""
        return state

    def along(self, op: Op, edge: Edge, state: S) -> S:
        """The transfer function of an edge. It must not mutate the state at the edge's source."""
        return state

    def past(self, op: Op, number: int, state: S) -> tuple[Sequence[Op], S]:
        """Operations to insert at the far end of a region (its end, or its begin in a backward analysis), and the state past
        them."""
        return (), state

    def run(self, region: Region, state: S) -> tuple[Region, S]:
        """The region with its operations replaced, and the state at its far end."""
        ops: list[Op] = []
        for op in reversed(region.ops) if self.backward else region.ops:
            made, state = self.through(op, state) if op.regions else self.visit(op, state)
            ops += reversed(made) if self.backward else made
        return with_ops(region, ops[::-1] if self.backward else ops), state

    def through(self, op: Op, state: S) -> tuple[Sequence[Op], S]:
        """As `visit`, for an operation with regions; those of a loop are analysed to a fixpoint."""
        ways = [edge.reversed for edge in edges(op)] if self.backward else edges(op)
        back = [edge for edge in ways if edge.back]
        heads = {edge.target for edge in back}
        states: dict[int | None, S] = {None: state}
        into = {
            number: self._met(op, [e for e in ways if e.target == number and not e.back], states)
            for number in range(len(op.regions))
            if number in heads
        }
        while True:
            made: list[Region] = []
            for number, region in enumerate(op.regions):
                if number in heads:
                    entering = self.copy(into[number])
                else:
                    entering = self._met(op, [e for e in ways if e.target == number], states)
                new, after = self.run(region, entering)
                ops, states[number] = self.past(op, number, after)
                made.append(self._ended(new, ops) if ops else new)
            news = False
            for edge in back:
                assert edge.source is not None and edge.target is not None
                joined, more = self.join(into[edge.target], self.along(op, edge, states[edge.source]))
                into[edge.target] = joined
                news = news or more
            if not news:
                break
        return (with_regions(op, made),), self._met(op, [e for e in ways if e.target is None], states)

    def _ended(self, region: Region, ops: Sequence[Op]) -> Region:
        """Insert operations at the far end of a region: before its terminator, or at its begin in a backward analysis."""
        *rest, last = region.ops
        return Region(region.args, (*ops, *region.ops) if self.backward else (*rest, *ops, last))

    def _met(self, op: Op, ways: list[Edge], states: dict[int | None, S]) -> S:
        """The join of the states along these edges."""
        first, *others = ways
        state = self.copy(self.along(op, first, states[first.source]))
        for edge in others:
            other = self.along(op, edge, states[edge.source])
            state = self.both(state, other) if op.kind in PARALLEL else self.join(state, other)[0]
        return state


def reach(start: Iterable[T], onward: Callable[[T], Iterable[T]]) -> set[T]:
    """The transitive closure of `start` under `onward`."""
    todo = list(start)
    found = set(todo)
    while todo:
        for each in onward(todo.pop()):
            if each not in found:
                found.add(each)
                todo.append(each)
    return found
