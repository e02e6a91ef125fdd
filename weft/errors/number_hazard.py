"""What the simulator reports of integers as such: that one wrapped, a division by zero, a loop that makes no step."""

from __future__ import annotations

from weft.errors.base import row
from weft.errors.hazard import DivisionByZero, EndlessLoop, WrappedOffset

WRAPPED = row(
    "hazard-wrapped-offset",
    WrappedOffset,
    "program {program}: an offset used here wrapped around 32 bits{where}",
    "compute it in 64 bits: cast an operand with .to(gl.int64) before it is multiplied",
)
WRAPPED_MASK = row(
    "hazard-wrapped-mask",
    WrappedOffset,
    "program {program}: the mask of an access depends on an integer that wrapped around 32 bits{where}",
    "compute it in 64 bits: cast an operand with .to(gl.int64); where it is meant to wrap, as in a hash, compute in gl.uint32",
)
DIVISION = row(
    "hazard-division-by-zero",
    DivisionByZero,
    "program {program} divides by zero{where}",
    "keep the divisor away from zero, for example by `other=1` where the load is masked",
)
LOOP_STEP = row(
    "hazard-loop-step",
    EndlessLoop,
    "program {program}: a loop from {lower} to {upper} has step 0",
    "use a step that is not zero; on a GPU such a loop has no iterations",
)
