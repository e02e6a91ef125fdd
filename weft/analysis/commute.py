"""Whether the combine function of a reduction is commutative.

    lambda a, b: a + b                      commutative
    lambda a, b: where(a > b, a, b)         not proven: when neither compares greater (equal or NaN), the result is b

A function commutes if exchanging its left and right arguments gives the same results. This is proven by value numbering:
results are numbered for both orders of the arguments, with the operands of commutative operations sorted, and compared. Sums,
several sums side by side and the step of an online softmax are recognised.
"""

from __future__ import annotations

from collections.abc import Hashable

from weft.ir.core import Op, Region, Value
from weft.ops import arith

MIRRORED = {"gt": "lt", "ge": "le"}


def commutes(combine: Region) -> bool:
    """Whether a function is proven to commute. Its arguments are all left ones, then all right ones."""
    if any(op.regions or not (op.kind.pure or op.kind.terminator) for op in combine.ops):
        return False
    numbers: dict[Hashable, int] = {}
    half = len(combine.args) // 2
    swapped = (*combine.args[half:], *combine.args[:half])
    return _results(combine, combine.args, numbers) == _results(combine, swapped, numbers)


def _results(combine: Region, order: tuple[Value, ...], numbers: dict[Hashable, int]) -> list[int]:
    """Value numbers of the results when the arguments come in the given order; equal expressions have equal numbers."""
    known = {arg: numbers.setdefault(("argument", i), len(numbers)) for i, arg in enumerate(order)}

    def number_of(value: Value) -> int:
        return known[value] if value in known else numbers.setdefault(value, len(numbers))

    for op in combine.ops[:-1]:
        expression = _expression(op, [number_of(value) for value in op.uses])
        for place, result in enumerate(op.results):
            known[result] = numbers.setdefault((expression, place), len(numbers))
    return [number_of(value) for value in combine.terminator.uses]


def _expression(op: Op, operands: list[int]) -> Hashable:
    attrs = dict(op.attrs)
    if op.kind is arith.cmp:
        predicate: str = attrs["predicate"]
        if predicate in MIRRORED:
            attrs["predicate"], operands = MIRRORED[predicate], operands[::-1]
        elif predicate in ("eq", "ne"):
            operands = sorted(operands)
    elif op.kind.laws.commutes or (op.kind is arith.packed and attrs["kind"] != "sub"):
        operands = [*sorted(operands[:2]), *operands[2:]]
    return op.kind.name, repr(sorted(attrs.items())), tuple(operands)
