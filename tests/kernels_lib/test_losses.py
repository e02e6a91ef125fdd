"""`cross_entropy` and its gradient, in one pass and in two, against float64 and finite differences."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.kernels_lib.rows import COLUMNS, MATRIX, TYPES, Recorder, close, slope
from tests.kernels_lib.test_errors import refused
from weft.errors import UserError
from weft.kernels import RowConfig, cross_entropy, cross_entropy_backward
from weft.kernels.device.losses import cross_entropy_backward_rows, cross_entropy_clusters, cross_entropy_rows
from weft.kernels.rows import losses as host
from weft.runtime import nvrtc

NUMBERS = [{}, {"label_smoothing": 0.1, "z_loss": 1e-2}]


def expected(x, labels, label_smoothing=0.0, z_loss=0.0, ignore_index=-100):
    """Losses, logarithms of sums of powers, and gradients in float64."""
    x, rows = x.astype(np.float64), np.arange(len(labels))
    peak = x.max(1)
    lse = np.log(np.exp(x - peak[:, None]).sum(1)) + peak
    counts, label = labels != ignore_index, np.where(labels != ignore_index, labels, 0)
    loss = lse - (1 - label_smoothing) * x[rows, label] - label_smoothing * x.mean(1) + z_loss * lse**2
    grad = np.exp(x - lse[:, None]) * (1 + 2 * z_loss * lse)[:, None] - label_smoothing / x.shape[1]
    grad[rows, label] -= 1 - label_smoothing
    return np.where(counts, loss, 0), lse, np.where(counts[:, None], grad, 0)


def given(rng, rows, cols, dtype=np.float32):
    labels = rng.integers(0, cols, rows)
    labels[rows // 2] = -100
    return (rng.standard_normal((rows, cols)) * 3).astype(dtype), labels


@pytest.mark.parametrize("numbers", NUMBERS, ids=["plain", "smoothed"])
@pytest.mark.parametrize(
    "dtype", ["bfloat16", pytest.param("float16", marks=MATRIX), pytest.param("float32", marks=MATRIX)]
)
@pytest.mark.parametrize("cols", COLUMNS)
def test_losses_and_gradients(device, rng, cols, dtype, numbers):
    """Losses alone, losses with gradients in place, and gradients from the sums."""
    x, labels = given(rng, 3, cols, TYPES[dtype])
    loss, lse, grad = expected(x, labels, **numbers)
    logits, classes = device.array(x), device.array(labels)
    got = cross_entropy(logits, classes, **numbers)
    for each, want in zip(got, (loss, lse), strict=True):
        close(device.numpy(each), want, 1e-4)
    later = cross_entropy_backward(2.0, logits, classes, got[1], **numbers)
    close(device.numpy(later), 2 * grad)
    scale = np.arange(1, 4, dtype=np.float32)
    same = cross_entropy(logits, classes, grad=logits, grad_scale=device.array(scale), **numbers)
    np.testing.assert_allclose(device.numpy(same[0]), loss, rtol=1e-4, atol=1e-4)
    close(device.numpy(logits), grad * scale[:, None])


@pytest.mark.parametrize(
    "config", [RowConfig(2, 1), RowConfig(1, 1, programs=2), RowConfig(4, 2, programs=1), RowConfig(1, 2, 8)], ids=str
)
def test_layouts(device, rng, config):
    """Rows over a cluster, and rows that a program reads twice because it cannot hold them."""
    x, labels = given(rng, 4, 1500)
    loss, _, grad = expected(x, labels, *NUMBERS[1].values())
    out = device.full(x.shape, np.nan)
    got = cross_entropy(device.array(x), device.array(labels.astype(np.int32)), grad=out, config=config, **NUMBERS[1])
    close(device.numpy(got[0]), loss, 1e-4)
    close(device.numpy(out), grad)


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_rows_in_place(device, rng, ahead):
    """The thread that holds the logit of a class reads it before its place is written to, rows ahead of the others."""
    x, labels = given(rng, 5, 1000)
    labels[0], labels[-1] = 0, 999
    logits = device.array(x)
    cross_entropy(logits, device.array(labels), grad=logits, config=RowConfig(2, 2, programs=1, ahead=ahead))
    close(device.numpy(logits), expected(x, labels)[2])


@pytest.mark.parametrize("numbers", NUMBERS, ids=["plain", "smoothed"])
def test_classes_where_blocks_of_a_cluster_meet(device, rng, numbers):
    """One thread has a class: blocks of four have 1,056 columns each of 4,200 float32, the last one 1,032."""
    labels = np.array([0, 1055, 1056, 2111, 2112, 3167, 3168, 4199])
    x = (rng.standard_normal((len(labels), 4200)) * 3).astype(np.float32)
    loss, lse, grad = expected(x, labels, **numbers)
    logits = device.array(x)
    got = cross_entropy(logits, device.array(labels), grad=logits, config=RowConfig(4, 2, 64), **numbers)
    for each, want in zip((*got, logits), (loss, lse, grad), strict=True):
        close(device.numpy(each), want, 1e-4)


def test_the_gradient_is_the_slope(device, rng):
    x, labels = given(rng, 3, 6)
    upper = rng.standard_normal(3).astype(np.float32)
    logits, classes = device.array(x), device.array(labels)
    _, lse = cross_entropy(logits, classes, **NUMBERS[1])
    got = cross_entropy_backward(device.array(upper), logits, classes, lse, **NUMBERS[1])
    want = slope(lambda x: expected(x, labels, **NUMBERS[1])[0], x.astype(np.float64), upper)
    close(device.numpy(got), want, 1e-4)


def test_strided_rows(device, rng):
    wide, labels = given(rng, 4, 300)
    given_rows = device.array(wide)
    part = given_rows[:, 8:264]
    cross_entropy(part, device.array(labels % 256), grad=part)
    left = device.numpy(given_rows)
    np.testing.assert_array_equal(left[:, :8], wide[:, :8])
    np.testing.assert_array_equal(left[:, 264:], wide[:, 264:])
    close(left[:, 8:264].copy(), expected(wide[:, 8:264], labels % 256)[2])


@pytest.mark.parametrize("cols", [40, 5000])
def test_values_that_are_not_finite(device, cols):
    x = np.zeros((4, cols), np.float32)
    x[0, 5], x[1, 6], x[2, 10:] = np.nan, np.inf, -np.inf
    logits = device.array(x)
    losses, _ = cross_entropy(logits, device.array(np.array([1, 1, 3, 2])), grad=logits)
    losses, grad = device.numpy(losses), device.numpy(logits)
    assert np.isnan(losses[:2]).all() and np.isnan(grad[0]).all()
    np.testing.assert_allclose(losses[2:], np.log([10, cols]), rtol=1e-5)
    assert (grad[2, 10:] == 0).all() and np.isfinite(grad[2:]).all()


def test_empty(device):
    none, no_labels = device.array(np.zeros((0, 5), np.float32)), device.array(np.zeros(0, np.int64))
    assert [each.shape for each in cross_entropy(none, no_labels, grad=none)] == [(0,), (0,)]
    assert cross_entropy_backward(1.0, none, no_labels, device.array(np.zeros(0, np.float32))).shape == (0, 5)


def test_a_class_that_there_is_not():
    """In the simulator and in debug builds an assertion of the kernel."""
    for label in (-1, 7):
        with pytest.raises(UserError, match="class index"), weft.simulate():
            cross_entropy(np.zeros((2, 7), np.float32), np.array([0, label]))


def test_mistakes():
    x, labels = np.zeros((4, 64), np.float32), np.zeros(4, np.int64)
    refused("kernels-rows-dtype", lambda: cross_entropy(x, labels.astype(np.float32)), "float32", "labels", "int64")
    refused("kernels-rows-shape", lambda: cross_entropy(x, labels[:3]), "labels has shape [3]", "[4, 64]")
    refused("kernels-rows-shape", lambda: cross_entropy(x, labels.reshape(2, 2)), "labels has shape [2, 2]", "[4]")
    refused("kernels-rows-parameter", lambda: cross_entropy(x, labels, label_smoothing=2), "label_smoothing=2")
    refused("kernels-rows-parameter", lambda: cross_entropy(x, labels, z_loss=-1.0), "z_loss")
    refused("kernels-rows-parameter", lambda: cross_entropy(x, labels, ignore_index=0.5), "ignore_index")
    refused("kernels-rows-parameter", lambda: cross_entropy(x[:, :0], labels), "at least one class")
    refused("kernels-rows-shape", lambda: cross_entropy(x, labels, grad=x[:2]), "grad has shape [2, 64]")
    refused("kernels-out-overlaps", lambda: cross_entropy(x[:2], labels[:2], grad=x[1:3]), "logits")


CODE = {
    "losses": (cross_entropy_rows, 64, 8, 72),
    "in place": (cross_entropy_clusters, 128, 8, 76),
    "later": (cross_entropy_backward_rows, 64, 4, 36),
}
"""Kernel, most registers, least accesses of 16 bytes, and most exponentials. A thread has 32 elements, in a loop and a tail or
once, or 64, and a few numbers of its own."""


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize(
    "case", [pytest.param("losses", marks=MATRIX), "in place", pytest.param("later", marks=MATRIX)]
)
def test_machine_code(monkeypatch, case):
    """A vocabulary of 128,256: 16 bytes an access, one exponential an element, no spills, two blocks a multiprocessor."""
    kernel, registers, accesses, powers = CODE[case]
    recorder = Recorder()
    monkeypatch.setattr(host, kernel.__name__, recorder)
    monkeypatch.setattr(host, "persistent", lambda *_: 1)
    x, labels = np.zeros((64, 128_256), ml_dtypes.bfloat16), np.zeros(64, np.int64)
    if case == "later":
        cross_entropy_backward(1.0, x, labels, np.zeros(64, np.float32))
    else:
        cross_entropy(x, labels, grad=x if case == "in place" else None)
    ((arguments, options),) = recorder.given
    compiled = kernel.warmup(*arguments, **options, target="sm_90a")
    code = compiled.asm["sass"]
    assert compiled.n_spills == 0 and compiled.n_regs <= registers
    assert len(re.findall(r"(?:LDG|LDGSTS)\S*\.128", code)) >= accesses and code.count("MUFU.EX2") <= powers
