"""Partitions of a block: side by side, joined, at named barriers, and stuck."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.build import LINE, Kernel, pointer, run
from weft.errors import hazard
from weft.ir.types import int32
from weft.layout import BlockedLayout, SwizzledSharedLayout
from weft.ops import control, memory, program, shared, sync

N = 128
NARROW = BlockedLayout([4], [32], [1], [0])
FLAT = SwizzledSharedLayout(1, 1, 1, [0])


def handed(fault: str = "", seed: int = 0) -> np.ndarray:
    """A worker writes shared memory and comes to a named barrier; the first partition waits there, then reads."""
    out = np.full(N, -1, np.int32)
    k = Kernel(("out", pointer(int32)))
    buffer = k.emit(shared.alloc, element=int32, shape=(N,), layout=FLAT, tag=0, name="buffer")
    with k.region() as first:
        k.at(10)
        if fault != "wait":
            k.emit(sync.named_barrier, number=3, warps=6 if fault == "warps" else 5)
        k.at(11)
        k.store(k.params[0], k.arange(N), k.emit(shared.load, buffer, layout=LINE))
        k.emit(control.yield_)
    with k.region() as worker:
        tile = k.arange(N, NARROW)
        k.at(20)
        k.emit(shared.store, buffer, k.mul(tile, k.number(3, tile)))
        k.emit(sync.named_barrier, number=3, warps=6 if fault == "warps" else 5, arrive=True)
        k.emit(control.yield_)
    k.emit(control.warp_specialize, num_warps=(1,), num_regs=(24,), regions=(first.done, worker.done))
    run(k.done(), out, seed=seed)
    return out


@pytest.mark.parametrize("seed", range(4))
def test_a_named_barrier_orders_partitions(seed):
    np.testing.assert_array_equal(handed(seed=seed), 3 * np.arange(N))


def test_without_it_they_race():
    kinds = set()
    for seed in range(6):
        with pytest.raises(hazard.Hazard) as caught:
            handed("wait", seed)
        kinds.add(type(caught.value))
    assert kinds == {hazard.ThreadRace, hazard.UninitializedRead}


def test_a_barrier_of_more_warps_than_come():
    with pytest.raises(hazard.Deadlock) as caught:
        handed("warps")
    assert caught.value.code == "hazard-deadlock"
    ((label, loc),) = caught.value.related
    assert label == "program (0, 0, 0), partition 0 waits at named barrier 3 of 6 warps, where 5 warps have come"
    assert loc.line == 10


def test_all_meet_before_and_after():
    """What stands before is known to the worker, and what the worker did to what stands after, again and again."""
    out = np.zeros((3, N), np.int32)
    k = Kernel(("out", pointer(int32)))
    buffer = k.emit(shared.alloc, element=int32, shape=(N,), layout=FLAT, tag=0)
    results = []
    for turn in range(3):
        tile = k.arange(N)
        k.emit(shared.store, buffer, k.mul(tile, k.number(turn + 1, tile)))
        with k.region() as first:
            k.emit(control.yield_, k.number(turn))
        with k.region() as worker:
            held = k.emit(shared.load, buffer, layout=NARROW)
            k.emit(sync.barrier)
            k.emit(shared.store, buffer, k.add(held, held))
            k.emit(control.yield_)
        results.append(
            k.emit(control.warp_specialize, num_warps=(1,), num_regs=(24,), regions=(first.done, worker.done))
        )
        row = k.mul(results[-1], k.number(N))
        k.store(k.params[0], k.add(tile, k.splat(row, tile)), k.emit(shared.load, buffer, layout=LINE))
        k.emit(sync.barrier)
    run(k.done(), out)
    np.testing.assert_array_equal(out, 2 * np.arange(N) * np.array([[1], [2], [3]]))


def test_threads_are_numbered_by_partition():
    out = np.full((2, 32), -1, np.int32)
    k = Kernel(("out", pointer(int32)))
    regions = []
    for part in range(3):
        with k.region() as region:
            if part:
                at = k.add(k.emit(program.thread_id), k.number(32 * (part - 1)))
                k.emit(memory.store, k.emit(memory.addptr, k.params[0], at), k.emit(program.thread_id), None)
            k.emit(control.yield_)
        regions.append(region.done)
    k.emit(control.warp_specialize, num_warps=(1, 1), num_regs=(24, 24), regions=tuple(regions))
    run(k.done(), out)
    np.testing.assert_array_equal(out, np.tile(np.arange(32), (2, 1)))


def test_a_partition_that_never_ends():
    k = Kernel(("flag", pointer(int32)))
    with k.region() as first:
        k.emit(control.yield_)
    with k.region() as worker:
        with k.region() as condition:
            k.emit(control.condition, k.cmp("eq", k.watch(k.params[0], k.number(0)), k.number(0)))
        with k.region() as body:
            k.emit(control.yield_)
        k.emit(control.while_, regions=(condition.done, body.done))
        k.emit(control.yield_)
    k.emit(control.warp_specialize, num_warps=(1,), num_regs=(24,), regions=(first.done, worker.done))
    with pytest.raises(hazard.Deadlock) as caught:
        run(k.done(), np.zeros(1, np.int32))
    labels = {label for label, _ in caught.value.related}
    assert labels == {
        "program (0, 0, 0), partition 1 waits for flag[0], which holds 0",
        "program (0, 0, 0), partition 0 waits for the end of partition 1",
    }
