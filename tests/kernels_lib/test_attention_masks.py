"""Attention forward: windows, prefixes, documents, variable lengths, and what changes scores, against float64."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.attended import causal_mask, check, scores
from weft import language as gl
from weft.errors import CompilationError, LaunchError
from weft.kernels import AttentionConfig, attend, attention, block_mask, compile_attention

MATRIX = pytest.mark.matrix
SLOPES = np.array([0.5, 0.05, 0.2, 0.1], np.float32)
SMALL = AttentionConfig(16, 1)
"""Blocks of 16 keys: masks begin and end in, between and at the ends of blocks; columns have one axis."""
WIDE = AttentionConfig(64, 2)
CONFIGS = [pytest.param(SMALL, id="small"), pytest.param(WIDE, id="wide", marks=MATRIX)]


@weft.jit
def moved(score, batch, head, query, key, bias):
    return score * 2.0 + gl.load(bias + head) + (query - key).to(gl.float32) * 0.01


@weft.jit
def unmoved(score, batch, head, query, key):
    return score


@weft.jit
def even(batch, head, query, key, by):
    return (query + key + batch) % by == 0


@weft.jit
def of_document(batch, head, query, key, ids):
    return gl.load(ids + query) == gl.load(ids + key)


@weft.jit
def near(batch, head, query, key, by):
    """Nothing for the first queries, and more for later heads."""
    return (query - key <= by + 100 * head) & (key <= query) & (query >= 130)


@weft.jit
def misspelt(batch, head, query, key):
    return querry < key  # noqa: F821


def arrays(rng, queries=70, keys=90, dtype=np.float16, size=64):
    return [rng.normal(size=(2, heads, n, size)).astype(dtype) for heads, n in ((4, queries), (2, keys), (2, keys))]


def compare(device, q, k, v, s, **options):
    out = device.full((*q.shape[:3], v.shape[3]), np.nan, q.dtype)
    options = {name: device.array(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    _, lse = attention(*map(device.array, (q, k, v)), out=out, return_lse=True, **options)
    check(device.numpy(out), device.numpy(lse), s, v)


def positions(q, k):
    """Positions of queries among the keys, and keys."""
    return np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], np.arange(k.shape[2])[None, :]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    "window", [(20, 3), *(pytest.param(x, marks=MATRIX) for x in ((None, 0), (5, None), (0, 0)))], ids=str
)
def test_windows(device, rng, window, config):
    q, k, v = arrays(rng)
    i, j = positions(q, k)
    left, right = (1 << 20 if side is None else side for side in window)
    compare(
        device,
        q,
        k,
        v,
        np.where((j >= i - left) & (j <= i + right), scores(q, k), -np.inf),
        window=window,
        config=config,
    )


def test_a_window_behind_the_keys_leaves_nothing(device, rng):
    """More queries than keys: the first ones stand before all keys, and see none."""
    q, k, v = arrays(rng, 70, 20)
    i, j = positions(q, k)
    compare(device, q, k, v, np.where(abs(i - j) <= 4, scores(q, k), -np.inf), window=(4, 4), config=SMALL)


@pytest.mark.parametrize("config", CONFIGS)
def test_prefixes(device, rng, config):
    q, k, v = arrays(rng)
    i, j = positions(q, k)
    seen = (j <= i) | (j < np.array([80, 3])[:, None, None, None])
    compare(
        device, q, k, v, np.where(seen, scores(q, k), -np.inf), causal=True, prefix=np.array([80, 3], np.int32),
        config=config,
    )  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", CONFIGS)
def test_documents(device, rng, causal, config):
    q, k, v = arrays(rng, 90, 90)
    documents = np.sort(rng.integers(-3, 3, (2, 90)), axis=1).astype(np.int32)
    seen = documents[:, None, :, None] == documents[:, None, None, :]
    if causal:
        seen = seen & np.tri(90, dtype=bool)
    compare(device, q, k, v, np.where(seen, scores(q, k), -np.inf), documents=documents, causal=causal, config=config)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("config", [pytest.param(SMALL, id="small"), pytest.param(None, id="chosen", marks=MATRIX)])
def test_variable_lengths(device, rng, causal, config, monkeypatch):
    """Values behind a sequence's end are those of the next one: here infinite, so that a weight of 0 would give NaN."""
    monkeypatch.setattr(attend, "multiprocessors_of", lambda *_: 3)
    queries, keys = (30, 0, 64, 65, 1, 40), (20, 9, 64, 0, 8, 41)
    starts = [np.cumsum([0, *lengths]).astype(np.int32) for lengths in (queries, keys)]
    q, k, v = (
        rng.normal(size=(1, heads, at[-1], 64)).astype(np.float16)
        for heads, at in ((4, starts[0]), (2, starts[1]), (2, starts[1]))
    )
    wild = v.copy()
    wild[:, :, starts[1][1] : starts[1][2]] = np.inf
    seen = np.zeros((q.shape[2], k.shape[2]), bool)
    for n, (length, count) in enumerate(zip(queries, keys, strict=True)):
        where = np.s_[starts[0][n] : starts[0][n + 1], starts[1][n] : starts[1][n + 1]]
        seen[where] = causal_mask(length, count) if causal else True
    out = device.full(q.shape, np.nan, q.dtype)
    _, lse = attention(
        *map(device.array, (q, k, wild)), cu_seqlens_q=device.array(starts[0]), cu_seqlens_k=device.array(starts[1]),
        causal=causal, out=out, return_lse=True, config=config,
    )  # fmt: skip
    # No query is in the second sequence, whose values are infinite.
    check(device.numpy(out), device.numpy(lse), np.where(seen, scores(q, k), -np.inf), v)


