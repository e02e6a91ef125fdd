"""Mistakes of loops that only their run in the simulator shows."""

from __future__ import annotations

from weft.errors.base import row
from weft.errors.hazard import EndlessLoop

LOOP_ENDLESS = row(
    "hazard-loop-endless",
    EndlessLoop,
    "program {program}: this loop has run for {iterations} iterations",
    "make its condition depend on something that changes; WEFT_MAX_ITERATIONS sets another bound",
)
