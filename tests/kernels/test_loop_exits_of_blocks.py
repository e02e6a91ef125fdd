"""Loops that end early for a whole block: tiles, memory and scalars that go round, and are returned from within.

What each thread does on its own is in `test_loop_exits.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import frozen, kept_poison, poison, random, same
from weft import language as gl

ROW = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def until_large(out, steps, x, n, limit, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    total = gl.zeros([BLOCK], gl.float32)
    row = -1
    for row in range(n):
        total += gl.load(x + (gl.program_id(0) * n + row) * BLOCK + at)
        if gl.sum(total, 0) > limit:
            break
        total = total * 2
    gl.store(out + gl.program_id(0) * BLOCK + at, total)
    gl.store(steps + gl.program_id(0), row)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_tiles_are_carried_out_of_a_loop(run, rng, n):
    x = frozen(rng.integers(-9, 10, (5, n, 128)).astype(np.float32))
    out, steps = poison((5, 128), np.float32), poison(5, np.int32)
    run(until_large, 5, out, steps, x, n, 100.0, 128, ROW)
    want, rows = np.zeros((5, 128), np.float64), np.full(5, -1, np.int32)
    for i in range(5):
        for rows[i] in range(n):
            want[i] += x[i, rows[i]]
            if want[i].sum() > 100:
                break
            want[i] *= 2
    same(out, want.astype(np.float32))
    same(steps, rows)


@weft.jit
def first_positive(x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    pointers = x + gl.arange(0, BLOCK, layout)
    for row in range(n):
        tile = gl.load(pointers)
        if gl.max(tile, 0) > 7.0:
            return tile, pointers, row
        pointers += BLOCK
    return gl.full([BLOCK], -1.0, gl.float32, layout), pointers - BLOCK, -1


@weft.jit
def returned_tiles(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * 2 * BLOCK + gl.arange(0, BLOCK, layout)
    tile, pointers, row = first_positive(x + gl.program_id(0) * n * BLOCK, n, BLOCK, layout)
    gl.store(out + at, tile)
    gl.store(out + at + BLOCK, gl.load(pointers) + row)


def test_tiles_are_returned_from_a_loop(run, rng):
    x = frozen(np.where(rng.random((8, 5, 128)) < 0.997, 1.0, 9.0).astype(np.float32))
    out = poison((8, 2, 128), np.float32)
    run(returned_tiles, 8, out, x, 5, 128, ROW)
    want = np.zeros((8, 2, 128), np.float32)
    for i in range(8):
        row = next((row for row in range(5) if x[i, row].max() > 7), -1)
        want[i] = np.full(128, -1.0) if row < 0 else x[i, row], x[i, row] + row
    same(out, want)


@weft.jit
def ring(out, x, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    slots = gl.allocate_shared_memory(gl.float32, [2, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    slots.index(0).store(gl.load(x + at))
    step = 0
    while True:
        value = slots.index(step % 2).load(layout)
        if step == n:
            break
        step += 1
        if gl.min(value, 0) < 0.0:
            gl.store(out + at, value)
            return
        slots.index(step % 2).store(value * 2 - gl.load(x + at))
    gl.store(out + BLOCK + at, value + step)


@pytest.mark.parametrize("low", [-1, 1])
def test_memory_of_the_block_in_a_loop_that_is_left(run, rng, low):
    x, out = frozen(rng.integers(low, 9, 128).astype(np.float32)), poison((2, 128), np.float32)
    x.flags.writeable = True
    x[5] = low
    run(ring, 1, out, frozen(x), 6, 128, ROW)
    if low < 0:
        same(out[0], x)
        kept_poison(out, 128)
    else:
        same(out[1], x + 6)
        kept_poison(out[0], 0)


@weft.jit
def flags(out, x, n):
    program = gl.program_id(0)
    for k in range(program, n, 3):
        value = gl.load(x + k)
        if value % 2 == 0:
            continue
        gl.store(out + k, value)
        if value > 20:
            return
    gl.store(out + n + program, 1)


def test_scalars_of_the_block(run, rng):
    x, out = frozen(random(rng, np.int32, 50) % 25), np.zeros(53, np.int32)
    run(flags, 3, out, x, 50)
    want = np.zeros(53, np.int32)
    for program in range(3):
        for k in range(program, 50, 3):
            want[k] = x[k] if x[k] % 2 else 0
            if x[k] % 2 and x[k] > 20:
                break
        else:
            want[50 + program] = 1
    same(out, want)


def test_a_loop_that_only_continues_counts_as_before():
    signature = ("*i32", "*i32", "i32")
    assert "for (int" in plain.warmup(*signature).asm["cuda"]
    assert "for (;;)" in flags.warmup(*signature).asm["cuda"]


@weft.jit
def plain(out, x, n):
    for k in range(n):
        if gl.load(x + k) == 3:
            continue
        gl.store(out + k, k)
