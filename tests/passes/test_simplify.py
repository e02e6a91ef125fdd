from __future__ import annotations

import pytest

from tests.effort import calls
from tests.passes.programs import interpret, random_program
from weft.ir.build import Builder
from weft.ir.compare import equivalent
from weft.ir.core import Func, FuncAttrs, Op, ParamFacts, Value, walk
from weft.ir.parse import parse_func
from weft.ir.text import format_func
from weft.ir.types import (
    Pointer,
    ScalarType,
    float32,
    int1,
    int32,
    int64,
    tile_type,
    uint8,
    uint32,
)  # fmt: skip
from weft.ir.verify import verify
from weft.layout import AutoLayout, BlockedLayout, SliceLayout
from weft.layout.distributed import infer
from weft.ops import arith, control, debug, hints, memory, program, tile
from weft.passes.dce import dce
from weft.passes.simplify import simplify

I32, F32, BOOL = ScalarType(int32), ScalarType(float32), ScalarType(int1)
LINE = BlockedLayout([4], [32], [4], [0])
PLANE = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])


class Kernel:
    """A function under construction; `results` runs the pass and says what the kept values became."""

    def __init__(self) -> None:
        self.build = Builder()
        self.n, self.u, self.x = Value(I32, "n"), Value(ScalarType(uint32), "u"), Value(F32, "x")
        self.b, self.p = Value(BOOL, "b"), Value(ScalarType(Pointer(float32)), "p")
        self.params = (self.n, self.u, self.x, self.b, self.p)

    def __call__(self, op, /, *operands, **attrs):
        return self.build.emit(op, *operands, **attrs)

    def number(self, value, type=I32):
        return self(arith.constant, value=value, type=type)

    def func(self) -> Func:
        self(control.return_)
        attrs = FuncAttrs(num_warps=4, stage="tile", params=(ParamFacts(),) * len(self.params))
        return self.build.func("k", self.params, attrs)

    def simplified(self, *kept) -> tuple[Func, list[str]]:
        """The function, and for each kept value its defining operation: the name of a parameter, a number, or an op's name."""
        if kept:
            self(debug.print_, *kept, prefix="kept")
        func = self.func()
        text = format_func(func)
        new = dce(simplify(func))
        assert format_func(func) == text, "the old function changed"
        verify(new)
        made = {result: op for op in walk(new.body) for result in op.results}
        prints = [op for op in walk(new.body) if op.kind is debug.print_ and op.attrs["prefix"] == "kept"]
        return new, [said(value, made.get(value)) for value in (prints[0].uses if prints else ())]

    def says(self, *kept):
        return self.simplified(*kept)[1]


def said(value: Value, op: Op | None) -> object:
    if op is None:
        return value.name
    return op.attrs["value"] if op.kind is arith.constant else op.name


@pytest.mark.parametrize(
    ("kind", "value"),
    [(arith.add, 0), (arith.sub, 0), (arith.mul, 1), (arith.div, 1), (arith.and_, -1), (arith.or_, 0), (arith.xor, 0),
     (arith.shl, 0), (arith.shr, 0)],
)  # fmt: skip
def test_neutral_operands(kind, value):
    k = Kernel()
    found = [k(kind, k.n, k.number(value))]
    if kind not in (arith.sub, arith.div, arith.shl, arith.shr):
        found.append(k(kind, k.number(value), k.n))
    assert k.says(*found) == ["n"] * len(found)


def test_neutral_operands_of_other_types():
    k = Kernel()
    u32 = ScalarType(uint32)
    values = [
        k(arith.and_, k.u, k.number(2**32 - 1, u32)), k(arith.and_, k.b, k.number(True, BOOL)),
        k(arith.or_, k.b, k.number(False, BOOL)), k(arith.xor, k.number(False, BOOL), k.b),
        k(memory.addptr, k.p, k.number(0)), k(arith.mul, k.x, k.number(1.0, F32)), k(arith.div, k.x, k.number(1.0, F32)),
    ]  # fmt: skip
    assert k.says(*values) == ["u", "b", "b", "b", "p", "x", "x"]


def test_floats_that_look_neutral():
    """-0.0 + 0.0 is 0.0, x * 0.0 may be NaN, x - x too, and 1.0 / x is no x."""
    k = Kernel()
    zero, one = k.number(0.0, F32), k.number(1.0, F32)
    values = [
        k(arith.add, k.x, zero), k(arith.sub, k.x, zero), k(arith.mul, k.x, zero), k(arith.sub, k.x, k.x),
        k(arith.div, one, k.x), k(arith.cmp, k.x, k.x, predicate="eq"), k(arith.minimum, k.x, k.x),
    ]  # fmt: skip
    assert k.says(*values) == [
        "arith.add", "arith.sub", "arith.mul", "arith.sub", "arith.div", "arith.cmp", "arith.min",
    ]  # fmt: skip


