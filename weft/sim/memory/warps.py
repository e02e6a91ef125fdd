"""Threads as notes of accesses keep them, and what a warp's barrier orders among those.

A note has the number of one thread, or `SEVERAL + w` for several threads of warp w, or a number of its own (`many`) for several
threads of any warps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.layout import WARP_SIZE
from weft.sim.machine.data import Array, where

if TYPE_CHECKING:
    from weft.sim.memory.clocks import Counts

SEVERAL = 1024
"""More than there are threads in a block."""
WARPS = SEVERAL // WARP_SIZE


def is_one(threads: Any) -> Any:
    """Whether notes are of one thread each."""
    return (threads >= 0) & (threads < SEVERAL)


def _warp(threads: Any) -> Any:
    """The warp that all threads of a note are of; less than 0, or `WARPS` and more, if they are of several."""
    return where(threads < SEVERAL, threads // WARP_SIZE, threads - SEVERAL)


def of_one_warp(threads: Any, others: Any) -> Array:
    """Whether the threads of two notes are all of the same warp."""
    warp = _warp(threads)
    return (warp == _warp(others)) & (warp >= 0) & (warp < WARPS)


def several(threads: Any, others: Any, many: int) -> Array:
    """The notes of threads that differ, put together."""
    return where(of_one_warp(threads, others), _warp(threads) + SEVERAL, many)


def shared_in_warps(threads: Array, warps: Iterable[int]) -> Array:
    """These threads, as a mask, and all others of those warps that have one of them."""
    out = threads.copy()
    for warp in warps:
        lanes = slice(warp * WARP_SIZE, (warp + 1) * WARP_SIZE)
        out[lanes] = threads[lanes].any()
    return out


def in_order(known: dict[int, Counts], component: int, earlier: Any, later: Any, values: Any) -> Array:
    """Whether `known`, what the threads of each warp know, has the ends of earlier accesses before those of later ones.

    `earlier` and `later` are the notes of both, `values` the numbers of the earlier ones in their `component`."""
    counts = np.array([known.get(warp, {}).get(component, 0) for warp in range(WARPS)])
    alike = of_one_warp(earlier, later)
    return alike & (counts[where(alike, _warp(earlier), 0)] > values)
