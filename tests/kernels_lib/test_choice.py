"""The default configuration: one that works, chosen by a model that distinguishes small from large problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft import language as gl
from weft import settings
from weft.kernels import MatmulConfig, chosen_config, heuristic, matmul_configs
from weft.kernels.config import (
    HOPPER_VARIANTS,
    PIECE_BYTES,
    TENSOR_VARIANTS,
    best_group,
    most_accumulators,
    roomy,
    span_bytes,
)
from weft.kernels.device.activations import BRIEF
from weft.kernels.epilogue_plan import SLOTS, Epilogue, Extra
from weft.kernels.heuristic import candidates, choose
from weft.kernels.machines import BLACKWELL
from weft.kernels.model import Problem, cost, cycles_of
from weft.kernels.tuned import ANY, ROWS, Row

SIZES = [1, 7, 16, 64, 65, 128, 500, 1024, 4096, 8192, 20000]


def problem(m, n, k, dtype="float16", itemsize=2, described=True):
    return Problem(m, n, k, dtype, itemsize, 2, described, 132, unit=16 if described else itemsize)


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_all_candidates_work(itemsize, described):
    for m in SIZES:
        for k in SIZES:
            for config in candidates(problem(m, 3 * m + 5, k, itemsize=itemsize, described=described)):
                config.check(itemsize, 4 if config.splits > 1 else 2)
                blocks = -(-k // config.block_k)
                assert (config.splits - 1) * -(-blocks // config.splits) < blocks, "a part of the sum is empty"
                assert described or config.pack or config.variant == "cooperative"


def test_the_choice_is_the_cheapest_candidate():
    """Arrays of candidates are priced as single configurations are."""
    random = np.random.default_rng(4)
    for index in range(48):
        m, n, k = (int(size) for size in 2 ** random.uniform(0, 15, 3))
        known = problem(m, n, k, "float32", 4, described=index % 3 > 0)
        known = replace(known, slow_a=known.described * (index % 4 // 2 + index % 2), fast=index % 5 > 0)
        known = replace(known, machine=BLACKWELL) if index % 4 == 0 else known
        every = list(candidates(known))
        ordered = sorted(every, key=lambda config: cost(known, config))
        assert heuristic.ranked(known, len(every)) == ordered
        assert choose(known) == ordered[0]


def test_large_products_take_large_tiles():
    for k in (512, 4096, 16384):
        config = choose(problem(8192, 8192, k))
        assert config.block_m * config.block_n >= 128 * 128
        assert (config.splits, config.swap) == (1, False)


def test_large_operands_without_descriptors_are_copied_first():
    assert choose(problem(4096, 4096, 4095, described=False)).pack
    assert not choose(problem(256, 256, 255, described=False)).pack


def test_operands_that_tma_reads_slowly():
    known = problem(2000, 1000, 2000)
    config = MatmulConfig(block_m=128, block_n=128).filled(2, 2)
    slow = [cost(replace(known, slow_a=a, slow_b=b), config) for a, b in ((0, 0), (0, 1), (0, 2), (2, 2))]
    assert slow == sorted(set(slow))
    assert choose(replace(known, slow_b=2)).cluster == 2, "two blocks share what is read slowly"
    assert choose(known).cluster == 1


def test_small_tiles_share_what_l2_gives():
    """Clusters of 64 rows, unless the product is so short that to begin and end together takes longer."""
    known = replace(problem(928, 240, 5000), slow_a=2, slow_b=2)
    config = choose(known)
    assert (config.block_m, config.cluster) == (64, 4)
    parts, alone = (cycles_of(known, each) for each in (config, replace(config, cluster=1)))
    assert parts.cache < alone.cache / 1.5 and parts.ends > alone.ends
    assert choose(problem(881, 512, 128)).cluster == 1


def test_rows_out_of_bounds_are_waited_for():
    """A tile with a few rows costs more than a full one in the last wave, and as much as a full one among many."""
    config = MatmulConfig(block_m=128, block_n=96).filled(2, 2)
    few, full = (cycles_of(problem(m, 6144, 4096), config) for m in (145, 256))
    assert few.loads > 1.1 * full.loads
    many, whole = (cycles_of(problem(m, 6144, 4096), config) for m in (16401, 16512))
    assert many.loads == pytest.approx(whole.loads, rel=0.03)


@pytest.mark.parametrize("columns", [8, 16, 32, 48, 64, 80, 96, 112, 144, 160, 192, 224, 272])
def test_spans_are_those_of_the_layout(columns):
    held = roomy(columns, 2)
    layout = gl.NVMMASharedLayout.get_default_for((64, held), gl.float16)
    assert span_bytes(held, 2) == (layout.swizzle_byte_width or 16)


def test_narrow_spans_load_slowly():
    """TMA takes as long for 32 bytes of a row as for 128, so a tile of 80 columns loads b at a quarter of the rate if b is
    contiguous along them (144 x 3200 x 3456 in swapped tiles of 64 x 80 took 1.8 times as long as cuBLAS on an H200)."""
    config = MatmulConfig(block_m=64, block_n=80, consumers=1).filled(2, 2)
    known = problem(3200, 144, 3456)
    along_k, along_n = (cycles_of(replace(known, b_rows=rows), config).loads for rows in (False, True))
    assert along_n / along_k == pytest.approx((64 + 4 * 80) / (64 + 80), rel=0.1)
    wide = replace(config, block_n=128)
    assert cycles_of(replace(known, b_rows=True), wide).loads == cycles_of(known, wide).loads
    turned = replace(problem(144, 3200, 3456, "bfloat16"), a_rows=True)
    best = choose(turned)
    # With a and b exchanged, b is the operand that is turned; otherwise it is contiguous along K.
    span = span_bytes(best.columns_loaded(2, True), 2) if best.swap else PIECE_BYTES
    assert span == PIECE_BYTES and (best.block_n, best.swap) != (80, True)


def test_stages_are_no_more_than_blocks():
    for config in candidates(problem(64, 4096, 128)):
        assert config.stages <= 4
    stages = {
        config.stages for config in candidates(problem(1024, 1024, 4096)) if config.block_n == 64 == config.block_m
    }
    assert len(stages) == 2, "as many as fit for one program of a multiprocessor, and for each of two"


def test_few_rows_make_the_transpose_and_many_parts():
    config = choose(problem(16, 4096, 8192))
    assert config.swap
    assert config.block_n <= 16
    assert -(-4096 // config.block_m) * -(-16 // config.block_n) * config.splits * config.shares >= 100


def test_small_products_fill_the_device():
    config = choose(problem(512, 512, 512))
    tiles = -(-512 // config.block_m) * -(-512 // config.block_n) * config.splits
    assert tiles >= 64


def test_more_work_never_takes_less_time():
    config = MatmulConfig(group=8).filled(2, 2)
    costs = [cost(problem(m, 4096, 4096), config) for m in (1024, 8192, 16384)]
    assert costs == sorted(costs)


def test_the_table_comes_first(monkeypatch):
    config = MatmulConfig(variant="ping_pong", block_n=128)
    rows = (Row(("float16",), (4000, 5000), ANY, (1, 1024), config),)
    monkeypatch.setattr("weft.kernels.tuned.ROWS", rows)
    heuristic.choose.cache_clear()
    assert choose(problem(4096, 96, 1024)) is config
    for other in (
        problem(4096, 96, 1025),
        problem(4096, 96, 1024, "bfloat16"),
        problem(4096, 96, 1024, described=False),
    ):
        assert choose(other) is not config
    heuristic.choose.cache_clear()


@pytest.mark.parametrize("variant", HOPPER_VARIANTS)
@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("fast", [True, False])
def test_sizes_that_are_left_open(variant, itemsize, fast):
    for consumers, block_m in ((1, 64), (2, 128)):
        if variant == "ping_pong" and consumers == 1:
            continue
        config = MatmulConfig(variant=variant, consumers=consumers, block_m=block_m)
        filled = config.filled(itemsize, 2, most_accumulators(fast))
        filled.check(itemsize, 2, fast)
        assert filled.block_k * itemsize == 128
        assert filled.block_n == (256 if variant != "ping_pong" or block_m == 64 else 128) // (1 if fast else 2)
        assert 4 <= filled.stages <= 8
    assert MatmulConfig(block_m=64, block_n=64, block_k=32, stages=3).filled(2, 2).stages == 3


def test_slow_sums_take_smaller_tiles():
    for shape in ((8192, 8192, 8192), (64, 4096, 4096)):
        slow = replace(problem(*shape, "float8_e4m3fn", 1), fast=False)
        for config in candidates(slow):
            config.check(1, slow.stored_by(config), fast=False)


def test_rows_of_the_table_work():
    for row in ROWS:
        for itemsize in {1 if "8" in dtype else 4 if "32" in dtype else 2 for dtype in row.dtypes}:
            row.config.check(itemsize, 4 if row.config.splits > 1 else 2)


def test_bands_take_as_many_bytes_of_a_as_of_b():
    assert best_group(132, 128, 256) * 128 == pytest.approx(132 / best_group(132, 128, 256) * 256, rel=0.1)
    assert best_group(1, 256, 8) == 1


def test_what_callers_see():
    a, b = np.ones((256, 128), np.float16), np.ones((128, 512), np.float16)
    assert chosen_config(a, b) in list(matmul_configs(a, b))
    assert not chosen_config(a, b).pack
    assert all(config.pack or config.variant == "cooperative" for config in matmul_configs(a[:, 1:], b[1:]))
    assert all(replace(config).group for config in matmul_configs(a, b))


def test_the_explanation_says_what_the_choice_costs():
    a, b = np.ones((1000, 5000), np.float16), np.ones((5000, 3000), np.float16)
    found = chosen_config(a, b, explain=True)
    other = found.runner_up
    assert found.source == "model" and other is not None and other.config != found.chosen.config
    assert found.chosen.config == chosen_config(a, b)
    assert found.chosen.cycles.total == cost(found.problem, found.chosen.config) <= other.cycles.total
    text = str(found)
    assert text.startswith("1000 x 3000 x 5000, float16: the fastest by the model")
    assert f"{found.chosen.cycles.loads:,.0f}" in text and f"{other.cycles.total:,.0f}" in text
    assert "split-K" not in text, "what neither needs is left out"


def test_the_explanation_of_a_table_row_has_the_model_s_choice_for_a_runner_up():
    found = heuristic.explain(problem(100, 100, 100))
    assert (found.source, found.chosen.config.variant) == ("table", "pipelined")
    assert found.runner_up is not None and found.runner_up.config == heuristic.ranked(found.problem, 1)[0]
    assert "a row of the tuned table" in str(found)


def test_the_explanation_of_split_k_has_its_parts():
    found = heuristic.explain(problem(128, 192, 7552))
    assert found.chosen.config.shares > 1 and "shares" in str(found)
    assert found.chosen.cycles.reduction > 0 == found.chosen.cycles.launches
    parts = cycles_of(found.problem, replace(found.chosen.config, shares=1, splits=8))
    assert min(parts.reduction, parts.launches) > 0 == parts.packing
    packed = heuristic.explain(problem(4096, 4096, 4095, described=False)).chosen.cycles
    assert min(packed.packing, packed.launches) > 0 == packed.reduction


def on_blackwell(m, n, k, dtype="float16", itemsize=2, described=True):
    return replace(problem(m, n, k, dtype, itemsize, described), programs=BLACKWELL.multiprocessors, machine=BLACKWELL)


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_all_candidates_of_blackwell_work(itemsize, described):
    for m in SIZES[::2]:
        for k in SIZES[::2]:
            for config in candidates(on_blackwell(m, 3 * m + 5, k, itemsize=itemsize, described=described)):
                config.check(itemsize, 4 if config.splits > 1 else 2)
                assert config.variant in TENSOR_VARIANTS
                assert config.pack != described


@pytest.mark.parametrize(
    ("sizes", "variant", "cluster", "block_n", "splits", "swap"),
    [
        ((8192, 8192, 8192), "tcgen05_clc", 2, 256, 1, False),
        ((4096, 4096, 4096), "tcgen05_clc", 2, 256, 1, False),
        ((2048, 2048, 2048), "tcgen05", 2, 256, 1, False),
        ((512, 512, 512), "tcgen05", 1, 16, 1, False),
        ((16, 4096, 8192), "tcgen05", 1, 16, 4, True),
        ((128, 128, 16384), "tcgen05", 1, 32, 32, False),
    ],
)
def test_what_blackwell_takes(sizes, variant, cluster, block_n, splits, swap):
    """Large products go to pairs, several tiles for each are handed out, and small ones are cut until they fill the GPU."""
    config = choose(on_blackwell(*sizes))
    found = (config.variant, config.cluster, config.block_n, config.splits, config.swap)
    assert found == (variant, cluster, block_n, splits, swap)
    fewer = -(-sizes[2] // config.block_k // config.splits)
    assert config.stages == min(fewer, 16) or 1.1 * config.shared_bytes(2, 2) > 200 * 1024


def test_pairs_read_half_of_b():
    known = on_blackwell(4096, 4096, 4096)
    alone, pairs = (MatmulConfig(variant="tcgen05", block_n=128, cluster=n).filled(2, 2) for n in (1, 2))
    assert cost(known, pairs) < cost(known, alone), "shared memory is what a tile of 128 x 128 waits for"
    assert pairs.columns_held == 64


def test_the_target_decides():
    a, b = np.ones((256, 128), np.float16), np.ones((128, 512), np.float16)
    with settings.using(target="sm_100a"):
        assert {config.variant for config in matmul_configs(a, b)} == set(TENSOR_VARIANTS)
    assert {config.variant for config in matmul_configs(a, b)} < set(HOPPER_VARIANTS)


@pytest.mark.parametrize("variant", TENSOR_VARIANTS)
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_sizes_that_are_left_open_on_blackwell(variant, cluster, itemsize):
    filled = MatmulConfig(variant=variant, cluster=cluster).filled(itemsize, 2)
    filled.check(itemsize, 2)
    assert (filled.block_n, filled.block_k * itemsize, filled.stages) == (256, 128, 2 + 2 * cluster)


def test_an_epilogue_that_takes_time_is_hidden():
    """Ping-pong computes it beside the other consumer's products, also where K is long."""
    problem = Problem(8192, 8192, 8192, "bfloat16", 2, 2, True, 132)
    assert choose(problem).variant == "cooperative"
    assert choose(replace(problem, finish=26.0)).variant == "ping_pong"
    config = choose(problem)
    costs = [cycles_of(replace(problem, finish=finish), config) for finish in (0, 26.0)]
    area = config.block_m * config.block_n
    assert costs[1].ends - costs[0].ends == pytest.approx(costs[0].waves * area * 26 / 128)


def test_the_slots_of_an_epilogue():
    vector, matrix = Extra(True, columns=True), Extra(True, True, True)
    assert Epilogue().slots == 0
    assert Epilogue(bias=vector, residual=matrix).slots == 18.5
    assert Epilogue(activation=BRIEF["gelu"]).slots == SLOTS["gelu"]
    assert Epilogue(function=BRIEF["gelu"], written=("row_peaks",)).slots == 13
