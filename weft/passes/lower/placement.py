"""Cached tables of linear layouts: coordinates, row-major indices and owners of elements, by register, lane, warp and block."""

from __future__ import annotations

from functools import cache

from weft.ir.core import Value
from weft.ir.types import TileType
from weft.layout import LinearLayout
from weft.layout.linear.ends import held
from weft.ops.regs import Table


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a tile."""
    assert isinstance(value.type, TileType)
    return value.type.shape


@cache
def register_table(linear: LinearLayout, dim: int) -> Table:
    """For each register, its part of the tile coordinate along `dim`."""
    return tuple([linear.coordinates(flat)[dim] for flat in flat_table(linear)])


@cache
def thread_columns(linear: LinearLayout, dim: int) -> tuple[Table, Table, Table]:
    """The contribution of each lane bit, warp bit and bit of the block's cluster rank to the tile coordinate along `dim`."""
    lanes, warps, blocks = (tuple([basis[dim] for basis in linear.bases(d)]) for d in ("lane", "warp", "block"))
    return lanes, warps, blocks


@cache
def free_threads(linear: LinearLayout) -> tuple[int, int]:
    """The lane bits and warp bits that do not select elements. A thread owns its elements if these bits are clear."""
    free = linear.free_variables()
    return free["lane"], free["warp"]


@cache
def flat_table(linear: LinearLayout) -> Table:
    """For each register, its part of the element's index in the map, whose sizes are powers of two (`out_sizes`)."""
    table = linear.table("register")
    return table if linear.is_whole else tuple([table[register] for register in held(linear)])


@cache
def register_coordinates(linear: LinearLayout) -> tuple[Table, ...]:
    """For each register, its part of all tile coordinates."""
    rank = len(linear.out_dims)
    return tuple(zip(*(register_table(linear, dim) for dim in range(rank)), strict=True))


@cache
def leaders(linear: LinearLayout) -> Table:
    """For each register, the first register of the same thread that holds the same element."""
    first: dict[Table, int] = {}
    return tuple([first.setdefault(c, r) for r, c in enumerate(register_coordinates(linear))])


@cache
def leaders_of_runs(linear: LinearLayout, runs: tuple[int, ...]) -> Table:
    """For each register, the first register of the same thread in the same aligned run of elements; `runs`: their lengths along
    each axis, powers of two. What the other bits of the thread's index add to a coordinate does not part a run."""
    first: dict[Table, int] = {}
    parts = (tuple(c // run for c, run in zip(each, runs, strict=True)) for each in register_coordinates(linear))
    return tuple([first.setdefault(part, r) for r, part in enumerate(parts)])


@cache
def owned(linear: LinearLayout) -> Table:
    """The registers of an owning thread (see `Lowering.owns`) that together hold each element once."""
    free = linear.free_variables().get("register", 0)
    return tuple(number for number, r in enumerate(held(linear)) if not r & free)


@cache
def bit_terms(column: Table) -> list[tuple[int, int, int, int]]:
    """Runs of input bits that a linear map multiplies by one factor: (first bit, number of bits, factor, union of images).

    >>> bit_terms((4, 8, 0, 1))
    [(0, 2, 4, 12), (3, 1, 1, 1)]
    """
    terms: list[tuple[int, int, int, int]] = []
    for bit, basis in enumerate(column):
        if not basis:
            continue
        if terms:
            first, count, factor, image = terms[-1]
            if first + count == bit and basis == factor << count and factor & (factor - 1) == 0:
                terms[-1] = (first, count + 1, factor, image | basis)
                continue
        terms.append((bit, 1, basis, basis))
    return terms


def splits(*images: int) -> bool:
    """True if the images are disjoint, so that the sum of parts equals their XOR."""
    seen = 0
    for image in images:
        if seen & image:
            return False
        seen |= image
    return True


def union(values: Table) -> int:
    """The bitwise OR of the values."""
    image = 0
    for value in values:
        image |= value
    return image
