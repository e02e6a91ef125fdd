"""Shared memory by element: values, masks, vectors, atomics, copies that threads start, and what goes wrong."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.sim.build import BY_NUMPY, pointer
from tests.sim.by_threads import Threads, run
from weft.errors import hazard
from weft.ir.types import ScalarType, float16, float32, int32
from weft.layout import BlockedLayout, SwizzledSharedLayout
from weft.ops import arith, async_copy, control, regs, shared, thread

RNG = np.random.default_rng(9)
DTYPES = (
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
    np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
)  # fmt: skip


@pytest.mark.parametrize("block", [(64,), (8, 5)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_reversed_through_shared_memory(dtype, block):
    n = int(np.prod(block))
    x = RNG.integers(0, 2, n).astype(dtype)
    out = np.zeros(n, dtype)
    element = BY_NUMPY[np.dtype(dtype)]
    k = Threads(("x", pointer(element)), ("out", pointer(element)), block=block)
    smem = k.shared(element, n)
    k.write(smem, k.tid, k.get(k.params[0], k.tid))
    k.barrier()
    k.put(k.params[1], k.tid, k.read(smem, k.sub(k.int(n - 1), k.tid)))
    run(k.done(), x, out)
    np.testing.assert_array_equal(out.view(np.uint8), x[::-1].copy().view(np.uint8))


def test_vectors_tables_and_parts():
    """Two vectors of four halves a thread, in the second half of an allocation whose smallest element is a byte."""
    x = RNG.normal(size=(16, 8)).astype(np.float16)
    out = np.zeros_like(x)
    k = Threads(("x", pointer(float16)), ("out", pointer(float16)), block=(16,))
    whole = k.shared(float16, 256)
    k.shared(BY_NUMPY[np.dtype(np.uint8)], 16)
    part = k.emit(shared.view, whole, k.int(256), element=float16, count=128)
    start = k.mul(k.tid, k.int(8))
    k.write(part, start, k.get(k.params[0], start, vec=8), offsets=(4, 0), vec=4)
    k.barrier()
    k.put(k.params[1], start, k.read(part, k.mul(k.sub(k.int(15), k.tid), k.int(8)), offsets=(0, 4), vec=4))
    run(k.done(), x, out)
    np.testing.assert_array_equal(out, np.concatenate([x[::-1, 4:], x[::-1, :4]], axis=1))


def test_masks_of_threads_and_of_accesses():
    out = np.zeros((32, 2), np.int32)

    def kernel(masked):
        k = Threads(("out", pointer(int32)), block=(32,))
        smem = k.shared(int32, 64)
        start = k.mul(k.tid, k.int(2))
        k.write(smem, start, k.emit(regs.splat, k.int(0), count=2), offsets=(0, 1))
        each = k.emit(regs.concat, k.below(k.tid, 10), k.below(k.tid, 20))
        k.write(smem, start, k.emit(regs.splat, k.tid, count=2), each, offsets=(0, 1))
        k.barrier()
        found = k.read(smem, start, k.below(k.tid, 16), offsets=(0, 1))
        k.put(k.params[0], start, found, k.below(k.tid, 16) if masked else None)
        return k.done()

    run(kernel(True), out)
    t = np.arange(32)
    want = np.stack([np.where(t < 10, t, 0), np.where(t < 20, t, 0)], axis=1) * (t < 16)[:, None]
    np.testing.assert_array_equal(out, want)
    with pytest.raises(hazard.UndefinedValue, match=r"thread \(16, 0, 0\).*the load that gives it is masked off"):
        run(kernel(False), out)


def test_memory_that_was_never_written():
    k = Threads(("out", pointer(int32)), block=(4, 8))
    smem = k.shared(int32, 32)
    k.write(smem, k.tid, k.tid, k.cmp("ne", k.tid, k.int(13)))
    k.put(k.params[0], k.tid, k.read(smem, k.tid))
    with pytest.raises(
        hazard.UninitializedRead, match=r"reads smem\[13\], which was never written \(thread \(1, 3, 0\)\)"
    ):
        run(k.done(), np.zeros(32, np.int32))


def test_undefined_values_stay_undefined_in_memory():
    out = np.zeros(32, np.int32)

    def kernel(limit):
        k = Threads(("x", pointer(int32)), ("out", pointer(int32)), block=(32,))
        smem = k.shared(int32, 32)
        k.write(smem, k.tid, k.get(k.params[0], k.tid, k.below(k.tid, 20)))
        k.put(k.params[1], k.tid, k.read(smem, k.tid), k.below(k.tid, limit))
        return k.done()

    x = np.arange(20, dtype=np.int32)
    run(kernel(20), x, out)
    np.testing.assert_array_equal(out, np.r_[x, np.zeros(12, np.int32)])
    with pytest.raises(hazard.UndefinedValue, match=r"thread \(20, 0, 0\)"):
        run(kernel(21), x, out)


@pytest.mark.parametrize(("index", "access"), [(32, "reads"), (-1, "reads"), (32, "writes"), (40, "updates")])
def test_elements_outside_of_the_allocation(index, access):
    k = Threads(("out", pointer(int32)), block=(32,))
    smem = k.shared(int32, 32)
    k.write(smem, k.tid, k.tid)
    k.barrier()
    k.at(3).inside("s.tile[2, 2](1, 1)", k.tid, sizes=(32,))
    at = k.emit(arith.select, k.cmp("eq", k.tid, k.int(9)), k.int(index), k.tid)
    if access == "reads":
        k.put(k.params[0], k.tid, k.read(smem, at))
    elif access == "writes":
        k.write(smem, at, k.tid)
    else:
        k.emit(thread.atomic_shared, smem, at, k.tid, None, kind="add")
    with pytest.raises(hazard.OutOfBounds) as caught:
        run(k.done(), np.zeros(32, np.int32))
    assert caught.value.code == "hazard-shared-element"
    wanted = f"thread (9, 0, 0) {access} smem[{index}] through s.tile[2, 2](1, 1), but smem has elements 0 to 31"
    assert wanted in caught.value.message


def test_what_inactive_threads_would_access_does_not_matter():
    out = np.full(32, -1, np.int32)
    k = Threads(("out", pointer(int32)), block=(32,))
    smem = k.shared(int32, 8)
    far = k.mul(k.tid, k.int(1000))
    near = k.emit(arith.select, k.below(k.tid, 8), k.tid, far)
    with k.region() as then:
        k.write(smem, near, k.tid)
        k.put(k.params[0], k.tid, k.read(smem, near))
        k.emit(control.yield_)
    with k.region() as orelse:
        k.put(k.params[0], k.tid, k.read(smem, near, k.below(k.tid, 0)), k.below(k.tid, 0))
        k.emit(control.yield_)
    k.emit(control.if_, k.below(k.tid, 8), regions=(then.done, orelse.done))
    run(k.done(), out)
    np.testing.assert_array_equal(out, np.where(np.arange(32) < 8, np.arange(32), -1))


def test_vectors_that_do_not_start_at_their_width():
    def kernel(first, limit=32):
        k = Threads(("x", pointer(float32)), block=(32,))
        smem = k.shared(float32, 256)
        start = k.add(k.mul(k.tid, k.int(4)), k.int(first))
        k.at(4).inside("s.vectorize[1, 4]()", k.tid, sizes=(64,))
        k.write(smem, start, k.get(k.params[0], k.mul(k.tid, k.int(4)), vec=4), k.below(k.tid, limit), vec=4)
        return k.done()

    x = np.zeros(128, np.float32)
    run(kernel(4), x)
    run(kernel(2, 0), x)
    with pytest.raises(hazard.Misaligned) as caught:
        run(kernel(2), x)
    assert caught.value.code == "hazard-shared-misaligned"
    wanted = "thread (0, 0, 0) writes 16 bytes of smem at byte 8 through s.vectorize[1, 4](), which is 8 past"
    assert wanted in caught.value.message


@pytest.mark.parametrize("kind", ["add", "max", "min", "and", "or", "xor", "xchg"])
def test_atomics(kind):
    """Every thread on one of four cells; old values are those of some order, and masked threads do nothing."""
    x = RNG.integers(0, 100, 40).astype(np.int32)
    cells, old = np.zeros(4, np.int32), np.zeros(40, np.int32)
    k = Threads(("x", pointer(int32)), ("cells", pointer(int32)), ("old", pointer(int32)), block=(40,))
    smem = k.shared(int32, 4)
    k.write(smem, k.tid, k.int(50), k.below(k.tid, 4))
    k.barrier()
    some = k.below(k.tid, 30)
    before = k.emit(
        thread.atomic_shared, smem, k.rem(k.tid, 4), k.get(k.params[0], k.tid), some, kind=kind
    )  # fmt: skip
    k.barrier()
    k.put(k.params[1], k.tid, k.read(smem, k.tid, k.below(k.tid, 4)), k.below(k.tid, 4))
    k.put(k.params[2], k.tid, before, some)
    run(k.done(), x, cells, old)
    combine = {
        "add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "xchg": lambda a, b: b,
    }[kind]  # fmt: skip
    want, seen = np.full(4, 50, np.int32), np.zeros(40, np.int32)
    for t in range(30):
        seen[t] = want[t % 4]
        want[t % 4] = combine(want[t % 4], x[t])
    np.testing.assert_array_equal(cells, want)
    np.testing.assert_array_equal(old, seen)


def test_a_tile_in_shared_memory_as_threads_see_it():
    """A swizzled tile, element by offset."""
    out = np.zeros(16 * 16, np.float32)
    layout, rows = SwizzledSharedLayout(4, 2, 4, [1, 0]), BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    k = Threads(("out", pointer(float32)), block=(128,))
    smem = k.emit(shared.alloc, element=float32, shape=(16, 16), layout=layout, tag=1, name="smem")
    k.emit(shared.store, smem, k.emit(arith.cast, k.grid_offsets((16, 16), 16, rows), dtype=float32))
    k.barrier()
    start = k.mul(k.tid, k.int(2))
    k.put(k.params[0], start, k.read(k.emit(thread.shared_of, smem), start, vec=2))
    run(k.done(), out)
    linear = layout.to_linear((16, 16))
    at = linear.flat(offset=np.arange(256), block=0)
    np.testing.assert_array_equal(out, at.astype(np.float32))


# Copies that threads start


def copied(fault: str = "", block=(40,)) -> Threads:
    """Each thread copies two elements, masked ones as zeros, and reads what its right neighbour copied."""
    n = int(np.prod(block))
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), ("n", int32), block=block)
    smem = k.shared(float32, 2 * n)
    start = k.mul(k.tid, k.int(2))
    inside = k.cmp("lt", start, k.params[2])
    k.at(10).emit(
        async_copy.copy, smem, start, k.params[0], inside, None, None, None, start,
        offsets=((0,), (1,)), places=(0,), vec=2,
    )  # fmt: skip
    k.at(11).emit(async_copy.commit)
    if fault != "wait":
        k.at(12).emit(async_copy.wait, pendings=0)
    if fault not in ("barrier", "wait"):
        k.at(13).barrier()
    own = k.rem(k.add(k.tid, k.int(0 if fault == "own" else 1)), n)
    k.at(14).put(k.params[1], start, k.read(smem, k.mul(own, k.int(2)), vec=2))
    return k


@pytest.mark.parametrize("schedule", ["late", "early", "random"])
def test_copies_and_zeros(schedule):
    x, out = RNG.normal(size=80).astype(np.float32), np.zeros(80, np.float32)
    run(copied().done(), x[:66].copy(), out, 66, schedule=schedule, seed=3)
    want = np.where(np.arange(80) < 66, x, 0)
    np.testing.assert_array_equal(out.reshape(40, 2), np.roll(want.reshape(40, 2), -1, axis=0))


def test_a_wait_is_for_the_threads_own_copies():
    x, out = np.ones(80, np.float32), np.zeros(80, np.float32)
    with pytest.raises(hazard.ThreadRace) as caught:
        run(copied("barrier").done(), x, out, 80)
    error = caught.value
    assert error.code == "hazard-threads-race"
    assert "thread (0, 0, 0) reads smem[2], which thread (1, 0, 0) copied into" in error.message
    assert error.fix == f"call gl.barrier() after gl.async_copy_wait_all(), before line {error.loc.line}"
    assert (error.first.line, error.second.line) == (10, 14)
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(40,))
    smem = k.shared(float32, 40)
    k.emit(
        async_copy.copy, smem, k.tid, k.params[0], None, None, None, None, k.tid,
        offsets=((0,), (1,)), places=(0,), vec=1,
    )  # fmt: skip
    k.emit(async_copy.commit)
    k.emit(async_copy.wait, pendings=0)
    k.put(k.params[1], k.tid, k.read(smem, k.tid))
    run(k.done(), x[:40].copy(), out)
    assert out[:40].tolist() == [1.0] * 40


def test_a_copy_that_nobody_waited_for():
    with pytest.raises(hazard.ReadInFlight) as caught:
        run(copied("wait").done(), np.ones(80, np.float32), np.zeros(80, np.float32), 80)
    assert caught.value.code == "hazard-read-in-flight"
    assert "gl.async_copy_wait_all()" in caught.value.fix


def test_every_warp_copies_the_whole_and_then_writes():
    """Two warps copy the same elements, wait each for its own copies, and write: the other warp's may still arrive."""
    k = Threads(("x", pointer(float32)), block=(64,))
    smem = k.shared(float32, 32)
    lane = k.rem(k.tid, 32)
    k.at(20).emit(
        async_copy.copy, smem, lane, k.params[0], None, None, None, None, lane, offsets=((0,), (1,)), places=(0,), vec=1
    )
    k.at(21).emit(async_copy.commit)
    k.at(22).emit(async_copy.wait, pendings=0)
    k.at(23).write(smem, k.tid, k.get(k.params[0], lane), k.below(k.tid, 32))
    with pytest.raises(hazard.ThreadRace) as caught:
        run(k.done(), np.ones(32, np.float32))
    assert "thread (0, 0, 0) writes smem[0], which several threads copied into" in caught.value.message


