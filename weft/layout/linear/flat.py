"""Coordinates and flat indices: the row-major number of an element, whose bits are its coordinates' bits side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from weft.errors import fail
from weft.errors import layout as errors


def join(coordinates: Iterable[int], sizes: Iterable[int]) -> int:
    """The flat index of coordinates in a shape, the last dimension running fastest."""
    flat = 0
    for value, size in zip(coordinates, sizes, strict=True):
        flat = flat * size + value
    return flat


def placer(
    part: Sequence[tuple[str, int]], whole: Sequence[tuple[str, int]], below: Mapping[str, int]
) -> Callable[[int], int]:
    """Function from flat indices of one factor of a product to those of the whole.

    Dimensions are (name, size) pairs; the factor lies above `below[name]` elements.
    """

    def place(flat: int) -> int:
        values: dict[str, int] = {}
        for name, size in reversed(part):
            flat, values[name] = divmod(flat, size)
        return join((values.get(d, 0) * below.get(d, 1) for d, _ in whole), (size for _, size in whole))

    return place


def pack(in_dim: str, basis: Sequence[int], sizes: Sequence[int]) -> int:
    """`join` for a basis of `in_dim`, which must lie inside the shape."""
    if len(basis) != len(sizes) or not all(0 <= value < size for value, size in zip(basis, sizes, strict=True)):
        raise fail(errors.LINEAR_BASIS, basis=list(basis), dim=in_dim, shape=list(sizes))
    return join(basis, sizes)


def xor(values: Iterable[int]) -> int:
    """The sum over F2 of many vectors."""
    out = 0
    for value in values:
        out ^= value
    return out
