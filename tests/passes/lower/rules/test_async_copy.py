"""Asynchronous copies when lowered: widths, masks, and what is too narrow."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers, shared_layouts
from tests.passes.lower.rules.test_shared import ACROSS, GRID, SWIZZLED, TARGET, alloc, check, only
from tests.support import any_bits, tile_kernel
from weft.errors import CompilationError
from weft.ir.types import float16, float32, int32, int64, uint8
from weft.layout import BlockedLayout, NVMMASharedLayout, PaddedSharedLayout, SliceLayout, SwizzledSharedLayout
from weft.layout.shared.sizes import allocation_bytes
from weft.ops import async_copy, shared, tile
from weft.passes.pipeline import lower_pipeline, tile_pipeline

LAW = settings(deadline=None, max_examples=examples(40))


def copied(k, element, shape, layout, own, *, divisible=16, mask=None, columns=None, **attrs):
    """Copy a random tile to shared memory, wait, and store what arrived."""
    size = shape[0] * (columns or shape[1])
    ptr = k.pointer_in(any_bits(k.rng, element, size), element, divisible)
    offsets = k.grid_offsets(shape, columns or shape[1], own)
    smem = alloc(k, element, shape, layout)
    k.emit(async_copy.global_to_shared, smem, k.address(ptr, offsets), mask, **attrs)
    k.emit(async_copy.commit)
    k.emit(async_copy.wait, pendings=0)
    k.output(k.emit(shared.load, smem, layout=GRID), None if attrs.get("zeros", True) else mask)


def rows_below(k, shape, own, limit):
    rows = k.emit(tile.arange, start=0, end=shape[0], layout=SliceLayout(1, own))
    below = k.cmp("lt", rows, k.splat(limit, rows))
    return k.emit(tile.broadcast, k.emit(tile.expand_dims, below, axis=1), shape=shape)


def columns_below(k, shape, own, limit, predicate="lt"):
    columns = k.emit(tile.arange, start=0, end=shape[1], layout=SliceLayout(0, own))
    below = k.cmp(predicate, columns, k.splat(limit, columns))
    return k.emit(tile.broadcast, k.emit(tile.expand_dims, below, axis=0), shape=shape)


@LAW
@given(st.data(), st.sampled_from([uint8, float16, float32, int64]))
def test_copies(data, element):
    """Any shared layout and any width that works, whole or masked by rows; nothing is copied twice."""
    shape = (data.draw(powers(6, 2)), data.draw(powers(7, 5)))
    layout = data.draw(shared_layouts(list(shape), element.bits))
    # Padding of every element can make a tile larger than a block's memory.
    assume(allocation_bytes(layout, shape, element.bits) <= TARGET.shared_bytes)
    per_thread = data.draw(powers(4))
    own = BlockedLayout([1, per_thread], [4, 8], [2, 2], [1, 0])
    k = tile_kernel()
    mask = (
        rows_below(k, shape, own, k.number_in(data.draw(st.integers(0, shape[0]))))
        if data.draw(st.booleans())
        else None
    )
    copied(k, element, shape, layout, own, mask=mask)
    try:
        op = only(check(k), async_copy.copy)
    except CompilationError as error:
        if error.code != "async-copy-width":
            raise
        reject()
    assert op.attrs["vec"] * element.itemsize in (4, 8, 16)


@pytest.mark.parametrize(
    ("memory_layout", "per_thread", "divisible", "columns", "vec"),
    [
        (SWIZZLED, 8, 16, 64, 8),
        (SWIZZLED, 16, 16, 64, 8),
        (SWIZZLED, 4, 16, 64, 4),
        (SWIZZLED, 8, 8, 64, 4),
        (SWIZZLED, 8, 16, 68, 4),
        (SWIZZLED, 8, 16, 66, 2),
        (SwizzledSharedLayout(2, 1, 8, [1, 0]), 8, 16, 64, 2),
        (PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [1, 0]), 8, 16, 64, 4),
        (NVMMASharedLayout(128, 16), 8, 16, 64, 8),
    ],
)
def test_widths(memory_layout, per_thread, divisible, columns, vec):
    """As wide as pointer, strides, registers and shared layout allow."""
    k = tile_kernel()
    own = BlockedLayout([1, per_thread], [4, 8], [4, 1], [1, 0])
    copied(k, float16, (64, 64), memory_layout, own, divisible=divisible, columns=columns)
    assert only(check(k), async_copy.copy).attrs["vec"] == vec


def test_a_mask_by_columns():
    """Zeros arrive where the mask does not hold; of copies that it cuts, those in which it ends."""
    widths: list[int] = []
    for limit, divisible in ((43, 1), (40, 8), (0, 16)):
        k = tile_kernel()
        mask = columns_below(k, (64, 64), GRID, k.number_in(limit, int32, divisible))
        copied(k, float32, (64, 64), SwizzledSharedLayout(4, 1, 8, [1, 0]), GRID, mask=mask)
        op = only(check(k), async_copy.copy)
        assert op.operand("mask") is not None
        widths.append(op.attrs["vec"])
    assert widths == [4, 4, 4]


def test_a_mask_that_begins_within_a_copy():
    """Zeros before it keep copies narrow, unless they are not asked for."""
    for zeros, vec in ((True, 1), (False, 4)):
        k = tile_kernel()
        mask = columns_below(k, (64, 64), GRID, k.number_in(5, int32, 1), "ge")
        copied(k, float32, (64, 64), SwizzledSharedLayout(4, 1, 8, [1, 0]), GRID, mask=mask, zeros=zeros)
        assert only(check(k), async_copy.copy).attrs["vec"] == vec


def test_elements_that_threads_share_are_copied_once():
    k = tile_kernel()
    own = BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    copied(k, float16, (8, 64), SWIZZLED, own)
    assert only(check(k), async_copy.copy).operand("active") is not None


def test_a_part_of_a_stage():
    k = tile_kernel()
    smem = alloc(k, float16, (2, 64, 64), SWIZZLED)
    stage = k.emit(shared.index, smem, k.number_in(1))
    k.emit(shared.store, stage, k.input(float16, (64, 64), GRID))
    ptr = k.pointer_in(any_bits(k.rng, float16, 2048), float16)
    part = k.emit(shared.slice, stage, start=32, length=32, dim=1)
    own = BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    k.emit(async_copy.global_to_shared, part, k.address(ptr, k.grid_offsets((64, 32), 32, own)), None)
    k.emit(async_copy.commit)
    k.emit(async_copy.wait, pendings=0)
    k.output(k.emit(shared.load, stage, layout=ACROSS))
    assert only(check(k), async_copy.copy).attrs["vec"] == 8


@pytest.mark.parametrize(
    ("own", "global_", "shared_"), [(ACROSS, 1, 1), (BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]), 1, 1)]
)
def test_two_bytes_are_too_few(own, global_, shared_):
    k = tile_kernel()
    copied(k, float16, (64, 64), SWIZZLED, own)
    with pytest.raises(CompilationError, match=f"only {global_} .* and {shared_} are contiguous") as caught:
        lower_pipeline(tile_pipeline(k.finished(), TARGET), TARGET)
    assert caught.value.code == "async-copy-width"
    assert "at least" not in str(caught.value) and "2 neighbours" in str(caught.value)


def test_modifiers_are_kept():
    k = tile_kernel()
    copied(k, float16, (64, 64), SWIZZLED, GRID, cache=".ca")
    assert only(check(k), async_copy.copy).attrs["cache"] == ".ca"
