"""Appending to a cache: positions, pages, and rotations, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.errors import LaunchError
from weft.kernels import append_to_cache

MATRIX = pytest.mark.matrix


def rotated(x, cos, sin, positions, interleaved):
    """x [batch, heads, tokens, size] at positions [batch, tokens], in float64."""
    y, n = x.astype(np.float64), cos.shape[1]
    one, other = (
        (np.s_[..., : 2 * n : 2], np.s_[..., 1 : 2 * n : 2]) if interleaved else (np.s_[..., :n], np.s_[..., n : 2 * n])
    )
    a, b = y[one].copy(), y[other].copy()
    c, s = (each[positions][:, None].astype(np.float64) for each in (cos, sin))
    y[one], y[other] = a * c - b * s, a * s + b * c
    return y


@pytest.mark.parametrize(
    ("page", "pairs", "interleaved", "size"),
    [
        (0, 32, False, 64),
        (5, 16, True, 64),
        (16, 0, False, 96),
        *(pytest.param(*x, marks=MATRIX) for x in ((1, 64, True, 128),)),
    ],
)
def test_new_positions(device, rng, page, pairs, interleaved, size):
    """The rest of the cache stays, and positions below 0 are left out."""
    batch, heads, kv_heads, tokens, lengths = 3, 6, 2, 3, np.array([20, 2, 3], np.int32)
    q, key, value = (rng.normal(size=(batch, n, tokens, size)).astype(np.float16) for n in (heads, kv_heads, kv_heads))
    table = rng.permutation(batch * 20)[: batch * (-(-24 // page) if page else 1)].reshape(batch, -1).astype(np.int32)
    k, v = (
        rng.normal(size=(batch * 20, kv_heads, page or 24, size)).astype(np.float16)[: None if page else batch]
        for _ in "kv"
    )
    angles = rng.uniform(-3, 3, (30, pairs))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    given = [device.array(x) for x in (key, value, k, v, lengths)]
    options = {"block_table": device.array(table)} if page else {}
    turned = device.array(q)
    if pairs:
        options |= {"q": turned, "cos": device.array(cos), "sin": device.array(sin), "interleaved": interleaved}
    append_to_cache(*given, **options)
    positions = lengths[:, None] - tokens + np.arange(tokens)
    wide_q, wide_key = (rotated(x, cos, sin, np.maximum(positions, 0), interleaved) if pairs else x for x in (q, key))
    wide_q = np.where(positions[:, None, :, None] >= 0, wide_q, q)
    want_k, want_v = k.astype(np.float64), v.astype(np.float64)
    for b, t in np.argwhere(positions >= 0):
        at = positions[b, t]
        first, place = (table[b, at // page], at % page) if page else (b, at)
        want_k[first, :, place], want_v[first, :, place] = wide_key[b, :, t], value[b, :, t]
    for found, want in ((given[2], want_k), (given[3], want_v), (turned, wide_q)):
        np.testing.assert_allclose(device.numpy(found), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [0.5, np.array([0.5, 2.0], np.float32)], ids=["number", "heads"])
def test_a_cache_of_8_bits(device, rng, scale):
    key, value = rng.normal(size=(2, 1, 2, 3, 64)).astype(np.float16)
    k, v = (device.array(np.zeros((1, 2, 8, 64), ml_dtypes.float8_e4m3fn)) for _ in "kv")
    scales = [x if isinstance(x, float) else device.array(x) for x in (scale, scale)]
    given = map(device.array, (key, value))
    append_to_cache(*given, k, v, device.array(np.array([5], np.int32)), k_scale=scales[0], v_scale=scales[1])
    factors = np.broadcast_to(scale, 2).reshape(1, 2, 1, 1)
    for found, want in ((k, key), (v, value)):
        host = device.numpy(found).astype(np.float32)
        want = (want / factors).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        np.testing.assert_array_equal(host[:, :, 2:5], want)
        assert not host[:, :, :2].any() and not host[:, :, 5:].any()


KEY, CACHE, LENGTHS = (
    np.zeros((2, 2, 1, 64), np.float16),
    np.zeros((2, 2, 9, 64), np.float16),
    np.array([3, 9], np.int32),
)
ANGLES = np.zeros((9, 32), np.float32)
WRONG = [
    ("attention-shapes", (KEY, KEY, CACHE[:, :1], CACHE[:, :1], LENGTHS), {}, "dimension heads is 2 in one and 1"),
    ("attention-shapes", (KEY, KEY[..., :32], CACHE, CACHE, LENGTHS), {}, "dimension head size is 32 in one and 64"),
    ("attention-shapes", (KEY, KEY, CACHE, CACHE, LENGTHS), {"q": CACHE, "cos": ANGLES, "sin": ANGLES}, "dimension length"),
    ("attention-dtypes", (KEY, KEY, CACHE.astype(np.float32), CACHE, LENGTHS), {}, "float32"),
    ("attention-option", (KEY, KEY, CACHE, CACHE, None), {}, "cache_seqlens is None"),
    ("attention-angles", (KEY, KEY, CACHE, CACHE, LENGTHS), {"cos": ANGLES}, "sin is a NoneType"),
    ("attention-angles", (KEY, KEY, CACHE, CACHE, LENGTHS), {"q": KEY}, "q is given without cos"),
    ("attention-angles", (KEY, KEY, CACHE, CACHE, LENGTHS), {"cos": ANGLES, "sin": ANGLES[:5]}, "sin float32 [5, 32]"),
    ("attention-angles", (KEY, KEY, CACHE, CACHE, LENGTHS), {"cos": np.zeros((9, 40)), "sin": ANGLES}, "[9, 40]"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "arrays", "options", "words"), WRONG)
def test_mistakes(code, arrays, options, words):
    with pytest.raises(LaunchError) as error:
        append_to_cache(*arrays, **options)
    assert error.value.code == code and words in str(error.value)


def test_nothing_and_numbers_that_point_outside():
    append_to_cache(KEY[:0], KEY[:0], CACHE[:0], CACHE[:0], LENGTHS[:0])
    wrong: list[tuple[np.ndarray, dict[str, np.ndarray], str]] = [
        (np.array([3, 10], np.int32), {}, "beyond the cache"),
        (LENGTHS, {"block_table": np.array([[1], [2]], np.int32)}, "no page of the cache"),
        (LENGTHS, {"cos": ANGLES[:5], "sin": ANGLES[:5]}, "no row for a position"),
    ]
    for lengths, options, words in wrong:
        with pytest.raises(weft.errors.UserError, match=words):
            append_to_cache(KEY, KEY, CACHE.copy(), CACHE.copy(), lengths, **options)
