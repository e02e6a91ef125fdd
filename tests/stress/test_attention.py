"""Attention in random configurations, with random lengths, groups, masks and changes of scores, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.kernels_lib.attended import check, scores
from weft.kernels import AttentionConfig, attend, attention

SIZES = ((64, 64), (64, 64), (96, 96), (128, 128), (192, 128))
LENGTHS = (1, 2, 7, 16, 33, 64, 65, 90, 129)


def setting(rng):
    """Arrays, options, scores with all changes, and the programs that compute them."""
    size, v_size = SIZES[rng.integers(len(SIZES))]
    batch, kv_heads, members = (int(rng.integers(1, most + 1)) for most in (2, 2, 5))
    queries, keys = (int(LENGTHS[rng.integers(len(LENGTHS))]) for _ in range(2))
    dtype = (np.float16, ml_dtypes.bfloat16)[rng.integers(2)]
    heads = kv_heads * members
    shapes = ((batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, v_size))
    q, k, v = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    options = {}
    if rng.integers(2):
        block = 32 if size > 128 else int(rng.choice([16, 32, 48, 64, 128]))
        consumers = int(rng.integers(1, 4 if size == 64 else 3))
        late, first, turns = map(bool, rng.integers(2, size=3))
        options["config"] = AttentionConfig(block, consumers, int(rng.integers(2, 4)), late, first, turns)
    s, seen = scores(q, k), np.ones((batch, 1, queries, keys), bool)
    i, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None, :]
    if rng.integers(2):
        options["causal"], seen = True, seen & (j <= i)
    kind = rng.integers(4)
    if kind == 0:
        left = int(rng.integers(keys + 2))
        options["window"], seen = (left, None), seen & (j >= i - left)
    elif kind == 1 and "causal" in options:
        prefix = rng.integers(0, keys + 3, batch).astype(np.int32)
        options["prefix"], seen = prefix, seen | (j < prefix[:, None, None, None])
    elif kind == 2 and queries == keys:
        documents = np.sort(rng.integers(0, 4, (batch, queries)), axis=1).astype(np.int32)
        options["documents"], seen = documents, seen & (documents[:, None, :, None] == documents[:, None, None, :])
    if rng.integers(4) == 0:
        options["softcap"], s = 1.5, 1.5 * np.tanh(s / 1.5)
    if rng.integers(4) == 0:
        slopes = rng.random(heads).astype(np.float32)
        options["alibi"], s = slopes, s - slopes[:, None, None] * abs(i - j)
    return (q, k, v), options, np.where(seen, s, -np.inf), int(rng.integers(1, 6))


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_attention(monkeypatch, stress_report, first):
    wrong = []
    for seed in range(first, first + 25):
        (q, k, v), options, s, programs = setting(np.random.default_rng(seed))
        monkeypatch.setattr(attend, "multiprocessors_of", lambda *_, count=programs: count)
        out = np.full((*q.shape[:3], v.shape[3]), np.nan, q.dtype)
        _, lse = attention(q, k, v, out=out, return_lse=True, **options)
        try:
            check(out, lse, s, v)
        except AssertionError:
            wrong.append(seed)
    stress_report(f"attention from seed {first} on", tried=25, wrong=len(wrong))
    assert not wrong
