"""Conversions between the blocks of a cluster: each block stores its part in its own shared memory, and loads from all blocks.

The blocks of a cluster are planned as further warps: the load's last warp bits are those of the block's rank, and the offset
bits above those of a block's memory are the rank of the block that is read. An element that several blocks hold is read from
the reader's own block where that is one of them. If all are, nothing is exchanged, and the block only decides what it loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from weft.layout import cost
from weft.layout.convert.round_trip import place_sides, traffic
from weft.layout.cost import Cost
from weft.layout.linear import f2
from weft.layout.linear.columns import Columns, basis
from weft.layout.linear.f2 import Span, solved
from weft.layout.shared.vectors import VectorAccess, load_side, spell, store_side


@dataclass(frozen=True, slots=True)
class ClusterRoundTrip:
    """A conversion through `elements` elements of shared memory in each block: `store`, barrier of the cluster, `load`, barrier
    of the cluster, then register copies by `result` as in `SharedRoundTrip`.

    The last `block_bits` warp bits of `load` are those of the block's rank. Its offsets count in the memory of the block whose
    rank is `offset >> offset_bits`. Without `crosses` that is always the reader's own, and no block waits for another.
    """

    bits: int
    elements: int
    store: VectorAccess
    load: VectorAccess
    result: tuple[int, ...]
    offset_bits: int
    block_bits: int
    crosses: bool

    @property
    def bytes(self) -> int:
        """Scratch size in each block."""
        return self.elements * cost.element_bytes(self.bits)

    def cost(self) -> Cost:
        """Price and words."""
        sides = self.store, self.load
        barriers = 2 * cost.CLUSTER_BARRIER if self.crosses else cost.BARRIER
        where = "the shared memory of the cluster's blocks" if self.crosses else "shared memory"
        quarters = barriers + sum(side.quarters(self.bits) for side in sides)
        return Cost(quarters, traffic(self.bytes, where, *sides, self.bits))


def plan_across(src: Columns, dst: Columns, bits: int, first: bool = False) -> ClusterRoundTrip:
    """The round trip between two layouts of one tile whose blocks hold different parts of it.

    `first`: an element that several blocks hold is read from the one of lowest rank, as the others have no valid copy."""
    homes = _Homes(src, len(dst.block), first)
    # The parts that blocks hold are numbered below `split`, the blocks above.
    split = max(column.bit_length() for column in (*src.register, *src.thread, *src.block, 0))
    from_source = store_side(Columns(src.register, src.lane, src.warp, ()))
    blocks = tuple(homes.of_rank(bit, column, split) for bit, column in enumerate(homes.padded(dst.block)))
    register, lane, warp = (
        tuple([homes.of(column, split) for column in part]) for part in (dst.register, dst.lane, dst.warp)
    )
    to_target = load_side(Columns(register, lane, (*warp, *blocks), ()))
    swizzle, stored, loaded = place_sides(from_source, to_target, cost.element_bytes(bits), (1 << split) - 1)

    def offset(place: int) -> int:
        return solved(swizzle, place & (1 << split) - 1) | place >> split << swizzle.rank

    ranks = [place >> split for place in blocks]
    others = any(place >> split for place in (*register, *lane, *warp))
    return ClusterRoundTrip(
        bits=bits,
        elements=1 << swizzle.rank,
        store=spell(from_source.mapped(offset), stored),
        load=spell(to_target.mapped(offset), loaded),
        result=to_target.result,
        offset_bits=swizzle.rank,
        block_bits=len(blocks),
        crosses=others or ranks != [1 << bit for bit in range(len(ranks))],
    )


class _Homes:
    """Where the elements of a tile lie: in which block, and which of the elements that block 0 holds lies there in it.

    Block b holds the elements v ^ B(b) for all v that block 0 holds, so an element is a pair (v, b). Bits of the rank whose
    column of B depends on other columns are free: for them a reader takes its own, or 0."""

    def __init__(self, source: Columns, block_bits: int, first: bool) -> None:
        self.inside = basis((*source.register, *source.thread))
        self.blocks = tuple(column or 0 for column, _ in zip_longest(source.block, range(block_bits)))
        self.span = Span((*self.inside, *self.blocks))
        known = f2.independent((*self.inside, *self.blocks)) >> len(self.inside)
        self.free = 0 if first else ~known & (1 << len(self.blocks)) - 1

    def padded(self, blocks: tuple[int, ...]) -> tuple[int, ...]:
        """Block columns extended by zeros to the bits of the rank."""
        return blocks + (0,) * (len(self.blocks) - len(blocks))

    def of(self, element: int, split: int) -> int:
        """The place of an element, from any rank whose free bits are 0: its v, and its b above `split`."""
        found = solved(self.span, element)
        return f2.apply(self.inside, found) | found >> len(self.inside) << split

    def of_rank(self, bit: int, element: int, split: int) -> int:
        """What a bit of the reader's rank contributes to places, besides the element that it contributes."""
        if not self.free >> bit & 1:
            return self.of(element, split)
        return self.of(element ^ self.blocks[bit], split) ^ 1 << bit + split
