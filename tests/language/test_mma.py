"""Products on tensor cores: which operations the functions become, and what they accept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.support import Kernel, building
from weft import language as gl
from weft.ir.types import tile_type
from weft.language.nvidia import ampere, hopper
from weft.language.nvidia.hopper import (
    warpgroup_mma,
    warpgroup_mma_accumulator,
    warpgroup_mma_init,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)

V2 = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
FP8 = (gl.float8e4nv, gl.float8e5)
BYTES = (gl.int8, gl.uint8)
PAIRS = [
    (gl.float16, gl.float16, gl.float32),
    (gl.float16, gl.float16, gl.float16),
    (gl.bfloat16, gl.bfloat16, gl.float32),
    (gl.float32, gl.float32, gl.float32),
    *[(a, b, acc) for a in FP8 for b in FP8 for acc in (gl.float32, gl.float16)],
    *[(a, b, gl.int32) for a in BYTES for b in BYTES],
]


def smem(shape: Any, element: Any = gl.float16) -> Any:
    return gl.allocate_shared_memory(element, shape, gl.NVMMASharedLayout.get_default_for(shape[-2:], element))


def accumulator(k: Kernel, element: Any = gl.float32, operand: Any = gl.float16, shape: Any = (128, 64)) -> gl.tensor:
    return k.tile(element, shape, warpgroup_mma_layout(operand, shape, 4), "acc")


def dot_operand(k: Kernel, number: int, parent: Any, element: Any, shape: Any) -> gl.tensor:
    return k.tile(element, shape, gl.DotOperandLayout(number, parent, 32 // element.bits), "ab"[number])


def test_names():
    assert hopper.mma_v2 is ampere.mma_v2
    assert not hasattr(gl.nvidia.blackwell, "warpgroup_mma")


def test_the_layout_of_an_accumulator():
    layout = warpgroup_mma_layout(gl.bfloat16, [128, 256], 8)
    assert layout == gl.NVMMADistributedLayout([3, 0], [8, 1], [16, 256, 16])
    assert warpgroup_mma_layout(gl.float8e5, [64, 256], 8) == gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 128, 32])
    split = warpgroup_mma_layout(gl.constexpr(gl.float32), (256, 64), 4, cga_layout=[[1, 0]])
    assert split == gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 8], cga_layout=[[1, 0]])


@pytest.mark.parametrize(("a", "b", "acc"), PAIRS)
def test_every_pair_of_types(kernel, a, b, acc):
    x = accumulator(kernel, acc, a)
    # Stored with K contiguous, which all types can be read in.
    got = warpgroup_mma(smem([128, 64], a), smem([64, 64], b).permute([1, 0]), x, is_async=True)
    op = kernel.last("mma.warpgroup")
    assert isinstance(got, warpgroup_mma_accumulator)
    assert got.handle is op.results[0]
    assert op.operands[2:] == (x.handle, None)
    assert op.attrs == {"max_imprecise": 0}


@pytest.mark.parametrize(("a", "b", "acc"), PAIRS)
def test_every_pair_of_types_from_registers(kernel, a, b, acc):
    x = kernel.tile(acc, (128, 64), V2)
    left, right = dot_operand(kernel, 0, V2, a, (128, 64)), dot_operand(kernel, 1, V2, b, (64, 64))
    got = ampere.mma_v2(left, right, x)
    op = kernel.last("mma.warp")
    assert got.type == x.type
    assert op.operands == (left.handle, right.handle, x.handle)
    assert op.attrs == {"precision": "tf32" if a is gl.float32 else ""}


def test_a_product_that_is_waited_for_at_once(kernel):
    got = warpgroup_mma(smem([128, 64]), smem([64, 64]), accumulator(kernel))
    assert type(got) is gl.tensor
    wait = kernel.last("mma.warpgroup_wait")
    assert kernel.ops[-2].name == "mma.warpgroup"
    assert wait.operands == kernel.ops[-2].results
    assert wait.attrs["pendings"] == 0
    assert (got + 1).handle.type == got.handle.type


@pytest.mark.parametrize("use_acc", [False, gl.constexpr(False)])
def test_a_product_that_starts_anew(kernel, use_acc):
    warpgroup_mma(smem([128, 64]), smem([64, 64]), accumulator(kernel), use_acc=use_acc, is_async=True)
    constant, product = kernel.ops[-2:]
    assert product.operands[3] is constant.results[0]
    assert (constant.attrs["value"], str(constant.results[0].type)) == (False, "i1")


def test_a_condition_of_run_time(kernel):
    condition = kernel.scalar(gl.int1)
    warpgroup_mma(smem([128, 64]), smem([64, 64]), accumulator(kernel), use_acc=condition, is_async=True)
    assert kernel.last("mma.warpgroup").operands[3] is condition.handle
    warpgroup_mma(smem([128, 64]), smem([64, 64]), accumulator(kernel), use_acc=kernel.scalar(gl.int32), is_async=True)
    assert str(kernel.last("mma.warpgroup").operands[3].type) == "i1"


def test_parts_and_transposes_of_buffers(kernel):
    a, b = smem([2, 128, 64]), smem([2, 128, 64])
    warpgroup_mma(
        a.index(0).slice(64, 64), b.index(1).slice(0, 64).permute([1, 0]), accumulator(kernel, shape=(64, 64))
    )
    warpgroup_mma(a.index(0).slice(32, 32, dim=1), b.index(1).slice(32, 32).slice(0, 64, dim=1), accumulator(kernel))
    assert kernel.names.count("mma.warpgroup") == 2


def test_a_left_operand_in_registers(kernel):
    x = accumulator(kernel)
    a = dot_operand(kernel, 0, x.layout, gl.float16, (128, 64))
    warpgroup_mma(a, smem([64, 64]), x, is_async=True)
    assert kernel.last("mma.warpgroup").operands[0] is a.handle


def test_open_layouts_become_those_of_the_product(kernel):
    layout = warpgroup_mma_layout(gl.float16, [128, 64], 4)
    got = warpgroup_mma(gl.zeros([128, 64], gl.float16), smem([64, 64]), gl.zeros([128, 64], gl.float32))
    assert got.layout == layout
    a, _, acc, _ = kernel.ops[-2].operands
    assert acc.type == tile_type(gl.float32, (128, 64), layout)
    assert a.type == tile_type(gl.float16, (128, 64), gl.DotOperandLayout(0, layout, 2))
    ampere.mma_v2(gl.zeros([128, 64], gl.float16), gl.zeros([64, 64], gl.float16), gl.zeros([128, 64], gl.float32, V2))
    assert kernel.last("mma.warp").operands[1].type.layout == gl.DotOperandLayout(1, V2, 2)


@pytest.mark.parametrize("limit", [32, 64, 128])
def test_fp8_sums_in_parts(kernel, limit):
    a, b = smem([128, 128], gl.float8e5), smem([64, 128], gl.float8e4nv).permute([1, 0])
    got = warpgroup_mma(a, b, accumulator(kernel, operand=gl.float8e5), max_num_imprecise_acc=limit)
    assert kernel.last("mma.warpgroup").attrs == {"max_imprecise": limit}
    assert type(got) is gl.tensor


@pytest.mark.parametrize("precision", [None, "tf32"])
def test_precision_of_float32(kernel, precision):
    a, b = smem([128, 32], gl.float32), smem([64, 32], gl.float32).permute([1, 0])
    warpgroup_mma(a, b, accumulator(kernel, operand=gl.float32), precision=precision, is_async=True)
    assert kernel.last("mma.warpgroup").results[0].type.element == gl.float32


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "tf32"])
def test_precision_means_nothing_to_types_that_are_multiplied_exactly(kernel, precision):
    warpgroup_mma(smem([128, 64]), smem([64, 64]), accumulator(kernel), precision=precision)
    assert kernel.last("mma.warpgroup_wait").attrs["pendings"] == 0


def test_one_accumulator_comes_back_as_itself(kernel):
    started = [
        warpgroup_mma(smem([128, 64]), smem([64, 64]), accumulator(kernel), is_async=True),
        warpgroup_mma_init(accumulator(kernel)),
    ]
    for deps in (started[0], [started[0]], (started[0],)):
        got = warpgroup_mma_wait(deps=deps)
        assert type(got) is gl.tensor
        assert kernel.last("mma.warpgroup_wait").operands == (started[0].handle,)
    both = warpgroup_mma_wait(1, started)
    wait = kernel.last("mma.warpgroup_wait")
    assert wait.attrs["pendings"] == 1
    assert wait.operands == tuple(x.handle for x in started)
    assert [x.handle for x in both] == list(wait.results)
    assert isinstance(both, tuple)


def test_an_accumulator_to_start_with(kernel):
    x = accumulator(kernel)
    started = warpgroup_mma_init(x)
    assert started.handle is x.handle
    assert kernel.names == []
    next_one = warpgroup_mma(smem([128, 64]), smem([64, 64]), started, is_async=True)
    assert kernel.last("mma.warpgroup").operands[2] is x.handle
    assert (next_one.shape, next_one.dtype, next_one.layout) == (x.shape, x.dtype, x.layout)


def test_in_a_cluster_each_block_multiplies_its_part():
    def operand(shape: Any, cga: Any) -> Any:
        layout = gl.NVMMASharedLayout.get_default_for(shape, gl.float16, cga_layout=cga)
        return gl.allocate_shared_memory(gl.float16, shape, layout)

    layout = warpgroup_mma_layout(gl.float16, [128, 128], 4, cga_layout=[[1, 0], [0, 1]])
    with building(num_ctas=4) as kernel:
        x = gl.zeros([128, 128], gl.float32, layout)
        warpgroup_mma(operand([128, 64], [[1, 0], [0, 0]]), operand([64, 128], [[0, 0], [0, 1]]), x)
        assert kernel.last("mma.warpgroup_wait").results[0].type == x.handle.type
