"""Where machine code departs from the order of the text: waits for MMAs, and arrivals at mbarriers.

    acc = warpgroup_mma(...)                  HGMMA ...
    p = gl.exp2(s - top)                      WARPGROUP.DEPBAR.LE gsb0, 0x0      a departure at the wait's line: it stands
    acc = warpgroup_mma_wait(0, acc)          MUFU.EX2 ...                       before the exponentials, which overlap nothing

ptxas orders the instructions between two branches as it likes, if they do not depend on each other. Instructions are compared
by their Python lines: those of the operations on register arrays which the text has on the other side of a wait or an arrival,
back to the last MMA, wait or loop, and on to the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weft.analysis.flow import LOOPS, regions
from weft.errors import Loc
from weft.ir.core import Func, Op, walk
from weft.ir.types import RegsType
from weft.ops import arith, mbarrier, mma, regs

FEW = 8
"""So many instructions on the wrong side are no departure, unless one of them is of the special function unit."""

# They emit no instructions of their own.
FREE = frozenset({arith.constant, regs.splat, regs.affine, regs.extract, mma.begin})
ENDS = frozenset({mma.wgmma, mma.warpgroup_wait, *LOOPS})
"""Work is not moved across MMAs, their waits, and loops."""
ANCHORS = frozenset({mma.warpgroup_wait})
"""Functions without one of these are not examined."""
_INSTRUCTIONS = {mma.warpgroup_wait: "WARPGROUP.DEPBAR", mbarrier.arrive: "SYNCS.ARRIVE"}
_NAMES = {mma.warpgroup_wait: "the wait for MMAs", mbarrier.arrive: "the arrival"}
_BOUNDS = ("HGMMA", "IGMMA", "QGMMA", "WARPGROUP.DEPBAR", "BRA", "EXIT")

Line = tuple[str, int]


class Instruction(NamedTuple):
    """An instruction of machine code: its opcode with modifiers, its operands, and its Python line (None: unknown)."""

    opcode: str
    operands: str
    line: Line | None


@dataclass(frozen=True, slots=True)
class Departure:
    """A wait or an arrival that machine code has earlier (`hoisted`) or later than the text, seen from `count` instructions of
    `lines`, of which `special` are of the special function unit (exponentials and the like)."""

    loc: Loc
    what: str
    hoisted: bool
    count: int
    special: int
    lines: tuple[int, ...]

    def __str__(self) -> str:
        side = "before" if self.hoisted else "behind"
        of = f"line {self.lines[0]}" if len(self.lines) == 1 else f"lines {min(self.lines)} to {max(self.lines)}"
        special = f", {self.special} of them of the special function unit," if self.special else ""
        return (
            f"in machine code {self.what} stands {side} {self.count} instructions{special} of {of}, which are written "
            f"{side} it"
        )


def works(op: Op) -> bool:
    """Whether an operation of lowered IR computes, loads or stores register arrays, beside MMAs."""
    if op.kind in FREE or op.kind in ENDS or op.kind.terminator:
        return False
    return any(isinstance(value.type, RegsType) for value in (*op.results, *op.uses))


def departures(func: Func, code: Sequence[Instruction]) -> list[Departure]:
    """The departures of a lowered function's machine code, in the order of the text; one for each line and direction."""
    found: dict[tuple[Line, bool], Departure] = {}
    for op, before, after in _anchors(func):
        assert op.loc is not None
        here = (op.loc.file, op.loc.line)
        for at, instruction in enumerate(code):
            if instruction.line != here or not instruction.opcode.startswith(_INSTRUCTIONS[op.kind]):
                continue
            for hoisted, passed, lines in (
                (True, _until(code[at + 1 :]), before - after),
                (False, _until(reversed(code[:at])), after - before),
            ):
                wrong = [each for each in passed if each.line in lines]
                special = sum(each.opcode.startswith("MUFU") for each in wrong)
                if special == 0 and len(wrong) <= FEW:
                    continue
                known = found.get((here, hoisted))
                if known is None or known.count < len(wrong):
                    numbers = Counter(each.line[1] for each in wrong if each.line is not None)
                    what = _NAMES[op.kind]
                    found[here, hoisted] = Departure(op.loc, what, hoisted, len(wrong), special, tuple(sorted(numbers)))
    return list(found.values())


def _anchors(func: Func) -> Iterator[tuple[Op, set[Line], set[Line]]]:
    """The waits and arrivals, with the lines of the work before and behind each."""
    for region in regions(func.body):
        for i, op in enumerate(region.ops):
            if op.kind in _INSTRUCTIONS and op.loc is not None:
                yield op, _lines(reversed(region.ops[:i])), _lines(region.ops[i + 1 :])


def _lines(ops: Iterable[Op]) -> set[Line]:
    found: set[Line] = set()
    for op in ops:
        if op.kind in ENDS:
            break
        inside = (op, *(inner for region in op.regions for inner in walk(region)))
        found |= {(each.loc.file, each.loc.line) for each in inside if works(each) and each.loc is not None}
    return found


def _until(code: Iterable[Instruction]) -> Iterator[Instruction]:
    """The instructions up to the next one across which ptxas does not move work."""
    for instruction in code:
        if instruction.opcode.startswith(_BOUNDS):
            return
        yield instruction
