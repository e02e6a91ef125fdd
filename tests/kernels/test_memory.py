"""Loads and stores: masks, alignment, strides, pointer arithmetic, hints, cache policies, scalars, every element type."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import (
    DTYPES,
    NUMPY,
    frozen,
    kept_poison,
    poison,
    random,
    same,
    values,
)  # fmt: skip
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])


@weft.jit
def copy(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    gl.store(out + at, gl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("n", [1, 3, 511, 512, 1000, 2045, 2048])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copy_of_any_length(run, rng, dtype, n):
    x, out = values(rng, NUMPY[dtype], n), poison(n + 40, NUMPY[dtype])
    run(copy, weft.cdiv(n, 512), out, x, n, 512, LINE, compiles=n in (1000, 2048))
    same(out[:n], x)
    kept_poison(out, n)


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("vec", [1, 2, 4, 8, 16])
def test_copy_in_pieces_of_any_width(run, rng, vec, warps):
    n = 3 * 2048 + 16
    x, out = random(rng, np.int16, n), poison(n + 40, np.int16)
    layout = gl.BlockedLayout([vec], [32], [warps], [0])
    run(copy, 4, out, x, n, 2048, layout, num_warps=warps, compiles=warps in (1, 4))
    same(out[:n], x)
    kept_poison(out, n)


@weft.jit
def copy_shifted(out, x, n, of_x: gl.constexpr, of_out: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    gl.store(out + of_out + at, gl.load(x + (at + of_x), mask=at < n), mask=at < n)


@pytest.mark.parametrize(("of_x", "of_out"), [(0, 1), (1, 0), (2, 2), (4, 8), (3, 5)])
def test_misaligned_addresses(run, rng, of_x, of_out):
    x, out = random(rng, np.float32, 600), poison(600, np.float32)
    run(copy_shifted, 1, out, x, 496, of_x, of_out, 512, LINE)
    same(out[of_out : of_out + 496], x[of_x : of_x + 496])
    kept_poison(out, of_out + 496)
    same(out[:of_out], poison(of_out, np.float32))


# Two dimensions


@weft.jit
def copy_matrix(out, x, rows, columns, out_row, out_column, x_row, x_column,
                M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):  # fmt: skip
    i = gl.program_id(0) * M + gl.arange(0, M, gl.SliceLayout(1, layout))
    j = gl.program_id(1) * N + gl.arange(0, N, gl.SliceLayout(0, layout))
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    tile = gl.load(x + (i * x_row)[:, None] + (j * x_column)[None, :], mask=inside)
    gl.store(out + (i * out_row)[:, None] + (j * out_column)[None, :], tile, mask=inside)


MATRICES = [
    gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]),
    gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1]),
    gl.BlockedLayout([2, 2], [1, 32], [2, 2], [0, 1]),
    gl.DistributedLinearLayout([[0, 1], [16, 0]], [[1, 0], [2, 0], [0, 2], [0, 4], [4, 0]], [[8, 0], [0, 8]], [], [32, 16]),
]  # fmt: skip


@pytest.mark.parametrize("layout", MATRICES, ids=["rows", "columns", "mixed", "linear"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(32, 16), (65, 33), (31, 48)])
def test_copy_of_matrices(run, rng, layout, transposed, rows, columns):
    x = random(rng, np.float32, (rows, columns))
    out = poison((columns, rows) if transposed else (rows, columns), np.float32)
    strides = (1, rows) if transposed else (columns, 1)
    grid = (weft.cdiv(rows, 32), weft.cdiv(columns, 16))
    run(copy_matrix, grid, out, x, rows, columns, *strides, columns, 1, 32, 16, layout)
    same(out, np.ascontiguousarray(x.T) if transposed else np.array(x))


@weft.jit
def copy_box(out, x, A: gl.constexpr, B: gl.constexpr, C: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, A, gl.SliceLayout(1, gl.SliceLayout(2, layout)))[:, None, None]
    j = gl.arange(0, B, gl.SliceLayout(0, gl.SliceLayout(2, layout)))[None, :, None]
    k = gl.arange(0, C, gl.SliceLayout(0, gl.SliceLayout(1, layout)))[None, None, :]
    at = (i * B + j) * C + k
    gl.store(out + at, gl.load(x + at) + (i * 10000 + j * 100 + k))


@pytest.mark.parametrize("order", [[2, 1, 0], [0, 1, 2], [1, 2, 0]])
def test_three_dimensions(run, rng, order):
    x, out = random(rng, np.int32, (8, 16, 4)), poison((8, 16, 4), np.int32)
    run(copy_box, 1, out, x, 8, 16, 4, gl.BlockedLayout([2, 1, 2], [4, 4, 2], [1, 2, 2], order))
    i, j, k = np.ogrid[:8, :16, :4]
    same(out, (x + (i * 10000 + j * 100 + k)).astype(np.int32))


# What stands where nothing is loaded


@weft.jit
def with_other(out, x, n, other, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    even = at % 2 == 0
    gl.store(out + at, gl.load(x + at, mask=at < n, other=other))
    gl.store(out + BLOCK + at, gl.load(x + at, mask=even & (at < n), other=at + 1000))
    gl.store(out + 2 * BLOCK + at, gl.load(x + at, mask=False, other=7))
    gl.store(out + 3 * BLOCK + at, gl.load(x + at % n, mask=True))
    gl.store(out + 4 * BLOCK + at, 5, mask=even)


@pytest.mark.parametrize("dtype", [gl.int8, gl.int32, gl.uint64, gl.float16, gl.float32], ids=str)
def test_other_elements(run, rng, dtype):
    kind, n, i = NUMPY[dtype], 200, np.arange(256)
    x, out = random(rng, kind, n), poison((5, 256), kind)
    run(with_other, 1, out, x, n, 3, 256, LINE)
    whole = np.concatenate([x, np.zeros(56, kind)])
    with np.errstate(all="ignore"):
        others = (i + 1000).astype(kind)
    wanted = (
        np.where(i < n, whole, kind(3)), np.where((i < n) & (i % 2 == 0), whole, others), np.full(256, 7), x[i % n],
        np.where(i % 2 == 0, kind(5), poison(256, kind)),
    )  # fmt: skip
    for row, want in zip(out, wanted, strict=True):
        same(row, want.astype(kind))


# Pointers


@weft.jit
def pointer_arithmetic(out, x, far, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    back = x + BLOCK - 1
    gl.store(out + at, gl.load(back - at))
    gl.store(out + BLOCK + at, gl.load(x + at.to(gl.int64)))
    gl.store(out + 2 * BLOCK + at, gl.load(x + (at.to(gl.uint32) ^ 1)))
    gl.store(out + 3 * BLOCK + at, gl.load((x + far) + (at - far)))
    gl.store(out + 4 * BLOCK + at, gl.load(gl.where(at % 2 == 0, x + at, x + 3)))
    address = (x + at).to(gl.int64)
    neighbour = (address + 4 * (at % 2)).to(gl.pointer_type(gl.float32))
    gl.store(out + 5 * BLOCK + at, gl.load(neighbour, mask=at < BLOCK - 1, other=0))
    gl.store(out + 6 * BLOCK + at, ((x + at) == (x + 5)).to(gl.float32) + ((x + at) < (x + 9)).to(gl.float32))
    gl.static_assert(x.dtype.element_ty == gl.float32)
    gl.static_assert(gl.pointer_type(gl.float32) == x.dtype)


@pytest.mark.parametrize("far", [0, 100, 2**40 // 4])
def test_pointers(run, rng, far):
    x, out, i = random(rng, np.float32, 128), poison((7, 128), np.float32), np.arange(128)
    run(pointer_arithmetic, 1, out, x, far, 128, LINE)
    next_ = np.where(i < 127, x[np.minimum(i + i % 2, 127)], 0)
    wanted = (x[::-1], x, x[i ^ 1], x, np.where(i % 2 == 0, x, x[3]), next_, (i == 5) * 1.0 + (i < 9))
    for row, want in zip(out, wanted, strict=True):
        same(row, want.astype(np.float32))


@weft.jit
def scalar_access(out, x, index, n):
    value = gl.load(x + index)
    gl.store(out, value * 2)
    gl.store(out + 1, gl.load(x + n, mask=n < 3, other=-1.0))
    gl.store(out + 2, 9.0, mask=n > 3)
    gl.store(out + 3, 9.0, mask=n < 3)
    gl.static_assert(value.shape == [] and value.dtype == gl.float32)


def test_scalars_in_memory(run, rng):
    x, out = random(rng, np.float32, 16), poison(4, np.float32)
    run(scalar_access, 1, out, x, 7, 16)
    same(out[:3], np.array([2 * x[7], -1, 9], np.float32))
    kept_poison(out, 3)


@weft.jit
def fill_by_address(out, table, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    place = gl.load(table + at, mask=at < n, other=0)
    gl.store(out + place, at, mask=at < n)


def test_scattered_stores(run, rng):
    n = 500
    table, out = frozen(rng.permutation(n).astype(np.int64)), poison(n, np.int32)
    run(fill_by_address, 1, out, table, n, 512, LINE)
    same(out, np.argsort(table).astype(np.int32))


# Policies change nothing but speed


@weft.jit
def policies(out, x, n, cache: gl.constexpr, eviction: gl.constexpr, to: gl.constexpr, volatile: gl.constexpr,
             BLOCK: gl.constexpr, layout: gl.constexpr):  # fmt: skip
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n, cache_modifier=cache, eviction_policy=eviction, volatile=volatile)
    gl.store(out + at, value, mask=at < n, cache_modifier=to, eviction_policy=eviction)


POLICIES = [
    ("", "", ""), (".ca", ".wb", ""), (".cg", ".cg", ""), (".cs", ".cs", ""), (".cv", ".wt", ""),
    ("", "", "evict_first"), ("", "", "evict_last"),
]  # fmt: skip


@pytest.mark.parametrize(("cache", "to", "eviction"), POLICIES)
def test_cache_policies(run, rng, cache, to, eviction):
    x, out = random(rng, np.float32, 500), poison(512, np.float32)
    run(policies, 1, out, x, 500, cache, eviction, to, False, 512, LINE)
    same(out[:500], x)
    kept_poison(out, 500)


def test_volatile_loads(run, rng):
    x, out = random(rng, np.float32, 500), poison(512, np.float32)
    run(policies, 1, out, x, 500, "", "", "", True, 512, LINE)
    same(out[:500], x)


# Promises of the author


@weft.jit
def hinted(out, x, stride, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    gl.assume(n > 0)
    stride = gl.multiple_of(stride, 8)
    row = gl.program_id(0)
    at = gl.max_contiguous(gl.multiple_of(gl.arange(0, BLOCK, layout), [BLOCK]), [BLOCK])
    group = gl.max_constancy(at // 4, [4])
    value = gl.load(x + row * stride + at, mask=gl.max_constancy(at < n, [4]) if n is None else at < n)
    gl.store(out + row * stride + at, value + group, mask=at < n)


def test_hints_change_nothing_but_speed(run, rng):
    x, out = random(rng, np.int32, (3, 264)), poison((3, 264), np.int32)
    run(hinted, 3, out, x, 264, 252, 256, LINE)
    same(np.ascontiguousarray(out[:, :252]), (x + np.arange(264) // 4)[:, :252].astype(np.int32))
    for row in out:
        kept_poison(row, 252)


# Where several threads hold an element, it is stored once


REDUNDANT = [
    (gl.BlockedLayout([1], [32], [4], [0]), 16, 4),
    (gl.BlockedLayout([4], [32], [8], [0]), 2, 8),
    (gl.SliceLayout(0, gl.BlockedLayout([2, 2], [8, 4], [2, 2], [1, 0])), 32, 4),
    (gl.DistributedLinearLayout([[0], [1]], [[2], [0], [4], [0], [8]], [[0], [16]], [], [32]), 32, 4),
]  # fmt: skip


@weft.jit
def count_stores(counts, out, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    gl.atomic_add(counts + at, 1)
    gl.store(out + at, at)
    gl.atomic_add(counts + BLOCK, 1)


@pytest.mark.parametrize(("layout", "size", "warps"), REDUNDANT, ids=range(len(REDUNDANT)))
def test_repeated_elements_are_written_once(run, layout, size, warps):
    counts, out = np.zeros(size + 1, np.int32), poison(size, np.int32)
    run(count_stores, 3, counts, out, size, layout, num_warps=warps)
    same(counts, np.full(size + 1, 3, np.int32))
    same(out, np.arange(size, dtype=np.int32))
