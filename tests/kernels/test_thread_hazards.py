"""What the simulator says to kernels of single threads that are wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import Hazard, hazard
from weft.views import LayoutTensor

SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL


def met(kernel, *arguments, grid=1, block=(8, 4)) -> Hazard:
    """The hazard that a launch in the simulator meets."""
    with weft.simulate(), pytest.raises(Hazard) as caught:
        kernel[grid](*arguments, block=block)
    return caught.value


def view(*shape, dtype=np.float32, **options) -> LayoutTensor:
    return LayoutTensor(np.zeros(shape, dtype), **options)


@weft.jit
def far(t):
    t.tile[4, 4](2, 1).vectorize[1, 4]()[gl.thread_idx.y, gl.thread_idx.x] = 1.0


def test_outside_of_a_view_and_inside_of_the_array():
    error = met(far, view(16, 16))
    assert error.code == "hazard-view-bounds"
    assert "thread (1, 0, 0) uses index 1 along axis 1 of t.tile[4, 4](2, 1).vectorize[1, 4]()" in error.message
    assert "whose size there is 1" in error.message
    assert error.loc.source.strip().startswith("t.tile[4, 4]")


@weft.jit
def neighbours(out, fault: gl.constexpr):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(32), address_space=SHARED)
    i = gl.thread_idx.x + gl.thread_idx.y * 8
    if fault == "one store":
        tile[i // 2] = i
    tile[i] = i
    if fault == "two stores":
        tile[(i + 1) % 32] = 7
    if fault != "barrier":
        gl.barrier()
    if fault == "unwritten":
        fresh = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(64), address_space=SHARED)
        fresh[i] = i
        gl.barrier()
        out[i] = fresh[i + 1]
    else:
        out[i] = tile[(i + 1) % 32]


RACES = {
    "barrier": ("hazard-threads-race", r"thread \(0, 0, 0\) reads tile\[1\], which thread \(1, 0, 0\) wrote"),
    "two stores": (
        "hazard-threads-race",
        r"thread \(0, 0, 0\) writes tile\[1\], which thread \(1, 0, 0\) wrote",
    ),
    "one store": (
        "hazard-shared-store-race",
        r"thread \(0, 0, 0\) and thread \(1, 0, 0\) write tile\[0\] by one store",
    ),
    "unwritten": ("hazard-uninitialized", r"which was never written \(thread \(7, 3, 0\)\)"),
}


@pytest.mark.parametrize("fault", RACES)
def test_shared_memory(fault):
    code, message = RACES[fault]
    error = met(neighbours, view(32, dtype=np.int32), fault)
    assert error.code == code
    assert re.search(message, error.message), error.message
    assert error.loc.source
    if code == "hazard-threads-race":
        assert "gl.barrier()" in error.fix
        assert error.first.line < error.second.line


@weft.jit
def everybody_says(out):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(1), address_space=SHARED)
    tile[0] = 5
    gl.barrier()
    if gl.thread_idx.x == 0 and gl.thread_idx.y == 0:
        out[0] = tile[0]


def test_equal_stores_are_only_advised_against():
    out = np.zeros(32, np.int32)
    report = neighbours[1](LayoutTensor(out), "", block=(8, 4)).report
    np.testing.assert_array_equal(out, (np.arange(32) + 1) % 32)
    assert report.advice == []
    report = everybody_says[1](LayoutTensor(out), block=(8, 4)).report
    assert out[0] == 5
    (advice,) = report.advice
    assert advice.rule == "equal-stores"
    assert advice.loc.source.strip() == "tile[0] = 5"


@weft.jit
def in_place(t):
    """A stencil that reads its right neighbour and itself, and writes itself."""
    i = gl.thread_idx.x
    t[i] = (t[(i + 1) % 32] + t[i]) * 0.5


def test_global_memory_of_neighbours():
    error = met(in_place, view(32), block=32)
    assert error.code == "hazard-global-threads-race"
    assert "several threads read" in error.message
    assert error.fix == "keep what was read in a variable, call gl.barrier(), and write it after that"


@weft.jit
def everybody_copies(t, threads: gl.constexpr):
    """All warps copy the whole tile, each waits for its own copies, and then all write it."""
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(16, 16), address_space=SHARED)
    source = t.tile[16, 16](gl.block_idx.x, gl.block_idx.y).vectorize[1, 4]().distribute[threads](gl.lane_id())
    mine = tile.vectorize[1, 4]().distribute[threads](gl.lane_id())
    mine.copy_from_async(source)
    gl.async_copy_wait_all()
    tile[gl.thread_idx.x, gl.thread_idx.y] = 1.0
    gl.barrier()
    source.copy_from(mine)


def test_copies_of_all_warps_race_with_what_follows_a_wait():
    error = met(everybody_copies, view(32, 32), gl.Layout.row_major(8, 4), grid=(2, 2), block=(16, 16))
    assert error.code == "hazard-threads-race"
    assert "which several threads copied into" in error.message
    assert error.fix == "call gl.barrier() between gl.async_copy_wait_all() and the second line"


@weft.jit
def crooked(t):
    """Vectors of four from the second element on."""
    out = t.tile[1, 64](1, 0)
    out.store(0, gl.thread_idx.x * 4, t.load[4](0, gl.thread_idx.x * 4 + 2))


def test_vectors_that_are_not_aligned():
    error = met(crooked, view(2, 64), block=8)
    assert isinstance(error, hazard.Misaligned)
    assert "thread (0, 0, 0)" in error.message
    assert "16 bytes" in error.message


@weft.jit
def own_array(out, limit):
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(4), address_space=LOCAL)
    i = gl.thread_idx.x
    for j in range(limit):
        mine[j] = i
    out[i] = mine[3]


@pytest.mark.filterwarnings("ignore::weft.errors.PerformanceWarning")
def test_local_arrays():
    error = met(own_array, view(32, dtype=np.int32), 5, block=32)
    assert isinstance(error, hazard.OutOfBounds)
    assert "thread (0, 0, 0)" in error.message
    error = met(own_array, view(32, dtype=np.int32), 3, block=32)
    assert isinstance(error, hazard.UndefinedValue)
    assert "thread's own array" in error.message
    report = own_array[1](view(32, dtype=np.int32), 4, block=32).report
    assert [advice.rule for advice in report.advice] == ["local-index"]


@weft.jit
def masked_loads(out, x):
    i = gl.thread_idx.x
    v = 0.0
    if i < x.dim(0):
        v = x[i]
    out[i] = v


def test_what_a_branch_leaves_out_is_not_accessed():
    out = np.zeros(32, np.float32)
    with weft.simulate():
        masked_loads[1](LayoutTensor(out), LayoutTensor(np.ones(20, np.float32)), block=32)
    np.testing.assert_array_equal(out, np.arange(32) < 20)


@weft.jit
def claimed(out):
    if gl.uniform(gl.thread_idx.x // 31) == 0:
        gl.barrier()
    out[gl.thread_idx.x] = 1


def test_a_barrier_under_a_claim_that_is_wrong():
    error = met(claimed, view(32, dtype=np.int32), block=32)
    assert error.code == "hazard-not-uniform"
    assert "thread (0, 0, 0) has 0 and thread (31, 0, 0) has 1" in error.message
