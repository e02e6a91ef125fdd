"""Reduction and scan plans: every element enters exactly once, in the order promised, wherever the layout repeats it."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout import executor
from tests.layout.strategies import tiles
from weft.errors import LayoutError
from weft.layout import BlockedLayout, SliceLayout, plan_reduction, plan_scan
from weft.layout.reduction import LaneScan, LaneStep, RegisterScan, WarpStep

laws = settings(deadline=None, max_examples=examples(80))


def expected(shape, axis):
    """Per element of the reduced tile the flat elements that it combines, in order."""
    numbers = np.arange(prod(shape)).reshape(shape)
    return np.moveaxis(numbers, axis, -1).reshape(-1, shape[axis])


def concat(a, b):
    return a + b


def separable(linear, axis):
    """Whether each hardware bit moves along the axis alone by a power of two of its own, or not along it."""
    bases = [basis for d in linear.in_dims for basis in linear.bases(d) if basis[axis]]
    steps = [basis[axis] for basis in bases]
    alone = all(sum(map(bool, basis)) == 1 for basis in bases)
    return alone and len(set(steps)) == len(steps) and all(step.bit_count() == 1 for step in steps)


@given(tiles(), st.data())
@laws
def test_reduction_combines_every_element_once(tile, data):
    layout, shape = tile
    axis = data.draw(st.integers(0, len(shape) - 1))
    linear = layout.to_linear(shape)
    plan = plan_reduction(linear, axis)
    found = executor.reduce(plan, executor.load(linear, [(e,) for e in range(prod(shape))]), concat)
    rows = expected(shape, axis)
    for (lane, warp), values in found.items():
        for register, value in enumerate(values):
            row = rows[plan.result.flat(register=register, lane=lane, warp=warp)].tolist()
            assert (list(value) if plan.in_order else sorted(value)) == row
        assert len(values) == plan.result.in_size("register")


@given(tiles(), st.data())
@laws
def test_all_threads_agree_on_a_result(tile, data):
    """Repeated results pair up the same values, so for a commutative operation they are equal to the last bit."""
    layout, shape = tile
    axis = data.draw(st.integers(0, len(shape) - 1))
    linear = layout.to_linear(shape)
    plan = plan_reduction(linear, axis)
    values = executor.load(linear, [str(e) for e in range(prod(shape))])
    found = executor.reduce(plan, values, lambda a, b: f"({min(a, b)} {max(a, b)})")
    seen = {}
    for (lane, warp), values in found.items():
        for register, value in enumerate(values):
            assert seen.setdefault(plan.result.flat(register=register, lane=lane, warp=warp), value) == value


@given(tiles(), st.data())
@laws
def test_the_result_is_the_slice(tile, data):
    layout, shape = tile
    axis = data.draw(st.integers(0, len(shape) - 1))
    plan = plan_reduction(layout.to_linear(shape), axis)
    rest = [size for d, size in enumerate(shape) if d != axis]
    assert plan.result is SliceLayout(axis, layout).to_linear(rest)


@given(tiles(), st.booleans(), st.data())
@laws
def test_scan(tile, reverse, data):
    layout, shape = tile
    axis = data.draw(st.integers(0, len(shape) - 1))
    linear = layout.to_linear(shape)
    if not separable(linear, axis):
        with pytest.raises(LayoutError, match="interleaved"):
            plan_scan(linear, axis, reverse)
        return
    plan = plan_scan(linear, axis, reverse)
    found = executor.scan(plan, executor.load(linear, [(e,) for e in range(prod(shape))]), concat)
    numbers = np.arange(prod(shape)).reshape(shape)
    for (lane, warp), values in found.items():
        assert len(values) == linear.in_size("register")
        for register, value in enumerate(values):
            here = list(linear(register=register, lane=lane, warp=warp))
            line = numbers[tuple(slice(None) if d == axis else c for d, c in enumerate(here))].tolist()
            assert list(value) == (line[here[axis] :][::-1] if reverse else line[: here[axis] + 1])


def test_row_per_thread_needs_no_communication():
    plan = plan_reduction(BlockedLayout([1, 128], [32, 1], [4, 1], [0, 1]).to_linear([128, 128]), 1)
    assert plan.register_steps == (64, 32, 16, 8, 4, 2, 1)
    assert plan.lane_steps == ()
    assert plan.warp_step is None
    assert plan.in_order
    assert plan.scratch_elements == 0


def test_row_per_block_shuffles_then_meets_in_scratch():
    plan = plan_reduction(BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0]).to_linear([128, 128]), 1)
    assert plan.register_steps == ()
    assert plan.lane_steps == tuple(LaneStep(1 << bit) for bit in range(5))
    assert plan.warp_step.count == 4
    assert plan.warp_step.slot_bases == (1, 2)
    assert plan.warp_step.lane_free == 31
    assert plan.scratch_elements == 4 * 128
    assert plan.in_order


def test_broadcast_lanes_and_warps_are_not_combined():
    plan = plan_reduction(BlockedLayout([1], [32], [4], [0]).to_linear([8]), 0)
    assert [step.mask for step in plan.lane_steps] == [1, 2, 4]
    assert plan.warp_step is None
    assert plan.result.out_dims == ()


def test_neighbouring_registers_meet_first():
    plan = plan_reduction(BlockedLayout([4], [32], [1], [0]).to_linear([128]), 0)
    assert plan.registers == (0, 2, 1, 3)
    assert plan.register_steps == (2, 1)


def test_tiling_registers_are_not_in_order():
    assert not plan_reduction(BlockedLayout([1], [32], [4], [0]).to_linear([256]), 0).in_order


def test_scan_goes_up_the_axis():
    plan = plan_scan(BlockedLayout([2], [32], [2], [0]).to_linear([256]), 0)
    assert [type(step) for step in plan.steps] == [RegisterScan, LaneScan, WarpStep, RegisterScan]
    assert plan.steps[1].masks == (1, 2, 4, 8, 16)
    assert plan.scratch_elements == 2 * 2


def test_negative_axis_and_memo():
    linear = BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0]).to_linear([16, 128])
    assert plan_reduction(linear, -1) is plan_reduction(linear, 1)
    with pytest.raises(LayoutError) as error:
        plan_reduction(linear, 2)
    assert error.value.code == "layout-axis"
