"""Lazy inference of value facts: a query evaluates the transfer functions of the values that it depends on, and no others.

The facts of loop-carried values are joined to a fixpoint. A bound that moves is widened to zero or to the limit of the type, so
a few iterations suffice. Facts derived in an iteration that was not yet the fixpoint are discarded. In the next iteration of an
outer loop an inner loop starts from its last fixpoint, which is sound since facts only get weaker.

All facts hold for integers that wrap. With `addresses`, sums and products of int32 are assumed not to overflow. The simulator
tracks an int32 that does overflow to the access whose address or mask depends on it, and reports it there. Only contiguity and
alignment of pointers may be derived under this assumption. Masks may not: the emitted code evaluates a mask with wrapping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.analysis.facts.congruence import multiple_of
from weft.analysis.facts.rules import RULES
from weft.analysis.facts.rules.program import PLACES
from weft.analysis.facts.scalar import Scalar, between
from weft.analysis.facts.tile import Axis, Facts
from weft.analysis.facts.words import ANYTHING, ASSUMED, WORDS, step_of, unknown, word_of
from weft.analysis.flow import LOOPS, Joint, joints
from weft.ir.core import Func, Op, Region, Value
from weft.ir.types import DType, RegsType, ScalarType, TileType
from weft.ops import arith, control, hints

Carried = tuple[Facts, ...]


@dataclass(slots=True, eq=False)
class _Loop:
    """The integers and addresses that a loop carries: the region's arguments, their initial values and the yielded values."""

    args: tuple[Value, ...]
    inits: tuple[Value, ...]
    yielded: tuple[Value, ...]
    around: _Loop | None
    ended: Carried | None = None
    """The last fixpoint of the loop, from the previous iteration of the loop around it."""


