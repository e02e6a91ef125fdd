"""Rules of `weft.ops.tma`."""

from weft.sim.rules.tma import copies, descriptors, gather

__all__ = ["copies", "descriptors", "gather"]
