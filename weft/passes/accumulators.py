"""Accumulators of asynchronous products: which values are one, and how far their products are.

    %a = tile.splat 0
    %b = mma.warpgroup %x, %y, %a        in flight, 0 groups after it
    %c = mma.warpgroup %x, %z, %d        %b: in flight, 1 group after it
    %e = mma.warpgroup_wait %b {1}       %e has a value; %b has none, and never will

Works on tile IR and on lowered IR. What an edge of control flow hands on is in flight if it may be on one of the ways there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import TileType
from weft.ops import control, mma
from weft.passes.edges import edges

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
        yield from edges(op)


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
    seen = set(found)
    while found:
        for other in neighbours.get(found.pop(), ()):
            if other not in seen:
                seen.add(other)
                found.append(other)
    return seen


def alone(func: Func) -> set[Op]:
    """Products that must be complete before anything else happens: their left operand lies in registers, which would have to
    stay as they are until a wait that does not stand beside the product, after it."""
    return {op for region in _regions(func.body) for i, op in enumerate(region.ops) if _alone(op, region.ops[i + 1 :])}


def _regions(region: Region) -> Iterator[Region]:
    yield region
    for op in region.ops:
        for inner in op.regions:
            yield from _regions(inner)


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


class Flow:
    """Follows flights through a function, in program order; loops until nothing more is found."""

    def __init__(self, func: Func, watcher: Watcher) -> None:
        self._watcher = watcher
        self._used = {value for op in walk(func.body) for value in op.uses}
        self.region(func.body, {})

    def region(self, region: Region, flights: Flights) -> None:
        """All operations but the terminator, which belongs to the region's owner."""
        for op in region.ops[:-1]:
            rule = _RULES.get(op.kind.name)
            if rule is None:
                self._uses(op, list(op.uses), flights)
                for inner in op.regions:
                    self.region(inner, flights)
            else:
                rule(self, op, flights)

    def _uses(self, op: Op, values: list[Value], flights: Flights) -> None:
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

    def product(self, op: Op, flights: Flights) -> None:
        """Starts a group, in place of what it adds to."""
        acc = op.operand("acc")
        assert acc is not None
        if op.attrs.get("max_imprecise"):
            # The threads themselves add to the accumulator, and wait for each part.
            self._uses(op, list(op.uses), flights)
            self._complete(0, flights)
            return
        self._uses(op, [value for value in op.uses if value is not acc], flights)
        self._hand(op, acc, op.result, flights)
        for value, flight in flights.items():
            flights[value] = replace(flight, age=min(flight.age + 1, COMPLETE))
        flights[op.result] = Flight(op)

    def wait(self, op: Op, flights: Flights) -> None:
        """Completes groups that enough others follow; the results of those have values."""
        pendings: int = op.attrs["pendings"]
        for value, result in zip(op.uses, op.results, strict=True):
            # Where nobody goes on with the result, the value stays what it was.
            flight = self._hand(op, value, result, flights) if result in self._used else None
            if flight is not None and flight.age < pendings:
                flights[result] = replace(flight, taken=None)
                self._watcher.left(result)
        self._complete(pendings, flights)

    def _complete(self, pendings: int, flights: Flights) -> None:
        for value, flight in flights.items():
            if flight.age >= pendings:
                flights[value] = replace(flight, age=COMPLETE)

    def for_(self, op: Op, flights: Flights) -> None:
        """The body may run any number of times."""
        (body,) = op.regions
        args = body.args[1:]
        self._edge(op, list(op.uses)[3:], args, flights, flights)
        while True:
            inside, back = dict(flights), Flights()
            self.region(body, inside)
            self._edge(op, body.terminator.uses, args, inside, back)
            back.update((value, inside[value]) for value in flights if value not in args)
            if not _join(flights, back):
                break
        self._edge(op, args, op.results, flights, flights)

    def while_(self, op: Op, flights: Flights) -> None:
        """The condition runs once more than the body."""
        before, after = op.regions
        self._edge(op, op.uses, before.args, flights, flights)
        passed = list(before.terminator.uses)[1:]
        while True:
            inside, back = dict(flights), Flights()
            self.region(before, inside)
            ends = dict(inside)
            self._edge(op, passed, after.args, inside, inside)
            self.region(after, inside)
            self._edge(op, after.terminator.uses, before.args, inside, back)
            back.update((value, inside[value]) for value in flights if value not in before.args)
            if not _join(flights, back):
                break
        _join(flights, ends)
        self._edge(op, passed, op.results, ends, flights)

    def if_(self, op: Op, flights: Flights) -> None:
        """Either of two ways."""
        ways: list[Flights] = []
        for region in op.regions:
            way = dict(flights)
            self.region(region, way)
            self._edge(op, region.terminator.uses, op.results, way, way)
            ways.append(way)
        kept = {*flights, *op.results}
        flights.clear()
        for way in ways:
            _join(flights, {value: flight for value, flight in way.items() if value in kept})

    def partitions(self, op: Op, flights: Flights) -> None:
        """The first goes on where the code before was; others have products of their own."""
        for number, region in enumerate(op.regions):
            mine = flights if number == 0 else {}
            self.region(region, mine)
        if op.results:
            self._edge(op, op.regions[0].terminator.uses, op.results, flights, flights)

    def _edge(
        self, op: Op, sources: Iterable[Value], targets: tuple[Value, ...], before: Flights, into: Flights
    ) -> None:
        """Hand values on at once."""
        handed = [self._hand(op, source, target, before) for source, target in zip(sources, targets, strict=True)]
        for target, flight in zip(targets, handed, strict=True):
            if flight is not None:
                into[target] = replace(flight, taken=None)


def _join(flights: Flights, other: Flights) -> bool:
    """Add what is true on another way; whether that is news."""
    news = False
    for value, flight in other.items():
        known = flights.get(value)
        joined = flight
        if known is not None:
            joined = replace(known, age=min(known.age, flight.age), taken=known.taken or flight.taken)
        if joined != known:
            flights[value] = joined
            news = True
    return news


_RULES: dict[str, Callable[[Flow, Op, Flights], None]] = {
    **{kind.name: Flow.product for kind in PRODUCTS},
    mma.warpgroup_wait.name: Flow.wait,
    control.for_.name: Flow.for_,
    control.while_.name: Flow.while_,
    control.if_.name: Flow.if_,
    control.warp_specialize.name: Flow.partitions,
    control.partitions.name: Flow.partitions,
}
