"""Loops whose counter may overflow, or may go either way, are counted by their number of iterations."""

from __future__ import annotations

import pytest

from tests.support import count, ops_of, tile_kernel
from weft.ir.types import ScalarType, int32, int64, uint32, uint64
from weft.ops import arith, control
from weft.passes.lowered.count_loops import count_loops

HIGH = (1 << 31) - 1


def sum_of(k, bounds, descending, dtype=int32):
    """Output a sum of a loop's counters that depends on their order."""
    type = ScalarType(dtype)
    start = k.emit(arith.constant, value=0, type=type)
    with k.region([type, type]) as body:
        counter, total = body.args
        three = k.emit(arith.constant, value=3, type=type)
        k.emit(control.yield_, k.add(k.mul(total, three), counter))
    k.output(k.emit(control.for_, *bounds, start, descending=descending, regions=(body.done,)))


@pytest.mark.parametrize(
    ("bounds", "descending"),
    [((0, 10, 3), False), ((HIGH - 2, HIGH, 16), False), ((-HIGH, -HIGH - 1, -16), True), ((10, 0, -3), None),
     ((0, 10, -3), None), ((0, 10, 3), None)],
)  # fmt: skip
@pytest.mark.parametrize(("dtype", "word"), [(int32, uint32), (int64, uint64)])
def test_loops_of_run_time_bounds(bounds, descending, dtype, word):
    lower, upper, step = bounds
    k = tile_kernel()
    by = k.number_in(step, dtype) if descending is None else k.emit(arith.constant, value=step, type=ScalarType(dtype))
    sum_of(k, (k.number_in(lower, dtype), k.number_in(upper, dtype), by), descending, dtype)
    after = k.check(count_loops)
    (trips,) = ops_of(after, control.trips)
    (loop,) = ops_of(after, control.for_)
    assert [arg.type.element for arg in loop.regions[0].args] == [word, dtype, dtype]
    assert list(loop.uses)[1] is trips.result


@pytest.mark.parametrize("step", [1, -1])
def test_a_step_of_one_stays(step):
    k = tile_kernel()
    sum_of(k, (k.number_in(0), k.number_in(10), k.number(step)), step < 0)
    assert count(k.check(count_loops), control.trips) == 0


@pytest.mark.parametrize(
    ("bounds", "counted"),
    [
        ((0, 64, 8), 0),
        ((64, 0, -8), 0),
        ((HIGH - 63, HIGH - 15, 16), 0),
        ((0, HIGH - 14, 1 << 30), 1),
        ((0, -HIGH, -(1 << 30)), 1),
    ],
)
def test_constant_bounds_that_the_last_step_does_not_leave_stay(bounds, counted):
    k = tile_kernel()
    sum_of(k, tuple(map(k.number, bounds)), bounds[2] < 0)
    assert count(k.check(count_loops), control.trips) == counted


def test_a_loop_in_a_loop_and_what_is_known_about_values():
    """Values stay themselves, so that facts about them go on to hold."""
    k = tile_kernel()
    upper, type = k.number_in(40), ScalarType(int32)
    with k.region([type, type]) as outer:
        with k.region([type, type]) as inner:
            k.emit(control.yield_, k.add(inner.args[1], inner.args[0]))
        found = k.emit(
            control.for_, outer.args[0], upper, k.number(7), outer.args[1], descending=False, regions=(inner.done,)
        )
        k.emit(control.yield_, found)
    k.output(
        k.emit(control.for_, k.number(0), upper, k.number(5), k.number(0), descending=False, regions=(outer.done,))
    )
    after = k.check(count_loops)
    loops = ops_of(after, control.for_)
    assert [loop.regions[0].args[1] for loop in loops] == [outer.args[0], inner.args[0]]
