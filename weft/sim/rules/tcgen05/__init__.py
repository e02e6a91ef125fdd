"""Rules of `weft.ops.tcgen05`: of whole tiles, and of the instructions that they become."""

from weft.sim.rules.tcgen05 import issue, tiles

__all__ = ["issue", "tiles"]
