from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.ops as ops
from tests.effort import calls, examples
from weft.errors import Loc
from weft.ir.build import Builder
from weft.ir.compare import equivalent
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.parse import parse_func, parse_type
from weft.ir.text import TextError, format_func, format_op
from weft.ir.types import (
    DTYPES,
    LocalType,
    Pointer,
    RegsType,
    ScalarType,
    SharedArrayType,
    SharedType,
    bfloat16,
    float16,
    float32,
    int1,
    int32,
    int64,
    tile_type,
    uint64,
)  # fmt: skip
from weft.layout import AutoLayout, BlockedLayout, CoalescedLayout, NVMMASharedLayout, SliceLayout, SwizzledSharedLayout
from weft.layout.tensor_cores.shared_operands import Operand

arith, control, memory, tile, program, sync = ops.arith, ops.control, ops.memory, ops.tile, ops.program, ops.sync
LINE = BlockedLayout([4], [32], [4], [0])
PLANE = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])
I32, BOOL = ScalarType(int32), ScalarType(int1)
ATTRS = FuncAttrs(num_warps=4, target="sm_90a", stage="tile")


def finish(build: Builder, *params: Value, facts=None, **attrs) -> Func:
    build.emit(control.return_)
    facts = tuple(facts or (ParamFacts(),) * len(params))
    return build.func("kernel", params, replace(ATTRS, params=facts, **attrs))


def scale() -> Func:
    build = Builder()
    src, n = Value(ScalarType(Pointer(float32)), "src"), Value(I32, "n")
    build.loc = Loc("kernel.py", 7, function="kernel")
    offsets = build.emit(tile.arange, start=0, end=512, layout=LINE, name="offsets")
    bound = build.emit(tile.splat, n, shape=(512,), layout=LINE)
    mask = build.emit(arith.cmp, offsets, bound, predicate="lt", name="mask")
    base = build.emit(tile.splat, src, shape=(512,), layout=LINE)
    at = build.emit(memory.addptr, base, offsets)
    x = build.emit(memory.load, at, mask, None, cache=".cg", name="x")
    two = build.emit(arith.constant, value=2.0, type=x.type)
    build.emit(memory.store, at, build.emit(arith.mul, x, two, name="x"), None)
    return finish(build, src, n, facts=(ParamFacts(16), ParamFacts()))


def nested() -> Func:
    build = Builder()
    n = Value(I32, "n")
    zero = build.emit(arith.constant, value=0, type=I32)
    one = build.emit(arith.constant, value=1, type=I32)
    with build.region([I32, I32, I32], ["i", "a", "b"]) as body:
        i, a, b = body.args
        test = build.emit(arith.cmp, i, a, predicate="lt")
        with build.region() as then:
            build.emit(control.yield_, build.emit(arith.add, a, i))
        with build.region() as orelse:
            build.emit(control.yield_, b)
        c = build.emit(control.if_, test, regions=(then.done, orelse.done), name="c")
        build.emit(control.yield_, b, c)
    x, _ = build.emit(control.for_, zero, n, one, zero, one, descending=False, regions=(body.done,))
    with build.region([I32]) as condition:
        go = build.emit(arith.cmp, condition.args[0], n, predicate="ne")
        build.emit(control.condition, go, condition.args[0])
    with build.region([I32]) as after:
        build.emit(control.yield_, build.emit(arith.add, after.args[0], one))
    build.emit(control.while_, x, regions=(condition.done, after.done))
    return finish(build, n)


def reduced() -> Func:
    build = Builder()
    x = build.emit(arith.constant, value=1.5, type=tile_type(float32, (16, 32), PLANE), name="x")
    with build.region([ScalarType(float32)] * 2, ["l", "r"]) as combine:
        build.emit(control.yield_, build.emit(arith.add, *combine.args))
    build.emit(ops.tile.reduce, x, axis=1, regions=(combine.done,), name="sum")
    left, right = build.emit(tile.split, build.emit(tile.join, x, x))
    build.emit(ops.debug.print_, left, right, prefix='a "quoted" // \\ é\n')
    return finish(build)


def lowered() -> Func:
    build = Builder()
    p = Value(ScalarType(Pointer(float16)), "p")
    lane = build.emit(program.lane_id)
    x = build.emit(ops.memory.load_regs, p, None, None, lane, offsets=((0,), (1,)), registers=((0, 1),), vec=2, count=2)
    memory_ = build.emit(ops.shared.scratch, dtype=float16, count=64, tag=0)
    build.emit(ops.shared.store_regs, memory_, lane, x, None, offsets=(0,), registers=((0, 1),), vec=2)
    build.emit(arith.cast, build.emit(ops.regs.gather, x, table=(1,)), dtype=float32)
    build.emit(arith.bitcast, build.emit(arith.constant, value=0, type=ScalarType(uint64)), element=Pointer(bfloat16))
    return finish(build, p, stage="lowered")


