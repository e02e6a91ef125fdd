"""Loops and branches. What they carry is assigned at their edges, in parallel, unless it shares a variable already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda.rules import emits
from weft.cuda.spelling import c_type
from weft.ir.core import Op, Value
from weft.ops import control

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter


@emits(control.for_)
def _for(e: Emitter, op: Op) -> None:
    lower, upper, step, *inits = op.uses
    (body,) = op.regions
    counter, *args = body.args
    e.assign(args, inits, mutable=True)
    e.declare_pending()
    i = e.counter(counter).name
    sign = ">" if op.attrs["descending"] else "<"
    head = f"{c_type(counter.type.element)} {i} = {e.at(lower)}; {i} {sign} {e.at(upper)}; {_step(e, i, step)}"
    with e.braces(f"for ({head})"):
        e.region(body)
        e.assign(args, list(body.terminator.uses))
    e.out.loc = op.loc
    e.assign(op.results, args)


def _step(e: Emitter, counter: str, step: Value) -> str:
    number = e.number(step)
    if number in (1, -1):
        return f"{'++' if number == 1 else '--'}{counter}"
    return f"{counter} += {e.at(step)}"


@emits(control.while_)
def _while(e: Emitter, op: Op) -> None:
    before, after = op.regions
    e.assign(before.args, list(op.uses), mutable=True)
    for result in op.results:
        e.variable(result)
    with e.braces("for (;;)"):
        e.region(before)
        condition, *passed = before.terminator.uses
        _leave(e, op, f"!{_negatable(e.at(condition))}", passed)
        e.assign(after.args, passed, mutable=True)
        e.region(after)
        e.assign(before.args, list(after.terminator.uses))
    e.out.loc = op.loc


def _leave(e: Emitter, op: Op, condition: str, passed: list[Value]) -> None:
    """Leave the loop under a condition, with what was passed on as its results."""
    if all(e.variable(result) is e.refs[value] for result, value in zip(op.results, passed, strict=True)):
        e.out.line(f"if ({condition}) break;")
        return
    with e.braces(f"if ({condition})"):
        e.assign(op.results, passed)
        e.out.line("break;")


def _negatable(text: str) -> str:
    return text if text.replace("_", "").isalnum() else f"({text})"


@emits(control.if_)
def _if(e: Emitter, op: Op) -> None:
    condition = op.operands[0]
    assert condition is not None
    then, orelse = op.regions
    for result in op.results:
        e.variable(result)
    with e.braces(f"if ({e.at(condition)})"):
        e.region(then)
        e.assign(op.results, list(then.terminator.uses))
    with e.out.unless_empty():
        e.region(orelse)
        e.assign(op.results, list(orelse.terminator.uses))
    e.out.loc = op.loc


@emits(control.return_, control.yield_, control.condition)
def _terminator(e: Emitter, op: Op) -> None:
    """The operation that owns the region assigns what it yields."""
