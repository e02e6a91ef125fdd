"""The encoding of threads in shadows, and the order that a warp's barrier establishes among them.

An entry of a shadow is the number of one thread, or `SEVERAL + w` for several threads of warp w, or a number that the caller
chooses (`many`) for threads of several warps.
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
"""The maximum number of threads in a block."""
WARPS = SEVERAL // WARP_SIZE


def is_one(threads: Any) -> Any:
    """True for entries of one thread."""
    return (threads >= 0) & (threads < SEVERAL)


def _warp(threads: Any) -> Any:
    """The warp of an entry's threads; below 0 or at least `WARPS` if they belong to several warps."""
    return where(threads < SEVERAL, threads // WARP_SIZE, threads - SEVERAL)


def of_one_warp(threads: Any, others: Any) -> Array:
    """True where the threads of two entries all belong to the same warp."""
    warp = _warp(threads)
    return (warp == _warp(others)) & (warp >= 0) & (warp < WARPS)


def several(threads: Any, others: Any, many: int) -> Array:
    """The entry for the union of the threads of two different entries."""
    return where(of_one_warp(threads, others), _warp(threads) + SEVERAL, many)


def shared_in_warps(threads: Array, warps: Iterable[int]) -> Array:
    """A mask of threads, extended to all threads of each of `warps` that has one of them."""
    out = threads.copy()
    for warp in warps:
        lanes = slice(warp * WARP_SIZE, (warp + 1) * WARP_SIZE)
        out[lanes] = threads[lanes].any()
    return out


def in_order(known: dict[int, Counts], component: int, earlier: Any, later: Any, values: Any) -> Array:
    """True where a barrier of their common warp orders earlier accesses before later ones. `known`: the clock of each warp.

    `earlier` and `later` are the entries of both, `values` the event numbers of the earlier ones in `component`."""
    counts = np.array([known.get(warp, {}).get(component, 0) for warp in range(WARPS)])
    alike = of_one_warp(earlier, later)
    return alike & (counts[where(alike, _warp(earlier), 0)] > values)
