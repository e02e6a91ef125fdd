"""Sectors, vectors and wavefronts, against hand counts and against counting byte by byte."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft.layout import BlockedLayout
from weft.layout.cost import Cost, coalescing, wavefronts

ROWS = BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0])
COLUMNS = BlockedLayout([1, 1], [32, 1], [4, 1], [0, 1])


@given(st.lists(st.none() | st.integers(0, 255), min_size=32, max_size=32), st.sampled_from([1, 2, 4, 8, 16]))
@settings(deadline=None, max_examples=examples(100))
def test_wavefronts_count_the_busiest_bank_of_each_phase(slots, width):
    addresses = [None if slot is None else slot * width for slot in slots]
    group = {16: 8, 8: 16}.get(width, 32)
    expected = 0
    for first in range(0, 32, group):
        words = {b // 4 for a in addresses[first : first + group] if a is not None for b in range(a, a + width)}
        expected += max([sum(word % 32 == bank for word in words) for bank in range(32)])
    assert wavefronts(addresses, width) == expected


@pytest.mark.parametrize(("R", "vec", "requests"), [(1, 1, 1), (2, 2, 1), (4, 4, 1), (8, 4, 2), (16, 4, 4)])
def test_the_widths_of_the_one_dimensional_copy(R, vec, requests):
    layout = BlockedLayout([R], [32], [4], [0]).to_linear([128 * R])
    result = coalescing(layout, [128 * R], [1], 4)
    assert (result.vec, result.requests) == (vec, requests)
    assert result.ideal == 4 * R


def test_a_coalesced_row_takes_one_line_per_request():
    result = coalescing(ROWS.to_linear([1, 2048]), [1, 2048], [4096, 1], 4)
    assert (result.requests, result.sectors, result.lines, result.efficiency) == (16, 64, 16, 1.0)


def test_the_wrong_layout_takes_a_sector_per_lane():
    result = coalescing(COLUMNS.to_linear([2048, 1]), [2048, 1], [4096, 1], 4)
    assert (result.requests, result.sectors, result.efficiency) == (16, 512, 0.125)


def test_a_stride_that_is_no_multiple_keeps_vectors_narrow():
    layout = BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]).to_linear([64, 32])
    assert coalescing(layout, [64, 32], [32, 1], 4).vec == 4
    assert coalescing(layout, [64, 32], [34, 1], 4).vec == 2
    assert coalescing(layout, [64, 32], [33, 1], 4).vec == 1
    assert coalescing(layout, [64, 32], [64, 2], 4).vec == 1


def test_a_vector_does_not_run_into_the_next_row():
    layout = BlockedLayout([2, 2], [32, 1], [4, 1], [1, 0]).to_linear([256, 2])
    assert coalescing(layout, [256, 2], [64, 1], 4).vec == 2


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4, 8]))
@settings(deadline=None, max_examples=examples(60))
def test_sectors_are_those_of_a_byte_by_byte_count(seed, size):
    rng = random.Random(seed)
    sizes, threads = (rng.choice([1, 2, 4]), rng.choice([1, 2, 4, 8])), rng.choice([1, 2, 4, 8, 16, 32])
    order = rng.choice([[0, 1], [1, 0]])
    shape = [rng.choice([8, 32, 64]), rng.choice([8, 32, 64])]
    strides = rng.choice([[shape[1], 1], [1, shape[0]], [shape[1] + 8, 1], [2, 2 * shape[0]]])
    layout = BlockedLayout(list(sizes), [threads, 32 // threads], [2, 2], order).to_linear(shape)
    result = coalescing(layout, shape, strides, size)
    wanted = {
        (i * strides[0] + j * strides[1]) * size // 32
        for r in range(layout.in_size("register"))
        for l in range(32)
        for i, j in [layout(register=r, lane=l)]
    }
    # Requests may share sectors, so together they touch no fewer than the warp's bytes lie in.
    assert len(wanted) <= result.sectors <= 32 * result.requests * max(1, result.vec * size // 32)
    assert result.ideal <= result.sectors
    assert result.lines <= result.sectors


def test_costs_compare_by_price_and_print_as_words():
    assert Cost(3, "three") < Cost(4, "four")
    assert Cost(3, "three") == Cost(3, "drei")
    assert str(Cost(3, "three")) == "three"
