"""Philox against an implementation in Python's integers, published vectors, and the numbers that are made of its bits."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen, kept_poison, poison, same
from tests.language.support import building
from weft import language as gl
from weft.errors import CompilationError

LINE = gl.BlockedLayout([2], [32], [4], [0])
BLOCK = 512


def philox(bits, counter, key, rounds=10):
    """Philox 4x32 or 4x64 of Python's integers, from the paper's definition."""
    m0, m1, w0, w1 = {
        32: (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85),
        64: (0xD2E7470EE14C6C93, 0xCA5A826395121157, 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
    }[bits]
    mask, (x0, x1, x2, x3), (k0, k1) = (1 << bits) - 1, counter, key
    for _ in range(rounds):
        p0, p1 = m0 * x0, m1 * x2
        x0, x1, x2, x3 = (p1 >> bits) ^ x1 ^ k0, p1 & mask, (p0 >> bits) ^ x3 ^ k1, p0 & mask
        k0, k1 = k0 + w0 & mask, k1 + w1 & mask
    return x0, x1, x2, x3


def test_the_reference_gives_the_published_vectors():
    """Of Random123's known answers (kat_vectors)."""
    ones = 0xFFFFFFFF
    assert philox(32, (0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox(32, (ones,) * 4, (ones, ones)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    numpy = np.random.Philox(key=0x1234567, counter=4)
    assert philox(64, (5, 0, 0, 0), (0x1234567, 0)) == tuple(map(int, numpy.random_raw(4)))


@weft.jit
def integers(out, at, seed, n, rounds: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    place = gl.arange(0, N, layout)
    offset = gl.load(at + place, mask=place < n, other=0)
    a, b, c, d = gl.randint4x(seed, offset, rounds)
    gl.store(out + place, a, mask=place < n)
    gl.store(out + N + place, b, mask=place < n)
    gl.store(out + 2 * N + place, c, mask=place < n)
    gl.store(out + 3 * N + place, d, mask=place < n)
    gl.store(out + 4 * N + place, gl.randint(seed, offset, n_rounds=rounds), mask=place < n)


@pytest.mark.parametrize("rounds", [10, 7])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32, np.uint8])
@pytest.mark.parametrize("seed", [0, 42, -1, 2**40 + 3, 2**64 - 1])
def test_integers(run, rng, seed, kind, rounds):
    info, n = np.iinfo(kind), 500
    at = rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)
    out = poison((5, BLOCK), np.uint32)
    run(integers, 1, out, frozen(at), seed, n, rounds, BLOCK, LINE)
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    found = [
        philox(32, (v & 0xFFFFFFFF, v >> 32 & 0xFFFFFFFF if kind == np.int64 else 0, 0, 0), key, rounds)
        for v in at.tolist()
    ]
    for row, wanted in zip(out, (*zip(*found, strict=True), [four[0] for four in found]), strict=True):
        same(row[:n], np.array(wanted, np.uint32))
        kept_poison(row, n)


@weft.jit
def counters(out, seed, N: gl.constexpr, layout: gl.constexpr, dtype: gl.constexpr):
    place = gl.arange(0, N, layout)
    c0 = (place * -7).to(dtype)
    a, b, c, d = gl.philox(seed, c0, 5, place, 2**31 - 1)
    gl.store(out + place, a)
    gl.store(out + N + place, b)
    gl.store(out + 2 * N + place, c)
    gl.store(out + 3 * N + place, d)


@pytest.mark.parametrize("bits", [32, 64])
def test_counters_of_both_widths(run, bits):
    dtype, seed = (gl.int32, np.uint32) if bits == 32 else (gl.int64, np.uint64), 2**33 + 9
    out = poison((4, BLOCK), dtype[1])
    run(counters, 1, out, seed, BLOCK, LINE, dtype[0])
    key = (seed & 0xFFFFFFFF, seed >> 32) if bits == 32 else (seed, 0)
    found = [philox(bits, (-7 * i & (1 << bits) - 1, 5, i, 2**31 - 1), key) for i in range(BLOCK)]
    same(out, np.array(found, dtype[1]).T.copy())


@weft.jit
def floats(out, seed, N: gl.constexpr, layout: gl.constexpr):
    place = gl.arange(0, N, layout)
    gl.store(out + place, gl.rand(seed, place))
    a, b, c, d = gl.rand4x(seed, place)
    gl.store(out + N + place, a)
    gl.store(out + 2 * N + place, b)
    gl.store(out + 3 * N + place, c)
    gl.store(out + 4 * N + place, d)


def uniform(x: np.ndarray) -> np.ndarray:
    """By Triton's definition: the magnitude of the bits as an integer, times the largest factor that stays below 1."""
    size = x.astype(np.int64)
    size = np.where(size >= 2**31, 2**32 - 1 - size, size).astype(np.float32)
    return size * np.float32(4.6566127342e-10)


def words(seed: int) -> np.ndarray:
    return np.array([philox(32, (i, 0, 0, 0), (seed, 0)) for i in range(BLOCK)], np.uint32).T


def test_uniform_floats(run):
    out = poison((5, BLOCK), np.float32)
    run(floats, 1, out, 77, BLOCK, LINE)
    wanted = uniform(words(77))
    same(out, np.concatenate([wanted[:1], wanted]))
    assert (out >= 0).all() and (out < 1).all() and abs(out[1:].mean() - 0.5) < 0.02
    assert uniform(np.array([2**31 - 1, 2**31, 2**32 - 1, 0], np.uint32)).max() < 1


@weft.jit
def normal(out, seed, N: gl.constexpr, layout: gl.constexpr):
    place = gl.arange(0, N, layout)
    a, b, c, d = gl.randn4x(seed, place)
    gl.store(out + place, gl.randn(seed, place))
    gl.store(out + N + place, a)
    gl.store(out + 2 * N + place, b)
    gl.store(out + 3 * N + place, c)
    gl.store(out + 4 * N + place, d)
    x, y = gl.pair_uniform_to_normal(
        gl.uint_to_uniform_float(place), gl.uint_to_uniform_float(place.to(gl.int64) << 50)
    )
    gl.store(out + 5 * N + place, x)
    gl.store(out + 6 * N + place, y)


def test_normal_floats(run):
    out = poison((7, BLOCK), np.float32)
    run(normal, 1, out, 123, BLOCK, LINE, exact=False, spills=True)
    found = uniform(words(123)).astype(np.float64)
    wanted = []
    last = np.arange(BLOCK) * 4.6566127342e-10, (np.arange(BLOCK) * 2.0**50 % 2**63) * 1.0842020432385337e-19
    for u, v in ((found[0], found[1]), (found[2], found[3]), last):
        radius, angle = np.sqrt(-2 * np.log(np.maximum(u, 1e-7))), 2 * np.pi * v
        wanted += [radius * np.cos(angle), radius * np.sin(angle)]
    for row, want in zip(out, [wanted[0], *wanted], strict=True):
        np.testing.assert_allclose(row, want, rtol=2e-5, atol=2e-5)
    assert abs(out[1:5].mean()) < 0.1 and abs(out[1:5].std() - 1) < 0.1


@weft.jit
def high(out, x, N: gl.constexpr, layout: gl.constexpr):
    place = gl.arange(0, N, layout)
    v = gl.load(x + place)
    gl.store(out + place, gl.umulhi(v, 0xCA5A8263) if v.dtype == gl.uint32 else gl.umulhi(v, v))


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
def test_high_products(run, rng, kind):
    x, out = rng.integers(0, np.iinfo(kind).max, BLOCK, dtype=kind), poison(BLOCK, kind)
    run(high, 1, out, frozen(x), BLOCK, LINE)
    bits = 8 * np.dtype(kind).itemsize
    same(out, np.array([v * (0xCA5A8263 if bits == 32 else v) >> bits for v in x.tolist()], kind))


@pytest.mark.parametrize(
    "call", [lambda k: gl.rand(1.5, k.tile(gl.int32)), lambda k: gl.randint(1, k.tile(gl.float32))]
)
def test_what_is_no_integer(call):
    with building() as kernel, pytest.raises(CompilationError) as caught:
        call(kernel)
    assert caught.value.code == "language-random"
