"""Quotients and remainders of negative integers: C's on a GPU, which differ from Python's. When reports speak of that."""

from __future__ import annotations

import numpy as np

from weft.ir.core import Op
from weft.ops import arith
from weft.sim.machine.data import Array, Mark
from weft.sim.machine.report import Report

RULE = "negative-division"


def advise(report: Report, op: Op, lhs: Array, rhs: Array, undefined: Mark | None) -> None:
    """Advise where `//` or `%` of these integers gives another number than in Python, with the first such pair."""
    divisor: Array = rhs + (rhs == 0)
    rest: Array = np.fmod(lhs, divisor)
    differs: Array = (rest != 0) & ((rest < 0) != (divisor < 0)) & (rhs != 0)
    if undefined is not None:
        differs = differs & ~undefined.mask
    if not np.any(differs):
        return
    first = int(np.argmax(differs))
    x, n = (int(np.ravel(np.broadcast_to(each, np.shape(differs)))[first]) for each in (lhs, rhs))
    quotient = -(abs(x) // abs(n))  # their signs differ, or the two languages would agree
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
    """What the fix of a negative index adds if a division of this launch may be why it is negative; mostly nothing."""
    known = next((advice for advice in report.advice if advice.rule == RULE), None)
    if known is None:
        return ""
    line = f"line {known.loc.line}" if known.loc is not None else "this launch"
    return f"; in {line}, {known.message}"
