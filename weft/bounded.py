"""Tables whose entries can be made again: none of them grows without end in a process that runs for weeks."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def keep(table: dict[K, T], key: K, made: T, most: int = 1024) -> T:
    """Enter what was made for a key, and return it. A table with `most` entries is cleared first.

    Clearing needs no order of use, which each look-up would have to write. Raises TypeError for a key that is not hashable.
    """
    if len(table) >= most:
        table.clear()
    table[key] = made
    return made
