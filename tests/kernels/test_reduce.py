"""Reductions: every dtype, axis and kind of layout; values, positions, ties, several operands, functions of the author's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.conftest import Device
from tests.effort import examples
from tests.kernels.harness import (
    FLOATS,
    INTEGERS,
    NUMPY,
    Runner,
    frozen,
    poison,
    random,
    same,
    values,
)  # fmt: skip
from tests.kernels.matrices import LAYOUTS, M, N, load_matrix
from tests.layout.strategies import tiles
from weft import language as gl
from weft.errors import LayoutError


@weft.jit
def along(out, x, ops: gl.constexpr, axis: gl.constexpr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    at = gl.arange(0, N if axis == 0 else M, gl.SliceLayout(axis, layout))
    for i in gl.static_range(len(ops)):
        gl.store(out + i * (M + N) + at, ops[i](tile, axis))


def reduced(run, ops, kind, x, axis, layout, **options):
    """One row per function."""
    out = poison((len(ops), M + N), kind)
    run(along, 1, out, x, ops, axis, M, N, layout, **options)
    return out[:, : N if axis == 0 else M]


def summed(x, axis, kind):
    """Sum and the bound on its error: every order of additions is within it."""
    wide = x.astype(np.float64)
    bound = np.abs(wide).sum(axis) * x.shape[axis] * 2.0 ** -{2: 10, 4: 23, 8: 52}[np.dtype(kind).itemsize]
    return wide.sum(axis), bound


@weft.jit
def total(tile, axis):
    return gl.sum(tile, axis)


@weft.jit
def largest(tile, axis):
    return gl.max(tile, axis)


@weft.jit
def smallest(tile, axis):
    return gl.min(tile, axis=axis)


def wide_integer(dtype):
    return (
        np.int32 if dtype.bits < 32 and not dtype.is_int_unsigned() else np.uint32 if dtype.bits < 32 else NUMPY[dtype]
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
def test_layouts(run, rng, axis, layout):
    x = random(rng, np.int32, (M, N))
    found = reduced(run, (total, largest, smallest, gl.xor_sum, gl.reduce_or), np.int32, x, axis, LAYOUTS[layout])
    parity, union = np.bitwise_xor.reduce(x, axis), np.bitwise_or.reduce(x, axis)
    wanted = (x.sum(axis, dtype=np.int32), x.max(axis), x.min(axis), parity, union)
    for row, want in zip(found, wanted, strict=True):
        same(row, want)


@pytest.mark.parametrize("dtype", [gl.int1, *INTEGERS], ids=str)
def test_integers(run, rng, dtype):
    x, wide = random(rng, NUMPY[dtype], (M, N)), wide_integer(dtype)
    (sums,) = reduced(run, (total,), wide, x, 1, LAYOUTS["across"])
    same(sums, x.sum(1, dtype=wide))
    kind = NUMPY[dtype] if dtype.bits >= 32 else np.int32
    high, low = reduced(run, (largest, smallest), kind, x, 0, LAYOUTS["across"])
    same(high, x.max(0).astype(kind))
    same(low, x.min(0).astype(kind))
    parity, any_ = reduced(run, (gl.xor_sum, gl.reduce_or), NUMPY[dtype], x, 1, LAYOUTS["rows"])
    same(parity, np.bitwise_xor.reduce(x, 1))
    same(any_, np.bitwise_or.reduce(x, 1))


@pytest.mark.parametrize("layout", ["rows", "columns", "repeated", "linear"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_sums(run, rng, dtype, layout):
    x = random(rng, NUMPY[dtype], (M, N))
    for axis in (0, 1):
        (found,) = reduced(run, (total,), NUMPY[dtype], x, axis, LAYOUTS[layout], compiles=axis == 1)
        want, bound = summed(x, axis, NUMPY[dtype])
        if dtype == gl.bfloat16:
            bound = bound * 8
        assert (np.abs(found.astype(np.float64) - want) <= bound).all()


@weft.jit
def total_in_float32(tile, axis):
    return gl.sum(tile, axis, dtype=gl.float32)


@pytest.mark.parametrize("dtype", [gl.float8e4nv, gl.float8e5, gl.float16, gl.bfloat16], ids=str)
def test_sums_in_a_wider_type(run, rng, dtype):
    x = frozen(rng.integers(-8, 9, (M, N)).astype(np.float32).astype(NUMPY[dtype]))
    (found,) = reduced(run, (total_in_float32,), np.float32, x, 1, LAYOUTS["rows"])
    same(found, x.astype(np.float32).sum(1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_extremes_pass_over_nans(run, rng, dtype):
    x = frozen(np.array(values(rng, NUMPY[dtype], M * N)).reshape(M, N))
    kind = NUMPY[dtype] if dtype.bits >= 32 else np.float32
    high, low = reduced(run, (largest, smallest), kind, x, 1, LAYOUTS["rows"])
    wide = x.astype(np.float64)
    same(high, np.fmax.reduce(wide, 1).astype(kind))
    same(low, np.fmin.reduce(wide, 1).astype(kind))


# Positions


@weft.jit
def positions(values, places, x, axis: gl.constexpr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    at = gl.arange(0, N if axis == 0 else M, gl.SliceLayout(axis, layout))
    high, where = gl.max(tile, axis, return_indices=True)
    low, there = gl.min(tile, axis, return_indices=True)
    gl.store(values + at, high)
    gl.store(values + M + N + at, low)
    gl.store(places + at, where)
    gl.store(places + M + N + at, there)
    gl.store(places + 2 * (M + N) + at, gl.argmax(tile, axis))
    gl.store(places + 3 * (M + N) + at, gl.argmin(tile, axis, tie_break_left=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_positions_of_extremes(run, rng, kind, axis, layout):
    # Few different values: ties everywhere, and the first one wins.
    x = frozen(rng.integers(-4, 5, (M, N)).astype(kind))
    found, places = poison((2, M + N), kind), poison((4, M + N), np.int32)
    run(positions, 1, found, places, x, axis, M, N, LAYOUTS[layout], compiles=layout in ("rows", "linear"))
    size = N if axis == 0 else M
    same(found[0, :size], x.max(axis))
    same(found[1, :size], x.min(axis))
    for row, want in zip(places, (x.argmax(axis), x.argmin(axis)) * 2, strict=True):
        same(row[:size], want.astype(np.int32))


@weft.jit
def any_position(places, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    at = gl.arange(0, M, gl.SliceLayout(1, layout))
    gl.store(places + at, gl.argmax(tile, 1, tie_break_left=False))
    gl.store(places + M + at, tile.argmin(1, tie_break_left=False))


def test_positions_of_any_of_equals(run, rng):
    x, places = frozen(rng.integers(0, 3, (M, N)).astype(np.int16)), poison((2, M), np.int32)
    run(any_position, 1, places, x, M, N, LAYOUTS["across"])
    for row, extreme in zip(places, (x.max(1), x.min(1)), strict=True):
        same(x[np.arange(M), row], extreme)


# Whole tiles, and kept axes


@weft.jit
def whole(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    gl.store(out, gl.sum(tile))
    gl.store(out + 1, tile.max())
    gl.store(out + 2, gl.min(tile))
    gl.store(out + 3, gl.sum(gl.sum(tile, 0), 0))
    gl.store(out + 4, gl.xor_sum(tile, axis=None))
    kept = gl.sum(tile, 1, keep_dims=True)
    gl.static_assert(kept.shape == [M, 1])
    gl.static_assert(gl.max(tile, 0, keep_dims=True).shape == [1, N])
    gl.static_assert(gl.sum(tile, keep_dims=True).shape == [1, 1])
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(out + 5 + i[:, None] * N + j[None, :], tile - kept + gl.max(tile, -2, keep_dims=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_tiles_and_kept_axes(run, rng, layout):
    x, out = random(rng, np.int32, (M, N)), poison(5 + M * N, np.int32)
    run(whole, 1, out, x, M, N, LAYOUTS[layout])
    total_ = x.sum(dtype=np.int32)
    with np.errstate(over="ignore"):
        centred = x - x.sum(1, keepdims=True, dtype=np.int32) + x.max(0, keepdims=True)
    same(out[:5], np.array([total_, x.max(), x.min(), total_, np.bitwise_xor.reduce(x.ravel())], np.int32))
    same(out[5:], centred.ravel())


@weft.jit
def line(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    tile = gl.load(x + gl.program_id(0) * n + at, mask=at < n, other=0)
    gl.store(out + gl.program_id(0), gl.sum(tile, 0))


@pytest.mark.parametrize("warps", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("block", [1, 16, 128, 2048])
def test_lines_of_any_length_and_number_of_warps(run, rng, warps, block):
    n = max(block - 3, 1)
    x, out = random(rng, np.int64, (5, n)), poison(5, np.int64)
    run(line, 5, out, x, n, block, gl.BlockedLayout([2], [32], [warps], [0]), num_warps=warps, compiles=block == 2048)
    same(out, x.sum(1))


# Functions of the author's


@weft.jit
def welford(mean, m2, weight, other_mean, other_m2, other_weight):
    delta = other_mean - mean
    both = weight + other_weight
    share = other_weight / both
    return mean + delta * share, m2 + other_m2 + delta * delta * weight * share, both


@weft.jit
def variance(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    mean, m2, weight = gl.reduce((tile, gl.zeros_like(tile), gl.full_like(tile, 1.0)), 1, welford)
    at = gl.arange(0, M, gl.SliceLayout(1, layout))
    gl.store(out + at, mean)
    gl.store(out + M + at, m2 / weight)


@pytest.mark.parametrize("layout", ["rows", "columns", "mma"])
def test_several_operands_together(run, rng, layout):
    x, out = frozen(rng.normal(3, 2, (M, N)).astype(np.float32)), poison((2, M), np.float32)
    run(variance, 1, out, x, M, N, LAYOUTS[layout], exact=False)
    np.testing.assert_allclose(out[0], x.astype(np.float64).mean(1), rtol=1e-5)
    np.testing.assert_allclose(out[1], x.astype(np.float64).var(1), rtol=1e-4)


@weft.jit
def first_large(a, b):
    return gl.where(a > 100, a, b)


@weft.jit
def own_functions(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    at = gl.arange(0, M, gl.SliceLayout(1, layout))
    gl.store(out + at, gl.reduce(tile, 1, gl.maximum))
    gl.store(out + M + at, tile.reduce(1, gl.mul))


@weft.jit
def first_of_large(out, x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    gl.store(out + gl.arange(0, M, gl.SliceLayout(1, layout)), gl.reduce(tile, 1, first_large))


@pytest.mark.parametrize("layout", ["rows", "repeated", "across", "linear"])
def test_own_functions(run, rng, layout):
    x, out = frozen(rng.integers(1, 120, (M, N)).astype(np.int32)), poison((2, M), np.int32)
    run(own_functions, 1, out, x, M, N, LAYOUTS[layout])
    same(out[0], x.max(1))
    with np.errstate(over="ignore"):
        same(out[1], x.prod(1, dtype=np.int32))


@pytest.mark.parametrize("layout", ["rows", "columns", "repeated", "across"])
def test_functions_that_do_not_commute_combine_in_order(run, rng, layout):
    """The leftmost large element, or else the last one."""
    x, out = frozen(rng.integers(1, 103, (M, N)).astype(np.int32)), poison(M, np.int32)
    run(first_of_large, 1, out, x, M, N, LAYOUTS[layout])
    want = [next((value for value in row if value > 100), row[-1]) for row in x.tolist()]
    same(out, np.array(want, np.int32))


def test_an_axis_without_an_order_is_refused_to_functions_that_do_not_commute():
    with pytest.raises(LayoutError) as caught:
        first_of_large[1](poison(M, np.int32), np.zeros((M, N), np.int32), M, N, LAYOUTS["linear"])
    assert caught.value.code == "layout-reduce-order"


@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tiles(2), st.integers(0, 1), st.integers(0, 2**32 - 1))
def test_random_layouts(device: Device, case, axis, seed):
    layout, (rows, columns) = case
    warps = layout.to_linear([rows, columns]).in_size("warp")
    x = random(np.random.default_rng(seed), np.int32, (rows, columns))
    out = poison(rows + columns, np.int32)
    size = columns if axis == 0 else rows
    run = Runner(device)
    run(along, 1, out, x, (total,), axis, rows, columns, layout, num_warps=warps, compiles=seed % 8 == 0, spills=True)
    same(out[:size], x.sum(axis, dtype=np.int32))
