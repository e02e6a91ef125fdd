"""Accumulators of asynchronous products: which values are one, and how far their products are.

    %a = tile.splat 0
    %b = mma.warpgroup %x, %y, %a        in flight, 0 groups after it
    %c = mma.warpgroup %x, %z, %d        %b: in flight, 1 group after it
    %e = mma.warpgroup_wait %b {1}       %e has a value; %b has none, and never will

Works on tile IR and on lowered IR. What an edge of control flow hands on is in flight if it may be on one of the ways there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from weft.analysis.flow import PARALLEL, STRUCTURED, Edge, States, pairs, reach, regions
from weft.ir.core import Func, Op, Value, walk
from weft.ir.types import TileType
from weft.ops import mma

PRODUCTS = (mma.warpgroup, mma.wgmma)
COMPLETE = 1 << 30
"""The age of a product that some wait has completed."""


def links(op: Op) -> Iterator[tuple[Value, Value]]:
    """Pairs of values that are one accumulator if one of them is one."""
    if op.kind in PRODUCTS:
        acc = op.operand("acc")
        assert acc is not None
        yield op.result, acc
    elif op.kind is mma.warpgroup_wait:
        yield from zip(op.results, op.uses, strict=True)
    else:
        yield from pairs(op)


def accumulators(func: Func) -> set[Value]:
    """Values that asynchronous products add to, or that are such a sum."""
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
    """Products that must be complete before anything else happens: their left operand lies in registers, which would have to
    stay as they are until a wait that does not stand beside the product, after it."""
    return {op for region in regions(func.body) for i, op in enumerate(region.ops) if _alone(op, region.ops[i + 1 :])}


def _alone(op: Op, after: tuple[Op, ...]) -> bool:
    left = op.operand("a") if op.kind is mma.warpgroup else None
    if left is None or not isinstance(left.type, TileType):
        return False
    started = 0
    for other in after:
        if other.kind is mma.warpgroup:
            started += 1
        elif other.kind is mma.warpgroup_wait and other.attrs["pendings"] <= started:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Flight:
    """A value of a product that may be under way: the product, and how many groups were certainly started after it.

    `taken`: the operation that the value was handed on to, so that its registers hold something else by now."""

    product: Op
    age: int = 0
    taken: Op | None = None


Flights = dict[Value, Flight]


class Watcher:
    """What a walk reports; subclasses say what becomes of it."""

    def used(self, value: Value, flight: Flight, op: Op) -> None:
        """An operation reads a value that may be in flight."""

    def taken(self, value: Value, flight: Flight, op: Op) -> None:
        """An operation takes a value in flight that was handed on before."""

    def handed(self, source: Value, target: Value, flight: Flight, op: Op) -> None:
        """A value in flight goes on under another name."""

    def left(self, result: Value) -> None:
        """A wait does not complete its result, not for sure."""


def left_in_flight(func: Func) -> set[Value]:
    """Results of waits whose products may be under way after them."""
    watcher = _Left()
    Flow(func, watcher)
    return watcher.found


class _Left(Watcher):
    def __init__(self) -> None:
        self.found: set[Value] = set()

    def left(self, result: Value) -> None:
        self.found.add(result)


class Flow(States[Flights]):
    """Follows flights through a function."""

    def __init__(self, func: Func, watcher: Watcher) -> None:
        self._watcher = watcher
        self._used = {value for op in walk(func.body) for value in op.uses}
        self.run(func.body, {})

    def copy(self, state: Flights) -> Flights:
        """A dictionary of its own."""
        return dict(state)

    def join(self, state: Flights, other: Flights) -> tuple[Flights, bool]:
        """What may be in flight on either way, the later one's groups."""
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
        """Hand values on at once. Workers have products of their own."""
        if op.kind in PARALLEL and (edge.source or edge.target):
            return {}
        state = dict(state)
        handed = [self._hand(op, source, target, state) for source, target in zip(edge.handed, edge.taken, strict=True)]
        for target, flight in zip(edge.taken, handed, strict=True):
            _enter(target, flight and replace(flight, taken=None), state)
        return state

    def visit(self, op: Op, state: Flights) -> tuple[Sequence[Op], Flights]:
        """What an operation uses, starts or completes; what a terminator hands on, the edges take."""
        if op.kind in PRODUCTS:
            self._product(op, state)
        elif op.kind is mma.warpgroup_wait:
            self._wait(op, state)
        elif not op.kind.terminator:
            self._uses(op, op.uses, state)
        return (op,), state

    def through(self, op: Op, state: Flights) -> tuple[Sequence[Op], Flights]:
        """Functions of elements use what they take."""
        if op.kind not in STRUCTURED:
            self._uses(op, op.uses, state)
        return super().through(op, state)

    def _uses(self, op: Op, values: Iterable[Value], flights: Flights) -> None:
        for value in values:
            if value in flights:
                self._watcher.used(value, flights[value], op)

    def _hand(self, op: Op, source: Value, target: Value, flights: Flights) -> Flight | None:
        """Hand a value on; its flight, if it is in one."""
        flight = flights.get(source)
        if flight is None:
            return None
        if flight.taken is not None:
            self._watcher.taken(source, flight, op)
        self._watcher.handed(source, target, flight, op)
        flights[source] = replace(flight, taken=op)
        return flight

    def _product(self, op: Op, flights: Flights) -> None:
        """Starts a group, in place of what it adds to."""
        acc = op.operand("acc")
        assert acc is not None
        if op.attrs.get("max_imprecise"):
            # The threads themselves add to the accumulator, and wait for each part.
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
        """Completes groups that enough others follow; the results of those have values."""
        pendings: int = op.attrs["pendings"]
        for value, result in zip(op.uses, op.results, strict=True):
            # Where nobody goes on with the result, the value stays what it was.
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
    """A value is made anew: what was in flight under its name in the iteration before is none of its."""
    if flight is None:
        flights.pop(value, None)
    else:
        flights[value] = flight
