"""Tiles that end before a power of two: which registers exist, and the equal pieces that such a tile consists of.

    128 columns, of which 96 exist    -->    registers 0-11 of 16; three pieces of 32 columns

The layout of such a tile is the map of the next powers of two, with `sizes`. Of an axis of size m * 2**k, m odd, the bits
from k up are those of registers (for a tile in memory: of offsets) that move along nothing else. `TileLayout.to_linear` checks
that. So a register exists in all threads or in none, and registers are numbered without those that do not. Cut at multiples of
2**k, the tile consists of pieces of one linear layout, which differ in registers only: plans are made for a piece and repeated.

Offsets in memory keep their numbers: an offset without an element is a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from weft.layout.linear.f2 import Span, is_power_of_two, next_power_of_two
from weft.layout.linear.maps import LinearLayout

REGISTER, OFFSET = "register", "offset"


def piece_shape(sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of the pieces: the largest powers of two that divide the sizes."""
    return tuple([size & -size for size in sizes])


@lru_cache(maxsize=1024)
def held(linear: LinearLayout) -> tuple[int, ...]:
    """The indices of the registers that exist, in increasing order: register i of the tile is register `held[i]` of the map."""
    table = linear.table(REGISTER)
    if linear.is_whole:
        return tuple(range(len(table)))
    return tuple([r for r, flat in enumerate(table) if inside(linear, flat)])


def count(linear: LinearLayout) -> int:
    """The number of registers that a thread needs for the tile."""
    return linear.in_size(REGISTER) if linear.is_whole else len(held(linear))


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a tile: the linear layout that each has; and of each piece the first coordinates, and the registers of the
    tile that are the piece's, in the order of its layout."""

    layout: LinearLayout
    starts: tuple[tuple[int, ...], ...]
    registers: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)
def pieces(linear: LinearLayout) -> Pieces:
    """The pieces of a tile in registers, in row-major order; a tile that ends at powers of two is one piece."""
    shape = piece_shape(linear.sizes)
    bases = linear.bases(REGISTER)
    beyond = [any(at >= size for at, size in zip(basis, shape, strict=True)) for basis in bases]
    kept = {d: [list(basis) for basis in linear.bases(d)] for d in linear.in_dims}
    kept[REGISTER] = [list(basis) for basis, out in zip(bases, beyond, strict=True) if not out]
    layout = LinearLayout.make(kept, list(zip(linear.out_dims, shape, strict=True)))
    numbers: dict[tuple[int, ...], list[int]] = {}
    table = linear.table(REGISTER)
    for number, register in enumerate(held(linear)):
        at = linear.coordinates(table[register])
        start = tuple([value - value % size for value, size in zip(at, shape, strict=True)])
        numbers.setdefault(start, []).append(number)
    starts = tuple(product(*(range(0, size, step) for size, step in zip(linear.sizes, shape, strict=True))))
    return Pieces(layout, starts, tuple([tuple(numbers[start]) for start in starts]))


@lru_cache(maxsize=1024)
def extent(linear: LinearLayout) -> int:
    """One more than the largest offset of a tile in memory that holds an element in some block."""
    if linear.is_whole:
        return linear.in_size(OFFSET)
    inverse, shape = linear.pseudo_invert(), piece_shape(linear.sizes)
    blocks = inverse.out_size("block")
    within = Span(
        column // blocks
        for dim, size in zip(inverse.in_dims, shape, strict=True)
        for column in inverse.columns[dim][: size.bit_length() - 1]
    )
    starts = product(*(range(0, size, step) for size, step in zip(linear.sizes, shape, strict=True)))
    return 1 + max(
        within.largest(inverse.flat(**dict(zip(inverse.in_dims, start, strict=True))) // blocks) for start in starts
    )


def in_row_major(linear: LinearLayout, flat: Any) -> Any:
    """The row-major index, in the tile, of an element by its flat index in the map (an int or an integer array)."""
    if linear.is_whole:
        return flat
    index: Any = 0
    for value, size in zip(linear.coordinates(flat), linear.sizes, strict=True):
        index = index * size + value
    return index


def end_alike(src: Sequence[int], dst: Sequence[int]) -> bool:
    """Whether the elements of one shape, in row-major order, are those of the other when both are rounded up to powers of two.

    Both are cut into the shortest runs of dimensions with as many elements; a run may end early along its slowest only."""
    rest: list[list[int]] = [[n for n in src if n > 1], [n for n in dst if n > 1]]
    while any(rest):
        runs = [[sizes.pop(0)] for sizes in rest]
        while (products := [prod(run) for run in runs])[0] != products[1]:
            at = products[0] > products[1]
            runs[at].append(rest[at].pop(0))
        if runs[0] != runs[1] and not all(is_power_of_two(size) for run in runs for size in run[1:]):
            return False
        if prod(map(next_power_of_two, runs[0])) != prod(map(next_power_of_two, runs[1])):
            return False
    return True


def inside(linear: LinearLayout, flat: int) -> bool:
    """Whether the tile has an element, by its flat index in the map."""
    return all(value < size for value, size in zip(linear.coordinates(flat), linear.sizes, strict=True))
