"""Pictures of nested layouts: grids of offsets as text, and as SVG with tiles, threads, vectors and storage."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from weft.errors import LayoutError
from weft.layout import ComposedLayout, Layout, Swizzle, format_layout, format_layout_svg
from weft.layout.show.nested_svg import Owner, one_tile, threads, tiles

TILED = Layout(((2, 2), (2, 2)), ((2, 8), (1, 4)))
RECT = "{http://www.w3.org/2000/svg}rect"


def test_a_matrix():
    assert format_layout(Layout((2, 3))) == (
        "((2, 3):(1, 2))\n"
        "       0  1  2\n"
        "  0    0  2  4\n"
        "  1    1  3  5"
    )  # fmt: skip


def test_a_vector_is_one_row():
    assert format_layout(Layout(3, 2)) == "(3:2)\n       0  1  2\n  0    0  2  4"


def test_lines_separate_tiles():
    assert format_layout(TILED).splitlines()[1:5] == [
        "         0   1     2   3",
        "   0     0   1 |   4   5",
        "   1     2   3 |   6   7",
        "       --------+--------",
    ]


def test_a_swizzled_layout():
    text = format_layout(ComposedLayout(Swizzle(1, 0, 1), 0, Layout.row_major(2, 2)))
    assert text == "Swizzle(1, 0, 1) o 0 o ((2, 2):(2, 1))\n       0  1\n  0    0  1\n  1    3  2"


def cells(text):
    """The tooltip of every cell of a picture that holds together."""
    root = ET.fromstring(text)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(RECT):
        if "x" in box.attrib:
            assert 0 <= float(box.attrib["x"]) <= float(box.attrib["x"]) + float(box.attrib["width"]) <= width
            assert 0 <= float(box.attrib["y"]) <= float(box.attrib["y"]) + float(box.attrib["height"]) <= height
    return re.findall(r"<g><title>(.*?)</title>", text)


def colors(text):
    return dict(re.findall(r'<g><title>([^<]*)</title><rect [^>]*fill="(#[0-9a-f]{6})"', text))


def test_a_column_major_layout_with_its_storage():
    text = format_layout_svg(Layout((2, 4)), storage=True)
    assert cells(text) == [f"({i}, {j}) at {i + 2 * j}" for i in range(2) for j in range(4)] + [
        f"offset {offset}" for offset in range(8)
    ]


def test_a_tile_major_layout_is_coloured_by_tile():
    text = format_layout_svg(TILED, storage=True)
    found = colors(text)
    by_tile = {found[f"({i}, {j}) at {TILED(i, j)}, tile {(i // 2, j // 2)}"] for i in range(4) for j in range(4)}
    assert len(by_tile) == 4
    assert found["offset 6, tile (0, 1)"] == found["(1, 2) at 6, tile (0, 1)"]


def test_a_tile_of_a_tensor():
    found = colors(format_layout_svg(Layout.row_major(6, 6), one_tile(3, 2, (1, 2)), title="tile[3, 2](1, 2)"))
    inside = [name for name in found if name.endswith("tile (1, 2)")]
    assert len(inside) == 6
    assert len(set(found.values())) == 2


def test_vectors_are_outlined():
    text = format_layout_svg(Layout.row_major(16, 16), vectors=(1, 4))
    assert len(cells(text)) == 256
    assert text.count('fill="none"') == 64


def test_elements_dealt_out_to_threads():
    text = format_layout_svg(Layout.row_major(4, 4), threads(Layout.col_major(2, 2)), names=True)
    assert cells(text)[:5] == [
        "(0, 0) at 0, T0",
        "(0, 1) at 1, T2",
        "(0, 2) at 2, T0",
        "(0, 3) at 3, T2",
        "(1, 0) at 4, T1",
    ]
    assert [text.count(f">T{thread}</text>") for thread in range(4)] == [4] * 4
    assert len(set(colors(text).values())) == 4


def test_owners():
    assert tiles(2, 4, 3)(5, 9) == Owner("tile (2, 2)", 8)
    assert one_tile(2, 4, (2, 2))(5, 12) is None
    assert threads(Layout.row_major(2, 2))(3, 2) == Owner("T2", 2)


def test_storage_leaves_out_what_nobody_owns():
    assert cells(format_layout_svg(Layout(2, 2), storage=True))[-3:] == ["offset 0", "offset 1", "offset 2"]
    with pytest.raises(LayoutError, match="too many for a picture"):
        format_layout_svg(Layout((2, 2), (1, 1 << 30)), storage=True)
