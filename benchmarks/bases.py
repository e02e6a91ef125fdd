"""Copies whose base offset is computed by shifts, masks, branches or loops, compared with the plain copy.

Each thread moves 16 bytes at a time if the compiler knows that the base is a multiple of four elements.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import weft
from benchmarks import harness
from benchmarks.copies import line, outcome
from benchmarks.report import Goal, Line
from weft import language as gl

TITLE = "Copies by the way their base is computed"
NEEDS_GPU = True
NUMEL = 1 << 29
ROW = 2048
STEP = 512
LINE = gl.BlockedLayout([4], [32], [4], [0])


@weft.jit
def copy(src, dst, numel, first, LENGTH: gl.constexpr):
    at = first + gl.arange(0, LENGTH, LINE)
    gl.store(dst + at, gl.load(src + at, mask=at < numel), mask=at < numel)


@weft.jit
def product(src, dst, numel, rounds):
    copy(src, dst, numel, gl.program_id(0) * ROW, ROW)


@weft.jit
def shift(src, dst, numel, rounds):
    copy(src, dst, numel, (gl.program_id(0) * (4 * ROW)) >> 2, ROW)


@weft.jit
def bits(src, dst, numel, rounds):
    copy(src, dst, numel, (gl.program_id(0) * ROW + (rounds & 3)) & ~3, ROW)


@weft.jit
def branch(src, dst, numel, rounds):
    if rounds > 3:
        first = gl.program_id(0) * ROW
    else:
        first = (gl.num_programs(0) - 1 - gl.program_id(0)) * ROW
    copy(src, dst, numel, first, ROW)


@weft.jit
def carried_by_while(src, dst, numel, rounds):
    first = gl.program_id(0) * ROW
    end = first + ROW
    while first < end:
        copy(src, dst, numel, first, STEP)
        first += STEP


@weft.jit
def carried_by_for(src, dst, numel, rounds):
    first = gl.program_id(0) * ROW
    for _ in range(rounds):
        copy(src, dst, numel, first, STEP)
        first += STEP


def run(quick: bool) -> list[Line]:
    """Every variant and the plain copy, interleaved; the goal is the speed of the plain copy."""
    import torch

    src = torch.randn(NUMEL, device="cuda")
    dst = torch.empty_like(src)

    def launch(kernel: Any) -> Any:
        return partial(kernel[(NUMEL // ROW,)], src, dst, NUMEL, ROW // STEP)

    jobs: harness.Jobs = {
        kernel.__name__.replace("_", " "): {"weft": launch(kernel), "product": launch(product)}
        for kernel in (shift, bits, branch, carried_by_while, carried_by_for)
    }
    rounds = 8 if quick else 30
    found = harness.race(jobs, harness.CudaClock(), rounds, nbytes=2 * NUMEL * 4, **outcome(dst, src))
    return [line(f"2 GiB, {case}", speed, (Goal(0.99, "product"),)) for case, speed in found.items()]
