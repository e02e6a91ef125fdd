"""Reading loops: unrolled for constant sequences, structured operations for loops that run on the GPU.

A `for` over `range` is a `control.for`. If a break or a return may leave it, it is a `control.while` that carries its counter
and its exit flags (see `weft.lang.exits`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any, SupportsIndex

from weft.errors import Loc, fail
from weft.errors import source as errors
from weft.ir.core import Region, Value
from weft.ir.types import DType, ScalarType, int1, int32, int64
from weft.lang.branches import fork, region_end, results_of
from weft.lang.calls import call_value, positional
from weft.lang.carried import Carried, Edge, ReadLoop, argument_types, bind, edge, initial_values, read_to_fixpoint
from weft.lang.exits import Exits
from weft.lang.expressions import append, items, short_circuit
from weft.lang.frame import (
    POISON,
    RESULT,
    After,
    Frame,
    Outcome,
    Signal,
    Unusable,
    final,
    statement,
)  # fmt: skip
from weft.lang.refused import refuse
from weft.lang.statements import assign, identifier
from weft.lang.values import materialise, show, truth
from weft.language import logical_and, tensor
from weft.language.advice import integer_instead
from weft.language.broadcast import constant
from weft.language.casts import convert
from weft.language.promote import refuse_unknown
from weft.ops import arith, control


@statement(ast.For)
def for_statement(frame: Frame, node: ast.For, after: After) -> Outcome:
    """`for`: a run-time loop over `range`, unrolled over `gl.static_range` and constant sequences."""
    if node.orelse:
        refuse(frame, node.orelse[0], "else of a loop", "put it after the loop")
    if not isinstance(node.iter, ast.Call):
        return _unrolled(frame, node, _items(frame, node, frame.value(node.iter)), 0, after)
    function = frame.value(node.iter.func)
    if function is builtins.range:
        return _run_time_for(frame, node, node.iter, after)
    return _unrolled(frame, node, _items(frame, node, call_value(frame, node.iter, function)), 0, after)


def _items(frame: Frame, node: ast.For, over: Any) -> list[Any]:
    frame.mark(node.iter)
    return items(over)


def _unrolled(frame: Frame, node: ast.For, values: Sequence[Any], start: int, after: After) -> Outcome:
    """Iterations from `start` on. A branch that contains a return reads the remaining iterations, and the rest of the
    function, as its continuation."""
    outside = frame.loops
    for number in range(start, len(values)):

        def rest(outcome: Outcome, following: int = number + 1) -> Outcome:
            inside, frame.loops = frame.loops, outside
            try:
                if outcome is not Signal.BREAK:
                    outcome = _unrolled(frame, node, values, following, after)
                return outcome if final(outcome) else after(Signal.NEXT)
            finally:
                frame.loops = inside

        frame.mark(node.target)
        assign(frame, node.target, values[number])
        outcome = _iteration(frame, node.body, rest, number)
        if final(outcome):
            return outcome
        if outcome is Signal.BREAK:
            break
    return Signal.NEXT


def _iteration(frame: Frame, body: list[ast.stmt], rest: After, number: int) -> Outcome:
    outside, frame.loops = frame.loops, (*frame.loops, True)
    frame.trace.unrolled.append(number)
    try:
        return frame.suite(body, rest)
    finally:
        frame.trace.unrolled.pop()
        frame.loops = outside


def _run_time_for(frame: Frame, node: ast.For, call: ast.Call, after: After) -> Outcome:
    line = frame.at(node)
    bounds = _bounds(frame, call)
    if not isinstance(node.target, ast.Name):
        refuse(frame, node.target, "more than one counter of range", "use one name, and compute the others from it")
    loop = _Counting(frame, node, node.target.id, line, bounds, Exits.of(frame, node, line))
    return loop.read(after)


class _Counting:
    """A run-time `for` over `range`. `lower`, `upper` and `step` are values of the counter's type.

    With early exits it is a `while`, which compares the counter with `upper` when the last step cannot overflow the counter's
    type. When it can, the wrapped counter would pass the test again; the loop then carries the number of remaining iterations.
    """

    def __init__(
        self, frame: Frame, node: ast.For, target: str, line: Loc, bounds: tuple[Any, Any, Any], exits: Exits
    ) -> None:
        self.frame, self.node, self.target, self.line, self.exits = frame, node, target, line, exits
        self.type = _counter_type(*bounds)
        frame.builder.loc = line
        self.lower, self.upper, self.step = (_bound(frame, bound, self.type) for bound in bounds)
        self.descending = None if isinstance(bounds[2], tensor) else bounds[2] < 0
        self.runs = not any(isinstance(bound, tensor) for bound in bounds) and bool(range(*bounds))
        self.remaining: list[Value] = []
        if exits.possible and _may_step_over(bounds, self.type):
            self.remaining.append(frame.builder.emit(control.trips, self.lower, self.upper, self.step))

    def read(self, after: After) -> Outcome:
        """Read the loop; with a return in it, also the code after the loop, under the condition that it has not returned."""
        frame, line = self.frame, self.line
        loop = read_to_fixpoint(frame, line, self._names, self._attempt)
        frame.builder.loc = line
        bounds, initial = [self.lower, self.upper, self.step], initial_values(frame, loop.carried)
        if not self.exits.any:
            regions = (loop.made,)
            made = frame.builder.emit(control.for_, *bounds, *initial, descending=self.descending, regions=regions)
            _after_loop(frame, self.node, loop, results_of(made), line)
            frame.bind(self.target, Unusable(errors.COUNTER, {"name": self.target, "line": line.line}), line)
            return Signal.NEXT
        first, flags = [self.lower, *self.remaining], self.exits.initial(frame)
        made = frame.builder.emit(control.while_, *first, *initial, *flags, regions=loop.made)
        results = results_of(made)[len(first) :]
        _after_loop(frame, self.node, loop, results[: len(initial)], line)
        return _after_exits(frame, self.exits, results[len(initial) :], after)

    def _names(self) -> list[str]:
        """The names that the body assigns. With early exits the counter is one of them: it has a value after the loop, as in
        Python that of the last iteration."""
        names = self.frame.source.assigned(self.node)
        return [name for name in names if name != self.target or self.exits.any]

    def _attempt(self, carried: tuple[Carried, ...]) -> tuple[Any, Edge]:
        frame, exits = self.frame, self.exits
        types, titles = argument_types(carried)
        remaining = self.remaining if exits.any else []
        types = [self.type, *(value.type for value in remaining), *types, *exits.types]
        titles = [self.target, *("left" for _ in remaining), *titles, *exits.titles]
        before = self._condition(types, titles) if exits.any else None
        with frame.builder.region(types, titles) as body:
            counter, rest = body.args[0], body.args[1 + len(remaining) :]
            end = len(rest) - len(exits.types)
            bind(frame, carried, rest[:end])
            frame.bind(self.target, tensor(counter), frame.at(self.node.target))
            exits.enter(frame, rest[end:])
            _read_body(frame, self.node.body)
            frame.builder.loc = self.line
            found = edge(frame, carried, rest[:end], self.line)
            exits.close(frame, found, self.runs)
            following = () if before is None else self._following(*body.args[: 1 + len(remaining)])
            frame.builder.emit(control.yield_, *following, *found.values)
        return body.done if before is None else (before, body.done), found

    def _following(self, counter: Value, *remaining: Value) -> tuple[Value, ...]:
        """The counter of the next iteration, and the number of iterations remaining after it."""
        builder = self.frame.builder
        fewer = (builder.emit(arith.sub, value, materialise(builder, 1, value.type)) for value in remaining)
        return (builder.emit(arith.add, counter, self.step), *fewer)

    def _condition(self, types: list[Any], titles: list[str]) -> Region:
        """The loop's condition: no exit has been taken, and iterations remain."""
        frame = self.frame
        with frame.builder.region(types, titles) as before:
            frame.builder.loc = self.line
            counter, upper, remaining = tensor(before.args[0]), tensor(self.upper), tensor(before.args[1])
            going = self.exits.still_running(before.args[len(types) - len(self.exits.types) :])
            inside = remaining > 0 if self.remaining else counter > upper if self.descending else counter < upper
            test: tensor = inside if going is None else logical_and(going, inside)
            frame.builder.emit(control.condition, test.handle, *before.args)
        return before.done


