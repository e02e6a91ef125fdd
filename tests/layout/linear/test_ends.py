"""Tiles that end before a power of two, against their definition: a register exists where its elements do."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import ending_tiles, powers
from weft.errors import LayoutError
from weft.layout import BlockedLayout, NVMMASharedLayout, SliceLayout, SwizzledSharedLayout
from weft.layout.base import is_tile_size
from weft.layout.distributed.layouts import drop_dim
from weft.layout.linear.ends import count, end_alike, extent, held, in_row_major, pieces
from weft.layout.shared.layouts import padded
from weft.layout.shared.sizes import tile_bytes
from weft.layout.shared.tma import boxes

laws = settings(
    deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def threads(linear):
    return product(*(range(linear.in_size(d)) for d in ("lane", "warp", "block")))


def elements(linear, lane, warp, block):
    """The coordinates that each register that exists has in a thread."""
    return [linear(register=r, lane=lane, warp=warp, block=block) for r in held(linear)]


@laws
@given(ending_tiles())
def test_registers_exist_where_their_elements_do(case):
    layout, shape = case
    linear = layout.to_linear(shape)
    found: set[tuple[int, ...]] = set()
    for thread in threads(linear):
        at = elements(linear, *thread)
        assert all(v < n for each in at for v, n in zip(each, shape, strict=True))
        found |= set(at)
        missing = set(range(linear.in_size("register"))) - set(held(linear))
        lane, warp, block = thread
        for r in missing:
            beyond = linear(register=r, lane=lane, warp=warp, block=block)
            assert any(v >= n for v, n in zip(beyond, shape, strict=True))
    assert len(found) == prod(shape)


@laws
@given(ending_tiles())
def test_pieces_are_equal_and_make_up_the_tile(case):
    layout, shape = case
    linear = layout.to_linear(shape)
    parts = pieces(linear)
    assert sorted(r for own in parts.registers for r in own) == list(range(count(linear)))
    for thread in threads(linear):
        at = elements(linear, *thread)
        lane, warp, block = thread
        for start, own in zip(parts.starts, parts.registers, strict=True):
            for r, number in enumerate(own):
                within = parts.layout(register=r, lane=lane, warp=warp, block=block)
                assert at[number] == tuple(s + w for s, w in zip(start, within, strict=True))


@laws
@given(ending_tiles(), st.integers(0, 1))
def test_a_slice_is_the_tile_without_a_dimension(case, dim):
    layout, shape = case
    assume(not isinstance(layout, SliceLayout) or layout.dim <= 2)
    kept = [size for d, size in enumerate(shape) if d != dim]
    whole, of_slice = drop_dim(layout.to_linear(shape), dim), SliceLayout(dim, layout)
    if isinstance(layout, BlockedLayout):
        assert count(whole) == count(of_slice.to_linear(kept))
    assert {whole(register=r)[0] for r in held(whole)} >= {0} and whole.sizes == tuple(kept)


def shared_cases():
    rows, columns = ([8 * n for n in range(1, 13)] for _ in range(2))
    return st.tuples(st.sampled_from(rows), st.sampled_from(columns), st.sampled_from([8, 16, 32]))


@laws
@given(shared_cases(), st.booleans())
def test_memory_ends_behind_the_last_element(case, transposed):
    rows, columns, bits = case
    layout = NVMMASharedLayout(0, bits, 2, transposed)
    layout = NVMMASharedLayout(layout.widest((rows, columns)), bits, 2, transposed)
    linear = layout.to_linear((rows, columns))
    offsets = [
        o
        for o in range(linear.in_size("offset"))
        if all(v < n for v, n in zip(linear(offset=o), (rows, columns), strict=True))
    ]
    assert len(offsets) == rows * columns
    assert extent(linear) == max(offsets) + 1
    in_memory = [padded(o, layout.pads_of((rows, columns))) for o in offsets]
    assert in_memory == sorted(set(in_memory)), "holes are closed, in order"
    assert tile_bytes(layout, (rows, columns), bits) == (max(in_memory) + 1) * bits // 8


@laws
@given(shared_cases())
def test_boxes_lie_as_the_layout_says(case):
    """A box's rows follow one another in memory, chunks of 16 bytes XORed by the row."""
    rows, columns, bits = case
    layout = NVMMASharedLayout.get_default_for([rows, columns], _Bits(bits))
    assume(columns * bits >= 128 and (layout.swizzle_byte_width or columns & (columns - 1) == 0))
    found = boxes((rows, columns), layout, bits)
    size, phases = bits // 8, layout.swizzle_byte_width // 16
    linear, pads = layout.to_linear((rows, columns)), layout.pads_of((rows, columns))
    elements = {o: linear(offset=o) for o in range(linear.in_size("offset"))}
    placed = {padded(o, pads): at for o, at in elements.items() if at[0] < rows and at[1] < columns}
    seen = 0
    for start, offset in found.placements:
        assert offset % max(128, 8 * layout.swizzle_byte_width) == 0
        for row, column in product(range(found.box[0]), range(0, found.box[1], 16 // size)):
            chunk = column * size // 16
            swizzled = chunk ^ row * phases // 8 % phases if phases else chunk
            at = offset // size + row * found.box[1] + swizzled * 16 // size
            assert placed[at] == (start[0] + row, start[1] + column)
            seen += min(16 // size, found.box[1])
    assert seen == rows * columns


class _Bits:
    def __init__(self, bits: int) -> None:
        self.primitive_bitwidth = bits


@laws
@given(st.lists(st.integers(1, 12).map(lambda n: 8 * n) | powers(4), min_size=1, max_size=3), st.data())
def test_shapes_that_go_together(shape, data):
    """A reshape is possible where it keeps the order of elements in the maps of both shapes."""
    total = prod(shape)
    assume(total <= 1 << 12)
    first = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    other = [first, total // first]
    assume(all(map(is_tile_size, other)))

    def order(sizes):
        whole = [1 << (n - 1).bit_length() for n in sizes]
        flat = []
        for at in product(*map(range, sizes)):
            number = 0
            for value, size in zip(at, whole, strict=True):
                number = number * size + value
            flat.append(number)
        return flat

    assert end_alike(shape, other) == (order(shape) == order(other))


def test_row_major_numbers_are_those_of_the_tile():
    linear = BlockedLayout([1, 8], [32, 1], [1, 1], [1, 0]).to_linear((32, 24))
    assert [in_row_major(linear, linear.flat(register=r, lane=2)) for r in (0, 8, 23)] == [48, 56, 71]


@pytest.mark.parametrize("size", [3, 12, 20, 100])
def test_sizes_that_are_none(size):
    with pytest.raises(LayoutError, match="multiple of 8"):
        SwizzledSharedLayout(1, 1, 1, [0]).to_linear([size])