def test_loops_of_copies():
    """Two buffers in turn: a copy in flight while the other is read."""
    x, out = RNG.normal(size=(8, 32)).astype(np.float32), np.zeros((8, 32), np.float32)
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(32,))
    smem = k.shared(float32, 64)

    def fetch(turn):
        source = k.add(k.mul(turn, k.int(32)), k.tid)
        place = k.add(k.mul(k.rem(turn, 2), k.int(32)), k.tid)
        k.emit(
            async_copy.copy, smem, place, k.params[0], k.below(turn, 8), None, None, None, source,
            offsets=((0,), (1,)), places=(0,), vec=1,
        )  # fmt: skip
        k.emit(async_copy.commit)

    fetch(k.int(0))
    with k.region([ScalarType(int32)]) as body:
        (turn,) = body.args
        fetch(k.add(turn, k.int(1)))
        k.emit(async_copy.wait, pendings=1)
        k.barrier()
        at = k.add(k.mul(k.rem(turn, 2), k.int(32)), k.sub(k.int(31), k.tid))
        k.put(k.params[1], k.add(k.mul(turn, k.int(32)), k.tid), k.read(smem, at))
        k.barrier()
        k.emit(control.yield_)
    k.emit(control.for_, k.int(0), k.int(8), k.int(1), descending=False, regions=(body.done,))
    run(k.done(), x, out)
    np.testing.assert_array_equal(out, x[:, ::-1])


