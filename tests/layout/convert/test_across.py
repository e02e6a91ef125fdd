"""Conversions between the blocks of a cluster: every thread gets its elements, whichever blocks hold them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layout.convert.test_plans import linear, touched
from weft.layout import BlockedLayout, DistributedLayout
from weft.layout.convert.plans import ClusterRoundTrip, crosses, describe, plan_conversion
from weft.layout.linear.maps import LinearLayout

SIZE = 1 << 9


def element(layout: LinearLayout, **inputs: int) -> int:
    return layout.flat(**inputs)


def holds(layout: LinearLayout, blocks: int, warps: int) -> dict[tuple[int, int, int], list[int]]:
    """For each (block, warp, lane), the element in each register."""
    registers, bits = range(layout.in_size("register")), layout.in_size("block") - 1
    return {
        (b, w, l): [element(layout, register=r, lane=l, warp=w, block=b & bits) for r in registers]
        for b in range(blocks)
        for w in range(warps)
        for l in range(32)
    }


def run(plan: ClusterRoundTrip, before, first: bool = False):
    """What each thread has in the end. With `first`, all copies but those of the lowest block are spoilt before."""
    memory: dict[tuple[int, int], object] = {}
    seen: set[int] = set()
    for block in sorted({b for b, _, _ in before}):
        mine = {each: values for each, values in before.items() if each[0] == block}
        for (_, w, l), values in mine.items():
            for offset, register in touched(plan.store, l, w):
                assert (block, offset) not in memory and offset < plan.elements
                spoilt = first and values[register] in seen
                memory[block, offset] = None if spoilt else values[register]
        seen |= {value for values in mine.values() for value in values}
    after = {}
    for b, w, l in before:
        warp_bits = len(plan.load.warp_bases) - plan.block_bits
        loaded = {}
        for address, register in touched(plan.load, l, w | b << warp_bits):
            source, offset = address >> plan.offset_bits, address & (1 << plan.offset_bits) - 1
            assert plan.crosses or source == b
            loaded[register] = memory[source, offset]
        after[b, w, l] = [loaded[register] for register in plan.result]
    return after


def surjective(draw, warps: int, blocks: int) -> LinearLayout:
    """A layout that reaches every element, with copies anywhere."""
    bits = SIZE.bit_length() - 1
    order = draw(st.permutations([1 << bit for bit in range(bits)]))
    free = draw(st.lists(st.integers(0, SIZE - 1), min_size=4, max_size=4))
    columns = draw(st.permutations([*order, *free]))
    lane, rest = columns[:5], columns[5:]
    warp, rest = rest[:warps], rest[warps:]
    return linear(rest[blocks:], lane, warp, SIZE, rest[:blocks])


@st.composite
def pairs(draw):
    warps, blocks = draw(st.integers(0, 2)), draw(st.integers(1, 4))
    return surjective(draw, warps, blocks), surjective(draw, warps, blocks), warps, blocks


@settings(deadline=None)
@given(pairs(), st.sampled_from([8, 16, 32, 64]), st.booleans())
def test_every_thread_gets_its_elements(pair, bits, first):
    src, dst, warps, blocks = pair
    plan = plan_conversion(src, dst, bits, first)
    if not isinstance(plan, ClusterRoundTrip):
        return
    before, after = (holds(layout, 1 << blocks, 1 << warps) for layout in (src, dst))
    assert run(plan, before, first) == after


def blocked(cga, size=(1, 4), order=(1, 0)) -> DistributedLayout:
    return BlockedLayout(list(size), [4, 8], [2, 2], list(order), cga_layout=cga)


@pytest.mark.parametrize(
    ("src", "dst", "exchanged"),
    [
        ([[1, 0]], [[0, 1]], True),
        ([[1, 0]], [[0, 0]], True),
        ([[0, 0]], [[1, 0]], False),
        ([[0, 0], [1, 0]], [[0, 1], [1, 0]], False),
        ([[1, 0], [2, 0]], [[2, 0], [1, 0]], True),
        ([[1, 0], [0, 1], [2, 0], [0, 0]], [[0, 0], [0, 1], [0, 2], [0, 4]], True),
    ],
)
def test_blocks_exchange_only_what_they_do_not_have(src, dst, exchanged):
    before, after = blocked(src).to_linear([64, 64]), blocked(dst).to_linear([64, 64])
    plan = plan_conversion(before, after, 16)
    assert isinstance(plan, ClusterRoundTrip)
    assert crosses(plan) == plan.crosses == exchanged
    blocks = 1 << len(src)
    assert run(plan, holds(before, blocks, 4)) == holds(after, blocks, 4)
    assert ("of the cluster's blocks" in describe(plan)) == exchanged


def test_a_block_has_scratch_memory_for_its_own_part_only():
    plan = plan_conversion(
        blocked([[1, 0], [2, 0]]).to_linear([64, 64]), blocked([[0, 1], [0, 2]]).to_linear([64, 64]), 16
    )
    assert isinstance(plan, ClusterRoundTrip)
    assert plan.bytes == 64 * 64 * 2 // 4
    assert plan.load.vec == plan.store.vec == 8


def test_copies_that_only_the_first_block_holds_validly():
    both = blocked([[0, 0]]).to_linear([64, 64])
    plan = plan_conversion(both, both, 32, True)
    assert isinstance(plan, ClusterRoundTrip) and plan.crosses
    assert run(plan, holds(both, 2, 4), first=True) == holds(both, 2, 4)
