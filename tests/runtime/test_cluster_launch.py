"""Launches of programs of several blocks, and dependent launches: what the driver is told of them."""

from __future__ import annotations

import pytest

from tests.runtime.fake_driver import FakeTensor
from weft.errors import LaunchError
from weft.kernel import jit
from weft.runtime.errors import OutOfResources
from weft.runtime.grid import LIMITS


def make():
    @jit
    def scale(x, n):
        """Take an array and a number."""

    return scale


@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16])
def test_the_grid_counts_blocks_and_programs_lie_along_x(cuda, compiler, blocks):
    compiled = make()[(5, 3)](FakeTensor(0x1000), 1, num_ctas=blocks)
    launched = cuda.launches[-1]
    assert launched.grid == (5 * blocks, 3, 1)
    assert launched.cluster == blocks == compiled.num_ctas
    assert launched.block == (128, 1, 1)


@pytest.mark.parametrize(("blocks", "allowed"), [(1, 0), (8, 0), (16, 1)])
def test_a_function_opts_in_to_clusters_that_are_not_portable(cuda, compiler, blocks, allowed):
    make()[1](FakeTensor(0x1000), 1, num_ctas=blocks)
    assert cuda.non_portable == allowed


def test_a_cluster_that_the_device_cannot_place(cuda, compiler):
    scale = make()
    cuda.most_clusters = 0
    with pytest.raises(OutOfResources) as caught:
        scale[1](FakeTensor(0x1000), 1, num_ctas=16)
    assert caught.value.code == "launch-cluster-size"
    assert "Fake H200 cannot place a cluster of 16 blocks of 128 threads, 32 registers a thread" in caught.value.message
    assert not cuda.launches
    scale[1](FakeTensor(0x1000), 1)
    assert len(cuda.launches) == 1


def test_active_clusters_are_the_drivers(cuda, compiler):
    compiled = make()[1](FakeTensor(0x1000), 1, num_ctas=4)
    assert compiled.active_clusters() == cuda.most_clusters // 4


def test_kernels_of_other_numbers_of_blocks_are_other_kernels(cuda, compiler):
    scale = make()
    one, two, again = (scale[1](FakeTensor(0x1000), 1, num_ctas=blocks) for blocks in (1, 2, 1))
    assert one is again is not two
    assert [launched.cluster for launched in cuda.launches] == [1, 2, 1]


def test_too_many_blocks(cuda, compiler):
    scale = make()
    scale[LIMITS[0] // 2](FakeTensor(0x1000), 1, num_ctas=2)
    with pytest.raises(LaunchError) as caught:
        scale[LIMITS[0] // 2 + 1](FakeTensor(0x1000), 1, num_ctas=2)
    assert caught.value.code == "launch-grid-limit"
    assert f"takes at most {LIMITS[0] // 2}" in caught.value.message


def test_more_threads_than_32_bits_count(cuda, compiler):
    """The axis counts, of a kernel that was launched before with a smaller grid as well; warps of tiles have no such number."""
    scale = make()
    compiled = scale[2**21 - 1](FakeTensor(0x1000), 1, block=1024)
    assert scale[1, 65535](FakeTensor(0x1000), 1, block=1024) is compiled
    with pytest.raises(LaunchError) as caught:
        scale[2**21](FakeTensor(0x1000), 1, block=1024)
    assert caught.value.code == "launch-grid-threads"
    assert "2097152 blocks of 1024 threads along x, 2147483648 threads" in caught.value.message
    scale[2**21](FakeTensor(0x1000), 1, num_warps=32)
    launches = len(cuda.launches)
    with pytest.raises(LaunchError):
        scale[2**30](FakeTensor(0x1000), 1, block=(2, 4))
    assert len(cuda.launches) == launches


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_dependent_launch_is_told_to_the_driver_each_time(cuda, compiler, blocks):
    scale = make()
    launches = [{}, {"launch_pdl": True}, {"launch_pdl": False}] * 3
    compiled = [scale[1](FakeTensor(0x1000), 1, num_ctas=blocks, **options) for options in launches]
    assert [launched.dependent for launched in cuda.launches] == [False, True, False] * 3
    assert {launched.cluster for launched in cuda.launches} == {blocks}
    assert compiled[0] is compiled[2] is compiled[8] is not compiled[1] is compiled[7]
