"""Polls as prelude functions: a loop of relaxed loads, and one fence once the expected value has been seen.

`while (ld.relaxed(p) != expected) {}  fence.acq_rel` is an acquire pattern (PTX ISA, "Release and Acquire Patterns"). It is
cheaper than a loop of `ld.acquire`, each of which invalidates the first-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.cuda.emitter import Emitter
from weft.cuda.rules.program import program_index
from weft.cuda.text.prelude import Piece
from weft.cuda.text.spelling import c_type
from weft.ir.types import DType

PATIENCE = 2_000_000_000
"""The time-out of waits in debug builds, in nanoseconds."""
_LETTER = {16: "h", 32: "r", 64: "l"}
End = Literal["never", "until", "watched", "signal", "silent"]
"""When a poll gives up: never, at a time that it is given, or after `PATIENCE` or the time that a wait for a signal has, when
it stops the kernel, "silent" without a message."""


@dataclass(frozen=True, slots=True)
class Poll:
    """One kind of poll: element type, memory order and scope, whether it is predicated, when it gives up, and whether later
    counts end it, too."""

    dtype: DType
    order: str
    scope: str
    masked: bool
    end: End
    at_least: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        ending = [] if self.end == "never" else [self.end]
        least = ["at_least"] * self.at_least
        return "_".join(["poll", *least, self.dtype.code, self.order, self.scope, *["if"] * self.masked, *ending])


def clock(e: Emitter) -> str:
    """The name of the function that reads the global timer."""
    return e.pieces.use("nanoseconds")


def function(e: Emitter, poll: Poll) -> str:
    """`bool f(p, expected[, on][, until | text | text, patience, details])`; what is predicated off gives false."""
    kind, bits = c_type(poll.dtype), poll.dtype.bits
    on = (", bool on", "  if (!on) return false;\n") if poll.masked else ("", "")
    load = (
        f'u{bits} seen; asm volatile("ld.relaxed.{poll.scope}.global.b{bits} %0, [%1];" : "={_LETTER[bits]}"(seen) : "l"(p) '
        ': "memory");'
    )
    fence = f'  asm volatile("fence.acq_rel.{poll.scope};" ::: "memory");\n' if poll.order == "acquire" else ""
    argument, before, late = _ending(e, poll)
    met = f"({kind})(seen - (u{bits})expected) >= 0" if poll.at_least else f"({kind})seen == expected"
    text = (
        f"DEV bool {poll.name}({kind}* p, {kind} expected{on[0]}{argument}) {{\n{on[1]}{before}"
        f"  for (;;) {{\n    {load}\n    if ({met}) break;{late} }}\n"
        f"{fence}  return true; }}"
    )
    return e.pieces.define(poll.name, Piece(text))


def _ending(e: Emitter, poll: Poll) -> tuple[str, str, str]:
    """How a poll gives up: its parameter, a statement before the loop, and a statement in it."""
    if poll.end == "never":
        return "", "", ""
    clock(e)
    if poll.end == "until":
        return ", u64 until", "", "\n    if (nanoseconds() >= until) return false;"
    place = f"{program_index(e, 0)}, blockIdx.y, blockIdx.z"
    if poll.end == "silent":
        late = '\n    if (nanoseconds() - start > patience) asm volatile("trap;");'
        return ", u64 patience", "  const u64 start = nanoseconds();\n", late
    if poll.end == "signal":
        stop = f'printf(text, rank, {place}, source, flag); asm volatile("trap;");'
        return (
            ", const char* text, u64 patience, int rank, int source, int flag", "  const u64 start = nanoseconds();\n",
            f"\n    if (nanoseconds() - start > patience) {{ {stop} }}",
        )  # fmt: skip
    stop = f'printf(text, p, (i64)expected, (i64)seen, {place}); asm volatile("trap;");'
    return (
        ", const char* text", "  const u64 start = nanoseconds();\n",
        f"\n    if (nanoseconds() - start > {PATIENCE}ull) {{ {stop} }}",
    )  # fmt: skip
