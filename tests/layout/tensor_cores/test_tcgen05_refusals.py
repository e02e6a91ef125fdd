"""What Blackwell's tensor cores cannot multiply or copy: reasons, and what to write instead."""

from __future__ import annotations

import pytest

from tests.layout.tensor_cores.tcgen05_products import (
    BITS,
    F16,
    accumulator,
    default,
    packed_scales,
    scales,
    whole,
)
from weft.layout import NVMMASharedLayout, PaddedSharedLayout, SharedLinearLayout, SwizzledSharedLayout
from weft.layout.base import Unreadable
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.layout.tensor_cores.tcgen05 import plan_mma
from weft.layout.tensor_cores.tcgen05_copies import plan_copy
from weft.layout.tensor_cores.tcgen05_kinds import Scaled
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import TensorSide


def refused(a=None, b=None, acc=None, types=F16, scaled=None, two_ctas=False):
    """Reason and fix of a product of 128 x 64 and 64 x 64 matrices, some of it otherwise."""
    bits = BITS[types[0]]
    found = plan_mma(
        a or default([128, 64], bits),
        b or default([64, 64], bits),
        acc or accumulator([128, 64]),
        types,
        scaled,
        two_ctas,
    )
    assert isinstance(found, Unreadable)
    return found.reason, found.fix


@pytest.mark.parametrize(
    ("types", "reason", "fix"),
    [
        (("f16", "bf16", "f32"), "f16 is not multiplied by bf16", "convert one of them"),
        (("f8e4m3", "i8", "f32"), "f8e4m3 is not multiplied by i8", "convert one of them"),
        (("bf16", "bf16", "f16"), "bf16 times bf16 is not added up in f16", "use an accumulator of f32"),
        (("i8", "i8", "f32"), "i8 times i8 is not added up in f32", "use an accumulator of i32"),
    ],
)
def test_types_that_are_not_multiplied(types, reason, fix):
    found = refused(types=types)
    assert reason in found[0]
    assert fix in found[1]


def test_accumulators_elsewhere():
    for layout in (TensorMemoryScalesLayout(), TensorMemoryLayout([128, 64], col_stride=2)):
        reason, fix = refused(acc=whole(layout, (128, 64)))
        assert f"an accumulator of f32 has a column of 32 bits for each element, unlike {layout}" in reason
        assert fix == "allocate it in TensorMemoryLayout([128, N], col_stride=1)"
    assert refused(types=("f16", "f16", "f16"))[1] == "allocate it in TensorMemoryLayout([128, N], col_stride=2)"


@pytest.mark.parametrize(
    ("shape", "block", "reason"),
    [
        ((128, 512), (128, 512), "an instruction of 128 rows takes 16 to 256 columns, not 512"),
        ((128, 8), (128, 8), "an instruction of 128 rows takes 16 to 256 columns, not 8"),
        ((64, 4), (64, 4), "an instruction of 64 rows takes 8 to 256 columns, not 4"),
    ],
)
def test_sizes_of_instructions(shape, block, reason):
    found = refused(default([shape[0], 64]), default([64, shape[1]]), accumulator(shape, block))
    assert reason in found[0]
    assert "write TensorMemoryLayout([" in found[1]
    assert (", and give the accumulator at least" in found[1]) == (shape[1] < 16)


def test_parts_of_instructions():
    rows = TensorSide(TensorMemoryLayout([128, 64]), (128, 64), (64, 64), (64, 0))
    assert "an instruction takes 128 rows, but a block has 64" in refused(default([64, 64]), acc=rows)[0]
    reason, fix = refused(default([128, 8]), default([8, 64]))
    assert reason == "an instruction takes 16 elements along k, but there are 8"
    assert fix == "make K a multiple of 16"


def test_pairs_of_blocks():
    pair = {"cga_layout": [[1, 0]], "two_ctas": True}
    a, b = default([256, 64], cga_layout=[[1, 0]]), default([64, 128], cga_layout=[[0, 1]])
    assert "each block of the kernel multiplies alone" in refused(a, b, accumulator([256, 128], [128, 128], **pair))[0]
    assert "two blocks of the kernel multiply together" in refused(two_ctas=True)[0]
    assert "32 to 256 columns, not 16" in refused(a, b, accumulator([256, 128], [128, 16], **pair), two_ctas=True)[0]
    halves = accumulator([256, 128], [128, 64], **pair)
    assert "a whole accumulator at once, but here 64 of 128 columns" in refused(a, b, halves, two_ctas=True)[0]
    wrong = accumulator([128, 256], [128, 128], cga_layout=[[0, 1]], two_ctas=True)
    found = refused(default([128, 64]), default([64, 256]), wrong, two_ctas=True)
    assert found[1] == "let its cga_layout begin with [1, 0]"
    found = refused(
        a, default([64, 128], cga_layout=[[0, 0]]), accumulator([256, 128], [128, 128], **pair), two_ctas=True
    )
    assert "hold what begins at [(0, 0)] of b, but multiply what is at [(0, 64)]" in found[0]
    assert found[1] == "split b as the accumulator is split, by cga_layout=[[0, 1]]"
    alone = accumulator([256, 128], [128, 128], cga_layout=[[1, 0]])
    assert refused(a, b, alone)[1].endswith("[[0, 0]], or write two_ctas=True in the accumulator's layout")
    sliced = SharedSide(a.layout, (256, 64), (128, 64), (128, 0))
    one = accumulator([128, 128], [128, 128])
    assert "of a" in refused(sliced, default([64, 128]), one)[0]


