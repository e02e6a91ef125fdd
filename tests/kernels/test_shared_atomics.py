"""Atomics on elements of shared memory that indices select: every kind and type, masks, broadcasts, contention, old values."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import NUMPY, frozen, poison, random, same, values
from tests.kernels.matrices import LAYOUTS, load_matrix, store_matrix
from weft import language as gl

ROWS, COLUMNS = 16, 32
LINE = gl.BlockedLayout([2], [32], [4], [0])
WHOLE = (gl.int32, gl.uint32, gl.int64, gl.uint64)
MEMORY = {
    "plain": gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
    "swizzled": gl.SwizzledSharedLayout(4, 2, 4, [0, 1]),
    "padded": gl.PaddedSharedLayout.with_identity_for([[32, 4]], [ROWS, COLUMNS], [1, 0]),
}


def wrapped_sum(a, b):
    with np.errstate(over="ignore"):
        return a + b


KINDS = {
    "add": wrapped_sum,
    "max": np.maximum,
    "min": np.minimum,
    "xchg": lambda a, b: b,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@weft.jit
def atomic(smem, values, indices, axis: gl.constexpr, mask, kind: gl.constexpr):
    if kind == "add":
        return smem.atomic_scatter_add(values, indices, axis, mask)
    if kind == "max":
        return smem.atomic_scatter_max(values, indices, axis, mask)
    if kind == "min":
        return smem.atomic_scatter_min(values, indices, axis, mask)
    if kind == "and":
        return smem.atomic_scatter_and(values, indices, axis, mask)
    if kind == "or":
        return smem.atomic_scatter_or(values, indices, axis, mask)
    if kind == "xor":
        return smem.atomic_scatter_xor(values, indices, axis, mask)
    return smem.atomic_scatter_xchg(values, indices, axis, mask)


@weft.jit
def changed(out, old, x, index, on, dtype: gl.constexpr, R: gl.constexpr, C: gl.constexpr, axis: gl.constexpr,
            kind: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):  # fmt: skip
    smem = gl.allocate_shared_memory(dtype, [R, C], memory)
    smem.store(load_matrix(out, R, C, layout))
    value, at = load_matrix(x, R, C, layout), load_matrix(index, R, C, layout)
    found = atomic(smem, value, at, axis, load_matrix(on, R, C, layout), kind)
    store_matrix(old, found, R, C, layout)
    store_matrix(out, smem.load(layout), R, C, layout)


def check(run, rng, kind, dtype, memory, axis, before, x, layout="rows"):
    """Each element is changed at most once, so that the old values are known."""
    shape = (ROWS, COLUMNS)
    order = rng.permuted(np.indices(shape)[axis], axis=axis)
    on = rng.integers(0, 4, shape) > 0
    index = np.where(on, order, 12345).astype(np.int32)
    out, old = before.copy(), poison(ROWS * COLUMNS, NUMPY[dtype])
    arguments = (out, old, x, index.ravel(), on.ravel(), dtype, ROWS, COLUMNS, axis, kind, memory, LAYOUTS[layout])
    run(changed, 1, *arguments, compiles=memory is MEMORY["plain"])
    start, given = before.reshape(shape), x.reshape(shape)
    found = np.take_along_axis(start, order, axis)
    wanted = start.copy()
    np.put_along_axis(wanted, order, np.where(on, KINDS[kind](found, given), found), axis)
    same(out + np.zeros(1, out.dtype), wanted.ravel() + np.zeros(1, out.dtype))
    same(old, np.where(on, found, np.zeros(1, out.dtype)).ravel())


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_integers(run, rng, kind, dtype):
    before, x = (values(rng, NUMPY[dtype], ROWS * COLUMNS) for _ in range(2))
    check(run, rng, kind, dtype, MEMORY["plain"], 1, before, x)


FLOATS = [("add", d) for d in (gl.float16, gl.bfloat16, gl.float32, gl.float64)] + [
    (kind, d) for kind in ("max", "min", "xchg") for d in (gl.float32, gl.float64)
]


@pytest.mark.parametrize(("kind", "dtype"), FLOATS, ids=str)
def test_floats(run, rng, kind, dtype):
    of = NUMPY[dtype]
    before, x = (frozen(rng.integers(-64, 65, ROWS * COLUMNS).astype(of) / of(4)) for _ in range(2))
    check(run, rng, kind, dtype, MEMORY["plain"], 0, before, x)


@pytest.mark.parametrize("layout", ["rows", "repeated", "mma"])
@pytest.mark.parametrize("memory", MEMORY)
def test_layouts(run, rng, memory, layout):
    """Also where several threads hold an index: its element is changed once, and all of them get the old value."""
    before, x = (random(rng, np.int32, ROWS * COLUMNS) for _ in range(2))
    for axis in (0, 1):
        check(run, rng, "add", gl.int32, MEMORY[memory], axis, before, x, layout)


@weft.jit
def votes(out, x, n, BINS: gl.constexpr, BLOCK: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):
    bins = gl.allocate_shared_memory(gl.int32, [BINS], memory)
    each = gl.arange(0, BINS, layout)
    bins.store(each * 0)
    at = gl.arange(0, BLOCK, layout)
    index = gl.load(x + at, mask=at < n, other=-1)
    bins.atomic_scatter_add(gl.full([BLOCK], 1, gl.int32, layout), index, 0, mask=at < n)
    bins.atomic_scatter_add(gl.full([BLOCK], 10, gl.int32, layout), index, 0, mask=at < n)
    gl.store(out + each, bins.load(layout))


def test_contended_counts(run, rng):
    x, out = rng.integers(0, 7, 500).astype(np.int32), poison(128, np.int32)
    made = run(votes, 1, out, x, 500, 128, 512, gl.SwizzledSharedLayout(1, 1, 1, [0]), LINE)
    same(out, np.bincount(x, minlength=128).astype(np.int32) * 11)
    # Nothing uses the old values, so none are kept.
    assert "] = atomic_shared" not in made.asm["cuda"]


@weft.jit
def outer_product(out, old, x, n, R: gl.constexpr, C: gl.constexpr, memory: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [R, C], memory)
    smem.store(gl.zeros([R, C], gl.float32, layout))
    i, j = gl.arange(0, R, gl.SliceLayout(1, layout)), gl.arange(0, C, gl.SliceLayout(0, layout))
    column = gl.load(x + i)[:, None]
    smem.scatter(column, (C - 1 - j)[None, :], axis=1)
    store_matrix(old, smem.atomic_scatter_add(column, j[None, :], axis=1, mask=(i < n)[:, None]), R, C, layout)
    store_matrix(out, smem.load(layout), R, C, layout)


def test_values_indices_and_mask_are_broadcast(run, rng):
    x = random(rng, np.float32, ROWS)
    out, old = (poison(ROWS * COLUMNS, np.float32) for _ in range(2))
    run(outer_product, 1, out, old, x, 11, ROWS, COLUMNS, MEMORY["plain"], LAYOUTS["rows"])
    on = np.arange(ROWS) < 11
    same(old, np.repeat(np.where(on, x, np.float32(0)), COLUMNS))
    same(out, np.repeat(np.where(on, x + x, x), COLUMNS))
