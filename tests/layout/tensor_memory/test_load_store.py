"""Plans of tcgen05.ld and tcgen05.st, carried out word by word as the figures of the PTX ISA say, against what layouts say.

`figure` is written from the figures and knows nothing of the tables under test.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers
from weft.errors import LayoutError
from weft.layout import (
    BlockedLayout,
    DistributedLinearLayout,
    TensorAccess,
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    TensorSide,
    plan_tensor_access,
    register_layout,
)
from weft.layout.base import Unreadable

VARIANTS = ["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2", "32x32b_splitn"]
WORDS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
MOST = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
laws = settings(deadline=None, max_examples=examples(100))


def figure(variant, thread, word, split):
    """Lane and column, from the address on, of a word of a thread; columns are those of a packed pair where words are pairs."""
    match variant:
        case "32x32b":
            return thread, word
        case "16x64b":
            return thread // 4 + 8 * (thread % 2), thread // 2 % 2 + 2 * word
        case "16x128b":
            return thread // 4 + 8 * (word % 2), thread % 4 + 4 * (word // 2)
        case "16x256b":
            return thread // 4 + 8 * (word // 2 % 2), 2 * (thread % 4) + word % 2 + 8 * (word // 4)
        case _:
            assert variant == "16x32bx2"
            return thread % 16, word + (split if thread >= 16 else 0)


def cells(access, bits, warp, thread):
    """(register, (lane, column, first bit)) of all that a thread of a warp moves."""
    own = sum(step for bit, step in enumerate(access.warps) if warp >> bit & 1)
    assert access.repeat in {1 << i for i in range(8)}
    assert access.repeat <= MOST[access.variant]
    for offset, registers in zip(access.offsets, access.registers, strict=True):
        words = access.repeat * WORDS[access.variant]
        assert access.words == words
        per_word, rest = divmod(len(registers), words)
        assert not rest
        assert access.per_word == per_word <= 32 // bits
        for word, slot in product(range(words), range(per_word)):
            wide = 2 if access.packed else 1
            assert not access.packed or bits == 16
            assert access.split % wide == 0
            lane, column = figure(access.variant, thread, word, access.split // wide)
            lane += (own + offset) >> 16
            column = column * wide + ((own + offset) & 0xFFFF)
            assert lane // 32 == warp % 4, "a warp reaches its quarter of the lanes only"
            assert 0 <= column < 512
            first = (lane, column + slot, 0) if access.packed else (lane, column, slot * bits)
            yield registers[word * per_word + slot], first


def image(side, bits, block):
    """Element of the whole tile by (lane, column, first bit), where there is one."""
    linear = side.layout.to_linear(side.tile)
    scales = isinstance(side.layout, TensorMemoryScalesLayout)
    holes = 0 if scales else sum(1 << i for i, basis in enumerate(linear.bases("row")) if not any(basis))
    gaps = sum(1 << i for i, basis in enumerate(linear.bases("column")) if not any(basis))
    return {
        (lane, column * bits // 32, column * bits % 32): linear(row=lane, column=column, block=block)
        for lane, column in product(range(128), range(linear.in_size("column")))
        if not (lane & holes or column & gaps)
    }


def inside(side, element):
    """The element's place in the part, None outside of it."""
    at = [e - s for e, s in zip(element, side.start, strict=True)]
    return tuple(at) if all(0 <= a < n for a, n in zip(at, side.shape, strict=True)) else None


def check(tile, side, bits, num_warps):
    """A plan, if there is one, stores every element to all of its places and loads every register, and touches no more."""
    access = plan_tensor_access(tile, side, bits, num_warps)
    if isinstance(access, Unreadable):
        return access
    count = tile.in_size("register")
    named = sorted(register for group in access.registers for register in group)
    assert named == sorted(set(access.result))
    assert len(access.result) == count
    for block in range(max(tile.in_size("block"), 1)):
        memory = image(side, bits, block)
        stored = {}
        for warp, thread in product(range(num_warps), range(32)):
            held = [tile(register=r, lane=thread, warp=warp, block=block) for r in range(count)]
            loaded = {}
            for register, cell in cells(access, bits, warp, thread):
                loaded[register] = inside(side, memory.get(cell, (-1, -1)))
                assert stored.setdefault(cell, held[register]) == held[register]
            assert [loaded[access.result[register]] for register in range(count)] == held
        part = {cell: at for cell, element in memory.items() if (at := inside(side, element))}
        assert {cell: stored.get(cell) for cell in part} == part
        assert not {cell for cell in stored if cell in memory} - part.keys(), "other elements are overwritten"
    return access


