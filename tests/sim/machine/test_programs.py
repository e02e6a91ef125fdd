"""The order in which programs start: computed, never listed, however large the grid is."""

from __future__ import annotations

import tracemalloc
from itertools import islice, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.language as gl
from tests.effort import examples
from weft.errors import Hazard
from weft.language.nvidia.hopper import mbarrier
from weft.sim.machine.pending import Pending
from weft.sim.machine.programs import LISTED, GridPrograms, backwards, shuffled

WIDEST = 2**31 - 1


def test_programs_of_a_grid_come_first_axis_first():
    grid = (3, 4, 2)
    assert list(GridPrograms(grid)) == [(x, y, z) for z, y, x in product(*map(range, reversed(grid)))]
    assert GridPrograms(grid)[-1] == (2, 3, 1)
    assert list(GridPrograms(grid)[2:4]) == [(2, 0, 0), (0, 1, 0)]
    with pytest.raises(IndexError):
        GridPrograms(grid)[24]


def test_the_largest_grid_has_a_length_and_a_last_program():
    programs = GridPrograms((WIDEST, 65535, 65535))
    assert len(programs) == WIDEST * 65535**2
    assert programs[len(programs) - 1] == (WIDEST - 1, 65534, 65534)


@given(count=st.one_of(st.integers(1, 300), st.integers(LISTED - 2, LISTED + 3000)), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=examples(60))
def test_an_order_visits_each_program_once(count, seed):
    for order in (backwards(count), shuffled(count, seed)):
        assert sorted(map(order, range(count))) == list(range(count))


def test_a_shuffle_is_a_function_of_its_seed_and_not_the_identity():
    orders = [[shuffled(64, seed)(i) for i in range(64)] for seed in (0, 1, 1)]
    assert orders[1] == orders[2]
    assert orders[0] != orders[1] != list(range(64))


def test_shuffles_are_even():
    """Over many seeds each program comes to each place about equally often: of 36 cells 1,000 each, with a sigma of 29."""
    for count, step in ((6, 1), (6 * LISTED, LISTED)):
        places = np.zeros((6, 6), int)
        for seed in range(6000):
            order = shuffled(count, seed)
            for cell in range(6):
                places[cell, order(cell * step) // step] += 1
        assert abs(places - 1000).max() < 150


@given(
    count=st.integers(0, 12), resident=st.integers(1, 5), seed=st.integers(0, 2**32), turns=st.integers(0, 40)
)  # fmt: skip
@settings(deadline=None)
def test_requests_take_programs_over_as_from_a_list(count, resident, seed, turns):
    """`Pending` against a list that is cut. Where those that run are stuck, the rest of a window starts beyond the places."""
    random, left = Random(seed), [(n, 0, 0) for n in range(count)]
    pending = Pending(GridPrograms((count, 1, 1)), resident, window=resident)
    for _ in range(turns):
        places = max(resident - pending.running, 0)
        way = random.choice(["start", "stuck", "cancel", "end"])
        if way == "start":
            assert pending.start() == (left.pop(0) if left and places else None)
        elif way == "stuck":
            opened = (count - len(left)) % resident > 0
            assert places or pending.start(stuck=True) == (left.pop(0) if left and opened else None)
        elif way == "cancel":
            assert pending.cancel() == (left.pop(places) if len(left) > places else None)
        elif pending.running:
            pending.running -= 1
        assert len(pending) == len(left)


@weft.jit
def never_arrives():
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.wait(bar, 0)


@pytest.mark.parametrize("order", ["grid", "reverse", "random"])
def test_programs_that_wait_for_nobody_start_in_their_places_only(order):
    with weft.simulate(order=order, max_resident=3), pytest.raises(weft.errors.Deadlock) as caught:
        never_arrives[(10,)]()
    assert "7 more cannot start while 3 are resident" in caught.value.message


@weft.jit
def write_below(out, count):
    gl.store(out + gl.program_id(0), gl.program_id(0))


@weft.jit
def add_below(out, total):
    gl.atomic_add(total, 1)
    gl.store(out + gl.program_id(0), gl.program_id(0))


def test_the_widest_grid_runs_until_its_first_hazard():
    """2**31 - 1 program ids in a list would be 200 GB."""
    out = np.full(50, -1, np.int32)
    tracemalloc.start()
    try:
        with pytest.raises(Hazard) as caught:
            write_below[WIDEST, 1](out, 0)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.rule == "hazard-out-of-bounds"
    assert out.tolist() == list(range(50))


def test_what_atomics_order_is_kept_for_programs_that_have_started():
    out, total = np.full(50, -1, np.int32), np.zeros(1, np.int32)
    tracemalloc.start()
    try:
        with pytest.raises(Hazard):
            add_below[WIDEST, 1](out, total)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert total[0] == 51


def test_chosen_programs_of_the_widest_grid():
    out = np.full(4, -1, np.int32)

    @weft.jit
    def last(out):
        gl.store(out + gl.program_id(0) % 4, gl.program_id(0))

    with weft.simulate(programs=[WIDEST - 1]):
        last[(WIDEST,)](out)
    assert out.tolist() == [-1, -1, WIDEST - 1, -1]


def test_a_shuffled_order_starts_at_once():
    programs = GridPrograms((WIDEST, 65535, 1), shuffled(WIDEST * 65535, 3))
    assert len(set(islice(iter(programs), 1000))) == 1000
