"""Gathers along every axis, and histograms with and without a mask."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import DTYPES, NUMPY, frozen, poison, random, same
from tests.kernels.matrices import LAYOUTS, load_matrix, store_matrix
from weft import language as gl

LINE = gl.BlockedLayout([2], [32], [4], [0])


@weft.jit
def take(out, x, index, axis: gl.constexpr, shape: gl.constexpr, picked: gl.constexpr,
         source: gl.constexpr, target: gl.constexpr):  # fmt: skip
    tile = load_matrix(x, shape[0], shape[1], source)
    places = load_matrix(index, picked[0], picked[1], target)
    store_matrix(out, gl.gather(tile, places, axis), picked[0], picked[1], target)


MOVES = [("rows", "rows"), ("rows", "columns"), ("across", "linear"), ("repeated", "across"), ("mma", "rows")]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("source", "target"), MOVES)
def test_matrices(run, rng, source, target, axis):
    x, out = random(rng, np.float32, (64, 32)), poison((64, 32), np.float32)
    index = frozen(rng.integers(0, (64, 32)[axis], (64, 32)).astype(np.int32))
    run(take, 1, out, x, index, axis, [64, 32], [64, 32], LAYOUTS[source], LAYOUTS[target])
    same(out, np.take_along_axis(x, index.astype(np.int64), axis))


@pytest.mark.parametrize("count", [8, 64, 256])
def test_more_or_fewer_than_there_were(run, rng, count):
    x, out = random(rng, np.int64, (64, 32)), poison((count, 32), np.int64)
    index = frozen(rng.integers(0, 64, (count, 32)).astype(np.uint8))
    run(take, 1, out, x, index, 0, [64, 32], [count, 32], LAYOUTS["rows"], LAYOUTS["rows"])
    same(out, np.take_along_axis(x, index.astype(np.int64), 0))


@weft.jit
def take_line(out, x, index, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    gl.store(out + at, gl.load(x + at).gather(gl.load(index + at), 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_of_every_type(run, rng, dtype):
    x, out = random(rng, NUMPY[dtype], 512), poison(512, NUMPY[dtype])
    index = frozen(rng.integers(0, 512, 512))
    run(take_line, 1, out, x, index, 512, LINE)
    same(out, x[index])


@weft.jit
def count(out, x, n, bins: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr, of_bins: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    values = gl.load(x + at, mask=at < n, other=0)
    places = gl.arange(0, bins, of_bins)
    gl.store(out + places, gl.histogram(values, bins, mask=at < n, layout=of_bins))
    gl.store(out + bins + places, gl.histogram(values, bins, layout=of_bins))


@pytest.mark.parametrize("bins", [1, 2, 32, 256, 512])
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64])
def test_histograms(run, rng, bins, kind):
    n = 1000
    low = -3 if np.dtype(kind).kind == "i" else 0
    x = frozen(rng.integers(low, min(bins + 4, np.iinfo(kind).max), n).astype(kind))
    out = poison((2, bins), np.int32)
    run(count, 1, out, x, n, bins, 1024, LINE, gl.BlockedLayout([1], [32], [4], [0]), compiles=bins in (2, 256))
    inside = x[(x >= 0) & (x.astype(np.int64) < bins)]
    want = np.bincount(inside, minlength=bins).astype(np.int32)
    same(out[0], want)
    want[0] += 24
    same(out[1], want)


def test_histogram_of_repeated_elements_counts_each_once(run, rng):
    x, out = frozen(rng.integers(0, 8, 16).astype(np.int32)), poison((2, 8), np.int32)
    run(count, 1, out, x, 16, 8, 16, LINE, LINE)
    same(out[0], np.bincount(x, minlength=8).astype(np.int32))
