"""The top k of rows: values, positions and their order against NumPy, for every type, length and number of elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.effort import crossed
from weft.errors import LaunchError
from weft.kernels import topk


def expected(x, k, largest):
    """Positions of the best elements: NaN is the largest number, and of equal elements the first comes first."""
    wide = x.astype(np.float64)
    nan = np.isnan(wide)
    rank = np.where(nan, 0, wide)
    return np.lexsort((-rank, ~nan) if largest else (rank, nan), axis=-1)[..., :k]


def check(device, x, k, largest=True):
    """Arrays of the device, and back."""
    values, indices = (device.numpy(out) for out in topk(device.array(x), k, largest=largest))
    at = expected(x, k, largest)
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(indices, at)
    np.testing.assert_array_equal(values.astype(np.float64), np.take_along_axis(x, at, -1).astype(np.float64))


KINDS = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.int16]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 40), (2, 2500)], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_types(device, rng, kind, shape, largest):
    check(device, (rng.normal(size=shape) * 30).astype(kind), 8, largest)


@pytest.mark.parametrize("k", [1, 3, 33, 100, 257, 512])
def test_numbers_of_elements(device, rng, k):
    check(device, rng.normal(size=(2, 3000)).astype(np.float32), k)
    check(device, rng.normal(size=(2, 600)).astype(np.float32), k, False)


@pytest.mark.parametrize("columns", [1, 31, 33, 1024, 1025, 2047, 4099])
def test_lengths(device, rng, columns):
    check(device, rng.normal(size=(3, columns)).astype(np.float32), min(columns, 5))


def test_ties_go_to_the_first(device, rng):
    for x in (np.zeros((1, 4000)), rng.integers(-2, 3, (1, 4000)), np.full((1, 1500), -(2**31))):
        for kind in (np.float32, np.int32):
            check(device, x.astype(kind), 9)
            check(device, x.astype(kind), 9, False)


@pytest.mark.parametrize("largest", [True, False])
def test_not_a_number_and_infinities(device, rng, largest):
    x = rng.normal(size=(3, 2200)).astype(np.float32)
    x[0, [3, 1500, 2199]] = np.nan
    x[0, 700] = -np.nan
    x[1] = np.nan
    x[1, [5, 2000]] = 1
    x[2, ::3], x[2, 1::3] = np.inf, -np.inf
    x[2, 2::6] = -0.0
    check(device, x, 6, largest)


@pytest.mark.parametrize(
    ("kind", "largest", "columns"), crossed([np.float16, np.int8, np.float32], [True, False], [3071, 1301, 2049])
)
def test_rows_between_aligned_addresses(device, rng, kind, largest, columns):
    """Ends of rows win and lose ties as their positions say: few different values, and others at the ends."""
    x = rng.integers(-2, 3, (9, columns)).astype(kind)
    x[4:, :6], x[4:, -6:] = 3, -3
    x[7:, :6], x[7:, -6:] = -3, 3
    check(device, x, 7, largest)
    check(device, rng.integers(-60, 60, (9, columns)).astype(kind), 40, largest)


def test_few_long_rows_are_split(device, rng):
    x = rng.normal(size=(1, 2, 40_000)).astype(np.float32)
    x[0, 1] = np.sort(x[0, 1])
    check(device, x, 7)


def test_strided_rows(device, rng):
    x = rng.normal(size=(2, 4, 1100)).astype(np.float32)
    given = device.array(x)
    parts = [given[:, :, 3:1090], given[1, 1:, 1:], given[:, :1]]
    for part in parts if device.is_gpu else [*parts, given[:, :, ::-1]]:
        values, indices = map(device.numpy, topk(part, 4))
        host = np.array(device.numpy(part))
        np.testing.assert_array_equal(indices, expected(host, 4, True))
        np.testing.assert_array_equal(values, np.take_along_axis(host, indices, -1))


def test_no_rows():
    values, indices = topk(np.zeros((0, 5), np.float32), 2)
    assert values.shape == indices.shape == (0, 2)


X = np.zeros((4, 6, 8), np.float32)
WRONG = {
    "kernels-topk-array": [(lambda: topk("x", 1), "a str"), (lambda: topk(X[:, :3], 1), "[4, 3, 8]"), (
        lambda: topk(np.float32(1), 1), "array")],
    "kernels-topk-dtype": [(lambda: topk(X.astype(np.float64), 1), "float64")],
    "kernels-topk-k": [(lambda k=k: topk(X, k), f"k={k!r}") for k in (0, 9, 2.0, True, -1)],
}  # fmt: skip


@pytest.mark.parametrize(("code", "call", "word"), [(code, *each) for code, rows in WRONG.items() for each in rows])
def test_mistakes(code, call, word):
    with pytest.raises(LaunchError) as error:
        call()
    assert error.value.code == code and word in str(error.value)
