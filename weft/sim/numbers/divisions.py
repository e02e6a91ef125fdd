"""Advice on `//` and `%` of negative integers, which truncate on a GPU as in C, but floor in Python."""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.ops import arith
from weft.sim.machine.data import Array, Mark
from weft.sim.machine.report import Report

RULE = "negative-division"


def advise(report: Report, op: Op, lhs: Array, rhs: Array, undefined: Mark | None) -> None:
    """Add advice, with the first such pair, if `//` or `%` of these integers differs from Python's result."""
    divisor: Array = rhs + (rhs == 0)
    rest: Array = np.fmod(lhs, divisor)
    differs: Array = (rest != 0) & ((rest < 0) != (divisor < 0)) & (rhs != 0)
    if undefined is not None:
        differs = differs & ~undefined.mask
    if not np.any(differs):
        return
    first = int(np.argmax(differs))
    x, n = (int(np.ravel(np.broadcast_to(each, np.shape(differs)))[first]) for each in (lhs, rhs))
    quotient = -(abs(x) // abs(n))  # the signs differ, otherwise C and Python agree
    symbol, here, there, instead = (
        ("//", quotient, x // n, "(x - (x % n + n) % n) // n")
        if op.kind is arith.div
        else ("%", x - quotient * n, x % n, "(x % n + n) % n")
    )
    message = (
        f"{x} {symbol} {n} is {here}, truncated towards zero as in C, and {there} in Python; "
        f"for Python's result write {instead}"
    )
    report.advise(RULE, message, op.loc)


def hint(report: Report) -> str:
    """Message text to append to the fix of a negative index, if a division of this launch may have caused it; usually ''."""
    known = next((advice for advice in report.advice if advice.rule == RULE), None)
    if known is None:
        return ""
    line = f"line {known.loc.line}" if known.loc is not None else "this launch"
    return f"; in {line}, {known.message}"
