"""Lanes that leave a loop or branch while others of their warp wait in it for what they do behind it."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import hazard
from weft.views import LayoutTensor

LANES = 32


@weft.jit
def behind_a_branch(out, flags):
    i = gl.thread_idx.x
    seen = i * 0
    if i > 0:
        while seen == 0:
            seen = gl.load(flags + (i - 1), volatile=True)
    gl.atomic_add(flags + i, seen + 1)
    gl.barrier()
    out[i] = seen


@weft.jit
def behind_loops_of_other_lengths(out, flags):
    i = gl.thread_idx.x
    total = 0
    for k in range(i + 1):
        if k > 0:
            while gl.load(flags + (k - 1), volatile=True) == 0:
                pass
        total += k
    gl.atomic_add(flags + i, 1)
    out[i] = total


@weft.jit
def in_nested_branches(out, flags):
    """Odd lanes wait for the even ones before them, in a branch of a branch; what follows each of them is executed once."""
    i = gl.thread_idx.x
    ways = 0
    if i < 24:
        if i % 2 == 1:
            while gl.load(flags + (i - 1), volatile=True) == 0:
                pass
            ways = 1
        ways += 10
    ways += 100
    gl.atomic_add(flags + i, 1)
    out[i] = ways


I = np.arange(LANES)
WANTED = {
    behind_a_branch: I,
    behind_loops_of_other_lengths: I.cumsum(),
    in_nested_branches: 100 + (I < 24) * (10 + I % 2),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kernel", WANTED, ids=lambda kernel: kernel.__name__)
def test_they_go_on(kernel, seed):
    out, flags = np.full(LANES, -1, np.int32), np.zeros(LANES, np.int32)
    with weft.simulate(seed=seed):
        kernel[1](LayoutTensor(out), flags, block=LANES)
    np.testing.assert_array_equal(out, WANTED[kernel])
    np.testing.assert_array_equal(flags, I + 1 if kernel is behind_a_branch else 1)


@weft.jit
def before_a_barrier(out, flags):
    i = gl.thread_idx.x
    while (gl.load(flags, volatile=True) == 0) & (i > 0):
        pass
    gl.barrier()
    gl.atomic_add(flags, 1)
    out[i] = i


def test_they_wait_for_the_others_at_a_barrier():
    with weft.simulate(), pytest.raises(hazard.Deadlock):
        before_a_barrier[1](LayoutTensor(np.zeros(LANES, np.int32)), np.zeros(1, np.int32), block=LANES)
