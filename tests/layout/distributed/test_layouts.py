"""Distributed layouts: the documented tables, fragments of the PTX ISA, and laws over random layouts."""

from __future__ import annotations

import copy
import pickle
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import weft
from tests.effort import examples
from tests.layout.strategies import blocked, shapes, tiles
from weft import language as gl
from weft import layout as layouts
from weft.errors import LayoutError
from weft.layout import (
    AutoLayout,
    BlockedLayout,
    CoalescedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    LinearLayout,
    NVMMADistributedLayout,
    SliceLayout,
    check_num_warps,
)

laws = hypothesis_settings(deadline=None, max_examples=examples(60))
BLOCK = BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])


def owners(layout, shape):
    """Per element the `thread:register` places that hold it, threads of all warps numbered through."""
    linear = layout.to_linear(shape)
    found = {}
    for register in range(linear.in_size("register")):
        for thread in range(32 * linear.in_size("warp")):
            place = linear(register=register, lane=thread % 32, warp=thread // 32)
            found.setdefault(place, []).append((thread, register))
    return found


def test_thread_tile_in_row_major_order():
    found = owners(BLOCK, [64, 16])
    assert [[found[i, j] for j in range(4)] for i in range(2)] == [
        [[(0, 4 * i + j)] for j in range(4)] for i in range(2)
    ]


def test_thread_tile_in_column_major_order():
    found = owners(BlockedLayout([2, 4], [16, 2], [2, 2], [0, 1]), [64, 16])
    assert [[found[i, j] for j in range(4)] for i in range(2)] == [
        [[(0, i + 2 * j)] for j in range(4)] for i in range(2)
    ]


def test_warp_tile():
    found = owners(BLOCK, [64, 16])
    for i in range(32):
        for j in range(8):
            assert found[i, j] == [(i // 2 * 2 + j // 4, i % 2 * 4 + j % 4)]


def test_block_of_64_by_16():
    found = owners(BLOCK, [64, 16])
    assert BLOCK.to_linear([64, 16]).is_invertible
    assert len(found) == 64 * 16
    corners = {(i, j): found[i, j][0][0] // 32 for i in (0, 32) for j in (0, 8)}
    assert corners == {(0, 0): 0, (0, 8): 1, (32, 0): 2, (32, 8): 3}


def test_tile_of_128_by_128_repeats_the_block_2_by_8_in_row_major_order():
    """16 blocks of 8 registers: 128 * 128 elements over 128 threads."""
    linear = BLOCK.to_linear([128, 128])
    assert linear.in_size("register") == 16 * 8
    corners = [linear(register=8 * block) for block in range(16)]
    assert corners == [(64 * i, 16 * j) for i in range(2) for j in range(8)]


def test_tile_of_128_by_64_holds_64_registers():
    assert BLOCK.to_linear([128, 64]).in_size("register") == 64


def test_tile_of_32_by_8_is_repeated_in_every_warp():
    found = owners(BLOCK, [32, 8])
    assert BLOCK.to_linear([32, 8]).in_size("register") * 128 == 1024
    assert found[0, 0] == [(0, 0), (32, 0), (64, 0), (96, 0)]
    assert found[0, 7] == [(1, 3), (33, 3), (65, 3), (97, 3)]
    assert found[1, 0] == [(0, 4), (32, 4), (64, 4), (96, 4)]
    assert found[31, 0] == [(30, 4), (62, 4), (94, 4), (126, 4)]
    assert found[31, 7] == [(31, 7), (63, 7), (95, 7), (127, 7)]


def test_broadcast_repeats_warps_then_lanes_then_registers():
    linear = BlockedLayout([4], [32], [2], [0]).to_linear([2])
    assert linear.columns == {"register": (1, 0), "lane": (0,) * 5, "warp": (0,), "block": ()}


def test_slice_along_columns():
    """Each row lies in the two threads that share it, one register per row."""
    linear = SliceLayout(1, BLOCK).to_linear([64])
    assert linear.in_size("register") == 2
    found = owners(SliceLayout(1, BLOCK), [64])
    for i in range(32):
        lane = i // 2 * 2
        assert found[i,] == [(t, i % 2) for t in (lane, lane + 1, lane + 32, lane + 33)]


def test_three_spellings_of_one_layout():
    spellings = [
        BlockedLayout([1], [32], [4], [0]),
        SliceLayout(1, BlockedLayout([1, 1], [32, 1], [4, 1], [1, 0])),
        DistributedLinearLayout(
            reg_bases=[],
            lane_bases=[[1], [2], [4], [8], [16]],
            warp_bases=[[32], [64]],
            block_bases=[],
            shape=[128],
        ),
    ]
    first, *others = (spelling.to_linear([128]) for spelling in spellings)
    assert all(other is first for other in others)
    assert first.flat_columns == tuple(1 << bit for bit in range(7))


@pytest.mark.parametrize("registers", [1, 2, 4, 8, 16])
def test_one_dimension_with_any_number_of_registers(registers):
    linear = BlockedLayout([registers], [32], [4], [0]).to_linear([2048])
    assert linear.in_size("register") == 16
    assert linear.table("register")[:registers] == tuple(range(registers))
    assert linear(lane=1) == (registers,)
    assert linear(warp=1) == (32 * registers,)


@given(blocked(), st.data())
@laws
def test_blocked_is_an_arrangement_of_blocks(layout, data):
    """Against division and remainder, dimension by dimension."""
    shape = data.draw(shapes(layout.rank))
    linear = layout.to_linear(shape)
    threads = st.tuples(*(st.integers(0, linear.in_size(d) - 1) for d in linear.in_dims[:3]))
    for inputs in data.draw(st.lists(threads, max_size=20)):
        levels = zip(inputs, (layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta), strict=True)
        rests, place, extent = [], [0] * layout.rank, [1] * layout.rank
        for value, sizes in levels:
            for d in layout.order:
                place[d] += value % sizes[d] * extent[d]
                value //= sizes[d]
                extent[d] *= sizes[d]
            rests.append(value)
        for d in layout.order:
            more = max(shape[d] // extent[d], 1)
            place[d] += rests[0] % more * extent[d]
            rests[0] //= more
        register, lane, warp = inputs
        assert linear(register=register, lane=lane, warp=warp) == tuple(
            p % n for p, n in zip(place, shape, strict=True)
        )
        assert rests == [0, 0, 0]


@given(tiles())
@laws
def test_every_element_has_a_place(tile):
    layout, shape = tile
    linear = layout.to_linear(shape)
    assert linear.is_surjective
    assert linear.in_dims == ("register", "lane", "warp", "block")
    assert linear.outs == tuple((f"dim{d}", size) for d, size in enumerate(shape))
    assert linear.in_size("lane") == 32
    assert linear.in_size("warp") == layout.num_warps
    assert layout.to_linear(list(shape)) is linear


@given(tiles(2), st.integers(0, 1))
@laws
def test_slice_drops_a_dimension(tile, dim):
    parent, shape = tile
    rest = [size for d, size in enumerate(shape) if d != dim]
    whole, sliced = parent.to_linear(shape), SliceLayout(dim, parent).to_linear(rest)
    for level in ("lane", "warp"):
        assert sliced.bases(level) == tuple(basis[:dim] + basis[dim + 1 :] for basis in whole.bases(level))
    assert set(sliced.columns["register"]) <= {basis[1 - dim] for basis in whole.bases("register")}
    assert 0 not in sliced.columns["register"]


@given(tiles())
@laws
def test_spelling_evaluates_back(tile):
    layout, _ = tile
    assert eval(repr(layout), vars(layouts).copy()) == layout  # noqa: S307 - our own text
    assert pickle.loads(pickle.dumps(layout)) == layout  # noqa: S301 - our own bytes
    assert copy.deepcopy(layout) == layout
    assert hash(copy.deepcopy(layout)) == hash(layout)


def test_lists_and_tuples_are_one_layout():
    assert BlockedLayout((2, 4), (16, 2), (2, 2), (1, 0)) == BLOCK
    assert repr(BLOCK) == "BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])"
    assert repr(SliceLayout(dim=1, parent=BLOCK)) == f"SliceLayout(1, {BLOCK!r})"
    assert BlockedLayout([2, 4], [16, 2], [2, 2], [0, 1]) != BLOCK
    assert BLOCK != "BlockedLayout"


# Fragments, as the PTX ISA gives them: group = lane // 4, pair = lane % 4.


def test_mma_accumulator():
    linear = NVMMADistributedLayout([2, 0], [1, 1], [16, 8]).to_linear([16, 8])
    for lane in range(32):
        group, pair = divmod(lane, 4)
        found = [linear(register=r, lane=lane) for r in range(4)]
        assert found == [(group, 2 * pair), (group, 2 * pair + 1), (group + 8, 2 * pair), (group + 8, 2 * pair + 1)]


@pytest.mark.parametrize(("width", "k"), [(1, 8), (2, 16), (4, 32)])
def test_mma_left_operand(width, k):
    linear = DotOperandLayout(0, NVMMADistributedLayout([2, 0], [1, 1], [16, 8]), width).to_linear([16, k])
    for lane in range(32):
        group, pair = divmod(lane, 4)
        for register in range(4 * width):
            row = group + 8 * (register // width % 2)
            column = pair * width + register % width + 4 * width * (register // (2 * width))
            assert linear(register=register, lane=lane) == (row, column)


@pytest.mark.parametrize(("width", "k"), [(1, 8), (2, 16), (4, 32)])
def test_mma_right_operand(width, k):
    linear = DotOperandLayout(1, NVMMADistributedLayout([2, 0], [1, 1], [16, 8]), width).to_linear([k, 8])
    for lane in range(32):
        group, pair = divmod(lane, 4)
        for register in range(2 * width):
            row = pair * width + register % width + 4 * width * (register // width)
            assert linear(register=register, lane=lane) == (row, group)


def test_wgmma_accumulator():
    linear = NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]).to_linear([64, 64])
    for register in range(32):
        for lane in (0, 5, 31):
            for warp in range(4):
                row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
                column = 8 * (register // 4) + 2 * (lane % 4) + register % 2
                assert linear(register=register, lane=lane, warp=warp) == (row, column)


def test_warps_of_wgmma_run_down_and_those_of_mma_across():
    wgmma = NVMMADistributedLayout([3, 0], [4, 2], [16, 32, 16]).to_linear([64, 64])
    assert wgmma.bases("warp") == ((16, 0), (32, 0), (0, 32))
    mma = NVMMADistributedLayout([2, 0], [2, 2], [16, 8]).to_linear([32, 16])
    assert mma.bases("warp") == ((0, 8), (16, 0))


def test_dot_by_fma_holds_all_of_k():
    parent = BlockedLayout([2, 2], [4, 8], [2, 2], [1, 0])
    left = DotOperandLayout(0, parent, 0).to_linear([16, 32])
    assert left.bases("register") == ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (1, 0))
    assert left.bases("lane") == ((0, 0), (0, 0), (0, 0), (2, 0), (4, 0))
    assert left.bases("warp") == ((0, 0), (8, 0))
    right = DotOperandLayout(1, parent, 0).to_linear([32, 32])
    assert right.bases("lane") == ((0, 2), (0, 4), (0, 8), (0, 0), (0, 0))
    assert right.bases("warp") == ((0, 16), (0, 0))


@given(blocked(2, 4), st.data())
@laws
def test_operands_by_fma_meet_their_result(parent, data):
    """A thread that holds (m, n) of the result holds row m of the left operand and column n of the right one."""
    m, n, k = (data.draw(st.sampled_from([1, 4, 16])) for _ in range(3))
    result = parent.to_linear([m, n])
    left, right = DotOperandLayout(0, parent, 0).to_linear([m, k]), DotOperandLayout(1, parent, 0).to_linear([k, n])
    for lane in (0, 1, 7, 31):
        for warp in range(4):
            held = {result(register=r, lane=lane, warp=warp) for r in range(result.in_size("register"))}
            rows = {left(register=r, lane=lane, warp=warp) for r in range(left.in_size("register"))}
            columns = {right(register=r, lane=lane, warp=warp) for r in range(right.in_size("register"))}
            assert rows == {(i, x) for i, _ in held for x in range(k)}
            assert columns == {(x, j) for _, j in held for x in range(k)}


def test_both_spellings_of_a_cluster():
    counted = BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], ctas_per_cga=[2, 2], cta_split_num=[2, 1], cta_order=[1, 0])
    assert counted == BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[0, 0], [1, 0]])
    assert counted.num_ctas == 4
    linear = counted.to_linear([64, 32])
    assert linear.bases("block") == ((0, 0), (32, 0))
    assert linear.sublayout(["register", "lane", "warp"], ["dim0"]).rank() == 5
    assert repr(counted).endswith("cga_layout=[[0, 0], [1, 0]])")
    assert SliceLayout(1, counted).to_linear([64]).bases("block") == ((0,), (32,))
    assert DotOperandLayout(1, counted, 0).to_linear([16, 32]).bases("block") == ((0, 0), (0, 0))
    assert BLOCK.num_ctas == 1


def test_linear_layout_of_a_tile_with_ones():
    layout = DistributedLinearLayout([[0, 1], [2, 0]], [[0, 2], [0, 4], [0, 8], [1, 0], [4, 0]], [], [], [8, 16])
    assert layout.accepts([8, 1])
    assert not layout.accepts([4, 16])
    column = layout.to_linear([8, 1])
    assert column.bases("register") == ((2, 0),)
    assert column.bases("lane") == ((0, 0), (0, 0), (0, 0), (1, 0), (4, 0))


def test_layouts_left_to_the_compiler():
    assert AutoLayout() == AutoLayout()
    assert AutoLayout() != CoalescedLayout()
    assert repr(AutoLayout()) == "AutoLayout()"
    for layout in (AutoLayout(), CoalescedLayout(), SliceLayout(0, AutoLayout())):
        assert layout.num_warps is None
        assert not layout.is_resolved
        check_num_warps(layout, 8)


def test_layout_algebra_is_fast_once_asked():
    """Asking again is a dictionary look-up: the same object comes back."""
    again = BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])
    assert again.to_linear((128, 128)) is BLOCK.to_linear([128, 128])