@st.composite
def memories(draw):
    """A tensor memory layout, the tile's shape and its elements' width."""
    if draw(st.integers(0, 4)) == 0:
        cga = draw(st.sampled_from([None, [[1, 0]], [[0, 0]], [[0, 1]]]))
        return TensorMemoryScalesLayout(cga), (draw(powers(8, 3)), draw(powers(4, 1))), 8
    bits = draw(st.sampled_from([32, 32, 16, 16, 8]))
    rows, columns = draw(st.sampled_from([64, 128])), draw(powers(6, 1))
    stride = draw(st.sampled_from([1, 32 // bits]))
    cga = draw(st.sampled_from([None, None, [[1, 0]], [[0, 1]], [[0, 0]], [[1, 0], [0, 1]]]))
    pairs = bool(cga) and cga[0] == [1, 0] and draw(st.booleans())
    layout = TensorMemoryLayout([rows, columns], stride, cga, pairs)
    split = [1 << max((basis[d].bit_length() for basis in cga or [[0, 0]]), default=0) for d in (0, 1)]
    shape = (rows * draw(powers(1)) * split[0], columns * draw(powers(1)) * split[1])
    assume(layout.columns(shape, bits) <= 512)
    return layout, shape, bits


@st.composite
def sides(draw):
    """A part of a tile in tensor memory, aligned as slices are."""
    layout, tile, bits = draw(memories())
    cut = [draw(st.sampled_from([0, 0, 1, 2])) for _ in tile]
    if layout.cga:
        cut = [0, 0]
    shape = tuple(max(size >> by, 1) for size, by in zip(tile, cut, strict=True))
    start = tuple(draw(st.integers(0, whole // part - 1)) * part for whole, part in zip(tile, shape, strict=True))
    return TensorSide(layout, tile, shape, start), bits


@st.composite
def shuffled(draw, layout):
    """The same layout with other numbers for its registers, and some that repeat others."""
    registers = draw(st.permutations(layout.reg_bases))
    extra = draw(st.integers(0, 1)) * [[0, 0]]
    return DistributedLinearLayout(
        [*registers, *extra], layout.lane_bases, layout.warp_bases, layout.block_bases, layout.shape
    )


def layout_if_any(*arguments):
    try:
        return register_layout(*arguments)
    except LayoutError:
        return None


@laws
@given(st.data(), sides(), st.sampled_from(VARIANTS), st.sampled_from([4, 8, 16]))
def test_every_element_lands_where_layouts_say(data, given_side, variant, num_warps):
    side, bits = given_side
    layout = layout_if_any(bits, side.shape, side.layout, num_warps, variant)
    assume(layout is not None)
    check(data.draw(shuffled(layout)).to_linear(side.shape), side, bits, num_warps)


@laws
@given(memories(), st.sampled_from(VARIANTS), st.sampled_from([4, 8, 16]))
@example((TensorMemoryScalesLayout(), (32, 2), 8), "16x64b", 4)
def test_every_register_layout_of_a_whole_tile_moves_in_its_variant(memory, variant, num_warps):
    layout, shape, bits = memory
    tile = layout_if_any(bits, shape, layout, num_warps, variant)
    if tile is None:
        assert variant != "32x32b"
        return
    access = check(tile.to_linear(shape), TensorSide(layout, shape, shape, (0, 0)), bits, num_warps)
    assert isinstance(access, TensorAccess), access
    assert access.variant in (("32x32b", "16x32bx2") if variant.startswith("32x32b") else (variant,))


@st.composite
def mixed(draw, layout):
    """The same layout with bits of registers, threads and warps that are swapped, or added to one another."""
    levels = [layout.reg_bases, layout.lane_bases, layout.warp_bases]
    bits = [basis for level in levels for basis in level]
    for _ in range(draw(st.integers(1, 2))):
        # Warps that reach different lanes are left alone, or there would be refusals only.
        others = [i for i in range(len(bits)) if i not in range(len(layout.reg_bases) + 5, len(layout.reg_bases) + 7)]
        one, other = draw(st.sampled_from(others)), draw(st.sampled_from(others))
        if draw(st.booleans()):
            bits[one], bits[other] = bits[other], bits[one]
        elif one != other:
            bits[one] = tuple(a ^ b for a, b in zip(bits[one], bits[other], strict=True))
    registers, rest = bits[: len(levels[0])], bits[len(levels[0]) :]
    return DistributedLinearLayout(registers, rest[:5], rest[5:], layout.block_bases, layout.shape)


@laws
@given(st.data(), sides(), st.sampled_from(VARIANTS), st.sampled_from([4, 8, 16]))
def test_other_layouts_move_right_or_are_refused(data, given_side, variant, num_warps):
    side, bits = given_side
    layout = layout_if_any(bits, side.shape, side.layout, num_warps, variant)
    assume(layout is not None)
    check(data.draw(mixed(layout)).to_linear(side.shape), side, bits, num_warps)


# Well-known cases.

ACC = TensorMemoryLayout([128, 256])
LANE = 1 << 16
QUARTERS = (32 * LANE, 64 * LANE)


def plan(bits, shape, layout, num_warps=4, variant="32x32b", tile=None, start=(0, 0)):
    own = register_layout(bits, shape, layout, num_warps, variant)
    found = check(own.to_linear(shape), TensorSide(layout, tile or shape, shape, start), bits, num_warps)
    assert isinstance(found, TensorAccess), found
    return found


def test_an_accumulator_on_four_warps_takes_two_instructions():
    access = plan(32, (128, 256), ACC)
    assert (access.variant, access.repeat, access.packed, access.split) == ("32x32b", 128, False, 0)
    assert access.offsets == (0, 128)
    assert access.registers == (tuple(range(128)), tuple(range(128, 256)))
    assert access.warps == QUARTERS
    assert access.result == tuple(range(256))


def test_an_accumulator_on_eight_warps_takes_one():
    access = plan(32, (128, 256), ACC, 8)
    assert (access.variant, access.repeat, access.offsets) == ("32x32b", 128, (0,))
    assert access.warps == (*QUARTERS, 128)


def test_sixteen_rows_at_a_time_take_the_upper_half_apart():
    four, eight = (plan(32, (128, 256), ACC, warps, "16x256b") for warps in (4, 8))
    assert (four.variant, four.repeat, four.offsets) == ("16x256b", 32, (0, 16 * LANE))
    assert (eight.repeat, eight.offsets, eight.warps) == (32, (0,), (*QUARTERS, 16 * LANE))


def test_halves_in_registers_of_a_thread():
    assert register_layout(32, (128, 256), ACC, 8, "32x32b_splitn").reg_bases[-1] == (0, 128)
    access = plan(32, (128, 256), ACC, 8, "32x32b_splitn")
    assert (access.repeat, access.offsets, access.warps) == (64, (0, 128), (*QUARTERS, 64))
    down = register_layout(32, (256, 64), TensorMemoryLayout([128, 64]), 4, "32x32b_splitn")
    assert down.reg_bases[-1] == (0, 32)


def test_elements_of_16_bits_share_columns_or_are_packed():
    shared = plan(16, (128, 128), TensorMemoryLayout([128, 128], col_stride=1))
    assert (shared.repeat, shared.packed, shared.per_word, shared.offsets) == (64, False, 2, (0,))
    apart = plan(16, (128, 128), TensorMemoryLayout([128, 128], col_stride=2))
    assert (apart.repeat, apart.packed, apart.per_word, apart.offsets) == (64, True, 2, (0,))
    bytes_apart = plan(8, (128, 64), TensorMemoryLayout([128, 64], col_stride=4))
    assert (bytes_apart.repeat, bytes_apart.packed, bytes_apart.per_word) == (64, False, 1)


def test_a_column_of_16_bits_fills_half_a_word():
    access = plan(16, (128, 1), TensorMemoryLayout([128, 1], col_stride=2))
    assert (access.repeat, access.packed, access.per_word) == (1, False, 1)


def test_64_rows_alone_give_the_other_threads_the_right_half():
    access = plan(32, (64, 64), TensorMemoryLayout([64, 64]))
    assert (access.variant, access.repeat, access.split, access.offsets) == ("16x32bx2", 32, 32, (0,))
    fragments = plan(32, (64, 64), TensorMemoryLayout([64, 64]), variant="16x256b")
    assert (fragments.variant, fragments.repeat, fragments.offsets) == ("16x256b", 8, (0,))


def test_two_blocks_of_64_rows_fill_the_lanes():
    for shape in ((64, 128), (128, 64)):
        access = plan(32, shape, TensorMemoryLayout([64, 64]))
        assert (access.variant, access.repeat, access.offsets) == ("32x32b", 64, (0,))


def test_64_rows_of_each_of_two_blocks_fill_the_lanes():
    layout = TensorMemoryLayout([64, 128], cga_layout=[[1, 0]], two_ctas=True)
    access = plan(32, (128, 128), layout)
    assert (access.variant, access.repeat, access.offsets, access.warps) == ("32x32b", 64, (0,), QUARTERS)
    with pytest.raises(LayoutError):
        register_layout(32, (128, 128), layout, 4, "32x32b_splitn")


def test_a_column_of_64_rows_is_read_twice():
    access = plan(32, (64, 1), TensorMemoryLayout([64, 1]))
    assert (access.variant, access.repeat, access.split) == ("16x32bx2", 1, 0)


@pytest.mark.parametrize(("shape", "words"), [((128, 4), 4), ((256, 8), 16), ((128, 2), 4), ((16, 4), 1)])
def test_each_warp_has_a_copy_of_scales(shape, words):
    layout = TensorMemoryScalesLayout()
    assert register_layout(8, shape, layout, 4).warp_bases == ((0, 0), (0, 0))
    access = plan(8, shape, layout)
    assert (access.variant, access.repeat, access.offsets) == ("32x32b", words, (0,))
    assert access.per_word == min(shape[1], 4)


def test_a_slice_begins_at_its_columns():
    access = plan(32, (128, 64), ACC, tile=(128, 256), start=(0, 192))
    assert (access.repeat, access.offsets) == (64, (192,))
    halves = plan(16, (128, 32), TensorMemoryLayout([128, 128]), tile=(128, 128), start=(0, 96))
    assert halves.offsets == (48,)


def test_the_second_block_of_64_rows_begins_16_lanes_on():
    access = plan(32, (64, 32), TensorMemoryLayout([64, 64]), tile=(64, 128), start=(0, 96))
    assert (access.variant, access.offsets) == ("16x32bx2", (16 * LANE + 32,))


def test_warps_beyond_eight_share_what_there_is():
    layout = register_layout(32, (128, 2), TensorMemoryLayout([128, 2]), 16)
    assert layout.warp_bases == ((32, 0), (64, 0), (0, 1), (0, 0))
    assert plan(32, (128, 2), TensorMemoryLayout([128, 2]), 16).warps == (*QUARTERS, 1, 0)


def test_blocks_below_each_other_go_to_other_warps():
    access = plan(32, (256, 64), TensorMemoryLayout([128, 64]), 8)
    assert register_layout(32, (256, 64), TensorMemoryLayout([128, 64]), 8).warp_bases[2] == (128, 0)
    assert (access.repeat, access.offsets, access.warps) == (64, (0,), (*QUARTERS, 64))


def test_a_layout_that_names_no_blocks_is_told_of_them():
    layout = register_layout(32, (256, 64), TensorMemoryLayout([128, 64]), 4, cga=((1, 0),))
    assert layout.block_bases == ((128, 0),)
    assert len(layout.reg_bases) == 6


def refused(tile, side, bits=32, num_warps=4):
    found = plan_tensor_access(tile, side, bits, num_warps)
    assert isinstance(found, Unreadable)
    assert found.fix.startswith(f"use the layout get_tmem_reg_layout(dtype, {list(side.shape)}, ")
    return found.reason


def test_why_a_tile_cannot_be_moved():
    side = TensorSide(ACC, (128, 256), (128, 256), (0, 0))
    rows = BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]).to_linear((128, 256))
    assert "warps 1 and 2 hold elements [(4, 0), (8, 0)]" in refused(rows, side)
    by_columns = BlockedLayout([32, 1], [1, 32], [4, 1], [1, 0]).to_linear((128, 256))
    assert "(0, 1), (0, 2), (0, 4), (0, 8), (0, 16) lanes and columns from thread 0" in refused(by_columns, side)
    assert "2 warps" in refused(BlockedLayout([1, 256], [32, 1], [2, 1], [1, 0]).to_linear((128, 256)), side, 32, 2)
    assert "64 bits" in refused(rows, side, 64)


def test_parts_that_lie_in_lanes_of_some_warps_only_are_refused():
    part = TensorSide(ACC, (128, 256), (64, 256), (64, 0))
    tile = BlockedLayout([1, 256], [32, 1], [4, 1], [1, 0]).to_linear((64, 256))
    assert "the lanes that they reach hold [(32, 0), (64, 0)]" in refused(tile, part)


def test_elements_of_a_word_stay_together():
    layout = TensorMemoryLayout([128, 32], col_stride=1)
    pairs = DistributedLinearLayout(
        [(0, 2), (0, 4), (0, 8), (0, 16)], [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0)], [(32, 0), (64, 0), (0, 1)], [], [128, 32]
    )  # fmt: skip
    reason = refused(pairs.to_linear((128, 32)), TensorSide(layout, (128, 32), (128, 32), (0, 0)), 16, 8)
    assert "not all in one thread" in reason
    one = TensorSide(layout, (128, 32), (128, 1), (0, 5))
    found = plan_tensor_access(register_layout(16, (128, 1), layout, 4).to_linear((128, 1)), one, 16, 4)
    assert found.reason == "2 elements share a 32-bit column, and the part has only some of them"
    assert found.fix == "take parts of whole columns, or give each its own with col_stride=2"
    apart = TensorMemoryLayout([128, 32], col_stride=2)
    tile = BlockedLayout([1, 32], [32, 1], [4, 1], [1, 0]).to_linear((128, 32))
    assert "side by side" in refused(tile, TensorSide(apart, (128, 32), (128, 32), (0, 0)), 8)


def test_blocks_of_a_cluster_keep_to_their_own_memory():
    split = TensorMemoryLayout([128, 32], cga_layout=[[1, 0]])
    side = TensorSide(split, (256, 32), (256, 32), (0, 0))
    whole = register_layout(32, (256, 32), TensorMemoryLayout([128, 32]), 4)
    assert "blocks of the cluster hold elements []" in refused(whole.to_linear((256, 32)), side)
    both = DistributedLinearLayout(whole.reg_bases, whole.lane_bases, whole.warp_bases, [(128, 0)], [256, 32])
    assert "of another one" in refused(both.to_linear((256, 32)), side)
    part = TensorSide(split, (256, 32), (128, 32), (0, 0))
    assert "is a slice of what is split" in plan_tensor_access(whole.to_linear((256, 32)), part, 32, 4).reason


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((32, (128, 64), ACC, 4, "64x32b"), "tmem-variant"),
        ((32, (128, 64), ACC, 2), "tmem-warps"),
        ((32, (128, 64), ACC, 12), "tmem-warps"),
        ((32, (128, 4), ACC, 4, "16x256b"), "tmem-register-layout"),
        ((32, (128, 1), ACC, 4, "32x32b_splitn"), "tmem-register-layout"),
        ((8, (128, 64), TensorMemoryLayout([128, 64], col_stride=2), 4), "tmem-register-layout"),
        ((8, (16, 16), TensorMemoryScalesLayout(), 4, "16x64b"), "tmem-register-layout"),
    ],
)
def test_register_layouts_that_there_are_not(arguments, code):
    with pytest.raises(LayoutError) as error:
        register_layout(*arguments)
    assert error.value.code == code
