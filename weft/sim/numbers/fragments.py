"""Registers of tensor core instructions as matrices (PTX ISA, "Matrix Fragments for mma" and "Register Fragments for wgmma").

A *chain* is the steps of an operation that add to the same accumulator registers, in order along k. Matrices come as arrays
(chains, groups, rows, columns): a group is the warps that execute an instruction together, four for `wgmma` and one for
`mma.sync`, each of which holds 16 rows of the accumulator and of the left operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.sim.machine.data import Array

QUADS = (8, 4)
"""Lanes of a warp: groups along the outer dimension, and lanes of a group along the inner one."""


@dataclass(frozen=True, slots=True)
class Chain:
    """First accumulator register; of each step the first of a, and of b; whether it begins along k."""

    acc: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    fresh: bool


def chains(steps: Sequence[tuple[int, ...]]) -> list[Chain]:
    """The chains of an operation's `steps`: (accumulator, a, b) and, of `wgmma`, whether a step is the first along k."""
    by_register: dict[int, list[tuple[int, ...]]] = {}
    for step in steps:
        by_register.setdefault(step[0], []).append(step)
    return [
        Chain(acc, tuple(s[1] for s in own), tuple(s[2] for s in own), bool(own[0][3:] and own[0][3]))
        for acc, own in by_register.items()
    ]


def left_matrices(registers: Array, firsts: Sequence[tuple[int, ...]], k: int, warps: int) -> Array:
    """Left operands of `k` columns a step from (threads, registers), given the first registers of each chain's steps."""
    return _swapped(_operands(registers, firsts, k, 2), warps)


def right_matrices(registers: Array, firsts: Sequence[tuple[int, ...]], k: int) -> Array:
    """Right operands of `mma.sync`, `k` rows a step and 8 columns."""
    return np.swapaxes(_swapped(_operands(registers, firsts, k, 1), 1), -1, -2)


def _operands(registers: Array, firsts: Sequence[tuple[int, ...]], k: int, outer: int) -> Array:
    """(threads, chains, steps, inner repeats, outer repeats, neighbours) of operands contiguous along k."""
    width = k // 8
    own = np.arange(2 * outer * width).reshape(2, outer, width)
    return registers[:, np.array(firsts)[..., None, None, None] + own]


def _swapped(x: Array, warps: int) -> Array:
    """Matrices with k last from `_operands`."""
    threads, chains, steps, inner, outer, width = x.shape
    split = x.reshape(-1, warps, *QUADS, chains, steps, inner, outer, width)
    # chains, groups, (warps, outer repeats, groups of lanes), (steps, inner repeats, lanes of a group, neighbours)
    ordered = split.transpose(4, 0, 1, 7, 2, 5, 6, 3, 8)
    return ordered.reshape(chains, threads // 32 // warps, warps * outer * QUADS[0], -1)


def accumulator_matrices(registers: Array, firsts: Sequence[int], n: int, warps: int) -> Array:
    """Accumulators of `n` columns, given the first register of each chain."""
    x = registers[:, _accumulator(firsts, n)]
    split = x.reshape(-1, warps, *QUADS, len(firsts), n // 8, 2, 2)
    # chains, groups, (warps, halves, groups of lanes), (eights of columns, lanes of a group, neighbours)
    return split.transpose(4, 0, 1, 6, 2, 5, 3, 7).reshape(len(firsts), -1, warps * 16, n)


def put_accumulators(registers: Array, firsts: Sequence[int], matrices: Array, warps: int) -> None:
    """Put accumulators back into their registers."""
    chains, groups, _, n = matrices.shape
    split = matrices.reshape(chains, groups, warps, 2, QUADS[0], n // 8, QUADS[1], 2)
    threads = split.transpose(1, 2, 4, 6, 0, 5, 3, 7).reshape(len(registers), chains, n // 2)
    registers[:, _accumulator(firsts, n)] = threads


def _accumulator(firsts: Sequence[int], n: int) -> Array:
    return np.array(firsts)[:, None] + np.arange(n // 2)
