"""What a selection kernel is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHUNK = 1024
"""Elements that a warp reads at a time: 32 of each lane."""
PIECE = 128
"""Elements of a chunk that are searched at a time for those to keep."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The `k` best elements of rows of `dtype`, `unit` elements a load, each row in `parts` parts.

    `chunk` elements are read at a time, or are a whole row."""

    k: int
    largest: bool
    dtype: Any
    floating: bool
    chunk: int
    unit: int = 1
    parts: int = 1
    keys: int = 0

    @property
    def size(self) -> int:
        """Length of the list of the best elements, a power of two."""
        return 1 << (self.k - 1).bit_length()

    @property
    def groups(self) -> int:
        """Groups of a chunk whose best elements give the first threshold: at least four for each element that is wanted."""
        return min(self.chunk, max(PIECE, 4 * self.size))

    @property
    def eager(self) -> int:
        """Length of list and buffer from which on they are sorted: half a list more."""
        return self.size + max(8, self.size // 2)

    @property
    def capacity(self) -> int:
        """Places of list and buffer, a power of two: a piece fits at any time, and the last place is for what is not kept."""
        return 1 << (self.eager + PIECE).bit_length()
