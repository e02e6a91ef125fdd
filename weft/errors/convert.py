"""Mistakes in conversions between layouts."""

from __future__ import annotations

from weft.errors.base import LayoutError, row

SHAPE = row(
    "convert-shape",
    LayoutError,
    "cannot convert a tile of shape {src} to a layout of shape {dst}",
    "make the second layout for shape {src}, or reshape the tile first",
)
THREADS = row(
    "convert-threads",
    LayoutError,
    "cannot convert between layouts of {src} and {dst} warps",
    "use layouts of as many warps as the tile has now, {src}",
)
BLOCKS = row(
    "convert-blocks",
    LayoutError,
    "this conversion moves elements between the blocks of a cluster: their bases are {src} before and {dst} after",
    "keep the same ctas_per_cga, cta_split_num and cta_order in both layouts",
)
