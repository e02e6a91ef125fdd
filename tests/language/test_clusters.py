"""Clusters in the language: layouts, barriers, and what kernels may not say."""

from __future__ import annotations

import pytest

from tests.language.support import building
from weft import language as gl
from weft.errors import CompilationError, LayoutError, UserError
from weft.language.nvidia.hopper import async_copy, cluster, mbarrier, tma
from weft.layout import (
    BlockedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    SliceLayout,
    in_cluster,
)

LINE = gl.BlockedLayout([1], [32], [4], [0])
SPLIT = gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[1]])


def test_layouts_that_say_nothing_of_blocks_have_copies():
    with building(num_ctas=4) as kernel:
        assert gl.num_ctas() == 4
        x = gl.arange(0, 128, LINE)
        assert x.layout == gl.BlockedLayout([1], [32], [4], [0], cga_layout=[[0], [0]])
        assert gl.convert_layout(x, LINE).layout == x.layout
        assert gl.zeros([128], gl.float32).layout == gl.AutoLayout()
        assert kernel.names.count("tile.arange") == 1


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]), [32, 64]),
        (SliceLayout(0, BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])), [64]),
        (NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]), [64, 32]),
        (DotOperandLayout(0, NVMMADistributedLayout([2, 0], [4, 1], [16, 8]), 2), [64, 32]),
        (
            DistributedLinearLayout([[2]], [[4], [8], [16], [32], [1]], [[64], [0]], [], [128]),
            [128],
        ),
    ],
)  # fmt: skip
def test_copies_of_every_kind_of_layout(layout, shape):
    copied = in_cluster(layout, 4)
    assert copied.num_ctas == 4
    linear, own = copied.to_linear(shape), layout.to_linear(shape)
    assert linear.columns["block"] == (0, 0)
    assert {d: linear.columns[d] for d in ("register", "lane", "warp")} == {
        d: own.columns[d] for d in ("register", "lane", "warp")
    }
    assert in_cluster(copied, 4) is copied


@pytest.mark.parametrize("blocks", [1, 4])
def test_layouts_of_another_number_of_blocks(blocks):
    shared = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16, cga_layout=[[1, 0]])
    with building(num_ctas=blocks):
        for make in (
            lambda: gl.arange(0, 128, SPLIT),
            lambda: gl.allocate_shared_memory(gl.float16, [64, 64], shared),
            lambda: gl.zeros([128], gl.int32, SPLIT),
        ):
            with pytest.raises(LayoutError) as caught:
                make()
            assert caught.value.code == "layout-num-ctas"
            assert f"over 2 blocks, but the kernel runs with num_ctas={blocks}" in caught.value.message


def test_barriers_of_a_cluster():
    with building(num_ctas=4) as kernel:
        bars = mbarrier.allocate_mbarrier(batch=3)
        assert (bars.shape, bars.layout) == ([3, 4], mbarrier.MBarrierLayout([[1], [2]]))
        assert bars.index(0).shape == [4]
        pairs = mbarrier.allocate_mbarrier(two_ctas=True)
        assert (pairs.shape, pairs.layout) == ([2], mbarrier.MBarrierLayout.multicta(4, two_cta=True))
        mbarrier.init(pairs, count=3)
        mbarrier.arrive(pairs)
        assert kernel.last("mbarrier.arrive").attrs["shared_by"] == 1
        mbarrier.expect(pairs, 64)
        assert kernel.last("mbarrier.expect").attrs["shared_by"] == 1
        mbarrier.arrive(bars.index(1))
        assert kernel.last("mbarrier.arrive").attrs["shared_by"] == 0


def test_the_barrier_of_the_cluster():
    with building(num_ctas=2) as kernel:
        cluster.arrive(relaxed=True)
        cluster.wait()
        cluster.barrier()
        gl.barrier(cluster=True)
        gl.barrier()
        names = ["cluster.arrive", "cluster.wait"] * 3
        assert kernel.names == [*names, "sync.barrier"]
        assert [op.attrs.get("relaxed") for op in kernel.ops[::2]] == [True, False, False, None]


def test_multicast_needs_a_cluster():
    for blocks in (1, 2):
        with building(num_ctas=blocks) as kernel:
            desc = kernel.descriptor()
            memory = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
            tma.async_load(desc, [0, 0], mbarrier.allocate_mbarrier(), memory, multicast=True)
            assert kernel.last("tma.load").attrs["multicast"] is (blocks == 2)


