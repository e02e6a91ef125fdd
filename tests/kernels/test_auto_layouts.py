"""`AutoLayout` and `CoalescedLayout`: the compiler chooses, numbers stay the same, and machine code is as wide as it can be."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen, kept_poison, poison, random, same
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])


@weft.jit
def from_the_store(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK)
    value = gl.load(x + at, mask=at < n, other=0) * 2 + gl.full([BLOCK], 1, gl.int32)
    gl.store(out + gl.arange(0, BLOCK, layout), gl.set_auto_layout(value, layout))


@weft.jit
def from_a_neighbour(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout=gl.AutoLayout())
    known = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n, other=0)
    gl.store(out + known, value * 2 + 1)


@pytest.mark.parametrize("kernel", [from_the_store, from_a_neighbour])
def test_auto_layouts_follow_what_they_meet(run, rng, kernel):
    x, out = random(rng, np.int32, 500), poison(512, np.int32)
    run(kernel, 1, out, x, 500, 512, LINE)
    with np.errstate(over="ignore"):
        same(out, np.append(x, np.zeros(12, np.int32)) * 2 + 1)


@weft.jit
def gathered_in_loops(out, x, n, rounds, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    total = gl.zeros([BLOCK], gl.int32)
    for i in range(rounds):
        if i % 2 == 0:
            part = gl.full([BLOCK], i, gl.int32)
        else:
            part = gl.load(x + at, mask=at < n, other=0)
        total += part
    gl.store(out + at, total)


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_loop_gives_its_layout_to_what_comes_in_without(run, rng, rounds):
    x, out = random(rng, np.int32, 500), poison(512, np.int32)
    run(gathered_in_loops, 1, out, x, 500, rounds, 512, LINE)
    with np.errstate(over="ignore"):
        same(out, np.append(x, np.zeros(12, np.int32)) * (rounds // 2) + sum(range(0, rounds, 2)))


@weft.jit
def coalesced_line(out, x, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.CoalescedLayout())
    gl.store(out + at, gl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("kind", [np.int8, np.float16, np.float32, np.float64])
def test_coalesced_lines(run, rng, kind):
    n = 3 * 1024 + 512
    x, out = random(rng, kind, n), poison(4 * 1024, kind)
    compiled = run(coalesced_line, 4, out, x, n, 1024)
    same(out[:n], x)
    kept_poison(out, n)
    # 1024 elements over 128 threads are 8 each: as many as 16 bytes hold.
    bits = min(8 * np.dtype(kind).itemsize * 8, 128)
    wide = {64: r"\.64", 128: r"\.128"}[bits]
    assert re.search(rf"LDG\S*{wide}", compiled.asm["sass"])
    assert re.search(rf"STG\S*{wide}", compiled.asm["sass"])


@weft.jit
def coalesced_matrix(out, x, rows, columns, row, column, M: gl.constexpr, N: gl.constexpr):
    i = gl.program_id(0) * M + gl.arange(0, M, gl.AutoLayout())
    j = gl.program_id(1) * N + gl.arange(0, N, gl.AutoLayout())
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    at = gl.set_auto_layout((i * row)[:, None] + (j * column)[None, :], gl.CoalescedLayout())
    gl.store(out + at, gl.load(x + at, mask=inside) + 1, mask=inside)


@pytest.mark.parametrize("transposed", [False, True])
def test_coalesced_matrices(run, rng, transposed):
    x, out = frozen(rng.normal(size=(100, 80)).astype(np.float32)), poison((100, 80), np.float32)
    shape, strides = ((80, 100), (1, 80)) if transposed else ((100, 80), (80, 1))
    run(coalesced_matrix, (weft.cdiv(shape[0], 32), weft.cdiv(shape[1], 64)), out, x, *shape, *strides, 32, 64)
    same(out, x + np.float32(1))


@weft.jit
def auto_reduction(out, x, layout: gl.constexpr):
    i, j = gl.arange(0, 32), gl.arange(0, 64)
    tile = gl.load(x + (i[:, None] * 64 + j[None, :]))
    tile = gl.set_auto_layout(tile, layout)
    gl.store(out + gl.arange(0, 32, gl.SliceLayout(1, layout)), gl.sum(tile, 1) + gl.max(tile, 1))
    counts = gl.histogram(gl.ravel(tile) & 7, 8)
    gl.store(out + 32 + gl.arange(0, 8, gl.BlockedLayout([1], [32], [4], [0])), counts)


def test_layouts_flow_through_shapes_and_reductions(run, rng):
    x, out = frozen(rng.integers(-99, 99, (32, 64)).astype(np.int32)), poison(40, np.int32)
    run(auto_reduction, 1, out, x, gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
    same(out[:32], (x.sum(1) + x.max(1)).astype(np.int32))
    same(out[32:], np.bincount((x & 7).ravel(), minlength=8).astype(np.int32))
