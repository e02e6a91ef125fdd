"""Tiles that the CTAs of a cluster share: parts of K of any number and length, slices of any width, outputs and epilogues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import weft
from tests.kernels_lib.matrices import Lies, check, kept_poison, operand, output, random
from weft import language as gl
from weft.errors import LaunchError, hazard
from weft.kernels import MatmulConfig, compile_matmul, matmul
from weft.kernels.device.shares import Shares
from weft.language.nvidia.hopper import mbarrier

MATRIX = pytest.mark.matrix
NARROW = {"block_m": 64, "consumers": 1, "stages": 2}
CONFIGS = {
    "two consumers": MatmulConfig(block_n=64, block_k=32, stages=2, shares=4),
    "tall": MatmulConfig(block_m=256, block_n=32, block_k=32, stages=2, shares=2),
    "a slice each": MatmulConfig(block_n=64, block_k=16, shares=8, **NARROW),
    "fewer slices than CTAs": MatmulConfig(block_n=16, block_k=16, shares=4, **NARROW),
    "slices by turns": MatmulConfig(block_n=80, block_k=32, shares=4, **NARROW),
    "three slices each": MatmulConfig(block_n=96, block_k=32, stages=2, shares=2),
    "one slice": MatmulConfig(block_n=8, block_k=32, shares=4, **NARROW),
    "a cluster of sixteen": MatmulConfig(block_n=32, block_k=16, shares=16, **NARROW),
}


def multiplied(device, rng, config, sizes, dtype="float16", order="C", lies=None, **options):
    m, n, k = sizes
    a, b = operand(device, rng, dtype, (m, k), Lies()), operand(device, rng, dtype, (k, n), Lies(order))
    lies = lies or Lies()
    out = "bfloat16" if dtype.startswith("float8") else dtype
    found, flat = output(device, out, (m, n), lies)
    matmul(a.array, b.array, found, config=config, **options)
    check(device.numpy(found), a.values, b.values, config=config)
    kept_poison(device, flat, (m, n), lies)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MATRIX) if config.shares > 4 else name for name, config in CONFIGS.items()]
)
def test_tiles_are_shared(device, rng, name):
    multiplied(device, rng, CONFIGS[name], (200, 72, 328))


@pytest.mark.parametrize("name", [pytest.param(name, marks=MATRIX if name != "one slice" else ()) for name in CONFIGS])
@pytest.mark.parametrize("k", [8, 40, 136])
def test_sums_of_fewer_blocks_than_shares(device, rng, name, k):
    multiplied(device, rng, CONFIGS[name], (72, 40, k))


@pytest.mark.parametrize("lies", [Lies("F"), Lies(gap=1), Lies("F", gap=4)], ids=str)
@pytest.mark.parametrize("name", ["two consumers", pytest.param("one slice", marks=MATRIX)])
def test_outputs(device, rng, name, lies):
    multiplied(device, rng, CONFIGS[name], (136, 104, 264), lies=lies)


@pytest.mark.parametrize("name", ["two consumers", pytest.param("fewer slices than CTAs", marks=MATRIX)])
@pytest.mark.parametrize(("dtype", "order"), [("float8_e4m3fn", "F"), ("bfloat16", "F"), ("int8", "F")])
@MATRIX
def test_types(device, rng, name, dtype, order):
    out = {"out_dtype": "int32"} if dtype == "int8" else {}
    m, n, k = 136, 112, 528
    a, b = operand(device, rng, dtype, (m, k), Lies()), operand(device, rng, dtype, (k, n), Lies(order))
    config = replace(CONFIGS[name], block_k=32)
    check(device.numpy(matmul(a.array, b.array, config=config, **out)), a.values, b.values, config=config)


@pytest.mark.parametrize("sizes", [(5, 264, 520), (33, 200, 136)])
def test_the_transpose_is_computed(device, rng, sizes):
    config = replace(CONFIGS["two consumers"], block_n=8 if sizes[0] < 8 else 64, swap=True)
    multiplied(device, rng, config, sizes)


def test_packed_operands(device, rng):
    multiplied(device, rng, replace(CONFIGS["a slice each"], pack=True), (70, 65, 133))


def test_a_batch(device, rng):
    a, b = (random(rng, "float16", shape) for shape in ((3, 72, 200), (3, 200, 40)))
    found = device.numpy(matmul(device.array(a), device.array(b), config=CONFIGS["two consumers"]))
    for mine, left, right in zip(found, a, b, strict=True):
        check(mine, left, right, config=CONFIGS["two consumers"])


def test_the_epilogue_comes_after_the_sum(device, rng):
    m, n, k = 136, 104, 264
    a, b, residual = (random(rng, "float16", shape) for shape in ((m, k), (k, n), (m, n)))
    bias = random(rng, "float16", (n,))
    given = {name: device.array(x) for name, x in {"bias": bias, "residual": residual}.items()}
    found = matmul(device.array(a), device.array(b), activation="relu", config=CONFIGS["two consumers"], **given)
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0) + residual
    np.testing.assert_allclose(device.numpy(found).astype(np.float64), want, rtol=2e-3, atol=2e-2)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(40))
def test_random_products(device, seed):
    rng = np.random.default_rng(seed)
    shared = replace(list(CONFIGS.values())[seed % len(CONFIGS)], swap=bool(rng.integers(2)))
    m, n = (int(x) for x in rng.integers(1, 300, 2))
    k = int(rng.integers(1, 80)) * 8
    order = str(rng.choice(["C", "F"]))
    config = replace(shared, pack=order == "C" and n % 8 != 0)
    multiplied(
        device, rng, config, (m, n, k), order=order, lies=Lies(str(rng.choice(["C", "F"])), int(rng.integers(4)))
    )


@pytest.mark.parametrize(
    "change",
    [{"variant": "ping_pong"}, {"splits": 2}, {"cluster": 2}, {"shares": 3}, {"variant": "pipelined"}],
    ids=str,
)
def test_configurations_that_share_no_tiles(rng, change):
    a, b = random(rng, "float16", (128, 64)), random(rng, "float16", (64, 128))
    with pytest.raises(LaunchError) as caught:
        matmul(a, b, config=replace(MatmulConfig(block_n=64, block_k=32, stages=2, shares=2), **change))
    assert caught.value.code == "kernels-config"
    assert "shares is " in str(caught.value)


def test_epilogues_of_whole_rows_are_refused(rng):
    a, b = random(rng, "float16", (128, 64)), random(rng, "float16", (64, 128))
    config = MatmulConfig(block_n=64, block_k=32, stages=2, shares=2)
    for given in ({"gated": True}, {"row_squares": np.zeros((128, 1), np.float32)}):
        with pytest.raises(LaunchError) as caught:
            matmul(a, b, config=config, **given)
        assert caught.value.code == "kernels-config"


def test_sums_are_sent_and_read_as_vectors():
    a, b = np.zeros((256, 1024), np.float16), np.zeros((1024, 256), np.float16)
    compiled = compile_matmul(a, b, config=MatmulConfig(block_n=128, stages=4, shares=8))
    assert "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32" in compiled.asm["cuda"]
    assert "bytes.f32" not in compiled.asm["cuda"]
    assert compiled.asm["sass"].count("LDS.128") >= 2 * 8 * 2, "two consumers read 2 vectors of each of 8 CTAs"


@weft.jit
def unordered(self, turn: gl.constexpr, layout: gl.constexpr):
    mbarrier.expect(self.bars.index(turn), self.plan.shares * self.got.index(0).nbytes_per_cta)
    total = self.got.index(0).load(layout)
    for share in gl.static_range(1, self.plan.shares):
        total += self.got.index(share).load(layout)
    return total


def test_reads_that_wait_for_nothing_are_reported(rng, monkeypatch):
    a, b = random(rng, "float16", (64, 64)), random(rng, "float16", (64, 64))
    monkeypatch.setattr(Shares, "added", unordered)
    with pytest.raises(hazard.Hazard):
        matmul(a, b, config=MatmulConfig(block_n=32, block_k=32, shares=2, buffers=1, **NARROW))