def test_absorbing_operands():
    k = Kernel()
    values = [
        k(arith.mul, k.n, k.number(0)), k(arith.and_, k.number(0), k.n), k(arith.or_, k.n, k.number(-1)),
        k(arith.rem, k.n, k.number(1)), k(arith.and_, k.b, k.number(False, BOOL)), k(arith.or_, k.b, k.number(True, BOOL)),
    ]  # fmt: skip
    assert k.says(*values) == [0, 0, -1, 0, False, True]


def test_a_value_with_itself():
    k = Kernel()
    kinds = [arith.sub, arith.xor, arith.and_, arith.or_, arith.minimum, arith.maximum]
    values = [k(kind, k.n, k.n) for kind in kinds]
    tests = [k(arith.cmp, k.n, k.n, predicate=p) for p in ("eq", "ne", "lt", "ge")]
    bools = [k(arith.xor, k.b, k.b), k(arith.cmp, k.p, k.p, predicate="le")]
    assert k.says(*values, *tests, *bools) == [0, 0, "n", "n", "n", "n", True, False, False, True, False, True]


def test_casts_and_selects():
    k = Kernel()
    wide = k(arith.cast, k.n, dtype=int64)
    values = [
        k(arith.cast, k.n, dtype=int32), wide,
        k(arith.cast, k.number(300), dtype=uint8), k(arith.cast, k.number(3), dtype=int1),
        k(arith.select, k.number(True, BOOL), k.n, k.number(2)), k(arith.select, k.number(False, BOOL), k.n, k.number(2)),
        k(arith.select, k.b, k.n, k.n),
    ]  # fmt: skip
    assert k.says(*values) == ["n", "arith.cast", 44, True, "n", 2, "n"]


def test_constants_fold_through_tiles():
    k = Kernel()
    three = k(tile.splat, k.number(3), shape=(32,), layout=SliceLayout(1, PLANE))
    wide = k(tile.broadcast, k(tile.expand_dims, three, axis=1), shape=(32, 64))
    moved = k(tile.convert, k(arith.add, wide, wide), layout=BlockedLayout([4, 1], [8, 4], [2, 2], [0, 1]))
    one = k(tile.extract, k.number(7, tile_type(int32, (1,), LINE)))
    new, found = k.simplified(moved, one)
    assert found == [6, 7]
    assert [op.kind for op in new.body.ops] == [arith.constant, arith.constant, debug.print_, control.return_]
    assert str(new.body.ops[0].result.type) == str(moved.type)


def test_splats_move_to_where_they_are_used():
    k = Kernel()
    line = k(tile.splat, k.n, shape=(32,), layout=SliceLayout(1, PLANE))
    wide = k(tile.permute, k(tile.broadcast, k(tile.expand_dims, line, axis=1), shape=(32, 64)), order=(1, 0))
    new, found = k.simplified(wide, k(tile.extract, k(tile.splat, k.n, shape=(1,), layout=LINE)))
    assert found == ["tile.splat", "n"]
    assert str(new.body.ops[0].result.type) == str(wide.type)


def test_conversions():
    k = Kernel()
    other, third = BlockedLayout([1], [32], [4], [0]), BlockedLayout([2], [32], [4], [0])
    x = k(tile.arange, start=0, end=512, layout=LINE, name="x")
    there = k(tile.convert, x, layout=other)
    new, found = k.simplified(k(tile.convert, there, layout=LINE), k(tile.convert, there, layout=third))
    assert found == ["tile.arange", "tile.convert"]
    assert next(op for op in new.body.ops if op.kind is tile.convert).operands == (new.body.ops[0].result,)


def test_shapes_that_do_not_change():
    k = Kernel()
    x = k(tile.arange, start=0, end=512, layout=LINE)
    values = [k(tile.reshape, x, shape=(512,)), k(tile.broadcast, x, shape=(512,)), k(tile.permute, x, order=(0,))]
    assert k.says(*values) == ["tile.arange"] * 3


