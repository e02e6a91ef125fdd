"""Pictures of layouts: the tables of the layouts tutorial, shared layouts, slices, SVG, and what cannot be drawn."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from weft.errors import LayoutError
from weft.layout import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLinearLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from weft.layout.show.svg import format_svg
from weft.layout.show.text import draw, format_hardware_view, format_tensor_view

BLOCKED = BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])


def test_a_tile_smaller_than_the_block_lists_every_owner():
    lines = format_tensor_view(BLOCKED, [32, 8]).splitlines()
    assert len(lines) == 32
    assert lines[0].startswith("[[  T0:0| T32:0| T64:0| T96:0,   T0:1|")
    assert lines[0].endswith("  T1:3| T33:3| T65:3| T97:3],")
    assert lines[1].startswith(" [  T0:4| T32:4| T64:4| T96:4, ")
    assert lines[30].startswith(" [ T30:0| T62:0| T94:0|T126:0, ")
    assert lines[31].endswith(" T31:7| T63:7| T95:7|T127:7]]")


def test_a_warp_tile():
    one_warp = BlockedLayout([2, 4], [16, 2], [1, 1], [1, 0])
    lines = format_tensor_view(one_warp, [32, 8]).splitlines()
    assert lines[0] == "[[ T0:0,  T0:1,  T0:2,  T0:3,  T1:0,  T1:1,  T1:2,  T1:3],"
    assert lines[3] == " [ T2:4,  T2:5,  T2:6,  T2:7,  T3:4,  T3:5,  T3:6,  T3:7],"
    assert lines[31] == " [T30:4, T30:5, T30:6, T30:7, T31:4, T31:5, T31:6, T31:7]]"


def test_registers_follow_the_order():
    column_major = BlockedLayout([2, 4], [32, 1], [1, 1], [0, 1])
    lines = format_tensor_view(column_major, [64, 4]).splitlines()
    assert lines[0] == "[[ T0:0,  T0:2,  T0:4,  T0:6],"
    assert lines[1] == " [ T0:1,  T0:3,  T0:5,  T0:7],"


def test_a_slice_is_a_column_without_redundant_registers():
    lines = format_tensor_view(SliceLayout(1, BlockedLayout([2, 4], [16, 2], [1, 1], [1, 0])), [32]).splitlines()
    assert lines[:3] == ["[ T0:0| T1:0,", "  T0:1| T1:1,", "  T2:0| T3:0,"]
    assert lines[-1] == " T30:1|T31:1]"


def test_three_dimensions_are_slices():
    layout = BlockedLayout([1, 1, 1], [2, 4, 4], [1, 1, 1], [2, 1, 0])
    assert format_tensor_view(layout, [2, 4, 4]) == (
        "[[[ T0:0,  T1:0,  T2:0,  T3:0],\n"
        "  [ T4:0,  T5:0,  T6:0,  T7:0],\n"
        "  [ T8:0,  T9:0, T10:0, T11:0],\n"
        "  [T12:0, T13:0, T14:0, T15:0]],\n"
        "\n"
        " [[T16:0, T17:0, T18:0, T19:0],\n"
        "  [T20:0, T21:0, T22:0, T23:0],\n"
        "  [T24:0, T25:0, T26:0, T27:0],\n"
        "  [T28:0, T29:0, T30:0, T31:0]]]"
    )


def test_a_shared_layout_shows_offsets():
    swizzled = SwizzledSharedLayout(1, 1, 4, [1, 0])
    assert format_tensor_view(swizzled, [4, 4]) == (
        "[[ 0,  1,  2,  3],\n [ 5,  4,  7,  6],\n [10, 11,  8,  9],\n [15, 14, 13, 12]]"
    )
    assert format_hardware_view(swizzled, [4, 4]).startswith(" 0: (0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 0), ")


def test_the_hardware_view_has_a_line_per_thread():
    lines = format_hardware_view(BLOCKED, [64, 16]).splitlines()
    assert len(lines) == 128
    assert lines[0] == ("warp 0   T0: ( 0,  0), ( 0,  1), ( 0,  2), ( 0,  3), ( 1,  0), ( 1,  1), ( 1,  2), ( 1,  3)")
    assert lines[33].startswith("warp 1  T33: ( 0, 12), ")
    assert lines[127].endswith("(63, 15)")


def test_blocks_of_a_cluster_are_named():
    layout = DistributedLinearLayout([], [[1], [2], [4], [8], [16]], [], [[32]], [64])
    lines = format_tensor_view(layout, [64]).splitlines()
    assert lines[0] == "[ B0:T0:0,"
    assert lines[63] == " B1:T31:0]"


def test_every_element_is_in_both_views():
    picture = draw(BLOCKED, [128, 16])
    assert all(picture.cells)
    assert sum(map(len, picture.cells)) == sum(len(places) for _, places in picture.rows) == 128 * 16


def test_methods_of_layouts_draw_the_same():
    assert BLOCKED.format_tensor_view([32, 8]) == format_tensor_view(BLOCKED, [32, 8])
    assert BLOCKED.format_hardware_view([32, 8]) == format_hardware_view(BLOCKED, [32, 8])
    assert format_tensor_view(BLOCKED.to_linear([32, 8]), [32, 8]) == format_tensor_view(BLOCKED, [32, 8])


@pytest.mark.parametrize("draw_it", [format_tensor_view, format_hardware_view, format_svg])
def test_layouts_without_a_picture_say_so(draw_it):
    padded = PaddedSharedLayout.with_identity_for([[32, 4]], [32, 32], [1, 0])
    for layout, reason in (
        (AutoLayout(), "the compiler resolves it"),
        (CoalescedLayout(), "the compiler resolves it"),
        (padded, "padding leaves holes"),
    ):
        with pytest.raises(LayoutError, match=f"{type(layout).__name__}.* cannot be drawn: .*{reason}"):
            draw_it(layout, [32, 32])


def test_a_linear_layout_is_drawn_for_its_own_shape_only():
    with pytest.raises(LayoutError, match=r"covers a tile of shape \[32, 8\], not \[8, 32\]"):
        format_tensor_view(BLOCKED.to_linear([32, 8]), [8, 32])


def test_a_huge_tile_is_refused():
    with pytest.raises(LayoutError, match="too many for a picture"):
        format_tensor_view(BLOCKED, [1 << 12, 1 << 12])


@pytest.mark.parametrize(
    ("layout", "shape", "cells"),
    [
        (BLOCKED, [32, 8], 256),
        (SliceLayout(0, BLOCKED), [16], 16),
        (NVMMASharedLayout(32, 16, 2), [8, 16], 128),
        (BlockedLayout([1, 1, 1], [2, 4, 4], [1, 1, 1], [2, 1, 0]), [2, 4, 4], 32),
    ],
    ids=["blocked", "slice", "shared", "three dimensions"],
)
def test_svg_is_a_document_with_a_box_per_element(layout, shape, cells):
    text = format_svg(layout, shape)
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert text.count("<g>") == cells
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in box.attrib:
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= float(root.attrib["width"])
            assert float(box.attrib["y"]) + float(box.attrib["height"]) <= float(root.attrib["height"])


def test_svg_colours_tell_warps_apart():
    picture = draw(BLOCKED, [64, 16])
    colors = {places[0].group: places[0].color for places in picture.cells if places[0].member == 0}
    assert len(set(colors.values())) == 4
    assert set(colors.values()) <= set(re.findall("#[0-9a-f]{6}", format_svg(BLOCKED, [64, 16])))