def test_many_sequences(device, rng, monkeypatch):
    """More than the scheduler looks at in one step; many are empty."""
    monkeypatch.setattr(attend, "multiprocessors_of", lambda *_: 2)
    lengths = rng.integers(0, 4, 70)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (rng.normal(size=(1, 1, starts[-1], 64)).astype(np.float16) for _ in range(3))
    sequence = np.repeat(np.arange(70), lengths)
    seen = sequence[:, None] == sequence[None, :]
    compare(device, q, k, v, np.where(seen, scores(q, k), -np.inf), cu_seqlens_q=starts, config=SMALL)


@pytest.mark.parametrize("dtype", [np.float16, pytest.param(ml_dtypes.bfloat16, marks=MATRIX)])
@pytest.mark.parametrize("config", CONFIGS)
def test_soft_cap_and_alibi(device, rng, config, dtype):
    q, k, v = arrays(rng, dtype=dtype)
    i, j = positions(q, k)
    s, bias = scores(q, k), SLOPES[:, None, None] * abs(i - j)
    compare(device, q, k, v, s - bias, alibi=SLOPES, config=config)
    capped = np.where(j <= i, 2 * np.tanh(s / 2) - bias, -np.inf)
    compare(device, q, k, v, capped, alibi=SLOPES, softcap=2.0, causal=True, config=config)


@pytest.mark.parametrize("queries", [3, pytest.param(70, marks=MATRIX)])
def test_functions_of_the_caller(device, rng, queries):
    """With few queries the rows of a tile are of several heads."""
    q, k, v = arrays(rng, queries)
    i, j = np.arange(queries)[:, None], np.arange(90)[None, :]
    bias = np.array([1, -1, 0.5, 2], np.float32)
    s = 2 * scores(q, k) + bias[:, None, None] + (i - j) * 0.01
    s = np.where((i + j + np.arange(2)[:, None, None, None]) % 3 == 0, s, -np.inf)
    given = {"score_mod": moved, "mask_mod": even}
    compare(device, q, k, v, s, score_args=(device.array(bias),), mask_args=(3,), **given)


def test_a_block_mask_lists_blocks(device):
    ids = np.repeat([0, 1, 2], [128, 150, 107]).astype(np.int32)
    found = block_mask(of_document, device.array(ids), 385, 385, mask_args=(device.array(ids),))
    counts, lists = device.numpy(found.counts)[0, 0], device.numpy(found.lists)[0, 0]
    listed = [row[:count].tolist() for row, count in zip(lists, counts, strict=True)]
    # Twice a block's number, plus 1 for those of which only a part is seen.
    assert listed == [[0], [2, 5], [3, 5, 7], [5, 6]]


