"""`softmax` of rows, by one block and by clusters, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.test_errors import refused
from weft.kernels import SoftmaxConfig, chosen_softmax, rowwise, softmax
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


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize(("blocks", "warps"), [(1, 1), (1, 4), (2, 2), (4, 1), (8, 2), (16, 1)])
@pytest.mark.parametrize("cols", [4096, 4001, 17])
def test_rows_of_any_length(device, rng, blocks, warps, cols, dtype):
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


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_rows_of_the_least_finite_number(device, dtype):
    x = np.full((2, 640), ml_dtypes.finfo(dtype).min, dtype)
    x[1, 3] = 1
    y = device.numpy(softmax(device.array(x), config=SoftmaxConfig(2, 2))).astype(np.float64)
    np.testing.assert_allclose(y[0], 1 / 640, rtol=1e-2)
    np.testing.assert_array_equal(y[1], np.arange(640) == 3)


def test_empty(device):
    assert softmax(device.array(np.zeros((0, 5), np.float32))).shape == (0, 5)


@pytest.mark.parametrize("dtype", list(BOUND))
@pytest.mark.parametrize(
    ("cols", "stride", "ahead"), [(4096, 4096, True), (4000, 4016, True), (4000, 4008, False), (4001, 4001, False)]
)
def test_rows_that_are_not_aligned_are_loaded(dtype, cols, stride, ahead, monkeypatch):
    """The simulator copies elements of any alignment, so the kernel is compiled here."""
    given: list[tuple] = []
    monkeypatch.setattr(rowwise, "softmax_rows", Recorder(given))
    x = np.zeros((3, stride), dtype)[:, :cols]
    softmax(x, np.empty_like(x), config=SoftmaxConfig(2, 4))
    ((arguments, options),) = given
    text = softmax_rows.warmup(*arguments, **options, target="sm_90a").asm["cuda"]
    assert ("cp.async" in text) == (ahead or dtype is np.float32)


class Recorder:
    """A kernel that only keeps what it is launched with."""

    def __init__(self, given):
        self.given = given

    def __getitem__(self, grid):
        return lambda *arguments, stream, **options: self.given.append((arguments, options))


def test_longer_rows_take_larger_clusters():
    chosen = [chosen_softmax(cols, "float32") for cols in (100, 4096, 16384, 16385, 65536, 131072, 262144, 524288)]
    assert [config.num_ctas for config in chosen] == [1, 1, 1, 2, 4, 8, 16, 16]
    assert all(config.part(1, 4) <= 32768 for config in chosen)


def test_mistakes():
    x = np.zeros((4, 64), np.float32)
    refused("kernels-array", lambda: softmax(x[0]), "x is an array of shape [64]")
    refused("kernels-softmax", lambda: softmax(x.T), "float32 [64, 4]", "strides [1, 64]")
    refused("kernels-softmax", lambda: softmax(x.astype(np.int32)), "int32")
    refused("kernels-softmax-out", lambda: softmax(x, x[:2]), "float32 [2, 64]", "float32 [4, 64]")
    refused("kernels-softmax-columns", lambda: softmax(np.zeros((1, 600_000), np.float32)), "600000", "524288")
    refused("kernels-out-overlaps", lambda: softmax(x[:2], x[1:3]), "x")
