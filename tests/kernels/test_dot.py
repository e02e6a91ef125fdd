"""`dot_fma`: matrix products by fused multiply-adds, k in increasing order, so to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import FLOATS, NUMPY, fma_exactly, frozen, poison, same
from tests.kernels.matrices import store_matrix
from weft import language as gl


@weft.jit
def dot(out, a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, layout: gl.constexpr):
    left: gl.constexpr = gl.DotOperandLayout(0, layout, 0)
    right: gl.constexpr = gl.DotOperandLayout(1, layout, 0)
    i, k = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, K, gl.SliceLayout(0, layout))
    x = gl.convert_layout(gl.load(a + i[:, None] * K + k[None, :]), left)
    k, j = gl.arange(0, K, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    y = gl.convert_layout(gl.load(b + k[:, None] * N + j[None, :]), right)
    acc = gl.load(c + i[:, None] * N + j[None, :])
    store_matrix(out, gl.dot_fma(x, y, acc), M, N, layout)


def product(a, b, c):
    acc = c.ravel().copy()
    for k in range(a.shape[1]):
        x, y = np.broadcast_arrays(a[:, k, None], b[None, k, :])
        acc = fma_exactly(x.ravel(), y.ravel(), acc, a.dtype)
    return acc.reshape(c.shape)


LAYOUTS = [gl.BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0]), gl.BlockedLayout([1, 4], [8, 4], [4, 1], [0, 1])]


@pytest.mark.parametrize("layout", LAYOUTS, ids=["square", "wide"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products(run, rng, dtype, layout):
    a, b, c = (frozen(rng.normal(size=s).astype(NUMPY[dtype])) for s in ((32, 8), (8, 32), (32, 32)))
    out = poison((32, 32), NUMPY[dtype])
    run(dot, 1, out, a, b, c, 32, 32, 8, layout)
    same(out, product(a, b, c))


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (64, 32, 4), (8, 8, 1)])
def test_shapes(run, rng, m, n, k):
    a, b, c = (frozen(rng.normal(size=s).astype(np.float32)) for s in ((m, k), (k, n), (m, n)))
    out = poison((m, n), np.float32)
    run(dot, 1, out, a, b, c, m, n, k, LAYOUTS[0])
    same(out, product(a, b, c))


@weft.jit
def batched_dot(out, a, b, c, B: gl.constexpr, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, layout: gl.constexpr):
    """One dot for each index of the first dimension."""
    batch: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, layout))
    down: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, layout))
    right: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, layout))
    g = gl.arange(0, B, batch)[:, None, None]
    i, k = gl.arange(0, M, down)[None, :, None], gl.arange(0, K, right)[None, None, :]
    x = gl.convert_layout(gl.load(a + (g * M + i) * K + k), gl.DotOperandLayout(0, layout, 0))
    k, j = gl.arange(0, K, down)[None, :, None], gl.arange(0, N, right)[None, None, :]
    y = gl.convert_layout(gl.load(b + (g * K + k) * N + j), gl.DotOperandLayout(1, layout, 0))
    at = (g * M + i) * N + j
    gl.store(out + at, gl.dot_fma(x, y, gl.load(c + at)))


BATCHED = [
    gl.BlockedLayout([1, 2, 2], [2, 4, 4], [2, 2, 1], [2, 1, 0]),
    gl.BlockedLayout([2, 1, 1], [1, 32, 1], [4, 1, 1], [2, 1, 0]),
]


@pytest.mark.parametrize("layout", BATCHED, ids=["square", "tall"])
@pytest.mark.parametrize("dtype", [gl.float32, gl.float16], ids=str)
def test_a_leading_dimension_holds_independent_dots(run, rng, dtype, layout):
    batch, m, n, k = 8, 32, 16, 4
    a, b, c = (frozen(rng.normal(size=s).astype(NUMPY[dtype])) for s in ((batch, m, k), (batch, k, n), (batch, m, n)))
    out = poison((batch, m, n), NUMPY[dtype])
    run(batched_dot, 1, out, a, b, c, batch, m, n, k, layout)
    same(out, np.stack([product(*each) for each in zip(a, b, c, strict=True)]))
