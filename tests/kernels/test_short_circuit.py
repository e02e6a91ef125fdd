"""`and` and `or` between run-time scalars: an operand that does something runs only where it is needed."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl


@weft.jit
def guarded(out, x, n):
    i = gl.global_idx.x
    if i < n and x[i] > 0 and x[i] < 1:
        out[i] = 1.0
    if i >= n or x[i] <= 0:
        return
    last = i
    while last < n and x[last] > 0:
        last += 1
    out[i] += last * 10


@pytest.mark.parametrize("n", [1, 50, 64])
def test_nothing_is_read_behind_a_condition_that_fails(run, rng, n):
    x, out = random(rng, np.float32, n), np.zeros(n, np.float32)
    run(guarded, 2, Viewed(out), Viewed(x), n, block=32)
    ends = [next((j for j in range(i, n) if x[j] <= 0), n) for i in range(n)]
    want = np.where((x > 0) & (x < 1), 1, 0) + np.where(x > 0, np.multiply(ends, 10), 0)
    same(out, want.astype(np.float32))


@weft.jit
def at_the_end(out, x, n):
    i = gl.program_id(0)
    inside = i < n and gl.load(x + i) == 0
    outside = i >= n or gl.load(x + i) != 0
    gl.store(out + 2 * i, inside.to(gl.int32))
    gl.store(out + 2 * i + 1, outside.to(gl.int32))


def test_values_of_scalars_of_the_block(run, rng):
    x, out = rng.integers(0, 2, 6).astype(np.int32), poison(16, np.int32)
    run(at_the_end, 8, out, x, 6)
    padded = np.append(x, [1, 1])
    want = np.stack([padded == 0, padded != 0], axis=1).astype(np.int32)
    want[6:] = 0, 1
    same(out.reshape(8, 2), want)


@weft.jit
def pure(out, a, b):
    gl.store(out, (a < 3 and b < 3).to(gl.int32))


def test_what_nobody_can_tell_is_computed_without_a_branch(run):
    out = poison(1, np.int32)
    run(pure, 1, out, 2, 5)
    same(out, np.array([0], np.int32))
    assert "if (" not in pure.warmup("*i32", "i32", "i32").asm["cuda"].partition("pure(")[2]
