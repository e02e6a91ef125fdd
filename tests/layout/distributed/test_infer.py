"""Layouts of results: an element stays in its thread and register, under its new coordinates."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import blocked, shapes, tiles
from weft.layout import AutoLayout, BlockedLayout, DistributedLinearLayout, SliceLayout
from weft.layout.distributed import infer

laws = settings(deadline=None, max_examples=examples(60))
BLOCK = BlockedLayout([2, 4], [16, 2], [2, 2], [1, 0])


def places(layout, shape):
    """Flat element per register, lane and warp."""
    linear = layout.to_linear(shape)
    sizes = [linear.in_size(d) for d in ("register", "lane", "warp")]
    register, lane, warp = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    return np.asarray(linear.flat(register=register, lane=lane, warp=warp)) + np.zeros(sizes, int)


def test_expanding_a_slice_gives_its_parent():
    assert infer.expand_dims(SliceLayout(1, BLOCK), [64], 1) is BLOCK
    assert infer.expand_dims(SliceLayout(0, BLOCK), [16], 0) is BLOCK
    assert infer.slice_of(BLOCK, -1) == SliceLayout(1, BLOCK)


@given(tiles(), st.data())
@laws
def test_expand_dims_keeps_places(tile, data):
    layout, shape = tile
    axis = data.draw(st.integers(0, len(shape)))
    result = infer.expand_dims(layout, shape, axis)
    new = [*shape[:axis], 1, *shape[axis:]]
    linear = result.to_linear(new)
    if result == getattr(layout, "parent", None):
        linear = linear.with_columns("register", [c for c in linear.columns["register"] if c])
        old = layout.to_linear(shape).remove_zero_bases("register")
        assert linear.flat_columns == old.flat_columns
    else:
        assert linear.flat_columns == layout.to_linear(shape).flat_columns


@given(tiles(), st.data())
@laws
def test_reshape_keeps_places(tile, data):
    layout, shape = tile
    bits = sum(size.bit_length() - 1 for size in shape)
    cut = data.draw(st.integers(0, bits))
    new = [1 << bits - cut, 1 << cut]
    assert (places(infer.reshape(layout, shape, new), new) == places(layout, shape)).all()
    assert infer.reshape(layout, shape, list(shape)) == layout


@given(tiles(), st.data())
@laws
def test_permute_moves_coordinates(tile, data):
    layout, shape = tile
    order = data.draw(st.permutations(range(len(shape))))
    result = infer.permute(layout, shape, order)
    new = [shape[d] for d in order]
    numbers = np.arange(prod(shape)).reshape(shape).transpose(order).ravel()
    assert (numbers[places(result, new)] == places(layout, shape)).all()
    back = [order.index(d) for d in range(len(shape))]
    assert infer.permute(result, new, back).to_linear(shape) is layout.to_linear(shape)


def test_permute_keeps_the_spelling_of_blocked():
    assert infer.permute(BLOCK, [64, 16], [1, 0]) == BlockedLayout([4, 2], [2, 16], [2, 2], [0, 1])
    three = BlockedLayout([1, 2, 4], [8, 2, 2], [1, 1, 4], [2, 0, 1])
    assert infer.permute(three, [8, 4, 32], [2, 0, 1]) == BlockedLayout([4, 1, 2], [2, 8, 2], [4, 1, 1], [0, 1, 2])


@given(tiles())
@laws
def test_join_puts_pairs_in_neighbouring_registers(tile):
    layout, shape = tile
    joined = places(infer.join(layout, shape), [*shape, 2])
    single = places(layout, shape)
    assert (joined[0::2] == 2 * single).all()
    assert (joined[1::2] == 2 * single + 1).all()


@given(tiles())
@laws
def test_split_undoes_join(tile):
    layout, shape = tile
    half = infer.split(infer.join(layout, shape), [*shape, 2])
    assert half.to_linear(shape) is layout.to_linear(shape)
    if isinstance(layout, BlockedLayout):
        assert half == layout


def test_split_finds_the_pair_in_any_register():
    layout = BlockedLayout([2, 4], [16, 2], [2, 2], [0, 1])
    permuted = infer.permute(layout, [64, 2], [0, 1])
    assert infer.split(permuted, [64, 2]).to_linear([64]).bases("lane") == ((2,), (4,), (8,), (16,), (0,))


@given(blocked(2), shapes(2), st.integers(0, 1))
@laws
def test_broadcast_of_a_parent_keeps_it(layout, shape, axis):
    thin = [1 if d == axis else size for d, size in enumerate(shape)]
    assert infer.broadcast(layout, thin, shape) == layout


@given(tiles(1), st.data())
@laws
def test_broadcast_repeats_within_the_thread(tile, data):
    """Each thread holds what it broadcasts: register by register the source is in the same thread."""
    layout, shape = tile
    axis = data.draw(st.integers(0, 1))
    wide = [*shape[:axis], 4, *shape[axis:]]
    thin = [*shape[:axis], 1, *shape[axis:]]
    column = infer.expand_dims(layout, shape, axis)
    result = infer.broadcast(column, thin, wide)
    source, found = places(column, thin), places(result, wide)
    coordinate = found // 4 if axis == 1 else found % shape[0]
    for lane, warp in itertools.product((0, 13, 31), range(source.shape[2])):
        assert set(coordinate[:, lane, warp]) <= set(source[:, lane, warp])
    assert result.to_linear(wide).is_surjective


def parts_of(draw, layout, shape):
    """Offsets and sizes of a part that can be taken without moving data."""
    offsets, sizes = [], []
    for dim, whole in enumerate(shape):
        unit = infer.grain(layout, shape, dim)
        size = draw(st.sampled_from([n for n in (unit << i for i in range(12)) if n < whole] or [whole]))
        offsets.append(draw(st.integers(0, (whole - size) // unit)) * unit if size < whole else 0)
        sizes.append(size)
    return offsets, sizes


@given(tiles(), st.data())
@laws
def test_a_part_keeps_its_elements_in_their_threads(tile, data):
    layout, shape = tile
    offsets, sizes = parts_of(data.draw, layout, shape)
    part = infer.extract(layout, shape, offsets, sizes)
    numbers = np.arange(prod(shape)).reshape(shape)
    taken = numbers[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))].ravel()
    before, after = places(layout, shape), taken[places(part, sizes)]
    for lane, warp in itertools.product(range(0, 32, 7), range(before.shape[2])):
        assert set(after[:, lane, warp]) == set(before[:, lane, warp]) & set(taken)


@given(tiles(), st.data())
@laws
def test_slices_of_two_tiles_together_are_the_tiles(tile, data):
    layout, shape = tile
    dim = data.draw(st.integers(0, len(shape) - 1))
    whole = [2 * n if d == dim else n for d, n in enumerate(shape)]
    both = infer.cat(layout, shape, dim)
    for start in (0, shape[dim]):
        part = infer.extract(both, whole, [start if d == dim else 0 for d in range(len(shape))], shape)
        assert (np.sort(places(part, shape), 0) == np.sort(places(layout, shape), 0)).all()


def test_parts_keep_the_spelling_where_it_says_the_same():
    rows = BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0])
    assert infer.extract(rows, [128, 64], [0, 8], [128, 32]) is rows
    assert infer.cat(rows, [128, 32], 1) is rows
    assert infer.cat(rows, [128, 32], 0) is rows
    assert infer.extract(BLOCK, [64, 64], [0, 16], [64, 32]) == BLOCK
    assert infer.extract(rows, [128, 64], [0, 2], [128, 2]) == DistributedLinearLayout(
        [[0, 1]], [[1, 0], [2, 0], [4, 0], [8, 0], [16, 0]], [[32, 0], [64, 0]], [], [128, 2]
    )


def test_the_grain_is_what_threads_divide():
    assert [infer.grain(BLOCK, [128, 64], d) for d in (0, 1)] == [64, 16]
    assert infer.grain(SliceLayout(1, BLOCK), [128], 0) == 64
    mixed = DistributedLinearLayout([[0, 1], [1, 2], [0, 4]], [[2, 0], [1, 0]] + [[0, 0]] * 3, [], [], [4, 8])
    assert [infer.grain(mixed, [4, 8], d) for d in (0, 1)] == [4, 4]
    skewed = DistributedLinearLayout([[1, 1], [0, 2]], [[1, 0]] + [[0, 0]] * 4, [], [], [2, 4])
    assert [infer.grain(skewed, [2, 4], d) for d in (0, 1)] == [2, 2]


def test_as_spelling_gives_the_bases():
    linear = BlockedLayout([1], [32], [4], [0]).to_linear([128])
    spelled = infer.as_spelling(linear, [128])
    assert isinstance(spelled, DistributedLinearLayout)
    assert spelled.warp_bases == ((32,), (64,))
    assert spelled.to_linear([128]) is linear


def test_layouts_left_to_the_compiler_stay_so():
    auto = AutoLayout()
    assert infer.expand_dims(auto, [8], 0) == auto
    assert infer.expand_dims(SliceLayout(0, auto), [8], 0) is auto
    assert infer.reshape(auto, [8], [2, 4]) == auto
    assert infer.permute(auto, [8, 4], [1, 0]) == auto
    assert infer.join(auto, [8]) == auto
    assert infer.split(auto, [8, 2]) == auto
    assert infer.broadcast(auto, [8, 1], [8, 4]) == auto
    assert infer.extract(auto, [8, 4], [0, 0], [8, 2]) == auto
    assert infer.cat(auto, [8], 0) == auto
    assert infer.slice_of(auto, 1) == SliceLayout(1, auto)
