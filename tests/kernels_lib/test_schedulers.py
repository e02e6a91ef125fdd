"""Schedulers against enumeration: each step of each tile once, over random grids; and sums of tiles that are divided."""

from __future__ import annotations

import random

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import LaunchError
from weft.kernels import schedulers
from weft.kernels.schedulers import Schedule, longest_first

KINDS = ("static", "ticket", "split_k", "stream_k")
ORDERS = ("rows", "columns", "grouped", "serpentine", "listed")


@weft.jit
def visit(out, rows, columns, steps, numbers, counters, schedule: gl.constexpr):
    grid = schedulers.Grid(rows, columns, steps, numbers, schedule)
    work = schedulers.begin(grid, counters, schedulers.prepare(schedule))
    while work.valid():
        work.request_next()
        row, column = work.place()
        first, end = work.steps()
        for k in range(first, end):
            gl.atomic_add(out + (row * columns + column) * steps + k, 1)
        work = work.next()


def case(kind, order, seed):
    """A random grid, its schedule and programs; some have more programs than tiles, or than steps."""
    rng = random.Random(f"{kind} {order} {seed}")
    rows, columns, steps, programs = rng.randint(1, 7), rng.randint(1, 7), rng.randint(1, 6), rng.randint(1, 9)
    splits = rng.randint(2, 4) if kind == "split_k" else 1
    schedule = Schedule(kind, order, rng.randint(1, 4), splits)
    numbers = np.array(rng.sample(range(rows * columns), rows * columns), np.int32)
    return schedule, rows, columns, max(steps, splits), programs, numbers


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_of_every_tile_once(device, kind, order, seed):
    schedule, rows, columns, steps, programs, numbers = case(kind, order, seed)
    out = device.zeros((rows * columns, steps), np.int32)
    state = schedule.state(out, rows * columns, programs, (1, 1))
    for launch in (1, 2):
        visit[programs](out, rows, columns, steps, device.array(numbers), state.counters, schedule)
        np.testing.assert_array_equal(device.numpy(out), np.full((rows * columns, steps), launch))
        if state.counters is not None:
            assert not device.numpy(state.counters).any()


@weft.jit
def role(out, which: gl.constexpr, asks: gl.constexpr, grid, counters, shared):
    work = schedulers.begin(grid, counters, shared)
    while work.valid():
        if asks:
            work.request_next()
        row, column = work.place()
        gl.atomic_add(out + (row * grid.columns + column) * 3 + which, 1)
        work = work.next()


@weft.jit
def three_roles(out, rows, columns, counters, schedule: gl.constexpr):
    grid = schedulers.Grid(rows, columns, 1, None, schedule)
    shared = schedulers.prepare(schedule, readers=3)
    given = (grid, counters, shared)
    gl.warp_specialize(
        [(role, (out, 0, False, *given)), (role, (out, 1, True, *given)), (role, (out, 2, False, *given))], [1, 2]
    )


@pytest.mark.parametrize("kind", ["static", "ticket"])
@pytest.mark.parametrize("programs", [1, 3, 40])
def test_all_roles_see_the_same_tiles(device, kind, programs):
    schedule, out = Schedule(kind, "serpentine", 2), device.zeros((30, 3), np.int32)
    counters = schedule.state(out, 30, programs).counters
    three_roles[programs](out, 5, 6, counters, schedule)
    np.testing.assert_array_equal(device.numpy(out), np.ones((30, 3)))


SHAPE = (16, 64)
LAYOUTS = [gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]), gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])]


@weft.jit
def add_up(
    out, x, rows, columns, steps, numbers, counters, partials, schedule: gl.constexpr, shape: gl.constexpr,
    layout: gl.constexpr,
):  # fmt: skip
    i = gl.arange(0, shape[0], gl.SliceLayout(1, layout))[:, None] * shape[1]
    at = i + gl.arange(0, shape[1], gl.SliceLayout(0, layout))[None, :]
    size: gl.constexpr = shape[0] * shape[1]
    work = schedulers.begin(
        schedulers.Grid(rows, columns, steps, numbers, schedule), counters, schedulers.prepare(schedule)
    )
    while work.valid():
        work.request_next()
        row, column = work.place()
        first, end = work.steps()
        tile = row * columns + column
        acc = gl.zeros(shape, gl.float32, layout)
        for k in range(first, end):
            acc += gl.load(x + (tile * steps + k) * size + at)
        acc, complete = schedulers.combined(work, acc, partials, counters)
        if complete:
            gl.store(out + tile * size + at, acc * acc)
        work = work.next()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_all_parts(device, rng, kind, seed):
    """The epilogue, which is not linear, sees whole sums, and another order of programs gives the same bits."""
    schedule, rows, columns, steps, programs, numbers = case(kind, "listed", seed)
    layout = LAYOUTS[seed % 2]
    shape = (64, 64) if seed % 2 else SHAPE
    x = rng.normal(size=(rows * columns, steps, *shape)).astype(np.float32)
    found = []
    state = schedule.state(device.zeros(1, np.float32), rows * columns, programs, shape)
    for simulated in (0, 1):
        out = device.array(np.full((rows * columns, *shape), np.nan, np.float32))
        with weft.simulate(seed=simulated):
            add_up[programs](
                out, device.array(x), rows, columns, steps, device.array(numbers), state.counters, state.partials, schedule,
                shape, layout,
            )  # fmt: skip
        found.append(device.numpy(out))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], x.astype(np.float64).sum(1) ** 2, rtol=1e-4, atol=1e-5)


def test_stream_k_divides_the_last_waves_only(device):
    """10 tiles of 8 steps on 4 programs: the first wave is whole, and the other 6 tiles are 12 steps for each program."""
    taken = device.zeros((4, 10), np.int32)
    owners[4](taken, 10, 8, Schedule("stream_k", "rows"))
    found = device.numpy(taken)
    assert (found.sum(1) == 20).all() and (found.sum(0) == 8).all()
    np.testing.assert_array_equal(found[:, :6], [
        [8, 4, 0, 0, 0, 0], [0, 4, 8, 0, 0, 0], [0, 0, 0, 8, 4, 0], [0, 0, 0, 0, 4, 8]
    ])  # fmt: skip
    np.testing.assert_array_equal(found[:, 6:], 8 * np.eye(4))


@weft.jit
def owners(out, tiles, steps, schedule: gl.constexpr):
    work = schedulers.begin(schedulers.Grid(1, tiles, steps, None, schedule))
    while work.valid():
        first, end = work.steps()
        _, column = work.place()
        gl.store(out + gl.program_id(0) * tiles + column, end - first)
        work = work.next()


def test_longest_first():
    np.testing.assert_array_equal(longest_first([3, 9, 1, 9, 4]), [1, 3, 4, 0, 2])
    assert longest_first([1.5]).dtype == np.int32


def test_programs():
    assert Schedule().programs(1000, 132) == 132 and Schedule().programs(7, 132) == 7
    assert Schedule("split_k", splits=4).programs(7, 132) == 28
    assert Schedule("stream_k").programs(7, 132) == 132
    assert Schedule("stolen").programs(1000, 132) == 1000


WRONG = {
    "kind": {"kind": "dynamic"}, "order": {"order": "hilbert"}, "group": {"group": 0}, "splits": {"splits": 2},
    "an int from 2": {"kind": "split_k"}, "positive int": {"group": 2.0},
}  # fmt: skip


@pytest.mark.parametrize("word", WRONG)
def test_schedules_that_are_none(word):
    with pytest.raises(LaunchError) as error:
        Schedule(**WRONG[word])
    assert error.value.code == "kernels-schedule" and word in str(error.value)
