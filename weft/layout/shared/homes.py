"""In which block of a cluster the elements of a tile in shared memory lie, and where in its memory.

A *place* is an offset in a block's memory, with the rank of the block above the offset's bits. Places are linear: that of an
element is the XOR of those of its coordinates' bits. Bits of the rank in which blocks hold copies are free: places of elements
have them clear, and XOR with a copy's constant leads to that copy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from weft.layout.linear import f2
from weft.layout.linear.columns import combinations
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.maps import LinearLayout


class Homes:
    """The places of a tile's elements. `steps`: for each bit of the rank the constant that leads to the other copy, 0 if the
    blocks that differ in it hold different elements."""

    __slots__ = ("_span", "block_bits", "offset_bits", "steps")

    def __init__(self, shared: LinearLayout, block_bits: int) -> None:
        offsets, blocks = shared.columns["offset"], shared.columns["block"]
        blocks += (0,) * (block_bits - len(blocks))
        self.offset_bits = len(offsets)
        self.block_bits = block_bits
        self._span = Span((*offsets, *blocks))
        known = f2.independent((*offsets, *blocks)) >> len(offsets)
        self.steps = tuple(
            [
                0 if known >> bit & 1 else self.of(column) ^ 1 << bit + self.offset_bits
                for bit, column in enumerate(blocks)
            ]
        )

    def of(self, element: int) -> int:
        """The place of an element, by its row-major index in the tile."""
        return solved(self._span, element)

    def own(self, rank: int) -> int:
        """The constant that leads from places to the copies that a block itself holds, where it holds some."""
        return f2.apply(self.steps, rank)

    @property
    def copies(self) -> tuple[int, ...]:
        """The constants that lead from the place of an element to all of its copies, 0 first."""
        return tuple(combinations([step for step in self.steps if step]))

    def split(self, place: Any) -> tuple[Any, Any]:
        """The offset and the rank of a place; for ints and for integer arrays."""
        return place & (1 << self.offset_bits) - 1, place >> self.offset_bits


@lru_cache(maxsize=1024)
def homes(shared: LinearLayout, block_bits: int) -> Homes:
    """The places of a tile's elements in a cluster of 2 ** `block_bits` blocks."""
    return Homes(shared, block_bits)
