"""Views in tile kernels: loaded and stored as tiles, copied asynchronously, taken apart into registers and put together."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, kept_poison, poison, random, same
from weft import language as gl
from weft.language.nvidia.ampere import async_copy

ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1])
U = gl.UNKNOWN


@weft.jit
def copy_tiles(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i, j = gl.program_id(0), gl.program_id(1)
    tile = gl.load(x.tile[M, N](i, j), layout=layout)
    gl.store(out.tile[M, N](i, j), tile)


def grid_of(rows, columns, m=32, n=64):
    return weft.cdiv(rows, m), weft.cdiv(columns, n)


def assert_widths(compiled, loads, stores):
    sass = compiled.asm["sass"]
    assert {found or "32" for found in re.findall(r"LDG\.E(?:\.(\d+|U8|U16))?", sass)} == {loads}, sass
    assert {found or "32" for found in re.findall(r"STG\.E(?:\.(\d+|U8|U16))?", sass)} == {stores}, sass


# Loads and stores


@pytest.mark.parametrize("kind", [np.int8, np.float16, np.float32, np.int64])
@pytest.mark.parametrize("layout", [None, ROWS, COLUMNS], ids=["best", "rows", "columns"])
def test_whole_tiles(run, rng, kind, layout):
    x, out = random(rng, kind, (64, 192)), poison((64, 192), kind)
    compiled = run(copy_tiles, (2, 3), Viewed(out), Viewed(x), 32, 64, layout)
    same(out, x)
    if layout is None and kind is not np.int8:
        assert_widths(compiled, "128", "128")


@pytest.mark.parametrize(("rows", "columns"), [(101, 203), (1, 64), (33, 4), (64, 65)])
@pytest.mark.parametrize("layout", [None, ROWS, COLUMNS], ids=["best", "rows", "columns"])
def test_edges_of_masked_views(run, rng, rows, columns, layout):
    x, out = random(rng, np.float32, (rows, columns)), poison((rows, columns), np.float32)
    run(copy_tiles, grid_of(rows, columns), Viewed(out, masked=True), Viewed(x, masked=True), 32, 64, layout)
    same(out, x)


def test_masked_rows_of_whole_vectors_stay_wide(run, rng):
    x, out = random(rng, np.float32, (50, 72)), poison((50, 72), np.float32)
    compiled = run(copy_tiles, grid_of(50, 72), Viewed(out, masked=True), Viewed(x, masked=True), 32, 64, None)
    same(out, x)
    assert_widths(compiled, "128", "128")


@weft.jit
def edge_values(out, x, other: gl.constexpr):
    tile = gl.load(x.tile[32, 64](0, 0), other=other)
    gl.store(out, tile)


@pytest.mark.parametrize("other", [None, 7])
def test_what_lies_beyond_the_edge(run, rng, other):
    x, out = random(rng, np.int32, (20, 50)), poison((32, 64), np.int32)
    run(edge_values, 1, Viewed(out), Viewed(x, masked=True), other)
    expected = np.full((32, 64), other or 0, np.int32)
    expected[:20, :50] = x
    same(out, expected)


@pytest.mark.parametrize("masked", [False, True])
def test_columns_of_a_matrix(run, rng, masked):
    rows, columns = (101, 75) if masked else (96, 128)
    x, out = random(rng, np.float32, columns * rows), poison(columns * rows, np.float32)
    layout = gl.Layout.col_major(rows, columns)
    views = (Viewed(a, layout, masked) for a in (out, x))
    compiled = run(copy_tiles, grid_of(rows, columns), *views, 32, 64, None)
    same(out, x)
    if not masked:
        assert_widths(compiled, "128", "128")


@weft.jit
def transpose_tiles(out, x, M: gl.constexpr, N: gl.constexpr):
    tile = gl.load(x.transpose().tile[N, M](gl.program_id(1), gl.program_id(0)))
    gl.store(out.tile[N, M](gl.program_id(1), gl.program_id(0)), tile)


def test_a_transposed_view_meets_one_that_is_not(run, rng):
    x, out = random(rng, np.float32, (100, 203)), poison((203, 100), np.float32)
    run(transpose_tiles, grid_of(100, 203), Viewed(out, masked=True), Viewed(x, masked=True), 32, 64)
    same(out, np.ascontiguousarray(x.T))


@weft.jit
def add_tiles(out, x, y, M: gl.constexpr, N: gl.constexpr):
    i, j = gl.program_id(0), gl.program_id(1)
    total = gl.load(x.tile[M, N](i, j)) + gl.load(y.tile[M, N](i, j))
    gl.store(out.tile[M, N](i, j), total)


def test_tiles_of_views_in_different_orders_have_one_layout(run, rng):
    x, y, out = random(rng, np.int32, (64, 128)), random(rng, np.int32, 64 * 128), poison((64, 128), np.int32)
    run(add_tiles, (2, 2), Viewed(out), Viewed(x), Viewed(y, gl.Layout.col_major(64, 128)), 32, 64)
    with np.errstate(over="ignore"):
        same(out, x + y.reshape(128, 64).T)


@pytest.mark.parametrize(
    "layout",
    [gl.Layout((U, U), (U, 1)), gl.Layout((U, U), (1, U)), gl.Layout((U, U), (U, U)), gl.Layout((U, 128), (128, 1))],
    ids=str,
)
def test_numbers_known_at_run_time(run, rng, layout):
    fast = layout.flat_stride[0] == 1
    x, out = random(rng, np.float32, (192, 128)), poison((192, 128), np.float32)
    shape, strides = ((128, 192), (1, 128)) if fast else ((192, 128), (128, 1))
    views = (Numbered(each, layout, shape, strides) for each in (out, x))
    compiled = run(copy_tiles, grid_of(*shape), *views, 32, 64, None)
    same(out, x)
    if layout.flat_stride.count(U) < 2:
        assert_widths(compiled, "128", "128")


class Numbered(Viewed):
    """A view whose run-time numbers are given."""

    def __init__(self, array, layout, shape, strides):
        super().__init__(array, layout)
        object.__setattr__(self, "numbers", {"shape": shape, "strides": strides})

    def of(self, array):
        """The view of a copy of the array."""
        return gl.LayoutTensor(array, self.layout, **self.numbers)


@weft.jit
def strided_line(out, x, N: gl.constexpr):
    gl.store(out.tile[N](gl.program_id(0)), gl.load(x.tile[N](gl.program_id(0))))


def test_one_axis(run, rng):
    x, out = random(rng, np.int16, 3000), poison(1000, np.int16)
    run(strided_line, 8, Viewed(out, masked=True), Viewed(x, gl.Layout(1000, 3), masked=True), 128)
    same(out, np.ascontiguousarray(x[::3]))


@weft.jit
def copy_whole(out, x, layout: gl.constexpr):
    gl.store(out, gl.load(x, layout=layout))


@pytest.mark.parametrize("strides", [(2, 1024), (1024, 2), (8192, 512)])
def test_no_axis_is_contiguous(run, rng, strides):
    x, out = random(rng, np.int32, 1 << 18), poison((32, 8), np.int32)
    run(copy_whole, 1, Viewed(out), Viewed(x, gl.Layout((32, 8), strides)), None, num_warps=2)
    at = np.arange(32)[:, None] * strides[0] + np.arange(8) * strides[1]
    same(out, x[at])


@weft.jit
def three_axes(out, x):
    tile = gl.load(x.tile[2, 16, 32](gl.program_id(0), gl.program_id(1), 0))
    gl.store(out.tile[2, 16, 32](gl.program_id(0), gl.program_id(1), 0), tile + 1)


def test_three_axes(run, rng):
    x, out = random(rng, np.int32, (5, 40, 30)), poison((5, 40, 30), np.int32)
    run(three_axes, (3, 3), Viewed(out, masked=True), Viewed(x, masked=True))
    with np.errstate(over="ignore"):
        same(out, x + np.int32(1))


@weft.jit
def one_value(out, value):
    gl.store(out.tile[16, 32](gl.program_id(0), 0), value)


def test_one_value_to_a_whole_tile(run):
    out = poison((40, 20), np.float32)
    run(one_value, 3, Viewed(out, masked=True), 2.5)
    same(out, np.full((40, 20), 2.5, np.float32))


@weft.jit
def masked_by_both(out, x, n, layout: gl.constexpr):
    row = gl.arange(0, 32, gl.SliceLayout(1, layout))
    tile = gl.load(x.tile[32, 64](0, 0), mask=(row < n)[:, None], other=-1, layout=layout)
    gl.store(out.tile[32, 64](0, 0), tile, mask=(row < n + 4)[:, None])


def test_a_mask_beside_the_edge(run, rng):
    x, out = random(rng, np.int32, (30, 50)), poison((32, 64), np.int32)
    run(masked_by_both, 1, Viewed(out), Viewed(x, masked=True), 10, ROWS)
    expected = np.full((14, 64), -1, np.int32)
    expected[:10, :50] = x[:10]
    same(out[:14], expected)
    kept_poison(out, 14 * 64)


@weft.jit
def accumulated(out, x, count):
    total = gl.zeros([16, 32], gl.float32, gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))
    for k in range(count):
        total += gl.load(x.tile[16, 32](0, k), layout=total.layout)
    gl.store(out.tile[16, 32](0, 0), total)


def test_tiles_along_a_loop(run, rng):
    x, out = frozen(rng.integers(-9, 9, (16, 300)).astype(np.float32)), poison((16, 32), np.float32)
    run(accumulated, 1, Viewed(out), Viewed(x, masked=True), 10)
    same(out, np.pad(x, ((0, 0), (0, 20))).reshape(16, 10, 32).sum(1))


# Nested layouts

TILES = gl.Layout(((8, 8), (8, 16)), ((8, 64 * 16), (1, 64)))
"""64 x 128 elements in tiles of 8 x 8, in which rows lie side by side."""
ZIGZAG = gl.Layout(((2, 4, 8), (4, 32)), ((4, 128, 512), (1, 8)))


def untiled(flat, layout):
    i, j = np.arange(layout[0].size()), np.arange(layout[1].size())
    at = np.array([layout[0](int(k)) for k in i])[:, None] + np.array([layout[1](int(k)) for k in j])
    return flat[at]


@pytest.mark.parametrize("nested", [TILES, ZIGZAG, gl.Layout((64, (8, 16)), (8, (1, 512)))], ids=str)
@pytest.mark.parametrize("layout", [None, ROWS, COLUMNS, gl.CoalescedLayout()], ids=["best", "rows", "columns", "open"])
def test_nested_views(run, rng, nested, layout):
    x, out = random(rng, np.float32, nested.cosize()), poison((64, 128), np.float32)
    compiled = run(copy_whole, 1, Viewed(out), Viewed(x, nested), layout)
    same(out, untiled(x, nested))
    if layout is None:
        # Each lane has 16 bytes, and so has the next one right behind.
        assert set(re.findall(r"LDG\.E\.?(\d*)", compiled.asm["sass"])) == {"128"}


@pytest.mark.parametrize("layout", [None, ROWS, gl.CoalescedLayout()], ids=["best", "rows", "open"])
def test_nested_views_stored(run, rng, layout):
    x, out = random(rng, np.float32, (64, 128)), poison(TILES.cosize(), np.float32)
    run(copy_whole, 1, Viewed(out, TILES), Viewed(x), layout)
    same(untiled(out, TILES), x)


def test_tiles_of_nested_views(run, rng):
    x, out = random(rng, np.float32, TILES.cosize()), poison((64, 128), np.float32)
    run(copy_tiles, (8, 16), Viewed(out), Viewed(x, TILES), 8, 8, None, num_warps=1)
    same(out, untiled(x, TILES))


# Asynchronous copies


@weft.jit
def through_shared(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i, j = gl.program_id(0), gl.program_id(1)
    smem = gl.allocate_shared_memory(gl.float32, [M, N], gl.SwizzledSharedLayout(4, 1, 8, [1, 0]))
    async_copy.async_copy_global_to_shared(smem, x.tile[M, N](i, j))
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out.tile[M, N](i, j), smem.load(layout))


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (50, 100)])
def test_async_copies_of_views(run, rng, rows, columns):
    x, out = random(rng, np.float32, (rows, columns)), poison((rows, columns), np.float32)
    views = (Viewed(a, masked=True) for a in (out, x))
    compiled = run(through_shared, grid_of(rows, columns), *views, 32, 64, ROWS)
    same(out, x)
    assert re.search(r"LDGSTS\.E\.BYPASS.*128", compiled.asm["sass"])


# Machine code


@weft.jit
def by_hand(out, x, M: gl.constexpr, N: gl.constexpr, stride: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0) * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    j = gl.program_id(1) * N + gl.arange(0, N, gl.SliceLayout(0, layout))
    at = i[:, None] * stride + j[None, :]
    gl.store(out + at, gl.load(x + at))


@weft.jit
def by_hand_in_strides(out, x, out_stride, stride, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0) * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    j = gl.program_id(1) * N + gl.arange(0, N, gl.SliceLayout(0, layout))
    tile = gl.load(x + i[:, None] * stride + j[None, :])
    gl.store(out + i[:, None] * out_stride + j[None, :], tile)


@weft.jit
def by_hand_with_mask(out, x, rows, columns, stride, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i = gl.program_id(0) * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    j = gl.program_id(1) * N + gl.arange(0, N, gl.SliceLayout(0, layout))
    at, inside = i[:, None] * stride + j[None, :], (i < rows)[:, None] & (j < columns)[None, :]
    gl.store(out + at, gl.load(x + at, mask=inside), mask=inside)


def instructions(compiled):
    """How many instructions a kernel has, without the padding behind its end."""
    lines = compiled.asm["sass"].splitlines()
    return sum(line.rstrip().endswith(";") and "NOP" not in line for line in lines)


@pytest.mark.parametrize("shape", [(128, 64), (32, 64)])
@pytest.mark.parametrize("columns", [1280, 960])
def test_a_view_costs_no_instruction(device, shape, columns):
    a, b = (device.array(np.zeros((256, columns), np.float32)) for _ in range(2))
    view = copy_tiles[2, 15](gl.LayoutTensor(a), gl.LayoutTensor(b), *shape, None)
    hand = by_hand[2, 15](a, b, *shape, columns, ROWS)
    assert_widths(view, "128", "128")
    assert 20 < instructions(view) <= instructions(hand)


def test_run_time_strides_cost_no_instruction(device):
    a, b = (device.array(np.zeros((256, 1024), np.float32)) for _ in range(2))
    layout = gl.Layout((U, U), (U, 1))
    view = copy_tiles[2, 16](gl.LayoutTensor(a, layout), gl.LayoutTensor(b, layout), 128, 64, None)
    hand = by_hand_in_strides[2, 16](a, b, 1024, 1024, 128, 64, ROWS)
    assert_widths(view, "128", "128")
    assert 20 < instructions(view) <= instructions(hand)


def test_a_masked_view_costs_no_instruction(device):
    a, b = (device.array(np.zeros((250, 1000), np.float32)) for _ in range(2))
    layout = gl.Layout((U, U), (U, 1))
    view = copy_tiles[2, 16](*(gl.LayoutTensor(each, layout, masked=True) for each in (a, b)), 128, 64, ROWS)
    hand = by_hand_with_mask[2, 16](a, b, 250, 1000, 1000, 128, 64, ROWS)
    assert 20 < instructions(view) <= instructions(hand)


# Views of more than 2**31 elements: memory that is never touched.


@pytest.mark.parametrize(
    ("layout", "numbers"),
    [
        (gl.Layout((3, 1 << 30), (1 << 30, 1)), {}),
        (gl.Layout((U, U), (U, 1)), {"shape": (3, 1 << 30), "strides": (1 << 30, 1)}),
    ],
    ids=["static", "run time"],
)
def test_offsets_have_64_bits_where_the_extent_needs_it(layout, numbers):
    view = gl.LayoutTensor(np.empty(3 << 30, np.int8), layout, masked=True, **numbers)
    compiled = copy_tiles.warmup(view, view, 4, 1024, None)
    cuda = re.sub(r"\s*#line.*\s*", " ", compiled.asm["cuda"].partition('extern "C"')[2])
    stride = "x_stride_0" if numbers else "1073741824ll"
    # The row that a thread begins in, as a place in memory; the edges are compared in 32 bits.
    row = re.search(rf"const i64 (\w+) = \(i64\)(\w+); const i64 \w+ = mul_wrap\(\1, {stride}\)", cuda)
    assert row is not None, cuda
    assert re.search(
        rf"const int \w+ = add_wrap\({row[2]}, 2 \* r\)|t_\d+\[r\] = add_wrap\({row[2]}, 2 \* r\)", cuda
    ), cuda
    assert_widths(compiled, "128", "128")
