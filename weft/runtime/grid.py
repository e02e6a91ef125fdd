"""Grids (an int, a tuple of one to three, or a function of the arguments that returns one) and thread blocks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, cast

from weft.errors import fail
from weft.errors.launch import GRID_EMPTY, GRID_FUNCTION, GRID_KIND, GRID_LIMIT, GRID_THREADS, OPTION_VALUE
from weft.plain import whole

LIMITS = (2**31 - 1, 65535, 65535)
"""Maximum programs per dimension, on every GPU that weft compiles for (CUDA programming guide, compute capabilities)."""
MOST_THREADS = 1024
"""Maximum threads of a block, on all of them."""
THREADS_LIMIT = 2**31
"""Thread numbers along an axis are int32, so their count must stay below this."""


def normalise(kernel: str, grid: Any) -> tuple[int, int, int]:
    """Programs in x, y and z. Raises LaunchError: launch-grid-kind, launch-grid-empty, launch-grid-limit.

    >>> normalise("copy", (4, 2))
    (4, 2, 1)
    """
    sizes = tuple(cast("tuple[Any, ...]", grid)) if isinstance(grid, (tuple, list)) else (grid,)
    try:
        return _checked(kernel, *sizes)
    except TypeError:
        raise fail(GRID_KIND, name=kernel, grid=repr(cast("object", grid))) from None


def evaluate(kernel: str, grid: Any, bound: Mapping[str, Any]) -> tuple[int, int, int]:
    """The grid of a launch whose arguments are bound. Raises what `normalise` raises, and launch-grid-function."""
    if not callable(grid):
        return normalise(kernel, grid)
    try:
        size = grid(bound)
    except (TypeError, LookupError, AttributeError) as error:
        names = list(bound)
        numbers = [name for name, value in bound.items() if isinstance(value, int)] or names
        raise fail(
            GRID_FUNCTION, name=kernel, kind=type(error).__name__, message=error, names=", ".join(names),
            example=numbers[-1] if numbers else "SIZE",
        ) from error  # fmt: skip
    return normalise(kernel, size)


def split(brackets: Any) -> tuple[Any, Any]:
    """The grid and the thread block in `kernel[...]`; the block is None if not given.

    A pair of ints is a grid of two dimensions; a pair with a tuple in it is a grid and a block.

    >>> split((4, 2)), split(((4, 2), 64)), split((4, (8, 8)))
    (((4, 2), None), ((4, 2), 64), (4, (8, 8)))
    """
    parts: tuple[Any, ...] = cast("tuple[Any, ...]", brackets) if isinstance(brackets, tuple) else ()
    if len(parts) == 2 and (isinstance(parts[0], (tuple, list)) or callable(parts[0]) or isinstance(parts[1], tuple)):
        return parts
    return cast("object", brackets), None


def block_of(kernel: str, block: Any) -> tuple[int, int, int]:
    """Threads of a block in x, y and z, from an int or a tuple of up to three. Raises LaunchError (launch-option-value).

    >>> block_of("copy", (8, 8))
    (8, 8, 1)
    """
    given = cast("tuple[Any, ...]", block) if isinstance(block, tuple) else (block,)
    sizes = _wholes(given)
    if sizes is None or not (1 <= len(sizes) <= 3 and min(sizes) > 0 and prod(sizes) <= MOST_THREADS):
        expected = f"an int, or a tuple of up to three, of at least 1 and at most {MOST_THREADS} threads in all"
        value: object = given if isinstance(block, tuple) else block
        raise fail(OPTION_VALUE, option="block", value=value, name=kernel, expected=expected, example="block=(16, 16)")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def check_threads(kernel: str, grid: tuple[int, int, int], block: tuple[int, int, int] | None, blocks: int = 1) -> None:
    """Check that int32 can number the threads along each axis of a launch with `block=`, for programs of `blocks` blocks along
    x. Raises launch-grid-threads."""
    x, y, z = grid
    for axis, size, count in zip("xyz", (x * blocks, y, z), block or (), strict=False):
        if size * count >= THREADS_LIMIT:
            raise fail(
                GRID_THREADS, name=kernel, size=size, block=count, axis=axis, threads=size * count, limit=THREADS_LIMIT
            )


def in_blocks(kernel: str, grid: tuple[int, int, int], blocks: int) -> tuple[int, int, int]:
    """The grid in blocks, for programs of `blocks` blocks along x. Raises LaunchError (launch-grid-limit)."""
    x, y, z = grid
    if x * blocks > LIMITS[0]:
        raise fail(GRID_LIMIT, name=kernel, dim=0, size=x, limit=LIMITS[0] // blocks)
    return x * blocks, y, z


@lru_cache(maxsize=4096, typed=True)
def _checked(kernel: str, *given: Any) -> tuple[int, int, int]:
    """`normalise` of sizes, cached: a grid function returns the same few grids repeatedly."""
    if not 1 <= len(given) <= 3:
        raise fail(GRID_KIND, name=kernel, grid=repr(given))
    sizes = _wholes(given)
    if sizes is None:
        raise TypeError(f"{given} are no sizes")  # `normalise` turns this into the user's error.
    if any(size <= 0 for size in sizes):
        raise fail(GRID_EMPTY, name=kernel, grid=sizes)
    for dim, (size, limit) in enumerate(zip(sizes, LIMITS, strict=False)):
        if size > limit:
            raise fail(GRID_LIMIT, name=kernel, dim=dim, size=size, limit=limit)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _wholes(given: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The values as Python integers; None if one of them is not an integer."""
    found = tuple(size for size in map(whole, given) if size is not None)
    return found if len(found) == len(given) else None
