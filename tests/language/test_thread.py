"""Places of threads in block and grid, and what the threads of a warp exchange."""

from __future__ import annotations

import numpy as np
import pytest

from tests.language.support import building, mistake
from weft import language as gl
from weft.errors import UserError
from weft.ir.core import Value
from weft.ir.types import RegsType, ScalarType
from weft.language.context import current


@pytest.fixture
def block(kernel):
    """Sets the shape of the blocks that the kernel is launched with."""

    def set_to(*shape):
        current().block = (*shape, 1, 1)[:3]
        return kernel

    return set_to


def test_a_row_of_threads_needs_no_division(block):
    kernel = block(128)
    gl.thread_idx.x
    assert kernel.names == ["program.thread"]


def test_threads_run_along_x_first(block):
    kernel = block(8, 4)
    gl.thread_idx.x
    assert kernel.names == ["program.thread", "arith.constant", "arith.rem"]
    gl.thread_idx.y
    assert kernel.names[3:] == ["program.thread", "arith.constant", "arith.div"]


def test_a_block_of_three_axes(block):
    kernel = block(4, 2, 8)
    gl.thread_idx.y
    assert kernel.names == ["program.thread", "arith.constant", "arith.div", "arith.constant", "arith.rem"]
    gl.thread_idx.z
    assert kernel.names[5:] == ["program.thread", "arith.constant", "arith.div"]
    assert kernel.ops[6].attrs["value"] == 8


def test_along_an_axis_of_one_thread_all_is_zero(block):
    kernel = block(64)
    assert gl.thread_idx.y.handle.type == ScalarType(gl.int32)
    assert kernel.last("arith.constant").attrs["value"] == 0
    gl.global_idx.y
    assert kernel.last("program.id").attrs["axis"] == 1


def test_the_place_in_the_grid(block):
    kernel = block(64)
    gl.global_idx.x
    assert kernel.names == ["program.id", "arith.constant", "arith.mul", "program.thread", "arith.add"]
    gl.block_idx.y
    assert kernel.last("program.id").attrs["axis"] == 1
    gl.grid_dim.z
    assert kernel.last("program.count").attrs["axis"] == 2


def test_the_size_of_a_block_is_known(block):
    block(8, 4)
    assert (gl.block_dim.x, gl.block_dim.y, gl.block_dim.z) == (8, 4, 1)


def test_without_a_shape_a_block_is_a_row():
    with building(num_warps=2) as kernel:
        assert gl.block_dim.x == 64
        gl.thread_idx.x
        assert kernel.names == ["program.thread"]


@pytest.mark.parametrize("name", ["thread_idx", "global_idx", "block_dim"])
def test_without_a_shape_there_is_no_second_axis(kernel, name):
    with mistake("thread-block") as found:
        getattr(gl, name).y
    assert f"gl.{name}.y" in found.text
    assert "block=(x, y)" in found.text


def test_in_a_partition_threads_are_numbered_along_x(block):
    block(16, 8)
    current().partition = "loader"
    current().num_warps = 1
    assert gl.block_dim.x == 32
    with mistake("thread-block"):
        gl.thread_idx.y


def test_on_the_host_there_are_no_threads():
    with pytest.raises(UserError) as caught:
        gl.thread_idx.x
    assert caught.value.code == "language-host-call"
    assert "gl.thread_idx.x" in str(caught.value)


def test_limits_of_types():
    for dtype, most in (
        (gl.float16, 65504),
        (gl.float32, np.finfo("f4").max),
        (gl.float64, np.finfo("f8").max),
        (gl.int8, 127),
    ):
        assert gl.max_finite[dtype]() == gl.max_finite(dtype) == most
    assert gl.min_finite[gl.bfloat16]() == -(2 - 2**-7) * 2.0**127 and gl.min_finite(gl.int32) == -(2**31)
    assert (gl.max_finite(gl.float8e4nv), gl.max_finite(gl.float8e5), gl.min_finite(gl.uint8)) == (448, 57344, 0)


def test_the_widest_vectors():
    widths = [gl.simd_width_of(dtype) for dtype in (gl.float64, gl.float32, gl.bfloat16, gl.int8, gl.int1)]
    assert widths == [2, 4, 8, 16, 16]
    assert gl.WARP_SIZE == 32


def test_waiting_for_all_copies(kernel):
    gl.async_copy_wait_all()
    assert kernel.names == ["async_copy.commit", "async_copy.wait"]
    assert kernel.ops[-1].attrs["pendings"] == 0


def test_shuffles_take_scalars_and_vectors(kernel):
    v = gl.SIMD(Value(RegsType(gl.float16, 4), "v"))
    assert gl.shuffle_xor(v, 16).handle.type == RegsType(gl.float16, 4)
    assert kernel.last("warp.shuffle_xor").attrs["mask"] == 16
    s = kernel.scalar(gl.int32)
    for shuffle in (gl.shuffle_idx, gl.shuffle_up, gl.shuffle_down):
        assert shuffle(s, 3).handle.type == ScalarType(gl.int32)
        kernel.last("warp.shuffle_idx")
    assert gl.shuffle_xor(s, 0) is s


def test_lanes_may_be_known_at_run_time_only(kernel):
    s, lane = kernel.scalar(gl.float32), kernel.scalar(gl.int32, "lane")
    for shuffle in (gl.shuffle_xor, gl.shuffle_idx, gl.shuffle_up, gl.shuffle_down):
        shuffle(s, lane)
        kernel.last("warp.shuffle_idx")


def test_reductions_of_a_warp(kernel):
    s = kernel.scalar(gl.float32)
    assert gl.warp_sum(s).handle.type == ScalarType(gl.float32)
    assert kernel.names == ["warp.shuffle_xor", "arith.add"] * 5
    assert [op.attrs["mask"] for op in kernel.ops[::2]] == [16, 8, 4, 2, 1]
    gl.warp_max(s)
    kernel.last("arith.max")
    gl.warp_min(s)
    kernel.last("arith.min")
    assert gl.warp_prefix_sum(s).handle.type == ScalarType(gl.float32)
    assert gl.warp_broadcast(s).handle.type == ScalarType(gl.float32)


def test_threads_exchange_their_own_values_only(kernel):
    with mistake("thread-value-needed") as found:
        gl.warp_sum(kernel.tile())
    assert "gl.sum" in found.text


@pytest.mark.parametrize("shuffle", [gl.shuffle_xor, gl.shuffle_idx, gl.shuffle_up, gl.shuffle_down])
@pytest.mark.parametrize("by", [32, -1, 1.5])
def test_lanes_that_a_warp_has_not(kernel, shuffle, by):
    with mistake("thread-shuffle") as found:
        shuffle(kernel.scalar(gl.float32), by)
    assert str(by) in found.text


def test_a_scalar_access_is_each_threads_own_in_a_kernel_of_threads(block):
    kernel = block(64)
    p = kernel.pointer()
    gl.store(p, 1)
    assert kernel.names == ["arith.constant", "regs.splat", "memory.store_regs"]
    assert gl.load(p).handle.type == ScalarType(gl.float32)
    assert kernel.names[-2:] == ["memory.load_regs", "regs.extract"]
    gl.atomic_add(p, 1)
    assert "memory.atomic_regs" in kernel.names
    gl.atomic_cas(p, 0, 1)
    assert "memory.atomic_cas_regs" in kernel.names
