"""Copies to tensor memory: plans run on a model of the instructions."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers
from tests.layout.tensor_cores import core_tcgen05 as model
from tests.layout.tensor_cores.tcgen05_products import (
    BASE,
    POISON,
    accumulator,
    default,
    packed_scales,
    scales,
    shared_memory,
    shared_sides,
    tensor_places,
    whole,
)
from tests.layout.tensor_cores.test_mma import core_matrices
from weft.layout.base import Unreadable
from weft.layout.tensor_cores.shared_operands import Operand
from weft.layout.tensor_cores.tcgen05 import descriptor_bits
from weft.layout.tensor_cores.tcgen05_copies import plan_copy
from weft.layout.tensor_memory.layouts import TensorMemoryLayout
from weft.layout.tensor_memory.load_store import TensorSide

laws = settings(deadline=None, max_examples=examples(100))


def copied(src, dst, bits, two_ctas=False):
    """Run a copy; tensor memory then holds the tile, and all else as before."""
    plan = plan_copy(src, dst, bits)
    assert not isinstance(plan, Unreadable), plan
    blocks = 2 if two_ctas else 1
    values = np.random.default_rng(0).integers(0, 1 << 16, src.shape)
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
