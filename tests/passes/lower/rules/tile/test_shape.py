"""Operations that give the same values other shapes, over random layouts: tile and lowered stage agree bit for bit."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import blocked, powers, shapes, tiles
from tests.support import count, lowered, tile_kernel, warps_of
from weft.ir.types import Pointer, float32, int1, int32, int64
from weft.layout import BlockedLayout, DistributedLinearLayout, SliceLayout
from weft.layout.distributed import infer
from weft.ops import memory, regs, tile

LAW = settings(deadline=None, max_examples=examples(40))
ROWS = BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])


def start(case):
    layout, shape = case
    return layout, tuple(shape), tile_kernel(num_warps=warps_of(layout, shape))


def forms(k, shape, layout):
    """The same kind of tile in every form that lowering knows: array, base and constants, comparison, uniform."""
    numbers = k.positions(shape, layout)
    ptr = k.splat(k.parameter(Pointer(float32), k.rng.normal(size=4).astype("f4")), numbers)
    return [
        k.input(float32, shape, layout),
        numbers,
        k.below(numbers, prod(shape) // 2),
        k.splat(k.number_in(7), numbers),
        k.emit(memory.addptr, ptr, numbers),
        k.cast(numbers, int64),
    ]


@LAW
@given(tiles())
def test_copies_of_every_form(case):
    layout, shape, k = start(case)
    for x in forms(k, shape, layout):
        k.output_of_all(x)
    k.check()


@LAW
@given(tiles(1), st.integers(-5, 100))
def test_arange(case, first):
    layout, shape, k = start(case)
    k.output_of_all(k.emit(tile.arange, start=first, end=first + shape[0], layout=layout))
    k.check()


@LAW
@given(st.data(), tiles())
def test_expand_dims(data, case):
    layout, shape, k = start(case)
    axis = data.draw(st.integers(0, len(shape)))
    for x in forms(k, shape, layout):
        k.output_of_all(k.expand(x, axis))
    k.check()


@LAW
@given(st.data(), tiles())
def test_broadcast(data, case):
    layout, shape, k = start(case)
    small = tuple(1 if data.draw(st.booleans()) else n for n in shape)
    wide = tuple(n if n > 1 else data.draw(powers(3)) for n in small)
    if isinstance(layout, DistributedLinearLayout) and small != shape:
        ones = [1] * (len(shape) - 1)
        layout = BlockedLayout([1, *ones], [32, *ones], [k.attrs["num_warps"], *ones], list(range(len(shape))))
    for x in forms(k, small, layout):
        k.output_of_all(k.broadcast(x, wide))
    k.check()


@LAW
@given(blocked(2), shapes(2), st.booleans())
def test_slices_broadcast_to_their_parent(layout, shape, rows):
    k = tile_kernel(num_warps=warps_of(layout, shape))
    axis = 1 if rows else 0
    for x in forms(k, (shape[1 - axis],), SliceLayout(axis, layout)):
        k.output_of_all(k.broadcast(k.expand(x, axis), tuple(shape)))
    k.check()


@LAW
@given(st.data(), tiles())
def test_permute(data, case):
    layout, shape, k = start(case)
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    for x in forms(k, shape, layout):
        k.output_of_all(k.emit(tile.permute, x, order=order))
    k.check()


@LAW
@given(st.data(), tiles())
def test_reshape(data, case):
    layout, shape, k = start(case)
    other = data.draw(shapes(data.draw(st.integers(1, 4)), prod(shape)))
    other[-1] *= prod(shape) // prod(other)
    for x in forms(k, shape, layout):
        k.output_of_all(k.emit(tile.reshape, x, shape=tuple(other)))
    k.check()


@LAW
@given(tiles())
def test_join_and_split(case):
    layout, shape, k = start(case)
    for x, y in zip(forms(k, shape, layout), forms(k, shape, layout), strict=True):
        both = k.emit(tile.join, x, y)
        k.output_of_all(both)
        for half in k.emit(tile.split, both):
            k.output_of_all(half)
    k.check()


@LAW
@given(st.data(), tiles())
def test_slices(data, case):
    layout, shape, k = start(case)
    sizes, offsets = list(shape), [0] * len(shape)
    for dim, whole in enumerate(shape):
        unit = infer.grain(layout, shape, dim)
        sizes[dim] = data.draw(st.sampled_from([n for n in (unit << i for i in range(12)) if n < whole] or [whole]))
        if sizes[dim] < whole:
            offsets[dim] = unit * data.draw(st.integers(0, (whole - sizes[dim]) // unit))
    for x in forms(k, shape, layout):
        k.output_of_all(k.emit(tile.slice_, x, offsets=tuple(offsets), shape=tuple(sizes)))
    k.check()


@LAW
@given(st.data(), tiles())
def test_cat(data, case):
    layout, shape, k = start(case)
    axis = data.draw(st.integers(0, len(shape) - 1))
    for x, y in zip(forms(k, shape, layout), forms(k, shape, layout), strict=True):
        k.output_of_all(k.emit(tile.cat, x, y, axis=axis))
    k.check()


@pytest.mark.parametrize("num_warps", [1, 2, 8])
def test_extract(num_warps):
    k = tile_kernel(num_warps=num_warps)
    layout = BlockedLayout([2, 2], [4, 8], [num_warps, 1], [1, 0])
    for x in forms(k, (1, 1), layout):
        k.output(k.emit(tile.extract, x))
    k.check()


def test_shapes_of_bases_and_constants_stay_so():
    """Positions that go through every shape operation are still one base per thread."""
    k = tile_kernel()
    x = k.positions((8, 64), ROWS)
    x = k.emit(tile.permute, x, order=(1, 0))
    x = k.emit(tile.reshape, x, shape=(64, 8, 1))
    x = k.emit(tile.reshape, x, shape=(64, 8))
    pointers = k.emit(memory.addptr, k.splat(k.pointer_in(k.rng.normal(size=512).astype("f4"), float32), x), x)
    k.output(k.emit(memory.load, pointers, None, None))
    assert count(k.check(), regs.affine, regs.gather, memory.addptr) == 2


def test_join_of_bools():
    k = tile_kernel()
    x = k.input(int1, (64,), BlockedLayout([1], [32], [4], [0]))
    k.output(k.emit(tile.join, x, x))
    k.check(lowered)
    assert k.params[0].type.element.element_ty == int1 != int32
