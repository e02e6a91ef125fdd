"""Shared memory and its views by the numbers: what is stored somewhere is found there."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import results
from weft import language as gl

ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])
LAYOUTS = [
    gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
    gl.SwizzledSharedLayout(4, 2, 8, [1, 0]),
    gl.SwizzledSharedLayout(8, 1, 4, [0, 1]),
    gl.NVMMASharedLayout(128, 32, 2),
    gl.NVMMASharedLayout(0, 32, 2),
    gl.PaddedSharedLayout.with_identity_for([[16, 4], [64, 8]], [64, 64], [1, 0]),
]
shared = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: type(layout).__name__)


@weft.jit
def place(rows: gl.constexpr, columns: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, rows, layout=gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, columns, layout=gl.SliceLayout(0, layout))[None, :]
    return i * columns + j


def fresh() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(64, 64)).astype(np.float32), np.full((64, 64), np.nan, np.float32)


@weft.jit
def transposed(x, out, shared: gl.constexpr, one: gl.constexpr, other: gl.constexpr):
    """Through the second of three stages, written in rows and read as its transpose."""
    smem = gl.allocate_shared_memory(gl.float32, [3, 64, 64], shared)
    smem.index(1).store(gl.load(x + place(64, 64, one)))
    gl.store(out + place(64, 64, other), smem.index(1).permute([1, 0]).load(other))


@shared
def test_transpose(layout):
    (out,) = results(transposed, lambda: (*fresh(), layout, ROWS, COLUMNS), lambda x, out, *_: [out])
    np.testing.assert_array_equal(out, fresh()[0].T)


@weft.jit
def quarters(x, out, shared: gl.constexpr, layout: gl.constexpr):
    """Quarters of a tile change places."""
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    at = place(32, 32, layout)
    row, col = at // 32, at % 32
    for i in gl.static_range(2):
        for j in gl.static_range(2):
            quarter = smem.slice(32 * i, 32, 0).slice(32 * j, 32, 1)
            quarter.store(gl.load(x + (row + 32 * (1 - i)) * 64 + col + 32 * (1 - j)))
    gl.store(out + place(64, 64, layout), smem.load(layout))


@shared
def test_slices_of_tiles(layout):
    (out,) = results(quarters, lambda: (*fresh(), layout, ROWS), lambda x, out, *_: [out])
    np.testing.assert_array_equal(out, np.roll(fresh()[0], (32, 32), (0, 1)))


@weft.jit
def rows_of_stages(x, out, n, shared: gl.constexpr, layout: gl.constexpr):
    """Stages of a buffer by a number known only at run time, through a slice of the stages."""
    smem = gl.allocate_shared_memory(gl.float32, [6, 16, 64], shared)
    part = smem.slice(1, 4)
    for step in range(n):
        part.index(step).store(gl.load(x + step * 1024 + place(16, 64, layout)))
    for step in range(n):
        gl.store(out + step * 1024 + place(16, 64, layout), smem.index(n - step).load(layout))


def test_stages():
    args = lambda: (*fresh(), 4, gl.SwizzledSharedLayout(4, 1, 4, [1, 0]), ROWS)  # noqa: E731
    (out,) = results(rows_of_stages, args, lambda x, out, *_: [out])
    np.testing.assert_array_equal(out, fresh()[0].reshape(4, 16, 64)[::-1].reshape(64, 64))


@weft.jit
def as_bytes(x, out, shared: gl.constexpr, flat: gl.constexpr, layout: gl.constexpr, line: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    smem.store(gl.load(x + place(64, 64, layout)))
    words = smem._reinterpret(gl.int16, [8192], flat)
    gl.store(out + gl.arange(0, 8192, layout=line), words.load(line))


def test_reinterpreted():
    flat, line = gl.SwizzledSharedLayout(1, 1, 1, [0]), gl.BlockedLayout([8], [32], [4], [0])

    def arguments():
        return fresh()[0], np.zeros(8192, np.int16), gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), flat, ROWS, line

    (out,) = results(as_bytes, arguments, lambda x, out, *_: [out])
    np.testing.assert_array_equal(out, fresh()[0].reshape(-1).view(np.int16))


@weft.jit
def scattered(x, out, shared: gl.constexpr, layout: gl.constexpr):
    at = place(64, 64, layout)
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    smem.scatter(gl.load(x + at), (at // 64 * 5 + 3) % 64, 0)
    gl.store(out + at, smem.gather(at % 64 ^ 21, 1))


@shared
def test_scatter_and_gather(layout):
    (out,) = results(scattered, lambda: (*fresh(), layout, ROWS), lambda x, out, *_: [out])
    wanted = np.empty((64, 64), np.float32)
    wanted[(np.arange(64) * 5 + 3) % 64] = fresh()[0]
    np.testing.assert_array_equal(out, wanted[:, np.arange(64) ^ 21])
