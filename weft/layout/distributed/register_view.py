"""The registers in which a thread holds its part of a tile, as coordinates along the tile's dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from weft.layout.linear.ends import held
from weft.layout.linear.f2 import Span, is_power_of_two
from weft.layout.linear.maps import LinearLayout

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisterView:
    """A thread's elements, `shape[d]` of them along dimension d, numbered in row-major order.

    Element i is in register `first[i]`, and register r holds element `number[r]`; several registers can hold one element.
    """

    shape: Numbers
    first: Numbers
    number: Numbers


@lru_cache(maxsize=1024)
def register_view(linear: LinearLayout) -> RegisterView:
    """The registers of a tile's layout. If they do not form a grid along the dimensions, as under an XOR of coordinates, there
    is one dimension, of the registers in order.

    >>> from weft.layout import BlockedLayout
    >>> register_view(BlockedLayout([1, 2], [8, 4], [2, 1], [1, 0]).to_linear((32, 8)))
    RegisterView(shape=(2, 2), first=(0, 1, 2, 3), number=(0, 1, 2, 3))
    """
    span, bases = Span(), linear.bases("register")
    moves = [basis for basis, column in zip(bases, linear.columns["register"], strict=True) if span.add(column)]
    table = linear.table("register")
    at = [linear.coordinates(table[register]) for register in held(linear)]
    registers: dict[Numbers, int] = {}
    for register, coordinates in enumerate(at):
        registers.setdefault(coordinates, register)
    axes = [
        [at for at in along if at < size]
        for along, size in zip(_axes(moves, len(linear.out_dims)), linear.sizes, strict=False)
    ]
    shape = tuple(map(len, axes)) if axes else (len(registers),)
    elements = list(product(*axes)) if axes else list(registers)
    numbers = {coordinates: number for number, coordinates in enumerate(elements)}
    return RegisterView(shape, tuple([registers[each] for each in elements]), tuple([numbers[each] for each in at]))


def _axes(moves: list[Numbers], rank: int) -> list[list[int]]:
    """The tile coordinates of registers along each dimension; nothing if one register bit moves along two dimensions."""
    for move in moves:
        (*others, last) = sorted(move)
        if any(others) or not is_power_of_two(last):
            return []
    axes: list[list[int]] = []
    for dim in range(rank):
        along = [0]
        for step in sorted(move[dim] for move in moves if move[dim]):
            along += [coordinate + step for coordinate in along]
        axes.append(along)
    return axes
