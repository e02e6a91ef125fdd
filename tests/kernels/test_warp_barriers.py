"""`gl.syncwarp()`: what it orders between the threads of a warp, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, poison, random, same
from weft import language as gl
from weft.errors import CompilationError, Hazard
from weft.views import LayoutTensor

SHARED = gl.AddressSpace.SHARED


@weft.jit
def halved(out, x, sync: gl.constexpr):
    """The sum of each warp's numbers through shared memory: halves onto halves."""
    sums = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(4, 32), address_space=SHARED)
    i, lane, warp = gl.global_idx.x, gl.lane_id(), gl.warp_id()
    sums[warp, lane] = x[i]
    for k in gl.static_range(5):
        if sync != "before":
            gl.syncwarp()
        if lane < 16 >> k:
            sums[warp, lane] += sums[warp, lane + (16 >> k)]
    if sync == "all":
        gl.syncwarp()
    out[i] = sums[warp, 0]


@pytest.mark.parametrize("threads", [32, 64, 128])
def test_sums_of_warps(run, rng, threads):
    x, out = random(rng, np.int32, (2 * threads,)), poison((2 * threads,), np.int32)
    compiled = run(halved, 2, Viewed(out), Viewed(x), "all", block=threads)
    same(out, np.repeat(x.reshape(-1, 32).sum(1, dtype=np.int32), 32))
    cuda = compiled.asm["cuda"]
    assert cuda.count("__syncwarp();") == 6 and "__syncthreads" not in cuda


def met(kernel, *arguments, block) -> Hazard:
    with weft.simulate(), pytest.raises(Hazard) as caught:
        kernel[1](*arguments, block=block)
    return caught.value


def numbers(count: int = 64) -> LayoutTensor:
    return LayoutTensor(np.ones(count, np.int32))


@pytest.mark.parametrize(
    ("sync", "message"),
    [
        ("before", r"thread (0, 0, 0) reads sums[16]"),
        ("after", r"thread (1, 0, 0) reads sums[0]"),
    ],
)
def test_a_missing_barrier_of_a_warp_is_a_race(sync, message):
    error = met(halved, numbers(), numbers(), sync, block=64)
    assert error.code == "hazard-threads-race"
    assert message in error.message


@weft.jit
def reversed_numbers(out, x, width: gl.constexpr, space: gl.constexpr, sync: gl.constexpr):
    """Groups of `width` numbers in reverse, through shared or global memory."""
    i = gl.thread_idx.x
    turned = i // width * width + width - 1 - i % width
    if space == "shared":
        tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
        tile[i] = x[i]
        if sync == "warp":
            gl.syncwarp()
        elif sync == "block":
            gl.barrier()
        out[i] = tile[turned]
    else:
        out[i] = x[i]
        if sync == "warp":
            gl.syncwarp()
        elif sync == "block":
            gl.barrier()
        x[i] = out[turned]


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize(("width", "sync"), [(8, "warp"), (32, "warp"), (64, "block")])
def test_a_race_asks_for_the_smallest_barrier_that_orders_it(width, sync, space):
    error = met(reversed_numbers, numbers(), numbers(), width, space, "none", block=64)
    assert (
        error.fix
        == f"call {'gl.syncwarp()' if sync == 'warp' else 'gl.barrier()'} between the first line and the second line"
    )
    reversed_numbers[1](numbers(), numbers(), width, space, sync, block=64)
    if sync == "block":
        met(reversed_numbers, numbers(), numbers(), width, space, "warp", block=64)


@weft.jit
def partly_reversed(out):
    """The threads of warp 0 and those of others race at the same two lines; the first two that clash are of one warp."""
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
    i = gl.thread_idx.x
    tile[i] = i
    out[i] = tile[i ^ (1 if i < 16 else 32)]


def test_one_pair_of_different_warps_asks_for_a_barrier_of_the_block():
    assert met(partly_reversed, numbers(), block=64).fix.startswith("call gl.barrier() between")


