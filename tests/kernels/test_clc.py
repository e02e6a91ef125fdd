"""Cluster launch control: programs that take over the work of others do all of it, once."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, random, same
from weft import language as gl
from weft.language.nvidia.blackwell import clc, cluster, mbarrier

pytestmark = pytest.mark.usefixtures("blackwell")

BLOCK = 128
LINE = gl.BlockedLayout([1], [32], [4], [0])
ANSWER = gl.SwizzledSharedLayout(1, 1, 1, [0])


@weft.jit
def squares(x, out, ran, n, BLOCK: gl.constexpr, layout: gl.constexpr, answer_layout: gl.constexpr):
    """Blocks of squares; each program counts itself once where it began, and the parts that it does."""
    answer = gl.allocate_shared_memory(gl.int64, [2], answer_layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    part = gl.program_id(0)
    gl.atomic_add(ran + part, 1)
    busy = part >= 0
    phase = 0
    while busy:
        mbarrier.expect(bar, 16)
        clc.try_cancel(answer, bar)
        at = part * BLOCK + gl.arange(0, BLOCK, layout)
        value = gl.load(x + at, mask=at < n, other=0)
        gl.store(out + at, value * value, mask=at < n)
        mbarrier.wait(bar, phase)
        phase ^= 1
        found = clc.load_result(answer)
        busy = found.is_canceled()
        if busy:
            part = found.program_id(0)


@pytest.mark.parametrize("n", [1, 129, 5003])
def test_every_part_is_done(run, rng, n):
    x, out = random(rng, np.float32, n), poison(n, np.float32)
    programs = -(-n // BLOCK)
    ran = np.zeros(programs, np.int32)
    run(squares, programs, x, out, ran, n, BLOCK, LINE, ANSWER, ordered=False)
    same(out, x * x)
    assert set(ran.tolist()) <= {0, 1}
    assert 1 <= ran.sum() <= programs


@weft.jit
def tiles(out, rows, columns, layout: gl.constexpr, answer_layout: gl.constexpr):
    """Each cell of a grid of two axes is counted, with its coordinates."""
    answer = gl.allocate_shared_memory(gl.int64, [2], answer_layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    x = gl.program_id(0)
    y = gl.program_id(1)
    busy = x >= 0
    phase = 0
    while busy:
        gl.atomic_add(out + y * columns + x, 1 + 1000 * x + 100000 * y)
        mbarrier.expect(bar, 16)
        clc.try_cancel(answer, bar)
        mbarrier.wait(bar, phase)
        phase ^= 1
        found = clc.load_result(answer)
        busy = found.is_canceled()
        if busy:
            x = found.program_id(0)
            y = found.program_id(1)


def test_programs_of_two_axes(run):
    out = np.zeros((7, 9), np.int32)
    run(tiles, (9, 7), out, 7, 9, LINE, ANSWER)
    y, x = np.mgrid[:7, :9]
    same(out, (1 + 1000 * x + 100000 * y).astype(np.int32))


COPIES = gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[0]])


@weft.jit
def halves(out, layout: gl.constexpr, answer_layout: gl.constexpr):
    """Programs of two blocks: each block has half of a part. The first block asks, both get the answer."""
    answer = gl.allocate_shared_memory(gl.int64, [2], answer_layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    part = gl.program_id(0)
    busy = part >= 0
    phase = 0
    while busy:
        at = part * 256 + gl.arange(0, 256, layout)
        gl.store(out + at, at)
        # The other block is done with the last answer, and expects the next one.
        mbarrier.expect(bar, 16)
        cluster.barrier()
        clc.try_cancel(answer, bar, multicast=True)
        mbarrier.wait(bar, phase)
        phase ^= 1
        found = clc.load_result(answer)
        busy = found.is_canceled()
        if busy:
            part = found.program_id(0)


def test_clusters_take_over_clusters(run):
    out = poison(11 * 256, np.int32)
    run(halves, 11, out, gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]]), COPIES, num_ctas=2)
    same(out, np.arange(11 * 256, dtype=np.int32))