def refused(make, **options) -> UserError:
    with building(**options) as kernel, pytest.raises(CompilationError) as caught:
        make(kernel)
    return caught.value


def shared_barrier(kernel):
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout([[0]]))
    desc = kernel.descriptor()
    memory = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    tma.async_load(desc, [0, 0], bar, memory)


def test_copies_signal_a_block_of_their_own():
    error = refused(shared_barrier, num_ctas=2)
    assert error.code == "cluster-signal"
    assert "MBarrierLayout(cga_layout=[[0]])" in error.message
    error = refused(lambda kernel: async_copy.mbarrier_arrive(mbarrier.allocate_mbarrier(two_ctas=True)), num_ctas=2)
    assert error.code == "cluster-signal"


def send(kernel, sender, cga=None, multicast=True):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16, cga_layout=cga)
    desc = kernel.descriptor(layout=layout)
    memory = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
    tma.async_load(desc, [0, 0], mbarrier.allocate_mbarrier(), memory, multicast=multicast, sender=sender)


@pytest.mark.parametrize(
    ("blocks", "cga", "senders"),
    [(1, None, [0]), (2, [[0, 0]], [0, 1]), (2, [[1, 0]], [0]), (4, [[1, 0], [0, 0]], [0, 2]), (4, None, [0, 1, 2, 3])],
)
def test_blocks_that_may_send(blocks, cga, senders):
    for sender in range(-1, 5):
        if sender in senders:
            with building(num_ctas=blocks) as kernel:
                send(kernel, sender, cga)
                assert kernel.last("tma.load").attrs["sender"] == sender
        else:
            error = refused(lambda kernel, sender=sender: send(kernel, sender, cga), num_ctas=blocks)
            assert error.code == "cluster-sender"
            assert f"sender is {sender}," in error.message and str(senders) in error.message
    assert refused(lambda kernel: send(kernel, 1, multicast=False), num_ctas=2).code == "cluster-sender"


def test_arrivals_everywhere():
    for blocks in (1, 2):
        with building(num_ctas=blocks) as kernel:
            mbarrier.arrive(mbarrier.allocate_mbarrier(), everywhere=True)
            assert kernel.last("mbarrier.arrive").attrs["everywhere"] is (blocks == 2)
    shared = refused(lambda _: mbarrier.arrive(mbarrier.allocate_mbarrier(two_ctas=True), everywhere=True), num_ctas=2)
    assert shared.code == "cluster-signal"


def test_arrivals_from_other_blocks():
    for blocks, mask, sent_to in ((1, 0, 0), (2, 0, 1), (2, 1, 0), (4, 1, 2), (4, None, 0)):
        with building(num_ctas=blocks) as kernel:
            mbarrier.arrive(mbarrier.allocate_mbarrier(), from_cta=mask)
            assert kernel.last("mbarrier.arrive").attrs["sent_to"] == sent_to
            mbarrier.expect(mbarrier.allocate_mbarrier(), 16, from_cta=mask)
            assert kernel.last("mbarrier.expect").attrs["sent_to"] == sent_to
    beyond = refused(lambda _: mbarrier.expect(mbarrier.allocate_mbarrier(), 16, from_cta=4), num_ctas=4)
    assert beyond.code == "cluster-from-cta" and "is 4, which is no mask of CTAs 0 to 3" in beyond.message
    both = refused(lambda _: mbarrier.arrive(mbarrier.allocate_mbarrier(), everywhere=True, from_cta=0), num_ctas=2)
    assert both.code == "cluster-from-cta" and "together with everywhere" in both.message
    pair = refused(lambda _: mbarrier.expect(mbarrier.allocate_mbarrier(two_ctas=True), 16, from_cta=0), num_ctas=2)
    assert pair.code == "cluster-signal"


def test_pairs_of_blocks_need_a_cluster():
    assert refused(lambda kernel: mbarrier.allocate_mbarrier(two_ctas=True)).code == "async-two-ctas"


def test_older_targets_have_no_clusters():
    error = refused(lambda kernel: cluster.barrier(), target="sm_80")
    assert error.code == "async-target"
    assert "clusters, which sm_80 does not have" in error.message
