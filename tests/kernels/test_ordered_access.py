"""Loads and stores with an order: messages between programs, in every scope that reaches them, in every form of address."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, poison, random, same
from weft import language as gl

LINE = gl.BlockedLayout([2], [32], [4], [0])
# Every element is held by the threads of all four warps.
REPEATED = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def message(out, x, box, flag, scope: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, 256, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))
        gl.atomic_store(flag, 1, scope=scope)
    else:
        while gl.atomic_load(flag, scope=scope) == 0:
            pass
        gl.store(out + at, gl.load(box + at))


@pytest.mark.parametrize("scope", [None, "gpu", "sys"])
def test_a_message(run, rng, scope):
    x, out = random(rng, np.float32, 256), poison(256, np.float32)
    compiled = run(message, 2, out, frozen(x), np.zeros(256, np.float32), np.zeros(1, np.int32), scope, LINE)
    same(out, x)
    assert f"ld.acquire.{scope or 'gpu'}.global.b32" in compiled.asm["ptx"]
    assert f"st.release.{scope or 'gpu'}.global.b32" in compiled.asm["ptx"]
    strong = f"STRONG.{(scope or 'gpu').upper()}"
    assert f"LDG.E.{strong}" in compiled.asm["sass"] and f"STG.E.{strong}" in compiled.asm["sass"]


@weft.jit
def relayed(x, flags, n):
    """Each program adds to what the one before it left."""
    me = gl.program_id(0)
    while gl.load(flags + me, sem="acquire") == 0:
        pass
    gl.store(x + me + 1, gl.load(x + me) + me)
    gl.store(flags + me + 1, 1, sem="release")


@pytest.mark.parametrize("programs", [1, 2, 40])
def test_a_chain_of_programs(run, programs):
    x, flags = np.zeros(programs + 1, np.int64), np.array([1] + [0] * programs, np.int32)
    run(relayed, programs, x, flags, programs)
    same(x, np.cumsum(np.r_[0, np.arange(programs)]))
    same(flags, np.ones(programs + 1, np.int32))


@weft.jit
def tile_of_flags(out, flags, values, size: gl.constexpr, layout: gl.constexpr):
    """Programs but the last signal, each by a flag of its own; the last one waits for all flags at once."""
    me, last = gl.program_id(0), gl.num_programs(0) - 1
    at = gl.arange(0, size, layout)
    if me < last:
        gl.store(values + me, me * me)
        gl.store(flags + me, 1, sem="release")
    else:
        while gl.sum(gl.load(flags + at, mask=at < last, other=1, sem="acquire"), axis=0) < size:
            pass
        gl.store(out + at, gl.load(values + at, mask=at < last, other=-1))


@pytest.mark.parametrize("layout", [LINE, REPEATED], ids=["each once", "held by all warps"])
@pytest.mark.parametrize("size", [32, 128])
def test_a_tile_of_flags(run, layout, size):
    out = poison(size, np.int32)
    run(tile_of_flags, 20, out, np.zeros(size, np.int32), np.zeros(size, np.int32), size, layout)
    same(out, np.where(np.arange(size) < 19, np.arange(size) ** 2, -1).astype(np.int32))


@weft.jit
def threads(out, flag, box):
    """The first thread of each block speaks for it."""
    if gl.block_idx.x == 0:
        box[gl.thread_idx.x] = gl.thread_idx.x * 3
        gl.barrier()
        if gl.thread_idx.x == 0:
            gl.store(flag.tile[1](0), 1, sem="release")
    else:
        if gl.thread_idx.x == 0:
            while gl.load(flag.tile[1](0), sem="acquire") == 0:
                pass
        gl.barrier()
        out[gl.thread_idx.x] = box[(gl.thread_idx.x + 1) % 64]


def test_views_of_one_element_in_a_kernel_of_threads(run):
    out = poison(64, np.int32)
    run(threads, 2, Viewed(out), Viewed(np.zeros(1, np.int32)), Viewed(np.zeros(64, np.int32)), block=64)
    same(out, ((np.arange(64, dtype=np.int32) + 1) % 64 * 3).astype(np.int32))


@weft.jit
def turned(x, out, width: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, width, layout)
    gl.store(out + at, gl.load(x + at, sem="relaxed"), sem="relaxed", scope="cta")


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.float16, np.int32, np.float32, np.float64, np.uint64])
def test_ordered_accesses_move_one_element_of_any_type(run, rng, kind):
    x, out = random(rng, kind, 512), poison(512, kind)
    compiled = run(turned, 1, frozen(x), out, 512, gl.BlockedLayout([4], [32], [4], [0]))
    same(out, x)
    bits = 8 * np.dtype(kind).itemsize
    assert re.search(rf"ld\.relaxed\.gpu\.global\.[bf]{bits} ", compiled.asm["ptx"])
    assert re.search(rf"st\.relaxed\.cta\.global\.[bf]{bits} ", compiled.asm["ptx"])
    assert ".v2" not in compiled.asm["ptx"] and ".v4" not in compiled.asm["ptx"]


@weft.jit
def between_blocks(out, flag, box, layout: gl.constexpr):
    """Blocks of one cluster are one program; a message inside of it needs no more than its scope."""
    at = gl.arange(0, 256, layout)
    gl.atomic_store(box + at, at, sem="relaxed", scope="cluster")
    gl.store(flag, 1, sem="release", scope="cluster")
    gl.store(out + at, gl.atomic_load(box + at, sem="relaxed", scope="cluster"))


def test_the_scope_of_a_cluster(run):
    out, layout = poison(256, np.int32), gl.BlockedLayout([2], [32], [4], [0], cga_layout=[[1]])
    compiled = run(between_blocks, 1, out, np.zeros(1, np.int32), np.zeros(256, np.int32), layout, num_ctas=2)
    same(out, np.arange(256, dtype=np.int32))
    assert "ld.relaxed.cluster.global" in compiled.asm["ptx"] and "st.release.cluster.global" in compiled.asm["ptx"]


def test_a_target_without_clusters_has_no_such_scope():
    with weft.simulate(target="sm_80"), pytest.raises(weft.errors.UserError) as caught:
        between_blocks[1](np.zeros(256, np.int32), np.zeros(1, np.int32), np.zeros(256, np.int32), LINE)
    assert "async-target" in str(caught.value) and "scope='gpu'" in str(caught.value)


@weft.jit
def unused(flag, x, out):
    gl.load(flag, sem="acquire")
    gl.store(out, gl.load(x))
    gl.store(flag, 1, sem="release")
    gl.load(flag, sem="relaxed", scope="sys")


def test_ordered_loads_are_kept_and_stay_where_they_are(run):
    compiled = run(unused, 1, np.zeros(1, np.int32), frozen(np.ones(1, np.int32)), np.zeros(1, np.int32), num_warps=1)
    found = re.findall(r"(?:ld|st)\.\S*global\S*", compiled.asm["ptx"])
    assert [each.removesuffix(";") for each in found] == [
        "ld.acquire.gpu.global.b32", "ld.global.b32", "st.global.b32", "st.release.gpu.global.b32", "ld.relaxed.sys.global.b32",
    ]  # fmt: skip
    # Of an acquire whose value is unused the machine code keeps what makes it one: the first-level cache is invalidated.
    assert "CCTL.IVALL" in compiled.asm["sass"]


@weft.jit
def count_some(counts, x):
    if x[gl.global_idx.x] > 3:
        gl.atomic_add(counts.tile[1](0), 1)


@weft.jit
def first_thread_waits(out, data, flag):
    i = gl.thread_idx.x
    if gl.block_idx.x == 0:
        data[i] = i
        gl.barrier()
        if i == 0:
            gl.atomic_xchg(flag.tile[1](0), 1, sem="release")
    else:
        if i == 0:
            while gl.atomic_add(flag.tile[1](0), 0, sem="acquire") == 0:
                pass
        gl.barrier()
        out[i] = data[63 - i]


def test_no_barrier_is_placed_where_threads_do_not_all_come(run):
    counts, out = np.zeros(1, np.int32), poison(64, np.int32)
    x = frozen(np.arange(128, dtype=np.int32) % 9)
    compiled = run(count_some, 2, Viewed(counts), Viewed(x), block=64)
    assert counts[0] == np.sum(x > 3)
    assert "__syncthreads" not in compiled.asm["cuda"]
    # The same where the grid alone is given, and a block has 128 threads.
    counts, x = np.zeros(1, np.int32), frozen(np.arange(256, dtype=np.int32) % 9)
    compiled = run(count_some, 2, Viewed(counts), Viewed(x))
    assert counts[0] == np.sum(x > 3)
    assert "__syncthreads" not in compiled.asm["cuda"]
    data, flag = np.zeros(64, np.int32), np.zeros(1, np.int32)
    compiled = run(first_thread_waits, 2, Viewed(out), Viewed(data), Viewed(flag), block=64)
    same(out, np.arange(63, -1, -1, dtype=np.int32))
    assert compiled.asm["cuda"].count("__syncthreads") == 2
