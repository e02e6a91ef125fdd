"""Conversions between random layouts, of every element type, by every kind of plan."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import linear_tiles, tiles
from tests.passes.lower.rules.tile.test_shape import forms
from tests.support import any_bits, count, tile_kernel, warps_of
from weft.ir.types import DTYPES, Pointer, bfloat16, float8e4nv, float16, float32, float64, int1, int8, int32, int64
from weft.layout import BlockedLayout, DistributedLinearLayout, SliceLayout, plan_conversion
from weft.layout.convert.plans import Nothing, RegisterMove, SharedRoundTrip, WarpShuffle
from weft.ops import control, memory, regs, shared, tile, warp
from weft.sim.numbers.arithmetic import numpy_dtype

LAW = settings(deadline=None, max_examples=examples(60))
LINE = BlockedLayout([4], [32], [4], [0])


@st.composite
def pairs(draw):
    """Two layouts of one tile and as many warps."""
    source, shape = draw(tiles())
    other = draw(tiles(len(shape)).filter(lambda c: warps_of(c[0], c[1]) == warps_of(source, shape)))
    target = other[0]
    return source, target if target.accepts(shape) else source, tuple(shape)


@LAW
@given(pairs(), st.sampled_from(DTYPES))
def test_random_conversions(case, element):
    source, target, shape = case
    k = tile_kernel(num_warps=warps_of(source, shape))
    x = k.input(element, shape, source, any_bits(k.rng, element, prod(shape)))
    k.output_of_all(k.convert(x, target))
    k.check()


@LAW
@given(pairs())
def test_conversions_of_every_form(case):
    source, target, shape = case
    k = tile_kernel(num_warps=warps_of(source, shape))
    for x in forms(k, shape, source):
        k.output_of_all(k.convert(x, target))
    k.check()


@LAW
@given(st.data())
def test_conversions_between_mixed_bits(data):
    """Linear layouts with redundant bits, where shuffles and conditional swaps come in."""
    source, shape = data.draw(linear_tiles())
    target, _ = data.draw(linear_tiles(len(shape), shape).filter(lambda c: warps_of(*c) == warps_of(source, shape)))
    k = tile_kernel(num_warps=warps_of(source, shape))
    element = data.draw(st.sampled_from([int1, int8, bfloat16, float32, float64]))
    k.output_of_all(k.convert(k.input(element, tuple(shape), source), target))
    k.check()


def moved_registers(layout, shape=(32, 16)):
    """The layout with the order of its registers reversed."""
    linear = layout.to_linear(shape)
    registers, lanes, warps, blocks = (linear.bases(d) for d in linear.in_dims)
    return DistributedLinearLayout(registers[::-1], lanes, warps, blocks, shape)


SQUARES = BlockedLayout([2, 2], [8, 4], [4, 1], [1, 0])
KINDS = {
    Nothing: (LINE, BlockedLayout([4], [32], [4], [0])),
    RegisterMove: (SQUARES, moved_registers(SQUARES)),
    WarpShuffle: (BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0]), BlockedLayout([1, 2], [8, 4], [4, 1], [1, 0])),
    SharedRoundTrip: (BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0]), BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("element", [int1, int8, float8e4nv, float16, bfloat16, int32, float64, int64], ids=str)
def test_every_plan_of_every_width(kind, element):
    source, target = KINDS[kind]
    shape = (512,) if source is LINE else (32, 16)
    plan = plan_conversion(source.to_linear(shape), target.to_linear(shape), max(element.bits, 8))
    assert isinstance(plan, kind) or (kind is WarpShuffle and element.bits == 64)
    k = tile_kernel()
    k.output(k.convert(k.input(element, shape, source), target))
    after = k.check()
    assert (count(after, shared.store_regs) == 1) == isinstance(plan, SharedRoundTrip)
    assert (count(after, warp.shuffle_xor, warp.shuffle_idx) > 0) == isinstance(plan, WarpShuffle)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_pointers(kind):
    source, target = KINDS[kind]
    shape = (512,) if source is LINE else (32, 16)
    k = tile_kernel()
    at = k.positions(shape, source)
    loaded = k.load(k.pointer_in(k.rng.permutation(512).astype(numpy_dtype(int32)), int32), at)
    p = k.convert(k.address(k.pointer_in(any_bits(k.rng, float32, 512), float32), loaded), target)
    assert p.type.element == Pointer(float32)
    k.output(k.emit(memory.load, p, None, None))
    k.check()


def test_uniform_tiles_and_equal_layouts_convert_for_nothing():
    k = tile_kernel()
    x = k.splat(k.number_in(7), k.positions((32, 16), KINDS[SharedRoundTrip][0]))
    k.output(k.convert(x, KINDS[SharedRoundTrip][1]))
    same = k.positions((512,), LINE)
    k.output(k.convert(k.load(k.pointer_in(any_bits(k.rng, float32, 512), float32), same), KINDS[Nothing][1]))
    after = k.check()
    assert count(after, shared.store_regs, warp.shuffle_idx, warp.shuffle_xor, regs.gather, tile.convert) == 0


def test_two_conversions_in_a_loop_do_not_meet_in_memory():
    k = tile_kernel()
    source, target = KINDS[SharedRoundTrip]
    x = k.input(float32, (32, 16), source)
    lower, upper, step = k.number(0), k.number_in(3), k.number(1)
    with k.region([lower.type, x.type]) as body:
        y = k.convert(body.args[1], target)
        z = k.convert(k.mul(y, y), source)
        k.emit(control.yield_, k.add(z, body.args[1]))
    k.output(k.emit(control.for_, lower, upper, step, x, descending=False, regions=(body.done,)))
    k.check()


def test_slices_of_blocked_layouts_meet():
    k = tile_kernel()
    rows = SliceLayout(1, BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0]))
    for target in (LINE, SliceLayout(0, BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1]))):
        k.output(k.convert(k.input(float16, (128,), rows), target))
    k.check()


def test_nothing_is_stored_for_register_moves():
    source, target = KINDS[RegisterMove]
    k = tile_kernel()
    k.output(k.convert(k.input(float32, (32, 16), source), target))
    assert count(k.check(), shared.store_regs, warp.shuffle_xor) == 0
