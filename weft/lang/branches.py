"""Reading branches: a constant condition selects one at compile time, a run-time scalar becomes `control.if`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from weft.errors import Loc
from weft.errors import source as errors
from weft.ir.core import Value
from weft.lang.frame import (
    RESULT,
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
from weft.lang.join import VALUE, Join
from weft.lang.source import ends
from weft.lang.values import truth
from weft.language import tensor
from weft.ops import control

_THROUGH = "(through)"
"""Name of a hidden variable (not an identifier, so no author can write it): true when a branch ended without a jump."""


def region_end(outcome: Outcome) -> Outcome:
    """The continuation at the end of a region, where reading stops."""
    return Signal.END if outcome is Signal.NEXT else outcome


def results_of(made: Value | tuple[Value, ...] | None) -> tuple[Value, ...]:
    """The results of an operation as a tuple."""
    if made is None:
        return ()
    return made if isinstance(made, tuple) else (made,)


@statement(ast.If)
def if_statement(frame: Frame, node: ast.If, after: After) -> Outcome:
    """`if`: the branch that a constant condition selects, or `control.if` on a run-time scalar."""
    condition = truth(frame.value(node.test), "if")
    if not isinstance(condition, tensor):
        return frame.suite(node.body if condition else node.orelse, after)
    line = frame.at(node)
    if not frame.source.jumps(node):
        fork(frame, line, condition.handle, *(_closed(frame, body) for body in (node.body, node.orelse)))
        return Signal.NEXT
    in_loop = bool(frame.loops) and not frame.loops[-1]
    if in_loop and not ends(node.body) and not ends(node.orelse):
        return _fork_in_loop(frame, node, line, condition.handle, after)
    return fork(frame, line, condition.handle, *(_open(frame, body, after) for body in (node.body, node.orelse)))


ReadBranch = Callable[[], Outcome]
"""Reads one branch of a fork."""


def _closed(frame: Frame, statements: list[ast.stmt]) -> ReadBranch:
    """Reader of a branch that contains no jump."""

    def read() -> Outcome:
        frame.suite(statements, region_end)
        return Signal.NEXT

    return read


def _open(frame: Frame, statements: list[ast.stmt], after: After) -> ReadBranch:
    """Reader of a branch that contains a jump: it reads on with the code after the `if`, up to where both branches can join."""

    def read() -> Outcome:
        outcome = frame.suite(statements, after)
        return outcome if final(outcome) else after(outcome)

    return read


def _fork_in_loop(frame: Frame, node: ast.If, line: Loc, condition: Value, after: After) -> Outcome:
    """An `if` in a run-time loop, both branches of which may or may not jump.

    The code after the `if` is read once, under a second `control.if` for the paths without a jump. A jump ends the reading of
    its branch, so a hidden flag that is set at a branch's end tells the paths apart. Reading the code after it once per
    branch would double it with every such `if`."""
    outside = frame.env.get(_THROUGH)
    frame.bind(_THROUGH, False, line)

    def through(outcome: Outcome) -> Outcome:
        if outcome is Signal.NEXT:
            frame.bind(_THROUGH, True, line)
        return region_end(outcome)

    fork(frame, line, condition, *(_open(frame, body, through) for body in (node.body, node.orelse)))
    meets = frame.env.pop(_THROUGH).value
    if outside is not None:
        frame.env[_THROUGH] = outside
    if not isinstance(meets, tensor):
        return Signal.NEXT if meets else Signal.END
    return fork(frame, line, meets.handle, lambda: after(Signal.NEXT), lambda: Signal.END)


def fork(frame: Frame, line: Loc, condition: Value, one: ReadBranch, other: ReadBranch) -> Outcome:
    """`control.if`: each branch is read on a copy of the environment; names whose values differ become phis of the two."""
    base = frame.env
    with frame.builder.region() as then:
        frame.env = dict(base)
        first = one(), frame.env
        with frame.builder.region() as orelse:
            frame.env = dict(base)
            second = other(), frame.env
            join = _join(frame, line, first, second)
            frame.builder.emit(control.yield_, *join.values(frame, join.others))
        frame.builder.emit(control.yield_, *join.values(frame, join.ones))
    frame.builder.loc = line
    made = frame.builder.emit(control.if_, condition, regions=(then.done, orelse.done))
    joined = dict(join.bindings(results_of(made)))
    if isinstance(first[0], Return) and isinstance(second[0], Return):
        loc = first[0].loc or second[0].loc or line
        return Return(frame.usable(joined[RESULT].value, loc), loc)
    frame.env = {**base, **joined}
    return first[0]


def _join(frame: Frame, line: Loc, one: tuple[Outcome, Env], other: tuple[Outcome, Env]) -> Join:
    join = Join(line)
    frame.builder.loc = line
    function = frame.source.name
    if isinstance(one[0], Return) and isinstance(other[0], Return):
        join.add(RESULT, one[0].binding, other[0].binding, errors.RETURNS, function=function)
        return join
    for name in dict.fromkeys((*one[1], *other[1])):
        here, there = one[1].get(name), other[1].get(name)
        if here is there:
            continue
        if here is None or there is None:
            assigned = here or there
            related = () if assigned is None or assigned.loc is None else (("assigned here", assigned.loc),)
            join.lost[name] = Unusable(errors.ONE_BRANCH, {"name": name, "line": line.line}, None, related)
        elif name == RESULT:
            join.add(name, here, there, errors.RETURNS, function=function)
        else:
            join.add(name, here, there, errors.BRANCHES)
    return join


@expression(ast.IfExp)
def conditional(frame: Frame, node: ast.IfExp) -> Any:
    """`a if condition else b`: a constant condition reads one of them, a run-time scalar reads both, each in its branch."""
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
