"""The programs of a grid in start order, computed one by one, because a grid may have 2**63 of them.

An order is a function from a position to the number of the program that starts there. It says nothing about residency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import overload

Pid = tuple[int, int, int]
Order = Callable[[int], int]
"""Maps a position to the number of the program there (x fastest): a permutation of `range(number of programs)`."""
ROUNDS = 4
"""Rounds of the Feistel network; four make a pseudo-random permutation (Luby and Rackoff)."""
LISTED = 4096
"""Up to this many programs an order is a shuffled list: a Feistel network with halves of few bits permutes poorly."""


class GridPrograms(Sequence[Pid]):
    """All programs of a grid, in grid order (first axis fastest) or in the given `order`."""

    __slots__ = ("_grid", "_order", "_size")

    def __init__(self, grid: Pid, order: Order | None = None) -> None:
        self._grid = grid
        self._order = order
        self._size = prod(grid)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Pid: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Pid]: ...
    def __getitem__(self, index: int | slice) -> Pid | Sequence[Pid]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._size))]
        number = range(self._size)[index]
        number = number if self._order is None else self._order(number)
        x, y, _ = self._grid
        return number % x, number // x % y, number // (x * y)


def windowed(count: int, size: int, within: Callable[[int, int], Order]) -> Order:
    """Consecutive windows of `size` programs, each with an order of its own: `within(programs, number of the window)`."""
    made: dict[int, Order] = {}

    def order(position: int) -> int:
        number, at = divmod(position, size)
        if number not in made:
            made.clear()
            made[number] = within(min(size, count - number * size), number)
        return number * size + made[number](at)

    return order


def backwards(count: int) -> Order:
    """The reverse order."""
    return lambda position: count - 1 - position


def shuffled(count: int, seed: int) -> Order:
    """A pseudo-random order of `count` programs; no list is kept for more than `LISTED`.

    Beyond that, a Feistel network permutes the integers of the next even bit count. An integer outside the range is permuted
    again until it falls inside (cycle walking), which is again a permutation and takes at most four steps on average.
    """
    random = Random(seed)
    if count <= LISTED:
        numbers = list(range(count))
        random.shuffle(numbers)
        return numbers.__getitem__
    half = ((count - 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    keys = [(random.getrandbits(64) | 1, random.getrandbits(64)) for _ in range(ROUNDS)]

    def once(number: int) -> int:
        left, right = number >> half, number & low
        for factor, offset in keys:
            mixed = (right + offset) * factor & 0xFFFFFFFFFFFFFFFF
            mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
            left, right = right, left ^ (mixed >> 32) & low
        return left << half | right

    def order(position: int) -> int:
        number = once(position)
        while number >= count:
            number = once(number)
        return number

    return order
