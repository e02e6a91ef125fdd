"""Tile IR to lowered IR: what each thread does, with every choice spelled. See `lower_tiles`."""

from weft.passes.lower.lower_tiles import lower_tiles

__all__ = ["lower_tiles"]
