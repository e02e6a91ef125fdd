"""The memory spaces that each block has, allocations in them, and handles to these.

Executing an allocation begins a new `Allocation`: the previous contents of its bytes count as never written. The author's
buffers and the compiler's scratch are treated alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from weft.errors import Row, hazard
from weft.ir.core import Op
from weft.layout.tensor_memory.layouts import LANES

CELL = 4
"""Bytes of a granule of tensor memory: one 32-bit cell, a lane of a column (PTX ISA, "Tensor Memory Addressing")."""
COLUMNS = 512
COLUMN_BYTES = LANES * CELL


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """A memory space that each block has.

    `granule`: bytes that share one entry for last accesses and last writer (0: the size of the kernel's smallest element
    there). `unit`: bytes that share one undefined flag (0: a granule); elements may be smaller than a granule, but not than a
    unit. `limit`: capacity in bytes (0: whatever the kernel needs). `alignment`: alignment of allocations without an offset.
    `part_number`, `never_written` and `uninitialized` are message texts and the catalogue row of reports."""

    part_number: str
    granule: int
    unit: int
    limit: int
    alignment: int
    never_written: str
    uninitialized: Row


SHARED = Space(
    "the number of a part of shared memory",
    0,
    0,
    0,
    1024,
    "the shared memory it was read from was never written",
    hazard.UNINITIALIZED,
)
# The cell of a lane and a column lies at byte `column * 512 + lane * 4`, so that the columns of an allocation are contiguous.
TENSOR = Space(
    "the number of a part of tensor memory", CELL, 1, COLUMNS * COLUMN_BYTES, COLUMN_BYTES,
    "the tensor memory it was read from was never written", hazard.TENSOR_UNINITIALIZED,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """An executed allocation: its number (from 1), its bytes, and its name in reports ('' for the compiler's scratch).

    `leading`: the extents of an array of tiles or barriers, which lie `stage` bytes apart."""

    number: int
    start: int
    size: int
    name: str
    op: Op
    leading: tuple[int, ...] = ()
    stage: int = 0
    space: Space = SHARED

    def part(self, byte: int) -> str:
        """The name in reports of the part that holds a byte: `buffers[1]`, or the plain name if there is one part only."""
        name = self.name or "the compiler's scratch memory"
        number = (byte - self.start) // self.stage if self.stage else -1
        if not 0 <= number < prod(self.leading):
            return name
        return f"{name}[{', '.join(map(str, map(int, np.unravel_index(number, self.leading))))}]"


@dataclass(frozen=True, slots=True)
class Handle:
    """The run-time value of a memory handle: an allocation, the byte at which the view's first tile starts, and the coordinates
    within the tile at which the view starts (empty: at the tile's origin)."""

    memory: Allocation
    base: int
    start: tuple[int, ...] = ()