def test_slices_of_what_is_split():
    layout = TensorMemoryLayout([64, 64], cga_layout=[[1, 0]])
    acc = TensorSide(layout, (256, 64), (128, 64), (128, 0))
    found = refused(default([128, 64], cga_layout=[[2, 0]]), default([64, 64], cga_layout=[[0, 0]]), acc)
    assert found == ("the accumulator is a slice of what is split over blocks", "slice along another dimension")


def test_memory_that_is_not_canonical():
    reason, fix = refused(whole(NVMMASharedLayout(0, 16), (128, 64)))
    assert "a is in NVMMASharedLayout" in reason
    assert "neither a swizzle" in reason
    assert fix == "allocate it in NVMMASharedLayout.get_default_for([128, 64], dtype)"
    padding = PaddedSharedLayout.with_identity_for([[64, 8]], [64, 64], [1, 0])
    assert "b is in PaddedSharedLayout" in refused(b=whole(padding, (64, 64)))[0]
    assert "aligned to 16 bytes" in refused(b=whole(SwizzledSharedLayout(8, 1, 8, [1, 0]), (64, 64)))[0]


def test_elements_that_lie_along_k_only():
    reason, fix = refused(types=("f32", "f32", "f32"))
    assert "contiguous along n, and elements of 32 bits are read along k only" in reason
    assert "get_default_for([64, 64], dtype), contiguous along k, and pass its permute((1, 0))" in fix
    scaled = Scaled("e4m3", "e2m1", scales((128, 4)), scales((64, 4)), "u8")
    b = default([64, 64], 8, fp4_padded=True)
    reason, fix = refused(default([128, 128], 8), b, types=("f8e4m3", "u8", "f32"), scaled=scaled)
    assert "contiguous along n, and padded elements are read along k only" in reason
    assert "get_default_for([64, 64], dtype, fp4_padded=True), contiguous along k" in fix


def test_fewer_elements_than_a_line():
    types = ("f8e4m3", "f8e4m3", "f32")
    reason, fix = refused(default([64, 64], 8), default([64, 16], 8), accumulator([64, 16], [64, 8]), types)
    assert "elements of 8 bits are read along k only, where an instruction takes 8 of them" in reason
    assert "get_default_for([16, 64], dtype), contiguous along k" in fix


@pytest.mark.parametrize(("block", "stride"), [([64, 64], 1), ([128, 64], 2), ([128, 8], 1)])
def test_left_operands_that_lie_otherwise_in_tensor_memory(block, stride):
    reason, fix = refused(whole(TensorMemoryLayout(block, col_stride=stride), (128, 64)))
    assert "it has no 128 rows of 16 elements side by side" in reason
    assert fix == "allocate a in TensorMemoryLayout([128, 64], col_stride=1)"


def test_left_operands_of_64_rows_in_tensor_memory():
    def left(block, tile):
        return whole(TensorMemoryLayout(block, col_stride=1), tile)

    reason, fix = refused(left([128, 64], (128, 64)), acc=accumulator([128, 64], [64, 64]))
    assert "it has no 64 rows of 16 elements side by side" in reason
    assert fix == "allocate a in TensorMemoryLayout([64, 64], col_stride=1)"
    # The second half along k stands in the lanes between those of the first, which are the accumulator's.
    reason, fix = refused(left([64, 32], (64, 64)), acc=accumulator([64, 64]))
    assert reason == "of 64 rows each, a and the accumulator begin in other lanes of every 32"
    assert fix == "give both layouts blocks of all columns, and slice neither beyond them"
    pair = {"cga_layout": [[1, 0]], "two_ctas": True}
    a = whole(TensorMemoryLayout([64, 64], **pair), (128, 64))
    b, acc = default([64, 64], cga_layout=[[0, 1]]), accumulator([128, 64], [64, 64], **pair)
    assert refused(a, b, acc, two_ctas=True)[1] == "keep a in shared memory"


def scaled_refusal(formats=("e4m3", "e4m3"), a_scale=None, b_scale=None, dtype="u8", **more):
    scaled = Scaled(*formats, a_scale or scales((128, 2)), b_scale or scales((64, 2)), dtype)
    return refused(types=more.pop("types", ("f8e4m3", "f8e4m3", "f32")), scaled=scaled, **more)


