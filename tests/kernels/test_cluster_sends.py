"""Asynchronous stores and atomics into the shared memory of other blocks of a cluster."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import poison, random, same
from tests.kernels.test_cluster_memory import SWIZZLED, TILES
from tests.kernels.test_clusters import blocked, offsets
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.hopper import async_store, cluster, mbarrier


@weft.jit
def sent(out, x, layout: gl.constexpr, target: gl.constexpr, shared: gl.constexpr):
    i, j = offsets(64, 64, layout)
    value = gl.load(x + i * 64 + j)
    memory = gl.allocate_shared_memory(x.dtype.element_ty, [64, 64], shared)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, memory.nbytes_per_cta)
    async_store(memory, value, bar)
    mbarrier.wait(bar, 0, deps=[memory])
    a, b = offsets(64, 64, target)
    found = memory.load(target)
    cluster.barrier()
    gl.store(out + a * 64 + b, found)


@pytest.mark.parametrize("shared", range(len(SWIZZLED)))
@pytest.mark.parametrize("tile", range(len(TILES)))
def test_tiles_are_sent_to_the_blocks_in_which_they_lie(run, rng, shared, tile):
    memory = SWIZZLED[shared]
    if shared == 1:
        memory = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[0, 1], [0, 2]])
    x, out = random(rng, np.int32, (64, 64)), poison((64, 64), np.int32)
    cga = [list(basis) for basis in memory.cga] if hasattr(memory, "cga") else [[32, 0], [16, 0]]
    target = gl.BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0], cga_layout=cga if shared != 3 else [[2, 0], [1, 0]])
    run(sent, 1, out, x, blocked(TILES[tile]), target, memory, num_ctas=4)
    same(out, x)


@weft.jit
def partials(out, x, N: gl.constexpr, layout: gl.constexpr):
    # A softmax's peak and total: every block gets the pair of each block, in one 8-byte store.
    blocks: gl.constexpr = gl.num_ctas()
    whole: gl.constexpr = gl.BlockedLayout(
        [1, 2], [32, 1], [gl.num_warps(), 1], [1, 0], cga_layout=[[0, 0], [0, 0], [0, 0]]
    )
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[0, 0], [0, 0], [0, 0]])
    i, j = offsets(blocks, N, layout)
    value = gl.load(x + i * N + j)
    pair = gl.join(gl.max(value, axis=1), gl.sum(value, axis=1))
    memory = gl.allocate_shared_memory(gl.float32, [blocks, 2], shared)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, memory.nbytes_per_cta)
    async_store(memory, pair, bar)
    mbarrier.wait(bar, 0)
    peak, total = gl.split(memory.load(whole))
    rank = gl.block_rank_in_cluster()
    gl.store(out + 2 * rank, gl.max(peak, axis=0))
    gl.store(out + 2 * rank + 1, gl.sum(total, axis=0))


def test_each_block_sends_its_part_to_all(run, rng):
    x, out = np.round(rng.standard_normal((8, 256)) * 8).astype(np.float32), poison((8, 2), np.float32)
    layout = gl.BlockedLayout([1, 4], [1, 32], [1, 4], [1, 0], cga_layout=[[1, 0], [2, 0], [4, 0]])
    compiled = run(partials, 1, out, x, 256, layout, num_ctas=8)
    same(out, np.array([[x.max(), x.sum(dtype=np.float64)]] * 8, np.float32))
    assert "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32" in compiled.asm["cuda"]


@weft.jit
def two_rounds(
    out, x, layout: gl.constexpr, whole: gl.constexpr, shared: gl.constexpr, rounds: gl.constexpr, FREE: gl.constexpr
):
    # A ring of two buffers needs no barrier: a block that sends round k has got round k - 1, so all have read round k - 2.
    ring = gl.allocate_shared_memory(gl.int32, [2, 64, 64], shared)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(bars.index(0), count=1)
    mbarrier.init(bars.index(1), count=1)
    i, j = offsets(64, 64, layout)
    value = gl.load(x + i * 64 + j)
    for k in range(rounds):
        slot = k & 1 if FREE else 0
        bar, memory = bars.index(slot), ring.index(slot)
        mbarrier.expect(bar, memory.nbytes_per_cta)
        async_store(memory, value, bar)
        mbarrier.wait(bar, (k >> 1) & 1 if FREE else k & 1)
        value = gl.convert_layout(memory.load(whole) + 1, layout)
    gl.store(out + i * 64 + j, value)


RING = blocked([[1, 0]]), blocked([[0, 0]]), gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[0, 0]])


def test_a_ring_of_two(run, rng):
    x, out = random(rng, np.int32, (64, 64)), poison((64, 64), np.int32)
    run(two_rounds, 1, out, x, *RING, 5, True, num_ctas=2)
    same(out, x + np.int32(5))


def test_a_block_may_not_send_before_the_last_round_was_read():
    x, out = np.zeros((64, 64), np.int32), poison((64, 64), np.int32)
    with pytest.raises(hazard.Hazard):
        two_rounds[1](out, x, *RING, 5, False, num_ctas=2)


@weft.jit
def counted(out, old, x, at, axis: gl.constexpr, kind: gl.constexpr, layout: gl.constexpr, shared: gl.constexpr):
    i, j = offsets(64, 32, layout)
    spot = i * 32 + j
    value, index = gl.load(x + spot), gl.load(at + spot)
    memory = gl.allocate_shared_memory(gl.int32, [64, 32], shared, value=gl.zeros([64, 32], gl.int32, layout))
    cluster.barrier()
    if kind == "add":
        before = memory.atomic_scatter_add(value, index, axis=axis, mask=value % 3 != 0)
    else:
        before = memory.atomic_scatter_max(value, index, axis=axis)
    gl.store(old + spot, before)
    cluster.barrier()
    gl.store(out + spot, memory.load(layout))


@pytest.mark.parametrize("kind", ["add", "max"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("tile", "shared"), [(0, 0), (1, 1), (3, 3), (2, 4), (1, 4), (3, 4)])
def test_atomics_in_any_block(run, rng, kind, axis, tile, shared):
    x = rng.permutation(2048).astype(np.int32).reshape(64, 32) + 1
    at = np.stack([rng.permutation(x.shape[axis]) for _ in range(x.shape[1 - axis])], 1 - axis).astype(np.int32)
    out, old = poison((64, 32), np.int32), poison((64, 32), np.int32)
    memory = SWIZZLED[shared] if shared != 3 else spread(64, 32)
    run(counted, 1, out, old, x, at, axis, kind, blocked(TILES[tile]), memory, num_ctas=4)
    given = np.where(x % 3 != 0, x, 0) if kind == "add" else x
    expected = np.zeros_like(x)
    np.put_along_axis(expected, at, given, axis)
    same(out, expected)
    same(old, np.zeros_like(x))


def spread(rows: int, columns: int):
    units = [[0, 1 << bit] for bit in range(columns.bit_length() - 1)]
    units += [[1 << bit, 0] for bit in range(rows.bit_length() - 3)]
    return gl.PaddedSharedLayout([[16, 2]], units, [[rows // 2, 0], [rows // 4, 0]], [rows, columns])


@weft.jit
def histogram(
    out, x, N: gl.constexpr, BINS: gl.constexpr, layout: gl.constexpr, bins: gl.constexpr, shared: gl.constexpr
):
    counts = gl.allocate_shared_memory(gl.int32, [BINS], shared, value=gl.zeros([BINS], gl.int32, bins))
    cluster.barrier()
    value = gl.load(x + gl.arange(0, N, layout))
    counts.atomic_scatter_add(gl.full([N], 1, gl.int32, layout), value, axis=0)
    cluster.barrier()
    gl.store(out + gl.arange(0, BINS, bins), counts.load(bins))


def test_a_histogram_that_is_split_over_blocks(run, rng):
    x, out = rng.integers(0, 512, 4096).astype(np.int32), poison(512, np.int32)
    line = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1], [2]])
    shared = gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[1], [2]])
    run(histogram, 1, out, x, 4096, 512, line, line, shared, num_ctas=4)
    same(out, np.bincount(x, minlength=512).astype(np.int32))
