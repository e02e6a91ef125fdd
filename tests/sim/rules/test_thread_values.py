"""What each thread has of its own: scalars, vectors, arrays; fragments of tiles; indices into views."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import GRID, LINE, Kernel, pointer
from tests.sim.build import run as run_tiles
from tests.sim.by_threads import Threads, run
from weft.errors import hazard
from weft.ir.types import ScalarType, float32, int1, int32, uint32
from weft.layout import BlockedLayout
from weft.ops import arith, control, hints, program, regs, thread, warp

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("block", [(32,), (40,), (8, 8), (3, 5), (2, 3, 4), (1,)])
def test_threads_of_a_block(block):
    """`out[pid, tid] = (x, y, warp, lane)` in blocks that are whole warps or not."""
    threads = int(np.prod(block))
    out = np.full((3, threads, 4), -1, np.int32)
    k = Threads(("out", pointer(int32)), block=block)
    x, y = k.places
    start = k.mul(k.add(k.mul(k.pid(), k.int(threads)), k.tid), k.int(4))
    k.put(k.params[0], start, k.emit(regs.concat, x, y, k.emit(program.warp_id), k.emit(program.lane_id)))
    run(k.done(), out, grid=(3,))
    t = np.arange(threads)
    np.testing.assert_array_equal(
        out, np.broadcast_to(np.stack([t % block[0], t // block[0], t // 32, t % 32], 1), out.shape)
    )


def test_vectors_and_masks_at_the_edge():
    """Vectors of four, the last one masked off, and its registers undefined: no hazard until they are used."""
    x, out = RNG.normal(size=120).astype(np.float32), np.zeros(128, np.float32)

    def kernel(stored):
        k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(32,))
        start = k.mul(k.tid, k.int(4))
        inside = k.below(start, 120)
        v = k.get(k.params[0], start, inside, vec=4)
        k.put(k.params[1], start, k.add(v, v), inside if stored else None)
        return k.done()

    run(kernel(True), x, out)
    np.testing.assert_array_equal(out, np.r_[x + x, np.zeros(8, np.float32)])
    with pytest.raises(hazard.UndefinedValue, match=r"thread \(30, 0, 0\)"):
        run(kernel(False), x, out)


# Local arrays


def test_an_array_of_its_own():
    """Written by constants, read by a run-time index: reversed rows of three elements."""
    x = RNG.integers(0, 99, (40, 3)).astype(np.int32)
    out = np.zeros_like(x)
    k = Threads(("x", pointer(int32)), ("out", pointer(int32)), block=(40,))
    mine = k.local(int32, 3)
    start = k.mul(k.tid, k.int(3))
    parts = [k.get(k.params[0], k.add(start, k.int(i))) for i in range(3)]
    k.emit(thread.store_local, mine, None, k.emit(regs.concat, *parts), None, offsets=(0, 1, 2))
    k.at(7)
    for i in range(3):
        index = k.sub(k.int(2 - i), k.mul(k.tid, k.int(0)))
        k.put(k.params[1], k.add(start, k.int(i)), k.emit(thread.load_local, mine, index, offsets=(0,)))
    report = run(k.done(), x, out)
    np.testing.assert_array_equal(out, x[:, ::-1])
    (advice,) = report.advice
    assert advice.rule == "local-index"
    assert advice.loc.line == 7
    assert "mine" in advice.message


def test_inactive_threads_keep_their_elements():
    out = np.zeros((32, 2), np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    mine = k.local(int32, 2)
    both = k.emit(regs.concat, k.tid, k.tid)
    k.emit(thread.store_local, mine, None, both, None, offsets=(0, 1))
    with k.region() as then:
        k.emit(thread.store_local, mine, None, k.one(k.int(-1)), None, offsets=(0,))
        k.emit(thread.store_local, mine, k.rem(k.tid, 2), k.one(k.int(7)), k.below(k.tid, 4), offsets=(0,))
        k.emit(control.yield_)
    with k.region() as orelse:
        k.emit(control.yield_)
    k.emit(control.if_, k.below(k.tid, 8), regions=(then.done, orelse.done))
    k.put(k.params[0], k.mul(k.tid, k.int(2)), k.emit(thread.load_local, mine, None, offsets=(0, 1)))
    run(k.done(), out)
    want = np.repeat(np.arange(32)[:, None], 2, axis=1)
    want[:8, 0] = -1
    want[np.arange(4), np.arange(4) % 2] = 7
    np.testing.assert_array_equal(out, want)


def test_each_run_of_the_line_makes_a_new_array():
    """An array made in a loop has no values of the turn before."""
    out = np.zeros(32, np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    with k.region([ScalarType(int32)]) as body:
        mine = k.local(int32, 1)
        first = k.cmp("eq", body.args[0], k.int(0))
        with k.region() as then:
            k.emit(thread.store_local, mine, None, k.one(k.int(5)), None, offsets=(0,))
            k.emit(control.yield_)
        with k.region() as orelse:
            k.emit(control.yield_)
        k.emit(control.if_, first, regions=(then.done, orelse.done))
        k.put(k.params[0], k.tid, k.emit(thread.load_local, mine, None, offsets=(0,)))
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.int(2), k.int(1), descending=False, regions=(body.done,))
    with pytest.raises(hazard.UndefinedValue, match="own array that it was read from was never written"):
        run(k.done(), out)


def test_elements_without_a_value_are_followed():
    """Only the threads that wrote may use an element; a stored undefined element stays one."""
    out = np.zeros(32, np.int32)

    def kernel(limit):
        k = Threads(("x", pointer(int32)), ("out", pointer(int32)), block=(32,))
        mine = k.local(int32, 2)
        loaded = k.get(k.params[0], k.tid, k.below(k.tid, 20))
        k.emit(thread.store_local, mine, None, k.one(loaded), None, offsets=(1,))
        found = k.emit(thread.load_local, mine, None, offsets=(1,))
        k.put(k.params[1], k.tid, found, k.below(k.tid, limit))
        return k.done()

    x = np.arange(20, dtype=np.int32)
    run(kernel(20), x, out)
    np.testing.assert_array_equal(out, np.r_[x, np.zeros(12, np.int32)])
    with pytest.raises(hazard.UndefinedValue, match=r"thread \(20, 0, 0\).*masked off"):
        run(kernel(21), x, out)


@pytest.mark.parametrize(("index", "access"), [(4, "reads"), (-1, "writes")])
def test_an_index_outside_of_the_array(index, access):
    k = Threads(("out", pointer(int32)), block=(8, 8))
    mine = k.local(int32, 4)
    k.emit(thread.store_local, mine, None, k.emit(regs.splat, k.tid, count=4), None, offsets=(0, 1, 2, 3))
    bad = k.cmp("eq", k.tid, k.int(19))
    at = k.emit(arith.select, bad, k.int(index), k.int(0))
    if access == "reads":
        k.put(k.params[0], k.tid, k.emit(thread.load_local, mine, at, offsets=(0,)))
    else:
        k.emit(thread.store_local, mine, at, k.one(k.tid), None, offsets=(0,))
    with pytest.raises(hazard.OutOfBounds) as caught:
        run(k.done(), np.zeros(64, np.int32))
    assert caught.value.code == "hazard-local-index"
    assert f"thread (3, 2, 0) {access} mine[{index}]" in caught.value.message
    assert "elements 0 to 3" in caught.value.message


def test_inactive_threads_may_have_any_index():
    out = np.zeros(32, np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    mine = k.local(int32, 4)
    k.emit(thread.store_local, mine, k.tid, k.one(k.tid), k.below(k.tid, 4), offsets=(0,))
    with k.region() as then:
        k.put(k.params[0], k.tid, k.emit(thread.load_local, mine, k.tid, offsets=(0,)))
        k.emit(control.yield_)
    with k.region() as orelse:
        k.emit(control.yield_)
    # Thread t has written its element t only.
    k.emit(control.if_, k.below(k.tid, 4), regions=(then.done, orelse.done))
    run(k.done(), out)
    np.testing.assert_array_equal(out[:6], [0, 1, 2, 3, 0, 0])


# Indices into views

VIEW = "t.tile[4, 4](2, 1).vectorize[1, 4]()"


def test_indices_into_views():
    def kernel(limit, size):
        k = Threads(("n", int32), block=(5, 3))
        x, y = k.places
        with k.region() as then:
            k.inside(VIEW, y, x, sizes=(3, k.params[0] if size is None else size))
            k.emit(control.yield_)
        with k.region() as orelse:
            k.emit(control.yield_)
        k.emit(control.if_, k.below(x, limit), regions=(then.done, orelse.done))
        return k.done()

    run(kernel(5, 5), 0)
    run(kernel(5, None), 5)
    run(kernel(4, None), 4)
    for size, n in ((4, 0), (None, 4)):
        with pytest.raises(hazard.OutOfBounds) as caught:
            run(kernel(5, size), n, grid=(2, 1))
        error = caught.value
        assert error.code == "hazard-view-bounds"
        assert error.message == (
            f"program (0, 0, 0): thread (4, 0, 0) uses index 4 at position 1 of {VIEW}, whose size there is 4"
        )
        assert error.loc is not None


def test_a_negative_and_a_uniform_index():
    for value, wanted in ((-1, "index -1"), (4, "index 4")):
        k = Threads(("i", int32), block=(8,))
        k.inside("t", k.params[0], sizes=(4,))
        with pytest.raises(hazard.OutOfBounds, match=wanted):
            run(k.done(), value)
        k = Threads(("i", int32), block=(8,))
        k.inside("t", k.add(k.mul(k.tid, k.int(0)), k.params[0]), sizes=(4,))
        with pytest.raises(hazard.OutOfBounds, match=wanted):
            run(k.done(), value)


def test_reports_of_memory_name_the_thread_and_the_view():
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(8, 4))
    k.at(5).inside(VIEW, k.tid, sizes=(64,))
    k.put(k.params[1], k.tid, k.get(k.params[0], k.tid))
    with pytest.raises(hazard.OutOfBounds) as caught:
        run(k.done(), np.zeros(30, np.float32), np.zeros(32, np.float32))
    assert f"thread (6, 3, 0) through {VIEW}" in caught.value.message
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(8, 4))
    start = k.add(k.mul(k.tid, k.int(4)), k.int(1))
    k.at(6).inside(VIEW, start, sizes=(640,))
    k.put(k.params[1], k.tid, k.emit(regs.extract, k.get(k.params[0], start, vec=4), index=0))
    with pytest.raises(hazard.Misaligned) as caught:
        run(k.done(), np.zeros(256, np.float32), np.zeros(32, np.float32))
    assert "reads 16 bytes of x at byte 4" in caught.value.message
    assert f"thread (0, 0, 0) through {VIEW}" in caught.value.message


# Fragments of tiles


def test_a_tile_through_its_fragment():
    """Each thread adds its number to what it holds."""
    out = np.zeros((128, 4), np.int32)
    k = Kernel(("out", pointer(int32)), num_warps=4)
    tile_ = k.arange(512, LINE)
    mine = k.emit(thread.fragment, tile_)
    sum_ = k.add(mine, k.emit(regs.splat, k.emit(program.thread_id), count=4))
    back = k.emit(thread.assemble, sum_, shape=(512,), layout=LINE)
    k.store(k.params[0], tile_, back)
    run(k.done(), out)
    np.testing.assert_array_equal(out, np.arange(512).reshape(128, 4) + np.arange(128)[:, None])


def test_a_tile_of_two_dimensions():
    out = np.zeros((32, 64), np.float32)
    k = Kernel(("out", pointer(float32)), num_warps=4)
    offsets = k.grid_offsets((32, 64), 64)
    x = k.emit(arith.cast, offsets, dtype=float32)
    k.store(k.params[0], offsets, k.emit(thread.assemble, k.emit(thread.fragment, x), shape=(32, 64), layout=GRID))
    run(k.done(), out)
    np.testing.assert_array_equal(out, np.arange(32 * 64, dtype=np.float32).reshape(32, 64))


def test_threads_that_hold_an_element_in_common():
    """Eight elements in four warps: each is held by sixteen threads."""
    layout = BlockedLayout([1], [32], [4], [0])

    def kernel(own):
        k = Kernel(("out", pointer(int32)), num_warps=4)
        held = k.emit(thread.fragment, k.arange(8, layout))
        value = k.add(held, k.emit(regs.splat, k.emit(program.thread_id), count=1)) if own else held
        k.store(k.params[0], k.arange(8, layout), k.emit(thread.assemble, value, shape=(8,), layout=layout))
        return k.done()

    out = np.zeros(8, np.int32)
    run(kernel(False), out)
    np.testing.assert_array_equal(out, np.arange(8))
    # Registers alone no longer tell of a tile.
    with pytest.raises(hazard.BrokenPromise) as caught:
        run_tiles(kernel(True), out)
    assert caught.value.code == "hazard-assembled"
    assert "thread 0 and thread 8 both hold element (0,)" in caught.value.message
    assert "with values 0 and 8" in caught.value.message


# Exchange within warps


def test_shuffles_take_values_from_lanes_that_take_part():
    x = RNG.normal(size=64).astype(np.float32)
    out = np.zeros((64, 2), np.float32)
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(16, 4))
    v = k.get(k.params[0], k.tid)
    near = k.emit(warp.shuffle_xor, v, mask=5)
    first = k.emit(warp.shuffle_idx, v, k.int(3))
    k.put(k.params[1], k.mul(k.tid, k.int(2)), k.emit(regs.concat, near, first))
    run(k.done(), x, out)
    t = np.arange(64)
    np.testing.assert_array_equal(out, np.stack([x[t ^ 5], x[t // 32 * 32 + 3]], axis=1))


def test_votes_are_of_a_warp():
    flags, out = RNG.integers(0, 2, 64).astype(bool), np.zeros(64, np.uint32)
    k = Threads(("flags", pointer(int1)), ("out", pointer(uint32)), block=(16, 4))
    k.put(k.params[1], k.tid, k.emit(warp.vote, k.get(k.params[0], k.tid)))
    run(k.done(), flags, out)
    assert out.tolist() == [sum(int(f) << i for i, f in enumerate(flags[t - t % 32 :][:32])) for t in range(64)]


def test_lanes_that_do_not_exist():
    def kernel(block, mask):
        k = Threads(("out", pointer(int32)), block=block)
        k.put(k.params[0], k.tid, k.emit(warp.shuffle_xor, k.tid, mask=mask))
        return k.done()

    run(kernel((34,), 1), np.zeros(34, np.int32))
    with pytest.raises(hazard.InactiveLane) as caught:
        run(kernel((40,), 16), np.zeros(40, np.int32))
    assert caught.value.code == "hazard-shuffle-lane"
    assert "thread (32, 0, 0) reads a value of lane 16 of its warp, which does not exist" in caught.value.message


def test_lanes_that_are_elsewhere():
    k = Threads(("out", pointer(int32)), block=(32,))
    with k.region() as then:
        k.put(k.params[0], k.tid, k.emit(warp.shuffle_idx, k.tid, k.add(k.tid, k.int(1))))
        k.emit(control.yield_)
    with k.region() as orelse:
        k.emit(control.yield_)
    k.emit(control.if_, k.below(k.tid, 8), regions=(then.done, orelse.done))
    with pytest.raises(hazard.InactiveLane, match=r"thread \(7, 0, 0\) .* lane 8 .* does not run this line"):
        run(k.done(), np.zeros(32, np.int32))


def test_a_claim_that_all_threads_agree():
    def kernel(by):
        k = Threads(("flags", pointer(int1)), ("out", pointer(int32)), block=(5, 3))
        shared_by_all = k.emit(hints.uniform, k.emit(arith.div, k.tid, k.int(by)))
        with k.region() as then:
            k.barrier()
            k.emit(control.yield_, k.int(1))
        with k.region() as orelse:
            k.emit(control.yield_, k.int(2))
        found = k.emit(control.if_, k.cmp("eq", shared_by_all, k.int(0)), regions=(then.done, orelse.done))
        k.put(k.params[1], k.tid, found)
        return k.done()

    out = np.zeros(15, np.int32)
    run(kernel(15), np.zeros(1, bool), out)
    assert out.tolist() == [1] * 15
    with pytest.raises(hazard.BrokenPromise, match=r"thread \(0, 0, 0\) has 0 and thread \(4, 2, 0\) has 1"):
        run(kernel(14), np.zeros(1, bool), out)
