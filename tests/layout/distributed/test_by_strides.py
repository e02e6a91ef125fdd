"""Layouts by strides: neighbouring threads take neighbouring addresses, and every element is somewhere."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.layout import BlockedLayout, DistributedLinearLayout, LinearLayout, NVMMADistributedLayout, SliceLayout
from weft.layout.distributed.by_strides import by_strides, spread
from weft.layout.distributed.register_view import register_view


@pytest.mark.parametrize(
    ("axes", "itemsize", "warps", "expected"),
    [
        ([[(128, 64)], [(64, 1)]], 4, 4, BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])),
        ([[(128, 1)], [(64, 128)]], 2, 4, BlockedLayout([8, 1], [16, 2], [1, 4], [0, 1])),
        ([[(128, 2)], [(64, 1024)]], 4, 4, BlockedLayout([1, 1], [32, 1], [4, 1], [0, 1])),
        ([[(128, None)], [(64, 2)]], 4, 2, BlockedLayout([1, 1], [1, 32], [1, 2], [1, 0])),
        ([[(16, 0)], [(64, 1)]], 4, 1, BlockedLayout([1, 4], [2, 16], [1, 1], [1, 0])),
        ([[(8, 1)]], 1, 4, BlockedLayout([1], [32], [4], [0])),
        ([[(1, 0)], [(1, 0)]], 4, 1, BlockedLayout([1, 1], [1, 32], [1, 1], [1, 0])),
    ],
)
def test_one_stride_per_axis(axes, itemsize, warps, expected):
    assert by_strides(axes, itemsize, warps) == expected or prod(size for axis in axes for size, _ in axis) == 1


def test_leftover_threads_repeat_elements_along_the_slowest_axis():
    assert spread((4, 8), (1, 0), 1, 4) == BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])


@st.composite
def nested(draw):
    """Modes of power-of-two sizes with the strides of a memory without gaps, in any order."""
    sizes = draw(st.lists(st.sampled_from([2, 4, 8]), min_size=3, max_size=5))
    order = draw(st.permutations(range(len(sizes))))
    strides, step = [0] * len(sizes), 1
    for mode in order:
        strides[mode] = step
        step *= sizes[mode]
    cut = draw(st.integers(1, len(sizes) - 1))
    modes = list(zip(sizes, strides, strict=True))
    return [modes[:cut], modes[cut:]]


@given(nested(), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_addresses_count_up_through_registers_lanes_and_warps(axes, itemsize, warps):
    layout = by_strides(axes, itemsize, warps)
    shape = tuple(prod(size for size, _ in axis) for axis in axes)
    linear: LinearLayout = layout.to_linear(shape)
    assert layout.num_warps == warps
    count = prod(shape)
    width = max(min(count // (32 * warps), 16 // itemsize), 1)
    bases = [*linear.bases("register")[: width.bit_length() - 1], *linear.bases("lane"), *linear.bases("warp")]
    if isinstance(layout, DistributedLinearLayout):
        steps = [sum(address(axis, at) for axis, at in zip(axes, basis, strict=True)) for basis in bases]
        assert [step for step in steps if step] == [1 << bit for bit in range(min(len(bases), count.bit_length() - 1))]


def address(modes, coordinate):
    total = 0
    for size, stride in modes:
        total += coordinate % size * stride
        coordinate //= size
    return total


# Registers as coordinates


@pytest.mark.parametrize(
    ("layout", "shape", "sizes"),
    [
        (BlockedLayout([2, 4], [8, 4], [4, 1], [1, 0]), (64, 64), (2, 16)),
        (BlockedLayout([2, 4], [8, 4], [4, 1], [1, 0]), (64, 2), (2, 2)),
        (BlockedLayout([1, 1], [8, 4], [4, 1], [1, 0]), (8, 4), (1, 1)),
        (NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]), (128, 64), (4, 16)),
        (SliceLayout(0, BlockedLayout([2, 4], [8, 4], [4, 1], [1, 0])), (64,), (16,)),
    ],
)
def test_elements_are_numbered_by_coordinates(layout, shape, sizes):
    linear = layout.to_linear(shape)
    known = register_view(linear)
    assert known.shape == sizes
    table = [(0,) * len(shape)]
    for basis in linear.bases("register"):
        table += [tuple(a ^ b for a, b in zip(each, basis, strict=True)) for each in table]
    along = [sorted({at[d] for at in table}) for d in range(len(shape))]
    for number, at in enumerate(product(*along)):
        assert table[known.first[number]] == at
    for register, number in enumerate(known.number):
        assert table[register] == table[known.first[number]]


def test_registers_that_move_along_two_dimensions_are_one_axis():
    layout = DistributedLinearLayout(
        [[0, 1], [1, 1], [0, 0]], [[0, 2], [0, 4], [0, 8], [2, 0], [4, 0]], [], [], [8, 16]
    )
    known = register_view(layout.to_linear((8, 16)))
    assert known.shape == (4,)
    assert known.first == (0, 1, 2, 3)
    assert known.number == (0, 1, 2, 3, 0, 1, 2, 3)
