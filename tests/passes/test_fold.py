"""Folding against the simulator, and the laws that operations declare against folding."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from tests.support import count, tile_kernel
from weft.errors import WeftError
from weft.ir.core import OpDef
from weft.ir.define import OPS
from weft.ir.types import DTYPES, DType, ScalarType, bfloat16, float32, int1, int8, int32, uint8, wrap
from weft.ops import arith
from weft.passes.fold import fold
from weft.passes.simplify import simplify

INTEGERS = [dtype for dtype in DTYPES if dtype.is_int()]
ATTRS: dict[OpDef, list[dict[str, Any]]] = {
    arith.cmp: [{"predicate": each} for each in arith.COMPARE],
    arith.math: [{"fn": each} for each in arith.SIGN],
    arith.cast: [{"dtype": dtype} for dtype in INTEGERS],
}
"""Of operations whose attributes have no defaults."""
FOLDED = [op for op in OPS.values() if op.fold is not None]


def numbers_of(dtype: DType) -> list[int]:
    """Small numbers, those about the ends of the type, and amounts about its width."""
    least, most = dtype.min_value, dtype.max_value
    near = [*range(-2, 3), 7, 8, 32, 63, 64, least, least + 1, most, most // 3]
    return sorted({number for number in near if least <= number <= most})


def accepted(op: OpDef, dtype: DType, attrs: Mapping[str, Any]) -> bool:
    """Whether the operation takes scalars of the type."""
    k = tile_kernel()
    try:
        k.emit(op, *[k.number(1, ScalarType(dtype).element)] * len(op.operands), **attrs)
    except WeftError:
        return False
    return True


@pytest.mark.parametrize("op", FOLDED, ids=lambda op: op.name)
def test_folding_is_what_the_simulator_computes(op):
    """Constants are folded to the bits that the simulator stores for them."""
    folded = 0
    for attrs, dtype in product(ATTRS.get(op, [{}]), INTEGERS):
        if not accepted(op, dtype, attrs):
            continue
        k = tile_kernel()
        for numbers in product(numbers_of(dtype), repeat=len(op.operands)):
            if fold(op, list(numbers), dtype, dtype, attrs) is not None and (len(numbers) < 3 or folded < 3000):
                k.output(k.emit(op, *[k.number(number, dtype) for number in numbers], **attrs))
                folded += 1
        if k.params:
            assert not count(k.check(simplify), op)
    assert folded


def small(op: OpDef) -> tuple[DType, range] | None:
    """A narrow type that the operation takes, and numbers to try the laws on."""
    found = next((dtype for dtype in (int8, uint8, int32) if accepted(op, dtype, ATTRS.get(op, [{}])[0])), None)
    if found is None:
        return None
    return found, range(max(found.min_value, -130), min(found.max_value, 260) + 1)


@pytest.mark.parametrize("op", [op for op in FOLDED if len(op.operands) == 2], ids=lambda op: op.name)
def test_laws_hold(op):
    """Each law that an operation declares, and no neutral number that it has is missing."""
    given = small(op)
    assert given is not None
    dtype, numbers = given
    laws = op.laws
    out = int1 if op is arith.cmp else dtype

    def value(a: int, b: int, attrs: Mapping[str, Any]) -> int | None:
        return fold(op, [a, b], out, dtype, attrs)

    for attrs in ATTRS.get(op, [{}]):
        some = list(numbers)[::7]
        commutes = all(value(a, b, attrs) == value(b, a, attrs) for a in some for b in some)
        assert laws.commutes == commutes or op is arith.cmp
        same = all(value(a, a, attrs) == a for a in numbers)
        constant = len({value(a, a, attrs) for a in numbers}) == 1
        assert laws.itself == ("same" if same else "constant" if constant else "")
        if op is arith.cmp:
            continue
        numbers_of_all_types = {wrap(each, dtype): each for each in (0, 1, -1)}
        neutral = [each for b, each in numbers_of_all_types.items() if all(value(a, b, attrs) == a for a in numbers)]
        absorbing = [
            each
            for b, each in numbers_of_all_types.items()
            if each not in neutral and len({value(a, b, attrs) for a in numbers}) == 1
        ]
        assert [laws.neutral] == (neutral or [None])
        assert laws.absorbing is None or laws.absorbing in absorbing


def test_bools_and_floats():
    assert fold(arith.xor, [True, True], int1, int1, {}) is False
    assert fold(arith.cast, [True], int32, int1, {}) == 1
    assert fold(arith.add, [1.0, 2.0], float32, float32, {}) is None
    assert fold(arith.cast, [1.5], int32, bfloat16, {}) is None
    assert fold(arith.cmp, [0.5, 0.5], int1, float32, {"predicate": "eq"}) is None
