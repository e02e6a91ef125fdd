"""Shared layouts against the address arithmetic that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers
from weft import layout as layouts
from weft.layout import (
    MBarrierLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
)
from weft.layout.parse import parse_layout

laws = settings(deadline=None, max_examples=examples(60))


@dataclass
class DType:
    primitive_bitwidth: int


def elements(layout, shape):
    """Coordinates by offset."""
    linear = layout.to_linear(shape)
    return [linear(offset=offset) for offset in range(linear.in_size("offset"))]


@given(powers(3), powers(2), powers(3), st.permutations(range(2)), powers(5), powers(5))
@laws
def test_swizzled(vec, per_phase, max_phase, order, outer, inner):
    shape = [0, 0]
    shape[order[0]], shape[order[1]] = inner, outer
    found = elements(SwizzledSharedLayout(vec, per_phase, max_phase, order), shape)
    assert len(set(found)) == outer * inner
    for offset, place in enumerate(found):
        row, column = divmod(offset, inner)
        assert place[order[1]] == row
        assert place[order[0]] == column ^ row // per_phase % max_phase * vec % inner


def test_unswizzled_in_three_dimensions_is_row_major():
    found = elements(SwizzledSharedLayout(1, 1, 1, [2, 1, 0]), [2, 4, 8])
    assert found == [tuple(map(int, np.unravel_index(i, (2, 4, 8)))) for i in range(64)]


@given(st.sampled_from([32, 64, 128]), st.sampled_from([8, 16, 32, 64]), powers(7, 3), powers(2), st.booleans())
@laws
def test_hardware_swizzle(width, bits, rows, boxes, transposed):
    """Bits of the byte address are XORed with higher ones, as TMA does: 128 bytes 3 bits, 64 bytes 2, 32 bytes 1."""
    size, columns = bits // 8, width * 8 // bits
    shape = [rows, columns * boxes]
    layout = NVMMASharedLayout(width, bits, 2, transposed)
    found = elements(layout, shape[::-1] if transposed else shape)
    for offset, place in enumerate(found):
        address = offset * size
        plain = address ^ (address >> 7 & width // 16 - 1) << 4
        box, within = divmod(plain // size, rows * columns)
        row, column = divmod(within, columns)
        expected = (row, box * columns + column)
        assert place == (expected[::-1] if transposed else expected)


@pytest.mark.parametrize(
    ("shape", "bits", "transposed", "width"),
    [
        ([128, 64], 16, False, 128),
        ([128, 32], 16, False, 64),
        ([128, 16], 16, False, 32),
        ([128, 8], 16, False, 0),
        ([64, 256], 32, False, 128),
        ([4, 256], 32, False, 0),
        ([256], 32, False, 0),
        ([64, 8], 16, True, 128),
        ([2, 4, 64], 16, False, 128),
    ],
)
def test_default_swizzle_is_the_widest_that_fits(shape, bits, transposed, width):
    layout = NVMMASharedLayout.get_default_for(shape, DType(bits), transposed=transposed)
    assert layout == NVMMASharedLayout(width, bits, len(shape), transposed)
    assert layout.to_linear(shape).is_invertible


def test_unswizzled_boxes_measure_at_most_256():
    linear = NVMMASharedLayout(0, 32).to_linear([4, 512])
    assert linear(offset=255) == (0, 255)
    assert linear(offset=256) == (1, 0)
    assert linear(offset=1024) == (0, 256)


def test_transposed_swaps_the_last_two_of_three_dimensions():
    linear = NVMMASharedLayout(0, 16, 3, transposed=True).to_linear([2, 4, 8])
    assert linear.bases("offset") == ((0, 1, 0), (0, 2, 0), (0, 0, 1), (0, 0, 2), (0, 0, 4), (1, 0, 0))


def test_padded_fp4_uses_half_of_every_16_bytes():
    linear = NVMMASharedLayout(128, 8, fp4_padded=True).to_linear([8, 64])
    assert linear.in_size("offset") == 8 * 64 * 2
    assert linear.free_variables()["offset"] == 8
    assert linear(offset=16) == (0, 8)
    assert linear(offset=128) == (1, 8)


def test_shared_layouts_of_a_cluster():
    layout = NVMMASharedLayout(128, 16, cga_layout=[[1, 0]])
    linear = layout.to_linear([64, 64])
    assert linear.bases("block") == ((32, 0),)
    assert linear.in_size("offset") == 32 * 64
    assert SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[0, 1]]).to_linear([8, 8]).bases("block") == ((0, 4),)


def test_padded():
    layout = PaddedSharedLayout.with_identity_for([[32, 4]], [16, 32], [1, 0])
    assert elements(layout, [16, 32]) == [divmod(i, 32) for i in range(512)]
    assert [layout.pad(offset) for offset in (0, 31, 32, 64, 511)] == [0, 31, 36, 72, 571]
    assert layout.pad(np.arange(64)).tolist() == [i + i // 32 * 4 for i in range(64)]
    assert eval(repr(layout), vars(layouts).copy()) == layout  # noqa: S307 - our own text


@given(st.lists(st.tuples(powers(6, 1), powers(3)), max_size=3, unique_by=lambda pair: pair[0]))
@laws
def test_padding_keeps_elements_apart_and_in_order(pairs):
    layout = PaddedSharedLayout.with_identity_for([list(p) for p in pairs], [256], [0])
    padded = [layout.pad(offset) for offset in range(256)]
    for offset in range(1, 256):
        gap = sum(padding for interval, padding in pairs if offset % interval == 0)
        assert padded[offset] - padded[offset - 1] == 1 + gap


def test_shared_linear_takes_its_shape_from_its_bases():
    layout = SharedLinearLayout([[0, 1], [0, 2], [1, 1], [2, 2]])
    assert layout.shape == (4, 4)
    assert layout.alignment == 16
    linear = layout.to_linear([4, 4])
    assert linear.bases("offset") == ((0, 1), (0, 2), (1, 1), (2, 2))
    assert linear.in_dims == ("offset", "block")
    swizzled = SwizzledSharedLayout(1, 1, 4, [1, 0])
    assert swizzled.to_linear([4, 4]) is linear


@pytest.mark.parametrize(
    "layout",
    [
        SwizzledSharedLayout(8, 1, 8, [1, 0]),
        NVMMASharedLayout(128, 16, rank=2),
        NVMMASharedLayout(64, 8, 2, transposed=True),
        SharedLinearLayout([[0, 1], [1, 0]], alignment=1024),
        MBarrierLayout(),
        MBarrierLayout([[1], [0]]),
    ],
)
def test_spelling_evaluates_back(layout):
    assert eval(repr(layout), vars(layouts).copy()) == layout  # noqa: S307 - our own text
    assert parse_layout(repr(layout)) == layout


def test_a_barrier_is_one_word_per_block():
    linear = MBarrierLayout().to_linear([1])
    assert (linear.in_size("offset"), linear.in_size("block"), linear.out_sizes) == (1, 1, (1,))
    assert MBarrierLayout().format_tensor_view([1]) == "[0]"
    cluster = MBarrierLayout(cga_layout=[[1], [2]]).to_linear([4])
    assert (cluster.in_size("offset"), cluster.bases("block")) == (1, ((1,), (2,)))


@given(st.sampled_from([[128, 64], [64, 128], [256, 16], [32, 512]]), st.sampled_from([8, 16, 32]))
@laws
def test_a_warp_reads_eight_swizzled_rows_without_conflict(shape, bits):
    """Eight rows of one 16-byte column lie in eight different groups of banks."""
    layout = NVMMASharedLayout.get_default_for(shape, DType(bits))
    if layout.swizzle_byte_width != 128:
        return
    back = layout.to_linear(shape).invert()
    addresses = [back(dim0=row, dim1=0)[0] * bits // 8 for row in range(8)]
    assert len({address % 128 // 16 for address in addresses}) == 8
    assert prod(shape) > 0
