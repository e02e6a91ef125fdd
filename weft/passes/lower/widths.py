"""The vector widths that a lowering chose for accesses, for reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.errors import Loc

Reason = Literal["elements", "neighbours", "stride", "offsets", "alignment", "mask"]
"""Why an access is not wider: the thread holds too few elements; they are not consecutive in memory; their stride is known at
run time only; too little is known of their offsets; the first address is not known to be aligned to the width; the mask is not
known to be the same for all."""


@dataclass(frozen=True, slots=True)
class Width:
    """The vector width of an access, for reports: `vec` elements of `itemsize` bytes, and the reason against twice as many."""

    loc: Loc | None
    vec: int
    itemsize: int
    reason: Reason | None

    @property
    def bytes(self) -> int:
        """The bytes that a thread moves per access."""
        return self.vec * self.itemsize
