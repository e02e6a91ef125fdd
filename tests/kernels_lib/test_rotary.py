"""`rope` of both pairings against float64, of heads that lie apart, and back again."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.rows import MATRIX, TYPES, Recorder, close, poisoned
from tests.kernels_lib.test_errors import Elsewhere, refused
from weft.errors import UserError
from weft.kernels import rope
from weft.kernels.device.rotary import rotate
from weft.kernels.rows import rotary
from weft.runtime import nvrtc


def expected(x, cos, sin, positions, interleaved):
    size = 2 * cos.shape[1]
    wide = x.astype(np.float64)
    pairs = (
        (np.s_[..., 0:size:2], np.s_[..., 1:size:2])
        if interleaved
        else (np.s_[..., : size // 2], np.s_[..., size // 2 : size])
    )
    a, b = wide[pairs[0]].copy(), wide[pairs[1]].copy()
    c, s = (each.astype(np.float64)[positions][:, :, None] for each in (cos, sin))
    wide[pairs[0]], wide[pairs[1]] = a * c - b * s, a * s + b * c
    return wide


def tables(rng, rows, pairs, dtype=np.float32):
    angles = rng.uniform(-3, 3, (rows, pairs))
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


@pytest.mark.parametrize(
    "dtype", ["bfloat16", pytest.param("float16", marks=MATRIX), pytest.param("float32", marks=MATRIX)]
)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("shape", "rotated"),
    [((2, 5, 3, 128), 128), ((1, 7, 8, 64), 32), ((1, 3, 1, 10), 6), ((2, 9, 40, 96), 96), ((1, 1, 1, 2), 2)],
)
def test_both_pairings(device, rng, shape, rotated, interleaved, dtype):
    x = rng.standard_normal(shape).astype(TYPES[dtype])
    cos, sin = tables(rng, shape[1] + 3, rotated // 2)
    positions = rng.integers(0, shape[1] + 3, shape[:2])
    given, angles = device.array(x), [device.array(each) for each in (cos, sin)]
    out = poisoned(device, shape, x.dtype)
    assert rope(given, *angles, positions=device.array(positions), interleaved=interleaved, out=out) is out
    close(device.numpy(out), expected(x, cos, sin, positions, interleaved))
    in_order = np.broadcast_to(np.arange(shape[1]), shape[:2])
    rope(given, *angles, interleaved=interleaved, out=given)
    close(device.numpy(given), expected(x, cos, sin, in_order, interleaved))


def test_back_again_and_the_gradient(device, rng):
    """A rotation is orthogonal: its inverse is its gradient."""
    x, upper = (rng.standard_normal((1, 4, 2, 32)).astype(np.float32) for _ in range(2))
    angles = [device.array(each) for each in tables(rng, 4, 16)]
    turned = rope(device.array(x), *angles)
    close(device.numpy(rope(turned, *angles, inverse=True)), x.astype(np.float64), 1e-5)
    back = device.numpy(rope(device.array(upper), *angles, inverse=True)).astype(np.float64)
    np.testing.assert_allclose((back * x).sum(), (device.numpy(turned).astype(np.float64) * upper).sum(), rtol=1e-5)


def test_heads_that_lie_apart(device, rng):
    """The queries of a projection of q, k and v together, in place; keys and values stay."""
    whole = rng.standard_normal((2, 3, 6, 16)).astype(np.float32)
    cos, sin = tables(rng, 3, 8)
    given = device.array(whole)
    queries = given[:, :, :4]
    rope(queries, device.array(cos), device.array(sin), out=queries)
    left = device.numpy(given)
    np.testing.assert_array_equal(left[:, :, 4:], whole[:, :, 4:])
    want = expected(whole[:, :, :4], cos, sin, np.broadcast_to(np.arange(3), (2, 3)), False)
    close(left[:, :, :4].copy(), want)


def test_empty(device):
    angles = device.array(np.zeros((5, 4), np.float32))
    assert rope(device.array(np.zeros((0, 5, 2, 8), np.float32)), angles, angles).shape == (0, 5, 2, 8)


def test_a_position_that_there_is_not():
    x, angles = np.zeros((1, 2, 1, 8), np.float32), np.zeros((3, 4), np.float32)
    for position in (-1, 3):
        with pytest.raises(UserError, match="position"):
            rope(x, angles, angles, positions=np.array([[0, position]]))


def test_mistakes():
    x, angles = np.zeros((2, 5, 3, 8), np.float32), np.zeros((5, 4), np.float32)
    refused("kernels-rows-array", lambda: rope(x[0, 0], angles, angles), "fewer than three dimensions")
    records = np.zeros((2, 5, 3), [("x", np.float16, 8), ("y", np.int8)])["x"]
    refused("kernels-rows-array", lambda: rope(records, angles, angles), "no whole elements", "8.5")
    refused("kernels-rows-dtype", lambda: rope(x.astype(np.int8), angles, angles), "int8", "x")
    refused("kernels-rows-shape", lambda: rope(x, angles, angles[:4]), "sin has shape [4, 4]", "[5, 4]")
    refused("kernels-rows-shape", lambda: rope(x[..., :6], angles, angles), "cos has shape [5, 4]", "[5, 3]")
    refused("kernels-rows-parameter", lambda: rope(x, angles[:3], angles[:3]), "positions=None", "below 3")
    refused("kernels-rows-shape", lambda: rope(x, angles, angles, positions=np.zeros(5, np.int64)), "positions", "[10]")
    refused("kernels-rows-strides", lambda: rope(x[..., ::2], angles[:, :2], angles[:, :2]), "x has shape [2, 5, 3, 4]")
    refused("kernels-rows-devices", lambda: rope(x, Elsewhere(angles, 1), Elsewhere(angles, 1)), "cos on GPU 1")
    refused(
        "kernels-out-overlaps", lambda: rope(x[:1], angles, angles, out=x.reshape(-1)[8:128].reshape(1, 5, 3, 8)), "x"
    )


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("interleaved", [False, pytest.param(True, marks=MATRIX)])
def test_machine_code(monkeypatch, interleaved):
    recorder = Recorder()
    monkeypatch.setattr(rotary, "rotate", recorder)
    x, angles = np.zeros((2, 64, 32, 128), ml_dtypes.bfloat16), np.zeros((64, 64), np.float32)
    rope(x, angles, angles, interleaved=interleaved)
    ((arguments, options),) = recorder.given
    compiled = rotate.warmup(*arguments, **options, target="sm_90a")
    assert compiled.n_spills == 0 and compiled.n_regs <= 96
    loads, wide = (len(re.findall(text, compiled.asm["sass"])) for text in (r"LDG\.", r"LDG\S*\.128"))
    # Eight of x, and cosines and sines of eight pairs (four, interleaved) in float32, once for all heads of a thread.
    assert loads == wide == (10 if interleaved else 12)
