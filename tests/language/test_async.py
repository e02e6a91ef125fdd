"""cp.async, mbarriers, TMA and fences: which operations the functions become."""

from __future__ import annotations

import pytest

from tests.language.support import BLOCKED
from weft import language as gl
from weft.language.descriptor import tensor_descriptor_im2col
from weft.language.nvidia import ampere, blackwell, hopper
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.layout import MBarrierLayout

LINE = gl.SwizzledSharedLayout(1, 1, 1, [0])


def block(desc):
    return gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)


def constants(kernel, values):
    known = {op.results[0]: op.attrs["value"] for op in kernel.ops if op.name == "arith.constant"}
    return [known[value] for value in values]


def test_one_function_under_several_names():
    assert hopper.async_copy is ampere.async_copy is gl.nvidia.hopper.async_copy
    assert hopper.mbarrier.wait is ampere.mbarrier.wait
    assert not hasattr(ampere.mbarrier, "expect")
    for name in {*blackwell.__all__} & {*hopper.__all__} - {"tma"}:
        assert getattr(blackwell, name) is getattr(hopper, name)
    assert async_copy.async_load is async_copy.async_copy_global_to_shared
    assert tma.async_load is tma.async_copy_global_to_shared
    assert tma.async_store is tma.async_copy_shared_to_global
    assert tma.async_load_im2col is tma.async_copy_global_to_shared_im2col


# cp.async


def test_async_copy(kernel):
    smem = gl.allocate_shared_memory(gl.float32, [128], LINE)
    pointers = kernel.pointer() + gl.arange(0, 128, BLOCKED)
    mask = kernel.tile(gl.int1)
    async_copy.async_copy_global_to_shared(
        smem, pointers, mask=mask, cache_modifier=".cg", eviction_policy="evict_last"
    )
    op = kernel.last("async_copy.global_to_shared")
    assert op.operands == (smem.handle, pointers.handle, mask.handle)
    l2 = ("evict_last", 1.0, "evict_unchanged")
    assert op.attrs == {"cache": ".cg", "l2": l2, "prefetch": 0, "volatile": False, "zeros": True}
    async_copy.async_copy_global_to_shared(smem, pointers, mask=True)
    assert kernel.ops[-1].operands[2] is None


def test_async_copy_stretches_the_mask(kernel):
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    smem = gl.allocate_shared_memory(gl.float32, [16, 32], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    pointers = kernel.pointer() + kernel.tile(gl.int32, (16, 32), layout)
    async_copy.async_copy_global_to_shared(smem, pointers, mask=kernel.tile(gl.int1, (16, 1), layout))
    assert kernel.last("async_copy.global_to_shared").operands[2].type.shape == (16, 32)


def test_groups(kernel):
    async_copy.commit_group()
    async_copy.wait_group()
    async_copy.wait_group(num_outstanding=2)
    assert kernel.names == ["async_copy.commit", "async_copy.wait", "async_copy.wait"]
    assert [op.attrs.get("pendings") for op in kernel.ops] == [None, 0, 2]


def test_copies_arrive_on_a_barrier(kernel):
    bar = mbarrier.allocate_mbarrier()
    async_copy.mbarrier_arrive(bar)
    async_copy.mbarrier_arrive(bar, increment_count=False)
    assert [op.attrs["increment"] for op in kernel.ops[-2:]] == [True, False]


# mbarriers


def test_allocate_mbarrier(kernel):
    one, many = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier(batch=4)
    assert (one.shape, many.shape, one.dtype, one.layout) == ([1], [4, 1], gl.int64, MBarrierLayout())


def test_life_of_a_barrier(kernel):
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=2)
    mbarrier.expect(bar, 4096)
    mbarrier.arrive(bar)
    mbarrier.arrive(bar, count=2)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    names = ["init", "expect", "arrive", "arrive", "wait", "invalidate"]
    made = [op for op in kernel.ops if op.name.startswith("mbarrier.")]
    assert [op.name for op in made] == [f"mbarrier.{name}" for name in names]
    plain = {"shared_by": 0, "sent_to": 0, "each_warp": False, "everywhere": False}
    assert [op.attrs for op in made] == [
        {"count": 2}, {"bytes": 4096, "shared_by": 0, "sent_to": 0}, {"count": 1, **plain},
        {"count": 2, **plain}, {"shared_by": 0}, {},
    ]  # fmt: skip
    assert all(op.operands[0] is bar.handle for op in made)


