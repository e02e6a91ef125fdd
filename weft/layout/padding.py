"""Padding: offsets in shared memory spread out, so that columns of a tile fall into different banks."""

from __future__ import annotations

from typing import Any

# (interval, padding) pairs of powers of two: how many elements are followed by how many unused ones.
Pads = tuple[tuple[int, int], ...]


def padded(offset: Any, pads: Pads) -> Any:
    """Where an offset lies once every `interval` elements are followed by `padding` unused ones, for each pair.

    The sum of two offsets without common bits lies at the sum of their places.
    """
    return sum((offset // interval * padding for interval, padding in pads), start=offset)
