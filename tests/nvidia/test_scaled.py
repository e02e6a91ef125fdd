"""Quantising on the host: against the definition of each format, and the order of scales in tensor memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from weft.errors import LaunchError
from weft.nvidia.scaled import KINDS, Scaled, pack, quantise, scale_blocks, unpack


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) * np.exp2(rng.integers(-30, 30, (*shape[:-1], 1)))).astype(np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_each_number_is_the_nearest(name):
    """No other element is closer, under the scale of the run; larger ones than all become the largest."""
    rng = np.random.default_rng(3)
    x = numbers(rng, 20, 96)
    found = quantise(x, name)
    kind = KINDS[name]
    codes = np.arange(16 if kind.element == "e2m1" else 256, dtype=np.uint8).view(kind.dtype).astype(np.float64)
    codes = np.unique(codes[np.isfinite(codes)])
    factors = found.values() * 0 + np.repeat(
        found.scales.view(ml_dtypes.float8_e8m0fnu).astype(float) if name != "nvfp4" else found.scales.astype(float),
        kind.run, axis=-1,
    )  # fmt: skip
    wanted = np.clip(x / factors, codes[0], codes[-1])
    got = found.values() / factors
    least = np.abs(codes[None, None] - wanted[..., None]).min(-1)
    np.testing.assert_array_equal(np.abs(got - wanted), least)


@pytest.mark.parametrize("name", ["mxfp8e4m3", "mxfp8e5m2", "mxfp4"])
def test_powers_of_two_bring_the_largest_into_the_last_binade(name):
    rng = np.random.default_rng(4)
    x = numbers(rng, 50, 32)
    scales = np.exp2(quantise(x, name).scales[:, 0].astype(float) - 127)
    largest, top = KINDS[name].largest, np.abs(x.astype(float)).max(-1)
    last = 2.0 ** np.floor(np.log2(largest))
    assert ((top / scales >= last) & (top / scales < 2 * last)).all()


def test_scales_of_nvfp4_bring_the_largest_to_the_largest():
    x = np.zeros((1, 32))
    x[0, 3], x[0, 20] = 6 * 1.25, -6 * 1e9
    found = quantise(x, "nvfp4")
    assert found.scales.tolist() == [[1.25, 448]]
    assert found.values()[0, [3, 20]].tolist() == [7.5, -6 * 448]


def test_zeros_and_what_is_not_finite():
    x = np.zeros((2, 64), np.float32)
    x[1, 5], x[1, 40] = np.inf, 3
    found = quantise(x, "mxfp8e4m3")
    assert found.scales.tolist() == [[127, 127], [255, 120]]
    assert np.isnan(found.values()[1, :32]).all()
    assert found.values()[1, 40] == 3
    assert np.isnan(quantise(x, "nvfp4").scales[1].astype(float)).tolist() == [True, False, False, False]


def test_the_first_of_two_is_in_the_low_half():
    x = np.array([[0.5, -6.0, 3.0, 0.0] + [0.0] * 28])
    found = quantise(x, "mxfp4")
    assert found.elements[0, :2].tolist() == [0xF1, 0x05]
    assert (found.element, found.elements.shape, found.scales.tolist()) == ("e2m1", (1, 16), [[127]])
    codes = np.random.default_rng(5).integers(0, 16, (3, 8)).astype(np.uint8)
    np.testing.assert_array_equal(unpack(pack(codes)), codes)


@pytest.mark.parametrize(("rows", "runs"), [(128, 4), (256, 8), (100, 6), (1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, ml_dtypes.float8_e4m3fn])
def test_scales_in_the_order_of_tensor_memory(rows, runs, dtype):
    scales = np.random.default_rng(6).integers(1, 120, (rows, runs)).astype(np.uint8).view(dtype)
    blocks = scale_blocks(scales)
    assert blocks.shape == (-(-rows // 128), -(-runs // 4), 32, 4, 4)
    assert blocks.dtype == scales.dtype
    found, seen = blocks.view(np.uint8), 0
    for (i, j, r, q, s), value in np.ndenumerate(found):
        row, run = 128 * i + 32 * q + r, 4 * j + s
        inside = row < rows and run < runs
        assert value == (scales.view(np.uint8)[row, run] if inside else 0)
        seen += inside
    assert seen == rows * runs


def test_values_of_a_known_array():
    scales = np.array([[128, 126]], np.uint8)
    elements = np.arange(64, dtype=np.uint8)[None].view(ml_dtypes.float8_e4m3fn)
    values = Scaled("mxfp8e4m3", elements, scales).values()
    np.testing.assert_array_equal(values[0, :32], elements[0, :32].astype(float) * 2)
    np.testing.assert_array_equal(values[0, 32:], elements[0, 32:].astype(float) / 2)


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("scaled-format", lambda: quantise(np.zeros((2, 32)), "mxfp6")),
        ("scaled-runs", lambda: quantise(np.zeros((2, 48)), "mxfp4")),
        ("scaled-runs", lambda: quantise(np.float32(1), "nvfp4")),
        ("scaled-scales", lambda: scale_blocks(np.zeros((2, 3, 4), np.uint8))),
        ("scaled-scales", lambda: scale_blocks(np.zeros((2, 3), np.float32))),
    ],
)
def test_what_cannot_be_quantised(code, make):
    with pytest.raises(LaunchError) as caught:
        make()
    assert caught.value.code == code
