"""Register fragments of MMA instructions as matrices (PTX ISA, mma.m16n8k16: "Matrix Fragments"; wgmma: "Register Fragments").

A *chain* is the sequence of an operation's steps that add to the same accumulator registers, ordered along k. Matrices are
arrays (chains, groups, rows, columns). A group is the set of warps that execute an instruction together: four for `wgmma`, one
for `mma.sync`. Each warp holds 16 rows of the accumulator and of the left operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.sim.machine.data import Array

QUADS = (8, 4)
"""The lanes of a warp: quads along the outer dimension, and lanes of a quad along the inner one."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain: its first accumulator register, the first registers of a and of b for each step, and whether its first step is
    the first along k."""

    acc: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    fresh: bool


def chains(steps: Sequence[tuple[int, ...]]) -> list[Chain]:
    """The chains of an operation's `steps`: (accumulator, a, b) and, for `wgmma`, whether a step is the first along k."""
    by_register: dict[int, list[tuple[int, ...]]] = {}
    for step in steps:
        by_register.setdefault(step[0], []).append(step)
    return [
        Chain(acc, tuple(s[1] for s in own), tuple(s[2] for s in own), bool(own[0][3:] and own[0][3]))
        for acc, own in by_register.items()
    ]


def left_matrices(registers: Array, firsts: Sequence[tuple[int, ...]], k: int, warps: int) -> Array:
    """Left operands from (threads, registers), `k` columns per step, given the first registers of each chain's steps."""
    return _swapped(_operands(registers, firsts, k, 2), warps)


def right_matrices(registers: Array, firsts: Sequence[tuple[int, ...]], k: int) -> Array:
    """Right operands of `mma.sync`: `k` rows per step by 8 columns."""
    return np.swapaxes(_swapped(_operands(registers, firsts, k, 1), 1), -1, -2)


def _operands(registers: Array, firsts: Sequence[tuple[int, ...]], k: int, outer: int) -> Array:
    """Operands that are contiguous along k: (threads, chains, steps, inner repeats, outer repeats, elements per register)."""
    width = k // 8
    own = np.arange(2 * outer * width).reshape(2, outer, width)
    return registers[:, np.array(firsts)[..., None, None, None] + own]


def _swapped(x: Array, warps: int) -> Array:
    """Matrices with k as the last axis, from the result of `_operands`."""
    threads, chains, steps, inner, outer, width = x.shape
    split = x.reshape(-1, warps, *QUADS, chains, steps, inner, outer, width)
    # chains, groups, (warps, outer repeats, quads), (steps, inner repeats, lanes of a quad, elements per register)
    ordered = split.transpose(4, 0, 1, 7, 2, 5, 6, 3, 8)
    return ordered.reshape(chains, threads // 32 // warps, warps * outer * QUADS[0], -1)


def accumulator_matrices(registers: Array, firsts: Sequence[int], n: int, warps: int) -> Array:
    """Accumulators of `n` columns, given the first register of each chain."""
    x = registers[:, _accumulator(firsts, n)]
    split = x.reshape(-1, warps, *QUADS, len(firsts), n // 8, 2, 2)
    # chains, groups, (warps, halves, quads), (blocks of 8 columns, lanes of a quad, adjacent columns)
    return split.transpose(4, 0, 1, 6, 2, 5, 3, 7).reshape(len(firsts), -1, warps * 16, n)


def put_accumulators(registers: Array, firsts: Sequence[int], matrices: Array, warps: int) -> None:
    """Write accumulators back to their registers, in place."""
    chains, groups, _, n = matrices.shape
    split = matrices.reshape(chains, groups, warps, 2, QUADS[0], n // 8, QUADS[1], 2)
    threads = split.transpose(1, 2, 4, 6, 0, 5, 3, 7).reshape(len(registers), chains, n // 2)
    registers[:, _accumulator(firsts, n)] = threads


def _accumulator(firsts: Sequence[int], n: int) -> Array:
    return np.array(firsts)[:, None] + np.arange(n // 2)