class ValueFacts:
    """The facts of a function's values, in tile IR or lowered IR."""

    def __init__(self, func: Func, addresses: bool = False) -> None:
        self._addresses = addresses
        self._func = func
        self._known: dict[Value, Facts] = {}
        self._made: dict[Value, Op] = {}
        self._handed: dict[Value, tuple[Value, ...]] = {}
        """The sources of each phi: the values that control flow edges pass to it."""
        self._counters: dict[Value, Op] = {}
        self._loops: dict[Value, _Loop] = {}
        for arg, given in zip(func.params, func.attrs.params, strict=True):
            self._known[arg] = unknown(arg.type, multiple_of(given.divisible))
        self._enter(func.body, None)
        for op in func.body.ops:
            if op.kind is hints.assume:
                self._assume(op.operands[0])

    def __getitem__(self, value: Value) -> Facts:
        found = self._known.get(value)
        return self._find(value) if found is None else found

    def hull(self, value: Value) -> Scalar | None:
        """The interval and congruence of all elements of a value; None if it is not an integer."""
        element = value.type.element
        return self[value].hull if isinstance(element, DType) and element.kind in ("int", "uint") else None

    def exact(self, op: Op) -> bool:
        """Whether an integer operation is known not to overflow."""
        word, rule = word_of(op.results[0].type.element), RULES.get(op.kind)
        if word is None or rule is None:
            return False
        exact = rule.hull(op, [self[value].hull for value in op.uses], word)
        return word.low <= exact.low and exact.high <= word.high

    # Definitions of values.

    def _enter(self, region: Region, around: _Loop | None) -> None:
        for op in region.ops:
            if not op.regions:
                for result in op.results:
                    self._made[result] = op
                continue
            inner = around
            if op.kind is control.for_:
                self._counters[op.regions[0].args[0]] = op
            for joint in joints(op):
                if op.kind in LOOPS and len(joint.sources) > 1:
                    inner = self._loop(joint, around)
                    continue
                for row in joint.rows:
                    sources = row[: len(joint.sources)]
                    self._handed.update(dict.fromkeys(row[len(joint.sources) :], sources))
            for region in op.regions:
                self._enter(region, inner)

    def _loop(self, joint: Joint, around: _Loop | None) -> _Loop:
        """The loop-carried values of the joint at a loop's head, where yielded and initial values meet."""
        rows = list(joint.rows)
        for _, _, arg, *results in rows:
            self._handed.update(dict.fromkeys(results, (arg,)))
        yielded, inits, args = (tuple([row[i] for row in rows if _is_integer(row[0])]) for i in range(3))
        loop = _Loop(args, inits, yielded, around)
        self._loops.update(dict.fromkeys(loop.args, loop))
        return loop

    # Inference.

    def _find(self, value: Value) -> Facts:
        known, made = self._known, self._made
        open_ = [value]
        while open_:
            value = open_[-1]
            if value in known:
                open_.pop()
                continue
            op = made.get(value)
            needed = self._sources(value) if op is None else op.uses
            missing = [v for v in needed if v not in known]
            if missing:
                open_ += missing
                continue
            open_.pop()
            given = [known[v] for v in needed]
            if op is None:
                self._flows_in(value, given)
                continue
            found = known[value] = self._found(op, needed, given)
            if len(op.results) > 1:
                first = op.results[0]
                known.update((r, found if r.type == first.type else unknown(r.type)) for r in op.results)
        return known[value]

    def _sources(self, value: Value) -> Sequence[Value]:
        """The values that a phi or a loop counter depends on."""
        loop = self._counters.get(value)
        return self._handed.get(value, ()) if loop is None else loop.uses[:3]

    def _flows_in(self, value: Value, given: list[Facts]) -> None:
        loop, carrying = self._counters.get(value), self._loops.get(value)
        if loop is not None:
            self._known[value] = Facts(_counter(loop, *(bound.hull for bound in given)))
        elif carrying is not None:
            self._go_through(carrying)
        elif given:
            found, *others = given
            for other in others:
                found = found.join(other)
            self._known[value] = found
        else:
            self._known[value] = unknown(value.type)

    def _found(self, op: Op, operands: Sequence[Value], given: list[Facts]) -> Facts:
        """The facts of an operation's first result, and of all results of the same type."""
        kind, type = op.kind, op.results[0].type
        rule = RULES.get(kind)
        if rule is None:
            place = PLACES.get(kind)
            return unknown(type) if place is None else Facts(place(op, self._func))
        word = word_of(type.element, ASSUMED if rule.sums and self._addresses else WORDS)
        hull = ANYTHING if word is None else word.wrap(rule.hull(op, [facts.hull for facts in given], word))
        if not isinstance(type, TileType):
            return Facts(hull, (), step_of(type))
        if rule.widens:
            given[-1] = self._cut(given[-1], operands[-1])
        return rule.tile(op, given, hull)

    def _cut(self, x: Facts, operand: Value) -> Facts:
        """Facts of an operand that is extended to a wider type. A contiguous run that may contain the narrow type's wrap point
        is cut to aligned runs that do not."""
        word = word_of(operand.type.element, ASSUMED if self._addresses else WORDS)
        if word is None or word.bits == 64 or word.assumed or x.hull.low > word.low or x.hull.high < word.high:
            return x
        axes: list[Axis] = []
        for d, own in enumerate(x.axes):
            run = min(own.contiguous, x.multiple(d, own.contiguous))
            axes.append(Axis(run, own.constant, x.at(d, run)))
        return Facts(x.hull, tuple(axes), x.step)

    def _go_through(self, loop: _Loop) -> None:
        """Iterate the facts of a loop's carried values to a fixpoint, after those of the loops around it."""
        known, around = self._known, loop.around
        if around is not None and any(arg not in known for arg in around.args):
            self._go_through(around)
            if all(arg in known for arg in loop.args):
                return
        held = tuple([self[value] for value in loop.inits])
        if loop.ended is not None:
            held = _joined(held, loop.ended)
        before = len(known)
        for number in range(_ITERATIONS):
            known.update(zip(loop.args, held, strict=True))
            met = _joined(held, tuple([self[value] for value in loop.yielded]))
            if met == held:
                break
            if number:
                met = tuple([_widened(a, b, arg) for a, b, arg in zip(held, met, loop.args, strict=True)])
            held = met
            while len(known) > before:
                known.popitem()
        else:
            held = tuple([unknown(arg.type) for arg in loop.args])
            known.update(zip(loop.args, held, strict=True))
        loop.ended = held

    # Assumptions.

    def _assume(self, condition: Value | None) -> None:
        """Refine facts by a condition that the author asserts with `gl.assume`."""
        op = None if condition is None else self._made.get(condition)
        if op is None:
            return
        if op.kind is arith.and_:
            for operand in op.operands:
                self._assume(operand)
        elif op.kind is arith.cmp:
            lhs, rhs = op.uses
            predicate: str = op.attrs["predicate"]
            swapped = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(predicate, predicate)
            self._compared(lhs, predicate, self[rhs].hull)
            self._compared(rhs, swapped, self[lhs].hull)

    def _compared(self, value: Value, predicate: str, limit: Scalar) -> None:
        if self.hull(value) is None:
            return
        own = self[value]
        low = {"gt": limit.low + 1, "ge": limit.low, "eq": limit.low}.get(predicate, own.hull.low)
        high = {"lt": limit.high - 1, "le": limit.high, "eq": limit.high}.get(predicate, own.hull.high)
        rest = limit.rest if predicate == "eq" and limit.rest.modulus > own.hull.rest.modulus else own.hull.rest
        hull = between(max(own.hull.low, low), min(own.hull.high, high), rest)
        self._known[value] = Facts(hull, own.axes, own.step)
        made = self._made.get(value)
        if predicate == "eq" and limit.value == 0 and made is not None and made.kind is arith.rem:
            divided, divisor = made.uses
            self._promise(divided, self[divisor].hull.divisor)

    def _promise(self, value: Value, divisor: int) -> None:
        facts, rest = self[value], multiple_of(divisor)
        if rest.modulus > facts.hull.rest.modulus:
            hull = between(facts.hull.low, facts.hull.high, rest)
            self._known[value] = Facts(hull, facts.axes, facts.step)


