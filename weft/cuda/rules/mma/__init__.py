"""Rules of `weft.ops.mma`: MMAs of a warp and of a warpgroup."""

from weft.cuda.rules.mma import warp, warpgroup

__all__ = ["warp", "warpgroup"]
