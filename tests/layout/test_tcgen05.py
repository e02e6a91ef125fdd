"""Products and copies of Blackwell's tensor cores: plans run on a model of the instructions."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.layout import tensor_core_tcgen05 as model
from tests.layout.strategies import powers
from tests.layout.test_shared import DType
from tests.layout.test_wgmma import core_matrices
from weft.layout import NVMMASharedLayout, PaddedSharedLayout, SharedLinearLayout, SwizzledSharedLayout
from weft.layout.shared_views import permuted, reshaped
from weft.layout.tcgen05 import descriptor_bits, plan_copy, plan_mma
from weft.layout.tcgen05_kinds import KINDS, Scaled, instruction_descriptor
from weft.layout.tensor_access import TensorSide
from weft.layout.tensor_memory import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.wgmma import Operand, SharedSide, Unreadable

laws = settings(deadline=None, max_examples=100)
POISON = 1 << 20
MOST_BYTES = 1 << 17
BITS = {"f16": 16, "bf16": 16, "f32": 32, "i32": 32, "f8e4m3": 8, "f8e5m2": 8, "i8": 8, "u8": 8}
TYPES = [
    ("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("f32", "f32", "f32"), ("f8e4m3", "f8e5m2", "f32"),
    ("f8e5m2", "f8e5m2", "f16"), ("i8", "u8", "i32"),
]  # fmt: skip
F16 = ("f16", "f16", "f32")
BASE = {"a": 0x2000, "b": 0x800, "src": 0x400, "acc": 128, "a_scale": 0, "b_scale": 64, "dst": 8}
"""Where tiles begin, aligned as any layout asks."""
TENSOR_A = 448


def whole(layout, shape):
    """A tile, all of it, in shared or tensor memory."""
    side = TensorSide if isinstance(layout, TensorMemoryLayout | TensorMemoryScalesLayout) else SharedSide
    return side(layout, tuple(shape), tuple(shape), (0,) * len(shape))


def default(shape, bits=16, **more):
    return whole(NVMMASharedLayout.get_default_for(shape, DType(bits), **more), shape)


def accumulator(shape, block=None, bits=32, **more):
    return whole(TensorMemoryLayout(block or shape, col_stride=32 // bits, **more), shape)


def tile_of(side, values):
    """The tile that a view is part of; the rest of it is poison."""
    tile = np.full(side.tile, POISON, np.int64)
    tile[tuple(slice(s, s + n) for s, n in zip(side.start, side.shape, strict=True))] = values
    return tile


def shared_memory(side, values, size, begin, blocks):
    """Bytes of each block's shared memory that hold these values in a view; an element is in the first of its bytes."""
    linear = side.layout.to_linear(side.tile)
    count = linear.in_size("offset")
    memory = np.full((blocks, begin + count * size), POISON, np.int64)
    for block in range(blocks):
        at = linear(offset=np.arange(count), block=block)
        memory[block, begin::size] = tile_of(side, values)[at]
    offsets = linear.columns["offset"]
    if len(offsets) > 3 and offsets[3] == 0:
        memory[:, begin:].reshape(blocks, -1, 16)[:, :, 8:] = POISON
    return memory


