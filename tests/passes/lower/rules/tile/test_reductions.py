"""Reductions, scans, gathers, histograms and dots over random layouts give the simulator's bits of the tile stage."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import blocked, tiles
from tests.support import count, tile_kernel, warps_of
from weft.errors import LayoutError
from weft.ir.types import ScalarType, float16, float32, float64, int1, int8, int32, int64, uint8, uint32
from weft.layout import BlockedLayout, DotOperandLayout, SliceLayout, plan_ordered_reduction, plan_scan
from weft.ops import arith, control, shared, tile, warp

LAW = settings(deadline=None, max_examples=examples(40))
ROWS = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])


def start(case):
    layout, shape = case
    return layout, tuple(shape), tile_kernel(num_warps=warps_of(layout, shape))


def function(k, elements, body):
    """A combine function as a region."""
    with k.region([ScalarType(e) for e in elements] * 2) as region:
        k.emit(control.yield_, *body(*region.args))
    return (region.done,)


def total(k, element):
    return function(k, [element], lambda a, b: [k.add(a, b)])


def affine(k):
    """Composition of the maps x -> a x + b: associative, not commutative; integers, so that order shows in every bit."""
    return function(k, [int32] * 2, lambda a, b, c, d: [k.mul(a, c), k.add(k.mul(b, c), d)])


def last_of_equals(k):
    """The greater value with its number, the first of equals: two operands."""

    def body(x, i, y, j):
        right = k.emit(arith.or_, k.cmp("gt", y, x), k.emit(arith.and_, k.cmp("eq", x, y), k.cmp("lt", j, i)))
        return [k.emit(arith.select, right, y, x), k.emit(arith.select, right, j, i)]

    return function(k, [float32, int32], body)


def branching(k):
    """A combine function with control flow: the sum, but never above 100."""

    def body(a, b):
        both = k.add(a, b)
        with k.region() as then:
            k.emit(control.yield_, k.number(100))
        with k.region() as orelse:
            k.emit(control.yield_, both)
        return [k.emit(control.if_, k.cmp("gt", both, k.number(100)), regions=(then.done, orelse.done))]

    return function(k, [int32], body)


def outputs(k, made):
    for value in made if isinstance(made, tuple) else (made,):
        k.output_of_all(value)


def combined(k, shape, layout, kind):
    """Operands and function of each kind of combination."""
    if kind == "affine":
        return [k.input(int32, shape, layout) for _ in range(2)], affine(k)
    if kind == "argmax":
        return [k.cast(k.input(int8, shape, layout), float32), k.positions(shape, layout)], last_of_equals(k)
    if kind == "branching":
        return [k.input(int32, shape, layout)], branching(k)
    if kind == "or":
        return [k.input(int1, shape, layout)], function(k, [int1], lambda a, b: [k.emit(arith.or_, a, b)])
    if kind == "positions":
        return [k.positions(shape, layout)], total(k, int32)
    if kind == "captured":
        c = k.number_in(3)
        return [k.input(int32, shape, layout)], function(k, [int32], lambda a, b: [k.add(k.add(a, b), c)])
    element = {"sum16": float16, "sum32": float32, "sum64": float64}[kind]
    return [k.input(element, shape, layout)], total(k, element)


SUMS = ["sum16", "sum32", "sum64", "affine", "argmax", "branching", "or", "positions", "captured"]


@LAW
@given(st.data(), tiles(), st.sampled_from(SUMS))
def test_reductions(data, case, kind):
    layout, shape, k = start(case)
    axis = data.draw(st.integers(0, len(shape) - 1))
    ordered = kind == "affine" or data.draw(st.booleans())
    try:
        plan_ordered_reduction(layout.to_linear(shape), axis)
    except LayoutError:
        if ordered:
            return
    values, region = combined(k, shape, layout, kind)
    outputs(k, k.emit(tile.reduce, *values, axis=axis, in_order=ordered, regions=region))
    k.check()


@LAW
@given(st.data(), tiles(), st.sampled_from(SUMS), st.booleans())
def test_scans(data, case, kind, reverse):
    layout, shape, k = start(case)
    axis = data.draw(st.integers(0, len(shape) - 1))
    try:
        plan_scan(layout.to_linear(shape), axis, reverse)
    except LayoutError:
        return
    values, region = combined(k, shape, layout, kind)
    outputs(k, k.emit(tile.scan, *values, axis=axis, reverse=reverse, regions=region))
    k.check()


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
@pytest.mark.parametrize("axis", [0, 1])
def test_results_of_reductions_are_tiles_of_their_own(num_warps, axis):
    """Used with other tiles of the slice layout, broadcast back, and reduced to a scalar that all threads know."""
    layout = BlockedLayout([1, 2], [8, 4], [1, num_warps], [1, 0])
    k = tile_kernel(num_warps=num_warps)
    x = k.input(float32, (16, 64), layout)
    row = k.emit(tile.reduce, x, axis=axis, regions=total(k, float32))
    back = k.broadcast(k.expand(row, axis), (16, 64))
    k.output(k.emit(arith.sub, x, back))
    everything = k.emit(tile.reduce, row, axis=0, regions=total(k, float32))
    k.output(k.mul(x, k.splat(everything, x)))
    k.check()


def test_a_reduction_inside_a_loop_waits_for_its_memory():
    k = tile_kernel()
    x = k.input(float32, (32, 64), ROWS)
    with k.region([ScalarType(int32), x.type]) as body:
        row = k.emit(tile.reduce, body.args[1], axis=1, regions=total(k, float32))
        k.emit(control.yield_, k.emit(arith.sub, body.args[1], k.broadcast(k.expand(row, 1), (32, 64))))
    k.output(k.emit(control.for_, k.number(0), k.number_in(3), k.number(1), x, descending=False, regions=(body.done,)))
    assert count(k.check(), shared.store_regs) == 1


def test_sums_within_a_warp_need_no_memory():
    k = tile_kernel()
    x = k.input(float32, (32, 64), BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
    k.output(k.emit(tile.reduce, x, axis=1, regions=total(k, float32)))
    after = k.check()
    assert count(after, shared.store_regs) == 0
    assert count(after, warp.shuffle_xor) == 4
    assert count(after, arith.select) == 0


@LAW
@given(st.data(), tiles(), st.sampled_from([int8, int32, uint32, int64]), st.booleans())
def test_sort_step(data, case, element, descending):
    layout, shape, k = start(case)
    axis = data.draw(st.integers(0, len(shape) - 1))
    bits = shape[axis].bit_length() - 1
    if not bits:
        return
    stride = data.draw(st.integers(0, bits - 1))
    flip = data.draw(st.sampled_from([0, *(1 << b for b in range(bits) if b != stride)]))
    x = k.input(element, shape, layout)
    k.output_of_all(k.emit(tile.sort_step, x, axis=axis, stride=1 << stride, flip=flip, descending=descending))
    k.check()


# Gathers, histograms, dots


@LAW
@given(st.data(), tiles(), st.sampled_from([int1, int8, float32, float64]), st.sampled_from([int8, int32, int64]))
def test_gather(data, case, element, index_type):
    layout, shape, k = start(case)
    axis = data.draw(st.integers(0, len(shape) - 1))
    length = 1 << data.draw(st.integers(0, 6))
    source_shape = tuple(length if d == axis else n for d, n in enumerate(shape))
    source_layout = layout if layout.accepts(source_shape) else None
    if source_layout is None:
        return
    index = k.rng.integers(0, length, prod(shape))
    source = k.input(element, source_shape, source_layout)
    at = k.input(index_type, shape, layout, index.astype({int8: "i1", int32: "i4", int64: "i8"}[index_type]))
    k.output_of_all(k.emit(tile.gather, source, at, axis=axis))
    k.check()


@LAW
@given(tiles(1), st.sampled_from([int8, uint8, int32, int64]), st.booleans(), st.integers(0, 7), blocked(1))
def test_histogram(case, element, masked, log_bins, out):
    """Numbers outside the bins count nowhere."""
    layout, shape, k = start(case)
    out = BlockedLayout([2], [32], [k.attrs["num_warps"]], [0]) if warps_of(out, (1,)) != k.attrs["num_warps"] else out
    x = k.input(element, shape, layout)
    mask = k.input(int1, shape, layout) if masked else None
    k.output_of_all(k.emit(tile.histogram, x, mask, bins=1 << log_bins, layout=out))
    k.check()


def test_histogram_of_wide_numbers_does_not_wrap_into_the_bins():
    k = tile_kernel()
    data = np.array([0, 1, 1 << 32, (1 << 32) + 1, -1, 7, 8, 9] * 16, np.int64)
    x = k.input(int64, (128,), BlockedLayout([1], [32], [4], [0]), data)
    k.output(k.emit(tile.histogram, x, None, bins=8, layout=BlockedLayout([1], [32], [4], [0])))
    k.check()


@LAW
@given(
    blocked(2), st.sampled_from([float16, float32, float64]), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4)
)
def test_dot(layout, element, m, n, depth):
    shape = (1 << m, 1 << n)
    k = tile_kernel(num_warps=warps_of(layout, shape))
    a = k.input(element, (shape[0], 1 << depth), DotOperandLayout(0, layout, 0))
    b = k.input(element, (1 << depth, shape[1]), DotOperandLayout(1, layout, 0))
    k.output_of_all(k.emit(tile.dot_fma, a, b, k.input(element, shape, layout)))
    k.check()


def test_softmax_of_rows():
    k = tile_kernel()
    x = k.input(float32, (32, 64), ROWS)
    greatest = function(k, [float32], lambda a, b: [k.emit(arith.maximum, a, b)])
    row = k.emit(tile.reduce, x, axis=1, regions=greatest)
    assert row.type.layout == SliceLayout(1, ROWS)
    y = k.emit(arith.math, k.emit(arith.sub, x, k.broadcast(k.expand(row, 1), (32, 64))), fn="exp")
    s = k.emit(tile.reduce, y, axis=1, regions=total(k, float32))
    k.output(k.emit(arith.div, y, k.broadcast(k.expand(s, 1), (32, 64))))
    k.check()
