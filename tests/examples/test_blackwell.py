"""Examples for Blackwell in the simulator: products in tensor memory, block-scaled ones, rows moved by their numbers."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import weft
from benchmarks import twin

LADDER, BLACKWELL = twin.load("matmul_ladder"), twin.load("matmul_blackwell")
SCALED, GATHER = twin.load("matmul_scaled"), twin.load("tma_gather")
PLACE = twin.load("workbench").Place(gpu=False)
FP8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
DTYPES = [np.float16, ml_dtypes.bfloat16]
WAYS = [*product(["late", "early", "random"], [0, 1, 2])]
SMALL = (64, 64, 64)
whole = pytest.mark.matrix
pytestmark = pytest.mark.usefixtures("blackwell")


def check(device, function, shape, dtype=np.float16, result=None):
    """Fresh inputs, a poisoned output, and the product in double precision."""
    M, N, K = shape
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(size).astype(dtype) for size in ((M, K), (K, N)))
    C = device.full((M, N), np.nan, result or dtype)
    compiled = function(device.array(A), device.array(B), C)
    PLACE.check_product(device.numpy(C), A, B)
    return compiled


# The ladder: one text for both accumulators

MMA = LADDER.select_mma_impl


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_accumulator_follows_the_target(target):
    with weft.simulate(target=target):
        assert MMA().__name__ == {"sm_90a": "WGMMA", "sm_100a": "MMAv5"}[target]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(100, 136, 200), (1, 8, 8), (130, 72, 520)])
@pytest.mark.parametrize("rung", LADDER.RUNGS)
def test_ladder(device, rung, shape, dtype):
    function, settings = LADDER.RUNGS[rung]
    settings = {"num_buffers": 3, "num_warps": 4, **settings}
    compiled = check(device, lambda A, B, C: function(A, B, C, *SMALL, **settings), shape, dtype)
    assert "tcgen05.mma" in compiled.asm["ir"]


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize(
    ("name", "num_buffers"),
    [
        (name, number)
        for name, least in (("pipelined", 2), ("persistent, grouped", 2), ("persistent, pipelined", 3))
        for number in range(least, 5)
    ],
)  # fmt: skip
def test_ladder_with_other_buffers(device, name, num_buffers, num_warps):
    function, settings = LADDER.RUNGS[name]
    settings = {**settings, "num_buffers": num_buffers, "num_warps": num_warps}
    check(device, lambda A, B, C: function(A, B, C, *SMALL, **settings), (300, 264, 200))


@pytest.mark.parametrize("rung", LADDER.RUNGS)
def test_ladder_in_large_tiles(device, rung):
    function, settings = LADDER.RUNGS[rung]
    settings = {"num_buffers": 3, "num_warps": 4, **settings}
    check(device, lambda A, B, C: function(A, B, C, 128, 256, 64, **settings), (208, 416, 304))


# Warp specialization

SHAPES = [(1, 16, 16), (130, 272, 80), (300, 528, 208)]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [*product(SHAPES, (np.float16, FP8[0])), (SHAPES[1], ml_dtypes.bfloat16), (SHAPES[1], FP8[1])],
)
@pytest.mark.parametrize("name", BLACKWELL.RUNS)
def test_warp_specialized(device, name, shape, dtype):
    result = np.float16 if dtype in FP8 else dtype
    check(device, lambda A, B, C: BLACKWELL.matmul(A, B, C, **BLACKWELL.RUNS[name]), shape, dtype, result)


@pytest.mark.parametrize("result", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("tile", [(64, 64), (128, 32), (128, 128)])
def test_matmul_with_other_tiles_and_results(device, tile, result):
    check(device, lambda A, B, C: BLACKWELL.matmul(A, B, C, BLOCK_M=tile[0], BLOCK_N=tile[1]), SHAPES[1], result=result)


@pytest.mark.parametrize("num_buffers", [1, 2])
@pytest.mark.parametrize("name", BLACKWELL.RUNS)
def test_matmul_with_few_buffers(device, name, num_buffers):
    check(device, lambda A, B, C: BLACKWELL.matmul(A, B, C, **BLACKWELL.RUNS[name], num_buffers=num_buffers), SHAPES[1])


@whole
@pytest.mark.parametrize("name", BLACKWELL.RUNS)
def test_matmul_on_a_large_product(device, name):
    check(device, lambda A, B, C: BLACKWELL.matmul(A, B, C, **BLACKWELL.RUNS[name]), (2000, 1000, 2000))


@pytest.mark.parametrize("max_resident", [1, 2, 3])
@pytest.mark.parametrize("two_ctas", [False, True])
def test_tiles_are_claimed(two_ctas, max_resident):
    """Seven tiles by fewer programs than that: each that is done claims another's."""
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(size).astype(np.float16) for size in ((1700, 48), (48, 16)))
    for schedule, seed in WAYS[::4]:
        C = np.full((1700, 16), np.nan, np.float16)
        with weft.simulate(max_resident=max_resident, schedule=schedule, seed=seed):
            BLACKWELL.matmul(A, B, C, two_ctas=two_ctas, clc=True, BLOCK_N=32)
        PLACE.check_product(C, A, B)