@given(tiles())
@laws
def test_arrays_of_coordinates_cover_the_tile(tile):
    layout, shape = tile
    linear = layout.to_linear(shape)
    sizes = [linear.in_size(d) for d in ("register", "lane", "warp")]
    register, lane, warp = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    flat = np.asarray(linear.flat(register=register, lane=lane, warp=warp))
    counts = np.bincount(flat.ravel(), minlength=prod(shape))
    assert (counts == prod(sizes) // prod(shape)).all()


def test_product_of_levels_is_the_blocked_layout():
    def level(name, sizes):
        return LinearLayout.identity(sizes[1], name, "dim1") * LinearLayout.identity(sizes[0], name, "dim0")

    product = level("register", [2, 4]) * level("lane", [16, 2]) * level("warp", [2, 2])
    linear = BLOCK.to_linear([64, 16])
    assert product.permute_outs(["dim0", "dim1"]).columns == {d: linear.columns[d] for d in linear.in_dims[:3]}


def test_accumulators_of_turing_are_those_of_ampere():
    turing, ampere = (NVMMADistributedLayout([2, minor], [2, 2], [16, 8]) for minor in (1, 0))
    assert turing.to_linear([64, 32]) is ampere.to_linear([64, 32])
    operands = (DotOperandLayout(1, layout, 2).to_linear([32, 32]) for layout in (turing, ampere))
    assert next(operands) is next(operands)


LANES2 = [[0, 1], [0, 2], [0, 4], [1, 0], [2, 0]]


def test_a_linear_layout_repeats_over_a_larger_tile_and_is_cut_for_a_smaller_one():
    layout = DistributedLinearLayout([[4, 0]], LANES2, [[8, 0]], [], [16, 8])
    larger = layout.to_linear([32, 32])
    assert larger.bases("register") == ((4, 0), (16, 0), (0, 8), (0, 16)), "first where the registers move"
    assert larger.bases("lane") == tuple(map(tuple, LANES2))
    assert larger.is_surjective
    smaller = layout.to_linear([4, 4])
    assert smaller.bases("register") == ()
    assert smaller.bases("lane") == ((0, 1), (0, 2), (0, 0), (1, 0), (2, 0))
    assert smaller.bases("warp") == ((0, 0),)
    assert layout.to_linear([4, 16]).bases("register") == ((0, 8),)


def test_bases_are_lists_to_code_that_compares_and_extends_them():
    layout = DistributedLinearLayout([[4, 0]], LANES2, [[8, 0]], [], [16, 8])
    assert layout.reg_bases == [[4, 0]] == layout.reg_bases
    assert layout.reg_bases[0] == [4, 0]
    assert [4, 0] in layout.reg_bases
    assert layout.reg_bases != [[4, 1]]
    more = [[16, 0]]
    assert layout.reg_bases + more == [[4, 0], [16, 0]]
    assert more + layout.reg_bases == [[16, 0], [4, 0]]
    assert hash(layout.reg_bases) == hash(((4, 0),))


def test_a_deep_copy_of_a_linear_layout_may_be_edited():
    layout = DistributedLinearLayout([[4, 0]], LANES2, [[8, 0]], [], [16, 8])
    edited = copy.deepcopy(layout)
    assert (edited, hash(edited), repr(edited)) == (layout, hash(layout), repr(layout))
    assert layout == edited
    edited.reg_bases[0], edited.warp_bases[0] = edited.warp_bases[0], edited.reg_bases[0]
    other = DistributedLinearLayout([[8, 0]], LANES2, [[4, 0]], [], [16, 8])
    assert edited != layout
    assert edited == other == edited.settled()
    assert edited.to_linear([16, 8]) is other.to_linear([16, 8])
    assert pickle.loads(pickle.dumps(edited)) == other  # noqa: S301 - its own bytes
    assert SliceLayout(0, edited).to_linear([8]) == SliceLayout(0, other).to_linear([8])
    edited.warp_bases[0] = [8, 0]
    with pytest.raises(LayoutError):
        edited.to_linear([16, 8])


def test_a_kernel_takes_an_edited_layout():
    @gl.constexpr_function
    def swapped(layout):
        edited = copy.deepcopy(layout)
        edited.reg_bases[0], edited.warp_bases[0] = edited.warp_bases[0], edited.reg_bases[0]
        return edited

    @weft.jit
    def doubled(out, x, layout: gl.constexpr):
        other: gl.constexpr = swapped(layout)
        i, j = gl.arange(0, 16, gl.SliceLayout(1, layout)), gl.arange(0, 8, gl.SliceLayout(0, layout))
        at = i[:, None] * 8 + j[None, :]
        tile = gl.convert_layout(gl.load(x + at), other)
        gl.static_assert(tile.type.layout == other)
        gl.store(out + gl.convert_layout(at, other), tile * 2)

    x, out = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    layout = DistributedLinearLayout([[4, 0]], LANES2, [[8, 0]], [], [16, 8])
    doubled[1](out, x, copy.deepcopy(layout), num_warps=2)
    assert np.array_equal(out, 2 * x)
