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
VARIANT = row(
    "tmem-variant",
    LayoutError,
    "there is no instruction {variant!r} between tensor memory and registers",
    "choose one of {known}",
)
WARPS = row(
    "tmem-warps",
    LayoutError,
    "tensor memory is read and written by 4, 8, 16 or 32 warps, since each reaches a quarter of the lanes; not by {num_warps}",
    "launch with num_warps=4 or 8, or give the partition as many",
)
REGISTER_LAYOUT = row(
    "tmem-register-layout",
    LayoutError,
    "instructions {variant} do not fit a tile of {shape} elements of {bits} bits in {layout!r} on {num_warps} warps",
    'use instr_variant="32x32b" and convert_layout; col_stride is 1, or 32 / bits to give each element a column',
)
