"""Launches of kernels that need a workspace: memory for all blocks, allocated and freed in the order of the stream."""

from __future__ import annotations

import pytest

from tests.runtime.fake_driver import WORKSPACE, CUresult, FakeTensor
from weft.errors import DeviceError
from weft.kernel import jit
from weft.layout import NVMMASharedLayout
from weft.nvidia.hopper import TensorDescriptor
from weft.runtime import kept
from weft.runtime.compiled import Binary
from weft.runtime.errors import OutOfResources

LAYOUT = NVMMASharedLayout(0, 32, 2)


def make():
    @jit
    def scale(x, n):
        """Take an array and a number."""

    return scale


def test_the_workspace_is_the_last_parameter(cuda, compiler):
    compiler.workspace, cuda.parameters = 256, 3
    scale = make()
    for grid, blocks in (((4, 3, 2), 24), (5, 5)):
        scale[grid](FakeTensor(0x1000), 48)
        assert cuda.launches[-1].words == (0x1000, 48, WORKSPACE)
        assert cuda.allocated[-2:] == [("alloc", 256 * blocks, 700), ("free", WORKSPACE, 700)]


def test_descriptors_beside_a_workspace(cuda, compiler):
    compiler.workspace, cuda.parameters = 128, 7
    desc = TensorDescriptor.from_tensor(FakeTensor(0x1000, shape=(64, 32)), [8, 8], LAYOUT)
    for _ in range(2):
        make()[1](desc, 9)
    assert cuda.launches[-1].words == (0x1000, 64 | 32 << 32, 32, 32, 1, 9, WORKSPACE)


def test_a_stream_that_is_given(cuda, compiler):
    compiler.workspace = 128
    make()[1](FakeTensor(0x1000), 1, stream=5)
    assert [stream for _, _, stream in cuda.allocated] == [5, 5]
    assert cuda.launches[-1].stream == 5


def test_each_block_of_a_cluster_has_its_part(cuda, compiler):
    compiler.workspace = 128
    make()[6](FakeTensor(0x1000), 1, num_ctas=2)
    assert cuda.allocated[0] == ("alloc", 12 * 128, 700)
    assert cuda.launches[-1].grid == (12, 1, 1)


def test_others_allocate_nothing(cuda, compiler):
    cuda.parameters = 2
    make()[4](FakeTensor(0x1000), 48)
    assert cuda.allocated == []


def test_the_workspace_is_freed_when_a_launch_fails(cuda, compiler):
    compiler.workspace = 128
    scale = make()
    scale[1](FakeTensor(0x1000), 1)
    alloc = cuda.cuMemAllocAsync

    def then_fail(size, stream):
        made = alloc(size, stream)
        cuda.results.append(CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
        return made

    cuda.cuMemAllocAsync = then_fail
    with pytest.raises(OutOfResources):
        scale[1](FakeTensor(0x1000), 1)
    assert [what for what, _, _ in cuda.allocated] == ["alloc", "free"] * 2


def test_no_memory_is_left(cuda, compiler):
    compiler.workspace = 128
    scale = make()
    scale[1](FakeTensor(0x1000), 1)
    cuda.results.append(CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(DeviceError, match="cuMemAllocAsync") as caught:
        scale[1](FakeTensor(0x1000), 1)
    assert caught.value.code == "device-driver-error"
    assert len(cuda.launches) == 1


def test_the_bare_launch_has_a_workspace_too(cuda, compiler):
    compiler.workspace, cuda.parameters = 128, 3
    compiled = make()[1](FakeTensor(0x1000), 48)
    compiled.launch((3, 1, 1), 9, [0x3000, 16])
    assert cuda.launches[-1].words == (0x3000, 16, WORKSPACE)
    assert cuda.allocated[-2] == ("alloc", 384, 9)


def test_the_disk_cache_keeps_its_size():
    made = Binary(b"cubin", 32, 0, workspace=384)
    assert kept.binary(kept.of_binary(made)) == made


def test_a_launch_with_a_workspace_never_overlaps_the_one_before(cuda, compiler):
    """That one's workspace has been freed in stream order, so this launch may get the same memory."""
    compiler.workspace, cuda.parameters = 256, 3
    make()[1](FakeTensor(0x1000), 1, launch_pdl=True)
    assert [launched.dependent for launched in cuda.launches] == [False]
