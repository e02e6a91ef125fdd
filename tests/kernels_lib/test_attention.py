"""Attention forward: head sizes, types, lengths, groups and strides against float64."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.attended import causal_mask, check, scores
from weft.errors import LaunchError
from weft.kernels import AttentionConfig, attend, attention, compile_attention

MATRIX = pytest.mark.matrix
BFLOAT16 = ml_dtypes.bfloat16
SIZES = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256)]
QUICK = (((64, 64), np.float16), ((192, 128), BFLOAT16))
LENGTHS = (0, 1, 7, 129, 1000)


def normal(rng, *shape, dtype=np.float16):
    return rng.normal(size=shape).astype(dtype)


def run(device, q, k, v, **options):
    """Attention into a poisoned output."""
    out = device.full((*q.shape[:3], v.shape[3]), np.nan, q.dtype)
    _, lse = attention(*map(device.array, (q, k, v)), out=out, return_lse=True, **options)
    return device.numpy(out), device.numpy(lse)


def compare(device, q, k, v, *, causal=False, scale=None, **options):
    s = scores(q, k, scale)
    if causal:
        s = np.where(causal_mask(q.shape[2], k.shape[2]), s, -np.inf)
    check(*run(device, q, k, v, causal=causal, scale=scale, **options), s, v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("size", "v_size", "dtype"),
    [
        pytest.param(*sizes, dtype, marks=() if (sizes, dtype) in QUICK else MATRIX)
        for sizes in SIZES
        for dtype in (np.float16, BFLOAT16)
    ],
)
def test_head_sizes(device, rng, size, v_size, dtype, causal):
    q, k = normal(rng, 1, 2, 70, size, dtype=dtype), normal(rng, 1, 1, 150, size, dtype=dtype)
    compare(device, q, k, normal(rng, 1, 1, 150, v_size, dtype=dtype), causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        pytest.param(a, b, marks=() if (a, b) in ((7, 129), (129, 7), (0, 1), (1, 0)) else MATRIX)
        for a in LENGTHS
        for b in LENGTHS
    ],
)
def test_lengths(device, rng, queries, keys, causal):
    compare(device, normal(rng, 1, 1, queries, 64), *(normal(rng, 1, 1, keys, 64) for _ in range(2)), causal=causal)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries"),
    [(6, 2, 3), (5, 1, 1), pytest.param(6, 2, 40, marks=MATRIX), pytest.param(70, 1, 2, marks=MATRIX)],
)
def test_groups_share_tiles(device, rng, heads, kv_heads, queries):
    """Few queries of several heads are the rows of a tile; heads and queries beyond the last ones are not written."""
    q = normal(rng, 2, heads, queries, 64)
    compare(device, q, *(normal(rng, 2, kv_heads, 20, 64) for _ in range(2)), causal=queries > 1, scale=0.3)


def test_tiles_follow_one_another(device, rng, monkeypatch):
    """Few programs with many tiles each, of different length; with one slot of queries and with two, begun ahead or not."""
    monkeypatch.setattr(attend, "multiprocessors_of", lambda *_: 2)
    monkeypatch.setattr(attend, "CACHE_BYTES", 1 << 10)
    for config in (
        AttentionConfig(16, 1),
        AttentionConfig(32, 2, 3, late=True, ahead=True),
        AttentionConfig(16, 3, 2, rescale_first=True, turns=True, ahead=True),
    ):
        q, k, v = (normal(rng, 1, 2, 150, 64) for _ in range(3))
        compare(device, q, k, v, causal=True, config=config)
    big = AttentionConfig(64, 1, 5)
    q, k, v = (normal(rng, 1, 1, 200, 192), normal(rng, 1, 1, 30, 192), normal(rng, 1, 1, 30, 128))
    compare(device, q, k, v, config=big)


def test_the_usual_strides(device, rng):
    """Heads of a position side by side, parts of one array: nothing is copied, and the output lies as q does."""
    packed = device.array(normal(rng, 2, 60, 3, 4, 64))
    q, k, v = (packed[:, :, i].swapaxes(1, 2) for i in range(3))
    out, lse = attention(q, k, v, return_lse=True)
    assert device.numpy(out.swapaxes(1, 2)).flags.c_contiguous
    host = [np.ascontiguousarray(device.numpy(x)) for x in (q, k, v)]
    check(np.ascontiguousarray(device.numpy(out)), device.numpy(lse), scores(*host[:2]), host[2])


def test_scores_far_apart(device):
    """Maxima that grow from block to block, and rows whose keys all weigh the same."""
    q = np.full((1, 1, 64, 64), 4.0, np.float16)
    levels = np.repeat(np.array([-8.0, -4.0, 4.0, 8.0], np.float16), 128)[None, None, :, None]
    values = np.repeat(np.arange(1.0, 5.0, dtype=np.float16), 128)[None, None, :, None]
    ones = np.ones((1, 1, 1, 64), np.float16)
    out, lse = run(device, q, levels * ones, values * ones)
    assert (out == 4.0).all()
    np.testing.assert_allclose(lse, 4 * 8 * 64 / 8 + np.log(128), rtol=1e-6)


Q = np.zeros((2, 4, 30, 64), np.float16)
K = np.zeros((2, 2, 50, 64), np.float16)
OUT = np.zeros_like(Q)


class OnGPU:
    """An array on a GPU that attention does not reach."""

    def __init__(self, values):
        self.dtype, self.shape, self.device = values.dtype, values.shape, SimpleNamespace(id=0)
        self.__cuda_array_interface__ = {**values.__array_interface__, "version": 3}


WRONG = [
    ("attention-devices", (Q, OnGPU(K), K), {}, "q lies on the host, k on GPU 0"),
    ("attention-array", (Q[0], K, K), {}, "q is an array of shape [4, 30, 64]"),
    ("attention-array", (Q, [1], K), {}, "k is a list"),
    ("attention-dtypes", (Q, K.astype(np.float32), K), {}, "k float32"),
    ("attention-dtypes", tuple(x.astype(np.float32) for x in (Q, K, K)), {}, "float16 or bfloat16"),
    ("attention-shapes", (Q[:1], K, K), {}, "dimension batch is 1 in one and 2"),
    ("attention-shapes", (Q, K, K[:, :, :9]), {}, "dimension length is 50 in one and 9"),
    ("attention-heads", (Q[:, :3], K, K), {}, "3 heads and k has 2"),
    ("attention-size", (Q[..., :40], K[..., :40], K), {}, "there are 64, 96, 128, 192 with 128 for v, 256, nearest first"),
    ("attention-strides", (Q, K[..., ::2].repeat(2, -1)[:, :, ::-1], K), {}, "stride along the dimension length"),
    ("attention-strides", (Q, K, np.broadcast_to(K[:1], K.shape)), {}, "it moves 50.0 KiB"),
    ("attention-scale", (Q, K, K), {"scale": -1}, "scale is -1"),
    ("attention-scale", (Q, K, K), {"scale": "big"}, "'big'"),
    ("attention-window", (Q, K, K), {"window": 5}, "window is 5"),
    ("attention-window", (Q, K, K), {"window": (-1, 0)}, "(-1, 0)"),
    ("attention-softcap", (Q, K, K), {"softcap": 0}, "softcap is 0"),
    ("attention-option", (Q, K, K), {"alibi": 0.5}, "alibi is 0.5"),
    ("attention-option", (Q, K, K), {"sinks": np.zeros(2, np.float32)}, "of shape [4]"),
    ("attention-option", (Q, K, K), {"causal": True, "prefix": 7}, "contiguous int32 array of shape [2]"),
    ("attention-option", (Q, K, K), {"documents": np.zeros((2, 30), np.int32)}, "30 queries and 50 keys"),
    ("attention-prefix", (Q, K, K), {"prefix": np.zeros(2, np.int32)}, "no causal mask"),
    ("attention-prefix", (Q, K, K), {"causal": True, "window": (3, 0), "prefix": np.zeros(2, np.int32)}, "to the left"),
    ("attention-together", (Q, Q, Q), {
        "causal": True, "prefix": np.zeros(2, np.int32), "documents": np.zeros((2, 30), np.int32)}, "documents and prefix"),
    ("attention-sequences", (Q, K, K), {"cu_seqlens_q": np.array([0, 30], np.int32)}, "a batch of 2"),
    ("attention-sequences", (Q[:1], K[:1], K[:1]), {"cu_seqlens_q": np.array([0, 30], np.int32)}, "[0, 30] for 50"),
    ("attention-sequences", (Q[:1], K[:1], K[:1]), {"cu_seqlens_k": np.array([0, 30], np.int32)}, "without cu_seqlens_q"),
    ("attention-sequences", (Q[:1], Q[:1], Q[:1]), {"cu_seqlens_q": np.array([0, 20, 10, 30], np.int32)}, "never decrease"),
    ("attention-function", (Q, K, K), {"score_mod": abs}, "score_mod is <built-in"),
    ("attention-out", (Q, K, K), {"out": OUT[:1]}, "[1, 4, 30, 64]"),
    ("attention-out-overlaps", (Q, K, K), {"out": Q}, "with q"),
    ("attention-config-kind", (Q, K, K), {"config": {"block_n": 64}}, "'block_n'"),
    ("attention-room", (Q, K, K), {"config": AttentionConfig(256, stages=8)}, "232448"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "arrays", "options", "words"), WRONG)
def test_mistakes(code, arrays, options, words):
    with pytest.raises(LaunchError) as error:
        attention(*arrays, **options)
    assert error.value.code == code and words in str(error.value)


def test_mistakes_in_configurations():
    for field, options in (("block_n", {"block_n": 40}), ("consumers", {"consumers": 4}), ("stages", {"stages": 1})):
        with pytest.raises(LaunchError) as error:
            AttentionConfig(**{"block_n": 64, **options})
        assert error.value.code == "attention-config" and field in str(error.value)
    with pytest.raises(LaunchError) as error:
        compile_attention(Q, K[:, :, :0], K[:, :, :0])
    assert error.value.code == "attention-empty"


def test_another_target():
    from weft import settings

    with settings.using(target="sm_100a"), pytest.raises(LaunchError) as error:
        attention(Q, K, K)
    assert error.value.code == "attention-target" and "sm_100a" in str(error.value)