def threads() -> Func:
    """An operation without operands, a line before results: they are not its operands."""
    build = Builder()
    x = Value(I32, "x")
    own = build.emit(ops.thread.alloc_local, dtype=float16, count=4, tag=1, name="own")
    room = build.emit(ops.shared.array, dtype=float16, count=64, tag=2, name="room")
    build.emit(sync.barrier)
    value = build.emit(ops.thread.load_shared, room, x, None, offsets=(0, 8), vec=2)
    build.emit(ops.thread.store_local, own, None, value, None, offsets=(0, 1, 2, 3))
    build.emit(sync.barrier)
    build.emit(ops.thread.bounds, x, x, sizes=(-1,), view="t.tile[4, 4](1, 2)")
    return finish(build, x, block=(8, 8, 1))


@pytest.mark.parametrize("make", [scale, nested, reduced, lowered, threads])
def test_round_trip(make):
    func = make()
    text = format_func(func)
    again = parse_func(text)
    assert equivalent(func, again)
    assert format_func(again) == text


def test_looks_like_this():
    assert format_func(nested()) == (
        'func @kernel(%n: i32) {num_warps = 4, target = "sm_90a", stage = "tile"} {\n'
        "  %0 = arith.constant {value = 0} : i32\n"
        "  %1 = arith.constant {value = 1} : i32\n"
        "  %2, %3 = control.for %0, %n, %1, %0, %1 {descending = false} body(%i: i32, %a: i32, %b: i32) {\n"
        '    %4 = arith.cmp %i, %a {predicate = "lt"} : i1\n'
        "    %c = control.if %4 then {\n"
        "      %5 = arith.add %a, %i : i32\n"
        "      control.yield %5\n"
        "    } orelse {\n"
        "      control.yield %b\n"
        "    } : i32\n"
        "    control.yield %b, %c\n"
        "  } : i32, i32\n"
        "  %6 = control.while %2 condition(%7: i32) {\n"
        '    %8 = arith.cmp %7, %n {predicate = "ne"} : i1\n'
        "    control.condition %8, %7\n"
        "  } body(%9: i32) {\n"
        "    %10 = arith.add %9, %1 : i32\n"
        "    control.yield %10\n"
        "  } : i32\n"
        "  control.return\n"
        "}\n"
    )


def test_defaults_absent_operands_and_repeated_names():
    text = format_func(scale())
    assert "func @kernel(%src: ptr<f32> {divisible = 16}, %n: i32) {" in text
    assert '%x = memory.load %2, %mask, _ {cache = ".cg"} : tile<512xf32, BlockedLayout([4], [32], [4], [0])>' in text
    assert "%x_1 = arith.mul %x, %3 :" in text
    assert "memory.store %2, %x_1, _\n" in text


def test_locations_are_comments():
    text = format_func(scale(), locations=True)
    assert "%offsets = tile.arange {start = 0, end = 512, layout = BlockedLayout([4], [32], [4], [0])} : " in text
    assert text.count(" // kernel.py:7\n") == len(scale().body.ops)
    assert equivalent(parse_func(text), scale())


@pytest.mark.parametrize("name", ["x.y", "a b", "1st", "%", "x_1", "é"])
def test_any_name_prints(name):
    build = Builder()
    for _ in range(3):
        build.emit(program.lane_id, name=name)
        build.emit(program.lane_id, name="x")
    func = finish(build)
    text = format_func(func)
    assert equivalent(parse_func(text), func)
    assert format_func(parse_func(text)) == text


@pytest.mark.parametrize(
    "type",
    [
        *map(ScalarType, DTYPES), ScalarType(Pointer(float16, "shared")), RegsType(Pointer(float32), 4), RegsType(int64, 1),
        SharedArrayType(float32, 128), LocalType(bfloat16, 3), LocalType(int1, 64),
        tile_type(Pointer(float16), (16, 32), PLANE), tile_type(int32, (8,), SliceLayout(1, PLANE)),
        tile_type(int32, (8,), AutoLayout()), tile_type(float32, (8,), CoalescedLayout()),
        SharedType(float16, (3, 64, 64), NVMMASharedLayout(128, 16, 2), (3, 64, 64)),
        SharedType(float32, (64,), SwizzledSharedLayout(1, 1, 1, [0]), (64,)),
    ],
    ids=str,
)  # fmt: skip
def test_types_round_trip(type):
    assert parse_type(str(type)) == type
    assert str(parse_type(str(type))) == str(type)


