"""Swizzles, and nested layouts under them.

A nested layout cannot say "XOR the column with the row", which is how tiles in shared memory avoid bank conflicts. A
`Swizzle` is that step on offsets, and a `ComposedLayout` applies it, or any other function, after an inner layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from weft.errors import fail
from weft.errors import nested as errors
from weft.layout.linear.f2 import is_power_of_two, log2
from weft.layout.nested.int_tuple import IntTuple
from weft.layout.nested.layouts import Layout

WORD_BYTES = 4  # one bank of shared memory
LINE_BYTES = 128  # all banks
OFFSET_BITS = 63  # of the widest index, without its sign


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A permutation of offsets: the `bits` bits at `base + shift` are XORed onto those at `base`.

    With a negative shift the bits at `base` are XORed onto those at `base - shift`. A swizzle is its own inverse, and permutes
    each run of `period` offsets within itself. It applies to ints and run-time scalars.

    >>> tuple(Swizzle(2, 0, 2)(offset) for offset in range(8))
    (0, 1, 2, 3, 5, 4, 7, 6)
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        parts = (self.bits, self.base, self.shift)
        if not all(isinstance(part, Integral) for part in parts):
            raise fail(errors.SWIZZLE_NUMBERS, bits=self.bits, base=self.base, shift=self.shift)
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise fail(errors.SWIZZLE, bits=self.bits, base=self.base, shift=self.shift)
        if self.bits + self.base + abs(self.shift) > OFFSET_BITS:
            raise fail(errors.SWIZZLE_BITS, bits=self.bits, base=self.base, shift=self.shift, most=OFFSET_BITS)

    @property
    def period(self) -> int:
        """The number of offsets after which the swizzle repeats."""
        return 1 << (self.bits + self.base + abs(self.shift))

    def __call__(self, offset: Any) -> Any:
        """The swizzled offset."""
        if not self.bits:
            return offset
        mask = ((1 << self.bits) - 1) << (self.base + max(self.shift, 0))
        found = offset & mask
        return offset ^ (found >> self.shift if self.shift > 0 else found << -self.shift)

    def __str__(self) -> str:
        return f"Swizzle({self.bits}, {self.base}, {self.shift})"


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """The function outer(offset + inner(coordinate)); `outer` is a Swizzle, a Layout, or any function of an offset.

    >>> layout = ComposedLayout(Swizzle(2, 0, 2), 0, Layout.row_major(4, 4))
    >>> layout(1, 0), layout(1, 1), layout.size(), layout.cosize()
    (5, 4, 16, 16)
    """

    outer: Callable[[Any], Any]
    offset: Any
    inner: Layout

    @property
    def shape(self) -> IntTuple:
        """The inner layout's shape."""
        return self.inner.shape

    def rank(self) -> int:
        """Number of top-level modes."""
        return self.inner.rank()

    def size(self) -> Any:
        """Number of elements."""
        return self.inner.size()

    def cosize(self) -> Any:
        """The storage needed from offset 0: whole periods of a swizzle, otherwise up to the highest offset."""
        if isinstance(self.outer, Swizzle):
            reach, period = self.offset + self.inner.cosize(), self.outer.period
            return (reach + period - 1) // period * period
        return 1 + max((self(index) for index in range(self.size())), default=-1)

    def __call__(self, *coordinate: Any) -> Any:
        """The offset of an element, named as for a Layout."""
        return self.outer(self.offset + self.inner(*coordinate))

    def with_inner(self, inner: Layout) -> ComposedLayout:
        """The same composition with another inner layout, such as a tile of it."""
        return ComposedLayout(self.outer, self.offset, inner)

    def __str__(self) -> str:
        return f"{self.outer} o {self.offset} o {self.inner}"


def make_swizzle(row_size: int, vector: int = 1, *, element_bytes: int) -> Swizzle:
    """The swizzle that makes accesses to a compact row-major tile free of bank conflicts, along rows and along columns.

    Rows have `row_size` elements of `element_bytes`, and a lane accesses `vector` of them at once (the 4 bytes of a bank are
    never separated). Raises LayoutError if a row is not a power of two of vectors.

    >>> make_swizzle(64, 8, element_bytes=2)
    Swizzle(bits=3, base=3, shift=3)
    """
    vector = max(vector, WORD_BYTES // element_bytes)
    if not (is_power_of_two(row_size) and is_power_of_two(vector) and row_size >= vector):
        raise fail(errors.SWIZZLE_ROW, row=row_size, vector=vector)
    line = LINE_BYTES // element_bytes
    # Rows shorter than a line of all banks share one, so the XOR changes only from line to line.
    bits = max(log2(min(row_size, line)) - log2(vector), 0)
    return Swizzle(bits, log2(vector), log2(max(row_size, line)) - log2(vector))
