from __future__ import annotations

from typing import Any

import pytest

import weft.ops as ops
from weft.errors import Loc
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, Op, ParamFacts, Region, Value
from weft.ir.types import RegsType, ScalarType, float32, int1, int32, tile_type
from weft.ir.verify import VerificationError, verify
from weft.layout import BlockedLayout

arith, control, tile = ops.arith, ops.control, ops.tile
LINE = BlockedLayout([1], [32], [4], [0])
I32 = ScalarType(int32)
PLACE = Loc("kernel.py", 3)
RETURN = Op(control.return_, (), {}, ())


def func(*made: Op, params=(), **attrs) -> Func:
    return Func(
        "k",
        Region(tuple(params), made),
        FuncAttrs(**{"num_warps": 4, "stage": "tile", "params": (ParamFacts(),) * len(params), **attrs}),
    )


def with_facts(*facts: Any) -> Func:
    return Func("k", Region((Value(I32),), (RETURN,)), FuncAttrs(num_warps=4, stage="tile", params=facts))


def constant(value=0, type=I32) -> Op:
    return Op(arith.constant, (), {"value": value, "type": type}, (Value(type),), (), PLACE)


def loop(body, *inits, bound):
    return Op(
        control.for_, (bound, bound, bound, *inits), {"descending": False}, tuple(Value(v.type) for v in inits), (body,)
    )


def test_accepts_nested_control_flow():
    build = Builder()
    n = Value(I32, "n")
    one = build.emit(arith.constant, value=1, type=I32)
    with build.region([I32, I32]) as body:
        i, acc = body.args
        less = build.emit(arith.cmp, i, n, predicate="lt")
        with build.region() as then:
            build.emit(control.yield_, build.emit(arith.add, acc, one))
        with build.region() as orelse:
            build.emit(control.yield_, acc)
        build.emit(control.yield_, build.emit(control.if_, less, regions=(then.done, orelse.done)))
    total = build.emit(control.for_, one, n, one, one, descending=False, regions=(body.done,))
    with build.region([I32]) as condition:
        build.emit(control.condition, build.emit(arith.cmp, condition.args[0], n, predicate="lt"), condition.args[0])
    with build.region([I32]) as after:
        build.emit(control.yield_, build.emit(arith.add, after.args[0], one))
    build.emit(control.while_, total, regions=(condition.done, after.done))
    build.emit(control.return_)
    verify(build.func("k", (n,), FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),))))


def test_accepts_the_lowered_stage():
    x = Op(ops.regs.splat, (constant().result,), {"count": 2}, (Value(RegsType(int32, 2)),))
    zero = Op(arith.constant, (), {"value": 0, "type": I32}, (x.operands[0],))
    verify(func(zero, x, RETURN, stage="lowered"))


def unordered():
    c = constant()
    return func(Op(arith.add, (c.result, c.result), {}, (Value(I32),), (), PLACE), c, RETURN)


def leaked():
    c, inner = constant(), constant()
    body = Region((Value(I32),), (inner, Op(control.yield_, (), {}, ())))
    use = Op(arith.add, (inner.result, c.result), {}, (Value(I32),))
    return func(c, loop(body, bound=c.result), use, RETURN)


def defined_twice():
    c = constant()
    return func(c, c, RETURN)


def wrong_terminator():
    c = constant()
    return func(c, loop(Region((Value(I32),), (RETURN,)), bound=c.result), RETURN)


def no_terminator():
    return func(constant())


def terminator_in_the_middle():
    return func(RETURN, RETURN)


def wrong_type():
    c = constant()
    return func(c, Op(arith.add, (c.result, c.result), {}, (Value(ScalarType(float32)),), (), PLACE), RETURN)


def refused():
    c, x = constant(), constant(1.0, ScalarType(float32))
    return func(c, x, Op(arith.add, (c.result, x.result), {}, (Value(I32),), (), PLACE), RETURN)


def missing_operand():
    c = constant()
    return func(c, Op(arith.add, (c.result, None), {}, (Value(I32),)), RETURN)


def too_many_operands():
    c = constant()
    return func(c, Op(arith.add, (c.result,) * 3, {}, (Value(I32),)), RETURN)


