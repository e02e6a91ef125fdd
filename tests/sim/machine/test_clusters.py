"""Clusters in the simulator: what it finds between blocks, how it names them, and which programs run together."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.kernels.harness import run_lowered
from weft import language as gl
from weft.errors import Deadlock, hazard
from weft.language.nvidia.hopper import cluster, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

COPIES = [[0, 0]]
SHARED = gl.NVMMASharedLayout.get_default_for([16, 64], gl.float32, cga_layout=COPIES)
LAYOUT = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=COPIES)


def kernels_of(body):
    """The kernel with what the compiler inserts, and without."""
    return weft.jit(body), weft.jit(sync="none")(body)


def _send(out, x, MEET: gl.constexpr, layout: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    total = gl.zeros(x.block_shape, gl.float32, layout)
    for step in range(2):
        mbarrier.expect(bar, x.nbytes_per_cta)
        tma.async_load(x, [0, step * 64], bar, memory, multicast=True)
        mbarrier.wait(bar, step)
        total += memory.load(layout)
        if MEET:
            cluster.barrier()
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 64 + j[None, :], total)


send, send_bare = kernels_of(_send)


def sent(kernel, meet):
    x, out = np.ones((16, 128), np.float32), np.zeros((16, 64), np.float32)
    kernel[1](out, TensorDescriptor.from_tensor(x, [16, 64], SHARED), meet, LAYOUT, num_ctas=2)
    return out


def test_memory_of_another_block_is_sent_to_too_early():
    assert np.all(sent(send, True) == 2)
    with pytest.raises(hazard.WriteInFlight, match="block 0 copies into memory of block 1") as caught:
        sent(send, False)
    assert caught.value.partitions == ("block 0", "block 0")


def test_barriers_of_another_block_are_signalled_before_they_are_made():
    """Nothing is inserted: the first block sends while the second one has not begun."""
    with pytest.raises(hazard.BarrierNotInitialised):
        sent(send_bare, True)


@weft.jit
def swap(out, N: gl.constexpr, mine: gl.constexpr, others: gl.constexpr, MEET: gl.constexpr):
    gl.store(out + gl.arange(0, N, mine), 1)
    if MEET:
        cluster.barrier(relaxed=MEET == 2)
    else:
        gl.barrier()
    j = gl.arange(0, N, others)
    gl.store(out + N + j, gl.load(out + j))


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("meet", [0, 2])
def test_a_barrier_of_the_block_orders_nothing_between_blocks(meet, lowered):
    mine = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])
    others = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[0]])
    options = {"num_ctas": 2}
    good = swap[1](np.zeros(512, np.int32), 256, mine, others, 1, **options)
    run_lowered(swap, good, 1, [np.zeros(512, np.int32), 256, mine, others, 1], options)
    args = [np.zeros(512, np.int32), 256, mine, others, meet]
    compiled = swap.warmup(*args, **options)
    with pytest.raises(hazard.GlobalRace) as caught:
        run_lowered(swap, compiled, 1, args, options) if lowered else swap[1](*args, **options)
    assert caught.value.code == "hazard-global-block-race"
    assert "block 1 of its cluster" in caught.value.message or "block 0 of its cluster" in caught.value.message
    assert "cluster.barrier()" in caught.value.fix


@weft.jit
def unpaired(twice: gl.constexpr):
    cluster.arrive()
    if twice:
        cluster.arrive()
    cluster.wait()
    cluster.wait()


@pytest.mark.parametrize(("twice", "words"), [(True, "arrives at"), (False, "waits at")])
def test_arrivals_and_waits_alternate(twice, words):
    with pytest.raises(hazard.ClusterBarrierMisuse, match=words) as caught:
        unpaired[1](twice, num_ctas=2)
    assert caught.value.code == "hazard-cluster-pair"


@weft.jit(sync="none")
def leave(SHARED: gl.constexpr, out):
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout(SHARED))
    mbarrier.init(bar, count=1)
    cluster.barrier()
    mbarrier.arrive(bar)


def test_a_block_that_has_ended_is_signalled():
    with pytest.raises(hazard.BlockExited) as caught:
        leave[1]([[0], [0]], np.zeros(1, np.int32), num_ctas=4)
    assert caught.value.code == "hazard-block-exited"
    assert "block 1 uses shared memory of block 0" in caught.value.message


@weft.jit
def too_many(out, flag):
    if gl.load(flag) == 0:
        cluster.arrive()
        cluster.wait()
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=2)
    mbarrier.arrive(bar)
    mbarrier.wait(bar, 0)


def test_deadlocks_name_blocks():
    with pytest.raises(Deadlock) as caught:
        too_many[1](np.zeros(1, np.int32), np.zeros(1, np.int32), num_ctas=2)
    labels = [label for label, _ in caught.value.related]
    assert [label.partition(" waits")[0] for label in labels] == [
        "program (0, 0, 0), block 0",
        "program (0, 0, 0), block 1",
    ]


@weft.jit
def pass_on(flags, N: gl.constexpr):
    me = gl.program_id(0)
    if me > 0:
        while gl.load(flags + me - 1, volatile=True) == 0:
            pass
    gl.atomic_xchg(flags + me, 1)


def test_programs_are_counted_and_live_together():
    flags = np.zeros(6, np.int32)
    assert pass_on[6](flags, 6, num_ctas=4).report.programs == 6
    assert flags.all()


@weft.jit
def wait_for_next(flags):
    me = gl.program_id(0)
    gl.atomic_xchg(flags + me, 1)
    while gl.load(flags + 1 - me, volatile=True) == 0:
        pass


def test_all_blocks_of_a_program_start_together():
    with weft.simulate(max_resident=1), pytest.raises(Deadlock, match="1 more cannot start"):
        wait_for_next[2](np.zeros(2, np.int32), num_ctas=2)
    with weft.simulate(max_resident=2):
        wait_for_next[2](np.zeros(2, np.int32), num_ctas=2)


@weft.jit
def say(x, layout: gl.constexpr):
    i = gl.arange(0, 4, layout)
    gl.device_print("x", gl.load(x + i))
    gl.device_print("here", gl.program_id(0))
    gl.device_assert(gl.load(x + i) > 0, "not positive")


@pytest.mark.parametrize("cga", [[[1]], [[0]]])
def test_each_element_is_printed_once(capsys, cga):
    layout = gl.BlockedLayout([1], [32], [4], [0], cga_layout=cga)
    x = np.arange(1, 5, dtype=np.int32)
    compiled = say[1](x, layout, num_ctas=2)
    lines = sorted(capsys.readouterr().out.splitlines())
    assert len(lines) == 5
    assert sorted(run_lowered(say, compiled, 1, [x, layout], {"num_ctas": 2})) == lines