@pytest.mark.parametrize(("phase", "value"), [(0, 0), (1, 1), (True, 1), (False, 0)])
def test_constant_phases(kernel, phase, value):
    mbarrier.wait(mbarrier.allocate_mbarrier(), phase)
    assert constants(kernel, [kernel.last("mbarrier.wait").operands[1]]) == [value]


@pytest.mark.parametrize("element", [gl.int1, gl.uint8, gl.int32, gl.int64])
def test_run_time_phases(kernel, element):
    mbarrier.wait(mbarrier.allocate_mbarrier(), kernel.scalar(element))
    assert kernel.last("mbarrier.wait").operands[1].type.element == gl.int32


def test_predicates(kernel):
    bar, n = mbarrier.allocate_mbarrier(), kernel.scalar(gl.int32)
    mbarrier.arrive(bar, pred=True)
    assert kernel.ops[-1].operands[1] is None
    mbarrier.expect(bar, 16, pred=n > 0)
    assert kernel.ops[-1].operands[1].type.element == gl.int1
    mbarrier.wait(bar, 1, pred=n)
    assert kernel.ops[-1].operands[2].type.element == gl.int1
    mbarrier.arrive(bar, pred=False)
    assert constants(kernel, [kernel.last("mbarrier.arrive").operands[1]]) == [False]


def test_wait_keeps_buffers(kernel):
    bar, smem = mbarrier.allocate_mbarrier(), gl.allocate_shared_memory(gl.int8, [128], LINE)
    mbarrier.wait(bar, 0, deps=[smem])
    assert kernel.last("mbarrier.wait").operands[-1] is smem.handle


# TMA


def test_a_descriptor(kernel):
    desc = kernel.descriptor(gl.float16, (64, 128))
    assert (desc.dtype, desc.block_shape, desc.rank) == (gl.float16, [64, 128], 2)
    assert desc.type.block_type.element_ty == gl.float16
    assert (desc.block_type.shape, desc.block_type.nbytes, desc.block_type.nbytes_per_cta) == ([64, 128], 16384, 16384)
    assert [x.dtype for x in (*desc.shape, *desc.strides)] == [gl.int32, gl.int32, gl.int64, gl.int64]
    other = kernel.descriptor(gl.float16, (64, 128), gl.NVMMASharedLayout(0, 16, 2))
    assert desc.block_type == other.block_type != kernel.descriptor(gl.float16, (64, 64)).block_type
    assert desc.layout != other.layout and desc.type != other.type


def test_bytes_of_a_cluster(kernel):
    layout = gl.NVMMASharedLayout(128, 16, 2, cga_layout=[[1, 0]])
    made = kernel.descriptor(gl.float16, (128, 64), layout).block_type
    assert (made.nbytes, made.nbytes_per_cta) == (16384, 8192)


def test_load(kernel):
    desc, bar, x = kernel.descriptor(), mbarrier.allocate_mbarrier(), kernel.scalar(gl.int32)
    smem = block(desc)
    tma.async_copy_global_to_shared(desc, [x, 64], bar, smem)
    op = kernel.last("tma.load")
    assert op.operands[:5] == (desc.handle.handle, bar.handle, smem.handle, None, x.handle)
    assert constants(kernel, op.operands[5:]) == [64]
    tma.async_copy_global_to_shared(desc, (0, x), bar, smem, pred=x < 3, multicast=True)
    op = kernel.last("tma.load")
    assert op.operands[3].type.element == gl.int1
    assert op.attrs == {
        "multicast": False,
        "sender": 0,
        "shared_by": 0,
        "remote": False,
        "crossing": 0,
        "boxes": (),
        "l2": (),
        "issuers": 1,
        "first": 0,
    }