def test_masks_that_are_known():
    k = Kernel()
    yes, no = k.number(True, BOOL), k.number(False, BOOL)
    loaded = [k(memory.load, k.p, mask, k.x, volatile=True) for mask in (yes, no)]
    k(memory.store, k.p, k.x, yes)
    k(memory.store, k.p, k.x, no)
    k(memory.atomic, k.p, k.x, yes, kind="add")
    new, found = k.simplified(*loaded)
    assert found == ["memory.load", "x"]
    touched = [op for op in new.body.ops if op.name.startswith("memory.")]
    assert [op.operands[1:] for op in touched[:1]] == [(None, None)]
    assert [op.name for op in touched] == ["memory.load", "memory.store", "memory.atomic"]
    assert [op.operands[2] for op in touched[1:]] == [None, None]


def test_claims_about_constants():
    k = Kernel()
    k(hints.assume, k.number(True, BOOL))
    k(hints.assume, k.b)
    k(debug.assert_, k.number(True, BOOL), None, message="")
    k(debug.assert_, k.number(False, BOOL), None, message="stays")
    four = k(hints.axes, k.number(4), divisible=(4,))
    new, found = k.simplified(four, k(hints.uniform, k.number(5)), k(hints.uniform, k.n))
    assert found == [4, 5, "hints.uniform"]
    assert [op.name for op in new.body.ops if not op.results][:2] == ["hints.assume", "debug.assert"]


def test_nothing_is_computed_twice():
    k = Kernel()
    a, b = (k(arith.mul, k.n, k(program.program_id, axis=0)) for _ in range(2))
    with k.build.region() as then:
        k(debug.print_, k(arith.mul, k.n, k(program.program_id, axis=0)), prefix="inner")
        k(control.yield_)
    with k.build.region() as orelse:
        k(control.yield_)
    k(control.if_, k.b, regions=(then.done, orelse.done))
    new, _ = k.simplified(k(arith.sub, a, k.n), b)
    assert [op.name for op in walk(new.body)].count("arith.mul") == 1


def test_what_is_equal_but_not_the_same_stays_apart():
    """Zeros of two signs, numbers of two types, tiles spelled in two ways, and tiles whose layouts are still open."""
    k = Kernel()
    respelled = infer.as_spelling(LINE.to_linear((512,)), (512,))
    values = [
        k.number(0.0, F32), k.number(-0.0, F32), k.number(0), k.number(False, BOOL),
        k.number(1.0, tile_type(float32, (512,), LINE)), k.number(1.0, tile_type(float32, (512,), respelled)),
        *(k(tile.arange, start=0, end=512, layout=AutoLayout()) for _ in range(2)),
    ]  # fmt: skip
    new, _ = k.simplified(*values)
    assert [op.kind for op in new.body.ops[:-2]] == [arith.constant] * 6 + [tile.arange] * 2
    assert [repr(op.attrs["value"]) for op in new.body.ops[:4]] == ["0.0", "-0.0", "0", "False"]


def test_layouts_keep_their_spelling():
    """A neutral operand in front spells the sum's layout; what follows from it (here a slice's parent) must not change."""
    k = Kernel()
    slice_ = SliceLayout(1, PLANE)
    respelled = infer.as_spelling(slice_.to_linear((32,)), (32,))
    assert respelled.to_linear((32,)) == slice_.to_linear((32,))
    x = k(tile.arange, start=0, end=32, layout=respelled)
    total = k(arith.add, k.number(0, tile_type(int32, (32,), slice_)), x)
    wide = k(tile.broadcast, k(tile.expand_dims, total, axis=1), shape=(32, 64))
    new, _ = k.simplified(k(arith.add, wide, k(tile.splat, k.n, shape=(32, 64), layout=PLANE)))
    assert arith.add in {op.kind for op in new.body.ops}


# Control flow


def branch(k, condition, then, orelse):
    with k.build.region() as a:
        k(control.yield_, then())
    with k.build.region() as b:
        k(control.yield_, orelse())
    return k(control.if_, condition, regions=(a.done, b.done))


def test_branches():
    k = Kernel()
    values = [
        branch(k, k.number(True, BOOL), lambda: k.n, lambda: k.number(1)),
        branch(k, k.number(False, BOOL), lambda: k.n, lambda: k(arith.add, k.number(1), k.number(2))),
        branch(k, k.b, lambda: k.n, lambda: k.n),
    ]
    new, found = k.simplified(*values)
    assert found == ["n", 3, "n"]
    assert control.if_ not in {op.kind for op in new.body.ops}


