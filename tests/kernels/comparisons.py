"""The six comparisons as functions of elements."""

from __future__ import annotations

import weft


@weft.jit
def eq(a, b):
    return a == b


@weft.jit
def ne(a, b):
    return a != b


@weft.jit
def lt(a, b):
    return a < b


@weft.jit
def le(a, b):
    return a <= b


@weft.jit
def gt(a, b):
    return a > b


@weft.jit
def ge(a, b):
    return a >= b


COMPARISONS = (eq, ne, lt, le, gt, ge)