def _may_step_over(bounds: tuple[Any, Any, Any], type: ScalarType) -> bool:
    """Whether the step after a loop's last iteration may overflow the counter's type, or the step's sign is unknown."""
    element, step = type.element, bounds[2]
    assert isinstance(element, DType)
    if isinstance(step, tensor):
        return True
    if step in (1, -1):
        return False
    if any(isinstance(bound, tensor) for bound in bounds):
        return True
    numbers = range(*bounds)
    return bool(numbers) and not element.min_value <= numbers[-1] + step <= element.max_value


def _read_body(frame: Frame, body: list[ast.stmt]) -> None:
    outside, frame.loops = frame.loops, (*frame.loops, False)
    try:
        frame.suite(body, region_end)
    finally:
        frame.loops = outside


def _after_loop(frame: Frame, node: ast.For | ast.While, loop: ReadLoop, results: Sequence[Value], line: Loc) -> None:
    """Bind names after a loop: the carried ones to its results; a read of one that only the body assigns is an error."""
    slots = [slot for each in loop.carried for slot in each.arguments]
    for value, slot in zip(results, slots, strict=True):
        value.name = value.name or identifier(slot.path)
    for name in frame.source.assigned(node):
        if name in loop.dropped:
            frame.bind(name, loop.dropped[name], frame.env[name].loc)
        elif name not in frame.env or _is_counter(frame.env[name].value):
            frame.bind(name, Unusable(errors.IN_LOOP, {"name": name, "line": line.line}), line)
    bind(frame, loop.carried, results, line)


def _is_counter(value: Any) -> bool:
    """True for the binding of a counter after its loop."""
    return isinstance(value, Unusable) and value.row is errors.COUNTER