def loop(k, lower, upper, step, *inits, body, descending=False):
    with k.build.region([I32, *(v.type for v in inits)]) as region:
        k(control.yield_, *body(*region.args))
    bounds = (k.number(b) if isinstance(b, int) else b for b in (lower, upper, step))
    return k(control.for_, *bounds, *inits, descending=descending, regions=(region.done,))


@pytest.mark.parametrize(
    ("bounds", "descending", "found"),
    [((0, 0, 1), False, "n"), ((5, 3, 1), False, "n"), ((3, 5, -1), True, "n"), ((0, 1, 1), False, "arith.mul"),
     ((0, 3, 4), False, "arith.mul"), ((3, 0, -4), True, "arith.mul"), ((0, 2, 1), False, "control.for"),
     ((5, 0, -1), True, "control.for"), ((0, 1, 0), False, "control.for")],
)  # fmt: skip
def test_loops_with_constant_bounds(bounds, descending, found):
    k = Kernel()
    result = loop(k, *bounds, k.n, descending=descending, body=lambda i, a: [k(arith.mul, a, k(arith.add, a, i))])
    assert k.says(result) == [found]


def test_values_that_a_loop_hands_on_as_they_are():
    k = Kernel()
    results = loop(
        k, 0, k.n, 1, k.n, k.u, k.x, k.n,
        body=lambda i, a, b, c, d: [a, k.u, k(arith.add, c, k.x), k(arith.add, k(arith.add, d, a), i)],
    )  # fmt: skip
    new, found = k.simplified(*results)
    assert found == ["n", "u", "control.for", "control.for"]
    (made,) = (op for op in new.body.ops if op.kind is control.for_)
    assert len(made.results) == 2


def test_swapping_is_not_handing_on():
    k = Kernel()
    results = loop(k, 0, k.n, 1, k.n, k(arith.add, k.n, k.n), body=lambda i, a, b: [b, a])
    assert k.says(*results) == ["control.for"] * 2


def going(k, *inits, passed, body):
    """A `while` whose condition passes on `passed` of what is carried, all of which `body` makes anew of that."""
    with k.build.region([v.type for v in inits]) as before:
        handed = passed(*before.args)
        k(control.condition, k(arith.cmp, before.args[0], k.n, predicate="lt"), *handed)
    with k.build.region([v.type for v in handed]) as after:
        k(control.yield_, *body(*after.args))
    return k(control.while_, *inits, regions=(before.done, after.done))


def test_values_that_a_while_hands_on_as_they_are():
    """However its condition arranges them: `c` is not passed on at all, and `b` twice."""
    k = Kernel()
    zero = k.number(0)
    results = going(
        k, zero, k.u, k.x, passed=lambda i, b, c: [b, i, b], body=lambda b, i, again: [k(arith.add, i, k.n), again, k.x]
    )
    new, found = k.simplified(*results)
    assert found == ["u", "control.while", "u"]
    (made,) = (op for op in new.body.ops if op.kind is control.while_)
    assert len(made.operands) == len(made.results) == 1


def test_a_while_that_hands_on_other_values():
    """Swapped ones, and one that the condition changes."""
    k = Kernel()
    swapped = going(k, k.n, k.number(0), passed=lambda a, b: [a, b], body=lambda a, b: [b, a])
    changed = going(k, k.n, passed=lambda a: [k(arith.add, a, a)], body=lambda a: [a])
    assert k.says(*swapped, changed) == ["control.while"] * 3


@pytest.mark.parametrize("seed", range(60))
def test_programs_mean_what_they_did(seed):
    func = random_program(seed)
    new = simplify(func)
    verify(new)
    assert interpret(new, 2) == interpret(func, 2)


def test_simplified_text_round_trips():
    k = Kernel()
    new, _ = k.simplified(loop(k, 0, k.n, 1, k.n, body=lambda i, a: [k(arith.add, a, i)]))
    assert equivalent(parse_func(format_func(new)), new)


def chain(length):
    k = Kernel()
    type = tile_type(float32, (512,), LINE)
    x, y = k.number(1.5, type), k(arith.cast, k(tile.arange, start=0, end=512, layout=LINE), dtype=float32)
    for _ in range(length):
        x = k(arith.mul, x, y)
        y = k(arith.add, x, y)
    k(debug.print_, x, y, prefix="")
    return k.func()


SIMPLIFYING = 100
"""Calls for a pair of operations."""


def test_is_linear():
    def effort(length):
        func = chain(length)
        return calls(lambda: simplify(func))

    assert effort(1000) <= 4.5 * effort(250) <= 4.5 * 250 * SIMPLIFYING
