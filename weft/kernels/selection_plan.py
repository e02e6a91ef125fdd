"""What a selection kernel is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHUNK = 1024
"""Elements that a warp reads at a time: 32 of each lane."""
GROUPS = 128
"""Least number of groups of the first chunk whose best elements give the first threshold."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The `k` best elements of rows of `dtype`, `unit` elements a load, each row in `parts` parts of `keys` keys together.

    `chunk` elements are read at a time, or are a whole row. Rows that are `ragged` begin or end between aligned vectors."""

    k: int
    largest: bool
    dtype: Any
    floating: bool
    chunk: int
    unit: int = 1
    ragged: bool = False
    parts: int = 1
    keys: int = 0

    @property
    def size(self) -> int:
        """Length of the list of the best elements, a power of two."""
        return 1 << (self.k - 1).bit_length()

    @property
    def groups(self) -> int:
        """Groups of the first chunk: at least four for each element that is wanted."""
        return min(self.chunk, max(GROUPS, 4 * self.size))

    @property
    def piece(self) -> int:
        """Elements of a chunk that are searched at a time, a few of each lane."""
        return 32 * max(4, self.unit)

    @property
    def grid(self) -> tuple[list[int], int]:
        """The shape of a chunk in which each piece has a row, and the axis that lies in a lane's registers."""
        pieces = self.chunk // self.piece
        return ([pieces, 4, 32], 1) if self.unit < 4 else ([pieces, 32, self.unit], 2)

    @property
    def sorted(self) -> int:
        """Keys that are sorted at a time: the list, and as many new ones, or what makes one for each lane."""
        return max(32, 2 * self.size)

    @property
    def capacity(self) -> int:
        """Places of list and buffer, a power of two. Before a piece is added, less than `sorted` of them are taken, and the
        last keys to be sorted begin `size` before the end of what is taken."""
        return 1 << (2 * self.sorted + self.piece - self.size - 1).bit_length()
