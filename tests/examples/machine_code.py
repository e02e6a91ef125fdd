"""Instructions of disassembled kernels: all of them, or those of the loop in which most multiplications are."""

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
