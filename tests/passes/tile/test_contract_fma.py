from __future__ import annotations

import pytest

from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, ParamFacts, Value, walk
from weft.ir.types import (
    ScalarType,
    bfloat16,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int32,
    tile_type,
)  # fmt: skip
from weft.ir.verify import verify
from weft.layout import BlockedLayout
from weft.ops import arith, control, debug
from weft.passes.tile.contract_fma import contract_fma

F32 = ScalarType(float32)


class Kernel:
    def __init__(self, type=F32) -> None:
        self.build = Builder()
        numbers = {"a": 3, "b": 5, "c": 7}
        self.a, self.b, self.c = (self(arith.constant, value=v, type=type, name=n) for n, v in numbers.items())

    def __call__(self, kind, *operands, **attrs):
        return self.build.emit(kind, *operands, **attrs)

    def contracted(self):
        self(control.return_)
        func = contract_fma(self.build.func("k", (), FuncAttrs(num_warps=4, stage="tile")))
        verify(func)
        return [op for op in walk(func.body) if op.kind not in (arith.constant, control.return_, debug.print_)]


def evaluate(ops, known):
    """Values of scalar operations on exact numbers."""
    rules = {
        arith.fma: lambda x, y, z: x * y + z, arith.math: lambda x: -x, arith.mul: lambda x, y: x * y,
        arith.add: lambda x, y: x + y, arith.sub: lambda x, y: x - y,
    }  # fmt: skip
    for op in ops:
        known[op.result] = rules[op.kind](*(known[v] for v in op.uses))
    return known


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64])
@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize(
    ("kind", "first", "value"),
    [(arith.add, True, 22), (arith.add, False, 22), (arith.sub, True, 8), (arith.sub, False, -8)],
)
def test_sums_and_differences(kind, first, value, dtype, tiles):
    k = Kernel(tile_type(dtype, (128,), BlockedLayout([1], [32], [4], [0])) if tiles else ScalarType(dtype))
    product = k(arith.mul, k.a, k.b)
    result = k(kind, product, k.c, name="s") if first else k(kind, k.c, product, name="s")
    ops = k.contracted()
    assert [op.kind for op in ops] == ([arith.math, arith.fma] if kind is arith.sub else [arith.fma])
    assert ops[-1].result is result
    assert evaluate(ops, {k.a: 3, k.b: 5, k.c: 7})[result] == value


@pytest.mark.parametrize("type", [ScalarType(float8e5), ScalarType(int32)])
def test_other_types_stay(type):
    k = Kernel(type)
    k(arith.add, k(arith.mul, k.a, k.b), k.c)
    assert [op.kind for op in k.contracted()] == [arith.mul, arith.add]


def test_a_product_that_is_used_twice_stays():
    k = Kernel()
    product = k(arith.mul, k.a, k.b)
    k(arith.add, product, k.c)
    k(debug.print_, product, prefix="")
    assert [op.kind for op in k.contracted()] == [arith.mul, arith.add]
    k = Kernel()
    product = k(arith.mul, k.a, k.b)
    k(arith.add, product, product)
    assert [op.kind for op in k.contracted()] == [arith.mul, arith.add]


def test_of_two_products_the_first_is_contracted():
    k = Kernel()
    k(arith.add, k(arith.mul, k.a, k.b, name="p"), k(arith.mul, k.b, k.c, name="q"))
    ops = k.contracted()
    assert [op.kind for op in ops] == [arith.mul, arith.fma]
    assert [v.name for v in ops[1].operands] == ["a", "b", "q"]


def test_a_product_is_not_moved_into_a_region():
    k = Kernel()
    product = k(arith.mul, k.a, k.b)
    with k.build.region() as then:
        k(control.yield_, k(arith.add, product, k.c))
    with k.build.region() as orelse:
        k(control.yield_, k(arith.add, k(arith.mul, k.b, k.c), k.a))
    k(control.if_, k(arith.constant, value=True, type=ScalarType(int1)), regions=(then.done, orelse.done))
    kinds = [op.kind for op in k.contracted()]
    assert kinds == [arith.mul, control.if_, arith.add, control.yield_, arith.fma, control.yield_]


def test_nothing_to_do_is_free():
    k = Kernel()
    k(arith.add, k.a, k.b)
    k(control.return_)
    func = k.build.func("k", (), FuncAttrs(num_warps=4, stage="tile"))
    assert contract_fma(func) is func


def test_the_old_function_is_left_alone():
    k = Kernel()
    x = Value(F32)
    total = k(arith.add, k(arith.mul, k.a, k.b), k.c)
    k(control.return_)
    func = k.build.func("k", (x,), FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),)))
    before = func.body.ops
    contract_fma(func)
    assert func.body.ops is before
    assert [op.kind for op in before[3:5]] == [arith.mul, arith.add]
    assert before[4].result is total
    verify(func)
