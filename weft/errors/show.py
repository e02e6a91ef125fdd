"""Mistakes in asking for a picture of a layout, from Python or from the command line."""

from __future__ import annotations

from weft.errors.base import LayoutError, row

UNRESOLVED = row(
    "show-unresolved",
    LayoutError,
    "{layout} cannot be drawn: where elements lie is decided when a kernel that uses it is compiled",
    "draw the layout that the compiler chose, which is in the compiled kernel's .asm['ir']",
)
PADDED = row(
    "show-padded",
    LayoutError,
    "{layout} cannot be drawn: its padding leaves holes between the elements, so it is no map from offsets to a tile",
    "draw SharedLinearLayout(offset_bases, block_bases), the same order of elements without the padding",
)
SHAPE = row(
    "show-shape",
    LayoutError,
    "this linear layout covers a tile of shape {own}, not {shape}",
    "draw it for {own}",
)
TOO_LARGE = row(
    "show-too-large",
    LayoutError,
    "a tile of shape {shape} has {elements} elements, too many for a picture (at most {most})",
    "draw a smaller tile in the same layout",
)
TEXT = row(
    "show-text",
    LayoutError,
    "cannot read {text!r} as a layout: {reason}",
    "write it as in Python, for example 'BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])'",
)
SHAPE_TEXT = row(
    "show-shape-text",
    LayoutError,
    "cannot read {text!r} as the shape of a tile",
    "write the sizes with an x between them, for example 32x8",
)
