"""Attention and the product with weights of four bits: lengths that blocks do not divide, and what overlaps in machine code."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from benchmarks import twin
from tests.cuda.build import needs_nvrtc
from tests.examples.machine_code import mnemonics, written_in_flight
from weft.runtime.compiled import CompiledKernel

ATTENTION, INT4 = twin.load("attention"), twin.load("matmul_int4")
RUNS = {1: (1, True), 2: (2, False), 3: (2, True)}
"""Consumers, and whether the second wait is behind the softmax."""


def attend(device, length, keys, size, consumers, late, dtype=np.float16) -> CompiledKernel:
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, n, size)).astype(dtype) for n in (length, keys, keys))
    out = device.full((2, length, size), np.nan, dtype)
    compiled = ATTENTION.attention(*map(device.array, (q, k, v)), out, consumers, late)
    got = device.numpy(out).astype(np.float64)
    for head in range(2):
        expected = ATTENTION.reference(q[head], k[head], v[head])
        np.testing.assert_allclose(got[head], expected, atol=2e-3 if dtype is np.float16 else 2e-2)
    return compiled


@pytest.mark.parametrize("keys", [1, 128, 129, 400])
@pytest.mark.parametrize(("consumers", "late"), RUNS.values(), ids=str)
def test_lengths(device, keys, consumers, late):
    attend(device, 1 if keys == 128 else 100, keys, 64, consumers, late)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_head_size_of_128(device, dtype):
    attend(device, 70, 300, 128, 2, False, dtype)


def test_scores_far_below_and_above(device):
    """Maxima that grow from block to block, so that all earlier sums are scaled down to nothing."""
    q = np.full((1, 64, 64), 4.0, np.float16)
    k = np.repeat(np.array([8.0, 4.0, -4.0, -8.0], np.float16), 128)[None, :, None] * np.ones((1, 1, 64), np.float16)
    v = np.repeat(np.arange(1.0, 5.0, dtype=np.float16), 128)[None, :, None] * np.ones((1, 1, 64), np.float16)
    out = device.full((1, 64, 64), np.nan, np.float16)
    ATTENTION.attention(*map(device.array, (q, k, v)), out)
    assert (device.numpy(out) == 1.0).all()


@needs_nvrtc
@pytest.mark.parametrize("consumers", [1, 2])
def test_all_exponentials_of_the_loop_run_while_an_mma_does(consumers):
    kernel = ATTENTION.attention(*(np.zeros((1, 64, 128), np.float16) for _ in range(4)), consumers, True)
    assert ATTENTION.overlapped(kernel) == 66
    assert "the wait for MMAs stands" not in kernel.asm["order"]
    assert written_in_flight(kernel.asm["sass"]) == []
    assert kernel.n_spills == 0 and re.findall(r"C75\d\d", kernel.front.machine_code.log) == []
    # With the accurate functions 1954 and 3806.
    assert twin.load("workbench").instructions(kernel) <= (1500 if consumers == 1 else 3000)


def multiply(device, M, N, K, consumers, columns, synchronous) -> CompiledKernel:
    random = np.random.default_rng(0)
    words, scales = INT4.quantise(random.standard_normal((N, K)).astype(np.float32))
    x = random.standard_normal((M, K)).astype(np.float16)
    out = device.full((M, N), np.nan, np.float16)
    compiled = INT4.matmul_int4(*map(device.array, (words, scales, x)), out, consumers, columns, synchronous)
    left, right = x.astype(np.float64), INT4.dequantised(words, scales).T
    expected = left @ right
    # Each weight times its scale is rounded to float16, and so is the sum; 1.05 for the tensor core's cuts, which are 2**-22.
    bound = 2**-11 * (1.05 * np.abs(left) @ np.abs(right) + np.abs(expected))
    assert (np.abs(device.numpy(out).astype(np.float64) - expected) <= bound).all()
    return compiled


@pytest.mark.parametrize("blocks", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("consumers", "columns", "synchronous"), [(1, 64, False), (1, 64, True), (2, 128, False)], ids=str
)
def test_weights_of_four_bits(device, blocks, consumers, columns, synchronous):
    multiply(device, 70, 72, 128 * blocks, consumers, columns, synchronous)


def test_words_stand_for_their_weights():
    """A scale of one, and weights that are integers: nothing is rounded."""
    whole = np.random.default_rng(0).integers(-7, 8, (8, 256)).astype(np.float32)
    whole[:, ::128] = 7
    words, scales = INT4.quantise(whole)
    assert abs(scales.astype(np.float64) - 1).max() < 1e-3
    np.testing.assert_allclose(INT4.dequantised(words, scales), whole, rtol=1e-3)


@needs_nvrtc
@pytest.mark.parametrize(("consumers", "columns"), [(1, 128), (2, 256)], ids=str)
def test_weights_are_unpacked_while_an_mma_runs(consumers, columns):
    x, out = np.zeros((8, 256), np.float16), np.zeros((8, 64), np.float16)
    words, scales = INT4.quantise(np.zeros((64, 256), np.float32))
    kernel = INT4.matmul_int4(words, scales, x, out, consumers, columns)
    names = mnemonics(kernel.asm["sass"])
    short = {"HGMMA": "G", "WARPGROUP.DEPBAR.LE": "W", "LOP3.LUT": "u", "HMUL2": "s"}
    text = "".join(next((mark for name, mark in short.items() if each.startswith(name)), "") for each in names)
    # In the loop, from the wait that leaves one MMA in flight to the next MMA: 32 packed multiplications by scales.
    between = [part for part in re.findall(r"W([^GW]*)G", text) if part.count("s") >= 32]
    assert len(between) >= consumers, text
    assert written_in_flight(kernel.asm["sass"]) == []
    assert kernel.n_spills == 0 and re.findall(r"C75\d\d", kernel.front.machine_code.log) == []
