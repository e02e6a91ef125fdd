"""Accumulators of asynchronous wgmmas: which values share registers, and which of them may still be in flight.

    %a = tile.splat 0
    %b = mma.warpgroup %x, %y, %a        %b is in flight, 0 wgmma groups follow it
    %c = mma.warpgroup %x, %z, %d        %b is in flight, 1 wgmma group follows it
    %e = mma.warpgroup_wait %b {1}       %e is complete; %b must not be read any more, since %e has its registers

A wgmma writes its accumulator registers asynchronously until a `wgmma.wait_group` covers its group (PTX ISA, wgmma.wait_group).
The analysis works on tile IR and on lowered IR. At a join of control flow a value is in flight if it is in flight on any
incoming edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from weft.analysis.flow import PARALLEL, STRUCTURED, Edge, States, pairs, reach, regions
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import TileType
from weft.ops import control, mma

PRODUCTS = (mma.warpgroup, mma.wgmma)
COMPLETE = 1 << 30
"""The age of a wgmma that a wait has completed."""


def links(op: Op) -> Iterator[tuple[Value, Value]]:
    """Pairs of values that share their registers: if one of them is an accumulator, the other is one too."""
    if op.kind in PRODUCTS:
        acc = op.operand("acc")
        assert acc is not None
        yield op.result, acc
    elif op.kind is mma.warpgroup_wait:
        yield from zip(op.results, op.uses, strict=True)
    else:
        yield from pairs(op)


def accumulators(func: Func) -> set[Value]:
    """Values that are the accumulator operand or the result of a wgmma, and all values that share their registers."""
    if func.body.kinds.isdisjoint(PRODUCTS):
        return set()
    neighbours: dict[Value, list[Value]] = {}
    found: list[Value] = []
    for op in walk(func.body):
        for a, b in links(op):
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
        if op.kind in PRODUCTS:
            found.append(op.result)
    return reach(found, lambda value: neighbours.get(value, ()))


def alone(func: Func) -> set[Op]:
    """Wgmmas that are waited for at once. Their operand A lies in registers, which nothing may overwrite before the wgmma is
    complete, and no wait that completes it follows in the same region, nor in the next iteration before A is computed."""
    loops = {body for op in walk(func.body) if op.kind is control.for_ for body in op.regions}
    return {
        op
        for region in regions(func.body)
        for op in region.ops
        if _reads_registers(op)
        and not completes((*left_of(op, region), *(_next(op, region) if region in loops else ())))
    }


def completes(after: Iterable[Op]) -> bool:
    """Whether one of the operations that follow a wgmma waits for it."""
    started = 0
    for other in after:
        if other.kind is mma.warpgroup:
            started += 1
        elif other.kind is mma.warpgroup_wait and other.attrs["pendings"] <= started:
            return True
    return False


def left_of(op: Op, region: Region) -> tuple[Op, ...]:
    """The operations of a region behind one of them."""
    return region.ops[region.ops.index(op) + 1 :]


def _next(product: Op, body: Region) -> tuple[Op, ...]:
    """The operations of the next iteration that come before the product's A is computed.

    None if no other product with its own registers precedes it: ptxas does not see that a wgmma of the iteration before still
    reads registers which the loop's body writes (seen with CUDA 13.0), and computes A ahead of the wait."""
    a = product.operand("a")
    made = next((i for i, op in enumerate(body.ops) if a in op.results), 0)
    before = body.ops[:made]
    return before if any(map(_reads_registers, before)) else ()


def _reads_registers(op: Op) -> bool:
    """Whether an operation starts a wgmma whose A lies in registers, and leaves it in flight."""
    left = op.operand("a") if op.kind is mma.warpgroup and not op.attrs["max_imprecise"] else None
    return left is not None and isinstance(left.type, TileType)


@dataclass(frozen=True, slots=True)
class Flight:
    """The state of an accumulator that may be in flight: its wgmma, and the least number of wgmma groups that follow it.

    `taken` is the operation that has claimed the accumulator's registers, if any: they hold another value after it."""

    product: Op
    age: int = 0
    taken: Op | None = None


Flights = dict[Value, Flight]


class Watcher:
    """Callbacks of the analysis. Subclasses override the ones they need."""

    def used(self, value: Value, flight: Flight, op: Op) -> None:
        """An operation reads a value that may be in flight."""

    def taken(self, value: Value, flight: Flight, op: Op) -> None:
        """An operation claims the registers of a value in flight, and another operation has claimed them before."""

    def handed(self, source: Value, target: Value, flight: Flight, op: Op) -> None:
        """A value in flight becomes another value in the same registers."""

    def left(self, result: Value) -> None:
        """A wait may leave its result in flight."""


