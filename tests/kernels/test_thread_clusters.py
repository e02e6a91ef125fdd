"""Clusters of thread-level kernels: the places of blocks, the cluster's barrier, and what crosses between blocks."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, same
from weft import language as gl
from weft.errors import LaunchError, UserError, hazard
from weft.language.nvidia.hopper import cluster

SHARED = gl.AddressSpace.SHARED


@weft.jit
def places(out):
    i = gl.global_idx.x
    out[0, i] = gl.block_rank_in_cluster()
    out[1, i] = gl.block_idx.x
    out[2, i] = gl.cluster_idx.x
    out[3, i] = gl.grid_dim.x * 100 + gl.cluster_dim.x * 10 + gl.cluster_dim.y
    out[4, i] = gl.elect_one_sync()


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_places(run, blocks):
    threads = 64
    out = poison((5, 3 * blocks * threads), np.int32)
    run(places, 3, Viewed(out), block=threads, num_ctas=blocks)
    block = np.arange(3 * blocks * threads) // threads
    lane = np.arange(block.size) % 32
    want = [block % blocks, block, block // blocks, np.full(block.size, 300 * blocks + 10 * blocks + 1), lane == 0]
    same(out, np.stack(want).astype(np.int32))


@weft.jit
def summed(out, partial, x, MEET: gl.constexpr):
    shared = gl.stack_allocation[gl.float32, SHARED](gl.row_major[128]())
    i, mine = gl.thread_idx.x, gl.block_rank_in_cluster()
    shared[i] = x[gl.global_idx.x]
    gl.barrier()
    stride = 64
    while stride > 0:
        if i < stride:
            shared[i] += shared[i + stride]
        gl.barrier()
        stride //= 2
    if i == 0:
        partial[gl.block_idx.x] = shared[0]
    if MEET:
        gl.cluster_sync()
    if gl.elect_one_sync() and mine == 0 and gl.warp_id() == 0:
        total: gl.float32 = 0
        for k in range(gl.cluster_dim.x):
            total += partial[gl.cluster_idx.x * gl.cluster_dim.x + k]
        out[gl.cluster_idx.x] = total


def test_a_sum_over_the_cluster(run, rng):
    x = rng.integers(-9, 9, (2, 512)).astype(np.float32)
    out, partial = poison(2, np.float32), poison(8, np.float32)
    run(summed, 2, Viewed(out), Viewed(partial), Viewed(x.reshape(-1)), True, block=128, num_ctas=4)
    same(out, x.sum(1))
    same(partial, x.reshape(8, 128).sum(1))


def test_without_the_barrier_it_is_a_race():
    arrays = [weft.LayoutTensor(np.zeros(n, np.float32)) for n in (2, 8, 1024)]
    with pytest.raises(UserError) as caught:
        summed[2](*arrays, False, block=128, num_ctas=4)
    assert caught.value.code.startswith("hazard-")
    assert "partial" in str(caught.value)


@weft.jit
def staged(out, x):
    i = gl.global_idx.x
    tile = gl.stack_allocation[gl.float32, SHARED](gl.row_major[64]())
    tile[gl.thread_idx.x] = x[i] * (gl.block_idx.x + 1)
    gl.barrier()
    gl.cluster_arrive()
    if gl.elect_one_sync():
        first = gl.thread_idx.x // 32 * 32
        total: gl.float32 = 0
        for k in range(32):
            total += tile[first + k]
        out[gl.block_idx.x, gl.warp_id()] = total
    gl.cluster_wait()


def test_arrivals_apart_from_waits(run, rng):
    x, out = rng.integers(-9, 9, 512).astype(np.float32), poison((8, 2), np.float32)
    run(staged, 4, Viewed(out), Viewed(x), block=64, num_ctas=2)
    same(out, x.reshape(8, 2, 32).sum(2) * np.arange(1, 9, dtype=np.float32)[:, None])


@weft.jit
def alone(out):
    cluster.arrive()
    cluster.wait()
    out[gl.thread_idx.x] = 0


@weft.jit
def synchronised(out):
    gl.cluster_sync()
    out[gl.thread_idx.x] = 0


@weft.jit
def divergent(out):
    if gl.thread_idx.x < 32:
        gl.cluster_sync()
    out[gl.thread_idx.x] = 0


@weft.jit
def by_tiles(out):
    at = gl.arange(0, 64, layout=gl.BlockedLayout([1], [32], [2], [0]))
    gl.store(out + at, at)


@pytest.mark.parametrize(
    ("kernel", "options", "code", "text"),
    [
        (alone, {"block": 64}, "cluster-missing", "cluster.arrive() in a kernel that is launched without a cluster"),
        (synchronised, {"block": 64}, "cluster-missing", "cluster.barrier()"),
        (divergent, {"block": 64, "num_ctas": 2}, "control-scope", "by the whole block"),
        (by_tiles, {"block": 64, "num_ctas": 2}, "cluster-tiles", "each block runs its own threads"),
    ],
)
def test_mistakes(kernel, options, code, text):
    out = np.zeros(64, np.int32)
    with pytest.raises(UserError) as caught:
        kernel[1](out if kernel is by_tiles else weft.LayoutTensor(out), **options)
    assert caught.value.code == code, str(caught.value)
    assert text in str(caught.value)


def test_the_option_of_other_languages():
    with pytest.raises(LaunchError, match="num_ctas="):
        places[1](weft.LayoutTensor(np.zeros((5, 64), np.int32)), block=64, cluster_dim=2)


# Shared memory of other blocks


@weft.jit
def turned(out, counts, x, SHIFT: gl.constexpr, MEET: gl.constexpr):
    row = gl.stack_allocation[gl.float32, SHARED](gl.row_major[8, 16]())
    seen = gl.stack_allocation[gl.int32, SHARED](gl.row_major[4]())
    i, rank = gl.thread_idx.x, gl.block_rank_in_cluster()
    row[i // 16, i % 16] = x[gl.global_idx.x]
    if i < 4:
        seen[i] = 0
    gl.cluster_sync()
    right = (rank + SHIFT) % gl.cluster_dim.x
    value = row.peer(right)[i % 8, i // 8]
    pair = row.vectorize[1, 2]().peer(right)[i // 16, (i % 16) // 2]
    gl.atomic_add(seen.peer(right).tile[1](rank), 1 + i % 2)
    if MEET:
        gl.cluster_sync()
    if i < 8:
        row.peer(right)[i, 0] = value + pair[0] * 0
    gl.cluster_sync()
    out[gl.global_idx.x] = row[i // 16, i % 16]
    if i < 4:
        counts[gl.block_idx.x * 4 + i] = seen[i]


def test_views_of_the_shared_memory_of_other_blocks(run, rng):
    x, out = rng.standard_normal(2 * 4 * 128).astype(np.float32), poison(2 * 4 * 128, np.float32)
    counts = poison(2 * 4 * 4, np.int32)
    run(turned, 2, Viewed(out), Viewed(counts), Viewed(x), 1, True, block=128, num_ctas=4)
    before = x.reshape(2, 4, 8, 16)
    want = before.copy()
    # Threads 0 to 7 of a block read column 0 of the next block, and write it there again.
    want[:, :, :, 0] = before[:, :, :, 0]
    same(out, want.ravel())
    seen = np.zeros((2, 4, 4), np.int32)
    for rank in range(4):
        seen[:, (rank + 1) % 4, rank] = 128 + 64
    same(counts, seen.ravel())


def test_a_block_writes_what_others_read():
    x, out, counts = (
        weft.LayoutTensor(np.zeros(n, t)) for n, t in ((512, np.float32), (512, np.float32), (16, np.int32))
    )
    with pytest.raises(hazard.ThreadRace, match=r"row of block [0-9], which"):
        turned[1](out, counts, x, 1, False, block=128, num_ctas=4)


@weft.jit
def views_that_have_no_peer(out, KIND: gl.constexpr):
    if KIND == "global":
        out.peer(1)[0] = 0
    else:
        row = gl.stack_allocation[gl.float32, SHARED](gl.row_major[8]())
        row.peer(5 if KIND == "outside" else 1)[0] = 0


@pytest.mark.parametrize(
    ("kind", "blocks", "code"),
    [("global", 2, "cluster-view"), ("alone", 1, "cluster-missing"), ("outside", 2, "hazard-peer-rank")],
)
def test_no_such_block(kind, blocks, code):
    out = weft.LayoutTensor(np.zeros(8, np.float32))
    with pytest.raises((UserError, hazard.Hazard)) as caught:
        views_that_have_no_peer[1](out, kind, block=32, num_ctas=blocks)
    assert caught.value.code == code
    with pytest.raises(UserError, match="shared memory only"):
        out.peer(1)
