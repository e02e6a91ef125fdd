"""Linear algebra over F2 (the field of two elements), on bit matrices whose columns are Python integers.

A matrix is a sequence of columns; bit i of a column is row i. Adding is XOR. A vector of inputs is an integer too: bit j
selects column j. This module knows no dimensions, layouts or hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Span:
    """The space spanned by columns that are added one after another, in echelon form.

    A column that depends on earlier ones adds nothing, so every combination this class returns uses only columns that were
    independent when they were added: solutions prefer early columns.
    """

    __slots__ = ("_count", "_rows")

    def __init__(self, columns: Iterable[int] = ()) -> None:
        self._rows: dict[int, tuple[int, int]] = {}
        self._count = 0
        for column in columns:
            self.add(column)

    @property
    def rank(self) -> int:
        """Dimension of the space."""
        return len(self._rows)

    def reduce(self, vector: int) -> tuple[int, int]:
        """The remainder of `vector` modulo the space, and the columns (a bit mask) that were added to reduce it."""
        combination = 0
        rest = vector
        for lead in sorted(self._rows, reverse=True):
            if rest >> lead & 1:
                row, made_of = self._rows[lead]
                rest ^= row
                combination ^= made_of
        return rest, combination

    def add(self, column: int) -> bool:
        """Add the next column; true if it makes the space larger."""
        rest, combination = self.reduce(column)
        if rest:
            self._rows[rest.bit_length() - 1] = (rest, combination | 1 << self._count)
        self._count += 1
        return rest != 0

    def solve(self, target: int) -> int | None:
        """The columns (a bit mask) that add up to `target`, or None when it lies outside the space."""
        rest, combination = self.reduce(target)
        return None if rest else combination

    def largest(self, vector: int) -> int:
        """The largest sum of `vector` and an element of the space."""
        for lead in sorted(self._rows, reverse=True):
            if not vector >> lead & 1:
                vector ^= self._rows[lead][0]
        return vector

    def __contains__(self, vector: int) -> bool:
        return self.reduce(vector)[0] == 0


def apply(columns: Sequence[int], vector: int) -> int:
    """The product of the matrix with a vector: the sum of the columns that its bits choose."""
    out = 0
    for index, column in enumerate(columns):
        if vector >> index & 1:
            out ^= column
    return out


def rank(columns: Iterable[int]) -> int:
    """Number of independent columns."""
    return Span(columns).rank


def independent(columns: Iterable[int]) -> int:
    """Bit mask of the columns that do not depend on the columns before them."""
    span = Span()
    return sum(1 << index for index, column in enumerate(columns) if span.add(column))


def kernel(columns: Iterable[int]) -> tuple[int, ...]:
    """A basis of the vectors that the matrix maps to zero, one per dependent column, by its highest bit."""
    span = Span()
    out: list[int] = []
    for index, column in enumerate(columns):
        rest, combination = span.reduce(column)
        if not rest:
            out.append(combination | 1 << index)
        span.add(column)
    return tuple(out)


def log2(size: int) -> int:
    """Number of bits of an index below `size`, a power of two."""
    return size.bit_length() - 1


def next_power_of_two(size: int) -> int:
    """The least power of two that is not below `size`, which is positive."""
    return 1 << (size - 1).bit_length()


def is_power_of_two(value: int) -> bool:
    """Whether `value` is 1, 2, 4, 8 and so on."""
    return value > 0 and value & (value - 1) == 0


def solved(span: Span, element: int) -> int:
    """The generators that add up to an element; every queried element must be in the span."""
    generators = span.solve(element)
    if generators is None:
        raise ValueError(f"there is no place for element {element} of the tile")
    return generators
