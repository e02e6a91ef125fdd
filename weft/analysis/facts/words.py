"""The range of integers of each element type, and the top of the lattice for each type."""

from __future__ import annotations

from weft.analysis.facts.congruence import MOST, UNKNOWN, Congruence
from weft.analysis.facts.scalar import Scalar, Word, between
from weft.analysis.facts.tile import Axis, Facts
from weft.ir.types import DTYPES, Element, Pointer, TileType, Type, int32

ANYTHING = Scalar(-MOST, MOST)
"""The facts of floats: none."""
ADDRESS = Word(64, signed=False)
"""Addresses are in bytes."""
WORDS: dict[str, Word] = {
    dtype.code: Word(dtype.bits, dtype.is_int_signed()) for dtype in DTYPES if not dtype.is_floating()
}
"""By the code of an element type."""
ASSUMED = {**WORDS, int32.code: Word(32, signed=True, assumed=True)}
"""As `WORDS`, for facts about addresses: int32 sums and products are assumed not to overflow."""


def word_of(element: Element, words: dict[str, Word] = WORDS) -> Word | None:
    """The integer range of an element type; None for floats."""
    return ADDRESS if isinstance(element, Pointer) else words.get(element.code)


def shape_of(type: Type) -> tuple[int, ...]:
    """A tile's shape; () for everything else."""
    return type.shape if isinstance(type, TileType) else ()


def step_of(type: Type) -> int:
    """The difference of neighbours in a contiguous run: the element size in bytes for pointers, 1 for integers."""
    element = type.element
    return element.element_ty.itemsize if isinstance(element, Pointer) else 1


def unknown(type: Type, rest: Congruence = UNKNOWN) -> Facts:
    """The facts of a value of which nothing is known except perhaps a congruence."""
    word = word_of(type.element)
    hull = ANYTHING if word is None else between(word.low, word.high, rest)
    return Facts(hull, (Axis(),) * len(shape_of(type)), step_of(type))
