"""Every mistake with nested layouts: its code, and the two things that disagree."""

from __future__ import annotations

import numpy as np
import pytest

from weft import LayoutTensor
from weft.errors import LayoutError
from weft.errors import nested as rows
from weft.errors.base import Row
from weft.layout import (
    UNKNOWN,
    ComposedLayout,
    Layout,
    LinearLayout,
    Swizzle,
    compact_order,
    complement,
    composition,
    expand_modes_alike,
    format_layout,
    from_linear,
    left_inverse,
    logical_divide,
    make_ordered_layout,
    make_swizzle,
    right_inverse,
    shape_div,
    tile_to_shape,
    to_linear,
    transpose,
    upcast,
)

WAVE = LinearLayout.make({"i": [[1], [3]]}, [("offset", 4)])
MATRIX = Layout.row_major(4, 8)

MISTAKES = [
    ("strided-number", ["2.5"], lambda: Layout((4, 2.5))),
    ("strided-number", ["'4'"], lambda: Layout("4")),
    ("strided-number", ["None"], lambda: Layout((4, None))),
    ("strided-swizzle-numbers", ["'a'"], lambda: Swizzle("a", 0, 0)),
    ("strided-swizzle-numbers", ["1.0"], lambda: Swizzle(1.0, 0, 2)),
    ("strided-swizzle-bits", ["63 bits"], lambda: Swizzle(2**40, 0, 2**40)),
    ("strided-offsets", ["63 bits"], lambda: LayoutTensor(np.zeros(4), Layout(2**70))),
    ("strided-negative-size", ["-2", "(4, -2)"], lambda: Layout((4, -2))),
    ("strided-congruent", ["(4, 8)", "(8, (1, 1))"], lambda: Layout((4, 8), (8, (1, 1)))),
    ("strided-congruent", ["(4, 8)", "1"], lambda: Layout((4, 8), 1)),
    ("strided-coordinate", ["(1, 2, 3)", "(4, 8) of rank 2"], lambda: MATRIX(1, 2, 3)),
    ("strided-mode", ["no mode 2", "rank is 2", "0 to 1"], lambda: MATRIX[2]),
    ("strided-order", ["(0, 0)", "2 modes"], lambda: transpose(MATRIX, (0, 0))),
    ("strided-order", ["(0, 1, 2)", "(4, 8)"], lambda: make_ordered_layout((4, 8), (0, 1, 2))),
    ("strided-shape-div", ["shape 6", "by 4"], lambda: shape_div((6, 8), 4)),
    ("strided-compact-order", ["(0, 1)", "(2, (3, 4))"], lambda: compact_order((2, (3, 4)), (0, 1))),
    ("strided-alike", ["8 stands opposite (2, 2)"], lambda: expand_modes_alike(MATRIX, Layout((4, (2, 2))))),
    ("strided-unknown", ["composition", "((?, 4):(4, 1))"], lambda: composition(Layout.row_major(UNKNOWN, 4), 2)),
    ("strided-unknown", ["right_inverse"], lambda: right_inverse(Layout(UNKNOWN))),
    ("strided-empty", ["complement", "(0:1)"], lambda: complement(Layout(0))),
    ("strided-tiler", ["3 modes", "rank is 2"], lambda: logical_divide(MATRIX, (2, 2, 2))),
    ("strided-tiler", ["2 modes", "rank is 1"], lambda: tile_to_shape(Layout((2, 2)), (8,))),
    (
        "strided-divide",
        ["((4, 2):(1, 10))", "(6:1)", "mode (4:1) of the first"],
        lambda: composition(Layout((4, 2), (1, 10)), Layout(6)),
    ),
    ("strided-divide", ["mode (3:4)", "mode (6:1)"], lambda: composition(Layout((6, 4), (1, 10)), Layout(3, 4))),
    (
        "strided-carry",
        ["mode (2:1)", "(2, 2):(1, 1)"],
        lambda: composition(Layout((2, 2), (1, 10)), Layout((2, 2), (1, 1))),
    ),
    ("strided-complement", ["(4:6)", "span 8"], lambda: complement(Layout((8, 4), (1, 6)), 64)),
    ("strided-complement", ["(2:1)", "span 2"], lambda: complement(Layout((2, 2), (1, 1)))),
    ("strided-complement", ["(4:-1)"], lambda: complement(Layout(4, -1))),
    ("strided-injective", ["(4:0)", "4 elements at one offset"], lambda: left_inverse(Layout((2, 4), (1, 0)))),
    ("strided-upcast", ["(8:3)", "4 elements"], lambda: upcast(Layout((8, 2), (3, 24)), 4)),
    ("strided-upcast", ["(6:1)"], lambda: upcast(Layout(6), 4)),
    (
        "strided-tile-to-shape",
        ["(4, 3)", "(8, 8)", "8 is not a multiple of 3"],
        lambda: tile_to_shape(Layout((4, 3)), (8, 8)),
    ),
    ("strided-swizzle", ["Swizzle(3, 0, 2)", "3 bits shifted by 2"], lambda: Swizzle(3, 0, 2)),
    ("strided-swizzle", ["Swizzle(1, -1, 2)"], lambda: Swizzle(1, -1, 2)),
    ("strided-swizzle-row", ["rows of 48", "vectors of 8"], lambda: make_swizzle(48, 8, element_bytes=2)),
    ("strided-linear-carry", ["(4:3)", "offsets 3 and 6"], lambda: to_linear(Layout(4, 3))),
    ("layout-power-of-two", ["(3, 4)", "3"], lambda: to_linear(Layout(((3, 4), 2)))),
    (
        "strided-linear-outer",
        ["Swizzle(1, 0, 1) o 4 o"],
        lambda: to_linear(ComposedLayout(Swizzle(1, 0, 1), 4, MATRIX)),
    ),
    ("strided-linear-outer", ["o 0 o"], lambda: to_linear(ComposedLayout(Layout(8), 0, MATRIX))),
    ("strided-linear-xor", ["1 and 3"], lambda: from_linear(WAVE)),
    ("strided-grid", ["rank 3"], lambda: format_layout(Layout((2, 2, 2)))),
    ("strided-unknown", ["format_layout"], lambda: format_layout(Layout(UNKNOWN))),
    ("show-too-large", ["too many for a picture"], lambda: format_layout(Layout((2048, 2048)))),
]


@pytest.mark.parametrize(
    ("code", "texts", "wrong"), MISTAKES, ids=[f"{code}-{texts[0]}" for code, texts, _ in MISTAKES]
)
def test_mistake(code, texts, wrong):
    with pytest.raises(LayoutError) as caught:
        wrong()
    assert caught.value.code == code, str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def test_every_row_has_a_mistake():
    codes = {entry.code for entry in vars(rows).values() if isinstance(entry, Row)}
    assert codes <= {code for code, _, _ in MISTAKES}
