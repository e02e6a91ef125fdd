"""What blocks of a cluster hold: parts of a tile, copies of parts, and barriers."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import LayoutError
from weft.layout import BlockedLayout, MBarrierLayout, NVMMASharedLayout
from weft.layout.cluster import copies, part_start, receivers
from weft.passes.tile.coalesce import coalesced, row_major

SPLITS = [[[1, 0]], [[0, 1], [1, 0]], [[0, 0], [2, 0], [1, 0]], [[0, 0]], [[1, 0], [1, 0]], []]


def test_vectors_in_the_place_of_counts():
    named = BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0], cga_layout=[[1, 0], [0, 0]])
    assert BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0], [[1, 0], [0, 0]]) == named
    assert BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0], []).cga_layout is None
    with pytest.raises(LayoutError, match="cta_split_num is missing"):
        BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0], [2, 1])


def parts(linear, blocks):
    """The elements of each block, by brute force."""
    named = linear.in_size("block")
    flat = np.array(
        [
            [int(linear.flat(offset=offset, block=rank & named - 1)) for offset in range(linear.in_size("offset"))]
            for rank in range(blocks)
        ]
    )
    return [frozenset(row.tolist()) for row in flat]


@pytest.mark.parametrize("cga", SPLITS)
@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_bits_that_lead_to_copies(cga, blocks):
    if blocks < 1 << len(cga):
        blocks = 1 << len(cga)
    linear = NVMMASharedLayout(0, 32, 2, cga_layout=cga).to_linear([16, 16])
    held, bits, same = parts(linear, blocks), copies(linear, blocks), receivers(linear, blocks)
    assert same & ~bits == 0
    for rank in range(blocks):
        assert held[rank] == held[rank & ~same]
        assert not rank & bits or any(held[rank] == held[r] for r in range(rank))
    first = [rank for rank in range(blocks) if not rank & bits]
    assert len({held[rank] for rank in first}) == len(first)
    assert frozenset().union(*(held[rank] for rank in first)) == set(range(256))


@pytest.mark.parametrize("cga", SPLITS)
def test_where_parts_begin(cga):
    layout = NVMMASharedLayout(0, 32, 2, cga_layout=cga)
    linear = layout.to_linear([16, 16])
    for rank, held in enumerate(parts(linear, linear.in_size("block"))):
        assert part_start(layout.cga, [16, 16], rank) == divmod(min(held), 16)


def test_barriers_of_blocks_and_pairs():
    assert MBarrierLayout.multicta(1) == MBarrierLayout()
    assert MBarrierLayout.multicta(8) == MBarrierLayout([[1], [2], [4]])
    pairs = MBarrierLayout.multicta(4, two_cta=True)
    assert pairs == MBarrierLayout([[0], [1]])
    assert pairs.to_linear([2]).bases("block") == ((0,), (1,))


@pytest.mark.parametrize(
    ("shape", "blocks", "cga"),
    [((4096,), 4, [[1], [2]]), ((64, 512), 2, [[1, 0]]), ((1, 4096), 2, [[0, 1]]), ((128,), 4, [[0], [0]])],
)
def test_blocks_split_the_slowest_axis(shape, blocks, cga):
    layout = coalesced([row_major(shape, 4)], 4, 16, blocks)
    assert layout == BlockedLayout(
        layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta, layout.order, cga_layout=cga
    )
