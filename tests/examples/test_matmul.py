"""Matrix products of the examples: rungs, orders of tiles, shapes that tiles do not divide; under -m gpu on a GPU as well."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import ml_dtypes
import numpy as np
import pytest

import weft
from benchmarks import twin
from weft import language as gl

LADDER, PARTS = twin.load("matmul_ladder"), twin.load("matmul_parts")
SPECIALISED = twin.load("matmul_warp_specialized")
SMALL = (64, 64, 64)
ROW_MAJOR, GROUPED = LADDER.PersistentTileScheduler, LADDER.GroupedPersistentTileScheduler
SCHEDULERS = [ROW_MAJOR, *(pytest.param(GROUPED(rows), id=f"grouped-{rows}") for rows in (1, 8))]
DTYPES = [np.float16, ml_dtypes.bfloat16]
whole = pytest.mark.matrix


def check(device, function, shape, *settings, dtype=np.float16):
    """Fresh inputs, a poisoned output, and the product in double precision."""
    M, N, K = shape
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(size).astype(dtype) for size in ((M, K), (K, N)))
    C = device.full((M, N), np.nan, dtype)
    compiled = function(device.array(A), device.array(B), C, *settings)
    twin.load("workbench").Place(gpu=False).check_product(device.numpy(C), A, B)
    return compiled


# The ladder

SHAPES = [(100, 136, 200), pytest.param((1, 8, 8), id="one-step"), pytest.param((130, 72, 520), id="more-steps")]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("num_buffers", [2, 3, 4])
def test_pipelined(device, num_buffers, num_warps, dtype):
    check(device, LADDER.matmul_pipelined, (100, 136, 200), *SMALL, num_buffers, num_warps, dtype=dtype)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("num_buffers", [2, 3, 4])
def test_persistent(device, num_buffers, num_warps, scheduler):
    check(device, LADDER.persistent_matmul, (300, 264, 200), *SMALL, num_buffers, num_warps, scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("num_buffers", [3, 4])
def test_persistent_pipelined(device, num_buffers, num_warps, scheduler):
    check(device, LADDER.persistent_matmul_pipelined, (300, 264, 200), *SMALL, num_buffers, num_warps, scheduler)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rung", LADDER.RUNGS)
def test_odd_shapes(device, rung, shape):
    function, settings = LADDER.RUNGS[rung]
    settings = {"num_buffers": 3, "num_warps": 4, **settings}
    check(device, lambda A, B, C: function(A, B, C, *SMALL, **settings), shape, dtype=ml_dtypes.bfloat16)


@pytest.mark.parametrize("steps", [1, 3, 4, 5])
def test_halves_of_a_tile_leave_through_the_last_buffer_and_the_first(device, steps):
    """Two tiles for each of 8 programs; with three steps a tile the second one leaves through buffers 4 and 0 of five."""
    compiled = check(device, LADDER.persistent_matmul_pipelined, (512, 256, 64 * steps), 128, 64, 64, 4, 4, ROW_MAJOR)
    assert compiled.shared < 4 * 128 * 64 * 2 + 5 * 64 * 64 * 2 + 1024


def test_a_tile_that_two_buffers_do_not_hold_is_refused():
    A = np.zeros((64, 64), np.float16)
    with pytest.raises(ValueError, match="does not fit in two"):
        LADDER.persistent_matmul_pipelined(A, A, A.copy(), 256, 64, 64, 4, 8, ROW_MAJOR)


@pytest.mark.parametrize(
    ("function", "num_buffers", "scheduler"),
    [
        (LADDER.matmul_pipelined, 3, None),
        pytest.param(LADDER.matmul_pipelined, 2, None, marks=whole),
        pytest.param(LADDER.matmul_pipelined, 4, None, marks=whole),
        *(
            pytest.param(function, num_buffers, scheduler, marks=whole)
            for function, least in ((LADDER.persistent_matmul, 2), (LADDER.persistent_matmul_pipelined, 3))
            for num_buffers in range(least, 5)
            for scheduler in (ROW_MAJOR, GROUPED(1), GROUPED(8))
        ),
    ],
)
@pytest.mark.parametrize("num_warps", [pytest.param(4, marks=whole), 8])
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((208, 416, 304), SMALL),
        pytest.param((208, 416, 304), (128, 256, 64), marks=whole),
        pytest.param((2000, 1000, 2000), (128, 256, 64), marks=whole),
    ],
)
def test_large_tiles(device, function, num_buffers, num_warps, scheduler, shape, tile):
    check(device, function, shape, *tile, num_buffers, num_warps, *([scheduler] if scheduler else []))


# Warp specialization


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (130, 264, 72), (300, 520, 200), (1100, 600, 136)])
@pytest.mark.parametrize("name", SPECIALISED.RUNS)
def test_warp_specialised(device, name, shape, dtype):
    check(device, SPECIALISED.RUNS[name], shape, dtype=dtype)


@pytest.mark.parametrize("num_buffers", [2, 3])
@pytest.mark.parametrize("name", SPECIALISED.RUNS)
def test_warp_specialised_with_few_buffers(device, name, num_buffers):
    check(device, SPECIALISED.RUNS[name], (300, 520, 328), num_buffers)


def test_one_buffer_is_too_few():
    A = np.zeros((64, 64), np.float16)
    with pytest.raises(weft.errors.CompilationError, match="needs another buffer"):
        SPECIALISED.matmul_cooperative(A, A, A.copy(), 1)


@whole
@pytest.mark.parametrize("name", SPECIALISED.RUNS)
def test_warp_specialised_on_a_large_product(device, name):
    check(device, SPECIALISED.RUNS[name], (2000, 1000, 2000))


# Orders of tiles


@weft.jit
def visits(out, M, N, SchedulerImpl: gl.constexpr, BLOCK: gl.constexpr):
    scheduler = SchedulerImpl.initialize(M, N, BLOCK, BLOCK)
    for idx in range(scheduler.get_num_tiles()):
        pid_m, pid_n = scheduler.get_tile(idx)
        gl.atomic_add(out + pid_m * gl.cdiv(N, BLOCK) + pid_n, 1)


@pytest.mark.parametrize("programs", [1, 5, 8, 70])
@pytest.mark.parametrize("shape", [(1, 1), (9, 7), (16, 5), (3, 20)])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_tile_is_visited_once(device, scheduler, shape, programs):
    rows, columns = shape
    out = device.zeros(shape, np.int32)
    visits[(programs,)](out, 64 * rows - 3, 64 * columns - 60, scheduler, 64)
    np.testing.assert_array_equal(device.numpy(out), np.ones(shape, np.int32))


def test_schedulers_of_different_groups_are_different_classes():
    assert GROUPED(8) is GROUPED(8)
    assert GROUPED(8).__name__ == "GroupedPersistentTileScheduler(8)" != GROUPED(4).__name__


# What they share


@pytest.mark.parametrize(
    ("tile", "num_warps", "warps", "width"),
    [
        ((128, 256), 8, [8, 1], 256),
        ((64, 64), 8, [4, 2], 32),
        ((128, 256), 4, [4, 1], 256),
        ((64, 256), 4, [4, 1], 256),
    ],
)
def test_accumulator_layout(tile, num_warps, warps, width):
    layout = PARTS.accumulator_layout(gl.bfloat16, *tile, num_warps)
    assert (layout.warps_per_cta, layout.instr_shape) == (tuple(warps), (16, width, 16))


def test_a_wrong_element_of_a_product_is_noticed():
    place = twin.load("workbench").Place(gpu=False)
    A, B = place.random(64, 64, dtype="float16"), place.random(64, 64, dtype="float16")
    C = (A.astype(np.float32) @ B.astype(np.float32)).astype(np.float16)
    place.check_product(C, A, B)
    for wrong in (np.nan, float(C[3, 5]) + 0.1):
        C[3, 5] = wrong
        with pytest.raises(AssertionError, match="1 elements"):
            place.check_product(C, A, B)


# Traces

TIMELINE = twin.load("matmul_timeline")


@pytest.mark.parametrize("name", TIMELINE.KERNELS)
def test_every_tile_leaves_a_record(device, name):
    place = twin.load("workbench").Place(gpu=device.is_gpu)
    bars = TIMELINE.trace(place, name, 400, 520, 136)
    rows, columns = TIMELINE.KERNELS[name][1]
    assert {(bar.row, bar.column) for bar in bars} == set(np.ndindex(-(-400 // rows), -(-520 // columns)))
    assert all(0 <= bar.begun <= bar.summed <= bar.stored for bar in bars)


def test_a_picture_has_every_bar_of_its_rows():
    bars = [
        TIMELINE.Bar(sm, sm, turn, 10 * turn, 10 * turn + 6, 10 * turn + 9) for sm in range(20) for turn in range(2)
    ]
    text = TIMELINE.draw("a & b", bars, most=3, unit="events")
    assert text.count("<title>tile") == 3 * 2
    assert "a &amp; b" in text
    assert "tile 2, 1: 10.00, 16.00, 19.00 events" in text
    ET.fromstring(text)


def test_tiles_that_overlap_stand_below_each_other():
    first, second, third = (TIMELINE.Bar(0, 0, i, begun, begun + 8, begun + 10) for i, begun in enumerate((0, 8, 10)))
    assert TIMELINE._lanes([third, second, first]) == [[first, third], [second]]


def test_the_table_of_traces(capsys, tmp_path):
    TIMELINE.main(["--sim", "--svg", str(tmp_path)])
    assert "ping-pong" in capsys.readouterr().out
    assert len(list(tmp_path.glob("schedule-*.svg"))) == len(TIMELINE.KERNELS)


GELU = twin.load("matmul_gelu")


@pytest.mark.parametrize(("kernel", "most"), [("accurate", 6500), ("approximate tanh", 3300)])
def test_product_with_gelu(device, kernel, most):
    """Numbers beyond the tiles' edges too; and the size of the code, of whose elements a thread has 128."""
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(size).astype(np.float16) for size in ((200, 72), (72, 264)))
    C = device.full((200, 264), np.nan, np.float16)
    compiled = GELU.matmul_gelu(device.array(A), device.array(B), C, kernel)
    wanted = GELU.exact(A.astype(np.float32) @ B.astype(np.float32))
    np.testing.assert_allclose(device.numpy(C).astype(np.float64), wanted, rtol=2e-3, atol=2e-3)
    assert most / 2 < twin.load("workbench").instructions(compiled) <= most and compiled.n_spills == 0