def _bounds(frame: Frame, call: ast.Call) -> tuple[Any, Any, Any]:
    arguments = positional(frame, call)
    frame.mark(call)
    if call.keywords or not 1 <= len(arguments) <= 3:
        given = f"{len(arguments)} of them" if not call.keywords else f"{call.keywords[0].arg}="
        raise fail(errors.RANGE_ARGUMENTS, got=given)
    lower, upper = (0, arguments[0]) if len(arguments) == 1 else arguments[:2]
    step = arguments[2] if len(arguments) == 3 else 1
    for which, bound in (("start", lower), ("stop", upper), ("step", step)):
        refuse_unknown("range", bound)
        if not _is_integer(bound):
            raise fail(errors.RANGE, which=which, got=show(bound), instead=integer_instead(bound))
    if not isinstance(step, tensor) and step == 0:
        raise fail(errors.RANGE_STEP)
    return lower, upper, step


def _is_integer(bound: Any) -> bool:
    if isinstance(bound, tensor):
        return bound.is_scalar and isinstance(bound.dtype, DType) and bound.dtype.is_int()
    return isinstance(bound, SupportsIndex)


def _counter_type(*bounds: Any) -> ScalarType:
    """int32, or int64 when the type of a run-time bound or the value of a constant one does not fit into int32."""
    return ScalarType(int64 if any(map(_is_wide, bounds)) else int32)


def _is_wide(bound: Any) -> bool:
    if isinstance(bound, tensor):
        return bound.dtype.bits + bound.dtype.is_int_unsigned() > int32.bits
    return not int32.min_value <= bound <= int32.max_value


def _bound(frame: Frame, bound: Any, type: ScalarType) -> Value:
    if isinstance(bound, tensor):
        assert isinstance(type.element, DType)
        return convert(bound, type.element).handle
    return materialise(frame.builder, int(bound), type)


def _after_exits(frame: Frame, exits: Exits, results: Sequence[Value], after: After, always: bool = False) -> Outcome:
    """After a loop with these results: a taken return continues outwards, and the code after the loop runs if none was taken.

    `always`: only a return ends the loop.
    """
    returned, value = exits.bind_results(frame, results)
    if returned is None:
        return Signal.NEXT
    loc = exits.last[RESULT].loc
    if always:
        return frame.returns(value, loc)
    return fork(frame, exits.line, returned, lambda: frame.returns(value, loc), lambda: after(Signal.NEXT))


# while


@statement(ast.While)
def while_statement(frame: Frame, node: ast.While, after: After) -> Outcome:
    """`while` on a run-time condition. A constant condition must be false, unless the loop has an exit."""
    if node.orelse:
        refuse(frame, node.orelse[0], "else of a loop", "put it after the loop")
    line = frame.at(node)
    exits = Exits.of(frame, node, line)

    def attempt(carried: tuple[Carried, ...]) -> tuple[Any, Edge]:
        known = len(frame.trace.errors)
        types, titles = argument_types(carried)
        end = len(types)
        types, titles = [*types, *exits.types], [*titles, *exits.titles]
        with frame.builder.region(types, titles) as before:
            bind(frame, carried, before.args[:end])
            test, condition = _test(frame, node, exits.still_running(before.args[end:]))
            if test is False:
                return None, Edge()
            frame.builder.emit(control.condition, condition.handle, *before.args)
        with frame.builder.region(types, titles) as body:
            bind(frame, carried, body.args[:end])
            exits.enter(frame, body.args[end:])
            _read_body(frame, node.body)
            frame.builder.loc = line
            found = edge(frame, carried, body.args[:end], line)
            exits.close(frame, found, runs=test is True)
            frame.builder.emit(control.yield_, *found.values)
        if any(frame.env[each.name].value is POISON for each in carried):
            return (before.done, body.done, test), found
        if test is True and not exits.any and found.stable and len(frame.trace.errors) == known:
            frame.mark(node.test)
            raise fail(errors.ENDLESS, value=ast.unparse(node.test))
        return (before.done, body.done, test), found

    loop = read_to_fixpoint(frame, line, lambda: frame.source.assigned(node), attempt)
    if loop.made is None:
        return Signal.NEXT
    *regions, test = loop.made
    frame.builder.loc = line
    initial = initial_values(frame, loop.carried)
    made = frame.builder.emit(control.while_, *initial, *exits.initial(frame), regions=tuple(regions))
    results, flags = results_of(made)[: len(initial)], results_of(made)[len(initial) :]
    _after_loop(frame, node, loop, results, line)
    return _after_exits(frame, exits, flags, after, always=test is True and not exits.breaks)


def _test(frame: Frame, node: ast.While, going: tensor | None) -> tuple[bool | tensor, tensor]:
    """The author's condition, and the loop's, which does not evaluate the author's after an exit was taken."""
    with frame.builder.region() as evaluated:
        test = truth(frame.value(node.test), "while")
        held: tensor = test if isinstance(test, tensor) else constant(test, int1)
    pure = all(op.kind.pure for op in evaluated.ops)
    if going is not None and test is True and pure:
        return test, going
    if going is not None and not pure:
        return test, short_circuit(frame, going, held, evaluated.ops, is_and=True)
    append(frame, evaluated.ops)
    return test, held if going is None else logical_and(going, held)
