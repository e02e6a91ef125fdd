"""Products of tiles: plans run on a model of the instructions, whose operands lie where the layouts put them."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.shared.test_layouts import DType
from tests.layout.strategies import powers
from tests.layout.tensor_cores import core as tensor_core
from weft.errors import LayoutError
from weft.layout import (
    BlockedLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
    pick_wgmma_layout,
)
from weft.layout.shared.views import permuted, reshaped
from weft.layout.tensor_cores.mma import plan_product, plan_sync
from weft.layout.tensor_cores.shared_operands import Operand, SharedSide

laws = settings(deadline=None, max_examples=examples(120))
POISON = 1 << 20
MOST_BYTES = 1 << 17
"""The largest tile that shared memory holds."""


def whole(layout, shape):
    """The memory of a tile that is an operand as a whole."""
    return SharedSide(layout, tuple(shape), tuple(shape), (0,) * len(shape))


def default(shape, bits=16):
    return whole(NVMMASharedLayout.get_default_for(shape, DType(bits)), shape)


def placed(side, values):
    """Memory, by element, that holds these values in a view; the rest of its tile is poison."""
    linear = side.layout.to_linear(side.tile)
    tile = np.full(side.tile, POISON, np.int64)
    tile[tuple(slice(s, s + n) for s, n in zip(side.start, side.shape, strict=True))] = values
    return tile[linear(offset=np.arange(linear.in_size("offset")), block=0)]


def held(layout, shape, values=None):
    """A tile in registers, [warp, lane, register], and the coordinates of its elements."""
    linear = layout.to_linear(shape)
    warp, lane, register = np.ogrid[: linear.in_size("warp"), :32, : linear.in_size("register")]
    at = linear(register=register, lane=lane, warp=warp)
    return at, None if values is None else values[at]


def check(accumulator, shape, bits, left, right):
    """Multiply random matrices by a plan; every accumulator register holds what it should."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (k, n))
    plan = plan_product(accumulator, shape, bits, left, right)
    shared = isinstance(left, SharedSide)
    memory = {"b": placed(right, b), "a": placed(left, a) if shared else None}
    at, _ = held(accumulator, (m, n))
    found = np.zeros(at[0].shape, np.int64)
    registers = None if shared else held(left, (m, k), a)[1]
    tensor_core.wgmma(plan, memory, found, at[0].shape[0], bits, registers)
    np.testing.assert_array_equal(found, (a @ b)[at])
    return plan


