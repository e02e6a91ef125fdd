"""Rewrite loops to an unsigned trip count if their counter might overflow, or if the sign of their step is unknown.

    control.for %lower, %upper, 16 {descending = false} body(%i) {...}

    %n = control.trips %lower, %upper, 16                                               (an unsigned number)
    -->
    control.for 0, %n, 1, %lower {descending = false} body(%k, %i) {...; control.yield (arith.add %i, 16)}

In C, `i < upper; i += 16` overflows, or never ends, if the last increment leaves the type; Python's `range` ends properly.
Loops with step 1 or -1 never step over their bound. Those, and loops whose last increment is known to stay in the type
(`weft.analysis.facts`), keep their own counter.

Values keep their identity, so that the results of other passes, such as "exact", stay valid.
"""

from __future__ import annotations

from weft.analysis.facts import ValueFacts, facts
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import DType, ScalarType
from weft.ops import arith, control


def count_loops(func: Func) -> Func:
    """The lowered function with such loops rewritten."""
    if all(op.kind is not control.for_ for op in walk(func.body)):
        return func
    body = _Counter(facts(func)).region(func.body)
    return func if body is func.body else func.with_body(body)


class _Counter:
    def __init__(self, known: ValueFacts) -> None:
        self._known = known

    def region(self, region: Region) -> Region:
        """The region with such loops rewritten; the same object if there are none."""
        ops = tuple([each for op in region.ops for each in self._op(op)])
        return region if ops == region.ops else Region(region.args, ops)

    def _op(self, op: Op) -> tuple[Op, ...]:
        regions = tuple(map(self.region, op.regions))
        if regions != op.regions:
            op = Op(op.kind, op.operands, op.attrs, op.results, regions, op.loc)
        return (op,) if op.kind is not control.for_ or self._ends(op) else _counted(op)

    def _ends(self, op: Op) -> bool:
        """Whether the loop can use its own counter in C: the increment past the last iteration does not overflow."""
        _, upper, step = (self._known.hull(value) for value in op.uses[:3])
        assert upper is not None and step is not None
        if op.attrs["descending"] is None:
            return False
        dtype = op.regions[0].args[0].type.element
        assert isinstance(dtype, DType)
        if op.attrs["descending"]:
            return step.high < 0 and upper.low + 1 + step.low >= dtype.min_value
        return step.low > 0 and upper.high - 1 + step.high <= dtype.max_value


def _counted(op: Op) -> tuple[Op, ...]:
    lower, upper, step, *inits = op.operands
    (body,) = op.regions
    counter, *args = body.args
    assert lower is not None and step is not None
    element = counter.type.element
    assert isinstance(element, DType)
    word = ScalarType(control.UNSIGNED[element])
    count, number = Value(word, "count"), Value(word)
    following, last = Value(counter.type), Value(counter.type)
    zero, one = (Op(arith.constant, (), {"value": n, "type": word}, (Value(word),), (), op.loc) for n in (0, 1))
    trips = Op(control.trips, (lower, upper, step), {}, (count,), (), op.loc)
    advance = Op(arith.add, (counter, step), {}, (following,), (), op.loc)
    end = body.terminator
    closed = Op(end.kind, (following, *end.operands), end.attrs, end.results, end.regions, end.loc)
    inner = Region((number, counter, *args), (*body.ops[:-1], advance, closed))
    operands = (zero.result, count, one.result, lower, *inits)
    made = Op(op.kind, operands, {**op.attrs, "descending": False}, (last, *op.results), (inner,), op.loc)
    return zero, one, trips, made