@pytest.mark.parametrize("name", BLACKWELL.RUNS)
def test_no_order_of_execution_has_a_hazard(name):
    random = np.random.default_rng(0)
    A, B = (random.standard_normal(size).astype(np.float16) for size in ((520, 200), (200, 48)))
    for schedule, seed in WAYS:
        C = np.full((520, 48), np.nan, np.float16)
        with weft.simulate(schedule=schedule, seed=seed):
            BLACKWELL.matmul(A, B, C, **BLACKWELL.RUNS[name], num_buffers=2, BLOCK_N=32)
        PLACE.check_product(C, A, B)


# Block-scaled products


def scaled(device, formats, shape, **settings):
    """Rows whose runs differ in magnitude, quantised, and the product of what they then are."""
    M, N, K = shape
    place, random = twin.load("workbench").Place(gpu=device.is_gpu), np.random.default_rng(0)
    (A, a), (B, b) = (
        SCALED.quantised(place, random.standard_normal((rows, K)) * np.exp2(random.integers(-3, 4, (rows, K))), name)
        for rows, name in zip((M, N), formats, strict=True)
    )
    C = device.full((M, N), np.nan, settings.pop("result", np.float32))
    compiled = SCALED.matmul_scaled(A, B, C, **settings)
    SCALED.check(place, C, a, b)
    return compiled


@pytest.mark.parametrize("two_ctas", [False, True])
@pytest.mark.parametrize("shape", [(1, 8, 64), (300, 140, 608)])
@pytest.mark.parametrize("name", ["mxfp8e4m3", "mxfp8e5m2", "mxfp4", "nvfp4"])
def test_scaled(device, name, shape, two_ctas):
    scaled(device, (name, name), shape, two_ctas=two_ctas)


@pytest.mark.parametrize("clc", [False, True])
@pytest.mark.parametrize("BLOCK_N", [128, 256])
@pytest.mark.parametrize("formats", [("mxfp8e4m3", "mxfp4"), ("mxfp4", "mxfp8e5m2"), ("mxfp8e5m2", "mxfp8e4m3")])
def test_scaled_of_two_formats(device, formats, BLOCK_N, clc):
    scaled(device, formats, (140, 520, 384), BLOCK_N=BLOCK_N, clc=clc, two_ctas=clc)


@pytest.mark.parametrize("two_ctas", [False, True])
def test_no_order_of_execution_of_scaled_products_has_a_hazard(device, two_ctas):
    for schedule, seed in WAYS[::2]:
        with weft.simulate(schedule=schedule, seed=seed):
            scaled(device, ("nvfp4", "nvfp4"), (300, 140, 544), two_ctas=two_ctas, clc=True, num_buffers=2, BLOCK_N=128)


# Rows moved by their numbers


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
@pytest.mark.parametrize(("rows", "columns", "num_buffers"), [(32, 128, 3), (8, 64, 2), (64, 64, 4)])
@pytest.mark.parametrize("name", GATHER.RUNS)
def test_rows(device, name, rows, columns, num_buffers, dtype):
    random = np.random.default_rng(0)
    for n, width in ((1, 16), (77, 208), (130, 528)):
        src = random.integers(-99, 99, (100, width)).astype(dtype)
        sources, targets = random.integers(0, 100, n).astype(np.int32), random.permutation(150)[:n].astype(np.int32)
        want = np.full((150, width), 7, dtype)
        dst = device.array(want)
        want[targets] = src[sources]
        settings = {"num_buffers": num_buffers} if name == "TMA" else {}
        given = device.array(src), device.array(sources), dst, device.array(targets)
        GATHER.RUNS[name](*given, ROWS=rows, COLUMNS=columns, **settings)
        np.testing.assert_array_equal(device.numpy(dst), want)


def test_rows_outside_are_neither_read_nor_written(device):
    src = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    dst = device.full((64, 64), 7, np.float32)
    sources, targets = np.array([-1, 5, 64, 7], np.int32), np.array([0, -5, 2, 100], np.int32)
    GATHER.by_tma(device.array(src), device.array(sources), dst, device.array(targets))
    want = np.full((64, 64), 7, np.float32)
    want[[0, 2]] = 0
    np.testing.assert_array_equal(device.numpy(dst), want)
