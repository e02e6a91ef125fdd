"""Fences: messages between programs by relaxed accesses, and through global memory to and from TMA."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, poison, random, same
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_global, mbarrier, tma

LINE = gl.BlockedLayout([2], [32], [4], [0])
ROWS = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
SMEM = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)


@weft.jit
def message(out, x, box, flag, sem: gl.constexpr, scope: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, 256, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))
        gl.fence(sem, scope)
        gl.store(flag, 1, sem="relaxed", scope=scope)
    else:
        while gl.load(flag, sem="relaxed", scope=scope) == 0:
            pass
        gl.fence(sem, scope)
        gl.store(out + at, gl.load(box + at))


@pytest.mark.parametrize("scope", ["gpu", "sys"])
@pytest.mark.parametrize("sem", ["acq_rel", "sc"])
def test_a_message(run, rng, sem, scope):
    x, out = random(rng, np.float32, 256), poison(256, np.float32)
    compiled = run(message, 2, out, frozen(x), np.zeros(256, np.float32), np.zeros(1, np.int32), sem, scope, LINE)
    same(out, x)
    assert compiled.asm["ptx"].count(f"fence.{sem}.{scope};") == 2


@weft.jit
def relayed(x, flags):
    """Each program adds to what the one before it left; a fence acquires from the one and releases to the next."""
    me = gl.program_id(0)
    gl.atomic_poll(flags + me, 1, sem="relaxed")
    gl.fence()
    gl.store(x + me + 1, gl.load(x + me) + me)
    gl.fence()
    gl.atomic_xchg(flags + me + 1, 1, sem="relaxed")


@pytest.mark.parametrize("programs", [1, 2, 40])
def test_a_chain_of_programs(run, programs):
    x, flags = np.zeros(programs + 1, np.int64), np.array([1] + [0] * programs, np.int32)
    run(relayed, programs, x, flags)
    same(x, np.cumsum(np.r_[0, np.arange(programs)]))


@weft.jit
def both_look(out, flags):
    """Each of two programs sets its flag and looks at the other's: with fences that have one order, at least one sees it."""
    me = gl.program_id(0)
    gl.store(flags + me, 1, sem="relaxed")
    gl.fence("sc")
    gl.store(out + me, gl.load(flags + 1 - me, sem="relaxed"))


def test_fences_in_one_order(run):
    out = poison(2, np.int32)
    run(both_look, 2, out, np.zeros(2, np.int32), ordered=False)
    assert out.sum() >= 1 and set(out.tolist()) <= {0, 1}


@weft.jit
def threads(out, flags, box, EACH: gl.constexpr):
    i = gl.thread_idx.x
    if gl.block_idx.x == 0:
        box[i] = i * 3
        if EACH:
            gl.fence()
            gl.store(flags.tile[1](i), 1, sem="relaxed")
        else:
            gl.barrier()
            if i == 0:
                gl.fence()
                gl.store(flags.tile[1](0), 1, sem="relaxed")
    else:
        if EACH:
            while gl.load(flags.tile[1](i), sem="relaxed") == 0:
                pass
            gl.fence()
        else:
            if i == 0:
                gl.atomic_poll(flags.tile[1](0), 1)
            gl.barrier()
        out[i] = box[i]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_threads(run, each, seed):
    out = poison(64, np.int32)
    with weft.simulate(seed=seed):
        run(threads, 2, Viewed(out), Viewed(np.zeros(64, np.int32)), Viewed(np.zeros(64, np.int32)), each, block=64)
    same(out, np.arange(64, dtype=np.int32) * 3)


@weft.jit
def through_global(
    out, x, data, flag, BY_TMA: gl.constexpr, WRITER: gl.constexpr, smem: gl.constexpr, layout: gl.constexpr
):
    """A tile that one program writes, by TMA or by its threads, and another loads by TMA; one of them has the proxy fence."""
    rows = gl.arange(0, 16, gl.SliceLayout(1, layout))
    at = rows[:, None] * 32 + gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    desc = tma.make_tensor_descriptor(data, [16, 32], [32, 1], [16, 32], smem)
    buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    if gl.program_id(0) == 0:
        if BY_TMA:
            buffer.store(gl.load(x + at))
            tma.async_copy_shared_to_global(desc, [0, 0], buffer)
            tma.store_wait(0, read_only=False)
        else:
            gl.store(data + at, gl.load(x + at))
        if WRITER:
            fence_async_global()
        gl.store(flag, 1, sem="release")
    else:
        gl.atomic_poll(flag, 1)
        if not WRITER:
            fence_async_global()
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        mbarrier.expect(bar, desc.block_type.nbytes)
        tma.async_load(desc, [0, 0], bar, buffer)
        mbarrier.wait(bar, 0)
        gl.store(out + at, buffer.load(layout))


@pytest.mark.parametrize("by_tma", [False, True])
@pytest.mark.parametrize("writer", [False, True])
def test_a_tile_for_tma(run, rng, by_tma, writer):
    x, out, data = random(rng, np.float32, (16, 32)), poison((16, 32), np.float32), np.zeros((16, 32), np.float32)
    compiled = run(through_global, 2, out, frozen(x), data, np.zeros(1, np.int32), by_tma, writer, SMEM, ROWS)
    same(out, x)
    assert compiled.asm["ptx"].count("fence.proxy.async.global") == 1


def test_fences_of_the_author_are_listed(run):
    arguments = poison((16, 32), np.float32), np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    compiled = run(through_global, 2, *arguments, np.zeros(1, np.int32), True, True, SMEM, ROWS)
    assert str(compiled.asm["sync"]).count("fence.async.global, as written") == 1
    out, x, box = (np.zeros(256, np.float32) for _ in range(3))
    compiled = run(message, 2, out, x, box, np.zeros(1, np.int32), "acq_rel", "gpu", LINE)
    assert str(compiled.asm["sync"]).count("fence, as written") == 2