def test_refusals_of_scaled_products():
    assert "not added up in f16" in scaled_refusal(types=("f8e4m3", "f8e4m3", "f16"))[0]
    assert "scales are not of type f16" in scaled_refusal(dtype="f16")[0]
    assert "e4m3 times e4m3 has no scales of f8e4m3" in scaled_refusal(dtype="f8e4m3")[0]
    assert "a is said to be e5m2, but its elements are f8e4m3" in scaled_refusal(("e5m2", "e4m3"))[0]
    reason, fix = scaled_refusal(("e2m1", "e4m3"), types=("u8", "f8e4m3", "f32"))
    assert "a is e2m1, read padded" in reason
    assert fix == "allocate it in NVMMASharedLayout.get_default_for([128, 64], dtype, fp4_padded=True)"
    padded = default([128, 64], 8, fp4_padded=True)
    assert "a is e4m3, read without padding" in scaled_refusal(a=padded)[0]
    tensor = whole(TensorMemoryLayout([128, 64]), (128, 64))
    reason, fix = scaled_refusal(("e2m1", "e4m3"), a=tensor, types=("u8", "f8e4m3", "f32"))
    assert "a is e2m1, read padded, but lies in TensorMemoryLayout([128, 64])" in reason
    assert fix == (
        "store [128, 128] bytes, an element in each, and reinterpret it as [128, 64] in "
        "TensorMemoryLayout([128, 64], col_stride=1, fp4_padded=True)"
    )
    tensor = whole(TensorMemoryLayout([128, 64], fp4_padded=True), (128, 64))
    assert "a is e4m3, read without padding" in scaled_refusal(a=tensor)[0]
    assert "no 128 rows of 16 elements" in refused(a=tensor, types=("u8", "u8", "i32"), b=default([64, 64], 8))[0]
    half = accumulator([64, 64])
    assert "128 rows of each block, not 64" in scaled_refusal(a=default([64, 64], 8), acc=half)[0]
    assert (
        "a_scale is in TensorMemoryLayout" in scaled_refusal(a_scale=whole(TensorMemoryLayout([128, 2]), (128, 2)))[0]
    )
    reason, fix = scaled_refusal(b_scale=scales((64, 4)))
    assert "b_scale has 4 scales of a row, from 0 on, for 64 elements along k" in reason
    assert fix == "u8 needs one for 32: give b_scale 2 columns"
    odd = TensorSide(TensorMemoryScalesLayout(), (64, 2), (32, 2), (32, 0))
    narrow = {"b": default([64, 32], 8), "acc": accumulator([128, 32])}
    reason, fix = scaled_refusal(a_scale=scales((128, 2)), b_scale=odd, **narrow)
    assert "b_scale begins in row 32 of its tile, not in a multiple of 64" in reason
    assert fix == "begin a slice of scales in such a row"
    narrow = {"b": default([64, 64], 8), "acc": accumulator([128, 64], [128, 32])}
    assert "takes 64 to 256 columns, not 32" in scaled_refusal(**narrow)[0]


def unsuited(src, dst, bits=32):
    found = plan_copy(src, dst, bits)
    assert isinstance(found, Unreadable)
    return found.reason, found.fix


def test_refusals_of_copies():
    acc = accumulator([128, 64])
    good = "allocate the source in NVMMASharedLayout.get_default_for([128, 64], dtype)"
    reason, fix = unsuited(default([128, 64], 32, transposed=True), acc)
    assert "no instruction copies NVMMASharedLayout" in reason
    assert fix == good
    padding = PaddedSharedLayout.with_identity_for([[64, 8]], [128, 64], [1, 0])
    assert unsuited(whole(padding, (128, 64)), acc)[1] == good
    low = SharedLinearLayout(NVMMASharedLayout(128, 32).to_linear((128, 64)).bases("offset"))
    assert "aligned to 16 bytes, but its swizzle needs 1024" in unsuited(whole(low, (128, 64)), acc)[0]
    other = accumulator([128, 64], [64, 64])
    assert unsuited(default([128, 64], 32), other)[1] == "copy to TensorMemoryLayout([128, N], col_stride=1)"
    assert (
        "blocks of the cluster"
        in unsuited(default([256, 64], 32), accumulator([256, 64], [128, 64], cga_layout=[[1, 0]]))[0]
    )


def test_refusals_of_copies_of_scales():
    reason, fix = unsuited(packed_scales(256, 16, swizzle=128), scales((256, 16)), 8)
    assert "no instruction copies SharedLinearLayout" in reason
    assert "as [1, 2, 4, 2, 256] in NVMMASharedLayout(0, 8, rank=5)" in fix
    assert "reshape([2, 4, 32, 4, 4]).permute((0, 3, 2, 1, 4)).reshape([256, 16])" in fix
    assert "multiple of 128 rows by 4 columns" in unsuited(default([64, 4], 8), scales((64, 4)), 8)[1]