@st.composite
def sides(draw, shape, k, bits):
    """A handle to an operand of this shape: any swizzle, both majors of 16-bit elements, permuted, a part of a tile."""
    along_k = bits != 16 or draw(st.booleans())
    inner = k if along_k else 1 - k
    tile = [size * draw(powers(2)) for size in shape]
    assume(prod(tile) * bits // 8 <= MOST_BYTES)
    start = [draw(st.integers(0, t // s - 1)) * s for t, s in zip(tile, shape, strict=True)]
    row_bytes = tile[inner] * bits // 8
    widths = [w for w in (32, 64, 128) if w <= row_bytes] or [0]
    width = draw(st.sampled_from(widths))
    if draw(st.booleans()):
        layout = NVMMASharedLayout(width, bits, transposed=inner == 0)
    else:
        stored = tile if inner == 1 else tile[::-1]
        layout = NVMMASharedLayout(width, bits)
        layout = layout if inner == 1 else permuted(layout, (1, 0), stored)
    return SharedSide(layout, tuple(tile), tuple(shape), tuple(start))


@st.composite
def products(draw):
    bits = draw(st.sampled_from([8, 16, 32]))
    m, n, k = draw(powers(8, 6)), draw(powers(9, 3)), 256 // bits * draw(powers(2))
    warps = draw(st.sampled_from([[4, 1], [8, 1], [4, 2], [8, 2], [4, 4]]))
    per_warp = max(n // warps[1], 8)
    instr = min(256, per_warp) if draw(st.booleans()) else draw(powers(min(8, per_warp.bit_length() - 1), 3))
    accumulator = NVMMADistributedLayout([3, 0], warps, [16, instr, 256 // bits])
    if draw(st.booleans()):
        left = draw(sides((m, k), 1, bits))
    else:
        left = DotOperandLayout(0, accumulator, 32 // bits)
    return accumulator, (m, n, k), bits, left, draw(sides((k, n), 0, bits))


@given(products())
@laws
def test_every_readable_operand(case):
    check(*case)


def core_matrices(shape, inner, bits, first):
    """Unswizzled: core matrices of 8 lines of 16 bytes one after another, first along the dimension `first`."""
    steps = [(inner, 128 // bits), (1 - inner, 8)]
    steps += [(d, shape[d] // dict(steps)[d]) for d in (first, 1 - first)]
    reached, bases = [1, 1], []
    for d, size in steps:
        for _ in range(size.bit_length() - 1):
            bases.append([reached[d] if d == e else 0 for e in (0, 1)])
            reached[d] *= 2
    return SharedLinearLayout(bases)


@pytest.mark.parametrize(("bits", "inner"), [(8, 1), (16, 1), (16, 0), (32, 1)])
@pytest.mark.parametrize("first", [0, 1])
def test_unswizzled_core_matrices(bits, inner, first):
    k = 1024 // bits
    left = whole(core_matrices((128, k), inner, bits, first), (128, k))
    right = whole(core_matrices((k, 64), 1 - inner, bits, first), (k, 64))
    plan = check(pick_wgmma_layout(bits, (128, 64), 4), (128, 64, k), bits, left, right)
    assert plan.left is not None
    assert plan.left.swizzle == plan.right.swizzle == 0
    assert (plan.left.leading, plan.left.stride) == {
        (1, 0): (128 * 16, 128),
        (1, 1): (128, 8 * k * bits // 8),
        (0, 0): (128 * 16, 128),
        (0, 1): (128, 8 * k * bits // 8),
    }[inner, first]


def test_the_operands_of_the_usual_kernel():
    """128 x 256 x 64 of 16 bits, two warpgroups: one instruction as wide as can be per 16 columns of a."""
    accumulator = pick_wgmma_layout(16, (128, 256), 8)
    plan = check(accumulator, (128, 256, 64), 16, default([128, 64]), default([64, 256]))
    assert plan.left == Operand(128, False, 16, 1024, (0, 0, 64 * 128))
    assert plan.right == Operand(128, True, 64 * 128, 1024, (0, 0, 0))
    assert (plan.n, plan.k) == (256, 16)
    assert plan.steps == tuple((0, 32 * i, 16 * 128 * i, i == 0) for i in range(4))
    assert plan.left.descriptor_bits == 1 << 62 | 64 << 32 | 1 << 16
    assert plan.right.descriptor_bits == 1 << 62 | 64 << 32 | 512 << 16


def test_accumulators_take_turns_along_k():
    steps = plan_product(
        pick_wgmma_layout(16, (128, 512), 4), (128, 512, 32), 16, default([128, 32]), default([32, 512])
    ).steps
    assert [(register, first) for register, _, _, first in steps] == [
        (register, first) for first in (True, False) for register in range(0, 512, 128)
    ]


def test_only_the_linear_map_counts():
    """Over 64 rows, four warps of mma.sync instructions hold what one warpgroup holds."""
    same = NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    assert plan_product(same, (64, 64, 16), 16, default([64, 16]), default([16, 64])).n == 64


@pytest.mark.parametrize("written", [8, 32, 64])
def test_narrow_instructions_that_mean_the_same_are_joined(written):
    accumulator = NVMMADistributedLayout([3, 0], [4, 1], [16, written, 16])
    assert plan_product(accumulator, (64, 64, 16), 16, default([64, 16]), default([16, 64])).n == 64


def test_instructions_are_as_narrow_as_memory_demands():
    """Four panels of b, the second and third of which changed places: no stride leads through all of them."""
    panels = NVMMASharedLayout(128, 16).to_linear((16, 256)).bases("offset")
    swapped = [*panels[:10], panels[11], panels[10]]
    right = whole(SharedLinearLayout(swapped, alignment=1024), (16, 256))
    assert check(pick_wgmma_layout(16, (64, 256), 4), (64, 256, 16), 16, default([64, 16]), right).n == 128


def test_reshaped_and_swizzled_spellings():
    flat = NVMMASharedLayout(128, 16, rank=3)
    left = whole(reshaped(flat, (2, 64, 64), (128, 64)), (128, 64))
    rows = SwizzledSharedLayout(8, 1, 8, [1, 0]).to_linear((64, 64)).bases("offset")
    right = whole(SharedLinearLayout(rows, alignment=1024), (64, 64))
    check(pick_wgmma_layout(16, (128, 64), 4), (128, 64, 64), 16, left, right)


@pytest.mark.parametrize("split", [[1, 0], [0, 1]])
def test_blocks_of_a_cluster_multiply_their_parts(split):
    accumulator = pick_wgmma_layout(16, (256, 256), 4, cga_layout=[split])
    a = NVMMASharedLayout.get_default_for([256, 64], DType(16), cga_layout=[[split[0], 0]])
    b = NVMMASharedLayout.get_default_for([64, 256], DType(16), cga_layout=[[0, split[1]]])
    part = (256 >> split[0], 256 >> split[1])
    alone = plan_product(
        pick_wgmma_layout(16, part, 4), (*part, 64), 16, default([part[0], 64]), default([64, part[1]])
    )
    assert plan_product(accumulator, (256, 256, 64), 16, whole(a, (256, 64)), whole(b, (64, 256))) == alone


@given(st.data())
@laws
def test_mma_sync(data):
    bits = data.draw(st.sampled_from([8, 16, 32]))
    warps = data.draw(st.sampled_from([[1, 1], [4, 1], [2, 2], [1, 4]]))
    accumulator = NVMMADistributedLayout([2, 0], warps, [16, 8])
    m, n, k = data.draw(powers(7, 4)), data.draw(powers(7, 3)), 256 // bits * data.draw(powers(2))
    left, right = (DotOperandLayout(index, accumulator, 32 // bits) for index in (0, 1))
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (m, k)), rng.integers(-8, 8, (k, n))
    at, _ = held(accumulator, (m, n))
    found = np.zeros(at[0].shape, np.int64)
    plan = plan_sync(accumulator, (m, n, k), bits, left, right)
    tensor_core.mma_sync(plan, found, held(left, (m, k), a)[1], held(right, (k, n), b)[1], at[0].shape[0], bits)
    np.testing.assert_array_equal(found, (a @ b)[at])


@pytest.mark.parametrize(
    ("shape", "bits", "warps", "expected"),
    [
        ((64, 64), 16, 4, ([4, 1], 64, 16)),
        ((128, 256), 16, 4, ([4, 1], 256, 16)),
        ((128, 256), 16, 8, ([8, 1], 256, 16)),
        ((64, 256), 16, 8, ([4, 2], 128, 16)),
        ((128, 512), 8, 16, ([8, 2], 256, 32)),
        ((256, 128), 32, 16, ([16, 1], 128, 8)),
        ((64, 8), 16, 8, ([4, 2], 8, 16)),
    ],
)
def test_picked_layouts(shape, bits, warps, expected):
    down, n, k = expected
    assert pick_wgmma_layout(bits, shape, warps) == NVMMADistributedLayout([3, 0], down, [16, n, k])


# Refusals.

ACC = pick_wgmma_layout(16, (64, 64), 4)
CUBE = (64, 64, 64)


def refusal(layout, k=1, bits=16):
    """The error of a product of 64 x 64 matrices whose left (`k` 1) or right operand lies in `layout`."""
    side = whole(layout, (64, 64))
    readable = NVMMASharedLayout.get_default_for([64, 64], DType(bits), transposed=bool(k))
    left, right = (side, whole(readable, (64, 64))) if k else (whole(readable, (64, 64)), side)
    with pytest.raises(LayoutError) as caught:
        plan_product(ACC, CUBE, bits, left, right)
    return caught.value


def test_memory_that_is_not_swizzled():
    error = refusal(NVMMASharedLayout(0, 16))
    assert error.code == "layout-mma-read"
    assert "operand a" in error.message
    assert "2 bytes from one k to the next and 128 from one m to the next" in error.message
    assert "NVMMASharedLayout.get_default_for([64, 64], dtype)" in error.fix


@pytest.mark.parametrize(("k", "along"), [(0, ", contiguous along k,"), (1, "")])
def test_memory_whose_first_dimension_is_contiguous(k, along):
    turned = refusal(SwizzledSharedLayout(1, 1, 1, [0, 1]), k=k).fix
    assert (
        turned
        == f"keep it as [64, 64] in NVMMASharedLayout.get_default_for([64, 64], dtype){along} and pass its permute((1, 0))"
    )
    plain = refusal(SwizzledSharedLayout(1, 1, 1, [1, 0]), k=k).fix
    assert plain == "allocate it in NVMMASharedLayout.get_default_for([64, 64], dtype)"


def test_memory_that_is_not_aligned():
    error = refusal(SwizzledSharedLayout(8, 1, 8, [1, 0]))
    assert error.code == "layout-mma-read"
    assert "aligned to 16 bytes, but its swizzle needs 1024" in error.message


def test_memory_that_is_padded():
    error = refusal(PaddedSharedLayout.with_identity_for([[64, 8]], [64, 64], [1, 0]))
    assert error.code == "layout-mma-read"
    assert "padding" in error.message


@pytest.mark.parametrize("bits", [8, 32])
def test_contiguous_along_the_wrong_dimension(bits):
    error = refusal(NVMMASharedLayout.get_default_for([64, 64], DType(bits)), k=0, bits=bits)
    assert error.code == "layout-mma-read"
    assert f"contiguous along n, and elements of {bits} bits are read along k only" in error.message
    assert "permute((1, 0))" in error.fix
    error = refusal(NVMMASharedLayout.get_default_for([64, 64], DType(bits), transposed=True), bits=bits)
    assert "contiguous along m" in error.message
    assert error.fix == "allocate it in NVMMASharedLayout.get_default_for([64, 64], dtype)"


@pytest.mark.parametrize(
    ("shape", "dim", "least"), [((32, 64, 64), "M", 64), ((64, 4, 64), "N", 8), ((64, 64, 8), "K", 16)]
)
def test_products_smaller_than_an_instruction(shape, dim, least):
    side = whole(NVMMASharedLayout(0, 16), (64, 8))
    with pytest.raises(LayoutError, match=f"need {dim} to be a multiple of {least}") as caught:
        plan_product(ACC, shape, 16, side, side)
    assert caught.value.code == "layout-mma-shape"


@pytest.mark.parametrize(
    "accumulator",
    [
        BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]),
        NVMMADistributedLayout([2, 0], [2, 2], [16, 8]),
        NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]),
    ],
)
def test_accumulators_of_other_layouts(accumulator):
    with pytest.raises(LayoutError) as caught:
        plan_product(accumulator, CUBE, 16, default([64, 64]), default([64, 64]))
    assert caught.value.code == "layout-mma-accumulator"
    assert repr(ACC) in caught.value.fix


def test_accumulators_of_mma_sync():
    blocked = BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    with pytest.raises(LayoutError, match=r"mma\.sync") as caught:
        plan_sync(blocked, CUBE, 16, DotOperandLayout(0, ACC, 2), DotOperandLayout(0, ACC, 2))
    assert caught.value.code == "layout-mma-accumulator"
    assert "NVMMADistributedLayout([2, 0], [4, 1], [16, 8])" in caught.value.fix


def test_numbers_of_warps():
    two = NVMMADistributedLayout([2, 0], [2, 1], [16, 8])
    with pytest.raises(LayoutError, match="has 2") as caught:
        plan_product(two, CUBE, 16, default([64, 64]), default([64, 64]))
    assert caught.value.code == "layout-mma-warps"
    for warps in (2, 12):
        with pytest.raises(LayoutError, match=f"has {warps}"):
            pick_wgmma_layout(16, (64, 64), warps)


def test_registers_of_another_layout():
    for left in (
        DotOperandLayout(0, ACC, 1),
        DotOperandLayout(0, NVMMADistributedLayout([3, 0], [8, 1], [16, 8, 16]), 2),
    ):
        with pytest.raises(LayoutError) as caught:
            plan_product(ACC, CUBE, 16, left, default([64, 64]))
        assert caught.value.code == "layout-mma-registers"
        assert repr(DotOperandLayout(0, ACC, k_width=2)) in caught.value.fix.replace("k_width=", "").replace("gl.", "")


def test_operands_split_otherwise_over_a_cluster():
    accumulator = pick_wgmma_layout(16, (128, 64), 4, cga_layout=[[1, 0]])
    a = NVMMASharedLayout.get_default_for([128, 64], DType(16), cga_layout=[[0, 1]])
    with pytest.raises(LayoutError, match="operand a") as caught:
        plan_product(accumulator, (128, 64, 64), 16, whole(a, (128, 64)), default([64, 64]))
    assert caught.value.code == "layout-mma-blocks"
