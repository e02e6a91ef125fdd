"""Products and copies of Blackwell's tensor cores: plans run on a model of the instructions."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers
from tests.layout.tensor_cores import core_tcgen05 as model
from tests.layout.tensor_cores.tcgen05_products import (
    BITS,
    F16,
    FORMATS,
    MEMORY,
    TYPES,
    accumulator,
    check,
    default,
    scales,
    shared_sides,
    whole,
)
from tests.layout.tensor_cores.test_mma import core_matrices
from weft.layout import NVMMASharedLayout
from weft.layout.shared.views import permuted
from weft.layout.tensor_cores.shared_operands import Operand, SharedSide
from weft.layout.tensor_cores.tcgen05 import descriptor_bits, plan_mma
from weft.layout.tensor_cores.tcgen05_kinds import KINDS, Scaled, instruction_descriptor
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import TensorSide

laws = settings(deadline=None, max_examples=examples(100))


# Descriptors


@given(st.data())
@laws
def test_matrix_descriptors(data):
    width = data.draw(st.sampled_from([0, 32, 64, 128]))
    leading, stride = (16 * data.draw(st.integers(0, (1 << 14) - 1)) for _ in range(2))
    swizzle = {0: 0, 128: 2, 64: 4, 32: 6}[width]
    fields = {"leading": leading // 16, "stride": stride // 16, "constant": 1, "swizzle": swizzle}
    assert descriptor_bits(Operand(width, False, leading, stride, ())) == model.encode(fields, model.MATRIX)


PLAIN_TYPES = {"f16": 0, "bf16": 1, "f32": 2, "f8e4m3": 0, "f8e5m2": 1, "u8": 0, "i8": 1}
SCALED_TYPES = {"mxf8f6f4": {"e4m3": 0, "e5m2": 1, "e2m1": 5}, "mxf4": {"e2m1": 1}, "mxf4nvf4": {"e2m1": 1}}


@given(st.data())
@laws
def test_instruction_descriptors(data):
    kind = data.draw(st.sampled_from(["f16", "tf32", "f8f6f4", "i8"]))
    a, b = (data.draw(st.sampled_from(sorted(KINDS[kind].operands))) for _ in range(2))
    acc = data.draw(st.sampled_from(KINDS[kind].accumulators))
    m, n = data.draw(st.sampled_from([64, 128, 256])), 8 * data.draw(st.integers(1, 32))
    majors = data.draw(st.booleans()), data.draw(st.booleans())
    fields = {
        "acc": {"f16": 0, "f32": 1, "i32": 2}[acc],
        "a": PLAIN_TYPES[a],
        "b": PLAIN_TYPES[b],
        "n8": n // 8,
        "m16": m // 16,
    }
    fields |= {"transpose_a": majors[0], "transpose_b": majors[1]}
    assert instruction_descriptor(kind, a, b, acc, m, n, *majors) == model.encode(fields, model.PLAIN)


@given(st.data())
@laws
def test_instruction_descriptors_of_scaled_products(data):
    kind = data.draw(st.sampled_from(sorted(SCALED_TYPES)))
    codes = SCALED_TYPES[kind]
    a, b = (data.draw(st.sampled_from(sorted(codes))) for _ in range(2))
    scale = data.draw(st.sampled_from(["u8", "f8e4m3"]))
    ids = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    m, n = data.draw(st.sampled_from([128, 256])), 8 * data.draw(st.integers(1, 32))
    fields = {"a": codes[a], "b": codes[b], "n8": n // 8, "m128": m // 128, "a_id": ids[0], "b_id": ids[1]}
    fields |= {"scale": scale == "u8"}
    found = instruction_descriptor(kind, a, b, "f32", m, n, scale=scale, scale_ids=ids)
    assert found == model.encode(fields, model.FIELDS[kind])


def test_known_descriptors():
    """128 x 256 x 16 of f16 to f32, both along k; and 128-byte swizzled rows, eight of them 1024 bytes apart."""
    b = whole(permuted(NVMMASharedLayout(128, 16), (1, 0), (256, 64)), (64, 256))
    plan = check(default([128, 64]), b, accumulator([128, 256]), ("f16", "f16", "f32"))
    assert plan.left == plan.right == Operand(128, False, 16, 1024, ())
    assert descriptor_bits(plan.left) == 0x4000_4040_0001_0000
    assert plan.steps == tuple((0, 32 * k, 32 * k, k == 0, 0x0840_0010, 0, 0) for k in range(4))


# Products


@st.composite
def accumulators(draw, bits, least=8):
    """Tiles of one block, in parts that instructions take, and slices of them."""
    m, n = draw(st.sampled_from([64, 128])), draw(powers(8, 3))
    assume(n >= (max(least, 16) if m == 128 else least))
    tile = [m * draw(powers(1)), n * draw(powers(2))]
    assume(prod(tile) // 128 <= 256)
    shape = [tile[0], tile[1] // draw(st.sampled_from([1, 2]))]
    assume(shape[1] >= 16)
    start = (0, draw(st.integers(0, tile[1] // shape[1] - 1)) * shape[1])
    # A slice within a block of 64 rows whose right neighbour stands between its lanes is no part of an instruction's columns.
    return TensorSide(TensorMemoryLayout([m, n], col_stride=32 // bits), tuple(tile), tuple(shape), start)


@given(st.data())
@laws
def test_every_readable_operand(data):
    types = data.draw(st.sampled_from(TYPES))
    bits = BITS[types[0]]
    acc = data.draw(accumulators(BITS[types[2]]))
    (m, n), k = acc.shape, 256 // bits * data.draw(powers(2))
    a = data.draw(shared_sides((m, k), 1, bits))
    # Less than 16 bytes of a line are no operand.
    few = min(acc.layout.block[1], n) * bits < 128
    check(a, data.draw(shared_sides((k, n), 0, bits, along_k=True if few else None)), acc, types)


@pytest.mark.parametrize("types", TYPES)
def test_left_operands_in_tensor_memory(types):
    bits = BITS[types[0]]
    k = 1024 // bits
    a = whole(TensorMemoryLayout([128, k // 2], col_stride=1), (256, k))
    b = default([k, 64], bits) if bits != 32 else default([k, 64], bits, transposed=True)
    plan = check(a, b, accumulator([256, 64], [128, 64], BITS[types[2]]), types)
    assert plan.left is None
    # The first rows' first half along k, the next rows' one, then the second halves.
    assert [step[1] for step in plan.steps] == [0, 8, 32, 40, 16, 24, 48, 56]


@pytest.mark.parametrize("rows", [128, 256])
def test_blocks_side_by_side_read_each_tile_of_a_in_turn(rows):
    """Three properties: runs of equal tiles of a, in the order of k in each block, and the first step of each block first."""
    a, b = default([rows, 64], 16), default([64, 128], 16)
    plan = check(a, b, accumulator([rows, 128], [128, 32]), ("f16", "f16", "f32"))
    tiles = [step[1] for step in plan.steps]
    assert plan.reuse == 4 and len(tiles) == 4 * 4 * rows // 128
    assert tiles == [tile for tile in dict.fromkeys(tiles) for _ in range(4)]
    for block in {step[0] for step in plan.steps}:
        assert [step[3] for step in plan.steps if step[0] == block] == [True, False, False, False]


def test_blocks_of_64_rows_read_a_on_their_own():
    plan = check(default([64, 64], 16), default([64, 256], 16), accumulator([64, 256], [64, 64]), ("f16", "f16", "f32"))
    assert plan.reuse == 1 and [step[3] for step in plan.steps] == [True, False, False, False] * 4


@pytest.mark.parametrize("types", TYPES)
def test_left_operands_of_64_rows_in_tensor_memory(types):
    bits = BITS[types[0]]
    k = 1024 // bits
    a = whole(TensorMemoryLayout([64, k], col_stride=1), (128, k))
    b = default([k, 64], bits) if bits != 32 else default([k, 64], bits, transposed=True)
    plan = check(a, b, accumulator([128, 64], [64, 64], BITS[types[2]]), types)
    # The lower rows stand in the lanes between the upper ones, of both.
    assert [(step[0] >> 16, step[1] >> 16) for step in plan.steps] == [(0, 0)] * 4 + [(16, 16)] * 4


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("types", TYPES)
def test_two_blocks_multiply_together(types, rows):
    bits, n = BITS[types[0]], 128
    k = 1024 // bits
    a = default([2 * rows, k], bits, cga_layout=[[1, 0]])
    b = default([k, n], bits, cga_layout=[[0, 1]], transposed=bits == 32)
    more = {"two_ctas": True, "cga_layout": [[1, 0]]}
    plan = check(a, b, accumulator([2 * rows, n], [rows, n], BITS[types[2]], **more), types, two_ctas=True)
    assert {model.decode(step[4], model.PLAIN)["m16"] * 16 for step in plan.steps} == {2 * rows}


@pytest.mark.parametrize(("bits", "inner"), [(8, 1), (8, 0), (16, 1), (16, 0), (32, 1)])
@pytest.mark.parametrize("first", [0, 1])
def test_unswizzled_core_matrices(bits, inner, first):
    k = 1024 // bits
    left = whole(core_matrices((128, k), inner, bits, first), (128, k))
    right = whole(core_matrices((k, 64), 1 - inner, bits, first), (k, 64))
    type = {8: "f8e4m3", 16: "f16", 32: "f32"}[bits]
    plan = check(left, right, accumulator([128, 64]), (type, type, "f32"))
    assert plan.left.swizzle == plan.right.swizzle == 0


@pytest.mark.parametrize("split", [[1, 0], [0, 1], [0, 0]])
def test_blocks_that_multiply_alone(split):
    """Each block of a cluster does what a single one would do with its part."""
    a = default([256, 64], cga_layout=[[split[0], 0]])
    b = default([64, 128], cga_layout=[[0, split[1]]])
    part = (256 >> split[0], 128 >> split[1])
    together = plan_mma(a, b, accumulator([256, 128], [128, 64], cga_layout=[split]), F16)
    assert together == check(default([part[0], 64]), default([64, part[1]]), accumulator(part, [128, 64]), F16)


# Scaled products


@pytest.mark.parametrize("two_ctas", [False, True])
@pytest.mark.parametrize(("formats", "dtype"), [*[(f, "u8") for f in FORMATS], (("e2m1", "e2m1"), "f8e4m3")])
@given(st.data())
@settings(deadline=None, max_examples=8)
def test_scaled_products(formats, dtype, two_ctas, data):
    m, n, block = data.draw(st.sampled_from([(128, 128, 128), (256, 128, 64), (256, 64, 64), (128, 32, 32)]))
    assume(not two_ctas or block == n)
    k, run = data.draw(st.sampled_from([128, 256, 512])), 16 if dtype == "f8e4m3" else 32
    mixed = formats != ("e2m1", "e2m1")
    rows = m * (2 if two_ctas else 1)
    split = [[1, 0]] if two_ctas else None
    sides = []
    for index, (form, outer) in enumerate(zip(formats, (rows, n), strict=True)):
        length = k // 2 if form == "e2m1" else k
        shape = (length, outer) if index else (outer, length)
        cga = ([[0, 1]] if index else [[1, 0]]) if two_ctas else None
        fours = form == "e2m1"
        draw = shared_sides(shape, 1 - index, 8, cga, padded=fours and mixed, along_k=True if fours else None)
        sides.append(data.draw(draw))
    a_scale = scales((rows, k // run), cga_layout=split)
    b_scale = scales((n, k // run), cga_layout=[[0, 0]] if two_ctas else None)
    acc = accumulator([rows, n], [128, block], cga_layout=split, two_ctas=two_ctas)
    scaled = Scaled(*formats, a_scale, b_scale, dtype)
    plan = check(*sides, acc, (MEMORY[formats[0]], MEMORY[formats[1]], "f32"), scaled, two_ctas)
    assert plan.kind == ("mxf8f6f4" if mixed else "mxf4nvf4" if dtype == "f8e4m3" else "mxf4")


def test_scales_of_the_usual_kernel():
    """128 x 128 x 256 of e4m3: every k has the next byte, and after four the next columns."""
    b = whole(permuted(NVMMASharedLayout(128, 8), (1, 0), (128, 256)), (256, 128))
    scaled = Scaled("e4m3", "e4m3", scales((128, 8)), scales((128, 8)), "u8")
    plan = check(default([128, 256], 8), b, accumulator([128, 128]), ("f8e4m3", "f8e4m3", "f32"), scaled)
    assert [step[5:] for step in plan.steps] == [(0, 0)] * 4 + [(4, 4)] * 4
    first = 0x0820_0000 | 1 << 23
    assert [step[4] for step in plan.steps] == [first | k << 29 | k << 4 for k in range(4)] * 2


def test_left_operands_of_scaled_products_in_tensor_memory():
    a = whole(TensorMemoryLayout([128, 64], col_stride=1), (128, 64))
    b = default([64, 64], 8, transposed=True)
    scaled = Scaled("e2m1", "e2m1", scales((128, 4)), scales((64, 4)), "u8")
    assert check(a, b, accumulator([128, 64]), ("u8", "u8", "f32"), scaled).left is None


def test_slices_of_scales():
    """A product may take a part of its operands along k, with the scales of that part."""
    start = SharedSide(NVMMASharedLayout(128, 8), (128, 256), (128, 64), (0, 128))
    b = whole(permuted(NVMMASharedLayout(64, 8), (1, 0), (64, 64)), (64, 64))
    a_scale = TensorSide(TensorMemoryScalesLayout(), (128, 8), (128, 2), (0, 6))
    scaled = Scaled("e4m3", "e4m3", a_scale, scales((64, 2)), "u8")
    plan = check(start, b, accumulator([128, 64]), ("f8e4m3", "f8e4m3", "f32"), scaled)
    assert [step[5] for step in plan.steps] == [4, 4]