def tensor_places(side, bits, begin):
    """Block, lane and byte of every element of a view, and its coordinates; rows of scales are there once per warp."""
    linear = side.layout.to_linear(side.tile)
    nowhere = {d: sum(1 << bit for bit, at in enumerate(linear.columns[d]) if at == 0) for d in ("row", "column")}
    if isinstance(side.layout, TensorMemoryScalesLayout):
        nowhere["row"] &= 31
    block, row, column = np.ogrid[: linear.in_size("block"), :128, : linear.in_size("column")]
    at = linear(row=row, column=column, block=block)
    inside = np.logical_and.reduce([(s <= c) & (c < s + n) for c, s, n in zip(at, side.start, side.shape, strict=True)])
    b, r, c = np.nonzero(inside & (row & nowhere["row"] == 0) & (column & nowhere["column"] == 0))
    return (b, r, 4 * begin + c * bits // 8), tuple(x[b, r, c] - s for x, s in zip(at, side.start, strict=True))


def place(tensor, side, values, bits, begin):
    """Put values into tensor memory, where a layout has them."""
    places, at = tensor_places(side, bits, begin)
    tensor[places] = values[at]


def check(a, b, acc, types, scaled=None, two_ctas=False):
    """Multiply random matrices by a plan: the accumulator, through its layout, is their product, and all else as before."""
    plan = plan_mma(a, b, acc, types, scaled, two_ctas)
    assert not isinstance(plan, Unreadable), plan
    rng = np.random.default_rng()
    blocks = 2 if two_ctas else 1
    formats = (scaled.a, scaled.b) if scaled else types[:2]
    operands = []
    for side, form in ((a, formats[0]), (b, formats[1])):
        high = 256 if form == "e2m1" else 8
        operands.append(rng.integers(0, high, side.shape))
    left, right = operands
    tensor = np.full((blocks, 128, 2048), POISON, np.int64)
    base, shared = dict(BASE), {"b": shared_memory(b, right, BITS[types[1]] // 8, BASE["b"], blocks)}
    if isinstance(a, TensorSide):
        base["a"] = TENSOR_A
        place(tensor, a, left, BITS[types[0]], TENSOR_A)
    else:
        shared["a"] = shared_memory(a, left, BITS[types[0]] // 8, BASE["a"], blocks)
    if formats[0] == "e2m1":
        left = model.pairs(left)
    if formats[1] == "e2m1":
        right = model.pairs(right.T).T
    if scaled:
        scales = [rng.integers(1, 4, side.shape) for side in (scaled.a_scale, scaled.b_scale)]
        place(tensor, scaled.a_scale, scales[0], 8, BASE["a_scale"])
        place(tensor, scaled.b_scale, scales[1], 8, BASE["b_scale"])
        run = left.shape[1] // scales[0].shape[1]
        left, right = left * np.repeat(scales[0], run, 1), right * np.repeat(scales[1], run, 1).T
    before = tensor.copy()
    machine = model.Machine(shared, tensor)
    descriptors = None if plan.left is None else descriptor_bits(plan.left), descriptor_bits(plan.right)
    for step in plan.steps:
        machine.mma(plan.kind, *descriptors, step, formats, base)
    places, at = tensor_places(acc, BITS[types[2]], BASE["acc"])
    np.testing.assert_array_equal(tensor[places], (left @ right)[at])
    assert len(set(zip(*at, strict=True))) == prod(acc.shape)
    tensor[places] = before[places]
    np.testing.assert_array_equal(tensor, before)
    return plan


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
def shared_sides(draw, shape, k, bits, cga=None, padded=False, along_k=None):
    """A handle to an operand of this shape: any swizzle, both majors, permuted, a part of a tile."""
    along_k = bits == 32 or padded or draw(st.booleans()) if along_k is None else along_k
    inner = k if along_k else 1 - k
    fixed = {d for vector in cga or () for d, value in enumerate(vector) if value}
    tile = [size * (1 if d in fixed else draw(powers(1))) for d, size in enumerate(shape)]
    start = [draw(st.integers(0, t // s - 1)) * s for t, s in zip(tile, shape, strict=True)]
    stored, spread = (tile, cga) if inner == 1 else (tile[::-1], cga and [v[::-1] for v in cga])
    widest = NVMMASharedLayout.get_default_for(
        stored, DType(bits), fp4_padded=padded, cga_layout=spread
    ).swizzle_byte_width
    width = draw(st.sampled_from([w for w in (32, 64, 128) if w <= widest] or [0]))
    layout = NVMMASharedLayout(width, bits, fp4_padded=padded, cga_layout=spread)
    layout = layout if inner == 1 else permuted(layout, (1, 0), stored)
    assume(prod(tile) * bits // 8 <= MOST_BYTES // (2 if padded else 1))
    return SharedSide(layout, tuple(tile), tuple(shape), tuple(start))


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

FORMATS = [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e4m3"), ("e5m2", "e2m1"), ("e2m1", "e2m1")]
MEMORY = {"e4m3": "f8e4m3", "e5m2": "f8e5m2", "e2m1": "u8"}


def scales(shape, **more):
    return whole(TensorMemoryScalesLayout(**more), shape)


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


# Copies


def copied(src, dst, bits, two_ctas=False):
    """Run a copy; tensor memory then holds the tile, and all else as before."""
    plan = plan_copy(src, dst, bits)
    assert not isinstance(plan, Unreadable), plan
    blocks = 2 if two_ctas else 1
    values = np.random.default_rng().integers(0, 1 << 16, src.shape)
    tensor = np.full((blocks, 128, 2048), POISON, np.int64)
    memory = shared_memory(src, values, bits // 8, BASE["src"], blocks)
    machine = model.Machine({"src": memory}, tensor)
    for step in plan.steps:
        machine.copy(plan.shape, descriptor_bits(plan.operand), step, BASE)
    places, at = tensor_places(dst, bits, BASE["dst"])
    np.testing.assert_array_equal(tensor[places], values[at])
    for byte in range(bits // 8):
        tensor[places[0], places[1], places[2] + byte] = POISON
    assert (tensor == POISON).all()
    return plan


@given(st.data())
@laws
def test_copies_of_accumulators_and_operands(data):
    bits = data.draw(st.sampled_from([8, 16, 32]))
    block = data.draw(powers(8))
    shape = (128 * data.draw(powers(1)), max(block, 128 // bits) * data.draw(powers(1)))
    assume(prod(shape) // 128 * bits // 32 <= 256)
    assume(shape[0] == 128 or block * bits >= 256)
    tile = (shape[0], shape[1] * data.draw(powers(1)))
    start = (0, data.draw(st.integers(0, tile[1] // shape[1] - 1)) * shape[1])
    assume(prod(tile) // 128 * bits // 32 <= 256)
    dst = TensorSide(TensorMemoryLayout([128, block], col_stride=1), tile, shape, start)
    copied(data.draw(shared_sides(shape, 1, bits, along_k=True)), dst, bits)


@pytest.mark.parametrize(("bits", "wide", "shape"), [(32, 8, "128x256b"), (32, 4, "128x128b"), (16, 8, "128x128b")])
@pytest.mark.parametrize("first", [0, 1])
def test_copies_of_unswizzled_core_matrices(bits, wide, shape, first):
    src = whole(core_matrices((128, wide), 1, bits, first), (128, wide))
    assert copied(src, whole(TensorMemoryLayout([128, wide], 1), (128, wide)), bits).shape == shape


def packed_scales(rows, columns, swizzle=0):
    """Scales as they come from global memory in blocks of 128 rows by 4, seen as a matrix."""
    shape, sizes = (1, rows // 128, columns // 4, 2, 256), (rows // 128, columns // 4, 32, 4, 4)
    layout = reshaped(NVMMASharedLayout(swizzle, 8, rank=5), shape, sizes)
    turned = (sizes[0], 4, 32, sizes[1], 4)
    return whole(reshaped(permuted(layout, (0, 3, 2, 1, 4), sizes), turned, (rows, columns)), (rows, columns))


@pytest.mark.parametrize(("rows", "columns"), [(128, 4), (128, 16), (256, 4), (256, 8), (512, 16)])
def test_copies_of_scales(rows, columns):
    plan = copied(packed_scales(rows, columns), scales((rows, columns)), 8)
    assert plan.shape == "32x128b.warpx4"
    assert plan.operand == Operand(0, False, 16, 128, ())
    assert sorted(plan.steps, key=lambda step: step[1]) == [
        (512 * (i * columns // 4 + k), 4 * (k * rows // 128 + i))
        for k in range(columns // 4)
        for i in range(rows // 128)
    ]


def test_copies_of_two_blocks():
    src, dst = (default([256, 32], 32, cga_layout=[[1, 0]]), accumulator([256, 32], [128, 32], cga_layout=[[1, 0]]))
    assert copied(src, dst, 32, two_ctas=True) == plan_copy(default([128, 32], 32), accumulator([128, 32]), 32)


# Refusals


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
    assert (
        "in tensor memory beside another"
        in scaled_refusal(("e2m1", "e4m3"), a=tensor, types=("u8", "f8e4m3", "f32"))[0]
    )
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
