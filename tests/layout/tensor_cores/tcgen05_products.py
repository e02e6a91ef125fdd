"""What tests of plans of Blackwell's tensor cores share: tiles in memory, and products run on a model of the instructions."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tests.layout.shared.test_layouts import DType
from tests.layout.strategies import powers
from tests.layout.tensor_cores import core_tcgen05 as model
from weft.layout import NVMMASharedLayout
from weft.layout.base import Unreadable
from weft.layout.shared.views import permuted, reshaped
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.layout.tensor_cores.tcgen05 import descriptor_bits, plan_mma
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import TensorSide

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
    rng = np.random.default_rng(0)
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


FORMATS = [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e4m3"), ("e5m2", "e2m1"), ("e2m1", "e2m1")]
MEMORY = {"e4m3": "f8e4m3", "e5m2": "f8e5m2", "e2m1": "u8"}


def scales(shape, **more):
    return whole(TensorMemoryScalesLayout(**more), shape)


def packed_scales(rows, columns, swizzle=0):
    """Scales as they come from global memory in blocks of 128 rows by 4, seen as a matrix."""
    shape, sizes = (1, rows // 128, columns // 4, 2, 256), (rows // 128, columns // 4, 32, 4, 4)
    layout = reshaped(NVMMASharedLayout(swizzle, 8, rank=5), shape, sizes)
    turned = (sizes[0], 4, 32, sizes[1], 4)
    return whole(reshaped(permuted(layout, (0, 3, 2, 1, 4), sizes), turned, (rows, columns)), (rows, columns))


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
