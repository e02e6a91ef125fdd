"""Buffers in the memory of another block of a cluster, by its rank."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, random, same
from tests.kernels.test_clusters import blocked, offsets
from weft import language as gl
from weft.errors import UserError, hazard
from weft.language.nvidia.hopper import async_store, cluster, mbarrier

ROWS = [[1, 0], [2, 0]]
COPIES = [[0, 0], [0, 0]]


def shared(cga, swizzled: bool = True):
    if swizzled:
        return gl.SwizzledSharedLayout(4, 2, 4, [1, 0], cga_layout=cga)
    return gl.NVMMASharedLayout(64, 32, 2, cga_layout=cga)


@weft.jit
def passed_on(out, x, way: gl.constexpr, layout: gl.constexpr, held: gl.constexpr):
    rank = gl.block_rank_in_cluster()
    i, j = offsets(64, 32, layout)
    memory = gl.allocate_shared_memory(gl.float32, [2, 64, 32], held)
    value = gl.load(x + i * 32 + j)
    right = (rank + 1) % gl.num_ctas()
    if way == "load":
        memory.index(1).store(value)
        cluster.barrier()
        value = memory.index(1).peer(right).load(layout)
    else:
        there = memory.peer(right)
        cluster.barrier()
        if way == "store":
            there.index(1).store(value)
            cluster.barrier()
        else:
            bar = mbarrier.allocate_mbarrier()
            mbarrier.init(bar, count=1)
            mbarrier.expect(bar, there.index(1).nbytes_per_cta)
            async_store(there.index(1), value, bar)
            mbarrier.wait(bar, 0)
        value = memory.index(1).load(layout)
    gl.store(out + i * 32 + j, value)


@pytest.mark.parametrize("swizzled", [True, False])
@pytest.mark.parametrize("way", ["load", "store", "send"])
def test_parts_go_round_the_blocks(run, rng, way, swizzled):
    x, out = random(rng, np.float32, (64, 32)), poison((64, 32), np.float32)
    run(passed_on, 1, out, x, way, blocked(ROWS), shared(ROWS, swizzled), num_ctas=4)
    same(out, np.roll(x, -16 if way == "load" else 16, axis=0))


@weft.jit
def half_of(there: gl.peer_memory, layout: gl.constexpr):
    return there.slice(8, 8).load(layout)


@weft.jit
def summed(out, x, layout: gl.constexpr, held: gl.constexpr, whole: gl.constexpr):
    # Each block has its own sums; block 2 adds up all of them, with a rank that a loop counts.
    rank = gl.block_rank_in_cluster()
    i, j = offsets(64, 32, layout)
    memory = gl.allocate_shared_memory(gl.int32, [16, 32], held)
    a, b = offsets(16, 32, whole)
    mine = gl.load(x + rank * 512 + a * 32 + b)
    memory.store(mine)
    cluster.barrier()
    if rank == 2:
        total = gl.zeros([8, 32], gl.int32, whole)
        for other in range(gl.num_ctas()):
            total += half_of(memory.peer(other), whole)
        c, d = offsets(8, 32, whole)
        gl.store(out + c * 32 + d, total)


def test_one_block_reads_all(run, rng):
    x, out = random(rng, np.int32, (4, 16, 32)), poison((8, 32), np.int32)
    run(summed, 1, out, x, blocked(ROWS), shared(COPIES), blocked(COPIES), num_ctas=4)
    same(out, x[:, 8:].sum(0, dtype=np.int32))


@weft.jit(sync="none")
def wrong(x, kind: gl.constexpr, layout: gl.constexpr, held: gl.constexpr):
    rank = gl.block_rank_in_cluster()
    i, j = offsets(64, 32, layout)
    memory = gl.allocate_shared_memory(gl.float32, [64, 32], held)
    value = gl.load(x + i * 32 + j)
    memory.store(value)
    cluster.barrier()
    if kind == "unordered":
        memory.store(value + 1)
    value = memory.peer(rank + 1 if kind == "outside" else rank ^ 1).load(layout)
    if kind != "leaves":
        cluster.barrier()
    gl.store(x + i * 32 + j, value)


@pytest.mark.parametrize(
    ("kind", "code"),
    [("unordered", "hazard-thread-race"), ("outside", "hazard-peer-rank"), ("leaves", "hazard-block-exited")],
)
def test_hazards(kind, code):
    x = np.zeros((64, 32), np.float32)
    with pytest.raises(hazard.Hazard) as caught:
        wrong[1](x, kind, blocked(ROWS), shared(ROWS), num_ctas=4)
    assert caught.value.code == code, str(caught.value)


@weft.jit
def refused(x, kind: gl.constexpr, layout: gl.constexpr, held: gl.constexpr):
    memory = gl.allocate_shared_memory(gl.float32, [64, 32], held)
    if kind == "rank":
        memory.peer(7).load(layout)
    else:
        memory.peer(1).store(gl.zeros([64, 32], gl.float32, layout))


@pytest.mark.parametrize(
    ("kind", "cga", "blocks", "code"),
    [("rank", ROWS, 4, "cluster-peer"), ("split", COPIES, 4, "cluster-exchange"), ("none", [], 1, "cluster-missing")],
)
def test_mistakes(kind, cga, blocks, code):
    with pytest.raises(UserError) as caught:
        refused[1](np.zeros(1, np.float32), kind, blocked(ROWS if cga else []), shared(cga), num_ctas=blocks)
    assert caught.value.code == code
