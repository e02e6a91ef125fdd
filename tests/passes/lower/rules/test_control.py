"""Loops and branches over tiles: what is carried as one base per thread, what as registers, and that values agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import tiles
from tests.support import TARGET, any_bits, check_pass, count, lowered, ops_of, simulate, tile_kernel, warps_of
from weft.errors import UserError
from weft.ir.types import Pointer, RegsType, ScalarType, float32, int1, int32, int64
from weft.layout import BlockedLayout
from weft.ops import arith, control, debug, memory, regs
from weft.passes.lower.rules import RULES
from weft.passes.lower.rules.arith import elementwise
from weft.passes.lower.state import Lowering

LAW = settings(deadline=None, max_examples=examples(40))
LINE = BlockedLayout([4], [32], [4], [0])


def loop(k, bounds, inits, body, descending=False):
    """A for loop; `body(counter, *carried)` gives the next carried values. Gives its results as a tuple."""
    with k.region([bounds[0].type, *(v.type for v in inits)]) as region:
        k.emit(control.yield_, *body(*region.args))
    made = k.emit(control.for_, *bounds, *inits, descending=descending, regions=(region.done,))
    return made if isinstance(made, tuple) else () if made is None else (made,)


def bounds(k, n):
    return k.number(0), k.number_in(n), k.number(1)


def branch(k, condition, then, orelse):
    regions = []
    for make in (then, orelse):
        with k.region() as region:
            k.emit(control.yield_, *make())
        regions.append(region.done)
    return k.emit(control.if_, condition, regions=tuple(regions))


def carried_types(after):
    """Types that the only loop of a function carries."""
    (op,) = ops_of(after, control.for_)
    return [v.type for v in op.operands[3:]]


def test_a_moving_pointer_carries_its_base_only():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    source = k.pointer_in(any_bits(k.rng, float32, 512 * 5), float32)
    p = k.address(source, at)
    total = k.number(0, k.cast(at, float32))
    step = k.number(512, at)
    p, total = loop(
        k, bounds(k, 4), (p, total),
        lambda i, p, s: (k.emit(memory.addptr, p, step), k.add(s, k.emit(memory.load, p, None, None))),
    )  # fmt: skip
    k.output(total)
    k.output(k.emit(memory.load, p, None, None))
    after = k.check()
    assert carried_types(after) == [ScalarType(Pointer(float32)), RegsType(float32, 4)]
    assert all(op.attrs["vec"] == 4 for op in ops_of(after, memory.load_regs))
    assert not any(isinstance(op.operands[0].type, RegsType) for op in ops_of(after, memory.addptr))


@pytest.mark.parametrize(("step", "vec"), [(4, 4), (2, 2), (3, 1)])
def test_the_step_decides_how_wide_accesses_in_the_loop_are(step, vec):
    k = tile_kernel()
    at = k.positions((512,), LINE)
    p = k.address(k.pointer_in(any_bits(k.rng, float32, 600), float32), at)
    total = k.number(0, k.cast(at, float32))
    _, total = loop(
        k, bounds(k, 4), (p, total),
        lambda i, p, s: (k.emit(memory.addptr, p, k.number(step, at)), k.add(s, k.emit(memory.load, p, None, None))),
    )  # fmt: skip
    k.output(total)
    assert [op.attrs["vec"] for op in ops_of(k.check(), memory.load_regs)] == [vec]


def test_offsets_and_scalars_are_carried_with_their_divisors():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    source = k.pointer_in(any_bits(k.rng, float32, 4096), float32)
    total = k.number(0, k.cast(at, float32))

    def body(i, offset, start, s):
        x = k.load(source, k.add(offset, k.splat(start, offset)))
        return k.add(offset, k.number(128, offset)), k.add(start, k.number(256)), k.add(s, x)

    _, _, total = loop(k, bounds(k, 4), (at, k.number(0), total), body)
    k.output(total)
    after = k.check()
    assert carried_types(after) == [ScalarType(int32), ScalarType(int32), RegsType(float32, 4)]
    assert ops_of(after, memory.load_regs)[0].attrs["vec"] == 4


@LAW
@given(tiles(), st.integers(0, 5))
def test_carried_tiles_swap_in_parallel(case, turns):
    """Two positions with other constants each, two loaded tiles and two scalars change places in every turn."""
    layout, shape = case[0], tuple(case[1])
    k = tile_kernel(num_warps=warps_of(layout, shape))
    a = k.positions(shape, layout)
    b = k.mul(a, k.number(3, a))
    x, y = (k.input(float32, shape, layout) for _ in range(2))
    s, t = k.number_in(5), k.number_in(6)
    results = loop(k, bounds(k, turns), (a, b, x, y, s, t), lambda i, a, b, x, y, s, t: (b, a, y, x, t, s))
    for value in results[:4]:
        k.output_of_all(value)
    for value in results[4:]:
        k.output(value)
    k.check()


@LAW
@given(tiles(), st.integers(0, 3))
def test_what_is_base_and_constants_only_at_first(case, turns):
    """Tiles that the body turns into products, uniform tiles that become others, and one that stays uniform."""
    layout, shape = case[0], tuple(case[1])
    k = tile_kernel(num_warps=warps_of(layout, shape))
    a = k.positions(shape, layout)
    u = k.splat(k.number_in(7), a)
    wide = k.cast(a, int64)
    results = loop(
        k, bounds(k, turns), (a, u, u, a, wide, u),
        lambda i, a, b, c, d, w, e: (
            k.mul(a, a), k.add(b, a), k.add(c, k.splat(i, c)), k.emit(arith.select, k.below(d, 9), d, a),
            k.add(w, k.cast(a, int64)), k.emit(arith.sub, e, k.number(1, e)),
        ),
    )  # fmt: skip
    for value in results:
        k.output_of_all(value)
    after = k.check()
    assert [carried_types(after)[i] for i in (2, 5)] == [ScalarType(int32)] * 2


def test_a_loop_in_a_loop():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    source = k.pointer_in(any_bits(k.rng, float32, 4096), float32)

    def inner(i, p, s):
        return k.emit(memory.addptr, p, k.number(64, at)), k.add(s, k.emit(memory.load, p, None, None))

    def outer(i, p, s):
        _, s = loop(k, bounds(k, 3), (p, s), inner)
        return k.emit(memory.addptr, p, k.number(512, at)), s

    _, total = loop(k, bounds(k, 3), (k.address(source, at), k.number(0, k.cast(at, float32))), outer)
    k.output(total)
    after = k.check()
    assert [op.attrs["vec"] for op in ops_of(after, memory.load_regs)] == [4]


def test_bodies_of_nested_loops_are_lowered_once():
    """Sums that start uniform and become arrays, three loops deep."""
    k = tile_kernel()
    at = k.positions((512,), LINE)
    attempts = []

    def counted(lo, op):
        attempts.append(op)
        elementwise(lo, op)

    def inner(i, s):
        return (k.add(s, k.emit(arith.select, k.below(at, 9), at, s)),)

    def nest(depth, s):
        body = inner if depth == 1 else lambda i, s: (nest(depth - 1, s),)
        return loop(k, bounds(k, 2), (s,), body)[0]

    k.output(nest(3, k.number(0, at)))
    rules = {**RULES, arith.select: counted}
    func = k.finished()
    Lowering(func, TARGET, rules, elementwise).run()
    assert len(attempts) == 1
    check_pass(func, lowered, k.arguments)


def test_a_loop_that_counts_down_and_one_that_never_runs():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    for first, last, step, descending in ((9, 0, -3, True), (5, 5, 1, False)):
        limits = (k.number_in(first), k.number_in(last), k.number_in(step))
        (x,) = loop(k, limits, (at,), lambda i, x: (k.add(x, k.splat(i, x)),), descending)
        k.output(x)
    k.check()


def test_while_with_tiles_and_scalars():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    n = k.number_in(3)
    inits = (at, k.input(float32, (512,), LINE), n)
    types = [v.type for v in inits]
    with k.region(types) as before:
        a, x, i = before.args
        k.emit(control.condition, k.cmp("gt", i, k.number(0)), a, k.add(x, x), i)
    with k.region(types) as after:
        a, x, i = after.args
        k.emit(control.yield_, k.add(a, k.splat(i, a)), k.mul(x, x), k.emit(arith.sub, i, k.number(1)))
    for value in k.emit(control.while_, *inits, regions=(before.done, after.done)):
        k.output(value)
    k.check()


@pytest.mark.parametrize("taken", [True, False])
def test_branches_hand_on_tiles_and_scalars(taken):
    k = tile_kernel()
    at = k.positions((512,), LINE)
    x = k.input(float32, (512,), LINE)
    mask = k.below(at, 100)
    made = branch(
        k, k.number_in(taken, int1),
        lambda: (k.add(at, at), k.mul(x, x), mask, k.number(5)),
        lambda: (at, x, k.emit(arith.or_, mask, mask), k.number_in(6)),
    )  # fmt: skip
    for value in made:
        k.output(value)
    k.output(k.convert(k.cast(mask, int32), BlockedLayout([1], [32], [4], [0])))
    k.check()


def test_what_one_branch_computes_is_not_used_in_the_other():
    k = tile_kernel()
    at = k.positions((512,), LINE)
    x = k.load(k.pointer_in(any_bits(k.rng, int32, 512), int32), at)
    mask = k.below(k.mul(at, at), 1000)

    def twice():
        return (k.emit(arith.select, mask, k.mul(x, x), x),)

    k.output(branch(k, k.number_in(False, int1), twice, twice))
    k.output(twice()[0])
    k.check()


# Printing and asserting


@LAW
@given(tiles(), st.booleans())
def test_prints_show_each_element_once(case, hexadecimal):
    layout, shape = case[0], tuple(case[1])
    if int(np.prod(shape)) > 128:
        return
    k = tile_kernel(num_warps=warps_of(layout, shape))
    x = k.positions(shape, layout)
    values = (x, k.input(float32, shape, layout), k.splat(k.number_in(7), x))
    k.emit(debug.print_, *values, prefix="x", hex=hexadecimal)
    k.emit(debug.print_, k.number_in(3), prefix="n")
    k.check(in_order=False)


def test_prints_inside_a_branch():
    k = tile_kernel()
    x = k.positions((64,), LINE)

    def shown():
        k.emit(debug.print_, x, prefix="x")
        return ()

    branch(k, k.number_in(True, int1), shown, lambda: ())
    branch(k, k.number_in(False, int1), shown, lambda: ())
    k.check(in_order=False)


def test_assertions_hold_in_both_stages_or_in_none():
    k = tile_kernel()
    k.attrs["debug"] = True
    x = k.positions((512,), LINE)
    k.emit(debug.assert_, k.below(x, 512), None, message="positions")
    k.emit(debug.assert_, k.below(x, 100), k.below(x, 100), message="masked")
    k.emit(debug.assert_, k.number_in(True, int1), None, message="scalar")
    after = k.check()
    assert count(after, debug.assert_) == 3

    k = tile_kernel()
    k.attrs["debug"] = True
    x = k.positions((512,), LINE)
    k.emit(debug.assert_, k.below(x, 511), None, message="all but one")
    func = k.finished()
    with pytest.raises(UserError, match="all but one"):
        simulate(lowered(func), [])
    assert count(func, regs.affine) == 0
