"""A distributed layout as lists of element indices, and the subspace intersections and complements that planning needs.

A column is the row-major element index that one hardware bit contributes; a layout is four lists of them. Vectors over F2
are integers, as in `weft.layout.linear.f2`, which does the solving.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.layout.linear import f2
from weft.layout.linear.f2 import Span
from weft.layout.linear.maps import LinearLayout


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a distributed layout, by hardware level."""

    register: tuple[int, ...]
    lane: tuple[int, ...]
    warp: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def thread(self) -> tuple[int, ...]:
        """Columns of the thread index within the block: lane bits, then warp bits."""
        return self.lane + self.warp


def columns(layout: LinearLayout) -> Columns:
    """All columns of a distributed layout."""
    return Columns(*(layout.columns[dim] for dim in ("register", "lane", "warp", "block")))


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of a thread without the redundant ones.

    `numbers[p]` is the register at position p (positions number the distinct ones), `columns` are the element indices of
    the bits of p, and `position[r]` is the position that holds what register r holds.
    """

    numbers: tuple[int, ...]
    columns: tuple[int, ...]
    position: tuple[int, ...]


def distinct_registers(register: Sequence[int]) -> Registers:
    """Drop register bits whose column is an XOR of lower ones (0 included)."""
    span = Span()
    bits: list[int] = []
    kept: list[int] = []
    images: list[int] = []
    for bit, column in enumerate(register):
        known = span.solve(column)
        images.append(1 << len(kept) if known is None else known)
        if known is None:
            span.add(column)
            bits.append(1 << bit)
            kept.append(column)
    return Registers(tuple(combinations(bits)), tuple(kept), tuple(combinations(images)))


def combinations(vectors: Sequence[int]) -> list[int]:
    """Every XOR of the vectors, indexed by mask: the matrix with these columns, as a table."""
    table = [0]
    for vector in vectors:
        table += [entry ^ vector for entry in table]
    return table


def basis(vectors: Iterable[int], modulo: Iterable[int] = ()) -> list[int]:
    """Those vectors, in order, that are independent of the earlier ones and of `modulo`."""
    span = Span(modulo)
    return [vector for vector in vectors if span.add(vector)]


def kernel(vectors: Sequence[int], modulo: Sequence[int] = ()) -> list[int]:
    """Basis of the masks whose combination of `vectors` lies in the span of `modulo`."""
    masks = (mask >> len(modulo) for mask in f2.kernel((*modulo, *vectors)))
    return [mask for mask in masks if mask]


def intersection(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """Basis of the intersection of two spans; vectors that `left` itself contains come first, in its order."""
    span = Span(right)
    named = [vector for vector in left if vector in span]
    return basis(named + [f2.apply(left, mask) for mask in kernel(left, right)])


def common_complement(left: Sequence[int], right: Sequence[int], space: Sequence[int]) -> list[int]:
    """A subspace of `space` that is a complement of both `left` and `right`, which are bases of one length.

    Vectors of `space` outside the span of both are taken unchanged; vectors that only one of the two spans are paired off.
    """
    shared = intersection(left, right)
    pairs = zip(basis(left, shared), basis(right, shared), strict=True)
    return basis(space, [*left, *right]) + [a ^ b for a, b in pairs]
