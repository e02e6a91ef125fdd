"""Conversion plans, executed thread by thread and compared with what the two layouts say."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import calls, examples
from weft.errors import LayoutError
from weft.layout import BlockedLayout
from weft.layout.convert.plans import (
    Nothing,
    Plan,
    RegisterMove,
    SharedRoundTrip,
    VectorAccess,
    WarpShuffle,
    describe,
    is_trivial,
    plan_conversion,
)
from weft.layout.convert.round_trip import plan_shared
from weft.layout.convert.shuffle import plan_shuffle
from weft.layout.linear.columns import columns
from weft.layout.linear.maps import LinearLayout

LANES = 32
Registers = dict[tuple[int, int], list[int | None]]


def linear(register=(), lane=(), warp=(), size=1, block=()) -> LinearLayout:
    """A distributed layout of a 1-D tile from element indices."""
    parts = {"register": register, "lane": lane, "warp": warp, "block": block}
    return LinearLayout.make({dim: [(c,) for c in part] for dim, part in parts.items()}, [("dim0", size)])


def holds(layout: LinearLayout) -> Registers:
    """For each (warp, lane), the element in each register."""
    registers = layout.table("register")
    return {
        (w, l): [r ^ lane ^ warp for r in registers]
        for w, warp in enumerate(layout.table("warp"))
        for l, lane in enumerate(layout.table("lane"))
    }


def swapped(values, swaps, thread):
    for bit, mask in swaps:
        if (thread & mask).bit_count() % 2:
            values = [values[p ^ (1 << bit)] for p in range(len(values))]
    return values


def run_shuffle(plan: WarpShuffle, before: Registers) -> Registers:
    brought = {
        (w, l): swapped([values[r] for r in plan.registers], plan.pre, l | w << 5) for (w, l), values in before.items()
    }
    after = {}
    for w, l in before:
        thread = l | w << 5
        sources = [plan.source_lane(thread, j) for j in range(len(plan.steps))]
        assert all(source == l for j, source in enumerate(sources) if not plan.moves(j))
        received = [brought[w, source][step.register] for source, step in zip(sources, plan.steps, strict=True)]
        after[w, l] = [swapped(received, plan.post, thread)[item] for item in plan.result]
    return after


def touched(access: VectorAccess, lane: int, warp: int):
    """(offset, register) of every element that a thread moves."""
    if lane & access.lane_mask or warp & access.warp_mask:
        return
    base = access.thread_offset(lane, warp)
    assert base % access.vec == 0
    for offset, registers in zip(access.offsets, access.registers, strict=True):
        assert offset % access.vec == 0
        assert len(registers) == access.vec
        assert (base & access.thread_bits) + 0 == base
        for step, register in enumerate(registers):
            yield (base ^ offset) + step, register


def run_shared(plan: SharedRoundTrip, before: Registers) -> Registers:
    memory = {}
    for (w, l), values in before.items():
        for offset, register in touched(plan.store, l, w):
            assert offset not in memory, "an element is stored twice"
            assert offset < plan.elements
            memory[offset] = values[register]
    after: Registers = {}
    for w, l in before:
        loaded = {register: memory[offset] for offset, register in touched(plan.load, l, w)}
        after[w, l] = [loaded[register] for register in plan.result]
    return after


def run(plan: Plan, before: Registers) -> Registers:
    if isinstance(plan, WarpShuffle):
        return run_shuffle(plan, before)
    if isinstance(plan, SharedRoundTrip):
        return run_shared(plan, before)
    if isinstance(plan, RegisterMove):
        return {thread: [values[r] for r in plan.table] for thread, values in before.items()}
    return before


def brute_conflicts(access: VectorAccess, bits: int, warp: int, index: int) -> int:
    """Wavefronts beyond one per phase, counted bank by bank for one access."""
    size = bits // 8
    width = access.vec * size
    group = {16: 8, 8: 16}.get(width, 32)
    extra = 0
    for first in range(0, LANES, group):
        rows_of_bank: dict[int, set[int]] = {}
        for lane in range(first, first + group):
            if lane & access.lane_mask or warp & access.warp_mask:
                continue
            byte = (access.thread_offset(lane, warp) ^ access.offsets[index]) * size
            for word in range(byte // 4, (byte + width - 1) // 4 + 1):
                rows_of_bank.setdefault(word % 32, set()).add(word // 32)
        extra += max((len(rows) for rows in rows_of_bank.values()), default=1) - 1
    return extra


def random_layout(
    rng: random.Random, element_bits: int, register_bits: int, warp_bits: int, messy: bool
) -> LinearLayout:
    """A layout that reaches every element: a shuffled basis plus broadcast (0) columns, with random sums when `messy`."""
    inputs = register_bits + 5 + warp_bits
    full = [1 << bit for bit in range(element_bits)] + [0] * (inputs - element_bits)
    rng.shuffle(full)
    if messy:
        for _ in range(2 * inputs):
            a, b = rng.sample(range(inputs), 2)
            full[a] ^= full[b]
    register, thread = full[:register_bits], full[register_bits:]
    return linear(register, thread[:5], thread[5:], 1 << element_bits)


@st.composite
def layout_pairs(draw, inside_a_warp: bool = False):
    rng = random.Random(draw(st.integers(0, 2**32)))
    element_bits = draw(st.integers(1, 9))
    warp_bits = draw(st.integers(0, 2))
    messy = draw(st.booleans())
    least = max(element_bits - 5 - warp_bits, 0)
    src = random_layout(rng, element_bits, least + draw(st.integers(0, 2)), warp_bits, messy)
    if not inside_a_warp:
        return src, random_layout(rng, element_bits, least + draw(st.integers(0, 2)), warp_bits, messy)
    reached = [*src.columns["register"], *src.columns["lane"]]
    for _ in range(20):
        a, b = rng.sample(range(len(reached)), 2)
        reached[a], reached[b] = (
            (reached[b], reached[a]) if rng.random() < 0.7 else (reached[a] ^ reached[b], reached[b])
        )
    split = len(reached) - 5
    return src, linear(reached[:split], reached[split:], src.columns["warp"], 1 << element_bits)


@given(layout_pairs(), st.sampled_from([8, 16, 32, 64]))
@settings(deadline=None, max_examples=examples(250))
def test_any_plan_gives_every_register_its_element(pair, bits):
    src, dst = pair
    assert run(plan_conversion(src, dst, bits), holds(src)) == holds(dst)


@given(layout_pairs(), st.sampled_from([8, 16, 32, 64]))
@settings(deadline=None, max_examples=examples(250))
def test_a_round_trip_is_right_and_free_of_bank_conflicts(pair, bits):
    src, dst = pair
    plan = plan_shared(columns(src), columns(dst), bits)
    assert run_shared(plan, holds(src)) == holds(dst)
    for access in (plan.store, plan.load):
        for warp in range(src.in_size("warp")):
            assert not any(brute_conflicts(access, bits, warp, i) for i in range(len(access.offsets)))
    assert plan.conflicts == 0


@given(layout_pairs(inside_a_warp=True))
@settings(deadline=None, max_examples=examples(250))
def test_what_stays_in_a_warp_has_a_shuffle_plan(pair):
    src, dst = pair
    plan = plan_shuffle(columns(src), columns(dst), 32)
    assert plan is not None
    assert run_shuffle(plan, holds(src)) == holds(dst)


def blocked(size, threads, warps, order, shape) -> LinearLayout:
    return BlockedLayout(size, threads, warps, order).to_linear(shape)


OPPOSITE = (
    blocked([1, 1], [1, 32], [1, 4], [1, 0], [128, 128]),
    blocked([1, 1], [32, 1], [4, 1], [0, 1], [128, 128]),
)


@pytest.mark.parametrize(("bits", "vec"), [(8, 16), (16, 8), (32, 4), (64, 2)])
@pytest.mark.parametrize("pair", [OPPOSITE, OPPOSITE[::-1]], ids=["rows to columns", "columns to rows"])
def test_opposite_layouts_of_a_copy_meet_without_bank_conflicts(pair, bits, vec):
    src, dst = pair
    plan = plan_conversion(src, dst, bits)
    assert isinstance(plan, SharedRoundTrip)
    assert plan.bytes == 128 * 128 * bits // 8
    assert sorted((plan.store.vec, plan.load.vec)) == [1, vec]
    for access in (plan.store, plan.load):
        assert not any(brute_conflicts(access, bits, w, i) for w in range(4) for i in range(len(access.offsets)))
    assert run_shared(plan, holds(src)) == holds(dst)


def test_registers_that_both_sides_share_make_both_sides_wide():
    src = blocked([1, 4], [2, 16], [4, 1], [1, 0], [128, 64])
    dst = blocked([1, 8], [4, 8], [4, 1], [1, 0], [128, 64])
    plan = plan_conversion(src, dst, 32)
    assert isinstance(plan, SharedRoundTrip)
    assert (plan.store.vec, plan.load.vec) == (4, 4)
    assert describe(plan) == (
        "32 KiB through shared memory, 16 stores of 4 elements and 16 loads of 4 elements per thread, no bank conflicts"
    )


def test_equal_layouts_take_nothing():
    plan = plan_conversion(OPPOSITE[0], OPPOSITE[0], 32)
    assert plan == Nothing()
    assert is_trivial(plan)
    assert describe(plan) == "nothing to do"


def test_another_register_order_is_a_free_renaming():
    src = blocked([2, 4], [16, 2], [2, 2], [1, 0], [64, 16])
    dst = linear_like(src, register=src.columns["register"][::-1])
    plan = plan_conversion(src, dst, 32)
    assert plan == RegisterMove((0, 4, 2, 6, 1, 5, 3, 7))
    assert is_trivial(plan)
    assert plan.cost().quarters == 0


def test_redundant_registers_are_filled_from_one():
    src = linear(register=[], lane=[1, 2, 4, 8, 16], size=32)
    dst = linear(register=[0, 0], lane=[1, 2, 4, 8, 16], size=32)
    assert plan_conversion(src, dst, 32) == RegisterMove((0, 0, 0, 0))


def linear_like(layout: LinearLayout, **parts) -> LinearLayout:
    for dim, bases in parts.items():
        layout = layout.with_columns(dim, bases)
    return layout


def test_a_transpose_of_lanes_is_one_shuffle():
    src = linear(lane=[1, 2, 4, 8, 16], size=32)
    dst = linear(lane=[16, 8, 4, 2, 1], size=32)
    plan = plan_conversion(src, dst, 32)
    assert isinstance(plan, WarpShuffle)
    assert plan.lane_map == (16, 8, 4, 2, 1)
    assert describe(plan) == "1 shuffle"
    assert describe(plan_conversion(src, dst, 64)) == "2 shuffles"


def test_registers_and_lanes_change_places_in_one_round_per_register_less_the_own():
    src = linear(register=[1, 2], lane=[4, 8, 16, 32, 64], size=128)
    dst = linear(register=[4, 8], lane=[1, 2, 16, 32, 64], size=128)
    plan = plan_conversion(src, dst, 32)
    assert isinstance(plan, WarpShuffle)
    assert plan.own_lanes
    assert [plan.moves(j) for j in range(4)] == [False, True, True, True]
    assert describe(plan) == "3 shuffles and 16 selects"


def test_a_tile_that_every_warp_holds_is_split_up_by_selects_alone():
    src = linear(register=[32, 64], lane=[1, 2, 4, 8, 16], warp=[0, 0], size=128)
    dst = linear(register=[], lane=[1, 2, 4, 8, 16], warp=[32, 64], size=128)
    plan = plan_conversion(src, dst, 32)
    assert isinstance(plan, WarpShuffle)
    assert plan.pre == ((0, 1 << 5), (1, 1 << 6))
    assert describe(plan) == "3 selects"


def test_a_whole_transpose_in_a_warp_is_cheaper_through_shared_memory():
    lanes, others = [1, 2, 4, 8, 16], [32, 64, 128, 256, 512]
    src, dst = linear(others, lanes, size=1024), linear(lanes, others, size=1024)
    shuffle = plan_shuffle(columns(src), columns(dst), 32)
    assert shuffle is not None
    assert shuffle.shuffles == 31
    plan = plan_conversion(src, dst, 32)
    assert isinstance(plan, SharedRoundTrip)
    assert plan.cost() < shuffle.cost()


def test_data_of_another_warp_cannot_be_shuffled():
    src, dst = (columns(layout) for layout in OPPOSITE)
    assert plan_shuffle(src, dst, 32) is None


def test_lanes_that_want_different_registers_of_one_lane_have_no_shuffle_plan():
    regs = [1, 2, 4, 8, 16]
    src = linear(regs, [32, 64, 128, 256, 512], [0, 0, 0, 0, 0], size=1024)
    dst = linear([], regs, [32, 64, 128, 256, 512], size=1024)
    assert plan_shuffle(columns(src), columns(dst), 32) is None
    plan = plan_conversion(src, dst, 32)
    assert run(plan, holds(src)) == holds(dst)


def test_threads_that_hold_nothing_of_their_own_do_not_store():
    src = linear([], [0, 1, 2, 4, 0], [8, 0], size=16)
    dst = linear([8], [4, 2, 1, 0, 0], [0, 0], size=16)
    plan = plan_shared(columns(src), columns(dst), 32)
    assert (plan.store.lane_mask, plan.store.warp_mask) == (0b10001, 0b10)
    assert (plan.load.lane_mask, plan.load.warp_mask) == (0, 0)


def test_offsets_apply_to_arrays_of_threads():
    plan = plan_conversion(*OPPOSITE, 32)
    assert isinstance(plan, SharedRoundTrip)
    lane, warp = np.arange(32)[None, :], np.arange(4)[:, None]
    offsets = plan.load.thread_offset(lane, warp)
    assert offsets.tolist() == [[plan.load.thread_offset(l, w) for l in range(32)] for w in range(4)]


def test_tiles_of_another_shape_do_not_convert():
    with pytest.raises(LayoutError, match=r"shape \[32\] to a layout of shape \[64\]"):
        plan_conversion(linear(lane=[1, 2, 4, 8, 16], size=32), linear([32], [1, 2, 4, 8, 16], size=64), 32)


def test_tiles_of_other_warps_do_not_convert():
    with pytest.raises(LayoutError, match="between layouts of 1 and 2 warps"):
        plan_conversion(linear(lane=[1, 2, 4, 8, 16], size=32), linear([], [1, 2, 4, 8, 0], [16], size=32), 32)


def test_each_block_of_a_cluster_converts_its_own_part():
    src = linear([2], [4, 8, 16, 32, 64], size=128, block=[1])
    dst = linear([64], [2, 4, 8, 16, 32], size=128, block=[1])
    for plan in (plan_shared(columns(src), columns(dst), 32), plan_conversion(src, dst, 32)):
        assert run(plan, holds(src)) == holds(dst)


PLANNING = 5000
"""Calls."""


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_planning_is_no_search(bits):
    assert calls(lambda: plan_conversion.__wrapped__(*OPPOSITE, bits)) < PLANNING
