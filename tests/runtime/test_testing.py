"""Comparing results and summing up times; measuring itself needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from weft import testing
from weft.errors import DeviceError


def test_close_values_pass():
    testing.assert_close(np.float32([1, np.nan, np.inf]), np.float32([1 + 1e-6, np.nan, np.inf]))
    testing.assert_close(3, 3)
    testing.assert_close(np.arange(4), np.arange(4))
    testing.assert_close(np.zeros((0, 3)), np.zeros((0, 3)))


def test_the_report_names_the_worst_element():
    x = np.zeros((4, 8), np.float32)
    y = x.copy()
    y[1, 2], y[3, 5] = 0.5, -2
    with pytest.raises(AssertionError) as caught:
        testing.assert_close(x, y, atol=0.1, rtol=0, err_msg="after the copy")
    text = str(caught.value)
    assert text.startswith("after the copy\n2 of 32 elements")
    assert "(3, 5): got 0.0, expected -2.0, off by 2" in text


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.float32([np.nan]), np.float32([1])),
        (np.float32([np.inf]), np.float32([-np.inf])),
        (np.float32([np.inf]), np.float32([1])),
        (np.int32([5]), np.int32([6])),
        (np.int64([2**60]), np.int64([2**60 + 1])),
        (np.bool_([True]), np.bool_([False])),
        (np.zeros(3), np.zeros((3, 1))),
    ],
)
def test_what_differs(x, y):
    with pytest.raises(AssertionError):
        testing.assert_close(x, y)


def test_tolerances_are_absolute_plus_relative():
    testing.assert_close(np.float64([110.0]), np.float64([100.0]), atol=5, rtol=0.05)
    with pytest.raises(AssertionError):
        testing.assert_close(np.float64([110.1]), np.float64([100.0]), atol=5, rtol=0.05)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_tensors_of_torch(torch, name):
    x = torch.tensor([0.0, 1.0, 2.0]).to(getattr(torch, name))
    testing.assert_close(x, x.clone())
    y = x.clone()
    y[0] = 1
    with pytest.raises(AssertionError, match="1 of 3"):
        testing.assert_close(x, y)


@pytest.mark.parametrize(
    ("mode", "expected"), [("mean", 2.5), ("median", 2.0), ("min", 1.0), ("max", 5.0), ("all", [2.0, 1.0, 2.0, 5.0])]
)
def test_return_modes(mode, expected):
    assert testing.summarise([2.0, 1.0, 2.0, 5.0], None, mode) == expected


def test_quantiles_agree_with_numpy():
    times = [3.0, 1.0, 4.0, 1.5, 9.0]
    quantiles = [0.0, 0.2, 0.5, 0.83, 1.0]
    assert testing.summarise(times, quantiles, "mean") == pytest.approx(np.quantile(times, quantiles))


@pytest.mark.parametrize("bench", [testing.do_bench, testing.do_bench_cudagraph])
def test_measuring_without_a_gpu(torch, bench):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError) as caught:
        bench(lambda: None)
    assert caught.value.code == "device-no-benchmark"


@pytest.mark.gpu
@pytest.mark.parametrize("bench", [testing.do_bench, testing.do_bench_cudagraph])
def test_measuring_a_copy(torch, bench):
    x = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    y = torch.empty_like(x)
    low, high = bench(lambda: y.copy_(x), quantiles=[0.1, 0.9])
    assert 0.01 < low <= high < 10
