"""One walk over a function: the facts of every value, through branches and loops.

What a loop carries is joined until it holds in every round; bounds that move are widened to zero or the end of the type, so
that this takes a few rounds. An inner loop is entered again where it ended in the last round of the outer one: facts only
become weaker.

Everything holds for numbers that wrap. With `addresses`, sums and products of int32 are taken as if they never wrapped: the
simulator follows one that does to the access whose address or mask depends on it, and reports it there. Pointers may be judged
by that; masks are not, for a mask that wraps is computed as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from weft.analysis.facts import rules, tile
from weft.analysis.facts.congruence import multiple_of
from weft.analysis.facts.scalar import Scalar, between
from weft.analysis.facts.tile import Facts
from weft.ir.core import Func, Op, Region, Value
from weft.ir.types import DType, TileType, int32
from weft.layout import WARP_SIZE
from weft.ops import arith, control, memory, program
from weft.ops import tile as tiles

LIMIT = int32.max_value
MOST_ALONG = (LIMIT, 65535, 65535)
"""Blocks along the axes of a grid, at most."""
OVERFLOWS = (arith.add, arith.sub, arith.mul, arith.shl)
"""Operations that are taken as if they never wrapped where addresses are judged."""
WIDENS = (arith.cast, memory.addptr)
"""Operations that take the last operand into a type in which it may go on where its own wraps."""
Carried = tuple[Facts, ...]


class ValueFacts:
    """The facts of a function's values, in either stage. `exact` are integers that are computed without wrapping."""

    def __init__(self, func: Func, addresses: bool = False) -> None:
        self.exact: set[Value] = set()
        self._known: dict[Value, Facts] = {}
        self._made: dict[Value, Op] = {}
        self._loops: dict[Region, Carried] = {}
        self._func, self._addresses, self._depth = func, addresses, 0
        self._block: tuple[int, ...] = func.attrs.block or (1, 1, 1)
        for arg, given in zip(func.params, func.attrs.params, strict=True):
            self._known[arg] = rules.unknown(arg.type, multiple_of(given.divisible))
        self._region(func.body)

    def __getitem__(self, value: Value) -> Facts:
        found = self._known.get(value)
        return rules.unknown(value.type) if found is None else found

    def hull(self, value: Value) -> Scalar | None:
        """What holds of each of a value's integers; None for what is no integer."""
        element = value.type.element
        return self[value].hull if isinstance(element, DType) and element.kind in ("int", "uint") else None

    # Walking.

    def _region(self, region: Region) -> Carried:
        """Facts about what the region hands on."""
        for op in region.ops:
            self._op(op)
        return self._of(region.terminator.uses)

    def _of(self, values: Iterable[Value]) -> Carried:
        return tuple([self[value] for value in values])

    def _set(self, values: tuple[Value, ...], found: Carried) -> None:
        self._known.update(zip(values, found, strict=True))

    def _op(self, op: Op) -> None:
        kind = op.kind
        if kind is control.for_:
            self._for(op)
        elif kind is control.while_:
            self._while(op)
        elif kind is control.if_:
            then, orelse = map(self._inner, op.regions)
            self._set(op.results, tuple([a.join(b) for a, b in zip(then, orelse, strict=True)]))
        elif kind is control.warp_specialize:
            handed, *_ = map(self._inner, op.regions)
            self._set(op.results, handed)
        elif op.regions:
            for region in op.regions:
                self._set(region.args, tuple([rules.unknown(arg.type) for arg in region.args]))
                self._inner(region)
        elif kind is tiles.assume:
            if not self._depth:
                self._assume(op.operands[0])
        elif op.results:
            found, (first, *_) = self._found(op), op.results
            for result in op.results:
                self._known[result] = found if result.type == first.type else rules.unknown(result.type)
                self._made[result] = op

    def _inner(self, region: Region) -> Carried:
        self._depth += 1
        handed = self._region(region)
        self._depth -= 1
        return handed

    def _found(self, op: Op) -> Facts:
        """The facts of an operation's result (of each that has the type of the first)."""
        known, type = self._of(op.uses), op.results[0].type
        hull = self._hull(op, known)
        if op.kind in rules.STRUCTURAL:
            found = rules.STRUCTURAL[op.kind](op, known, hull)
        elif op.kind in rules.ELEMENTWISE and isinstance(type, TileType):
            found = rules.elementwise(op, self._lifted(op, self._cut(op, known), type.shape), hull)
        elif isinstance(type, TileType):
            found = replace(rules.unknown(type), hull=hull)
        else:
            found = Facts(hull, (), rules.step_of(type))
        return found

    def _hull(self, op: Op, known: Carried) -> Scalar:
        """The numbers of a result; notes where they are computed without wrapping."""
        element = op.results[0].type.element
        assumed = self._addresses and element == int32 and op.kind in OVERFLOWS
        word = rules.word_of(element, assumed)
        if word is None:
            return rules.ANYTHING
        exact = self._place(op)
        rule = rules.HULLS.get(op.kind)
        if exact is None and rule is not None and (known or op.kind is arith.constant):
            exact = rule(op, tuple([facts.hull for facts in known]), word)
        if exact is None:
            return word.whole
        found = word.wrap(exact)
        if found is exact:
            self.exact.add(op.results[0])
        else:
            self.exact.discard(op.results[0])
        return found

    def _place(self, op: Op) -> Scalar | None:
        """What says where a thread is."""
        kind = op.kind
        if kind is tiles.arange:
            return between(op.attrs["start"], op.attrs["end"] - 1)
        if kind is program.thread_id:
            return between(0, program.threads_of(self._func) - 1)
        if kind is program.lane_id:
            return between(0, WARP_SIZE - 1)
        if kind is program.warp_id:
            return between(0, (program.threads_of(self._func) - 1) // WARP_SIZE)
        if kind is program.program_id or kind is program.num_programs:
            axis: int = op.attrs["axis"]
            # A grid has less than 2**31 threads along an axis: their numbers are int32.
            most = min(LIMIT // self._block[axis], MOST_ALONG[axis])
            return between(0, most - 1) if kind is program.program_id else between(1, most)
        return None

    def _cut(self, op: Op, known: Carried) -> Carried:
        """Operands' facts, with the last one's runs cut where a wider type takes it."""
        if op.kind not in WIDENS:
            return known
        *_, operand = op.uses
        element = operand.type.element
        word = rules.word_of(element, self._addresses and element == int32)
        return known if word is None or word.bits == 64 else (*known[:-1], rules.cut_where_it_wraps(known[-1], word))

    def _lifted(self, op: Op, known: Carried, shape: tuple[int, ...]) -> Carried:
        """Operands' facts; what is known of a scalar holds for each element."""
        if all(facts.axes for facts in known):
            return known
        return tuple([facts if facts.axes else tile.equal(facts.hull, shape, facts.step) for facts in known])

    # Control flow.

    def _for(self, op: Op) -> None:
        (body,) = op.regions
        bounds, inits = list(op.uses)[:3], self._of(list(op.uses)[3:])
        self._known[body.args[0]] = Facts(_counter(op, *(self[bound].hull for bound in bounds)))
        carried = self._carried(body, body.args[1:], inits, lambda: self._inner(body))
        self._set(op.results, carried)

    def _while(self, op: Op) -> None:
        before, after = op.regions

        def once() -> Carried:
            self._set(after.args, self._inner(before)[1:])
            return self._inner(after)

        self._carried(before, before.args, self._of(op.uses), once)
        self._set(op.results, self._of(after.args))

    def _carried(self, region: Region, args: tuple[Value, ...], inits: Carried, walk: Callable[[], Carried]) -> Carried:
        """What holds of values carried by a loop in every round."""
        before = self._loops.get(region)
        held = inits if before is None else tuple([a.join(b) for a, b in zip(inits, before, strict=True)])
        for number in range(_ROUNDS):
            self._set(args, held)
            met = tuple([a.join(b) for a, b in zip(held, walk(), strict=True)])
            if met == held:
                break
            if number:
                met = tuple([_widened(a, b, arg) for a, b, arg in zip(held, met, args, strict=True)])
            held = met
        else:
            held = tuple([rules.unknown(arg.type) for arg in args])
            self._set(args, held)
            walk()
        self._loops[region] = held
        return held

    # Promises.

    def _assume(self, condition: Value | None) -> None:
        """Take a promise of the author's for what it says of a value, from here on."""
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
        own = self[value].hull
        low = {"gt": limit.low + 1, "ge": limit.low, "eq": limit.low}.get(predicate, own.low)
        high = {"lt": limit.high - 1, "le": limit.high, "eq": limit.high}.get(predicate, own.high)
        rest = limit.rest if predicate == "eq" and limit.rest.modulus > own.rest.modulus else own.rest
        self._known[value] = replace(self[value], hull=between(max(own.low, low), min(own.high, high), rest))
        made = self._made.get(value)
        if predicate == "eq" and limit.value == 0 and made is not None and made.kind is arith.rem:
            divided, divisor = made.uses
            self._promise(divided, self[divisor].hull.divisor)

    def _promise(self, value: Value, divisor: int) -> None:
        facts, rest = self[value], multiple_of(divisor)
        if rest.modulus > facts.hull.rest.modulus:
            self._known[value] = replace(facts, hull=between(facts.hull.low, facts.hull.high, rest))


_ROUNDS = 64
"""Rounds after which a loop is given up; each weakens a fact of finitely many, and widening leaves few of the bounds."""


def _widened(before: Facts, after: Facts, arg: Value) -> Facts:
    """Facts whose bounds go on to where they cannot move further, in the direction in which they moved."""
    word = rules.word_of(arg.type.element)
    old, new = before.hull, after.hull
    if word is None or (old.low <= new.low and new.high <= old.high):
        return after
    low = new.low if old.low <= new.low else 0 if new.low >= 0 else word.low
    high = new.high if new.high <= old.high else -1 if new.high < 0 else word.high
    return replace(after, hull=between(low, high, new.rest))


def _counter(op: Op, lower: Scalar, upper: Scalar, step: Scalar) -> Scalar:
    """From the first bound to the last, either way where nothing is known of the step."""
    descending: bool | None = op.attrs["descending"]
    if descending is None:
        descending = False if step.low >= 0 else True if step.high <= 0 else None
    rest = lower.rest.modulo(step.divisor)
    up, down = (lower.low, upper.high - 1), (upper.low + 1, lower.high)
    found = [way for way, taken in ((up, descending is not True), (down, descending is not False)) if taken]
    found = [way for way in found if way[0] <= way[1]] or [(min(up[0], down[0]), max(up[1], down[1]))]
    return between(min(low for low, _ in found), max(high for _, high in found), rest)