def unknown_attribute():
    c = constant()
    return func(c, Op(arith.add, (c.result,) * 2, {"color": 1}, (Value(I32),)), RETURN)


def missing_attribute():
    c = constant()
    return func(c, Op(arith.cmp, (c.result,) * 2, {}, (Value(ScalarType(int1)),)), RETURN)


def missing_region():
    c = constant(True, ScalarType(int1))
    return func(c, Op(control.if_, (c.result,), {}, ()), RETURN)


def tile_op_when_lowered():
    c = constant()
    x = Op(tile.splat, (c.result,), {"shape": (8,), "layout": LINE}, (Value(tile_type(int32, (8,), LINE)),))
    return func(c, x, RETURN, stage="lowered")


def tile_value_when_lowered():
    return func(constant(0, tile_type(int32, (8,), LINE)), RETURN, stage="lowered")


def lowered_op_too_early():
    c = constant()
    return func(c, Op(ops.regs.xor, (c.result,), {"offsets": (0, 1)}, (Value(RegsType(int32, 2)),)), RETURN)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (unordered, "is used where it is not defined"),
        (leaked, "is used where it is not defined"),
        (defined_twice, "is defined twice"),
        (wrong_terminator, "this region ends in control.yield"),
        (no_terminator, "a region ends in control.return"),
        (terminator_in_the_middle, "control.return stands before the end of its region"),
        (wrong_type, "the typing rule gives i32, not f32"),
        (refused, "operands differ: i32 and f32"),
        (missing_operand, "needs its operand 'rhs'"),
        (too_many_operands, "takes 2 operands, not 3"),
        (unknown_attribute, "not color"),
        (missing_attribute, "has the attributes predicate"),
        (missing_region, "has 2 regions, not 0"),
        (tile_op_when_lowered, "tile.splat does not belong into the lowered stage"),
        (tile_value_when_lowered, "has a type that does not belong into the lowered stage"),
        (lowered_op_too_early, "regs.xor does not belong into the tile stage"),
        (lambda: func(RETURN, stage="odd"), "the attribute stage cannot be 'odd'"),
        (lambda: func(RETURN, num_warps=None), "the attribute num_warps cannot be None"),
        (lambda: func(RETURN, num_warps=0), "the attribute num_warps cannot be 0"),
        (lambda: func(RETURN, num_ctas=True), "the attribute num_ctas cannot be True"),
        (lambda: func(RETURN, shared_bytes=-1), "the attribute shared_bytes cannot be -1"),
        (lambda: func(RETURN, block=(32, 1)), "the attribute block cannot be (32, 1)"),
        (lambda: func(RETURN, debug=1), "the attribute debug cannot be 1"),
        (lambda: func(RETURN, kept_bytes=((0, "16"),)), "the attribute kept_bytes cannot be ((0, '16'),)"),
        (lambda: func(RETURN, storage={"x": 0}), "the attribute storage cannot be {'x': 0}"),
        (lambda: func(RETURN, storage={Value(I32): 0}), "storage speaks of a value that the function does not have"),
        (lambda: func(RETURN, total_warps=2), "4 of 2 warps"),
        (lambda: with_facts({"divisible": 4}), "the attribute params cannot be ({'divisible': 4},)"),
        (lambda: with_facts(ParamFacts("4")), "the attribute params cannot be (ParamFacts(divisible='4'"),
    ],
)
def test_refuses(make, says):
    with pytest.raises(VerificationError) as error:
        verify(make())
    assert says in str(error.value)


def test_refuses_facts_that_do_not_fit():
    with pytest.raises(VerificationError, match="1 parameters, but facts about 0"):
        verify(with_facts())


def test_shows_both_lines():
    with pytest.raises(VerificationError) as error:
        verify(wrong_type())
    assert "  %0 = arith.add %1, %1 : f32\n" in str(error.value)
    assert "kernel.py:3" in str(error.value)


def test_a_known_operation_is_checked_for_where_it_stands():
    one = constant()
    add = Op(arith.add, (one.result, one.result), {}, (Value(I32),), (), PLACE)
    known = verify(func(one, add, RETURN))
    assert known == {one, add, RETURN}
    assert verify(func(one, add, RETURN), known) == known
    with pytest.raises(VerificationError, match="used where it is not defined"):
        verify(func(add, RETURN), known)
