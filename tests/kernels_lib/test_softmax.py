"""`softmax` of rows, by one block and by clusters, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.effort import crossed
from tests.kernels_lib.rows import COLUMNS, Recorder, slope
from tests.kernels_lib.rows import close as rows_close
from tests.kernels_lib.test_errors import refused
from weft.errors import UserError
from weft.kernels import (
    RowConfig,
    SoftmaxConfig,
    chosen_softmax,
    log_softmax,
    log_softmax_backward,
    rowwise,
    softmax,
    softmax_backward,
)
from weft.kernels.device.softmax import softmax_rows

BOUND = {np.float32: 1e-5, np.float16: 2e-3, ml_dtypes.bfloat16: 1e-2}


def expected(x):
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


def close(y, x):
    want, tiny = expected(x), 1e-7
    assert y.dtype == x.dtype and y.shape == x.shape
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=BOUND[x.dtype.type], atol=tiny)


def array(device, x):
    return device.array(x)


@pytest.mark.parametrize("cols", COLUMNS)
def test_log_softmax(device, rng, cols):
    x = (rng.standard_normal((2, 1, cols)) * 5).astype(np.float32)
    wide = x.astype(np.float64)
    want = (
        wide - np.log(np.exp(wide - wide.max(-1, keepdims=True)).sum(-1, keepdims=True)) - wide.max(-1, keepdims=True)
    )
    np.testing.assert_allclose(device.numpy(log_softmax(device.array(x))), want, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("cols", [1, 23, 32])
def test_log_softmax_of_one_element_in_a_thread(device, rng, cols, dtype):
    """Elements of 16 bits are kept as they are in pairs, of which such a thread has half a one."""
    x = rng.standard_normal((3, cols)).astype(dtype)
    found = device.numpy(log_softmax(device.array(x))).astype(np.float64)
    np.testing.assert_allclose(found, np.log(expected(x)), rtol=BOUND[dtype], atol=BOUND[dtype])


@pytest.mark.parametrize("config", [RowConfig(), RowConfig(2, 1, programs=2), RowConfig(1, 1, programs=1)], ids=str)
@pytest.mark.parametrize("cols", [9, 260])
def test_gradients(device, rng, config, cols):
    """By the formula, and in a short row by the slope."""
    x, grad = (rng.standard_normal((5, cols)).astype(np.float32) for _ in range(2))
    y, logs = expected(x), np.log(expected(x))
    given = device.array(grad), device.array(y.astype(np.float32)), device.array(logs.astype(np.float32))
    plain = device.numpy(softmax_backward(given[0], given[1], config=config))
    log = device.numpy(log_softmax_backward(given[0], given[2], config=config))
    rows_close(plain, y * (grad - (grad * y).sum(1, keepdims=True)))
    rows_close(log, grad - y * grad.astype(np.float64).sum(1, keepdims=True))
    if cols < 10:
        rows_close(plain, slope(expected, x.astype(np.float64), grad), 1e-4)
        rows_close(log, slope(lambda x: np.log(expected(x)), x.astype(np.float64), grad), 1e-4)


@pytest.mark.parametrize(
    ("partition", "cols", "dtype"),
    crossed([(2, 2), (1, 1), (1, 4), (4, 1), (8, 2), (16, 1)], [4001, 4096, 17], BOUND),
)
def test_rows_of_any_length(device, rng, partition, cols, dtype):
    blocks, warps = partition
    x = (rng.standard_normal((7, cols)) * 5).astype(dtype)
    given, out = device.array(x), device.array(np.full(x.shape, np.nan, dtype))
    assert softmax(given, out, config=SoftmaxConfig(blocks, warps)) is out
    close(device.numpy(out), x)


@pytest.mark.parametrize("cols", [1, 100, 20_000])
def test_the_choice(device, rng, cols):
    x = (rng.standard_normal((3, cols)) * 20).astype(np.float32)
    close(device.numpy(softmax(device.array(x))), x)


def test_strides_and_in_place(device, rng):
    wide = rng.standard_normal((5, 300)).astype(np.float32)
    given = device.array(wide)
    part = given[:, 100:228]
    softmax(part, part)
    left = device.numpy(given)
    np.testing.assert_array_equal(left[:, :100], wide[:, :100])
    np.testing.assert_array_equal(left[:, 228:], wide[:, 228:])
    close(np.ascontiguousarray(left[:, 100:228]), np.ascontiguousarray(wide[:, 100:228]))


def test_values_that_are_not_finite(device):
    x = np.zeros((4, 640), np.float32)
    x[0, 5], x[1, :], x[2, 600], x[3, 7:] = np.nan, -np.inf, np.inf, -np.inf
    y = device.numpy(softmax(device.array(x), config=SoftmaxConfig(4, 1)))
    assert np.isnan(y[:3]).all()
    np.testing.assert_allclose(y[3, :7], 1 / 7, rtol=1e-6)
    assert (y[3, 7:] == 0).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_large_numbers(device, dtype):
    """Products of logits with log2(e) round to anything, or to infinity."""
    least, most = (float(get(dtype)) for get in (lambda t: ml_dtypes.finfo(t).min, lambda t: ml_dtypes.finfo(t).max))
    x = np.array([[most, most, 0, least], [least] * 4, [65280, 65024, 65280, -1], [-3e4, -3e4, least, -4e4]], dtype)
    want = np.array([[0.5, 0.5, 0, 0], [0.25] * 4, [0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0]])
    np.testing.assert_array_equal(device.numpy(softmax(device.array(x))).astype(np.float64), want)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_rows_of_the_least_finite_number(device, dtype):
    x = np.full((2, 640), ml_dtypes.finfo(dtype).min, dtype)
    x[1, 3] = 1
    y = device.numpy(softmax(device.array(x), config=SoftmaxConfig(2, 2))).astype(np.float64)
    np.testing.assert_allclose(y[0], 1 / 640, rtol=1e-2)
    np.testing.assert_array_equal(y[1], np.arange(640) == 3)


def test_empty(device):
    assert softmax(device.array(np.zeros((0, 5), np.float32))).shape == (0, 5)


@pytest.mark.parametrize("before", [2, 4, 12])
def test_gradients_of_rows_that_are_aligned_for_some_vectors(device, rng, before):
    """Where no row is aligned to 16 bytes, copies are as narrow as what rows are aligned to."""
    given = [device.array(np.zeros(3 * 282 + 16, np.float16))[before : before + 3 * 282] for _ in range(3)]
    y, grad, out = (x.reshape(3, 282) for x in given)
    y[:], grad[:] = (device.array(rng.standard_normal((3, 282)).astype(np.float16)) for _ in range(2))
    softmax_backward(grad, y, out)
    g, p = (device.numpy(x).astype(np.float64) for x in (grad, y))
    want = p * (g - (g * p).sum(1, keepdims=True))
    np.testing.assert_allclose(device.numpy(out).astype(np.float64), want, rtol=2e-3, atol=2e-3)


def test_elements_that_are_not_aligned_are_a_hazard():
    raw = np.zeros(4 * 40 + 1, np.uint8)
    with pytest.raises(UserError, match="past a multiple of 4") as caught:
        softmax(raw[1:].view(np.float32).reshape(2, 20), np.empty((2, 20), np.float32))
    assert caught.value.code == "hazard-misaligned"


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize(
    ("cols", "stride", "ahead"), [(4096, 4096, True), (4000, 4016, True), (4000, 4008, True), (501, 501, False)]
)
def test_rows_that_are_not_aligned_are_loaded(dtype, cols, stride, ahead, monkeypatch):
    """The simulator copies elements of any alignment, so the kernel is compiled here."""
    recorder = Recorder()
    monkeypatch.setattr(rowwise, "softmax_rows", recorder)
    monkeypatch.setattr(rowwise, "persistent", lambda *_: 1)
    x = np.zeros((3, stride), dtype)[:, :cols]
    softmax(x, np.empty_like(x), config=SoftmaxConfig(2, 4))
    ((arguments, options),) = recorder.given
    text = softmax_rows.warmup(*arguments, **options, target="sm_90a").asm["cuda"]
    assert ("cp.async" in text) == (ahead or dtype is np.float32)


def test_longer_rows_take_larger_clusters():
    chosen = [chosen_softmax(cols, "float32") for cols in (100, 4096, 16384, 16385, 65536, 131072, 262144, 524288)]
    assert [config.num_ctas for config in chosen] == [1, 1, 1, 4, 8, 16, 16, 16]
    narrow = [chosen_softmax(cols, "bfloat16") for cols in (16384, 32768, 32769, 65536, 65537, 131072, 131073, 262144)]
    assert [config.num_ctas for config in narrow] == [1, 4, 8, 8, 16, 16, 16, 16]


def test_mistakes():
    x = np.zeros((4, 64), np.float32)
    refused("kernels-rows-array", lambda: softmax([1.0]), "softmax", "x is a list")
    refused("kernels-rows-strides", lambda: softmax(x.T), "x has shape [64, 4] and strides [1, 64]")
    refused("kernels-rows-dtype", lambda: log_softmax(x.astype(np.int32)), "log_softmax", "int32")
    refused("kernels-rows-shape", lambda: softmax(x, x[:2]), "[2, 64]", "[4, 64]")
    refused("kernels-rows-shape", lambda: softmax_backward(x[:2], x), "grad has shape [2, 64]", "[4, 64]")
    refused("kernels-rows-columns", lambda: softmax_backward(*[np.zeros((1, 300_000), np.float32)] * 2), "300000")
    refused("kernels-softmax-columns", lambda: softmax(np.zeros((1, 600_000), np.float32)), "600000", "524288")
    refused("kernels-out-overlaps", lambda: softmax(x[:2], x[1:3]), "x")
