"""`weft.elementwise` and `gl.vectorize`: functions for every vector of a shape or a range."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl
from weft.errors import UserError


@weft.jit
def add(indices, out, a, b, simd_width: gl.constexpr):
    out.store[simd_width](indices, a.aligned_load[simd_width](indices) + b.aligned_load[simd_width](indices))


@pytest.mark.parametrize(
    ("shape", "width"), [((100,), 4), (1024, 4), ((7, 10), 2), ((2, 3, 9), 4), ((5, 16), 1), ((0, 4), 4)]
)
def test_elementwise(device, rng, shape, width):
    sizes = shape if isinstance(shape, tuple) else (shape,)
    a, b = random(rng, np.float32, sizes), random(rng, np.float32, sizes)
    padded = np.zeros((*sizes[:-1], -(-sizes[-1] // 4) * 4), np.float32)
    arrays = [device.array(padded + 0) for _ in range(3)]
    given = [padded.copy() for _ in range(2)]
    for whole, part in zip(given, (a, b), strict=True):
        whole[..., : sizes[-1]] = part
    arrays[1:] = map(device.array, given)
    weft.elementwise(add, shape, *map(weft.LayoutTensor, arrays), simd_width=width)
    same(device.numpy(arrays[0])[..., : sizes[-1]], a + b)


@weft.jit
def scaled(indices, out, factor, simd_width: gl.constexpr):
    out[indices] = indices[0] * factor


@weft.jit
def rows(indices, out, COUNT: gl.constexpr, x, simd_width: gl.constexpr):
    for k in gl.static_range(COUNT):
        out[indices[0] * COUNT + k] = x[indices[0] * COUNT + k] + COUNT


def test_elementwise_with_constants(device, rng):
    x = random(rng, np.float32, (15,))
    out = device.array(np.zeros(15, np.float32))
    weft.elementwise(rows, 5, weft.LayoutTensor(out), 3, weft.LayoutTensor(device.array(x)))
    same(device.numpy(out), x + np.float32(3))


def test_elementwise_with_numbers(device):
    out = device.full(50, np.nan)
    weft.elementwise(scaled, 50, weft.LayoutTensor(out), 0.5)
    same(device.numpy(out), np.arange(50, dtype=np.float32) * np.float32(0.5))


@weft.jit
def twice(i, out, x, base, simd_width: gl.constexpr):
    at = base + i
    out.store[simd_width](at, x.load[simd_width](at) * 2)


@weft.jit
def by_tiles(out, x, SIZE: gl.constexpr):
    base = gl.global_idx.x * SIZE
    gl.vectorize(twice, min(SIZE, x.dim(0) - base), 4, out, x, base)


@weft.jit
def by_constants(out, x):
    gl.vectorize(twice, 7, 2, out, x, gl.global_idx.x * 8)


def test_vectorize(run, rng):
    x, out = random(rng, np.float32, 90), poison(90, np.float32)
    run(by_tiles, 1, Viewed(out), Viewed(x), 32, block=3)
    same(out, x * 2)
    x, out = random(rng, np.float32, 32), np.zeros(32, np.float32)
    run(by_constants, 1, Viewed(out), Viewed(x), block=4)
    want = (x * 2).reshape(4, 8)
    want[:, 7] = 0
    same(out, want.reshape(-1))


def test_vectorize_on_the_host():
    calls = []
    weft.vectorize(lambda i, name, simd_width: calls.append((i, simd_width, name)), 10, 4, "x")
    assert calls == [(0, 4, "x"), (4, 4, "x"), (8, 1, "x"), (9, 1, "x")]


@weft.jit
def unmarked(out):
    gl.vectorize(len, 4, 2, out)


def test_mistakes():
    out = weft.LayoutTensor(np.zeros(8, np.float32))
    mistakes = [
        (lambda: unmarked[1](out, block=1), "language-vectorize", "vectorize got"),
        (lambda: weft.vectorize(add, 4, 2), "language-vectorize", "on the host a plain one"),
        (lambda: weft.elementwise(len, 8, out), "elementwise-function", "a builtin_function_or_method and 1 arguments"),
        (lambda: weft.elementwise(add, 8, *[out] * 9), "elementwise-function", "9 arguments"),
        (lambda: weft.elementwise(add, (1, 2, 3, 4), out), "elementwise-shape", "(1, 2, 3, 4)"),
        (lambda: weft.elementwise(add, (-1,), out), "elementwise-shape", "(-1,)"),
        (lambda: weft.elementwise(add, 8, out, simd_width=0), "elementwise-shape", "vectors of 0"),
    ]
    for mistake, code, text in mistakes:
        with pytest.raises(UserError) as caught:
            mistake()
        assert caught.value.code == code
        assert text in str(caught.value)
