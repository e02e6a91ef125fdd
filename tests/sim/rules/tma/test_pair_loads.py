"""Loads of two blocks that arrive on a barrier they share: bytes of both, and what is said of the one who forgets his."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft
from tests.kernels.harness import run_lowered
from weft import language as gl
from weft import settings
from weft.errors import hazard
from weft.language.nvidia.blackwell import cluster, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

ROWS = [[1, 0]]
MEMORY = gl.NVMMASharedLayout.get_default_for([32, 64], gl.float32, cga_layout=ROWS)
GRID = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=ROWS)


@pytest.fixture(autouse=True)
def blackwell() -> Iterator[None]:
    with settings.using(target="sm_100a"):
        yield


@weft.jit
def loaded(x, out, BYTES: gl.constexpr, MEET: gl.constexpr, layout: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier(two_ctas=True)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, BYTES)
    tma.async_load(x, [32, 0], bar, memory)
    mbarrier.wait(bar, 0)
    if MEET:
        cluster.barrier()
    i = gl.arange(0, 32, gl.SliceLayout(1, layout))
    j = gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(out + i[:, None] * 64 + j[None, :], memory.load(layout))
    cluster.barrier()


def arguments(size: int = 4096, meet: bool = True):
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    return TensorDescriptor.from_tensor(x, [32, 64], MEMORY), np.zeros((32, 64), np.float32), size, meet, GRID


@pytest.mark.parametrize("order", [{}, {"schedule": "early"}, {"seed": 1}], ids=str)
def test_bytes_of_both_blocks_arrive_on_one_barrier(order):
    given, again = arguments(), arguments()
    with weft.simulate(**order):
        compiled = loaded[(1,)](*given, num_ctas=2)
    run_lowered(loaded, compiled, (1,), again, {"num_ctas": 2})
    for x, out, *_ in (given, again):
        np.testing.assert_array_equal(out, x.base[32:])


def test_both_blocks_expect_their_bytes():
    with pytest.raises(
        hazard.TransactionBytes, match="phase 0 of bar of block 0 expects 8224 bytes, but copies complete 8192"
    ):
        loaded[(1,)](*arguments(size=4112), num_ctas=2)


def test_only_the_first_block_has_waited():
    """Nothing tells the second block that its copy is complete."""
    with pytest.raises(hazard.ReadInFlight, match="block 1 reads memory while the copy into it that block 1 started"):
        loaded[(1,)](*arguments(meet=False), num_ctas=2)
