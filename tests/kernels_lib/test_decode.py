"""Decode attention: lengths, groups of heads, several queries, pages, and parts that are combined, against float64."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.attended import check, scores
from weft import language as gl
from weft import settings
from weft.errors import LaunchError
from weft.kernels import AttentionConfig, compile_decode, decode, decode_attention
from weft.kernels.decode_plan import LEAST_BLOCKS, heads_abreast

MATRIX = pytest.mark.matrix
BFLOAT16 = ml_dtypes.bfloat16
LENGTHS = (0, 1, 7, 129, 1000)
SMALL = AttentionConfig(64, 1)
"""Blocks of 64 keys: few keys are many blocks."""


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Few programs, so that a program has several tiles, and a tile several programs."""
    monkeypatch.setattr(decode, "multiprocessors_of", lambda *_: 4)


class Cached:
    """Queries, and sequences of these lengths in a cache that is NaN behind them: `k` and `v`, or with `page` in pages."""

    def __init__(
        self, rng, lengths, heads, kv_heads, queries=1, size=64, v_size=None, capacity=None, page=0, dtype=np.float16
    ):
        batch, v_size = len(lengths), v_size or size
        capacity = max(lengths) + 5 if capacity is None else capacity
        width = -(-capacity // page) if page else 0
        capacity = width * page or capacity
        self.lengths = np.array(lengths, np.int32)
        self.q = rng.normal(size=(batch, heads, queries, size)).astype(dtype)
        self.behind = np.arange(capacity)[None, None, :, None] >= self.lengths[:, None, None, None]
        self.keys, self.values = (rng.normal(size=(batch, kv_heads, capacity, n)).astype(dtype) for n in (size, v_size))
        self.k, self.v = (
            np.where(self.behind, np.nan, x.astype(np.float32)).astype(dtype) for x in (self.keys, self.values)
        )
        self.table = None
        if page:
            count = batch * width + 3
            self.table = rng.permutation(count)[: batch * width].reshape(batch, width).astype(np.int32)
            self.k, self.v = (self._in_pages(x, count, page) for x in (self.k, self.v))
            # Behind the end of a sequence stands anything.
            self.table[np.arange(width)[None] * page >= self.lengths[:, None]] = -7

    def _in_pages(self, x, count, page):
        batch, kv_heads, capacity, size = x.shape
        pages = np.full((count, kv_heads, page, size), np.nan, x.dtype)
        pages[self.table] = x.reshape(batch, kv_heads, -1, page, size).swapaxes(1, 2)
        return pages

    def positions(self):
        """The position of each query, [batch, 1, queries, 1], and positions of keys."""
        queries = np.arange(self.q.shape[2])[None, None, :, None] - self.q.shape[2]
        return self.lengths[:, None, None, None] + queries, np.arange(self.keys.shape[2])

    def seen(self, left=None):
        at, key = self.positions()
        return (key <= at) & (key >= at - (1 << 20 if left is None else left))

    def run(self, device, **options):
        """Into a poisoned output; results, and logarithms of sums."""
        out = device.full((*self.q.shape[:3], self.values.shape[3]), np.nan, self.q.dtype)
        options = {name: device.array(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
        table = None if self.table is None else device.array(self.table)
        given = [None if x is None else device.array(x) for x in (self.q, self.k, self.v, self.lengths)]
        _, lse = decode_attention(*given, block_table=table, return_lse=True, out=out, **options)
        return device.numpy(out), device.numpy(lse)

    def compare(self, device, s=None, left=None, **options):
        s = scores(self.q, self.keys, options.get("scale")) if s is None else s
        values = np.where(self.behind, 0, self.values.astype(np.float32)).astype(self.values.dtype)
        check(*self.run(device, **options), np.where(self.seen(left), s, -np.inf), values)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "dtype"),
    [
        (4, 1, 64, BFLOAT16),
        (6, 1, 128, np.float16),
        pytest.param(8, 8, 64, np.float16, marks=MATRIX),
        pytest.param(16, 2, 256, BFLOAT16, marks=MATRIX),
        pytest.param(4, 2, 96, np.float16, marks=MATRIX),
    ],
)
def test_lengths_and_groups(device, rng, heads, kv_heads, size, dtype):
    """One query of each sequence, and blocks of the usual size."""
    Cached(rng, LENGTHS, heads, kv_heads, size=size, dtype=dtype).compare(device)


def test_every_program_has_parts_of_several_tiles(device, rng):
    """Of tiles with no block in common, and of tiles longer than what a program has; more sequences than are read at a time."""
    Cached(rng, (3, 330, 0, 140, 500), 4, 2).compare(device, config=SMALL)
    Cached(rng, [n % 3 for n in range(135)], 1, 1, capacity=2).compare(device, config=SMALL)


@pytest.mark.parametrize(("kv_heads", "page"), [(3, 0), pytest.param(6, 16, marks=MATRIX)])
def test_heads_that_teams_do_not_visit_all_at_once(device, rng, kv_heads, page):
    """Four programs cannot be teams of three heads without one of them idle; of six heads they visit two at a time."""
    Cached(rng, (200, 0, 130), 2 * kv_heads, kv_heads, page=page).compare(device, config=SMALL)


@pytest.mark.parametrize(
    ("kv_heads", "blocks", "tiles", "programs", "abreast"),
    [
        (8, 256, 1, 132, 8),
        (40, 4096, 1, 132, 10),
        (8, 33, 1, 132, 4),
        (3, 100, 1, 4, 1),
        (6, 100, 1, 4, 2),
        (1, 100, 2, 132, 1),
        (2, 1, 200, 132, 1),
    ],
)
def test_heads_side_by_side(kv_heads, blocks, tiles, programs, abreast):
    """As many as leave no multiprocessor without work for long: 33 blocks of 8 heads are 2 for each of 132 programs, but 3 for
    some of 16 teams."""
    assert heads_abreast(kv_heads, blocks, tiles, programs) == abreast


@pytest.mark.parametrize(
    ("queries", "heads", "kv_heads"),
    [(3, 6, 2), (16, 5, 1), pytest.param(1, 70, 1, marks=MATRIX), pytest.param(2, 2, 2, marks=MATRIX)],
)
def test_several_queries(device, rng, queries, heads, kv_heads):
    """The last positions of each sequence; with fewer positions the first queries see nothing. Many heads are several tiles."""
    Cached(rng, (2, 150, 0), heads, kv_heads, queries).compare(device, config=SMALL, scale=0.3)


MORE = ((8, 64, 96), (256, 128, 64), (5, 16, 128), (48, 32, 64), (1, 64, 96))


@pytest.mark.parametrize(
    ("page", "block", "size"),
    [
        (8, 64, 64),
        (16, 128, 128),
        pytest.param(32, 64, 64, marks=MATRIX),
        pytest.param(8, 64, 96, marks=MATRIX),
        pytest.param(256, 128, 64, marks=MATRIX),
    ],
)
def test_pages(device, rng, page, block, size):
    """Pages of any size in any order, and numbers that are no page behind the ends."""
    cached = Cached(rng, (0, 1, 129, 70), 4, 2, queries=2, size=size, page=page)
    cached.compare(device, config=AttentionConfig(block, 1))


def test_windows_and_what_changes_scores(device, rng):
    cached = Cached(rng, (3, 250), 4, 2, queries=2)
    cached.compare(device, config=SMALL, window=(90, None), left=90)
    cached.compare(
        device, scores(cached.q, cached.keys) * 0 + 5 * np.tanh(scores(cached.q, cached.keys) / 5), softcap=5
    )
    sinks = np.array([0.5, -1.0, 3.0, 0.0], np.float32)
    out, lse = cached.run(device, sinks=sinks, config=SMALL)
    s = np.concatenate([np.where(cached.seen(), scores(cached.q, cached.keys), -np.inf), np.zeros((2, 4, 2, 1))], -1)
    s[..., -1] = sinks[:, None]
    nothing = np.where(cached.behind, 0, cached.values.astype(np.float32))
    check(out, lse, s, np.concatenate([nothing, 0 * nothing[:, :, :1]], 2).astype(np.float16))


@pytest.mark.parametrize(
    ("heads", "queries", "page"),
    [(70, 1, 0), (5, 3, 64), *(pytest.param(*x, marks=MATRIX) for x in ((16, 1, 3), (128, 1, 16)))],
)
def test_a_latent_cache(device, rng, heads, queries, page):
    """Values are elements of the keys; more than 64 query heads are tiles of neighbouring programs."""
    cached = Cached(rng, (2, 0, 129), heads, 1, queries, size=576, v_size=512, page=page)
    cached.v, cached.values = None, cached.keys[..., :512]
    cached.compare(device, scale=0.05)


@pytest.mark.parametrize(
    ("page", "size", "softcap"),
    [(0, 64, None), (3, 128, None), *(pytest.param(*x, marks=MATRIX) for x in ((16, 96, 3.0),))],
)
def test_a_cache_of_8_bits(device, rng, page, size, softcap):
    """With scales for each head, or one for all."""
    cached = Cached(rng, (2, 0, 170), 4, 2, 2, size=size, page=page, dtype=ml_dtypes.float8_e4m3fn)
    cached.q = cached.q.astype(np.float16)
    factors = np.array([0.5, 0.25], np.float32), np.array([2.0, 1.0], np.float32)
    wide = [
        x.astype(np.float32) * f[None, :, None, None]
        for x, f in zip((cached.keys, cached.values), factors, strict=True)
    ]
    cached.values = wide[1].astype(np.float16)
    s = scores(cached.q, wide[0])
    s = s if softcap is None else softcap * np.tanh(s / softcap)
    cached.compare(device, s, config=SMALL, k_scale=factors[0], v_scale=factors[1], softcap=softcap)
    if not page:
        cached.values = (wide[1] / factors[1][None, :, None, None] * 3).astype(np.float16)
        cached.compare(device, scores(cached.q, cached.keys.astype(np.float32)) / 4, k_scale=0.25, v_scale=3)


def test_lengths_that_are_the_cache_s(device, rng):
    """Without lengths; strides as of positions with their heads side by side, which the result has too."""
    q, k, v = (
        device.array(rng.normal(size=(2, n, h, 64)).astype(np.float16)).swapaxes(1, 2)
        for n, h in ((1, 4), (200, 2), (200, 2))
    )
    out, lse = decode_attention(q, k, v, return_lse=True, config=SMALL)
    assert device.numpy(out.swapaxes(1, 2)).flags.c_contiguous
    host = [np.ascontiguousarray(device.numpy(x)) for x in (q, k, v)]
    check(np.ascontiguousarray(device.numpy(out)), device.numpy(lse), scores(*host[:2]), host[2])


@weft.jit(do_not_specialize=["step"])
def grow(lengths, step):
    """The launch before a decode attention, which is allowed to start ahead of the store."""
    gl.extra.cuda.gdc_launch_dependents()
    at = lengths + gl.arange(0, 4, gl.BlockedLayout([1], [32], [1], [0]))
    gl.store(at, gl.load(at) + step)


def test_lengths_of_the_launch_before(device, rng):
    """What is read ahead of `gdc_wait` says which cache lines are prefetched, and nothing else."""
    cached = Cached(rng, (130, 7, 60, 200), 4, 2, capacity=LEAST_BLOCKS * SMALL.block_n)
    given = [device.array(x) for x in (cached.q, cached.k, cached.v, cached.lengths - 5)]
    grow[1](given[3], 5, num_warps=1)
    out, lse = decode_attention(*given, return_lse=True, config=SMALL)
    s = np.where(cached.seen(), scores(cached.q, cached.keys), -np.inf)
    check(device.numpy(out), device.numpy(lse), s, np.where(cached.behind, 0, cached.values).astype(np.float16))


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=MATRIX), pytest.param(4, marks=MATRIX)])
def test_schedules(rng, seed, monkeypatch):
    """In any order of programs the last one combines, and leaves the counters zero for the next launch."""
    cached, kept = Cached(rng, (270, 130), 4, 2), np.zeros(8, np.int32)
    monkeypatch.setattr(decode, "zeros_kept", lambda *_: kept)
    want = decode_attention(cached.q, cached.k, cached.v, cached.lengths, config=SMALL)
    with weft.simulate(seed=seed, max_resident=None if seed % 2 else 1):
        found = decode_attention(cached.q, cached.k, cached.v, cached.lengths, config=SMALL)
    assert (want == found).all() and not kept.any()