@weft.jit
def neighbour(out, shift: gl.constexpr):
    """Each thread reads what the thread `shift` further on has written."""
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
    i = gl.thread_idx.x
    tile[i] = i
    gl.syncwarp()
    out[i] = tile[i // 32 * 32 + (i + shift) % 32 if shift < 32 else (i + shift) % 64]


def test_other_warps_are_not_ordered(run):
    out = poison((64,), np.int32)
    run(neighbour, 1, Viewed(out), 1, block=64)
    same(out, (np.arange(64) // 32 * 32 + (np.arange(64) + 1) % 32).astype(np.int32))
    error = met(neighbour, numbers(), 32, block=64)
    assert error.code == "hazard-threads-race"
    assert error.partitions == ("thread (32, 0, 0)", "thread (0, 0, 0)")


@weft.jit
def read_by_all(out, warps: gl.constexpr):
    """All threads of one warp, or of two, read a number, and then one of them writes it."""
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(2), address_space=SHARED)
    i = gl.thread_idx.x
    if i < 2:
        tile[i] = 5
    gl.barrier()
    found = tile[i // 32 if warps == 1 else 0]
    gl.syncwarp()
    if i % 32 == 3:
        tile[i // 32] = found + i
    gl.syncwarp()
    out[i] = tile[i // 32]


def test_a_number_that_a_warp_has_read_may_be_written(run):
    out = poison((64,), np.int32)
    run(read_by_all, 1, Viewed(out), 1, block=64)
    same(out, np.repeat(np.array([8, 40], np.int32), 32))
    error = met(read_by_all, numbers(), 2, block=64)
    assert error.code == "hazard-threads-race"
    assert "writes tile[0], which several threads read" in error.message


@weft.jit
def through_global(out, scratch, sync: gl.constexpr, shift: gl.constexpr):
    i = gl.thread_idx.x
    scratch[i] = i
    if sync:
        gl.syncwarp()
    out[i] = scratch[(i + shift) % 32 + i // 32 * 32 if shift < 32 else (i + shift) % 64]


def test_global_memory(run):
    out, scratch = poison((64,), np.int32), poison((64,), np.int32)
    run(through_global, 1, Viewed(out), Viewed(scratch), True, 3, block=64)
    same(out, (np.arange(64) // 32 * 32 + (np.arange(64) + 3) % 32).astype(np.int32))
    for sync, shift in ((False, 3), (True, 32)):
        error = met(through_global, numbers(), numbers(), sync, shift, block=64)
        assert error.code == "hazard-global-threads-race"
        assert "scratch" in error.message


@weft.jit
def overwritten(t, sync: gl.constexpr):
    """A number of global memory that all threads of a warp read, and one writes."""
    found = t[0]
    if sync:
        gl.syncwarp()
    if gl.thread_idx.x == 9:
        t[0] = found + 1


def test_a_number_of_global_memory_that_a_warp_has_read(run):
    t = np.full(1, 3, np.int32)
    run(overwritten, 1, Viewed(t), True, block=32)
    same(t, np.full(1, 4, np.int32))
    assert "several threads" in met(overwritten, numbers(1), False, block=32).message
    assert "several threads" in met(overwritten, numbers(1), True, block=64).message


@weft.jit
def one_warp(out, by: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
    i = gl.thread_idx.x
    tile[i] = i
    if gl.warp_id() == 0 if by == "warp" else gl.lane_id() < 16:
        gl.syncwarp()
    out[i] = tile[i ^ 1]


def test_warps_that_do_not_come_know_nothing():
    assert met(one_warp, numbers(), "warp", block=64).partitions == ("thread (33, 0, 0)", "thread (32, 0, 0)")


def test_a_part_of_a_warp():
    with (
        weft.simulate(),
        pytest.raises(CompilationError, match=r"gl\.syncwarp\(\) must be executed by the whole warp") as caught,
    ):
        one_warp[1](numbers(), "lane", block=64)
    assert caught.value.code == "control-scope"
    assert caught.value.loc.source.strip() == "gl.syncwarp()"


@weft.jit
def copied(out, x, sync: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(64), address_space=SHARED)
    i = gl.thread_idx.x
    gl.copy_dram_to_sram_async(tile, x, gl.Layout(64))
    gl.async_copy_wait_all()
    if sync:
        gl.syncwarp()
    out[i] = tile[i ^ 1]


def test_copies_that_other_threads_of_the_warp_have_waited_for(run, rng):
    x, out = random(rng, np.float32, (64,)), poison((64,), np.float32)
    run(copied, 1, Viewed(out), Viewed(x), True, block=64)
    same(out, x[np.arange(64) ^ 1])
    x = LayoutTensor(np.ones(64, np.float32))
    assert met(copied, x, LayoutTensor(np.ones(64, np.float32)), False, block=64).code == "hazard-threads-race"


def test_warps_that_are_not_whole():
    with pytest.raises(CompilationError) as caught:
        overwritten.warmup(numbers(1), True, block=40)
    assert caught.value.code == "thread-block-warps", caught.value
