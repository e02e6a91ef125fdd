"""Reductions and scans follow their plan; histogram, gather and dot follow NumPy."""

from __future__ import annotations

from functools import reduce as fold

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.sim.build import GRID, LINE, Kernel, elementwise, pointer, run
from weft.ir.types import ScalarType, float32, float64, int32, tile_type
from weft.layout import BlockedLayout, DotOperandLayout, SliceLayout
from weft.layout.reduction import plan_reduction
from weft.ops import arith, control, elements, program, tile
from weft.sim.numbers import arithmetic as numbers

RNG = np.random.default_rng(3)


@st.composite
def layouts(draw):
    """Blocked layouts of four warps over two dimensions, and shapes smaller and larger than they cover."""
    order = draw(st.sampled_from([(0, 1), (1, 0)]))
    per_thread = [1 << draw(st.integers(0, 2)) for _ in range(2)]
    lanes = draw(st.integers(0, 5))
    warps = draw(st.integers(0, 2))
    shape = tuple(1 << draw(st.integers(0, 6)) for _ in range(2))
    return BlockedLayout(per_thread, [1 << lanes, 32 >> lanes], [1 << warps, 4 >> warps], order), shape


def combine(k: Kernel, kinds, elements):
    """A region that applies one operation per operand."""
    types = [ScalarType(e) for e in elements]
    with k.region([*types, *types]) as region:
        n = len(kinds)
        k.emit(control.yield_, *[k.emit(kind, region.args[i], region.args[n + i]) for i, kind in enumerate(kinds)])
    return region.done


def over_tile(x: np.ndarray, layout, result_shape, body, dtype=None) -> np.ndarray:
    """`body(kernel, tile)` on a 2D array; its result, of any shape, is stored."""
    out = np.zeros(result_shape, dtype or x.dtype)
    element = {np.dtype(np.float32): float32, np.dtype(np.int32): int32, np.dtype(np.float64): float64}
    k = Kernel(("x", pointer(element[x.dtype])), ("out", pointer(element[out.dtype])))
    found = body(k, k.load(k.params[0], k.grid_offsets(x.shape, x.shape[1], layout)))
    if result_shape == ():
        k.store(k.params[1], k.number(0), found)
    elif len(result_shape) == 1:
        k.store(k.params[1], k.arange(result_shape[0], found.type.layout), found)
    else:
        k.store(k.params[1], k.grid_offsets(result_shape, result_shape[1], found.type.layout), found)
    run(k.done(), x, out)
    return out


@settings(deadline=None, max_examples=examples(60))
@given(layouts(), st.integers(0, 1))
def test_integer_sums_under_any_layout(case, axis):
    layout, shape = case
    x = RNG.integers(-100, 100, shape).astype(np.int32)
    found = over_tile(
        x, layout, shape[:axis] + shape[axis + 1 :],
        lambda k, t: k.emit(tile.reduce, t, axis=axis, regions=(combine(k, [arith.add], [int32]),)),
    )  # fmt: skip
    np.testing.assert_array_equal(found, x.sum(axis, dtype=np.int32))


@settings(deadline=None, max_examples=examples(60))
@given(layouts(), st.integers(0, 1), st.booleans())
def test_integer_scans_under_any_layout(case, axis, reverse):
    layout, shape = case
    x = RNG.integers(-100, 100, shape).astype(np.int32)
    found = over_tile(
        x, layout, shape,
        lambda k, t: k.emit(tile.scan, t, axis=axis, reverse=reverse, regions=(combine(k, [arith.add], [int32]),)),
    )  # fmt: skip
    way = np.flip(x, axis) if reverse else x
    expected = np.cumsum(way, axis, dtype=np.int32)
    np.testing.assert_array_equal(found, np.flip(expected, axis) if reverse else expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_keeps_the_order_of_operands(reverse):
    """`op(a, b) = b` is associative and not commutative: an inclusive scan with it gives each element back."""
    x = RNG.normal(size=(8, 64)).astype(np.float32)

    def body(k, t):
        types = [ScalarType(float32)] * 2
        with k.region(types) as region:
            k.emit(control.yield_, region.args[1])
        return k.emit(tile.scan, t, axis=1, reverse=reverse, regions=(region.done,))

    np.testing.assert_array_equal(over_tile(x, GRID, x.shape, body), x)


def reference_sum(x: np.ndarray, layout, axis: int) -> np.ndarray:
    """The plan carried out thread by thread in plain Python, for layouts of one warp in that axis."""
    linear = layout.to_linear(x.shape)
    plan = plan_reduction(linear, axis)
    assert plan.warp_step is None
    out = np.zeros([n for d, n in enumerate(x.shape) if d != axis], x.dtype)
    threads = {}
    for warp in range(linear.in_size("warp")):
        for lane in range(32):
            values = [x[linear(register=r, lane=lane, warp=warp)] for r in plan.registers]
            for half in plan.register_steps:
                values = [values[i] + values[i + half] for i in range(half)]
            threads[warp, lane] = values
        for step in plan.lane_steps:
            before = {lane: threads[warp, lane] for lane in range(32)}
            for lane in range(32):
                own, partner = before[lane], before[lane ^ step.mask]
                threads[warp, lane] = [own[i] + partner[i ^ step.registers] for i in range(len(own))]
    for (warp, lane), values in threads.items():
        for r, value in enumerate(values):
            out[plan.result(register=r, lane=lane, warp=warp)] = value
    return out


@pytest.mark.parametrize("axis", [0, 1])
def test_float_sums_follow_the_plan(axis):
    layout = BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]) if axis else BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    x = (RNG.normal(size=(64, 64)) * 10.0 ** RNG.integers(-4, 4, (64, 64))).astype(np.float32)
    found = over_tile(
        x, layout, (64,),
        lambda k, t: k.emit(tile.reduce, t, axis=axis, regions=(combine(k, [arith.add], [float32]),)),
    )  # fmt: skip
    np.testing.assert_array_equal(found, reference_sum(x, layout, axis))
    assert not np.array_equal(found, fold(np.add, np.moveaxis(x, axis, 0))), "another order gives other bits"


