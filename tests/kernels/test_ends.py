"""Tiles that end before a power of two: sizes of m * 2**k along axes whose upper bits lie in registers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, random, same
from tests.kernels.matrices import load_matrix, store_matrix
from weft import language as gl

ROWS = gl.BlockedLayout([1, 4], [16, 2], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([8, 1], [1, 32], [1, 4], [0, 1])
SHORT = gl.BlockedLayout([1, 16], [32, 1], [4, 1], [1, 0])
MMA = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 16])
TILES = {
    "rows": (64, 96, ROWS),
    "rows twice": (128, 80, ROWS),
    "columns": (96, 128, COLUMNS),
    "both": (96, 160, gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])),
    "repeated": (64, 112, gl.BlockedLayout([1, 4], [16, 2], [4, 1], [0, 1])),
    "more in a thread than there are": (128, 24, SHORT),
    "accumulator": (64, 144, MMA),
    "accumulator twice": (128, 176, MMA),
    "left operand": (128, 48, gl.DotOperandLayout(0, MMA, 2)),
    "copies": (16, 40, gl.BlockedLayout([1, 2], [16, 2], [2, 2], [1, 0])),
}  # fmt: skip


COMPILED = ("rows", "accumulator")
"""Those of which large kernels are compiled too, where registers may spill: one for each way to hold a tile."""


@weft.jit
def shifted(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(3, N + 3, gl.SliceLayout(0, layout))
    store_matrix(out, tile * 2 + (i[:, None] * 5 + j[None, :] * 3), M, N, layout)


@pytest.mark.parametrize("name", TILES)
def test_elements(run, rng, name):
    m, n, layout = TILES[name]
    x, out = random(rng, np.int32, (m, n)), poison((m, n), np.int32)
    run(shifted, 1, out, x, m, n, layout)
    same(out, x * 2 + np.arange(m, dtype=np.int32)[:, None] * 5 + np.arange(3, n + 3, dtype=np.int32) * 3)


@weft.jit
def masked(out, x, m, n, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    inside = (i < m)[:, None] & (j < n)[None, :]
    tile = gl.load(x + i[:, None] * n + j[None, :], mask=inside, other=7)
    gl.store(out + i[:, None] * n + j[None, :], gl.where(tile > 0, tile, -tile), mask=inside)


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("less", [(0, 0), (1, 3), (5, 16)])
def test_masks(run, rng, name, less):
    m, n, layout = TILES[name]
    x = random(rng, np.int32, (m - less[0], n - less[1]))
    out = poison(x.shape, np.int32)
    run(masked, 1, out, x, *x.shape, m, n, layout)
    same(out, np.abs(x))


@weft.jit
def difference(a, b):
    return a - b


@weft.jit
def linked(a, b, c, d):
    """Not commutative: a linear function after another."""
    return a * c, b * c + d


@weft.jit
def along(out, x, scales, M: gl.constexpr, N: gl.constexpr, axis: gl.constexpr, layout: gl.constexpr):
    tile, scale = load_matrix(x, M, N, layout), load_matrix(scales, M, N, layout)
    at = gl.arange(0, N if axis == 0 else M, gl.SliceLayout(axis, layout))
    _, value = gl.reduce((scale, tile), axis, linked)
    L: gl.constexpr = N if axis == 0 else M
    gl.store(out + at, gl.sum(tile, axis))
    gl.store(out + L + at, gl.max(tile, axis))
    gl.store(out + 2 * L + at, gl.argmin(tile, axis))
    gl.store(out + 3 * L + at, value)


def folded(scale, x, axis):
    """The reduction by `linked`, element after element."""
    scale, x = (np.moveaxis(each, axis, 0) for each in (scale, x))
    a, b = scale[0], x[0]
    for c, d in zip(scale[1:], x[1:], strict=True):
        a, b = a * c, b * c + d
    return b


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(run, rng, name, axis):
    m, n, layout = TILES[name]
    x = rng.integers(-1000, 1000, (m, n)).astype(np.int32)
    scale = rng.integers(-1, 2, (m, n)).astype(np.int32) * 2 + 1
    out = poison((4, n if axis == 0 else m), np.int32)
    run(along, 1, out, x, scale, m, n, axis, layout, spills=True, compiles=name in COMPILED)
    with np.errstate(over="ignore"):
        same(
            out,
            np.stack([x.sum(axis, dtype=np.int32), x.max(axis), x.argmin(axis), folded(scale, x, axis)]).astype(
                np.int32
            ),
        )


@weft.jit
def scanned(out, x, M: gl.constexpr, N: gl.constexpr, axis: gl.constexpr, reverse: gl.constexpr, layout: gl.constexpr):
    store_matrix(out, gl.cumsum(load_matrix(x, M, N, layout), axis, reverse=reverse), M, N, layout)


@pytest.mark.parametrize("name", [name for name in TILES if name != "copies"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(run, rng, name, axis, reverse):
    m, n, layout = TILES[name]
    x, out = random(rng, np.int32, (m, n)), poison((m, n), np.int32)
    run(scanned, 1, out, x, m, n, axis, reverse, layout, spills=True, compiles=name in COMPILED)
    turned = np.flip(x, axis) if reverse else x
    wanted = np.cumsum(turned, axis, dtype=np.int32)
    same(out, np.flip(wanted, axis) if reverse else wanted)


@weft.jit
def converted(out, x, M: gl.constexpr, N: gl.constexpr, source: gl.constexpr, target: gl.constexpr):
    store_matrix(out, gl.convert_layout(load_matrix(x, M, N, source), target), M, N, target)


CONVERSIONS = {
    "registers": (64, 96, ROWS, gl.BlockedLayout([1, 4], [16, 2], [4, 1], [0, 1])),
    "lanes": (64, 144, MMA, gl.BlockedLayout([1, 2], [8, 4], [4, 1], [0, 1])),
    "lanes of a warp": (64, 48, MMA, gl.BlockedLayout([1, 8], [16, 2], [4, 1], [1, 0])),
    "warps": (128, 80, MMA, ROWS),
    "fragments": (128, 96, MMA, gl.DotOperandLayout(0, MMA, 2)),
    "columns": (128, 160, gl.BlockedLayout([1, 8], [32, 1], [4, 1], [1, 0]), gl.BlockedLayout([8, 1], [8, 4], [1, 4], [0, 1])),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_conversions(run, rng, name, dtype):
    m, n, source, target = CONVERSIONS[name]
    x, out = random(rng, dtype, (m, n)), poison((m, n), dtype)
    run(converted, 1, out, x, m, n, source, target)
    same(out, x)
    back = poison((m, n), dtype)
    run(converted, 1, back, x, m, n, target, source)
    same(back, x)


@weft.jit
def through(out, x, M: gl.constexpr, N: gl.constexpr, source: gl.constexpr, target: gl.constexpr, shared: gl.constexpr):
    held = gl.allocate_shared_memory(x.dtype.element_ty, [2, M, N], shared)
    held.index(1).store(load_matrix(x, M, N, source))
    held.index(0).store(load_matrix(x, M, N, source) + 1)
    store_matrix(out, held.index(1).load(target), M, N, target)
    store_matrix(out + M * N, held.index(0).load(target), M, N, target)


SHARED = {
    "plain": gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
    "columns": gl.SwizzledSharedLayout(1, 1, 1, [0, 1]),
    "swizzled": gl.SwizzledSharedLayout(4, 2, 2, [1, 0]),
}


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize("shared", SHARED)
def test_shared_memory(run, rng, name, shared):
    m, n, layout = TILES[name]
    x, out = random(rng, np.float16, (m, n)), poison((2, m, n), np.float16)
    run(through, 1, out, x, m, n, layout, layout, SHARED[shared])
    same(out, np.stack([x, x + np.float16(1)]))


@weft.jit
def turned(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    up = tile.reshape([2, M // 2, N]).permute((0, 2, 1))
    low, high = gl.split(gl.join(up, up + 1))
    i, j = gl.arange(0, 2, gl.AutoLayout()), gl.arange(0, N, gl.AutoLayout())
    k = gl.arange(0, M // 2, gl.AutoLayout())
    at = (i[:, None, None] * N + j[None, :, None]) * (M // 2) + k[None, None, :]
    gl.store(out + gl.set_auto_layout(at, low.layout), low)
    gl.store(out + M * N + gl.set_auto_layout(at, high.layout), high)


@pytest.mark.parametrize("name", [name for name in TILES if name not in ("columns", "both", "copies")])
def test_shapes(run, rng, name):
    m, n, layout = TILES[name]
    x, out = random(rng, np.int32, (m, n)), poison((2, 2, n, m // 2), np.int32)
    run(turned, 1, out, x, m, n, layout)
    up = x.reshape(2, m // 2, n).transpose(0, 2, 1)
    same(out, np.stack([up, up + 1]))


@weft.jit
def chosen(out, x, at, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile, index = load_matrix(x, M, N, layout), load_matrix(at, M, N, layout)
    store_matrix(out, gl.gather(tile, index, 1), M, N, layout)
    held = gl.allocate_shared_memory(gl.int32, [M, N], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    held.store(tile)
    store_matrix(out + M * N, held.gather(index, 1), M, N, layout)


@pytest.mark.parametrize("name", TILES)
def test_gathers(run, rng, name):
    m, n, layout = TILES[name]
    if m * n > 16384:
        n, m = n, 64
    x, at = random(rng, np.int32, (m, n)), rng.integers(0, n, (m, n)).astype(np.int32)
    out = poison((2, m, n), np.int32)
    run(chosen, 1, out, x, at, m, n, layout)
    same(out, np.stack([np.take_along_axis(x, at, 1)] * 2))
