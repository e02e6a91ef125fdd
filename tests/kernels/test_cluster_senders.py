"""Blocks of a cluster that all send, and tell all of the others that they are ready."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, same
from tests.kernels.test_clusters import offsets
from weft import language as gl
from weft.language.nvidia.hopper import cluster, fence_async_shared, mbarrier, tma


@weft.jit
def swap_work(out, b, layout: gl.constexpr, STEPS: gl.constexpr, BLOCKS: gl.constexpr):
    """Blocks take turns to send to all; each knows that all are done with the last one by its own barrier."""
    memory = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full, free = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(free, count=BLOCKS)
    total = gl.zeros(b.block_shape, gl.float32, layout)
    for step in gl.static_range(STEPS):
        mbarrier.expect(full, b.nbytes_per_cta)
        mbarrier.arrive(free, everywhere=True)
        mbarrier.wait(free, step & 1)
        at = [0, step * b.block_shape[1]]
        tma.async_load(b, at, full, memory, multicast=True, sender=step % BLOCKS)
        mbarrier.wait(full, step & 1)
        total += memory.load(layout)
        fence_async_shared()
    i, j = offsets(b.block_shape[0], b.block_shape[1], layout)
    gl.store(out + i * b.block_shape[1] + j, total)


@pytest.mark.parametrize("bits", [1, 2])
def test_every_block_sends_to_all(run, rng, bits):
    b = rng.integers(-100, 100, (16, 7 * 64)).astype(np.float32)
    out = poison(16 * 64, np.float32)
    shared = gl.NVMMASharedLayout.get_default_for([16, 64], gl.float32, cga_layout=[[0, 0]] * bits)
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=[[0, 0]] * bits)
    b.flags.writeable = False
    run(swap_work, 1, out, Described(b, [16, 64], shared), layout, 7, 1 << bits, num_ctas=1 << bits)
    same(out.reshape(16, 64), b.reshape(16, 7, 64).sum(1, dtype=np.float32))


@weft.jit
def expected_elsewhere(out, b, layout: gl.constexpr, STEPS: gl.constexpr, FROM: gl.constexpr):
    """Each block loads its rows; the bytes that its barrier expects are announced by the block whose rank has fewer bits."""
    memory = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full, told = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(told, count=1)
    cluster.barrier()
    total = gl.zeros(b.block_shape, gl.float32, layout)
    for step in range(STEPS):
        mbarrier.expect(full, b.nbytes_per_cta, from_cta=FROM)
        tma.async_load(b, [0, step * b.block_shape[1]], full, memory)
        mbarrier.wait(full, step & 1)
        total += memory.load(layout)
        fence_async_shared()
        cluster.barrier()
        mbarrier.arrive(told, count=1, from_cta=FROM)
        mbarrier.wait(told, step & 1)
    i, j = offsets(b.block_shape[0], b.block_shape[1], layout)
    gl.store(out + i * b.block_shape[1] + j, total)


@pytest.mark.parametrize(("bits", "mask"), [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)])
def test_arrivals_for_other_blocks(run, rng, bits, mask):
    b, out = rng.integers(-100, 100, (64, 3 * 64)).astype(np.float32), poison(64 * 64, np.float32)
    cga = [[1, 0], [2, 0]][:bits]
    shared = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float32, cga_layout=cga)
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=cga)
    b.flags.writeable = False
    run(expected_elsewhere, 1, out, Described(b, [64, 64], shared), layout, 3, mask, num_ctas=1 << bits)
    same(out.reshape(64, 64), b.reshape(64, 3, 64).sum(1, dtype=np.float32))
