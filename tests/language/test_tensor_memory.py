"""Tensor memory: allocations, views and accesses become operations of the right types, and layouts come by default."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.support import building, mistake
from weft import language as gl
from weft.ir.types import TensorType, tile_type
from weft.language.nvidia import blackwell
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    get_tmem_32x32b_reg_layout,
    get_tmem_reg_layout,
    tensor_memory_descriptor,
    tensor_memory_descriptor_type,
)
from weft.layout import DistributedLinearLayout
from weft.layout.tensor_memory.load_store import register_layout

ACC = TensorMemoryLayout([128, 64], col_stride=1)
PAIR = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)


@pytest.fixture
def kernel() -> Any:
    with building(target="sm_100a") as made:
        yield made


def test_names():
    for name in blackwell.__all__:
        assert getattr(blackwell, name) is not None
    assert not hasattr(blackwell, "warpgroup_mma")


def test_an_allocation(kernel):
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
    op = kernel.last("tensor_memory.alloc")
    assert op.results[0].type == TensorType(gl.float32, (128, 64), ACC, (128, 64))
    assert isinstance(acc, tensor_memory_descriptor)
    assert (acc.dtype, acc.shape, acc.rank, acc.numel, acc.layout) == (gl.float32, [128, 64], 2, 128 * 64, ACC)
    assert acc.type == tensor_memory_descriptor_type(gl.float32, [128, 64], ACC)
    assert "tmem<128x64xf32" in repr(acc)


def test_allocations_are_kept_apart(kernel):
    one, other = (allocate_tensor_memory(gl.float32, [128, 64], ACC) for _ in range(2))
    gl.allocate_shared_memory(gl.int64, [1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    assert one.handle is not other.handle
    tags = [op.attrs["tag"] for op in kernel.ops]
    assert len(set(tags)) == len(tags) == 3


def test_an_allocation_with_a_value(kernel):
    x = kernel.tile(gl.float32, (128, 64), register_layout(32, (128, 64), ACC, 4))
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC, x)
    assert kernel.last("tensor_memory.store").operands == (acc.handle, x.handle, None)


def test_several_tiles(kernel):
    accs = allocate_tensor_memory(gl.float32, [3, 128, 64], ACC)
    assert accs.type == tensor_memory_descriptor_type(gl.float32, [3, 128, 64], ACC, [128, 64])
    one = accs.index(kernel.scalar(gl.int64))
    assert one.type == tensor_memory_descriptor_type(gl.float32, [128, 64], ACC)
    assert kernel.last("tensor_memory.index").operands[0] is accs.handle
    two = accs.slice(1, 2, dim=0)
    assert two.shape == [2, 128, 64]
    assert kernel.last("tensor_memory.slice").attrs == {"start": 1, "length": 2, "dim": 0}


def test_a_slice_is_of_columns(kernel):
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
    half = acc.slice(32, gl.constexpr(32))
    assert kernel.last("tensor_memory.slice").attrs == {"start": 32, "length": 32, "dim": 1}
    assert half.type == tensor_memory_descriptor_type(gl.float32, [128, 32], ACC, [128, 64])
    x = half.load()
    assert x.layout == get_tmem_32x32b_reg_layout(128, 32, [128, 32], 4)


@pytest.mark.parametrize("spelling", ["_reinterpret", "reinterpret"])
def test_reinterpretation(kernel, spelling):
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
    p = getattr(acc.slice(32, 32), spelling)(gl.float16, [128, 64], ACC)
    assert p.type == tensor_memory_descriptor_type(gl.float16, [128, 64], ACC)
    wanted = {"element": gl.float16, "shape": (128, 64), "layout": ACC, "column": 0}
    assert kernel.last("tensor_memory.reinterpret").attrs == wanted


@pytest.mark.parametrize(
    ("element", "stride", "start", "column"),
    [(gl.float32, 1, 13, 13), (gl.float16, 1, 6, 3), (gl.float16, 2, 5, 5), (gl.int8, 1, 20, 5)],
)
def test_columns_from_any_one_on_are_a_tile_of_their_own(kernel, element, stride, start, column):
    """They lie as a smaller tile does, also over the blocks of the layout."""
    layout = TensorMemoryLayout([128, 32], col_stride=stride)
    part = allocate_tensor_memory(element, [128, 128], layout).slice(start, 64)
    assert part.type == tensor_memory_descriptor_type(element, [128, 64], layout, [128, 64])
    assert kernel.last("tensor_memory.reinterpret").attrs["column"] == column


@pytest.mark.parametrize(
    ("shape", "block", "element", "start", "length", "dim"),
    [
        ([64, 128], [64, 64], gl.float32, 16, 32, 1),  # the right half stands in other lanes
        ([256, 128], [128, 64], gl.float32, 16, 32, 1),  # 64 columns, the rows below, and then the others
        ([128, 64], [128, 64], gl.float16, 3, 2, 1),  # in the middle of a column of 32 bits
        ([128, 64], [128, 64], gl.float32, 0, 24, 1),
        ([128, 64], [128, 64], gl.float32, 32, 64, 0),
        ([2, 128, 64], [128, 64], gl.float32, 16, 32, 2),
    ],
)
def test_other_parts_may_be_in_several_pieces(kernel, shape, block, element, start, length, dim):
    memory = allocate_tensor_memory(element, shape, TensorMemoryLayout(block))
    with mistake("shared-slice-aligned"):
        memory.slice(start, length, dim)


def test_what_is_not_given_stays(kernel):
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
    assert acc.reinterpret(gl.int32).type == tensor_memory_descriptor_type(gl.int32, [128, 64], ACC)
    small = TensorMemoryLayout([128, 32])
    assert acc.reinterpret(shape=[2, 128, 32], layout=small).shape == [2, 128, 32]
    assert kernel.last("tensor_memory.reinterpret").attrs["element"] == gl.float32


@pytest.mark.parametrize(("num_warps", "element"), [(4, gl.float32), (8, gl.float32), (4, gl.float16), (8, gl.int32)])
def test_the_default_layout_of_a_load(num_warps, element):
    layout = TensorMemoryLayout([128, 64], col_stride=32 // element.bits)
    with building(num_warps, "sm_100a") as kernel:
        acc = allocate_tensor_memory(element, [128, 64], layout)
        x = acc.load()
        wanted = register_layout(element.bits, (128, 64), layout, num_warps)
        assert x.handle.type == tile_type(element, (128, 64), wanted)
        assert acc.load(gl.AutoLayout()).type == acc.load(wanted).type == x.type
        assert acc.get_reg_layout() == acc.type.get_reg_layout(num_warps) == wanted
        assert kernel.last("tensor_memory.load").operands == (acc.handle,)


def test_layouts_of_other_instructions(kernel):
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
    for variant in ("16x64b", "16x128b", "16x256b", "32x32b_splitn"):
        layout = acc.get_reg_layout(instr_variant=variant)
        assert layout == get_tmem_reg_layout(gl.float32, [128, 64], ACC, 4, variant)
        acc.store(acc.load(layout))
        assert kernel.last("tensor_memory.store").operands[1].type.layout == layout
    assert len({repr(acc.get_reg_layout(8, variant)) for variant in ("32x32b", "16x256b", "32x32b_splitn")}) == 3


def test_a_store(kernel):
    acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
    condition = kernel.scalar(gl.int1)
    acc.store(acc.load(), condition)
    assert kernel.last("tensor_memory.store").operands[2] is condition.handle
    acc.store(gl.zeros([128, 64], gl.float32))
    assert kernel.last("tensor_memory.store").operands[1].type == tile_type(gl.float32, (128, 64), acc.get_reg_layout())


def test_scales(kernel):
    layout = TensorMemoryScalesLayout()
    scales = allocate_tensor_memory(gl.float8e4nv, [256, 4], layout)
    x = scales.load()
    assert x.shape == [256, 4]
    assert x.layout == get_tmem_reg_layout(gl.float8e4nv, [256, 4], layout, 4)


def test_layouts_of_registers_on_the_host():
    layout = get_tmem_32x32b_reg_layout(128, 64, [128, 64], 4)
    assert isinstance(layout, DistributedLinearLayout)
    assert layout == get_tmem_reg_layout(gl.constexpr(gl.float32), [128, 64], gl.constexpr(ACC), 4)
    linear = layout.to_linear((128, 64))
    # A thread has a row: 64 registers along the columns, lanes and warps along the rows.
    assert linear(register=5, lane=3, warp=2, block=0) == (2 * 32 + 3, 5)


def test_both_spellings_of_clusters():
    wanted = get_tmem_32x32b_reg_layout(128, 64, [256, 64], 4, cga_layout=[[1, 0]])
    counted = get_tmem_32x32b_reg_layout(128, 64, [256, 64], 4, [2, 1], [2, 1], [1, 0])
    assert counted == wanted
    assert wanted.to_linear((256, 64)).bases("block") == ((128, 0),)
    assert get_tmem_reg_layout(gl.float32, [256, 64], ACC, 4, cga_layout=[[1, 0]]) == wanted
    assert get_tmem_reg_layout(gl.float32, [256, 64], PAIR, 4) == wanted


def test_two_blocks_have_halves():
    with building(target="sm_100a", num_ctas=2):
        acc = allocate_tensor_memory(gl.float32, [256, 64], PAIR)
        assert acc.load().layout.to_linear((256, 64)).bases("block") == ((128, 0),)


def test_copies_in_a_cluster():
    with building(target="sm_100a", num_ctas=2) as kernel:
        acc = allocate_tensor_memory(gl.float32, [128, 64], ACC)
        assert acc.load().layout.to_linear((128, 64)).bases("block") == ((0, 0),)
        acc.store(gl.zeros([128, 64], gl.float32))
        assert kernel.last("tensor_memory.store").operands[0] is acc.handle


def test_handles_are_no_numbers(kernel):
    acc = allocate_tensor_memory(gl.float32, [2, 128, 64], ACC)
    acc.handle.name = "acc"
    with mistake("shared-handle-brackets") as found:
        acc[0]
    assert "'acc' (a float32 tensor memory buffer [2, 128, 64])" in found.text
    with mistake("shared-handle-operand"):
        bool(acc)


def test_types_of_boxed_constants():
    layout = TensorMemoryLayout([128, 64], col_stride=1)
    boxed = tensor_memory_descriptor_type(gl.constexpr(gl.float32), gl.constexpr([128, 64]), gl.constexpr(layout))
    assert boxed == tensor_memory_descriptor_type(gl.float32, [128, 64], layout)
    assert boxed.get_reg_layout(num_warps=gl.constexpr(4)) == get_tmem_reg_layout(gl.float32, [128, 64], layout, 4)