@pytest.mark.parametrize("element", [gl.int8, gl.uint16, gl.uint32])
def test_coordinates_become_int32(kernel, element):
    desc, x = kernel.descriptor(), kernel.scalar(element)
    tma.async_copy_shared_to_global(desc, [x, x], block(desc))
    assert {value.type.element for value in kernel.last("tma.store").operands[2:]} == {gl.int32}


def test_a_stage_of_several_is_a_block(kernel):
    desc = kernel.descriptor()
    stages = gl.allocate_shared_memory(desc.dtype, [2, *desc.block_shape], desc.layout)
    tma.async_copy_shared_to_global(desc, [0, 0], stages.index(1))
    kernel.last("tma.store")


@pytest.mark.parametrize("kind", tma.REDUCIBLE)
def test_reductions(kernel, kind):
    desc = kernel.descriptor(gl.int32, (32, 32))
    function = getattr(tma, f"async_atomic_{kind}")
    function(desc, [0, 0], block(desc))
    assert kernel.last("tma.reduce").attrs["kind"] == kind
    assert function.__name__ == f"async_atomic_{kind}" and "`coord`" in function.__doc__


def test_im2col(kernel):
    desc, bar = kernel.descriptor(mode="im2col", rank=4), mbarrier.allocate_mbarrier()
    assert isinstance(desc, tensor_descriptor_im2col)
    r = kernel.scalar(gl.int32)
    tma.async_load_im2col(desc, [0, r, r, 0], [1, r], bar, block(desc))
    offsets = kernel.last("tma.load_im2col").operands[-2:]
    assert [value.type.element for value in offsets] == [gl.int16, gl.int16]


def test_store_wait_and_fence(kernel):
    tma.store_wait(pendings=1)
    fence_async_shared()
    fence_async_shared(cluster=True)
    assert kernel.names == ["tma.store_wait", "sync.fence_async", "sync.fence_async"]
    assert [op.attrs.get("cluster") for op in kernel.ops] == [None, False, True]


def test_make_tensor_descriptor(kernel):
    base, m, n = kernel.pointer(gl.float16), kernel.scalar(gl.int32), kernel.scalar(gl.int64)
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    desc = tma.make_tensor_descriptor(base, [m, 512], [n, 1], [64, 64], layout, padding_option="nan")
    op = kernel.last("tma.make_descriptor")
    assert [value.type.element for value in op.operands[1:]] == [gl.int32, gl.int32, gl.int64, gl.int64]
    assert op.attrs["padding"] == "nan"
    assert (desc.dtype, desc.block_shape, desc.layout) == (gl.float16, [64, 64], layout)
    assert desc.shape[0].handle is m.handle and desc.strides[0].handle is n.handle
    smem = block(desc)
    tma.async_copy_shared_to_global(desc, [0, 0], smem)
    kernel.last("tma.store")


def test_update_tensor_descriptor(kernel):
    desc, base, m = kernel.descriptor(), kernel.pointer(gl.float16), kernel.scalar(gl.int32)
    other = tma.update_tensor_descriptor(desc, base, [m, None])
    op = kernel.last("tma.update_descriptor")
    assert op.operands[:3] == (desc.handle.handle, base.handle, m.handle)
    assert op.operands[3] is desc.strides[0].handle
    assert op.attrs["changed"] == (0,)
    assert other.shape[0].handle is m.handle and other.shape[1].handle is desc.shape[1].handle
    assert (other.dtype, other.block_shape, other.layout) == (desc.dtype, desc.block_shape, desc.layout)
    tma.update_tensor_descriptor(desc, strides=[128, 1])
    op = kernel.last("tma.update_descriptor")
    assert (op.operands[1], op.attrs["changed"]) == (None, (0,))
    tma.update_tensor_descriptor(desc, base)
    assert kernel.last("tma.update_descriptor").attrs["changed"] == ()


def test_nothing_steps_along_one_element(kernel):
    """There any stride will do, as on the host."""
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    desc = tma.make_tensor_descriptor(kernel.pointer(gl.float16), [1, 64], [3, 1], [64, 64], layout)
    assert desc.block_shape == [64, 64]