VALUES = st.one_of(st.integers(), st.floats(), st.booleans())


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(VALUES), st.text(), st.recursive(VALUES, lambda v: st.lists(v).map(tuple), max_leaves=5))
def test_attributes_round_trip(values, text, tree):
    build = Builder()
    for value in values:
        dtype = {bool: int1, int: int32, float: float32}[type(value)]
        build.emit(arith.constant, value=value, type=ScalarType(dtype))
    build.emit(ops.debug.print_, prefix=text)
    build.emit(ops.debug.print_, prefix=tree)
    func = finish(build)
    assert equivalent(parse_func(format_func(func)), func)


def test_matrices_in_memory_round_trip():
    build = Builder()
    build.emit(ops.debug.print_, prefix=Operand(128, False, 16, 1024, (0, 0, 8192)))
    build.emit(ops.debug.print_, prefix=(Operand(32, True, 64, 512, ()),))
    func = finish(build)
    assert "prefix = Operand(128, false, 16, 1024, [0, 0, 8192])" in format_func(func)
    assert equivalent(parse_func(format_func(func)), func)


def test_functions_are_read_as_absent():
    build = Builder()
    x = build.emit(arith.constant, value=1.0, type=ScalarType(float32))
    build.emit(ops.asm.inline_asm, x, asm="neg.f32 $0, $1;", constraints="=f,f", dtypes=(float32,), pack=1, sim=abs)
    text = format_func(finish(build))
    assert "sim = <function>" in text
    assert parse_func(text).body.ops[1].attrs["sim"] is None


def test_differences_are_seen():
    func = nested()
    text = format_func(func)
    for old, new in [
        ("value = 0", "value = 2"), ("value = 0", "value = 0.0"), ("value = 0", "value = false"), ('"lt"', '"le"'),
        ("%a, %i : i32", "%i, %a : i32"), ("@kernel", "@other"), ("num_warps = 4", "num_warps = 8"),
        ("control.yield %b, %c", "control.yield %c, %b"), ("(%n: i32)", "(%n: i32 {divisible = 16})"),
    ]:  # fmt: skip
        assert old in text
        assert not equivalent(parse_func(text.replace(old, new, 1)), func)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("num_warps = 4", "warps = 4", "unexpected keyword argument 'warps', in line 1: func @kernel"),
        ("num_warps = 4, ", "", "missing 1 required keyword-only argument: 'num_warps', in line 1"),
        ("(%n: i32)", "(%n: i32 {even = true})", "unexpected keyword argument 'even', in line 1"),
        ("control.return\n}", "control.return\n} {color = {%n = 0}}", "exact or storage is expected, not 'color'"),
        ("arith.add", "arith.sum", "an operation is expected, not 'arith.sum', in line 7"),
        ("%a, %i : i32", "%a, %ghost : i32", "a value that is defined above is expected, not '%ghost'"),
        ("%b: i32)", "%b: i33)", "there is no type i33"),
        ("%1 = arith", "%0 = arith", "%0 is defined twice"),
        ("orelse", "else", "'orelse' is expected"),
        ("control.return\n}", "control.return", "an operation is expected, not 'the end of the text'"),
        ("control.return\n}", "control.return\n} more", "nothing more is expected"),
        ("value = 1", "value = ;", "IR is expected, not ';'"),
    ],
)
def test_mistakes_name_their_line(old, new, says):
    text = format_func(nested())
    assert old in text
    with pytest.raises(TextError) as error:
        parse_func(text.replace(old, new, 1))
    assert says in str(error.value)


def test_attributes_that_speak_of_values_follow_the_body():
    func = nested()
    loop = func.body.ops[2]
    stored = func.with_attrs(storage={loop.results[0]: 0, loop.regions[0].args[1]: 0, loop.results[1]: 1})
    text = format_func(stored)
    assert text.endswith("\n} {storage = {%2 = 0, %a = 0, %3 = 1}}\n")
    assert equivalent(parse_func(text), stored)
    assert format_func(parse_func(text)) == text
    assert not equivalent(parse_func(text), func)
    assert not equivalent(parse_func(text.replace("%a = 0", "%b = 0")), stored)
    assert equivalent(parse_func(format_func(func.with_attrs(storage={}))), func.with_attrs(storage={}))


def test_format_op():
    (op,) = [op for op in scale().body.ops if op.kind is arith.mul]
    assert format_op(op) == "%x = arith.mul %x_1, %0 : tile<512xf32, BlockedLayout([4], [32], [4], [0])>"


PRINTING = 30
"""Calls for an operation."""


def test_printing_is_linear():
    def effort(count):
        build = Builder()
        x = build.emit(arith.constant, value=1.0, type=tile_type(float32, (512,), LINE))
        for i in range(count):
            x = build.emit(arith.add, x, x, name=f"x{i}")
        func = finish(build)
        return calls(lambda: format_func(func))

    assert effort(2000) <= 4.5 * effort(500) <= 4.5 * 500 * PRINTING
