"""The analytic model of matrix products: known cases by hand, laws, and that what was measured stays below its bound."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import blackwell, twin
from benchmarks.model import (
    B200,
    H200,
    KINDS,
    Kind,
    Problem,
    Variant,
    bound,
    epilogue,
    exposed,
    hbm_bytes,
    rounds,
    step,
)

SINGLE, PAIRS = Variant(name="single"), Variant(name="pairs", pairs=True)
FP16, NVFP4 = KINDS["fp16"], KINDS["nvfp4"]
LENGTHS = st.sampled_from(blackwell.LENGTHS)
CASES = [(kind, variant) for kind, variants in blackwell.VARIANTS.items() for variant in variants]


# By hand


def test_a_step_of_one_multiprocessor():
    """128 x 256 x 64 of fp16: four instructions of 128 cycles; both operands are written once and read once."""
    cost = step(B200, FP16, SINGLE)
    assert cost.mma == pytest.approx(4 * 128)
    assert cost.read == cost.written == cost.from_l2 == (128 + 256) * 128
    assert cost.cycles(B200) == pytest.approx({"tensor cores": 512, "shared memory": 768, "L2 port": 768})


def test_pairs_hold_and_read_half_of_b():
    cost = step(B200, FP16, PAIRS)
    assert cost.mma == pytest.approx(512)
    assert cost.read == cost.written == (128 + 128) * 128
    assert set(map(round, cost.cycles(B200).values())) == {512}


def test_a_in_tensor_memory_is_not_read_from_shared_memory():
    cost = step(B200, FP16, replace(SINGLE, a_in_tensor_memory=True))
    assert (cost.read, cost.written) == (256 * 128, 384 * 128)


def test_each_warpgroup_of_hopper_reads_all_of_b():
    cost = step(H200, FP16, replace(SINGLE, instr_m=64))
    assert cost.mma == pytest.approx(1024)
    assert cost.read == (128 + 2 * 256) * 128


def test_multicast_saves_reads_of_l2_only():
    cost = step(B200, FP16, replace(SINGLE, multicast_b=2))
    assert (cost.written, cost.from_l2) == (384 * 128, (128 + 128) * 128)


def test_scales_come_beside_the_elements():
    """256 elements of 4 bits are 128 bytes and 16 scales; each block of a pair has those of all columns of b."""
    cost = step(B200, NVFP4, PAIRS)
    assert cost.scales == (128 + 256) * 16
    assert cost.written == cost.read + cost.scales == 256 * 128 + 384 * 16


def test_a_tile_leaves_through_shared_memory():
    """64 KiB in and out of shared memory, and out of the multiprocessor."""
    assert epilogue(B200, FP16, SINGLE) == {"tensor cores": 0, "shared memory": 1024, "L2 port": 1024}
    assert exposed(B200, FP16, SINGLE) == 0
    assert exposed(B200, FP16, replace(SINGLE, written_first=1.0)) == 512
    assert exposed(B200, FP16, replace(SINGLE, written_first=1.0, stored_first=1.0)) == 1024


def test_rounds():
    """2048 tiles on 148 multiprocessors leave 24 of the last round's places free."""
    assert rounds(2048, 148) == rounds(2048, 148, clc=True) == 14
    assert rounds(2048, 148, late=1) == 15
    assert rounds(2048, 148, clc=True, late=24) == 14
    assert rounds(2048, 148, clc=True, late=25) == 15


def test_bytes_of_hbm():
    small, large = Problem(1024, 1024, 1024), Problem(8192, 8192, 16384)
    assert hbm_bytes(B200, FP16, SINGLE, small) == 3 * 2 * 1024**2
    matrix, out = 2 * 8192 * 16384, 2 * 8192**2
    # 64 rows of tiles are 8 bands; the first reads both operands, each further one what L2 has not kept of B.
    assert hbm_bytes(B200, FP16, SINGLE, large) == pytest.approx(2 * matrix + 7 * (matrix - B200.l2) + out)
    runs = replace(SINGLE, band=0)
    assert hbm_bytes(B200, FP16, runs, large) == pytest.approx(2 * matrix + 13 * (2 * matrix - B200.l2) + out)


def test_a_product_of_one_tile():
    """Four steps of 768 cycles behind the first load, and the epilogue; 147 multiprocessors have nothing to do."""
    variant = replace(SINGLE, prefetch=False, written_first=1.0, stored_first=1.0)
    found = bound(B200, FP16, variant, Problem(128, 256, 256))
    assert found.seconds * B200.clock == pytest.approx(420 + 4 * 768 + 1024)
    assert found.fraction == pytest.approx(4 * 512 / (420 + 4 * 768 + 1024) / 148)
    assert found.limit == "shared memory"
    assert found.waves == pytest.approx(147 / 148)


def test_what_limits():
    long, short = Problem(8192, 8192, 16384), Problem(8192, 8192, 512)
    assert bound(B200, FP16, SINGLE, long).limit == "shared memory"
    assert bound(B200.unassumed(), FP16, SINGLE, long).limit == "tensor cores"
    assert bound(B200.unassumed(), NVFP4, PAIRS, short).limit == "HBM"


# Laws


@pytest.mark.parametrize(("kind", "variant"), CASES)
@given(K=LENGTHS)
def test_fractions_are_fractions(kind, variant, K):
    for gpu in (B200, B200.unassumed(), B200.boosted()):
        found = bound(gpu, KINDS[kind], variant, Problem(8192, 8192, K))
        assert 0 < found.fraction <= 1
        assert all(0 <= share <= 1 + 1e-9 for share in (*found.busy.values(), found.waves, found.exposed))
        assert found.busy["tensor cores"] >= found.fraction * (1 - 1e-9)


