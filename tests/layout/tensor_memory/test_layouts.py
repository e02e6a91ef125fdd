"""Layouts of tensor memory against formulas written from the figures of the PTX ISA, their sizes, and their pictures."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers
from weft.errors import LayoutError
from weft.layout import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.parse import parse_layout
from weft.layout.show.svg import format_svg
from weft.layout.show.text import draw

laws = settings(deadline=None, max_examples=examples(60))


def elements(layout, shape, block=0):
    """Element by (lane, column in elements), in one block."""
    linear = layout.to_linear(shape)
    places = product(range(linear.in_size("row")), range(linear.in_size("column")))
    return {(lane, column): linear(row=lane, column=column, block=block) for lane, column in places}


@laws
@given(powers(6, 3), powers(2), powers(2), powers(1), powers(2))
def test_blocks_of_128_rows_lie_one_lane_a_row(width, down, along, stride, narrower):
    """Blocks follow along the columns, those below each other first; a tile narrower than a block is a block."""
    shape = (128 * down, width * along)
    layout = TensorMemoryLayout([128, width * (narrower if along == 1 else 1)], col_stride=stride)
    found = elements(layout, shape)
    assert len(found) == 128 * width * along * down * stride
    for row, column in product(range(shape[0]), range(shape[1])):
        block = row // 128 + column // width * down
        assert found[row % 128, (column % width + block * width) * stride] == (row, column)


@laws
@given(powers(5, 3), powers(2), powers(2), powers(1))
def test_blocks_of_64_rows_take_every_other_half_of_a_quarter(width, down, along, stride):
    shape = (64 * down, width * along)
    found = elements(TensorMemoryLayout([64, width], col_stride=stride), shape)
    for row, column in product(range(shape[0]), range(shape[1])):
        block = row // 64 + column // width * down
        lane = row % 64 // 16 * 32 + block % 2 * 16 + row % 16
        assert found[lane, (column % width + block // 2 * width) * stride] == (row, column)
    halves = {lane // 16 % 2 for lane, _ in found}
    assert len(found) == 128 * max(width * along * down // 2, width) * stride
    assert halves == {0, 1}


@laws
@given(powers(5, 3), powers(1), powers(1))
def test_half_of_the_columns_of_64_rows_of_two_blocks_lie_64_lanes_on(width, along, stride):
    layout = TensorMemoryLayout([64, width], col_stride=stride, cga_layout=[[1, 0]], two_ctas=True)
    half = width // 2
    for block in (0, 1):
        found = elements(layout, (128, width * along), block)
        assert len(found) == 64 * width * along * stride
        for row, column in product(range(64), range(width * along)):
            place = row + column % width // half * 64, (column % half + column // width * half) * stride
            assert found[place] == (row + 64 * block, column)


@laws
@given(powers(8, 3), powers(4), st.booleans())
def test_scales_are_copied_to_each_quarter_of_the_lanes(rows, scales, split):
    layout = TensorMemoryScalesLayout(cga_layout=[[1, 0]] if split else None)
    blocks = 2 if split else 1
    for block in range(blocks):
        found = elements(layout, (rows * blocks, scales), block)
        for row, scale, quarter in product(range(rows), range(scales), range(4)):
            word = row // 32 + scale // 4 * max(rows // 32, 2)
            assert found[quarter * 32 + row % 32, word * 4 + scale % 4] == (row + block * rows, scale)
        assert len(found) == 128 * 4 * max(rows // 32, 2) * max(scales // 4, 1)


@pytest.mark.parametrize(
    ("layout", "shape", "bits", "columns"),
    [
        (TensorMemoryLayout([128, 256]), (128, 256), 32, 256),
        (TensorMemoryLayout([128, 128]), (256, 128), 32, 256),
        (TensorMemoryLayout([128, 128], col_stride=1), (128, 128), 16, 64),
        (TensorMemoryLayout([128, 128], col_stride=2), (128, 128), 16, 128),
        (TensorMemoryLayout([128, 64], col_stride=1), (128, 64), 8, 16),
        (TensorMemoryLayout([64, 128]), (64, 128), 32, 128),
        (TensorMemoryLayout([64, 64]), (64, 128), 32, 64),
        (TensorMemoryLayout([64, 128], 1, [[1, 0]], True), (128, 128), 32, 64),
        (TensorMemoryLayout([128, 256], 1, [[1, 0]], True), (256, 256), 32, 256),
        (TensorMemoryLayout([128, 1]), (128, 1), 16, 1),
        (TensorMemoryScalesLayout(), (128, 4), 8, 4),
        (TensorMemoryScalesLayout(), (256, 8), 8, 16),
        (TensorMemoryScalesLayout(), (128, 2), 8, 4),
        (TensorMemoryScalesLayout(), (16, 4), 8, 2),
        (TensorMemoryScalesLayout([[0, 0]]), (256, 8), 8, 16),
    ],
)  # fmt: skip
def test_columns_of_a_tile(layout, shape, bits, columns):
    assert layout.columns(shape, bits) == columns


def test_both_spellings_of_a_cluster_are_one_layout():
    assert TensorMemoryLayout([128, 64], 1, cta_split_num=[2, 1]) == TensorMemoryLayout([128, 64], 1, [[1, 0]])
    assert TensorMemoryLayout([128, 64], 1, cta_split_num=[1, 1]) == TensorMemoryLayout([128, 64])
    both = TensorMemoryScalesLayout(cta_split_num=(2, 2))
    assert both == TensorMemoryScalesLayout([[1, 0], [0, 1]])
    assert repr(both) == "TensorMemoryScalesLayout(cga_layout=[[1, 0], [0, 1]])"


@pytest.mark.parametrize(
    "layout",
    [TensorMemoryLayout([128, 64], col_stride=2), TensorMemoryLayout([64, 64], 1, [[1, 0]], True), TensorMemoryScalesLayout()],
    ids=repr,
)  # fmt: skip
def test_a_layout_reads_back_as_printed(layout):
    assert parse_layout(repr(layout)) == layout


def test_impossible_blocks_are_refused():
    with pytest.raises(LayoutError, match=r"64 or 128 rows by a power of two of columns, not \[32, 64\]") as refused:
        TensorMemoryLayout([32, 64])
    assert refused.value.code == "tmem-block"
    with pytest.raises(LayoutError, match=r"block=\[128, 64\] has no cga_layout") as refused:
        TensorMemoryLayout([128, 64], two_ctas=True)
    assert refused.value.code == "tmem-two-ctas"
    with pytest.raises(LayoutError, match="col_stride"):
        TensorMemoryLayout([128, 64], col_stride=3)


def test_a_tile_is_made_of_blocks():
    with pytest.raises(LayoutError, match=r"\[64, 32\], is not a multiple of the block \[128, 32\]") as refused:
        TensorMemoryLayout([128, 32], cga_layout=[[1, 0]]).to_linear((128, 32))
    assert refused.value.code == "tmem-block-shape"


# Pictures: lanes and columns.


def test_a_picture_names_lanes_and_columns():
    layout = TensorMemoryLayout([64, 2], col_stride=2)
    lines = layout.format_tensor_view((64, 2)).splitlines()
    assert lines[15:17] == [" [ L15:0,  L15:2],", " [ L32:0,  L32:2],"]
    assert lines[63] == " [L111:0, L111:2]]"
    lanes = layout.format_hardware_view((64, 2)).splitlines()
    assert len(lanes) == 128
    assert lanes[15:17] == [
        "lane  15: (15, 0),       -, (15, 1),       -",
        "lane  16:       -,       -,       -,       -",
    ]
    assert lanes[111] == "lane 111: (63, 0),       -, (63, 1),       -"


def test_a_picture_shows_the_copies_of_scales():
    lines = TensorMemoryScalesLayout().format_tensor_view((64, 1)).splitlines()
    assert lines[1] == " [  L1:0| L33:0| L65:0| L97:0],"
    assert lines[32] == " [  L0:4| L32:4| L64:4| L96:4],"
    assert "(33, 0)" in TensorMemoryScalesLayout().format_hardware_view((64, 1)).splitlines()[97]


def test_a_picture_names_blocks_and_holds_every_element():
    layout = TensorMemoryLayout([128, 8], cga_layout=[[1, 0]])
    picture = draw(layout, (256, 8))
    assert picture.cells[-1][0].label == "B1:L127:7"
    assert all(len(cell) == 1 for cell in picture.cells)
    assert "B1:L127:7" in format_svg(layout, (256, 8))
