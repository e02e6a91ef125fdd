"""Blocks of a cluster that part by their rank: each acts for itself there, and elsewhere one acts for all."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, poison, random, same
from tests.kernels.test_clusters import blocked, offsets
from tests.kernels.test_print_assert import printed
from weft import language as gl
from weft.errors import UserError
from weft.language.nvidia.hopper import cluster, fence_async_shared, mbarrier, tma

COPIES = [[0, 0], [0, 0]]


@weft.jit
def rank_of(named: gl.constexpr):
    if named:
        return gl.block_rank_in_cluster()
    return gl.inline_asm_elementwise("mov.u32 $0, %cluster_ctarank;", "=r", [], dtype=gl.int32, is_pure=True, pack=1)


@weft.jit
def scalars(out, count, named: gl.constexpr):
    rank = rank_of(named)
    at = out + 16 * gl.program_id(0)
    gl.store(at + rank, rank * 10)
    if rank == 1:
        gl.store(at + 4, 41)
    if rank != 0:
        gl.atomic_add(count, 1)
    gl.atomic_add(count + 1, 1)
    gl.store(at + 5, 51, mask=rank == 3)
    chosen = 0
    if rank == 2:
        chosen = 6
    else:
        chosen = 7
    gl.store(at + 8 + rank, chosen)
    gl.store(at + 6, 61)
    for i in range(rank):
        gl.atomic_add(count + 2, i + 1)


@pytest.mark.parametrize("named", [True, False])
def test_each_block_stores_what_it_reaches(run, named):
    out, count = poison((3, 16), np.int32), np.zeros(3, np.int32)
    run(scalars, 3, out, count, named, num_ctas=4)
    for row in out:
        same(row[:7], np.array([0, 10, 20, 30, 41, 51, 61], np.int32))
        same(row[8:12], np.array([7, 7, 6, 7], np.int32))
    same(count, np.array([9, 3, 3 * (1 + 3 + 6)], np.int32))


@weft.jit
def tiles(out, x, layout: gl.constexpr, rows: gl.constexpr, shared: gl.constexpr):
    rank = gl.block_rank_in_cluster()
    i, j = offsets(32, 32, layout)
    here = i * 32 + j
    copy = gl.load(x + here)
    mine = copy + rank
    gl.store(out + rank * 1024 + here, mine)
    if rank == 2:
        gl.store(out + 4096 + here, copy)
    a, b = offsets(32, 32, rows)
    part = gl.load(x + a * 32 + b)
    if rank == 3:
        gl.store(out + 5120 + a * 32 + b, part)
    memory = gl.allocate_shared_memory(gl.int32, [32, 32], shared, value=copy)
    if rank == 1:
        memory.store(copy + 100)
    if gl.max(gl.max(memory.load(layout), axis=1), axis=0) >= 1100:
        gl.store(out + 6144 + here, memory.load(layout))


def test_tiles_of_which_each_block_has_a_copy(run, rng):
    x, out = rng.permutation(1024).astype(np.int32).reshape(32, 32), poison((7, 32, 32), np.int32)
    before = out[5].copy()
    shared = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=COPIES)
    run(tiles, 1, out, x, blocked(COPIES), blocked([[1, 0], [2, 0]]), shared, num_ctas=4)
    for rank in range(4):
        same(out[rank], x + rank)
    same(out[4], x)
    before[24:] = x[24:]
    same(out[5], before)
    same(out[6], x + 100)


@weft.jit
def remote(out, x, layout: gl.constexpr, shared: gl.constexpr):
    rank = gl.block_rank_in_cluster()
    i, j = offsets(32, 32, layout)
    memory = gl.allocate_shared_memory(gl.int32, [32, 32], shared)
    value = gl.load(x + i * 32 + j)
    cluster.barrier()
    if rank == 3:
        memory.store(value)
    cluster.barrier()
    if rank == 1:
        gl.store(out + i * 32 + j, memory.load(layout))
    cluster.barrier()


def test_one_block_fills_the_memory_of_all(run, rng):
    x, out = random(rng, np.int32, (32, 32)), poison((32, 32), np.int32)
    shared = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[1, 0], [2, 0]])
    run(remote, 1, out, x, blocked(COPIES), shared, num_ctas=4)
    same(out, x)


@weft.jit
def sent(dst, src, out, layout: gl.constexpr):
    rank = gl.block_rank_in_cluster()
    buffer = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.nbytes_per_cta)
    cluster.barrier()
    if rank == 2:
        tma.async_load(src, [0, 0], bar, buffer, multicast=True)
    mbarrier.wait(bar, 0, deps=[buffer])
    value = buffer.load(layout)
    i, j = offsets(16, 32, layout)
    gl.store(out + rank * 512 + i * 32 + j, value)
    if rank == 1:
        buffer.store(value * 2)
        fence_async_shared()
        tma.async_store(dst, [0, 0], buffer)
        tma.store_wait(0)
    cluster.barrier()


def test_copies_that_one_block_starts(run, rng):
    x, y, out = random(rng, np.float32, (16, 32)), poison((16, 32), np.float32), poison((4, 16, 32), np.float32)
    shared = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32, cga_layout=COPIES)
    source, target = (Described(array, [16, 32], shared) for array in (x, y))
    run(sent, 1, target, source, out, blocked(COPIES), num_ctas=4)
    for part in out:
        same(part, x)
    same(y, x * np.float32(2))


@weft.jit
def prints(x):
    rank = gl.block_rank_in_cluster()
    gl.device_print("all", x)
    if rank == 1:
        gl.device_print("one", x)
        gl.device_print("none")
    gl.device_print("rank", rank)


@weft.jit
def threads_print():
    gl.device_print("rank", gl.block_rank_in_cluster())


def test_prints(device, capfd):
    lines = printed(device, capfd, prints, 1, 7, num_ctas=2)
    assert [line.split(") ")[1] for line in lines] == ["all: 7", "none", "one: 7", "rank: 0", "rank: 1"]
    lines = printed(device, capfd, threads_print, 1, block=2, num_ctas=2)
    assert [line.split(": ")[1] for line in lines] == ["0", "1", "0", "1"]


@weft.jit
def summed(out, x, how: gl.constexpr, layout: gl.constexpr):
    i, j = offsets(32, 32, layout)
    value = gl.load(x + i * 32 + j)
    if gl.block_rank_in_cluster() == 1:
        if how == "sum":
            gl.store(out, gl.sum(gl.sum(value, axis=0), axis=0))
        else:
            bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout([[0]]))
            mbarrier.init(bar, count=1)


@pytest.mark.parametrize(
    ("how", "text"), [("sum", "an exchange of elements between blocks"), ("bar", "barrier that blocks share")]
)
def test_what_needs_all_blocks_is_refused(how, text):
    with pytest.raises(UserError) as caught:
        summed[1](np.zeros(1, np.int32), np.zeros((32, 32), np.int32), how, blocked([[1, 0]]), num_ctas=2)
    assert caught.value.code == "cluster-divided"
    assert text in caught.value.message
    assert "block_rank_in_cluster() == 1" in str(caught.value)
