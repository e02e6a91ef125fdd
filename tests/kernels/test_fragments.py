"""Tiles taken apart into each thread's registers and put together again, and shared memory of tiles as threads address it."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl
from weft.errors.hazard import BrokenPromise

BLOCKED = gl.BlockedLayout([2, 4], [8, 4], [4, 1], [1, 0])
PRODUCT = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
CROSSED = gl.DistributedLinearLayout(
    [[0, 1], [1, 1], [32, 0], [16, 0], [8, 0]], [[0, 2], [0, 4], [0, 8], [0, 16], [0, 32]], [[2, 0], [4, 0]], [], [64, 64]
)  # fmt: skip
LAYOUTS = {
    "blocked": (BLOCKED, (64, 64)),
    "product": (PRODUCT, (64, 64)),
    "crossed": (CROSSED, (64, 64)),
    "repeated registers": (BLOCKED, (64, 2)),
    "repeated threads": (BLOCKED, (8, 4)),
    "slice": (gl.SliceLayout(1, BLOCKED), (64,)),
    "one": (gl.BlockedLayout([1], [32], [4], [0]), (128,)),
    "one of two": (gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0]), (16, 8)),
}


@weft.jit
def round_trip(out, x, shape: gl.constexpr, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    gl.store(out, gl.from_fragment(part, shape, layout))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_round_trips_are_exact(run, rng, name, kind):
    layout, shape = LAYOUTS[name]
    x, out = random(rng, kind, shape), poison(shape, kind)
    run(round_trip, 1, Viewed(out), Viewed(x), shape, layout)
    same(out, x)


@weft.jit
def shapes(out, x, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    gl.static_assert(part.address_space == gl.AddressSpace.LOCAL)
    gl.store(out, part.shape[0] * 100 + part.shape[part.rank - 1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("blocked", 216), ("product", 216), ("repeated registers", 202), ("slice", 202), ("one", 101)],
)
def test_dimensions_are_the_tiles_own(run, rng, name, expected):
    layout, shape = LAYOUTS[name]
    out = poison(1, np.int32)
    run(shapes, 1, out, Viewed(random(rng, np.float32, shape)), layout)
    assert out[0] == expected


@weft.jit
def by_coordinates(out, x, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    for i in gl.static_range(part.shape[0]):
        for j in gl.static_range(part.shape[1]):
            part[i, j] = part[i, j] * 100 + i * 10 + j
    gl.store(out, gl.from_fragment(part, [32, 64], layout))


def test_indices_count_registers_along_each_dimension(run, rng):
    layout = gl.BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0])
    x, out = random(rng, np.int32, (32, 64)), poison((32, 64), np.int32)
    run(by_coordinates, 1, Viewed(out), Viewed(x), layout)
    # Threads have blocks of 2 x 2, which come again after 16 rows and 32 columns.
    i, j = np.arange(32), np.arange(64)
    with np.errstate(over="ignore"):
        same(
            out,
            x * 100 + ((i % 2 + i // 16 * 2) * 10)[:, None].astype(np.int32) + (j % 2 + j // 32 * 2).astype(np.int32),
        )


@weft.jit
def by_threads(out, x, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    if gl.lane_id() % 2 == 0:
        part[0, 0] = part[0, 0] + 1
    part[1, 0] = gl.lane_id()
    gl.store(out, gl.from_fragment(part, [64, 64], layout))


def test_threads_change_their_own_registers(run, rng):
    layout = gl.BlockedLayout([2, 1], [1, 32], [4, 1], [1, 0])
    x, out = random(rng, np.int32, (64, 64)), poison((64, 64), np.int32)
    run(by_threads, 1, Viewed(out), Viewed(x), layout)
    expected = x.copy()
    with np.errstate(over="ignore"):
        expected[0:8:2, 0:32:2] += 1
    expected[1:8:2, :32] = np.arange(32)
    same(out, expected)


@weft.jit
def doubled(out, x, shape: gl.constexpr, layout: gl.constexpr):
    part = gl.fragment(gl.load(x, layout=layout))
    gl.store(out, gl.from_fragment(part * 2 + part, shape, layout))


@pytest.mark.parametrize("name", ["blocked", "product", "repeated registers"])
def test_arithmetic_of_fragments(run, rng, name):
    layout, shape = LAYOUTS[name]
    x, out = random(rng, np.int32, shape), poison(shape, np.int32)
    run(doubled, 1, Viewed(out), Viewed(x), shape, layout)
    with np.errstate(over="ignore"):
        same(out, x * np.int32(3))


@weft.jit
def from_a_stack(out, layout: gl.constexpr):
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.col_major(2, 2), address_space=gl.AddressSpace.LOCAL)
    for i in gl.static_range(2):
        for j in gl.static_range(2):
            mine[i, j] = gl.lane_id() * 4 + i * 2 + j
    gl.store(out, gl.from_fragment(mine, [8, 16], layout))


def test_any_view_of_that_shape_makes_a_tile(run):
    out = poison((8, 16), np.int32)
    run(from_a_stack, 1, Viewed(out), gl.BlockedLayout([2, 2], [4, 8], [1, 1], [1, 0]), num_warps=1)
    i, j = np.arange(8)[:, None], np.arange(16)
    same(out, ((i // 2 * 8 + j // 2) * 4 + i % 2 * 2 + j % 2).astype(np.int32))


@weft.jit
def disagreeing(out, layout: gl.constexpr):
    part = gl.fragment(gl.zeros([8, 4], gl.int32, layout))
    part[0, 0] = gl.warp_id()
    gl.store(out, gl.from_fragment(part, [8, 4], layout))


def test_threads_that_hold_one_element_must_agree():
    layout = gl.BlockedLayout([1, 1], [8, 4], [4, 1], [1, 0])
    with pytest.raises(BrokenPromise, match=r"both hold element \(0, 0\) of a tile, but with values 0 and 1"):
        disagreeing[1](gl.LayoutTensor(np.zeros((8, 4), np.int32)), layout)


# Shared memory of tiles, as threads see it


@weft.jit
def tile_then_threads(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.int32, [M, N], shared)
    smem.store(gl.load(x, layout=layout))
    view = weft.LayoutTensor(smem)
    thread = gl.thread_idx.x
    for k in gl.static_range(M * N // 128):
        at = k * 128 + thread
        # Each thread takes an element that another one has stored: the transposed one.
        out[at % N, at // N] = view[at // N, at % N]


@weft.jit
def threads_then_tile(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.int32, [M, N], shared)
    view = weft.LayoutTensor(smem)
    thread = gl.thread_idx.x
    for k in gl.static_range(M * N // 128):
        at = k * 128 + thread
        view[at // N, at % N] = x[at % N, at // N]
    gl.store(out, smem.load(layout))


@weft.jit
def back_and_forth(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.int32, [M, N], shared)
    view = weft.LayoutTensor(smem)
    thread = gl.thread_idx.x
    for row in range(3):
        smem.store(gl.load(x, layout=layout) + row)
        if thread < N:
            view[row, thread] = view[row + 1, thread] * 2
        tile = smem.load(layout)
        gl.store(out.tile[M, N](row, 0), tile)


UNSWIZZLED = [gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), gl.SwizzledSharedLayout(1, 1, 1, [0, 1])]
ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])


@pytest.mark.parametrize("shared", UNSWIZZLED, ids=["rows", "columns"])
@pytest.mark.parametrize("kernel", [tile_then_threads, threads_then_tile], ids=["load", "store"])
def test_shared_memory_between_tiles_and_threads(run, rng, kernel, shared):
    x, out = random(rng, np.int32, (16, 32)), poison((32, 16), np.int32)
    if kernel is threads_then_tile:
        x, out = random(rng, np.int32, (32, 16)), poison((16, 32), np.int32)
    compiled = run(kernel, 1, Viewed(out), Viewed(x), 16, 32, ROWS, shared)
    same(out, np.ascontiguousarray(x.T))
    assert compiled.asm["cuda"].count("barrier_sync") + compiled.asm["cuda"].count("__syncthreads()") >= 1


@pytest.mark.parametrize("shared", UNSWIZZLED, ids=["rows", "columns"])
def test_shared_memory_in_turn(run, rng, shared):
    x, out = random(rng, np.int32, (16, 32)), poison((48, 32), np.int32)
    run(back_and_forth, 1, Viewed(out), Viewed(x), 16, 32, ROWS, shared)
    expected = np.concatenate([x + np.int32(row) for row in range(3)])
    with np.errstate(over="ignore"):
        for row in range(3):
            expected[16 * row + row] = expected[16 * row + row + 1] * 2
    same(out, expected)


@weft.jit
def tile_and_threads_of_a_block(out, x, layout: gl.constexpr):
    part = gl.fragment(gl.load(x.tile[16, 32](0, gl.block_idx.x), layout=layout))
    part[0, 0] = part[0, 0] + gl.thread_idx.y
    gl.store(out.tile[16, 32](0, gl.block_idx.x), gl.from_fragment(part, [16, 32], layout))


def test_a_block_of_threads_loads_tiles_of_views(run, rng):
    x, out = random(rng, np.int32, (16, 50)), poison((16, 50), np.int32)
    run(tile_and_threads_of_a_block, 2, Viewed(out, masked=True), Viewed(x, masked=True), ROWS, block=(32, 4))
    expected = x.copy()
    # Warp w is row w of the block, and begins the rows 4 w to 4 w + 3 of the tile; a thread's first column is one of four.
    with np.errstate(over="ignore"):
        expected[:, ::4] += (np.arange(16) // 4)[:, None].astype(np.int32)
    same(out, expected)