def test_nothing(device):
    for batch, capacity in ((0, 10), (2, 0)):
        q, k = (device.zeros((batch, 2, n, 64), np.float16) for n in (1, capacity))
        out, lse = decode_attention(q, k, k, device.zeros(batch, np.int32), return_lse=True)
        assert (device.numpy(out) == 0).all() and np.isneginf(device.numpy(lse)).all()


@pytest.mark.parametrize(("what", "words"), [("lengths", "beyond the cache"), ("table", "no page of the cache")])
def test_numbers_that_point_outside_stop_the_simulator(rng, what, words):
    cached = Cached(rng, (20, 30), 2, 1, page=16)
    if what == "lengths":
        cached.lengths[1] = 200
    else:
        cached.table[1, 1] = 40
    with pytest.raises(weft.errors.UserError, match=words):
        decode_attention(cached.q, cached.k, cached.v, cached.lengths, block_table=cached.table, config=SMALL)


Q, K = np.zeros((2, 4, 1, 64), np.float16), np.zeros((2, 2, 50, 64), np.float16)
TABLE, LATENT = np.zeros((2, 3), np.int32), np.zeros((2, 4, 1, 576), np.float16)
NARROW = K.astype(ml_dtypes.float8_e4m3fn)
WRONG = [
    ("attention-queries", (np.zeros((2, 4, 17, 64), np.float16), K, K), {}, "17 queries"),
    ("attention-queries", (Q[:, :, :0], K, K), {}, "0 queries"),
    ("attention-option", (Q, K, K, np.zeros(3, np.int32)), {}, "int32 array of shape [2]"),
    ("attention-option", (Q, K, K, np.zeros(2)), {}, "float64"),
    ("attention-option", (Q, K, K), {"block_table": TABLE[:1]}, "block_table is int32 [1, 3]"),
    ("attention-shapes", (Q[:1], K, K), {}, "dimension batch"),
    ("attention-shapes", (Q[..., :8], K, K), {"block_table": TABLE}, "head size"),
    ("attention-latent", (Q, K), {}, "head sizes 64 and 64"),
    ("attention-latent", (LATENT, LATENT), {}, "k has 4 heads"),
    ("attention-latent", (LATENT, LATENT[:, :1]), {"softcap": 5.0}, "softcap is given"),
    ("attention-config", (LATENT, LATENT[:, :1]), {"config": AttentionConfig(64, 1)}, "2 for decode_attention without v"),
    ("attention-cache-scale", (Q, K, K), {"k_scale": 2.0}, "k_scale is given, and the cache is float16"),
    ("attention-cache-scale", (Q, NARROW, NARROW), {"v_scale": "big"}, "v_scale is 'big'"),
    ("attention-cache-scale", (Q, NARROW, NARROW), {"k_scale": 0}, "k_scale is 0"),
    ("attention-option", (Q, NARROW, NARROW), {"v_scale": np.zeros(3, np.float32)}, "of shape [2]"),
    ("attention-dtypes", (Q, K, NARROW), {}, "v float8_e4m3fn"),
    ("attention-dtypes", (Q, K.astype(np.float32), K), {}, "k float32"),
    ("attention-size", (Q[..., :40], K[..., :40], K), {}, "192 with 128 for v, 256"),
    ("attention-config", (Q, K, K), {"config": AttentionConfig(64)}, "1 for decode_attention"),
    ("attention-config", (Q, K, K), {"config": AttentionConfig(96, 1)}, "a multiple of 64 for decode_attention"),
    ("attention-room", (Q, K, K), {"config": AttentionConfig(256, 1, 8)}, "232448"),
    ("attention-out", (Q, K, K), {"out": Q[:1]}, "[1, 4, 1, 64]"),
    ("attention-out-overlaps", (Q, K, K), {"out": Q}, "with q"),
    ("attention-strides", (Q, K, np.broadcast_to(K[:1], K.shape)), {}, "it moves"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "arrays", "options", "words"), WRONG)
def test_mistakes(code, arrays, options, words):
    with pytest.raises(LaunchError) as error:
        decode_attention(*arrays, **options)
    assert error.value.code == code and words in str(error.value)


def test_a_kernel_of_nothing_and_another_target():
    with pytest.raises(LaunchError) as error:
        compile_decode(Q, K[:, :, :0], K[:, :, :0])
    assert error.value.code == "attention-empty"
    with settings.using(target="sm_100a"), pytest.raises(LaunchError) as error:
        decode_attention(Q, K, K)
    assert error.value.code == "attention-target"


@needs_nvrtc
@pytest.mark.parametrize("page", [0, pytest.param(16, marks=MATRIX)])
def test_machine_code(page):
    q = np.zeros((2, 8, 1, 128), np.float16)
    k = np.zeros((64, 2, page, 128) if page else (2, 2, 512, 128), np.float16)
    table = np.zeros((2, 512 // page), np.int32) if page else None
    made = compile_decode(q, k, k, np.zeros(2, np.int32), block_table=table, return_lse=True).front.machine_code
    assert (made.n_spills, made.stack) == (0, 0)
    assert re.findall(r"C75\d\d", made.log) == []
