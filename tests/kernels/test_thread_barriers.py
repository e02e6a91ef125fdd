"""mbarriers at which each thread arrives by itself: `gl.mbarrier_arrive`, `gl.mbarrier_test_wait` and their like."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, Viewed, poison, random, same
from weft import language as gl
from weft.errors import Hazard, UserError
from weft.language.nvidia.hopper import mbarrier, tma
from weft.views import LayoutTensor

SHARED = gl.AddressSpace.SHARED


@weft.jit
def turned(out, x, ROUNDS: gl.constexpr):
    """Each round turns a row of numbers by one place, through shared memory."""
    rows = gl.stack_allocation[gl.int32, SHARED](gl.row_major[2, gl.block_dim.x]())
    bar = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i = gl.thread_idx.x
    if i == 0:
        gl.mbarrier_init(bar.ptr, gl.block_dim.x)
    gl.barrier()
    value = x[gl.global_idx.x]
    for k in range(ROUNDS):
        rows[k % 2, i] = value
        state = gl.mbarrier_arrive(bar.ptr)
        while not gl.mbarrier_test_wait(bar.ptr, state):
            pass
        value = rows[k % 2, (i + 1) % gl.block_dim.x]
    out[gl.global_idx.x] = value


@pytest.mark.parametrize(("threads", "rounds"), [(64, 3), (48, 1), (33, 2)])
def test_all_threads_meet(run, rng, threads, rounds):
    x, out = random(rng, np.int32, (3 * threads,)), poison((3 * threads,), np.int32)
    compiled = run(turned, 3, Viewed(out), Viewed(x), rounds, block=threads)
    same(out, np.roll(x.reshape(3, threads), -rounds, axis=1).ravel())
    cuda = compiled.asm["cuda"]
    assert "mbarrier.arrive.shared.b64" in cuda and "mbarrier.test_wait.shared.b64" in cuda


@weft.jit
def pipelined(out, x, PARTS: gl.constexpr, STAGES: gl.constexpr):
    """Warp 0 fills a ring of buffers, the other warps add the parts up."""
    ring = gl.stack_allocation[gl.float32, SHARED](gl.row_major[STAGES, 32]())
    full = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[STAGES]())
    empty = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[STAGES]())
    i = gl.thread_idx.x
    if i < STAGES:
        gl.mbarrier_init(full.ptr + i, 32)
        gl.mbarrier_init(empty.ptr.unsafe_offset(i), gl.block_dim.x - 32)
    gl.barrier()
    if i < 32:
        for k in range(PARTS):
            while not gl.mbarrier_test_wait_parity(empty.tile[1](k % STAGES), (k // STAGES + 1) % 2):
                pass
            ring[k % STAGES, i] = x[k, i]
            _ = gl.mbarrier_arrive(full.tile[1](k % STAGES))
    else:
        total = 0.0
        for k in range(PARTS):
            while not gl.mbarrier_test_wait_parity(full.tile[1](k % STAGES), k // STAGES % 2):
                pass
            total += ring[k % STAGES, i % 32] * (i // 32)
            _ = gl.mbarrier_arrive(empty.tile[1](k % STAGES))
        out[i - 32] = total


@pytest.mark.parametrize(("parts", "stages"), [(7, 2), (5, 1)])
def test_warps_with_roles(run, rng, parts, stages):
    x, out = rng.integers(-50, 50, (parts, 32)).astype(np.float32), poison((96,), np.float32)
    run(pipelined, 1, Viewed(out), Viewed(x), parts, stages, block=128)
    same(out, (x.sum(0) * np.arange(1, 4, dtype=np.float32)[:, None]).ravel())


@weft.jit
def loaded(src, out, N: gl.constexpr):
    """Thread 0 announces the bytes of a TMA load; each warp waits for it when it comes to it."""
    smem = gl.allocate_shared_memory(gl.float32, [N], gl.NVMMASharedLayout(0, 32, 1))
    bar = mbarrier.allocate_mbarrier()
    i = gl.thread_idx.x
    if i == 0:
        gl.mbarrier_init(bar, 1)
    gl.barrier()
    if i == 0:
        gl.mbarrier_arrive_expect_tx_shared(bar, 4 * N)
    tma.async_load(src, [N * gl.block_idx.x], bar, smem)
    if gl.warp_id() % 2 == 1:
        while not gl.mbarrier_test_wait_parity(bar, 0):
            pass
        out[gl.global_idx.x] = gl.LayoutTensor(smem)[N - 1 - i]
    else:
        out[gl.global_idx.x] = i


@pytest.mark.parametrize("threads", [64, 128])
def test_bytes_of_a_load(run, rng, threads):
    x, out = random(rng, np.float32, (2 * threads,)), poison((2 * threads,), np.float32)
    layout = gl.NVMMASharedLayout(0, 32, 1)
    run(loaded, 2, Described(x, [threads], layout), Viewed(out), threads, block=threads)
    i = np.arange(threads)
    want = np.where(i // 32 % 2 == 1, x.reshape(2, threads)[:, ::-1], i).ravel()
    same(out, want.astype(np.float32))


@weft.jit
def pointed(out, x):
    tile = gl.stack_allocation[gl.int32, SHARED](gl.row_major[64]())
    own = gl.stack_allocation[gl.int32, gl.AddressSpace.LOCAL](gl.row_major[4]())
    p, i = tile.ptr + 1, gl.thread_idx.x
    tile.ptr[i] = x[i]
    (tile.ptr + (i + 32)).write(x[i + 32])
    gl.barrier()
    own.ptr[2] = p[i]
    out[i] = own.ptr.unsafe_offset(1)[1] * gl.LayoutTensor(p, gl.row_major[63]())[2 * i - i % 2]


def test_pointers_into_shared_and_local_memory(run):
    x, out = np.arange(64, dtype=np.int32) * 3 - 50, poison((32,), np.int32)
    run(pointed, 1, Viewed(out), Viewed(x), block=32)
    i = np.arange(32)
    same(out, x[i + 1] * x[2 * i - i % 2 + 1])


@weft.jit
def in_turn(out, x):
    """The warps add up one after the other, as each waits for the one before."""
    total = gl.stack_allocation[gl.int32, SHARED](gl.row_major[1]())
    bars = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[4]())
    i = gl.thread_idx.x
    warp = i // 32
    if i < 4:
        gl.mbarrier_init(bars.ptr + i, 32)
    if i == 0:
        total[0] = 0
    gl.barrier()
    if warp > 0:
        while not gl.mbarrier_test_wait_parity(bars.tile[1](warp - 1), 0):
            pass
    before = total[0]
    gl.syncwarp()
    mine = gl.warp_sum(x[i])
    if i % 32 == 0:
        total[0] = before + mine
    gl.syncwarp()
    _ = gl.mbarrier_arrive(bars.tile[1](warp))
    out[i] = before + gl.warp_prefix_sum(x[i])
    gl.barrier()
    if i == 0:
        out[128] = total[0]


def test_warps_one_after_the_other(run, rng):
    """One loop, in which each warp waits for what another does behind it."""
    x, out = rng.integers(-99, 99, 128).astype(np.int32), poison((129,), np.int32)
    run(in_turn, 1, Viewed(out), Viewed(x), block=128)
    same(out, np.append(x.cumsum(), x.sum()).astype(np.int32))


@weft.jit
def two_branches(out, x, PARTS: gl.constexpr):
    """A producer and consumers in branches that follow one another."""
    tile = gl.stack_allocation[gl.int32, SHARED](gl.row_major[32]())
    full = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    empty = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i = gl.thread_idx.x
    if i == 0:
        gl.mbarrier_init(full.ptr, 1)
        gl.mbarrier_init(empty.ptr, 1)
    gl.barrier()
    if gl.warp_id() == 0:
        for k in range(PARTS):
            while not gl.mbarrier_test_wait_parity(empty, (k + 1) % 2):
                pass
            tile[i] = x[k, i]
            gl.syncwarp()
            if gl.elect_one_sync():
                _ = gl.mbarrier_arrive(full)
    total = 0
    if gl.warp_id() == 1:
        for k in range(PARTS):
            while not gl.mbarrier_test_wait_parity(full, k % 2):
                pass
            total += tile[i - 32]
            gl.syncwarp()
            if gl.elect_one_sync():
                _ = gl.mbarrier_arrive(empty)
    if gl.warp_id() == 1:
        out[i - 32] = total


def test_branches_one_after_the_other(run, rng):
    x, out = rng.integers(-9, 9, (5, 32)).astype(np.int32), poison((32,), np.int32)
    run(two_branches, 1, Viewed(out), Viewed(x), 5, block=64)
    same(out, x.sum(0, dtype=np.int32))


@pytest.mark.parametrize("seed", [1, 2])
def test_branches_in_another_schedule(rng, seed):
    x, out = rng.integers(-9, 9, (5, 32)).astype(np.int32), poison((32,), np.int32)
    with weft.simulate(seed=seed):
        two_branches[1](LayoutTensor(out), LayoutTensor(x), 5, block=64)
    same(out, x.sum(0, dtype=np.int32))


@weft.jit
def handed_on(out, x, PARTS: gl.constexpr):
    """Block 0 sends the parts to block 1, which arrives in block 0 when it has taken one, as in a ring across the cluster."""
    tile = gl.stack_allocation[gl.float32, SHARED](gl.row_major[2, 32]())
    bars = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[4]())
    i, rank = gl.thread_idx.x, gl.block_rank_in_cluster()
    if i < 4:
        gl.mbarrier_init(bars.ptr + i, 32)
    gl.cluster_sync()
    if rank == 0:
        for k in range(PARTS):
            while not gl.mbarrier_test_wait_parity(bars.tile[1](2 + k % 2), (k // 2 + 1) % 2):
                pass
            tile.peer(1)[k % 2, i] = x[k, i]
            gl.mbarrier_arrive(bars.tile[1](k % 2).peer(1))
    else:
        total = 0.0
        for k in range(PARTS):
            while not gl.mbarrier_test_wait_parity(bars.tile[1](k % 2), k // 2 % 2):
                pass
            total += tile[k % 2, i] * (k + 1)
            gl.mbarrier_arrive(bars.peer(0).ptr + (2 + k % 2))
        out[i] = total


@pytest.mark.parametrize("parts", [1, 5])
def test_blocks_arrive_at_barriers_of_each_other(run, rng, parts):
    x, out = rng.integers(-50, 50, (parts, 32)).astype(np.float32), poison((32,), np.float32)
    compiled = run(handed_on, 1, Viewed(out), Viewed(x), parts, block=32, num_ctas=2)
    same(out, (x * np.arange(1, parts + 1, dtype=np.float32)[:, None]).sum(0))
    cuda = compiled.asm["cuda"]
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64 _" in cuda
    assert "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64" in cuda


@weft.jit
def all_expect(out, x):
    """Each thread of a block brings a number to the next block, and tells it of an arrival for it."""
    row = gl.stack_allocation[gl.int32, SHARED](gl.row_major[64]())
    bar = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    i, rank, blocks = gl.thread_idx.x, gl.block_rank_in_cluster(), gl.cluster_dim.x
    if i == 0:
        gl.mbarrier_init(bar, 65)
    gl.cluster_sync()
    to = (rank + 1 + i % 2) % blocks
    row.peer(to)[i] = x[gl.global_idx.x]
    gl.mbarrier_arrive_expect_tx_shared(bar.peer(to), 0)
    if i == 0:
        gl.mbarrier_arrive(bar.peer(rank))
    while not gl.mbarrier_test_wait_parity(bar, 0):
        pass
    out[gl.global_idx.x] = row[i]


def test_threads_of_a_block_arrive_in_several(run, rng):
    x, out = random(rng, np.int32, (4 * 64,)), poison((4 * 64,), np.int32)
    run(all_expect, 1, Viewed(out), Viewed(x), block=64, num_ctas=4)
    rows, i = x.reshape(4, 64), np.arange(64)
    same(out, np.stack([rows[(r - 1 - i % 2) % 4, i] for r in range(4)]).ravel())


# Hazards


@weft.jit
def wrong(out, x, FAULT: gl.constexpr):  # noqa: C901 the faults of one kernel, side by side
    tile = gl.stack_allocation[gl.int32, SHARED](gl.row_major[64]())
    bars = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[2]())
    i = gl.thread_idx.x
    if FAULT == "initialised by all" or (FAULT != "never initialised" and i == 0):
        gl.mbarrier_init(bars.ptr, 65 if FAULT == "one too few" else 63 if FAULT == "one too many" else 64)
    if i == 0:
        gl.mbarrier_init(bars.ptr + 1, 64)
    if FAULT != "not published":
        gl.barrier()
    tile[i] = x[i]
    state = gl.mbarrier_arrive(bars.ptr)
    if FAULT == "other state":
        other = gl.mbarrier_arrive(bars.ptr + 1)
        while not gl.mbarrier_test_wait(bars.ptr, other):
            pass
    elif FAULT == "arrives again":
        state = gl.mbarrier_arrive(bars.ptr)
        while not gl.mbarrier_test_wait(bars.ptr, state):
            pass
    elif FAULT == "asks once":
        _ = gl.mbarrier_test_wait(bars.ptr, state)
    else:
        while not gl.mbarrier_test_wait(bars.ptr, state):
            pass
    if (FAULT == "initialised again" or FAULT == "invalidated early") and i == 0:
        gl.mbarrier_inval(bars.ptr)
        if FAULT == "initialised again":
            gl.mbarrier_init(bars.ptr, 64)
    if FAULT == "initialised in use":
        gl.barrier()
        if i == 0:
            gl.mbarrier_init(bars.ptr, 64)
    if FAULT == "stale state":
        for _ in range(2):
            again = gl.mbarrier_arrive(bars.ptr)
            while not gl.mbarrier_test_wait(bars.ptr, again):
                pass
        while not gl.mbarrier_test_wait(bars.ptr, state):
            pass
    out[i] = tile[63 - i]


FAULTS = {
    "initialised by all": ("hazard-barrier-by-many", r"32 threads initialise bars\[0\] at once"),
    "never initialised": ("hazard-barrier-not-initialised", r"uses bars\[0\], which was never initialised"),
    "not published": ("hazard-threads-race", r"reads bars\[0\], which thread \(0, 0, 0\) wrote"),
    "one too few": ("hazard-deadlock", r"phase 0 of bars\[0\], which lacks 1 of 65 arrivals"),
    "one too many": ("hazard-too-many-arrivals", r"1 more than phase 0 takes"),
    "other state": ("hazard-barrier-state", r"tests bars\[0\] for a state that no arrival on it returned"),
    "arrives again": (
        "hazard-barrier-early",
        r"arrives at bars\[0\] although nothing tells it that phase 0 is complete",
    ),
    "asks once": ("hazard-threads-race", r"reads tile\[\d+\], which thread \(\d+, 0, 0\) wrote"),
    "initialised again": ("hazard-threads-race", r"thread \(0, 0, 0\) writes bars\[0\], which several threads read"),
    "invalidated early": ("hazard-threads-race", r"thread \(0, 0, 0\) writes bars\[0\], which several threads read"),
    "initialised in use": ("hazard-barrier-reinitialised", r"bars\[0\] is initialised although it is in use"),
    "stale state": ("hazard-phase-aliasing", r"phase 2 of bars\[0\] may complete before"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_hazards(fault):
    code, message = FAULTS[fault]
    x = np.arange(64, dtype=np.int32)
    with weft.simulate(), pytest.raises(Hazard) as caught:
        wrong[1](LayoutTensor(np.zeros(64, np.int32)), LayoutTensor(x), fault, block=64)
    error = caught.value
    assert error.code == code and re.search(message, error.message + " ".join(text for text, _ in error.related))


def test_the_kernel_without_a_fault():
    x, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    with weft.simulate():
        wrong[1](LayoutTensor(out), LayoutTensor(x), "", block=64)
    assert (out == x[::-1]).all()


@weft.jit
def to_a_block(out, rank):
    bar = gl.stack_allocation[gl.uint64, SHARED](gl.row_major[1]())
    if gl.thread_idx.x == 0:
        gl.mbarrier_init(bar, 32)
    gl.cluster_sync()
    gl.mbarrier_arrive(bar.peer(rank))
    out[gl.global_idx.x] = gl.block_rank_in_cluster()


@pytest.mark.parametrize(
    ("rank", "code", "message"),
    [(1, "hazard-barrier-early", "nothing tells it that phase 0 is complete"), (2, "hazard-peer-rank", "of block 2")],
)
def test_hazards_of_barriers_in_other_blocks(rank, code, message):
    with weft.simulate(), pytest.raises(Hazard) as caught:
        to_a_block[1](LayoutTensor(np.zeros(64, np.int32)), rank, block=32, num_ctas=2)
    assert caught.value.code == code and message in str(caught.value)


# Errors


def refused(body, block=64, **options) -> UserError:
    from tests.errors.beginners import THREADS, kernel_of

    kernel = kernel_of(THREADS, body)
    arrays = (np.zeros(64, np.float32), np.zeros(64, np.float32))
    launched = {} if block is None else {"block": block}
    with weft.simulate(**options), pytest.raises(UserError) as caught:
        kernel[1](*map(LayoutTensor, arrays), 4, **launched)
    return caught.value


BAR = "b = gl.stack_allocation[gl.{}, gl.AddressSpace.{}](gl.row_major[1]())\n"
ERRORS = {
    "async-barrier-word": (
        BAR.format("float32", "SHARED") + "gl.mbarrier_init(b, 4)",
        "got b of float32 in Address",
    ),
    "async-barrier-state": (
        BAR.format("uint64", "SHARED") + "while not gl.mbarrier_test_wait(b, 64):\n    pass",
        "state = gl.mbarrier_arrive(bar)",
    ),
    "async-barrier-count": (BAR.format("uint64", "SHARED") + "gl.mbarrier_init(b, 0)", "a count of 0"),
    "async-expect-bytes": (BAR.format("uint64", "SHARED") + "gl.mbarrier_arrive_expect_tx_shared(b, -4)", "-4 bytes"),
    "async-phase": (BAR.format("uint64", "SHARED") + "x = gl.mbarrier_test_wait_parity(b, 2)", "2"),
}


@pytest.mark.parametrize("code", ERRORS)
def test_errors(code):
    body, words = ERRORS[code]
    error = refused(body)
    assert error.code == code and words in str(error)


def test_only_in_kernels_of_threads():
    error = refused(
        "b = mb.allocate_mbarrier()\ngl.mbarrier_init(b, 1)".replace("mb.", "gl.nvidia.hopper.mbarrier."), None
    )
    assert error.code == "async-barrier-threads" and "block=128" in error.fix