@pytest.mark.parametrize("block_n", [pytest.param(128, marks=MATRIX), 64, pytest.param(16, marks=MATRIX)])
def test_block_masks(device, rng, block_n):
    """Lengths of three blocks and a key; a mask of all heads, and one for each, of which some queries see nothing."""
    q, k, v = arrays(rng, 385, 385)
    i, j, config = np.arange(385)[:, None], np.arange(385)[None, :], AttentionConfig(block_n, 2)
    ids = np.repeat([0, 1, 2], [128, 150, 107]).astype(np.int32)
    blocks = block_mask(of_document, device.array(q), 385, 385, mask_args=(device.array(ids),))
    compare(device, q, k, v, np.where(ids[:, None] == ids, scores(q, k), -np.inf), mask_mod=blocks, config=config)
    if block_n == 128:
        blocks = block_mask(near, device.array(q), 385, 385, batch=2, heads=4, mask_args=(20,))
        seen = (i - j <= 20 + 100 * np.arange(4)[:, None, None]) & (j <= i) & (i >= 130)
        s = np.where(seen, scores(q, k) * 2 + (i - j) * 0.01 + 1, -np.inf)
        one = device.array(np.ones(4, np.float32))
        given = {"mask_mod": blocks, "score_mod": moved, "score_args": (one,), "config": config}
        compare(device, q, k, v, s, **given)


def test_mistakes_with_block_masks():
    q, k, _ = (x[:, :2] for x in arrays(np.random.default_rng(0), 5, 9))
    blocks = block_mask(near, q, 5, 9, mask_args=(3,))
    wrong = (
        ("attention-together", {"causal": True}, k, "a block mask and causal"),
        ("attention-block-mask", {}, k[:, :, :8], "5 queries, 9 keys"),
        ("attention-config", {"config": AttentionConfig(64, 1)}, k, "2 with a block mask"),
        ("attention-config", {"config": AttentionConfig(96, 2)}, k, "a divisor of 128"),
    )
    for code, options, keys, words in wrong:
        with pytest.raises(LaunchError) as error:
            attention(q, keys, keys, mask_mod=blocks, **options)
        assert error.value.code == code and words in str(error.value)
    for code, call in (
        ("attention-function", lambda: block_mask(abs, q, 5, 9)),
        ("attention-block-mask", lambda: block_mask(near, q, 0, 9)),
    ):
        with pytest.raises(LaunchError) as error:
            call()
        assert error.value.code == code


def test_sinks(device, rng):
    q, k, v = arrays(rng, 70, 30)
    i, j = positions(q, k)
    sinks = np.array([-1, 0, 3, 50], np.float32)
    s = np.where(j <= i, scores(q, k), -np.inf)
    one = np.broadcast_to(sinks[:, None, None], (2, 4, 70, 1))
    with_one = np.concatenate([s, one], -1), np.concatenate([v, np.zeros_like(v[:, :, :1])], 2)
    out = device.full(q.shape, np.nan, q.dtype)
    given = {"causal": True, "sinks": device.array(sinks), "config": SMALL}
    _, lse = attention(*map(device.array, (q, k, v)), out=out, return_lse=True, **given)
    check(device.numpy(out), device.numpy(lse), *with_one)


@needs_nvrtc
def test_a_function_that_does_nothing_costs_nothing():
    q, config = np.zeros((1, 2, 512, 64), np.float16), AttentionConfig(64, 1)
    sass = [compile_attention(q, q, q, score_mod=function, config=config).asm["sass"] for function in (None, unmoved)]
    first, second = (re.sub(r"\(\*.*?\*\)", "", text) for text in sass)
    assert first == second


def test_a_mistake_in_a_function_has_its_line():
    q = np.zeros((1, 2, 5, 64), np.float16)
    with pytest.raises(CompilationError) as error:
        attention(q, q, q, mask_mod=misspelt)
    assert "return querry < key" in str(error.value)