_ITERATIONS = 64
"""The limit of fixpoint iterations, after which nothing is assumed of a loop's values. It is a safeguard: each iteration
weakens a fact of a lattice of finite height, and widening leaves few bounds."""


def _is_integer(value: Value) -> bool:
    """Whether a carried value has facts: it is an integer or pointer, not a float and not a handle."""
    type = value.type
    return isinstance(type, (ScalarType, TileType, RegsType)) and not type.element.is_floating()


def _joined(a: Carried, b: Carried) -> Carried:
    return tuple([x.join(y) for x, y in zip(a, b, strict=True)])


def _widened(before: Facts, after: Facts, arg: Value) -> Facts:
    """Widening: a bound that moved goes to zero or to the limit of the type."""
    word = word_of(arg.type.element)
    old, new = before.hull, after.hull
    if word is None or (old.low <= new.low and new.high <= old.high):
        return after
    low = new.low if old.low <= new.low else 0 if new.low >= 0 else word.low
    high = new.high if new.high <= old.high else -1 if new.high < 0 else word.high
    return Facts(between(low, high, new.rest), after.axes, after.step)


def _counter(op: Op, lower: Scalar, upper: Scalar, step: Scalar) -> Scalar:
    """The facts of a loop counter. If the sign of the step is unknown, they cover both directions."""
    descending: bool | None = op.attrs["descending"]
    if descending is None:
        descending = False if step.low >= 0 else True if step.high <= 0 else None
    rest = lower.rest.modulo(step.divisor)
    up, down = (lower.low, upper.high - 1), (upper.low + 1, lower.high)
    found = [way for way, taken in ((up, descending is not True), (down, descending is not False)) if taken]
    found = [way for way in found if way[0] <= way[1]] or [(min(up[0], down[0]), max(up[1], down[1]))]
    return between(min(low for low, _ in found), max(high for _, high in found), rest)
