"""Lowering of tile IR to per-thread operations on register arrays, one module per family. See `lower_tiles`."""

from weft.passes.lower.lower_tiles import lower_tiles

__all__ = ["lower_tiles"]
