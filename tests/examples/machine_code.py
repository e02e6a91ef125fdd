"""Instructions of disassembled kernels: all of them, those of the loop in which most multiplications are, and those that write
registers which an MMA in flight reads."""

from __future__ import annotations

import re

LABEL = re.compile(r"(\.L_x_\d+):")
INSTRUCTION = re.compile(r"\S+:\S+:\S+:\S+:\S+\s+(?:@!?U?P\w+\s+)?([^;]+);")
BACK = re.compile(r"BRA\b.*`\((\.L_x_\d+)\)")


def mnemonics(sass: str) -> list[str]:
    """The instructions in order: `FFMA`, `LDS.128` and so on."""
    return [found[1].split()[0] for line in sass.splitlines() if (found := INSTRUCTION.match(line))]


def main_loop(sass: str) -> list[str]:
    """The instructions of the smallest loop that has as many FFMA as any."""
    labels: dict[str, int] = {}
    loops: list[list[str]] = []
    names: list[str] = []
    for line in sass.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(names)
        elif found := INSTRUCTION.match(line):
            names.append(found[1].split()[0])
            back = BACK.search(found[1])
            if back and back[1] in labels:
                loops.append(names[labels[back[1]] :])
    return max(loops, key=lambda loop: (loop.count("FFMA"), -len(loop)))


Flights = tuple[frozenset[int], ...]
"""The registers of operand A of each group of wgmmas in flight, the oldest first."""
_WIDTHS = {".128": 4, ".64": 2}
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")


def written_in_flight(sass: str) -> list[str]:
    """The instructions that write a register of operand A of a wgmma before a wait has completed it, on any path."""
    lines = [line for line in sass.splitlines() if LABEL.match(line) or INSTRUCTION.match(line)]
    places = {label[1]: i for i, line in enumerate(lines) if (label := LABEL.match(line))}
    seen: dict[int, set[Flights]] = {}
    work: list[tuple[int, Flights, frozenset[int]]] = [(0, (), frozenset())]
    found: set[int] = set()
    while work:
        at, flights, opened = work.pop()
        while at < len(lines):
            line = lines[at]
            if LABEL.match(line):
                if flights in seen.setdefault(at, set()):
                    break
                seen[at].add(flights)
                at += 1
                continue
            name, _, rest = INSTRUCTION.match(line)[1].partition(" ")
            if name.startswith(("HGMMA", "IGMMA", "QGMMA")):
                operand = rest.split(",")[1].strip()
                if operand.startswith("R"):
                    opened |= set(range(int(operand[1:]), int(operand[1:]) + 4))
                if "gsb0" in rest:
                    flights, opened = (*flights, opened), frozenset()
            elif name.startswith("WARPGROUP.DEPBAR"):
                left = int(rest.split(",")[1], 16)
                flights = flights[len(flights) - left :] if left < len(flights) else flights
                flights = () if left == 0 else flights
            elif _written(name, rest) & opened.union(*flights):
                found.add(at)
            target = _TARGET.search(rest)
            if name == "BRA" and target:
                work.append((places[target[1]], flights, opened))
            if name in ("BRA", "EXIT") and "@" not in line:
                break
            at += 1
    return [lines[at] for at in sorted(found)]


def _written(name: str, rest: str) -> set[int]:
    if name.startswith(("ST", "RED", "BAR", "SYNCS", "UTMA")):
        return set()
    first = re.match(r"(?:!?U?P[T\d]+, )*R(\d+)\b", rest)
    width = next((count for mark, count in _WIDTHS.items() if name.endswith(mark)), 1)
    return set(range(int(first[1]), int(first[1]) + width)) if first else set()
