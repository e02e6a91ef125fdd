"""Layouts of a tile inside the blocks of a cluster, for operations that combine elements that several blocks hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

from weft.layout.distributed.infer import as_spelling
from weft.layout.distributed.layouts import DistributedLinearLayout
from weft.layout.linear import f2
from weft.layout.linear.f2 import Span
from weft.layout.linear.maps import LinearLayout

BLOCK = "block"


def splits_axis(linear: LinearLayout, axis: int) -> bool:
    """Whether a block holds only some of the elements along an axis that have the other coordinates of its elements."""
    return any(basis[axis] for basis in linear.bases(BLOCK))


def within_blocks(
    linear: LinearLayout, axis: int, blocks: Sequence[Sequence[int]] | None = None
) -> DistributedLinearLayout:
    """The layout with all elements along an axis in each block, in further registers where other blocks had them. `blocks`: the
    block bases across the axis (default: the layout's own)."""
    bases = linear.bases(BLOCK) if blocks is None else blocks
    kept = [[0 if d == axis else value for d, value in enumerate(basis)] for basis in bases]
    moved = linear.with_columns(BLOCK, [_flat(linear, basis) for basis in kept])
    known = Span(moved.flat_columns)
    missing = [unit for unit in _units(linear) if known.add(unit)]
    full = moved.with_columns("register", [*moved.columns["register"], *missing])
    return as_spelling(full, linear.sizes)


class Halves(NamedTuple):
    """How a tile is reshaped and permuted so that its last two axes are the parts of one axis: that over the blocks, and that
    inside of them."""

    split: tuple[int, ...]
    order: tuple[int, ...]
    joined: tuple[int, ...]
    in_order: bool


def halves(linear: LinearLayout, axis: int) -> Halves | None:
    """The parts of an axis, if some of its bits are those of blocks and the others are not; None if a layout mixes them.

    `in_order` says that the part over the blocks runs slowest along the axis."""
    along = [basis[axis] for basis in linear.bases(BLOCK)]
    over = sum(set(along))
    pure = all(f2.is_power_of_two(value) for value in along if value)
    pure = pure and all(sum(map(bool, basis)) == 1 for basis in linear.bases(BLOCK) if basis[axis])
    inside = (basis[axis] for dim in ("register", "lane", "warp") for basis in linear.bases(dim))
    if not pure or any(value & over for value in inside):
        return None
    shape, rank = linear.sizes, len(linear.sizes)
    bits = reversed(range(f2.log2(shape[axis])))
    runs = [(mine, 1 << len(list(run))) for mine, run in groupby(bits, lambda bit: bool(over >> bit & 1))]
    split = (*shape[:axis], *(size for _, size in runs), *shape[axis + 1 :])
    others = [*range(axis), *range(axis + len(runs), rank + len(runs) - 1)]
    between, within = ([axis + i for i, (mine, _) in enumerate(runs) if mine is wanted] for wanted in (True, False))
    parts = [prod(split[d] for d in part) for part in (between, within)]
    joined = (*(split[d] for d in others), *parts)
    return Halves(split, (*others, *between, *within), joined, [mine for mine, _ in runs] in ([True, False], [True]))


def _flat(linear: LinearLayout, basis: Sequence[int]) -> int:
    flat = 0
    for value, size in zip(basis, linear.out_sizes, strict=True):
        flat = flat * size + value
    return flat


def _units(linear: LinearLayout) -> list[int]:
    return [1 << bit for bit in range(f2.log2(prod(linear.out_sizes)))]
