"""Prefix combinations: sums and products, both directions, several operands, and functions that do not commute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import weft
from tests.conftest import Device
from tests.effort import examples
from tests.kernels.harness import INTEGERS, NUMPY, Runner, frozen, poison, random, same
from tests.kernels.matrices import LAYOUTS, M, N, load_matrix, store_matrix
from tests.layout.strategies import tiles
from weft import language as gl
from weft.errors import LayoutError
from weft.layout.reduction import plan_scan


@weft.jit
def keep_last(a, b):
    return gl.where(b != 0, b, a)


@weft.jit
def scans(out, x, axis: gl.constexpr, reverse: gl.constexpr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    tile = load_matrix(x, M, N, layout)
    store_matrix(out, gl.cumsum(tile, axis, reverse), M, N, layout)
    store_matrix(out + M * N, gl.cumprod(tile, axis, reverse=reverse), M, N, layout)
    store_matrix(out + 2 * M * N, gl.associative_scan(tile, axis, gl.maximum, reverse), M, N, layout)
    store_matrix(out + 3 * M * N, gl.associative_scan(tile, axis, keep_last, reverse), M, N, layout)


def filled_forward(x):
    """The last number up to each place that is not zero, along axis 0."""
    out = x.copy()
    for i in range(1, len(x)):
        out[i] = np.where(x[i] != 0, x[i], out[i - 1])
    return out


def prefixes(x, axis, reverse):
    """What `scans` should give, by NumPy."""
    moved = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    with np.errstate(over="ignore"):
        sums, products = moved.cumsum(0, dtype=x.dtype), moved.cumprod(0, dtype=x.dtype)
    found = (sums, products, np.maximum.accumulate(moved, 0), filled_forward(moved))
    return [np.ascontiguousarray(np.moveaxis(f[:: -1 if reverse else 1], 0, axis)) for f in found]


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "linear"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_layouts(run, rng, axis, reverse, layout):
    x = np.array(random(rng, np.int32, (M, N)))
    x[rng.random((M, N)) < 0.6] = 0
    out = poison((4, M, N), np.int32)
    run(scans, 1, out, frozen(x), axis, reverse, M, N, LAYOUTS[layout], compiles=not reverse)
    for found, want in zip(out, prefixes(x, axis, reverse), strict=True):
        same(found, want)


@weft.jit
def sums(out, x, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    gl.store(out + at, gl.load(x + at).cumsum(0))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_narrow_integers_are_summed_in_32_bits(run, rng, dtype):
    wide = NUMPY[dtype] if dtype.bits >= 32 else np.uint32 if dtype.is_int_unsigned() else np.int32
    x, out = random(rng, NUMPY[dtype], 512), poison(512, wide)
    run(sums, 1, out, x, 512, gl.BlockedLayout([2], [32], [4], [0]))
    same(out, x.cumsum(dtype=wide))


@pytest.mark.parametrize("dtype", [gl.float16, gl.float32, gl.float64], ids=str)
def test_float_sums_that_are_exact(run, rng, dtype):
    x, out = frozen(rng.integers(-2, 3, 256).astype(NUMPY[dtype])), poison(256, NUMPY[dtype])
    run(sums, 1, out, x, 256, gl.BlockedLayout([4], [32], [4], [0]))
    # Zero has two signs, and which one a sum of zeros has depends on the order.
    same(out + 0, x.cumsum() + 0)


@pytest.mark.parametrize("warps", [1, 2, 8])
@pytest.mark.parametrize("block", [1, 32, 128, 1024])
def test_lines_of_any_length(run, rng, warps, block):
    x, out = random(rng, np.uint32, block), poison(block, np.uint32)
    run(sums, 1, out, x, block, gl.BlockedLayout([4], [32], [warps], [0]), num_warps=warps, compiles=block == 1024)
    same(out, x.cumsum(dtype=np.uint32))


# x[i] = a[i] * x[i - 1] + b[i], as a scan of pairs


@weft.jit
def compose(a, b, c, d):
    return a * c, b * c + d


@weft.jit
def recurrence(out, a, b, BLOCK: gl.constexpr, reverse: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    factors, terms = gl.associative_scan((gl.load(a + at), gl.load(b + at)), 0, compose, reverse)
    gl.store(out + at, factors)
    gl.store(out + BLOCK + at, terms)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_linear_recurrences(run, rng, size, reverse):
    a, b, out = random(rng, np.int64, 512), random(rng, np.int64, 512), poison((2, 512), np.int64)
    run(recurrence, 1, out, a, b, 512, reverse, gl.BlockedLayout([size], [32], [4], [0]))
    mask, factor, term = (1 << 64) - 1, 1, 0
    wanted = []
    for x, y in zip(*(v[:: -1 if reverse else 1].tolist() for v in (a, b)), strict=True):
        factor, term = factor * x & mask, (term * x + y) & mask
        wanted.append((factor, term))
    found = out[:, :: -1 if reverse else 1].T
    same(np.ascontiguousarray(found), np.array(wanted, np.uint64).view(np.int64))


@weft.jit
def one_axis(out, x, axis: gl.constexpr, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    store_matrix(out, gl.cumsum(load_matrix(x, M, N, layout), axis), M, N, layout)


@settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tiles(2), st.integers(0, 1), st.integers(0, 2**32 - 1))
def test_random_layouts(device: Device, case, axis, seed):
    layout, (rows, columns) = case
    warps = layout.to_linear([rows, columns]).in_size("warp")
    x = random(np.random.default_rng(seed), np.int32, (rows, columns))
    out = poison((rows, columns), np.int32)
    try:
        plan_scan(layout.to_linear([rows, columns]), axis)
    except LayoutError:
        reject()
    Runner(device)(
        one_axis, 1, out, x, axis, rows, columns, layout, num_warps=warps, compiles=seed % 8 == 0, spills=True
    )
    same(out, x.cumsum(axis, dtype=np.int32))


@weft.jit
def auto_axis(out, x, layout: gl.constexpr):
    at = gl.arange(0, 2048)
    tile = gl.load(x + at).reshape(64, 32)
    total = gl.cumsum(tile, 1)
    store_matrix(out, gl.set_auto_layout(total, layout), 64, 32, layout)


MIXED = [(one_axis, (1, M, N, LAYOUTS["linear"])), (auto_axis, (LAYOUTS["linear"],))]


@pytest.mark.parametrize(("kernel", "args"), MIXED, ids=["given", "inferred"])
def test_a_layout_that_mixes_the_axis_with_others_is_refused_at_its_line(rng, kernel, args):
    x, out = np.zeros((M, N), np.int32), poison((M, N), np.int32)
    with pytest.raises(LayoutError) as caught:
        kernel[1](out, x, *args)
    assert caught.value.code == "layout-scan"
    assert caught.value.loc is not None
    assert "cumsum" in str(caught.value)
