"""`topk_gating` with its gradient, `argmax`, `count_experts` and `sort_experts`, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.kernels_lib.rows import MATRIX, Recorder, close, slope
from tests.kernels_lib.test_errors import refused
from weft.errors import UserError
from weft.kernels import argmax, count_experts, sort_experts, topk_gating, topk_gating_backward
from weft.kernels.device.gating import choose
from weft.kernels.rows import gating
from weft.runtime import nvrtc

SIZES = [(1, 1), (8, 2), (7, 3), (129, 8), pytest.param(256, 8, marks=MATRIX), pytest.param(1000, 32, marks=MATRIX)]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def weights_at(x, order, renormalise):
    w = np.take_along_axis(softmax(x.astype(np.float64)), order, -1)
    return w / w.sum(-1, keepdims=True) if renormalise else w


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize(("experts", "k"), SIZES)
def test_the_best_experts(device, rng, experts, k, renormalise):
    x = rng.standard_normal((5, 7, experts)).astype(ml_dtypes.bfloat16)
    weights, indices = topk_gating(device.array(x), k, renormalise=renormalise)
    order = np.argsort(-x.astype(np.float32), -1, kind="stable")[..., :k]
    np.testing.assert_array_equal(device.numpy(indices), order)
    np.testing.assert_allclose(device.numpy(weights), weights_at(x, order, renormalise), rtol=1e-5)


@pytest.mark.parametrize("renormalise", [True, False])
def test_the_gradient_is_the_slope(device, rng, renormalise):
    x, upper = rng.standard_normal((6, 9)).astype(np.float32), rng.standard_normal((6, 3)).astype(np.float32)
    logits = device.array(x)
    weights, indices = topk_gating(logits, 3, renormalise=renormalise)
    order = device.numpy(indices)
    got = topk_gating_backward(device.array(upper), logits, weights, indices, renormalise=renormalise, out=logits)
    assert got is logits
    close(device.numpy(got), slope(lambda x: weights_at(x, order, renormalise), x.astype(np.float64), upper), 1e-4)


def test_values_that_are_not_finite(device):
    x = np.zeros((3, 8), np.float32)
    x[0, 4], x[1, :6], x[2, [2, 5]] = np.nan, -np.inf, -0.0
    weights, indices = (device.numpy(each) for each in topk_gating(device.array(x), 3))
    assert indices[0, 0] == 4 and np.isnan(weights[0]).all()
    np.testing.assert_array_equal(indices[1:], [[6, 7, 0], [0, 1, 2]])
    np.testing.assert_allclose(weights[1:], [[0.5, 0.5, 0], [1 / 3] * 3], rtol=1e-6)
    assert device.numpy(argmax(device.array(x))).tolist() == [4, 6, 0]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("count", "experts"), [(1, 1), (7, 3), (1024, 128), (3001, 60), pytest.param(70_001, 300, marks=MATRIX)]
)
def test_counts_and_order(device, rng, count, experts, dtype):
    ids = rng.integers(0, experts, count).astype(dtype)
    counts, given = np.bincount(ids, minlength=experts), device.array(ids)
    np.testing.assert_array_equal(device.numpy(count_experts(given, experts)), counts)
    found = [device.numpy(each) for each in sort_experts(given, experts)]
    order = np.argsort(ids, kind="stable")
    want = order, np.argsort(order), counts, np.concatenate([[0], np.cumsum(counts)])
    for got, each in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, each)


def test_one_expert_has_all(device):
    found = sort_experts(device.array(np.full((40, 50), 2, np.int32)), 4)
    np.testing.assert_array_equal(device.numpy(found.order), np.arange(2000))
    np.testing.assert_array_equal(device.numpy(found.offsets), [0, 0, 0, 2000, 2000])


def test_empty(device):
    none = device.array(np.zeros((0, 8), np.float32))
    assert [each.shape for each in topk_gating(none, 2)] == [(0, 2), (0, 2)]
    # Strides of arrays without elements may be anything.
    for ids in (np.zeros(0, np.int32), as_strided(np.zeros(0, np.int32), (0, 2), (0, 0))):
        given = device.array(ids)
        assert (
            not device.numpy(count_experts(given, 5)).any() and not device.numpy(sort_experts(given, 5).offsets).any()
        )


def test_an_expert_that_there_is_not():
    for expert in (-1, 4):
        with pytest.raises(UserError, match="expert"):
            count_experts(np.array([0, expert], np.int32), 4)


def test_mistakes():
    x = np.zeros((4, 8), np.float32)
    refused("kernels-rows-parameter", lambda: topk_gating(x, 9), "k=9", "8")
    refused("kernels-rows-parameter", lambda: topk_gating(x, True), "k=True")
    refused("kernels-rows-parameter", lambda: topk_gating(np.zeros((2, 2000), np.float32), 2), "1024 experts", "topk")
    refused("kernels-rows-dtype", lambda: topk_gating(x.astype(np.int32), 2), "int32")
    w, i = topk_gating(x, 2)
    refused("kernels-rows-shape", lambda: topk_gating_backward(w, x[:2], w, i), "weights has shape [4, 2]", "[2, 2]")
    refused("kernels-rows-shape", lambda: topk_gating_backward(w[:2], x, w, i), "grad has shape [2, 2]")
    refused("kernels-rows-dtype", lambda: sort_experts(x, 4), "float32", "int64")
    refused("kernels-rows-parameter", lambda: sort_experts(i, 5000), "experts=5000", "4096")
    refused("kernels-rows-strides", lambda: sort_experts(i.T, 8), "ids has shape [2, 4]")


@pytest.mark.matrix
@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
def test_machine_code(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(gating, "choose", recorder)
    topk_gating(np.zeros((4096, 128), np.float32), 8)
    ((arguments, options),) = recorder.given
    compiled = choose.warmup(*arguments, **options, target="sm_90a")
    assert compiled.n_spills == 0 and compiled.n_regs <= 64 and "LDG.E.128" in compiled.asm["sass"]