def left_in_flight(func: Func) -> set[Value]:
    """Results of waits whose wgmmas may still be in flight after the wait."""
    watcher = _Left()
    Flow(func, watcher)
    return watcher.found


class _Left(Watcher):
    def __init__(self) -> None:
        self.found: set[Value] = set()

    def left(self, result: Value) -> None:
        self.found.add(result)


class Flow(States[Flights]):
    """The forward analysis: the state maps each value that may be in flight to its `Flight`."""

    def __init__(self, func: Func, watcher: Watcher) -> None:
        self._watcher = watcher
        self._used = {value for op in walk(func.body) for value in op.uses}
        self.run(func.body, {})

    def copy(self, state: Flights) -> Flights:
        """A copy of the dictionary; flights are immutable."""
        return dict(state)

    def join(self, state: Flights, other: Flights) -> tuple[Flights, bool]:
        """The union of both states; a value in both takes the smaller number of following groups."""
        news = False
        for value, flight in other.items():
            known = state.get(value)
            joined = flight
            if known is not None:
                joined = replace(known, age=min(known.age, flight.age), taken=known.taken or flight.taken)
            if joined != known:
                state[value] = joined
                news = True
        return state, news

    def along(self, op: Op, edge: Edge, state: Flights) -> Flights:
        """Pass all values of an edge at once, as parallel copies. A worker partition starts with no wgmma in flight."""
        if op.kind in PARALLEL and (edge.source or edge.target):
            return {}
        state = dict(state)
        handed = [self._hand(op, source, target, state) for source, target in zip(edge.handed, edge.taken, strict=True)]
        for target, flight in zip(edge.taken, handed, strict=True):
            _enter(target, flight and replace(flight, taken=None), state)
        return state

    def visit(self, op: Op, state: Flights) -> tuple[Sequence[Op], Flights]:
        """The transfer function of an operation. The operands of a terminator are passed on by the edges (`along`)."""
        if op.kind in PRODUCTS:
            self._product(op, state)
        elif op.kind is mma.warpgroup_wait:
            self._wait(op, state)
        elif not op.kind.terminator:
            self._uses(op, op.uses, state)
        return (op,), state

    def through(self, op: Op, state: Flights) -> tuple[Sequence[Op], Flights]:
        """An elementwise function, such as a reduction's combine function, reads its operands."""
        if op.kind not in STRUCTURED:
            self._uses(op, op.uses, state)
        return super().through(op, state)

    def _uses(self, op: Op, values: Iterable[Value], flights: Flights) -> None:
        for value in values:
            if value in flights:
                self._watcher.used(value, flights[value], op)

    def _hand(self, op: Op, source: Value, target: Value, flights: Flights) -> Flight | None:
        """Let `op` claim the registers of `source` for `target`; returns the flight of `source`, if it is in flight."""
        flight = flights.get(source)
        if flight is None:
            return None
        if flight.taken is not None:
            self._watcher.taken(source, flight, op)
        self._watcher.handed(source, target, flight, op)
        flights[source] = replace(flight, taken=op)
        return flight

    def _product(self, op: Op, flights: Flights) -> None:
        """A wgmma starts a group; its result claims the registers of its accumulator operand."""
        acc = op.operand("acc")
        assert acc is not None
        if op.attrs.get("max_imprecise"):
            # With `max_imprecise` the threads add partial results to the accumulator themselves and wait for each wgmma.
            self._uses(op, op.uses, flights)
            self._complete(0, flights)
            _enter(op.result, None, flights)
            return
        self._uses(op, [value for value in op.uses if value is not acc], flights)
        self._hand(op, acc, op.result, flights)
        for value, flight in flights.items():
            flights[value] = replace(flight, age=min(flight.age + 1, COMPLETE))
        _enter(op.result, Flight(op), flights)

    def _wait(self, op: Op, flights: Flights) -> None:
        """A wait completes every group that at least `pendings` groups follow."""
        pendings: int = op.attrs["pendings"]
        for value, result in zip(op.uses, op.results, strict=True):
            # An unused result claims no registers: the operand keeps them.
            flight = self._hand(op, value, result, flights) if result in self._used else None
            going = flight is not None and flight.age < pendings
            _enter(result, replace(flight, taken=None) if flight is not None and going else None, flights)
            if going:
                self._watcher.left(result)
        self._complete(pendings, flights)

    def _complete(self, pendings: int, flights: Flights) -> None:
        for value, flight in flights.items():
            if flight.age >= pendings:
                flights[value] = replace(flight, age=COMPLETE)


def _enter(value: Value, flight: Flight | None, flights: Flights) -> None:
    """Define a value. Its state of the previous iteration is overwritten."""
    if flight is None:
        flights.pop(value, None)
    else:
        flights[value] = flight