def test_argmax_of_two_operands():
    x = RNG.normal(size=(16, 32)).astype(np.float32)

    def body(k, t):
        columns = k.emit(tile.arange, start=0, end=32, layout=SliceLayout(0, GRID))
        columns = k.emit(tile.broadcast, k.emit(tile.expand_dims, columns, axis=0), shape=(16, 32))
        with k.region([ScalarType(float32), ScalarType(int32)] * 2) as region:
            a, i, b, j = region.args
            less = k.cmp("lt", a, b)
            k.emit(control.yield_, k.emit(arith.select, less, b, a), k.emit(arith.select, less, j, i))
        return k.emit(tile.reduce, t, columns, axis=1, regions=(region.done,))[1]

    found = over_tile(x, GRID, (16,), body, np.int32)
    np.testing.assert_array_equal(found, x.argmax(1))


def test_to_a_scalar():
    x = RNG.integers(0, 100, 512).astype(np.int32)
    out = np.zeros(1, np.int32)
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)))
    total = k.emit(
        tile.reduce, k.load(k.params[0], k.arange(512)), axis=0, regions=(combine(k, [arith.maximum], [int32]),)
    )
    assert total.type == ScalarType(int32)
    k.store(k.params[1], k.number(0), total)
    run(k.done(), x, out)
    assert out[0] == x.max()


def test_combine_with_a_branch():
    x = RNG.integers(-50, 50, (8, 32)).astype(np.int32)

    def body(k, t):
        with k.region([ScalarType(int32)] * 2) as region:
            a, b = region.args
            with k.region() as then:
                k.emit(control.yield_, a)
            with k.region() as orelse:
                k.emit(control.yield_, b)
            k.emit(control.yield_, k.emit(control.if_, k.cmp("ge", a, b), regions=(then.done, orelse.done)))
        return k.emit(tile.reduce, t, axis=1, regions=(region.done,))

    np.testing.assert_array_equal(over_tile(x, GRID, (8,), body), x.max(1))


def test_histogram_and_gather():
    x = RNG.integers(0, 12, 256).astype(np.int32)
    out = np.zeros(16, np.int32)
    k = Kernel(("x", pointer(int32)), ("out", pointer(int32)))
    loaded = k.load(k.params[0], k.arange(256))
    counts = k.emit(tile.histogram, loaded, k.below(loaded, 9), bins=8, layout=LINE)
    k.store(k.params[1], k.arange(8), counts)
    run(k.done(), x, out)
    np.testing.assert_array_equal(out[:8], np.bincount(x, minlength=12)[:8])
    index = RNG.integers(0, 256, 256).astype(np.int32)
    found = elementwise([x, index], np.dtype(np.int32), lambda k, a, i: k.emit(tile.gather, a, i, axis=0))
    np.testing.assert_array_equal(found, x[index])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dot_rounds_each_step_once(dtype):
    a = RNG.normal(size=(16, 16)).astype(dtype)
    layout = BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0])

    def body(k, t):
        left = k.emit(tile.convert, t, layout=DotOperandLayout(0, layout, 0))
        right = k.emit(tile.convert, t, layout=DotOperandLayout(1, layout, 0))
        return k.emit(tile.dot_fma, left, right, k.emit(tile.convert, t, layout=layout))

    found = over_tile(a, layout, (16, 16), body)
    expected = a
    for k in range(16):
        expected = numbers.fma(a[:, k, None], a[None, k, :], expected)
    np.testing.assert_array_equal(found, expected)


def test_map_by_pairs_of_registers():
    """With `pack=2` a function sees two registers of a thread: here it swaps them."""
    x = np.arange(512, dtype=np.int32)

    def body(k, t):
        with k.region([ScalarType(int32)] * 2) as region:
            k.emit(control.yield_, region.args[1], region.args[0])
        return k.emit(elements.map_elements, t, pack=2, regions=(region.done,))

    found = elementwise([x], np.dtype(np.int32), body, LINE)
    np.testing.assert_array_equal(found, x ^ 1)


def test_map_may_ask_for_its_lane():
    def body(k, t):
        with k.region([ScalarType(int32)]) as region:
            k.emit(control.yield_, k.add(region.args[0], k.emit(program.lane_id)))
        return k.emit(elements.map_elements, t, pack=1, regions=(region.done,))

    found = elementwise([np.zeros(512, np.int32)], np.dtype(np.int32), body, LINE)
    np.testing.assert_array_equal(found, np.arange(512) // 4 % 32)


def test_layout_that_was_never_resolved():
    from weft.layout import AutoLayout

    k = Kernel()
    values = k.emit(arith.constant, value=1, type=tile_type(int32, (64,), AutoLayout()))
    k.emit(tile.scan, values, axis=0, reverse=False, regions=(combine(k, [arith.add], [int32]),))
    with pytest.raises(ValueError, match="before its layout was resolved"):
        run(k.done())