@given(kind=st.sampled_from(list(KINDS.values())), K=LENGTHS, columns=st.sampled_from([64, 128, 256]))
def test_pairs_are_not_slower(kind, K, columns):
    single = Variant(name="", block_n=columns, instr_n=columns)
    problem = Problem(8192, 8192, K)
    assert (
        bound(B200, kind, replace(single, pairs=True), problem).fraction >= bound(B200, kind, single, problem).fraction
    )


@given(
    case=st.sampled_from(CASES),
    K=LENGTHS,
    rate=st.sampled_from(["hbm", "l2", "shared", "port"]),
    more=st.floats(1, 8),
)
def test_faster_parts_make_no_product_slower(case, K, rate, more):
    kind, variant = KINDS[case[0]], case[1]
    faster = replace(B200, **{rate: getattr(B200, rate) * more})
    problem = Problem(8192, 8192, K)
    assert bound(faster, kind, variant, problem).seconds <= bound(B200, kind, variant, problem).seconds * (1 + 1e-12)


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_longer_sums_come_nearer_to_the_peak(kind, variant):
    found = [bound(B200, KINDS[kind], variant, Problem(8192, 8192, K)).fraction for K in blackwell.LENGTHS]
    assert found == sorted(found)


@given(tiles=st.integers(1, 5000), slots=st.integers(1, 148), late=st.integers(0, 148))
def test_who_takes_tiles_when_ready_is_not_later(tiles, slots, late):
    late = min(late, slots)
    assert rounds(tiles, slots) <= rounds(tiles, slots, clc=True, late=late) <= rounds(tiles, slots, late=late)


def test_an_element_of_half_the_size_costs_half_the_bytes():
    wide, narrow = Kind("fp8", 16), Kind("fp8", 8)
    assert wide.nbytes(10) == 2 * narrow.nbytes(10) == 20
    assert narrow.scales(64) == 0 and Kind("mxfp8", 8, 32).scales(64) == 2


# What was measured

HOPPER = Variant(name="", instr_m=64)
ALONE = replace(HOPPER, prefetch=False, band=0, **blackwell.ALONE)
MEASURED = {
    "pipelined": ALONE,
    "persistent": ALONE,
    "persistent, pipelined": replace(HOPPER, band=0, written_first=1.0),
    "cooperative": replace(HOPPER, written_first=1.0),
    "example, cooperative": replace(HOPPER, written_first=1.0),
    "ping pong": replace(HOPPER, block_n=128, instr_n=128),
    "example, ping pong": replace(HOPPER, block_n=128, instr_n=128),
    "ping pong, wide": replace(HOPPER, block_m=64),
}


@pytest.mark.parametrize(("table", "count"), [("matmul-ladder", 36), ("matmul-fp16", 84)])
def test_products_on_an_h200_are_below_the_bound(table, count):
    """At the highest clock: at the datasheet's, short ping-pong products come out 1% above it."""
    gpu, seen = H200.boosted(), 0
    for line in recorded(table):
        named = re.fullmatch(r"K=(\d+), (.*?)(, graph)?", line["what"])
        if named and named[2] in MEASURED:
            found = bound(gpu, FP16, MEASURED[named[2]], Problem(8192, 8192, int(named[1])))
            assert line["weft"] * 1e12 < found.fraction * gpu.peaks["fp16"], line["what"]
            seen += 1
    assert seen == count


def test_fp8_products_on_an_h200_are_below_the_bound():
    gpu, seen = H200.boosted(), 0
    for line in recorded("matmul-fp8"):
        config = re.match(r"fp8 8192\^3, \w+ (\d+)x(\d+)x(\d+)x\d+, grouped (\d+)", line["what"])
        if config:
            block_m, block_n, row_bytes, band = map(int, config.groups())
            variant = replace(HOPPER, block_m=block_m, block_n=block_n, row_bytes=row_bytes, band=band)
            found = bound(gpu, KINDS["fp8"], replace(variant, instr_n=block_n), Problem(8192, 8192, 8192))
            assert line["weft"] * 1e12 < found.fraction * gpu.peaks["fp8"], line["what"]
            seen += 1
    assert seen == 28


PUBLISHED = {
    512: (615.86, 828.70, 993.50, 1108.11),
    2048: (1152.74, 1190.55, 1133.37, 1435.01),
    16384: (1185.62, 1096.34, 1296.93, 1548.42),
}
"""TFLOP/s on a Blackwell GPU at 8192 x 8192 x K, fp16: three rungs by one multiprocessor a tile, and cuBLAS, which uses pairs.
Triton's tutorial python/tutorials/gluon/07-persistence.py."""


@pytest.mark.parametrize("K", PUBLISHED)
def test_published_products_on_blackwell_are_below_the_bound(K):
    grouped = replace(SINGLE, prefetch=False, **blackwell.ALONE)
    variants = (replace(grouped, band=0), grouped, replace(SINGLE, written_first=1.0), PAIRS)
    for speed, variant in zip(PUBLISHED[K], variants, strict=True):
        assert speed * 1e12 < bound(B200, FP16, variant, Problem(8192, 8192, K)).fraction * B200.peaks["fp16"]


def recorded(name):
    """The lines of a result on an H200."""
    path = twin.ROOT / "benchmarks" / "results" / "nvidia-h200" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["lines"]