@pytest.mark.parametrize("everybody", [True, False])
def test_a_wait_of_some_threads(everybody):
    """Half of the threads wait for their copies; the others know nothing of theirs, whatever a barrier says."""
    k = Threads(("x", pointer(float32)), ("out", pointer(float32)), block=(32,))
    smem = k.shared(float32, 32)
    k.emit(
        async_copy.copy, smem, k.tid, k.params[0], None, None, None, None, k.tid,
        offsets=((0,), (1,)), places=(0,), vec=1,
    )  # fmt: skip
    k.emit(async_copy.commit)
    regions = []
    for waits in (True, everybody):
        with k.region() as side:
            if waits:
                k.emit(async_copy.wait, pendings=0)
            k.emit(control.yield_)
        regions.append(side.done)
    k.emit(control.if_, k.below(k.tid, 16), regions=tuple(regions))
    k.barrier()
    k.put(k.params[1], k.tid, k.read(smem, k.sub(k.int(31), k.tid)))
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    if everybody:
        run(k.done(), x, out)
        np.testing.assert_array_equal(out, x[::-1])
        return
    with pytest.raises(hazard.ReadInFlight):
        run(k.done(), x, out)


def test_copies_to_places_that_are_no_multiples_of_their_width():
    k = Threads(("x", pointer(float32)), block=(32,))
    smem = k.shared(float32, 130)
    start = k.mul(k.tid, k.int(4))
    k.emit(
        async_copy.copy, smem, start, k.params[0], None, None, None, None, start,
        offsets=((0,), (1,)), places=(0,), added=(2,), vec=4,
    )  # fmt: skip
    with pytest.raises(hazard.Misaligned, match=r"thread \(0, 0, 0\) copies into 16 bytes of smem at byte 8"):
        run(k.done(), np.zeros(128, np.float32))
