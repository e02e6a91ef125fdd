"""Sorts and the largest elements, along any axis and in any layout."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, poison, random, same, values
from weft import language as gl

LAYOUTS = {
    "registers": gl.BlockedLayout([1, 64], [32, 1], [4, 1], [1, 0]),
    "lanes": gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]),
    "warps": gl.BlockedLayout([2, 2], [4, 8], [1, 4], [0, 1]),
    "fragment": gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8]),
}


@weft.jit
def sorts(out, x, axis: gl.constexpr, descending: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, gl.SliceLayout(0, layout))
    at = i[:, None] * 64 + j[None, :]
    gl.store(out + at, gl.sort(gl.load(x + at), axis, descending=descending))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("axis", "descending"), [(0, False), (1, True)])
def test_sorts_in_every_layout(run, rng, layout, axis, descending):
    x, out = random(rng, np.int32, (16, 64)), poison((16, 64), np.int32)
    run(sorts, 1, out, x, axis, descending, LAYOUTS[layout])
    want = np.sort(x, axis)
    same(out, np.flip(want, axis) if descending else want)


@weft.jit
def merges(out, x, y, layout: gl.constexpr):
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, gl.SliceLayout(0, layout))
    at = i[:, None] * 64 + j[None, :]
    rising, falling = gl.sort(gl.load(x + at)), gl.sort(gl.load(y + at), descending=True)
    gl.store(out + at, gl.bitonic_merge(gl.maximum(rising, falling), descending=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_larger_ones_of_two_sorted_tiles(run, rng, layout):
    x, y = random(rng, np.float32, (16, 64)), random(rng, np.float32, (16, 64))
    out = poison((16, 64), np.float32)
    run(merges, 1, out, x, y, LAYOUTS[layout])
    same(out, np.sort(np.concatenate([x, y], 1), 1)[:, :-65:-1])


NUMBERS = (gl.float16, gl.bfloat16, gl.float32, gl.float64, gl.int8, gl.uint8, gl.int16, gl.uint16, gl.int32, gl.uint32,
           gl.int64, gl.uint64, gl.float8e5)  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_sorts_of_every_type(run, rng, dtype):
    kind = NUMPY[dtype]
    x, out = values(rng, kind, 1024).reshape(16, 64), poison((16, 64), kind)
    run(sorts, 1, out, x, None, False, LAYOUTS["lanes"])
    if not dtype.is_floating():
        same(out, np.sort(x, 1))
        return
    # NaN last, whatever its sign, and -0 before +0.
    wide = x.astype(np.float64)
    order = np.lexsort((~np.signbit(wide), np.where(np.isnan(wide), 0, wide), np.isnan(wide)), axis=1)
    want = np.take_along_axis(x, order, 1)
    number = ~np.isnan(want.astype(np.float64))
    assert (np.isnan(np.array(out).astype(np.float64)) == ~number).all()
    same(np.array(out)[number], want[number])


@weft.jit
def best(out, few, x, k: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, gl.SliceLayout(0, layout))
    tile = gl.load(x + i[:, None] * 64 + j[None, :])
    kept = gl.arange(0, k, gl.SliceLayout(0, layout))
    largest = gl.convert_layout(gl.topk(tile, k), layout)
    gl.store(out + i[:, None] * k + kept[None, :], largest)
    first = gl.arange(0, 2, gl.SliceLayout(1, layout))
    smallest = gl.convert_layout(gl.topk(tile, 2, dim=0, descending=False), layout)
    gl.store(few + first[:, None] * 64 + j[None, :], smallest)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("k", [1, 4, 64])
def test_largest_and_smallest(run, rng, layout, k):
    x = random(rng, np.float32, (16, 64))
    out, few = poison((16, k), np.float32), poison((2, 64), np.float32)
    run(best, 1, out, few, x, k, LAYOUTS[layout])
    same(out, np.sort(x, 1)[:, ::-1][:, :k])
    same(few, np.sort(x, 0)[:2])
