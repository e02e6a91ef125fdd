"""Reading control flow: on constants as Python runs it, on run-time values as structured operations."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any, SupportsIndex

from weft.errors import Loc, fail
from weft.errors import lang as errors
from weft.ir.core import Value
from weft.ir.types import DType, ScalarType, int1, int32, int64
from weft.lang.calls import call_value, positional
from weft.lang.carried import Carried, Edge, Settled, argument_types, bind, edge, initial_values, settle
from weft.lang.expressions import items
from weft.lang.frame import (
    POISON,
    After,
    Binding,
    Env,
    Frame,
    Outcome,
    Return,
    Signal,
    Unusable,
    expression,
    final,
    statement,
)  # fmt: skip
from weft.lang.join import RESULT, VALUE, Join
from weft.lang.refused import refuse
from weft.lang.statements import assign, identifier
from weft.lang.values import materialise, show, truth
from weft.language import tensor
from weft.language.casts import convert
from weft.ops import arith, control


def region_end(outcome: Outcome) -> Outcome:
    """The rest of a region after its last statement."""
    return Signal.END if outcome is Signal.NEXT else outcome


def results_of(made: Value | tuple[Value, ...] | None) -> tuple[Value, ...]:
    """The results of an operation as a tuple, however many it has."""
    if made is None:
        return ()
    return made if isinstance(made, tuple) else (made,)


# if


@statement(ast.If)
def if_statement(frame: Frame, node: ast.If, after: After) -> Outcome:
    """`if`: the branch that a constant chooses, or `control.if` on a run-time scalar."""
    condition = truth(frame.value(node.test), "if")
    if not isinstance(condition, tensor):
        return frame.suite(node.body if condition else node.orelse, after)
    line = frame.at(node)
    base = frame.env
    is_open = frame.source.jumps(node)
    with frame.builder.region() as then:
        one = _branch(frame, base, node.body, after, is_open)
        one_env = frame.env
        with frame.builder.region() as orelse:
            other = _branch(frame, base, node.orelse, after, is_open)
            other_env = frame.env
            join = _join(frame, line, (one, one_env), (other, other_env))
            frame.builder.emit(control.yield_, *join.values(frame, join.others))
        frame.builder.emit(control.yield_, *join.values(frame, join.ones))
    frame.builder.loc = line
    made = frame.builder.emit(control.if_, condition.handle, regions=(then.done, orelse.done))
    joined = dict(join.bindings(results_of(made)))
    if isinstance(one, Return) and isinstance(other, Return):
        return _returned(joined[RESULT].value)
    frame.env = {**base, **joined}
    return one


def _branch(frame: Frame, base: Env, statements: list[ast.stmt], after: After, is_open: bool) -> Outcome:
    """Read a branch on a copy of the names; one that control can leave is read on to where the other one can join."""
    frame.env = dict(base)
    if not is_open:
        frame.suite(statements, region_end)
        return Signal.NEXT
    outcome = frame.suite(statements, after)
    return outcome if final(outcome) else after(outcome)


def _join(frame: Frame, line: Loc, one: tuple[Outcome, Env], other: tuple[Outcome, Env]) -> Join:
    join = Join(line)
    frame.builder.loc = line
    if isinstance(one[0], Return) and isinstance(other[0], Return):
        values = Binding(one[0].value, line), Binding(other[0].value, line)
        join.add(RESULT, *values, errors.RETURNS, function=frame.source.name)
        return join
    for name in dict.fromkeys((*one[1], *other[1])):
        here, there = one[1].get(name), other[1].get(name)
        if here is there:
            continue
        if here is None or there is None:
            assigned = here or there
            related = () if assigned is None or assigned.loc is None else (("assigned here", assigned.loc),)
            join.lost[name] = Unusable(errors.ONE_BRANCH, {"name": name, "line": line.line}, None, related)
        else:
            join.add(name, here, there, errors.BRANCHES)
    return join


def _returned(value: Any) -> Return:
    if not isinstance(value, Unusable) or value is POISON:
        return Return(value)
    assert value.loc is not None
    raise value.error(value.loc)


@expression(ast.IfExp)
def conditional(frame: Frame, node: ast.IfExp) -> Any:
    """`a if condition else b`: one of them is read for a constant; for a run-time scalar both, each in its branch."""
    condition = truth(frame.value(node.test), "a conditional expression")
    if not isinstance(condition, tensor):
        return frame.value(node.body if condition else node.orelse)
    line = frame.at(node)
    with frame.builder.region() as then:
        one = Binding(frame.value(node.body), frame.at(node.body))
        with frame.builder.region() as orelse:
            other = Binding(frame.value(node.orelse), frame.at(node.orelse))
            join = Join(line)
            join.add(VALUE, one, other, errors.BRANCHES)
            frame.builder.emit(control.yield_, *join.values(frame, join.others))
        frame.builder.emit(control.yield_, *join.values(frame, join.ones))
    for unusable in join.lost.values():
        raise unusable.error(line)
    frame.builder.loc = line
    made = frame.builder.emit(control.if_, condition.handle, regions=(then.done, orelse.done))
    ((_, binding),) = join.bindings(results_of(made))
    return binding.value


# for


@statement(ast.For)
def for_statement(frame: Frame, node: ast.For, after: After) -> Outcome:
    """`for` over `range`: a loop on the GPU; over `gl.static_range` and constant sequences: a copy of the body for each."""
    if node.orelse:
        refuse(frame, node.orelse[0], "else of a loop", "put it after the loop")
    if not isinstance(node.iter, ast.Call):
        return _unrolled(frame, node, _items(frame, node, frame.value(node.iter)), 0, after)
    function = frame.value(node.iter.func)
    if function is builtins.range:
        return _run_time_for(frame, node, node.iter)
    return _unrolled(frame, node, _items(frame, node, call_value(frame, node.iter, function)), 0, after)


def _items(frame: Frame, node: ast.For, over: Any) -> list[Any]:
    frame.mark(node.iter)
    return items(over)


def _unrolled(frame: Frame, node: ast.For, values: Sequence[Any], start: int, after: After) -> Outcome:
    """Rounds from `start` on. A return in a branch may need the rest of them, and of the function, within that branch."""
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
        outcome = _round(frame, node.body, rest, number)
        if final(outcome):
            return outcome
        if outcome is Signal.BREAK:
            break
    return Signal.NEXT


def _round(frame: Frame, body: list[ast.stmt], rest: After, number: int) -> Outcome:
    outside, frame.loops = frame.loops, (*frame.loops, True)
    frame.trace.unrolled.append(number)
    try:
        return frame.suite(body, rest)
    finally:
        frame.trace.unrolled.pop()
        frame.loops = outside


def _run_time_for(frame: Frame, node: ast.For, call: ast.Call) -> Outcome:
    line = frame.at(node)
    lower, upper, step = _bounds(frame, call)
    if not isinstance(node.target, ast.Name):
        refuse(frame, node.target, "more than one counter of range", "use one name, and compute the others from it")
    target = node.target.id
    names = [name for name in frame.source.assigned(node) if name != target]
    counter = _counter_type(lower, upper, step)

    def attempt(carried: tuple[Carried, ...]) -> tuple[Any, Edge]:
        types, titles = argument_types(carried)
        with frame.builder.region([counter, *types], [target, *titles]) as body:
            bind(frame, carried, body.args[1:])
            frame.bind(target, tensor(body.args[0]), frame.at(node.target))
            _read_body(frame, node.body)
            frame.builder.loc = line
            found = edge(frame, carried, body.args[1:], line)
            frame.builder.emit(control.yield_, *found.values)
        return body.done, found

    settled = settle(frame, line, names, attempt)
    frame.builder.loc = line
    bounds = [_bound(frame, x, counter) for x in (lower, upper, step)]
    initial = initial_values(frame, settled.carried)
    descending = not isinstance(step, tensor) and step < 0
    made = frame.builder.emit(control.for_, *bounds, *initial, descending=descending, regions=(settled.made,))
    _after_loop(frame, node, settled, results_of(made), line)
    frame.bind(target, Unusable(errors.COUNTER, {"name": target, "line": line.line}), line)
    return Signal.NEXT


def _read_body(frame: Frame, body: list[ast.stmt]) -> None:
    outside, frame.loops = frame.loops, (*frame.loops, False)
    try:
        frame.suite(body, region_end)
    finally:
        frame.loops = outside


def _after_loop(frame: Frame, node: ast.For | ast.While, settled: Settled, results: Sequence[Value], line: Loc) -> None:
    """Names after a loop: the carried ones hold its results, those that only its body assigns hold nothing."""
    slots = [slot for each in settled.carried for slot in each.arguments]
    for value, slot in zip(results, slots, strict=True):
        value.name = value.name or identifier(slot.path)
    for name in frame.source.assigned(node):
        if name in settled.dropped:
            frame.bind(name, settled.dropped[name], frame.env[name].loc)
        elif name not in frame.env:
            frame.bind(name, Unusable(errors.IN_LOOP, {"name": name, "line": line.line}), line)
    bind(frame, settled.carried, results, line)


def _bounds(frame: Frame, call: ast.Call) -> tuple[Any, Any, Any]:
    arguments = positional(frame, call)
    frame.mark(call)
    if call.keywords or not 1 <= len(arguments) <= 3:
        given = f"{len(arguments)} of them" if not call.keywords else f"{call.keywords[0].arg}="
        raise fail(errors.RANGE_ARGUMENTS, got=given)
    lower, upper = (0, arguments[0]) if len(arguments) == 1 else arguments[:2]
    step = arguments[2] if len(arguments) == 3 else 1
    for which, bound in (("start", lower), ("stop", upper), ("step", step)):
        if not _is_integer(bound):
            raise fail(errors.RANGE, which=which, got=show(bound))
    if not isinstance(step, tensor) and step == 0:
        raise fail(errors.RANGE_STEP)
    return lower, upper, step


def _is_integer(bound: Any) -> bool:
    if isinstance(bound, tensor):
        return bound.is_scalar and isinstance(bound.dtype, DType) and bound.dtype.is_int()
    return isinstance(bound, SupportsIndex)


def _counter_type(*bounds: Any) -> ScalarType:
    """int32, unless a bound is a run-time value that int32 does not hold all of, or a number that it does not hold."""
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


# while


@statement(ast.While)
def while_statement(frame: Frame, node: ast.While, after: After) -> Outcome:
    """`while` on a run-time condition. A constant one must be false: nothing can leave the loop."""
    if node.orelse:
        refuse(frame, node.orelse[0], "else of a loop", "put it after the loop")
    line = frame.at(node)

    def attempt(carried: tuple[Carried, ...]) -> tuple[Any, Edge]:
        types, titles = argument_types(carried)
        with frame.builder.region(types, titles) as before:
            bind(frame, carried, before.args)
            test = truth(frame.value(node.test), "while")
            if test is False:
                return None, Edge()
            frame.builder.emit(control.condition, _as_value(frame, test), *before.args)
        with frame.builder.region(types, titles) as body:
            bind(frame, carried, body.args)
            _read_body(frame, node.body)
            frame.builder.loc = line
            found = edge(frame, carried, body.args, line)
            frame.builder.emit(control.yield_, *found.values)
        if any(frame.env[each.name].value is POISON for each in carried):
            return (before.done, body.done), found
        if test is True and not found.promote and not found.drop:
            frame.mark(node.test)
            raise fail(errors.ENDLESS, value=ast.unparse(node.test))
        return (before.done, body.done), found

    settled = settle(frame, line, frame.source.assigned(node), attempt)
    if settled.made is None:
        return Signal.NEXT
    frame.builder.loc = line
    initial = initial_values(frame, settled.carried)
    made = frame.builder.emit(control.while_, *initial, regions=settled.made)
    _after_loop(frame, node, settled, results_of(made), line)
    return Signal.NEXT


def _as_value(frame: Frame, test: bool | tensor) -> Value:
    if isinstance(test, tensor):
        return test.handle
    return frame.builder.emit(arith.constant, value=test, type=ScalarType(int1))
