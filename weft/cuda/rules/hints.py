"""Hints of the author."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits, refers
from weft.cuda.text.refs import Ref
from weft.ir.core import Op
from weft.ops import hints


@refers(hints.axes)
def _axes(e: Emitter, op: Op) -> Ref:
    (x,) = op.uses
    if (number := e.number(x)) is not None:
        e.constants[op.result] = number
    return e.refs[x]


@emits(hints.assume)
def _assume(e: Emitter, op: Op) -> None:
    (condition,) = op.uses
    e.out.line(f"__builtin_assume({e.at(condition)});")


@refers(hints.uniform)
def _uniform(e: Emitter, op: Op) -> Ref:
    (x,) = op.uses
    return e.refs[x]
