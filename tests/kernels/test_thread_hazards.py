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
        assert "gl.syncwarp()" in error.fix
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
    assert error.fix == "keep what was read in a variable, call gl.syncwarp(), and write it after that"


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
    assert error.fix == f"call gl.barrier() after gl.async_copy_wait_all(), before line {error.loc.line}"


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


@weft.jit
def in_vectors(out, t):
    v = t.vectorize[1, 4]()
    i = gl.thread_idx.x
    if i < v.dim(0):
        out.store(i, 0, v[i, 0])


@weft.jit
def in_fragments(out, t):
    mine = t.distribute[gl.Layout.row_major(1, 4)](gl.thread_idx.x % 4)
    if gl.thread_idx.x < 4:
        out[0, gl.thread_idx.x] = mine[0, 0]


@pytest.mark.parametrize("kernel", [in_vectors, in_fragments])
def test_sizes_of_the_run_time_are_whole_groups(kernel):
    layout = gl.Layout((gl.UNKNOWN, gl.UNKNOWN), (gl.UNKNOWN, 1))
    out, x = np.zeros((8, 4), np.float32), np.arange(64, dtype=np.float32).reshape(8, 8)
    kernel[1](LayoutTensor(out), LayoutTensor(x, layout), block=32)
    np.testing.assert_array_equal(out[0], x[0, :4])
    error = met(kernel, view(8, 4), LayoutTensor(x[:, :6], layout), block=32)
    assert error.code == "hazard-view-bounds"
    assert "uses index 2 as the remainder of axis 1 of t by 4 in t." in error.message


@weft.jit
def twice_in_vectors(t):
    t.vectorize[1, 2]().vectorize[1, 2]().tile[4, 2](gl.thread_idx.x, 0).fill(1.0)


def test_rows_of_the_run_time_in_vectors_of_vectors():
    x = np.zeros((8, 8), np.float32)
    layout = gl.Layout((gl.UNKNOWN, gl.UNKNOWN), (gl.UNKNOWN, 1))
    twice_in_vectors[1](LayoutTensor(x, layout, masked=True), block=2)
    assert (x == 1).all()


@weft.jit
def edges(t, which: gl.constexpr):
    i = gl.thread_idx.x
    if which == "axis":
        t[0, i] = 1.0
    elif which == "tile":
        t.tile[4, 4](0, i).fill(1.0)
    elif which == "thread":
        t.distribute[gl.Layout.row_major(2, 2)](i).fill(1.0)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("axis", "thread (8, 0, 0) uses index 8 along axis 1 of t, whose size there is 8"),
        ("tile", "thread (2, 0, 0) uses index 11 along axis 1 of t as the last of t.tile[4, 4](0, i), whose size there is 8"),
        ("thread", "thread (4, 0, 0) uses index 4 as the thread of t.distribute[((2, 2):(2, 1))](i), whose size there is 4"),
    ],
)  # fmt: skip
def test_what_an_index_out_of_range_counts(which, message):
    assert message in met(edges, view(8, 8), which, block=32).message


@weft.jit
def source_in_flight(t):
    i = gl.thread_idx.x
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(32), address_space=SHARED)
    tile.distribute[gl.Layout.row_major(32)](i).copy_from_async(t.distribute[gl.Layout.row_major(32)](i))
    t[i] = 5.0
    gl.async_copy_wait_all()


def test_the_source_of_a_copy_under_way():
    error = met(source_in_flight, view(32), block=32)
    assert error.code == "hazard-global-in-flight"
    assert error.fix.startswith("call gl.async_copy_wait_all()")


@weft.jit
def one_too_few(out):
    i = gl.thread_idx.x
    tile = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout.row_major(33), address_space=SHARED)
    tile[i] = 1.0
    gl.barrier()
    out[i] = tile.tile[33](0)[i + 1]


def test_the_element_that_was_never_written():
    error = met(one_too_few, view(32), block=32)
    assert error.code == "hazard-uninitialized"
    assert "reads tile[32] through tile.tile[33](0), which was never written (thread (31, 0, 0))" in error.message
