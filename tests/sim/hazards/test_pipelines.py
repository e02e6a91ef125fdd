"""Whole protocols between partitions: a producer with two consumers, named barriers, stores that overlap; right, and broken."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.sim.both import ORDERS, compiled_for, run_stage, verdict
from weft import language as gl
from weft.errors import Hazard, hazard
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, named_barrier, tma
from weft.nvidia.hopper import TensorDescriptor

N = 64
STEPS = 6
SMEM = gl.NVMMASharedLayout.get_default_for([N, N], gl.float32)
ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])


def wide() -> np.ndarray:
    return np.arange(N * N * STEPS, dtype=np.float32).reshape(N, N * STEPS)


def described(array: np.ndarray) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(array, [N, N], SMEM)


@weft.jit
def tile(layout: gl.constexpr):
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))
    return rows[:, None] * 64 + gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]


# One producer, two consumers


@weft.jit(sync="none")
def produce(src, steps, tiles, ready, free, fault: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(free.index(slot), (step // 2 & 1) ^ 1)
        if fault != "late waiter":
            gl.barrier()
        if fault == "fence by producer":
            fence_async_shared()
        mbarrier.expect(ready.index(slot), src.block_type.nbytes)
        tma.async_copy_global_to_shared(src, [0, step * 64], ready.index(slot), tiles.index(slot))


@weft.jit(sync="none")
def consume(dst, steps, tiles, ready, free, layout: gl.constexpr, me: gl.constexpr, fault: gl.constexpr):
    for step in range(steps):
        slot = step % 2
        if fault == "phase":
            mbarrier.wait(ready.index(slot), 0)
        elif fault == "stage":
            mbarrier.wait(ready.index((step + 1) % 2), step // 2 & 1)
        else:
            mbarrier.wait(ready.index(slot), step // 2 & 1)
        x = tiles.index(slot).load(layout)
        if fault != "fence" and fault != "fence by producer":
            fence_async_shared()
        if fault != "barrier":
            gl.barrier()
        if fault == "arrives for both" and me == 0:
            mbarrier.arrive(free.index(slot), count=2)
        elif fault != "arrives for both":
            mbarrier.arrive(free.index(slot), count=1)
        gl.store(dst + (me * 6 + step) * 4096 + tile(layout), x)


@weft.jit(sync="none")
def fan_out(src, dst, steps, fault: gl.constexpr, layout: gl.constexpr):
    tiles = gl.allocate_shared_memory(src.dtype, [2, 64, 64], src.layout)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    count: gl.constexpr = 1 if fault == "count too small" else 3 if fault == "count too great" else 2
    for slot in gl.static_range(2):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(free.index(slot), count=count)
    gl.barrier()
    gl.warp_specialize(
        [
            (consume, (dst, steps, tiles, ready, free, layout, 0, fault)),
            (consume, (dst, 6, tiles, ready, free, layout, 1, fault)),
            (produce, (src, 6, tiles, ready, free, fault)),
        ],
        [4, 1],
        [64, 24],
    )


def fanned(fault: str, steps: int = STEPS):
    return lambda: (described(wide()), np.zeros((2 * STEPS, N, N), np.float32), steps, fault, ROWS)


@pytest.mark.parametrize("fault", ["", "fence by producer"])
def test_two_consumers(fault):
    assert verdict(fan_out, fanned(fault)) is None
    src, dst, *others = fanned(fault)()
    fan_out[1](src, dst, *others)
    tiles = wide().reshape(N, STEPS, N).swapaxes(0, 1)
    np.testing.assert_array_equal(dst, np.concatenate([tiles, tiles]))


@pytest.mark.parametrize(
    ("fault", "kinds", "name"),
    [
        ("late waiter", {hazard.PhaseAliasing}, "free[0]"),
        ("phase", {hazard.ReadInFlight, hazard.PhaseAliasing, hazard.ThreadRace}, ""),
        ("stage", {hazard.ReadInFlight, hazard.UninitializedRead}, "tiles[0]"),
        ("fence", {hazard.MissingFence}, "tiles[0]"),
        ("barrier", {hazard.ThreadRace}, "tiles[0]"),
        ("arrives for both", {hazard.ThreadRace, hazard.ReadInFlight, hazard.PhaseAliasing}, ""),
        ("count too small", {hazard.PhaseAliasing, hazard.ThreadRace, hazard.ReadInFlight, hazard.TooManyArrivals}, ""),
        ("count too great", {hazard.Deadlock}, "ready[0]"),
    ],
)
def test_two_consumers_and_a_fault(fault, kinds, name):
    """Where one mistake breaks several rules, the order of tasks decides which is met first."""
    for found in every_verdict(fan_out, fanned(fault)):
        assert type(found) in kinds, str(found)
        assert found.fix
        assert found.partitions
        assert found.first is not None
        # Lowered memory has no tiles any more that reports could number.
        assert found.buffer in (name, name.partition("[")[0]) or not name


def test_a_consumer_that_leaves_early():
    """Who waits for its arrivals learns which have not come."""
    for found in every_verdict(fan_out, fanned("", steps=3)):
        assert type(found) is hazard.Deadlock
        labels = [label for label, _ in found.related]
        assert any("partition 2 waits for phase 1 of free[1], which lacks 1 of 2 arrivals" in label for label in labels)
        assert any("lacks 1 of 2 arrivals; the arrival at" in label for label in labels)


def every_verdict(kernel, arguments) -> list[Hazard]:
    """What each stage says under each order of events."""
    compiled = compiled_for(kernel, arguments(), {})
    found: list[Hazard] = []
    for func in (compiled.front.tile, compiled.front.lowered):
        for order in ORDERS:
            with pytest.raises(Hazard) as caught:
                run_stage(func, kernel, compiled, arguments(), 1, **order)
            found.append(caught.value)
    return found


# Named barriers


@weft.jit(sync="none")
def write(smem, layout: gl.constexpr, fault: gl.constexpr):
    smem.store(gl.full([64, 64], 3.0, gl.float32, layout))
    if fault == "arrive":
        named_barrier.arrive(1, 8)
    elif fault != "other":
        named_barrier.sync(1, 8)
    else:
        named_barrier.sync(2, 4)


@weft.jit(sync="none")
def read(smem, dst, layout: gl.constexpr, fault: gl.constexpr):
    if fault != "other":
        named_barrier.sync(1, 8)
    else:
        named_barrier.sync(3, 4)
    gl.store(dst + tile(layout), smem.load(layout))


@weft.jit(sync="none")
def handed_over(dst, fault: gl.constexpr, layout: gl.constexpr, plain: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [64, 64], plain)
    smem.store(gl.zeros([64, 64], gl.float32, layout))
    gl.warp_specialize([(write, (smem, layout, fault)), (read, (smem, dst, layout, fault))], [4], [64])


@pytest.mark.parametrize(("fault", "kind"), [("", None), ("arrive", None), ("other", hazard.ThreadRace)])
def test_named_barriers(fault, kind):
    plain = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    found = verdict(handed_over, lambda: (np.zeros((N, N), np.float32), fault, ROWS, plain))
    assert type(found) is (kind or type(None)), str(found)


# Stores that overlap


@weft.jit(sync="none")
def stored_in_turn(dst, pendings: gl.constexpr, buffers: gl.constexpr, layout: gl.constexpr):
    out = gl.allocate_shared_memory(dst.dtype, [buffers, 64, 64], dst.layout)
    for step in range(6):
        tma.store_wait(pendings=pendings)
        gl.barrier()
        out.index(step % buffers).store(gl.full([64, 64], 1.0, gl.float32, layout))
        fence_async_shared()
        gl.barrier()
        tma.async_copy_shared_to_global(dst, [0, step * 64], out.index(step % buffers))
    tma.store_wait(pendings=0)


@pytest.mark.parametrize("buffers", [1, 2, 3])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_pendings(buffers, more):
    """As many stores may be pending as there are buffers beside the one that is written."""
    if buffers + more < 1:
        return
    found = verdict(stored_in_turn, lambda: (described(wide()), buffers - 1 + more, buffers, ROWS))
    if more <= 0:
        assert found is None
        return
    assert type(found) is hazard.StoreSourceReused
    assert found.buffer == "out[0]"
    assert "with fewer pendings than stores issued since that one" in found.fix
