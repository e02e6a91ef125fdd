"""What is known of random expressions of 8-bit integers, against all numbers that they can have.

No claim is false, and nearly always an access whose index is the expression is as wide as it can be: elements count up in
aligned runs (of a mask: runs are equal), and the first of each is a multiple of the run's length.

Of 2,000 expressions with 2,964 axes 98.1 % are as wide as they can be; of the 344 axes that allow several elements, 83.7 %.
What the 56 others lose, by the first operation of which less is known than can be:

    30    two operands depend on one variable or index (m + m, i - (i & 3)): facts do not relate values
    20    a comparison of numbers that wrap, or whose interval has numbers that never occur
     4    a choice between two, one of which is never taken
     2    a sum, a remainder
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tests.analysis.expressions import Expression, expressions, runs, whole
from weft.analysis.facts import Facts, ValueFacts, facts
from weft.ir.core import Op, Value, walk
from weft.ir.types import TileType, int1

TRIED = 400
MOST = 16
"""Elements of the widest access."""


def check(expression: Expression, known: ValueFacts) -> None:
    """Asserts that what is known of every value holds."""
    for value, numbers in expression.numbers.items():
        found = known[value]
        hull, shape = found.hull, value.type.shape if isinstance(value.type, TileType) else ()
        assert hull.low <= numbers.min() and numbers.max() <= hull.high, value
        assert (numbers.astype(np.int16) % min(hull.rest.modulus, 256) == hull.rest.residue % 256).all(), value
        if not shape:
            continue
        every = whole(numbers, shape)
        for axis in range(len(shape)):
            up, same = runs(every, axis, found.contiguous[axis]), runs(every, axis, found.constant[axis])
            assert same.shape[-1] == 1 or (same == same[..., :1]).all(), value
            if up.shape[-1] > 1:
                assert (np.diff(up) == 1).all(), value
            start = found.at(axis, found.contiguous[axis])
            assert (up[..., 0].astype(np.int16) % min(start.modulus, 256) == start.residue % 256).all(), value


def allowed(value: Value, numbers: np.ndarray, axis: int) -> int:
    """The widest access along an axis that all numbers allow; of a scalar what divides them."""
    shape = value.type.shape if isinstance(value.type, TileType) else ()
    if not shape:
        return divisor(numbers)
    every, width = whole(numbers, shape), 1
    while width < min(MOST, shape[axis]):
        part = runs(every, axis, 2 * width)
        if value.type.element == int1:
            fits = (part == part[..., :1]).all()
        else:
            fits = divisor(part[..., 0]) >= 2 * width and (np.diff(part) == 1).all()
        if not fits:
            break
        width *= 2
    return width


def divisor(numbers: np.ndarray) -> int:
    """The power of two that divides all of them, at most `MOST`."""
    together = int(np.bitwise_or.reduce(numbers, axis=None)) | MOST
    return together & -together


def claimed(value: Value, known: Facts, axis: int) -> int:
    """The same by what is known."""
    if not isinstance(value.type, TileType):
        return min(known.every, MOST)
    if value.type.element == int1:
        return min(known.constant[axis], MOST)
    width = min(known.contiguous[axis], MOST)
    while known.multiple(axis, width) % width:
        width //= 2
    return width


def cause(expression: Expression, known: ValueFacts, made: dict[Value, Op], axis: int) -> str:
    """The first operation of which less is known than can be, and whether its operands depend on one variable or index."""
    for value, numbers in expression.numbers.items():
        if claimed(value, known[value], axis) < allowed(value, numbers, axis):
            shapes = zip(*(expression.numbers[operand].shape for operand in made[value].uses), strict=True)
            return "one variable twice" if any(min(sizes) > 1 for sizes in shapes) else made[value].name
    raise AssertionError("nothing is lost")


def judged(seed: int, count: int) -> tuple[int, int, Counter[str]]:
    """How many axes allow an access of several elements, and why how many of those do not get the widest."""
    judged_axes = wide = 0
    lost = Counter[str]()
    for expression in expressions(seed, count):
        func = expression.func
        known, made = facts(func), {op.result: op for op in walk(func.body) if op.results}
        check(expression, known)
        *_, (result, numbers) = expression.numbers.items()
        for axis in range(len(expression.shape)):
            most = allowed(result, numbers, axis)
            judged_axes += 1
            wide += most > 1
            if claimed(result, known[result], axis) < most:
                lost[cause(expression, known, made, axis)] += 1
    return judged_axes, wide, lost


def test_nothing_false_and_nearly_everything_that_matters():
    axes, wide, lost = judged(1, TRIED)
    assert lost.total() <= 0.05 * axes, lost
    assert lost.total() <= 0.2 * wide, lost
