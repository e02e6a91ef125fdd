"""Boxes of TMA against a model of the hardware: row-major boxes whose 16-byte chunks are XORed by address bits."""

from __future__ import annotations

from itertools import product
from math import prod
from operator import add

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.shared.test_layouts import DType
from tests.layout.strategies import powers
from weft.errors import LayoutError
from weft.layout import NVMMASharedLayout
from weft.layout.base import TILE_ELEMENTS
from weft.layout.cluster import part_start, receivers
from weft.layout.linear import f2
from weft.layout.shared.layouts import padded
from weft.layout.shared.sizes import alignment, tile_bytes
from weft.layout.shared.tma import LEAST_INNER_BYTES, Slice, boxes, crossing, reach

laws = settings(deadline=None, max_examples=examples(80))


def swizzled(address, width):
    """Address bits 4 and up, as many as the width has chunks for, XORed by those from bit 7 on."""
    return address ^ (address >> 7 & max(width // 16, 1) - 1) << 4


def written(block, layout, bits, base, part=None):
    """Byte address, counted from `base`, of each element of a block that TMA writes to a buffer at `base`."""
    found = {}
    split = boxes(block, layout, bits, part)
    for start, offset in split.placements:
        for index, within in enumerate(product(*map(range, split.box))):
            # Padded fp4: the hardware leaves 8 bytes free after every 8.
            byte = index // 8 * 16 + index % 8 if layout.fp4_padded else index * bits // 8
            element = tuple(s + w for s, w in zip(start, within, strict=True))
            assert element not in found
            found[element] = swizzled(base + offset + byte, layout.swizzle_byte_width) - base
    return found


def described(block, layout, bits):
    """The same as the layout tells it."""
    linear = layout.to_linear(block)
    back = linear.pseudo_invert()
    names = [f"dim{d}" for d in range(len(block))]
    places, pads = product(*map(range, block)), layout.pads_of(block)
    return {place: padded(back(**dict(zip(names, place, strict=True)))[0], pads) * bits // 8 for place in places}


@st.composite
def blocks(draw, ends=False):
    """A block that TMA can move, its layout and the element's bits. With `ends` sizes may be no powers of two."""
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    rank = draw(st.integers(1, 5))
    shape = [draw(powers(9 if rank < 3 else 4)) for _ in range(rank)]
    for d in draw(st.sets(st.integers(0, rank - 1), max_size=2)) if ends else ():
        shape[d] = 8 * draw(st.integers(3, 9 if rank > 3 else 40))
    assume(prod(shape) <= 1 << 13)
    assume(shape[-1] * bits // 8 >= LEAST_INNER_BYTES)
    widest = NVMMASharedLayout(0, bits, rank).widest(shape)
    width = draw(st.sampled_from([w for w in NVMMASharedLayout.WIDTHS if w <= widest]))
    assume(width or f2.is_power_of_two(shape[-1]))
    return shape, NVMMASharedLayout(width, bits, rank), bits


@given(blocks(ends=True), st.integers(0, 3))
@laws
def test_boxes_write_what_the_layout_says(case, stage):
    block, layout, bits = case
    assert written(block, layout, bits, base=stage * alignment(layout)) == described(block, layout, bits)


@given(blocks(), st.data())
@laws
def test_boxes_write_slices_as_the_layout_of_the_tile_says(case, data):
    """A slice that the hardware cannot write in boxes is told from one that it can."""
    block, layout, bits = case
    times = [data.draw(st.sampled_from([1, 2, 3, 4] if size % 8 == 0 else [1, 2, 4])) for size in block]
    start = tuple(data.draw(st.integers(0, n - 1)) * size for n, size in zip(times, block, strict=True))
    tile = tuple(n * size for n, size in zip(times, block, strict=True))
    assume(prod(tile) <= TILE_ELEMENTS)
    names = [f"dim{d}" for d in range(len(block))]
    inverse = layout.to_linear(tile).pseudo_invert()
    wanted = {
        at: padded(inverse(**dict(zip(names, map(add, start, at), strict=True)))[0], layout.pads_of(tile)) * bits // 8
        for at in product(*map(range, block))
    }
    assume(layout.swizzle_byte_width or f2.is_power_of_two(tile[-1]))
    right = written(block, layout, bits, 0, Slice(tile, start)) == wanted
    assert right or reach(tuple(block), layout, bits, tile) != "own"


@pytest.mark.parametrize(
    ("block", "tile", "layout", "where"),
    [
        ((128, 128), (256, 128), NVMMASharedLayout(128, 32), "own"),
        ((64, 64), (64, 256), NVMMASharedLayout(128, 16), "own"),
        ((64, 64), (1024, 128), NVMMASharedLayout(128, 16), "own"),
        ((8, 64), (16, 64), NVMMASharedLayout(128, 16), "own"),
        ((512, 64), (1024, 64), NVMMASharedLayout(64, 16), "own"),
        ((64, 256), (64, 512), NVMMASharedLayout(0, 8), "own"),
        ((64, 64), (64, 128), NVMMASharedLayout(0, 16), "no box"),
        ((4, 8), (8, 8), NVMMASharedLayout(0, 16), "no box"),
        ((64, 64), (128, 64), NVMMASharedLayout(128, 16, cga_layout=[[1, 0]]), "pair"),
        ((64, 64), (128, 64), NVMMASharedLayout(64, 16, cga_layout=[[0, 1]]), "own"),
        ((64, 64), (128, 64), NVMMASharedLayout(128, 16, cga_layout=[[1, 0], [0, 0]]), "pair"),
        ((64, 128), (128, 128), NVMMASharedLayout(128, 16, cga_layout=[[1, 0], [0, 1]]), "pair"),
        ((64, 64), (128, 64), NVMMASharedLayout(128, 16, cga_layout=[[0, 0], [1, 0]]), "no block"),
        ((64, 64), (128, 64), NVMMASharedLayout(128, 16, cga_layout=[[1, 0], [2, 0]]), "no block"),
        ((256, 64), (512, 64), NVMMASharedLayout(128, 16, cga_layout=[[1, 0], [2, 0]]), "no block"),
    ],
)
def test_slices_in_whole_boxes(block, tile, layout, where):
    assert reach(block, layout, layout.element_bitwidth, tile) == where


CGAS = [[[1, 0]], [[0, 1]], [[1, 0], [0, 0]], [[1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, 0], [0, 1]], [[1, 0], [2, 0]]]


@pytest.mark.parametrize("cga", CGAS, ids=str)
@pytest.mark.parametrize(("times", "dim"), [(2, 0), (4, 0), (2, 1), (4, 1)])
def test_parts_of_slices_in_other_blocks(cga, times, dim):
    """Every element of every block's part lies at the box's place in the block that `crossing` names."""
    layout, count = NVMMASharedLayout(128, 16, rank=2, cga_layout=cga), 1 << len(cga)
    block = (64, 128)
    tile = tuple(size * (times if d == dim else 1) for d, size in enumerate(block))
    inverse = layout.to_linear(tile).pseudo_invert()
    copies = receivers(layout.to_linear(tile), count)
    right = True
    for number in range(times):
        start = tuple(block[dim] * number if d == dim else 0 for d in range(2))
        part = Slice(tile, start)
        found = crossing(block, layout, 16, part, count)
        split = boxes(block, layout, 16, part)
        for rank in range(count):
            there = rank ^ (found.blocks >> rank & 1)
            further = f2.apply(found.offsets, rank)
            for begin, offset in split.placements:
                first = tuple(map(add, map(add, start, part_start(layout.cga, block, rank)), begin))
                for inside in ((0, 0), tuple(size - 1 for size in split.box)):
                    at, home = inverse(**dict(zip(inverse.in_dims, map(add, first, inside), strict=True)))
                    lines = inside[0] * split.box[1] + inside[1]
                    line = offset + further + 2 * lines
                    place = line ^ (line >> 7 & 7) << 4
                    right = right and home == there & ~copies and at * 2 == place
    assert right == (reach(block, layout, 16, tile) in ("own", "pair"))


@pytest.mark.parametrize(
    ("block", "bits"),
    [([512, 64], 16), ([2, 512, 32], 16), ([8, 512], 32), ([16, 1024], 8), ([8192], 32), ([2, 2, 2, 2, 64], 16)],
)
@pytest.mark.parametrize("swizzle", [True, False])
def test_blocks_beyond_one_box(block, bits, swizzle):
    layout = NVMMASharedLayout.get_default_for(block, DType(bits))
    layout = layout if swizzle else NVMMASharedLayout(0, bits, len(block))
    assert written(block, layout, bits, base=0) == described(block, layout, bits)


def test_padded_fp4():
    layout = NVMMASharedLayout.get_default_for([16, 128], DType(8), fp4_padded=True)
    assert layout.swizzle_byte_width == 128
    assert boxes([16, 128], layout, 8).box_bytes == 16 * 128
    assert written([16, 128], layout, 8, base=0) == described([16, 128], layout, 8)


@given(blocks())
@laws
def test_boxes_fill_the_buffer_within_the_limits_of_the_hardware(case):
    block, layout, bits = case
    split = boxes(block, layout, bits)
    width = layout.swizzle_byte_width
    assert max(split.box) <= 256
    assert split.box[-1] * bits // 8 >= LEAST_INNER_BYTES
    assert not width or split.box[-1] * bits // 8 == width
    assert all(not offset % (8 * width or 128) for _, offset in split.placements)
    assert split.box_bytes * len(split.placements) == tile_bytes(layout, block, bits)


def test_the_blocks_of_the_copy_kernels():
    wide = boxes([32, 64], NVMMASharedLayout.get_default_for([32, 64], DType(32)), 32)
    assert (wide.box, wide.box_bytes) == ((32, 32), 4096)
    assert wide.placements == (((0, 0), 0), ((0, 32), 4096))
    line = boxes([8192], NVMMASharedLayout.get_default_for([8192], DType(32)), 32)
    assert (line.box, len(line.placements)) == ((256,), 32)
    assert line.placements[2] == ((512,), 2048)


def test_a_block_of_a_cluster_moves_its_own_part():
    layout = NVMMASharedLayout(128, 16, cga_layout=[[1, 0]])
    assert boxes([128, 128], layout, 16).box == (64, 64)
    with pytest.raises(LayoutError, match="at least 16 elements"):
        boxes([16, 8], NVMMASharedLayout(0, 16, cga_layout=[[0, 1]]), 16)


def test_a_block_of_one_row_is_moved_among_others():
    """Its box is one row of the swizzle's width; whether rows suit a swizzle is a matter of the tile that they make."""
    for columns in (64, 128):
        split = boxes([1, columns], NVMMASharedLayout(128, 16), 16)
        assert (split.box, split.box_bytes) == ((1, 64), 128)
    clustered = NVMMASharedLayout(64, 32, cga_layout=[[1, 0], [0, 1]])
    assert boxes([1, 64], clustered, 32).box == (1, 16)


def told(action):
    """The text of the error of an action; None without one."""
    try:
        action()
    except LayoutError as error:
        return str(error)
    return None


def test_check_refuses_the_tiles_that_have_no_linear_layout():
    shapes = [(), (64,), (3, 64), (8, 0), (1 << 21,), (1 << 10, 1 << 10)]
    shapes += list(product((1, 4, 8, 64), (8, 32, 128))) + list(product((1, 8), (2, 8), (16, 64)))
    clusters = [None, ([1, 0],), ([0, 1], [0, 2]), [[1 << bit, 0] for bit in range(5)]]
    verdicts = []
    for width, bits, transposed, fp4, cga in product((0, 32, 128), (8, 16), (False, True), (False, True), clusters):
        for rank in (1, 2, 3):
            if (fp4 and bits != 8) or (cga and rank != 2):
                continue
            layout = NVMMASharedLayout(width, bits, rank, transposed, fp4, cga_layout=cga)
            for shape in shapes:
                verdicts.append(told(lambda: layout.check(shape)))  # noqa: B023 - called here
                assert verdicts[-1] == told(lambda: layout.to_linear(shape))  # noqa: B023
    refused = {text.splitlines()[0][:20] for text in verdicts if text}
    assert None in verdicts and len(refused) >= 5
