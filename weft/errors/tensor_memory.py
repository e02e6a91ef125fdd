"""Mistakes about tensor memory: its layouts, allocation and views."""

from __future__ import annotations

from weft.errors.base import LayoutError, row

BLOCK = row(
    "tmem-block",
    LayoutError,
    "a block of tensor memory is 64 or 128 rows by a power of two of columns, not {block}",
    "write TensorMemoryLayout([128, N], col_stride=1)",
)
TWO_CTAS_BLOCKS = row(
    "tmem-two-ctas",
    LayoutError,
    "two_ctas=True spreads a tile over two blocks of a cluster, but the layout with {layout} has no cga_layout",
    "add cga_layout=[[1, 0]], and launch with num_ctas=2",
)
BLOCK_SHAPE = row(
    "tmem-block-shape",
    LayoutError,
    "what a block of the cluster holds of the tile, {shape}, is not made of whole blocks of {block} in {layout!r}",
    "choose a block that divides it",
)
