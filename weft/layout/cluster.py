"""How a tile is spread over the blocks of a cluster (a CGA): two spellings, one meaning.

`cga_layout` holds one coordinate vector per bit of the block index, in units of one block's tile. The other spelling counts
blocks: `ctas_per_cga` per dimension, of which `cta_split_num` hold different data and the rest copies; `cta_order` lists the
dimensions fastest first. Layouts store the first spelling. It is also accepted in the position of `ctas_per_cga`, as in
`BlockedLayout(size_per_thread, threads_per_warp, warps_per_cta, order, cga_layout)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.base import check_order, check_powers_of_two, check_ranks, cover, ints, vectors
from weft.layout.linear.maps import LinearLayout

Cga = tuple[tuple[int, ...], ...]
BLOCK = "block"


class Clustered(Protocol):
    """A layout that takes both spellings."""

    @property
    def ctas_per_cga(self) -> Sequence[int] | Sequence[Sequence[int]] | None:
        """Blocks per dimension, or a value of `cga_layout`."""
        ...

    @property
    def cta_split_num(self) -> Sequence[int] | None:
        """Blocks per dimension that hold different data."""
        ...

    @property
    def cta_order(self) -> Sequence[int] | None:
        """Dimensions, fastest first."""
        ...

    @property
    def cga_layout(self) -> Sequence[Sequence[int]] | None:
        """One vector per block bit."""
        ...


class Spelling(NamedTuple):
    """The arguments of both spellings, before they are normalised to a layout."""

    ctas_per_cga: Sequence[int] | Sequence[Sequence[int]] | None
    cta_split_num: Sequence[int] | None
    cta_order: Sequence[int] | None
    cga_layout: Sequence[Sequence[int]] | None


def cga_fields(layout: Clustered, rank: int) -> dict[str, Cga | None]:
    """The four fields normalised for a layout of `rank` dimensions: `cga_layout` alone, None for a single block."""
    counted: dict[str, Any] = {
        "ctas_per_cga": layout.ctas_per_cga,
        "cta_split_num": layout.cta_split_num,
        "cta_order": layout.cta_order,
    }
    given, bases = {field: value for field, value in counted.items() if value is not None}, layout.cga_layout
    if bases is None and list(given) == ["ctas_per_cga"] and not any(isinstance(n, int) for n in given["ctas_per_cga"]):
        bases = given.pop("ctas_per_cga")
    counts = {field: ints(value) for field, value in given.items()}
    return {**dict.fromkeys(counted), "cga_layout": _cga(rank, bases, counts) or None}


def _cga(rank: int, cga_layout: Sequence[Sequence[int]] | None, given: dict[str, tuple[int, ...]]) -> Cga:
    if cga_layout is None:
        return _from_counts(rank, given) if given else ()
    if given:
        raise fail(errors.CGA_TWICE, field=next(iter(given)))
    return cga_bases(rank, cga_layout)


def cga_bases(rank: int, cga_layout: Sequence[Sequence[int]]) -> Cga:
    """`cga_layout` of a layout of `rank` dimensions, checked."""
    bases = vectors(cga_layout)
    for basis in bases:
        if len(basis) != rank or min(basis) < 0:
            raise fail(errors.BASES, field="cga_layout", basis=list(basis), shape=["any"] * rank)
    return bases


def check_held(cga: Cga | None, rank: int) -> None:
    """Each part of a tile in registers lies in some block. Raises layout-cga-gaps."""
    bases = cga or ()
    parts, held = prod(split_of(bases, rank)), 1 << _rank(bases)
    if held < parts:
        raise fail(errors.CGA_GAPS, bases=[list(basis) for basis in bases], parts=parts, held=held)


def _rank(bases: Cga) -> int:
    """The number of independent vectors."""
    words: set[int] = {sum(value << 32 * d for d, value in enumerate(basis)) for basis in bases} - {0}
    rank = 0
    while words:
        pivot = max(words)
        words = {min(word, word ^ pivot) for word in words} - {0}
        rank += 1
    return rank


def _from_counts(rank: int, given: dict[str, tuple[int, ...]]) -> Cga:
    for field in ("ctas_per_cga", "cta_split_num", "cta_order"):
        if field not in given:
            raise fail(errors.CGA_MISSING, field=field)
    check_ranks("the cluster", dimensions=range(rank), **given)
    ctas, split, order = given["ctas_per_cga"], given["cta_split_num"], given["cta_order"]
    check_powers_of_two("ctas_per_cga", ctas)
    check_powers_of_two("cta_split_num", split)
    check_order("cta_order", order, rank)
    if any(blocks % parts for blocks, parts in zip(ctas, split, strict=True)):
        raise fail(errors.CGA_SPLIT, split=list(split), ctas=list(ctas))
    steps = [step for d in order for step in ((BLOCK, d, split[d]), (BLOCK, None, ctas[d] // split[d]))]
    return vectors(cover(steps, [prod(ctas)] * rank, [BLOCK])[BLOCK])


def split_of(cga: Cga, rank: int) -> tuple[int, ...]:
    """The number of blocks over which each dimension is split."""
    return tuple(1 << max((basis[d].bit_length() for basis in cga), default=0) for d in range(rank))


def block_shape(cga: Cga, shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of the part of a tile that one block holds."""
    return tuple(max(size // parts, 1) for size, parts in zip(shape, split_of(cga, len(shape)), strict=True))


def block_bases(cga: Cga, shape: Sequence[int]) -> list[list[int]]:
    """Bases of the block dimension for a tile of this shape; a dimension too small to be split is repeated."""
    part = block_shape(cga, shape)
    return [[value * p & (size - 1) for value, p, size in zip(basis, part, shape, strict=True)] for basis in cga]


def part_start(cga: Cga, shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The first coordinates of a block's part of a tile, by the rank of the block in the cluster."""
    start = [0] * len(shape)
    for bit, basis in enumerate(block_bases(cga, shape)):
        start = [at ^ value * (rank >> bit & 1) for at, value in zip(start, basis, strict=True)]
    return tuple(start)


def copies(linear: LinearLayout, num_ctas: int) -> int:
    """The bits of a block's rank that are 0 in the first block that holds an element, in a cluster of `num_ctas` blocks.

    All other blocks hold copies only.
    """
    return _unnamed(linear, num_ctas) | linear.free_variables()[BLOCK]


def receivers(linear: LinearLayout, num_ctas: int) -> int:
    """The free bits of a block's rank: blocks that differ only in these hold the same elements."""
    return _unnamed(linear, num_ctas) | sum(1 << bit for bit, column in enumerate(linear.columns[BLOCK]) if not column)


def _unnamed(linear: LinearLayout, num_ctas: int) -> int:
    return (num_ctas - 1) & -linear.in_size(BLOCK)
