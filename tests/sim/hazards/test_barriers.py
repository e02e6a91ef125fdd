"""mbarriers in kernels: misuse, deadlocks, and protocols between partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from tests.sim.both import verdict
from weft import errors
from weft import language as gl
from weft.errors import hazard
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

N = 64
SMEM = gl.NVMMASharedLayout.get_default_for([N, N], gl.float32)
LINE = gl.SwizzledSharedLayout(1, 1, 1, [0])
ROWS = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
ONE = gl.BlockedLayout([1], [32], [4], [0])


def descriptor():
    array = np.arange(N * N, dtype=np.float32).reshape(N, N)
    return TensorDescriptor.from_tensor(array, [N, N], SMEM)


@weft.jit(sync="none")
def misused(src, fault: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    bar = bars.index(1)
    if fault != "fresh":
        mbarrier.init(bar, count=2 if fault == "count" else 1)
    gl.barrier()
    if fault == "again":
        mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes * (2 if fault == "too few" else 1) // (2 if fault == "too many" else 1))
    tma.async_copy_global_to_shared(src, [0, 0], bar, smem)
    if fault == "early":
        mbarrier.invalidate(bar)
    if fault == "arrive":
        mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 1 if fault == "parity" else 0)
    gl.barrier()
    if fault == "end":
        mbarrier.invalidate(bar)
        mbarrier.wait(bar, 0)
    x = smem.load(layout)
    smem.store(x)


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ("", None, ""),
        ("fresh", hazard.BarrierNotInitialised, "hazard-barrier-not-initialised"),
        ("again", hazard.BarrierReinitialised, "hazard-barrier-reinitialised"),
        ("early", hazard.BarrierInvalidated, "hazard-barrier-invalidated-early"),
        ("end", hazard.BarrierInvalidated, "hazard-barrier-invalidated"),
        ("arrive", hazard.TooManyArrivals, "hazard-too-many-arrivals"),
        ("too few", hazard.TransactionBytes, "hazard-transaction-bytes-missing"),
        ("too many", hazard.TransactionBytes, "hazard-transaction-bytes"),
        ("count", hazard.Deadlock, "hazard-deadlock"),
        ("parity", hazard.ReadInFlight, "hazard-read-in-flight"),
    ],
)
def test_misuse(fault, kind, code):
    found = verdict(misused, lambda: (descriptor(), fault, ROWS))
    assert type(found) is (kind or type(None)), str(found)
    if found is None:
        return
    assert found.code == code
    assert ("smem" if fault == "parity" else "bars[1]") in str(found)
    assert found.fix


def test_a_deadlock_lists_what_is_missing():
    found = verdict(misused, lambda: (descriptor(), "count", ROWS))
    assert isinstance(found, errors.Deadlock)
    assert isinstance(found, errors.Hazard)
    ((label, loc),) = found.related
    assert label.startswith(
        "program (0, 0, 0) waits for phase 0 of bars[1], which lacks 1 of 2 arrivals; it has had one at "
    )
    assert "mbarrier.wait" in loc.source
    assert found.buffer == "bars[1]"
    assert found.partitions == ("the block",)
    assert "the arrivals and bytes that its mbarrier counts" in found.fix


@weft.jit(sync="none")
def uninitialised_order(fault: gl.constexpr):
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    if fault != "barrier":
        gl.barrier()
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 0)
    if fault != "end":
        gl.barrier()
    mbarrier.invalidate(bar)


@pytest.mark.parametrize("fault", ["", "barrier", "end"])
def test_all_threads_must_see_a_barrier_made_and_leave_it_before_it_ends(fault):
    found = verdict(uninitialised_order, lambda: (fault,))
    assert type(found) is (hazard.ThreadRace if fault else type(None)), str(found)


@weft.jit(sync="none")
def hurried(fault: gl.constexpr):
    """Two phases; the second may complete before all threads have seen the first."""
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    gl.barrier()
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 0)
    if not fault:
        gl.barrier()
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 1)


def test_a_late_thread_would_meet_another_phase():
    assert verdict(hurried, lambda: (False,)) is None
    found = verdict(hurried, lambda: (True,))
    assert type(found) is hazard.PhaseAliasing
    assert found.code == "hazard-phase-aliasing"


# Partitions


@weft.jit(sync="none")
def produce(x, smem, full, empty, steps, fault: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        if fault != "empty":
            mbarrier.wait(empty, (step & 1) ^ 1)
        smem.store(gl.load(x + step * 128 + gl.arange(0, 128, layout=layout)))
        if fault != "publish":
            gl.barrier()
        if fault != "arrive":
            mbarrier.arrive(full, count=1)


@weft.jit(sync="none")
def consume(out, smem, full, empty, steps, fault: gl.constexpr, layout: gl.constexpr):
    for step in range(steps):
        if fault != "full":
            mbarrier.wait(full, step & 1)
        value = smem.load(layout)
        gl.barrier()
        if fault != "free":
            mbarrier.arrive(empty, count=1)
        gl.store(out + step * 128 + gl.arange(0, 128, layout=layout), value)


@weft.jit(sync="none")
def handed_over(x, out, steps, fault: gl.constexpr, one: gl.constexpr, four: gl.constexpr, shared: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [128], shared)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [
            (consume, (out, smem, full, empty, steps, fault, four)),
            (produce, (x, smem, full, empty, steps, fault, one)),
        ],
        [1],
        [24],
    )


NARROW = gl.BlockedLayout([4], [32], [1], [0])


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("", None),
        ("empty", {hazard.ThreadRace, hazard.PhaseAliasing}),
        ("full", {hazard.ThreadRace, hazard.PhaseAliasing, hazard.UninitializedRead}),
        ("publish", {hazard.ThreadRace, hazard.PhaseAliasing}),
        ("arrive", {hazard.Deadlock}),
        ("free", {hazard.Deadlock}),
    ],
)
def test_buffers_handed_between_partitions(fault, kind):
    def arguments():
        return np.arange(512, dtype=np.float32), np.zeros(512, np.float32), 4, fault, NARROW, ONE, LINE

    if kind is None:
        assert verdict(handed_over, arguments) is None
        x, out, *others = arguments()
        handed_over[1](x, out, *others)
        np.testing.assert_array_equal(out, x)
        return
    for seed in range(3):
        with weft.simulate(seed=seed), pytest.raises(hazard.Hazard) as caught:
            handed_over[1](*arguments())
        assert type(caught.value) in kind, str(caught.value)


def test_a_race_between_partitions_names_both():
    with pytest.raises(hazard.ThreadRace) as caught:
        handed_over[1](
            np.arange(512, dtype=np.float32), np.zeros(512, np.float32), 1, "publish", NARROW, ONE, LINE
        )  # fmt: skip
    found = caught.value
    assert found.partitions == ("partition 1", "partition 0")
    assert found.buffer == "smem"
    assert "mbarrier" in found.fix
    assert found.first.function == "produce"
    assert found.second.function == "consume"


def test_a_deadlock_between_partitions_lists_both():
    with pytest.raises(errors.Deadlock) as caught:
        handed_over[1](
            np.arange(512, dtype=np.float32), np.zeros(512, np.float32), 3, "free", NARROW, ONE, LINE
        )  # fmt: skip
    labels = [label for label, _ in caught.value.related]
    assert any("partition 1 waits for phase 0 of empty, which lacks 1 of 1 arrivals" in label for label in labels)
    assert any("partition 0 waits for phase 1 of full" in label for label in labels)
    assert caught.value.partitions == ("partition 0", "partition 1")


@weft.jit(sync="none")
def wait_then_arrive(bars, wanted: gl.constexpr, given: gl.constexpr):
    mbarrier.wait(bars.index(wanted), 0)
    mbarrier.arrive(bars.index(given), count=1)


@weft.jit(sync="none")
def arrive_at(bars, given: gl.constexpr):
    mbarrier.arrive(bars.index(given), count=1)


@weft.jit(sync="none")
def never(fault: gl.constexpr):
    bars = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        mbarrier.init(bars.index(i), count=2 if fault == "count" else 1)
    gl.barrier()
    if fault == "circle":
        gl.warp_specialize([(wait_then_arrive, (bars, 0, 1)), (wait_then_arrive, (bars, 1, 0))], [4], [24])
    else:
        given: gl.constexpr = 2 if fault == "exit" else 0
        gl.warp_specialize([(wait_then_arrive, (bars, 0, 1)), (arrive_at, (bars, given))], [4], [24])


@pytest.mark.parametrize(
    ("fault", "waiters", "words"),
    [
        ("", 0, ""),
        ("circle", 2, "bars[0], which lacks 1 of 1 arrivals; the arrival at "),
        ("exit", 1, "bars[0], which lacks 1 of 1 arrivals; nothing in the kernel arrives at it"),
        ("count", 1, "bars[0], which lacks 1 of 2 arrivals; it has had one at "),
    ],
)
def test_a_deadlock_says_which_arrival_is_missing(fault, waiters, words):
    found = verdict(never, lambda: (fault,))
    if not waiters:
        assert found is None
        return
    assert isinstance(found, errors.Deadlock)
    assert len(found.related) == len(found.partitions) == waiters
    assert found.buffer == "bars[0]"
    label, _ = found.related[0]
    assert words in label
    if words.endswith("at "):
        assert f"{Path(__file__).name}:{found.loc.line + (1 if fault == 'circle' else 6)}" in label


@weft.jit(sync="none")
def store_sums(dst, smem, done, layout: gl.constexpr):
    mbarrier.wait(done, 0)
    tma.async_copy_shared_to_global(dst, [0, 0], smem)
    tma.store_wait(pendings=0)


@weft.jit(sync="none")
def make_sums(smem, done, fence: gl.constexpr, layout: gl.constexpr):
    smem.store(gl.full([64, 64], 3.0, gl.float32, layout))
    if fence:
        fence_async_shared()
    gl.barrier()
    mbarrier.arrive(done, count=1)


@weft.jit(sync="none")
def across(dst, fence: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(dst.dtype, dst.block_shape, dst.layout)
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    gl.warp_specialize([(make_sums, (smem, done, fence, layout)), (store_sums, (dst, smem, done, layout))], [1], [24])


def test_a_fence_of_the_accessor_counts_for_another_partition():
    assert verdict(across, lambda: (descriptor(), True, ROWS)) is None
    assert type(verdict(across, lambda: (descriptor(), False, ROWS))) is hazard.MissingFence


@weft.jit
def waits_and_arrives(bar):
    mbarrier.wait(bar, phase=0)
    mbarrier.arrive(bar, count=1)


@weft.jit
def waits_for_the_second_phase(bar):
    mbarrier.wait(bar, phase=1)


@weft.jit
def arrives_before_partitions(inside: gl.constexpr):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    if not inside:
        mbarrier.arrive(bar, count=1)
    gl.warp_specialize(
        [(arrives_first, (bar, inside)), (waits_for_the_second_phase, (bar,)), (waits_and_arrives, (bar,))],
        [4, 4],
        [32, 32],
    )


@weft.jit
def arrives_first(bar, inside: gl.constexpr):
    if inside:
        mbarrier.arrive(bar, count=1)


def test_a_phase_is_known_to_all_that_its_arrivals_precede():
    """A wait for parity 1 means the second phase where the first is over for certain, else the one before the first."""
    arrives_before_partitions[1](False)
    with pytest.raises(hazard.PhaseAliasing):
        arrives_before_partitions[1](True)
