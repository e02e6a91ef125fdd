"""Grids: an int, a tuple of one to three, or a function of the arguments that returns one."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from weft.errors import fail
from weft.errors.launch import GRID_EMPTY, GRID_KIND, GRID_LIMIT

LIMITS = (2**31 - 1, 65535, 65535)
"""Most programs per dimension, on every GPU that weft compiles for."""


def normalise(kernel: str, grid: Any) -> tuple[int, int, int]:
    """Programs in x, y and z. Raises LaunchError: launch-grid-kind, launch-grid-empty, launch-grid-limit.

    >>> normalise("copy", (4, 2))
    (4, 2, 1)
    """
    sizes = tuple(cast("tuple[Any, ...]", grid)) if isinstance(grid, (tuple, list)) else (grid,)
    try:
        return _checked(kernel, sizes)
    except TypeError:
        raise fail(GRID_KIND, name=kernel, grid=repr(cast("object", grid))) from None


def evaluate(kernel: str, grid: Any, bound: Mapping[str, Any]) -> tuple[int, int, int]:
    """The grid of a launch whose arguments are bound; raises what `normalise` raises."""
    return normalise(kernel, grid(bound) if callable(grid) else grid)


def in_blocks(kernel: str, grid: tuple[int, int, int], blocks: int) -> tuple[int, int, int]:
    """The grid counted in blocks, of which each program has so many along x. Raises LaunchError (launch-grid-limit)."""
    x, y, z = grid
    if x * blocks > LIMITS[0]:
        raise fail(GRID_LIMIT, name=kernel, dim=0, size=x, limit=LIMITS[0] // blocks)
    return x * blocks, y, z


@lru_cache(maxsize=4096)
def _checked(kernel: str, given: tuple[Any, ...]) -> tuple[int, int, int]:
    """`normalise` of a tuple, remembered: a function of the arguments gives the same few grids again and again."""
    if not 1 <= len(given) <= 3:
        raise fail(GRID_KIND, name=kernel, grid=repr(given))
    sizes = tuple(operator.index(part) for part in given)
    if any(size <= 0 for size in sizes):
        raise fail(GRID_EMPTY, name=kernel, grid=sizes)
    for dim, (size, limit) in enumerate(zip(sizes, LIMITS, strict=False)):
        if size > limit:
            raise fail(GRID_LIMIT, name=kernel, dim=dim, size=size, limit=limit)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
