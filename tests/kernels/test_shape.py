"""Tiles made, reshaped and moved between layouts: every element ends up where NumPy puts it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.conftest import Device
from tests.effort import examples
from tests.kernels.harness import DTYPES, NUMPY, Runner, poison, random, same, values
from tests.layout.strategies import blocked, linear_tiles
from weft import language as gl

ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
LINE = gl.BlockedLayout([4], [32], [4], [0])


@weft.jit
def positions(shape: gl.constexpr, layout: gl.constexpr):
    """The row-major number of each element of a tile of one or two dimensions."""
    if len(shape) == 1:
        return gl.arange(0, shape[0], layout)
    i = gl.arange(0, shape[0], gl.SliceLayout(1, layout))
    j = gl.arange(0, shape[1], gl.SliceLayout(0, layout))
    return gl.expand_dims(i, 1) * shape[1] + gl.expand_dims(j, 0)


@weft.jit
def write(out, tile):
    """Store a tile of up to three dimensions in row-major order, wherever its elements lie."""
    flat = gl.arange(0, tile.numel, gl.AutoLayout())
    gl.store(out + gl.set_auto_layout(flat, tile.ravel().layout), tile.ravel())


# Conversions


@weft.jit
def convert(out, x, shape: gl.constexpr, source: gl.constexpr, target: gl.constexpr):
    tile = gl.load(x + positions(shape, source))
    moved = gl.convert_layout(tile, target)
    gl.static_assert(moved.layout == target)
    gl.store(out + positions(shape, target), moved)


def converted(run, rng, kind, shape, source, target, warps, compiles=True):
    x, out = values(rng, kind, int(np.prod(shape))), poison(int(np.prod(shape)), kind)
    run(convert, 1, out, x, list(shape), source, target, num_warps=warps, compiles=compiles)
    same(out, np.array(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversion_between_orders(run, rng, dtype):
    columns = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1])
    converted(run, rng, NUMPY[dtype], (64, 32), ROWS, columns, 4)


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_conversion_with_any_number_of_warps(run, rng, warps, order):
    source = gl.BlockedLayout([1, 2], [8, 4], [warps, 1], order)
    target = gl.BlockedLayout([2, 1], [2, 16], [1, warps], order[::-1])
    converted(run, rng, np.float32, (32, 64), source, target, warps)


MMA = gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
SHUFFLED = [
    (gl.BlockedLayout([1], [32], [4], [0]), gl.BlockedLayout([4], [32], [4], [0]), (512,)),
    (gl.BlockedLayout([1], [32], [4], [0]), gl.BlockedLayout([2], [32], [4], [0]), (128,)),
    (ROWS, gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0]), (16, 32)),
    (ROWS, gl.BlockedLayout([2, 2], [4, 8], [4, 1], [1, 0]), (64, 64)),
    (ROWS, gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8]), (64, 32)),
    (gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]), ROWS, (64, 32)),
    (MMA, gl.DotOperandLayout(0, MMA, 2), (32, 32)),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "shape"), SHUFFLED, ids=range(len(SHUFFLED)))
@pytest.mark.parametrize("kind", [np.float16, np.int64])
def test_conversion_of_fragments_and_pieces(run, rng, source, target, shape, kind):
    converted(run, rng, kind, shape, source, target, 4)


@st.composite
def pairs_of_layouts(draw):
    """Two layouts of one shape and number of warps, each blocked, a slice, or linear with bits mixed and repeated."""
    linear, shape = draw(linear_tiles(draw(st.integers(1, 2))))
    warps = linear.to_linear(shape).in_size("warp")

    def one():
        kind = draw(st.sampled_from(["blocked", "slice", "slice of slice"]))
        if kind == "blocked":
            return draw(blocked(len(shape), warps))
        parent = draw(blocked(len(shape) + 1 + (kind != "slice"), warps))
        for rank in range(len(parent.order), len(shape), -1):
            parent = gl.SliceLayout(draw(st.integers(0, rank - 1)), parent)
        return parent

    pair = [linear, one()] if draw(st.booleans()) else [one(), one()]
    return draw(st.permutations(pair)), shape, warps


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs_of_layouts(), st.sampled_from([np.uint8, np.float16, np.float32, np.int64]), st.integers(0, 2**32 - 1))
def test_conversion_between_random_layouts(device: Device, case, kind, seed):
    (source, target), shape, warps = case
    # A tile of a thousand registers a thread cannot but spill; those run in the simulator only.
    held = [layout.to_linear(shape).in_size("register") * np.dtype(kind).itemsize // 4 for layout in (source, target)]
    compiles = seed % 8 == 0 and sum(held) <= 128
    converted(Runner(device), np.random.default_rng(seed), kind, shape, source, target, warps, compiles=compiles)


@weft.jit
def trivially(out, x, layout: gl.constexpr):
    tile = gl.load(x + positions([64, 32], layout))
    same_elements = gl.convert_layout(tile, gl.to_linear_layout(layout, [64, 32]), assert_trivial=True)
    back = gl.convert_layout(same_elements, layout, assert_trivial=True)
    gl.store(out + positions([64, 32], layout), back + same_elements)


def test_spellings_of_one_layout_mix_freely(run, rng):
    x, out = random(rng, np.int32, (64, 32)), poison((64, 32), np.int32)
    run(trivially, 1, out, x, ROWS)
    same(out, x + x)


def test_linear_spelling_on_the_host():
    linear = gl.to_linear_layout(ROWS, [64, 32])
    assert isinstance(linear, gl.DistributedLinearLayout)
    assert isinstance(linear, gl.DistributedLayout)
    shared = gl.to_linear_layout(gl.SwizzledSharedLayout(4, 2, 4, [1, 0]), [16, 16])
    assert isinstance(shared, gl.SharedLinearLayout)
    assert isinstance(shared, gl.SharedLayout)


@weft.jit
def say_shared_layouts(layouts: gl.constexpr):
    gl.static_assert(len(layouts) == 3)
    for i in gl.static_range(len(layouts)):
        gl.static_assert(isinstance(layouts[i], gl.SharedLayout))
    gl.static_assert(gl.NVMMASharedLayout(128, 16, 2) == layouts[0])


def test_shared_layouts_are_constants_of_kernels(run):
    nvmma = gl.NVMMASharedLayout(128, 16, 2)
    padded = gl.PaddedSharedLayout.with_identity_for([[32, 4]], [32, 32], [1, 0])
    run(say_shared_layouts, 1, (nvmma, padded, gl.SwizzledSharedLayout(1, 1, 1, [1, 0])), compiles=False)


# Shapes


@weft.jit
def shapes(out, x, layout: gl.constexpr):
    tile = gl.load(x + positions([16, 64], layout))
    write(out, tile)
    write(out + 1024, gl.reshape(tile, [64, 16]))
    write(out + 2048, gl.permute(tile, [1, 0]))
    write(out + 3072, gl.trans(tile.reshape(8, 2, 64)))
    write(out + 4096, gl.reshape(tile, [2, 8, 64]).permute(2, 0, 1))
    write(out + 5120, tile.T.reshape([4, 256]).trans(1, 0))
    write(out + 6144, gl.ravel(tile).reshape([32, 32]).T)
    write(out + 7168, tile[None, :, :].reshape(16, 64))
    gl.static_assert(tile.T.shape == [64, 16] and tile.numel == 1024 and tile.rank == 2 and len(tile) == 16)
    gl.static_assert(tile[:, None, :].shape == [16, 1, 64])
    gl.static_assert(gl.expand_dims(tile, [0, -1]).shape == [1, 16, 64, 1])


@pytest.mark.parametrize("layout", [ROWS, gl.BlockedLayout([2, 2], [16, 2], [1, 4], [0, 1])], ids=["rows", "columns"])
def test_reshapes_and_permutations(run, rng, layout):
    x, out = random(rng, np.float32, (16, 64)), poison((8, 1024), np.float32)
    run(shapes, 1, out, x, layout)
    wanted = (
        x, x, x.T, x.reshape(8, 2, 64).swapaxes(1, 2), x.reshape(2, 8, 64).transpose(2, 0, 1), x.T.reshape(4, 256).T,
        x.reshape(32, 32).T, x,
    )  # fmt: skip
    for row, want in zip(out, wanted, strict=True):
        same(row, want.ravel())


@weft.jit
def broadcasts(out, x, y, layout: gl.constexpr):
    i = gl.arange(0, 32, gl.SliceLayout(1, layout))
    j = gl.arange(0, 16, gl.SliceLayout(0, layout))
    column, row = gl.load(x + i)[:, None], gl.load(y + j)[None, :]
    write(out, column - row)
    left, right = gl.broadcast(column, row)
    gl.static_assert(left.shape == [32, 16] and right.shape == [32, 16])
    write(out + 512, left * 2 + right)
    write(out + 1024, gl.broadcast_to(row, [32, 16]) + column.broadcast_to(32, 16))
    a, b = gl.broadcast(row, 3)
    write(out + 1536, gl.broadcast_to(a * b, 32, 16))


def test_broadcasts(run, rng):
    x, y, out = random(rng, np.int32, 32), random(rng, np.int32, 16), poison((4, 32, 16), np.int32)
    run(broadcasts, 1, out, x, y, ROWS)
    a, b = x[:, None], y[None, :]
    with np.errstate(over="ignore"):
        for tile, want in zip(out, (a - b, a * 2 + b, a + b, np.broadcast_to(b * 3, (32, 16))), strict=True):
            same(tile, want.astype(np.int32))


@weft.jit
def joins(out, x, y, layout: gl.constexpr):
    at = gl.arange(0, 256, layout)
    a, b = gl.load(x + at), gl.load(y + at)
    both = gl.join(a, b)
    gl.static_assert(both.shape == [256, 2])
    write(out, both)
    left, right = gl.split(both)
    gl.store(out + 512 + at, left * 2)
    gl.store(out + 768 + at, right + 1)
    deep = gl.join(both, both.reshape(256, 2) + 1)
    write(out + 1024, deep)
    pairs = gl.split(gl.join(a, 5).permute(0, 1))
    gl.store(out + 2048 + at, pairs[0] + pairs[1])
    first, second = gl.reshape(a, [128, 2]).split()
    write(out + 2304, first - second)


@pytest.mark.parametrize("kind", [np.int32, np.float16])
def test_joins_and_splits(run, rng, kind):
    x, y = random(rng, kind, 256), random(rng, kind, 256)
    out = poison(2304 + 128, kind)
    run(joins, 1, out, x, y, LINE)
    both = np.stack([x, y], -1)
    with np.errstate(over="ignore"):
        deep = np.stack([both, both + kind(1)], -1)
        parts = (both, x * kind(2), y + kind(1), deep, x + kind(5), x[::2] - x[1::2])
    same(out, np.concatenate([p.ravel() for p in parts]).astype(kind))


@weft.jit
def parts(out, x, layout: gl.constexpr):
    tile = gl.load(x + positions([64, 64], layout))
    middle = tile[:, 8:40]
    write(out, middle)
    write(out + 2048, gl.cat(tile[:, 32:], tile[:, :32] * 2, dim=1))
    write(out + 6144, gl.slice(tile, [64, 16], [0, -16 + 64]) + tile[:, 0:16])
    write(out + 7168, gl.cat(middle, middle.to(gl.float32)))
    at = gl.arange(0, 64, gl.SliceLayout(0, layout))
    write(out + 11264, gl.load(x + 64 + at[8:24]))


@pytest.mark.parametrize("kind", [np.float32, np.int16])
@pytest.mark.parametrize(
    "layout",
    [
        gl.BlockedLayout([1, 8], [32, 1], [4, 1], [1, 0]),
        gl.BlockedLayout([2, 1], [8, 4], [4, 1], [0, 1]),
        gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]),
        gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8]),
    ],
    ids=str,
)
def test_parts_of_tiles(run, rng, kind, layout):
    x, out = random(rng, kind, 64 * 64), poison(11280, kind)
    compiled = run(parts, 1, out, x, layout)
    assert not re.search("SHFL|LDS|STS|LDL|STL", compiled.asm["sass"])
    t = x.reshape(64, 64)
    middle = t[:, 8:40]
    with np.errstate(over="ignore"):
        want = (
            middle,
            np.concatenate([t[:, 32:], t[:, :32] * kind(2)], 1),
            t[:, 48:] + t[:, :16],
            middle,
            middle,
            t[1, 8:24],
        )
    same(out, np.concatenate([np.ravel(w) for w in want]).astype(kind))


@weft.jit
def items(out, x):
    at = gl.arange(0, 1, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(out, gl.load(x + at).item() + 1)
    gl.store(out + 1, gl.sum(gl.load(x + at)[:, None]))
    gl.store(out + 2, gl.load(x + at).reshape([]) - 1)


def test_the_only_element_of_a_tile(run):
    out = poison(3, np.int32)
    run(items, 1, out, values(np.random.default_rng(3), np.int32, 12)[3:4].copy())
    x = values(np.random.default_rng(3), np.int32, 12)[3]
    same(out, np.array([x + 1, x, x - 1], np.int32))


@weft.jit
def made(out, scalar, layout: gl.constexpr):
    seven = gl.full([16, 32], 7, gl.float32, layout)
    write(out, seven)
    write(out + 512, gl.zeros([16, 32], gl.float32, layout))
    write(out + 1024, gl.full_like(seven, scalar))
    write(out + 1536, gl.zeros_like(seven) + gl.full([], 2, gl.float32))
    write(out + 2048, gl.full([16, 32], scalar, gl.int8, layout).to(gl.float32))
    write(out + 2560, gl.cast(gl.to_tensor(2.5), gl.float64).to(gl.float32) + gl.zeros_like(seven, dtype=gl.float32))
    kind = seven.type
    gl.static_assert(
        isinstance(kind, gl.distributed_type) and kind.element_ty == gl.float32 and kind.scalar == gl.float32
    )
    gl.static_assert(kind == gl.distributed_type(gl.float32, [16, 32], layout))
    gl.static_assert(isinstance(gl.float32, gl.dtype) and isinstance(seven, gl.tensor))
    write(out + 3072, gl.arange(-256, 256, gl.BlockedLayout([4], [32], [4], [0])).to(gl.float32))


def test_tiles_made_of_nothing(run):
    out = poison((7, 512), np.float32)
    run(made, 1, out, 3.75, ROWS)
    wanted = [np.full(512, v) for v in (7, 0, 3.75, 2, 3, 2.5)] + [np.arange(-256, 256)]
    for row, want in zip(out, wanted, strict=True):
        same(row, want.astype(np.float32))
