"""The encoding of threads in shadows.

An entry of a shadow is the number of one thread, or `SEVERAL + w` for several threads of warp w, or a number that the caller
chooses (`many`) for threads of several warps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array, where

SEVERAL = 1024
"""The maximum number of threads in a block."""
WARPS = SEVERAL // WARP_SIZE


def is_one(threads: Any) -> Any:
    """True for entries of one thread."""
    return (threads >= 0) & (threads < SEVERAL)


def warp_of(threads: Any) -> Any:
    """The warp of an entry's threads; below 0 or at least `WARPS` if they belong to several warps."""
    return where(threads < SEVERAL, threads // WARP_SIZE, threads - SEVERAL)


def of_one_warp(threads: Any, others: Any) -> Array:
    """True where the threads of two entries all belong to the same warp."""
    warp = warp_of(threads)
    return (warp == warp_of(others)) & (warp >= 0) & (warp < WARPS)


def several(threads: Any, others: Any, many: int) -> Array:
    """The entry for the union of the threads of two different entries."""
    return where(of_one_warp(threads, others), warp_of(threads) + SEVERAL, many)


def shared_in_warps(threads: Array, warps: Iterable[int]) -> Array:
    """A mask of threads, extended to all threads of each of `warps` that has one of them."""
    out = threads.copy()
    for warp in warps:
        lanes = slice(warp * WARP_SIZE, (warp + 1) * WARP_SIZE)
        out[lanes] = threads[lanes].any()
    return out
