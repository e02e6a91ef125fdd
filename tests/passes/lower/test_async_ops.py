"""Asynchronous copies, mbarriers and TMA: widths, boxes, and what a target cannot do."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.layout.strategies import powers, shared_layouts
from tests.passes.lower.test_shared import ACROSS, GRID, SWIZZLED, TARGET, alloc, check, only
from tests.support import any_bits, count, ops_of, tile_kernel
from weft import targets
from weft.errors import CompilationError
from weft.ir.core import ParamFacts, Value
from weft.ir.types import (
    DescriptorType,
    ScalarType,
    SharedArrayType,
    float16,
    float32,
    int1,
    int16,
    int32,
    int64,
    uint8,
)
from weft.layout import (
    BlockedLayout,
    MBarrierLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from weft.layout.shared.sizes import allocation_bytes
from weft.ops import async_copy, control, debug, mbarrier, memory, shared, sync, tile, tma
from weft.passes.lower import lower_tiles
from weft.passes.lowered.allocate_scratch import allocate_scratch
from weft.passes.pipeline import lower_pipeline, tile_pipeline

LAW = settings(deadline=None, max_examples=40)


# cp.async


def copied(k, element, shape, layout, own, *, divisible=16, mask=None, columns=None, **attrs):
    """Copy a random tile to shared memory, wait, and store what arrived."""
    size = shape[0] * (columns or shape[1])
    ptr = k.pointer_in(any_bits(k.rng, element, size), element, divisible)
    offsets = k.grid_offsets(shape, columns or shape[1], own)
    smem = alloc(k, element, shape, layout)
    k.emit(async_copy.global_to_shared, smem, k.address(ptr, offsets), mask, **attrs)
    k.emit(async_copy.commit)
    k.emit(async_copy.wait, pendings=0)
    k.output(k.emit(shared.load, smem, layout=GRID))


def rows_below(k, shape, own, limit):
    rows = k.emit(tile.arange, start=0, end=shape[0], layout=SliceLayout(1, own))
    below = k.cmp("lt", rows, k.splat(limit, rows))
    return k.emit(tile.broadcast, k.emit(tile.expand_dims, below, axis=1), shape=shape)


def columns_below(k, shape, own, limit):
    columns = k.emit(tile.arange, start=0, end=shape[1], layout=SliceLayout(0, own))
    below = k.cmp("lt", columns, k.splat(limit, columns))
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
    """Zeros arrive where the mask does not hold; only a limit that may lie anywhere keeps copies narrow."""
    widths: list[int] = []
    for limit, divisible in ((43, 1), (40, 8), (0, 16)):
        k = tile_kernel()
        mask = columns_below(k, (64, 64), GRID, k.number_in(limit, int32, divisible))
        copied(k, float32, (64, 64), SwizzledSharedLayout(4, 1, 8, [1, 0]), GRID, mask=mask)
        op = only(check(k), async_copy.copy)
        assert op.operand("mask") is not None
        widths.append(op.attrs["vec"])
    assert widths == [1, 4, 4]


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


# mbarriers and TMA


def barrier_and_tile(k, *, shape=(64, 128), element=float16, mode="tiled", rank=2):
    layout = NVMMASharedLayout.get_default_for(list(shape), element)
    desc = Value(DescriptorType(element, shape, layout, mode), "desc")
    k.params = (*k.params, desc)
    k.facts.append(ParamFacts())
    bars = alloc(k, int64, (2, 1), MBarrierLayout(), "bars")
    bar = k.emit(shared.index, bars, k.number(1), name="bar")
    return desc, bar, alloc(k, element, shape, layout, "smem")


def lowered(k, target=TARGET):
    """Lowered only: these kernels have no arguments to run on."""
    return lower_tiles(k.finished(), target)


def test_barriers_are_eight_bytes():
    k = tile_kernel()
    _, bar, smem = barrier_and_tile(k)
    on = k.number_in(True, int1)
    k.emit(mbarrier.init, bar, count=1)
    k.emit(mbarrier.expect, bar, on, bytes=128)
    k.emit(mbarrier.arrive, bar, None, count=3)
    k.emit(mbarrier.wait, bar, k.number(0), on, smem)
    k.emit(async_copy.mbarrier_arrive, bar, increment=False)
    k.emit(mbarrier.invalidate, bar)
    func = lowered(k)
    view = next(op for op in ops_of(func, shared.view) if op.result.name == "bar")
    for kind in (
        mbarrier.init,
        mbarrier.expect,
        mbarrier.arrive,
        mbarrier.wait,
        async_copy.mbarrier_arrive,
        mbarrier.invalidate,
    ):
        assert only(func, kind).operands[0] is view.result
    assert view.result.type == SharedArrayType(int64, 1)
    assert only(func, mbarrier.arrive).attrs["count"] == 3
    assert len(only(func, mbarrier.wait).operands) == 3, "what a wait keeps alive has its place already"


def test_boxes():
    """A block of 64 x 128 halves is two boxes of 128 bytes a row; offsets are bytes in shared memory."""
    k = tile_kernel()
    desc, bar, smem = barrier_and_tile(k)
    at = k.number_in(3), k.number(0)
    k.emit(tma.load, desc, bar, smem, None, *at)
    k.emit(tma.store, desc, smem, *at)
    k.emit(tma.reduce, desc, smem, *at, kind="add")
    k.emit(tma.store_wait, pendings=1)
    func = lowered(k)
    for kind in (tma.load, tma.store, tma.reduce):
        assert only(func, kind).attrs["boxes"] == (((0, 0), 0), ((0, 64), 8192))
    assert only(func, tma.reduce).attrs["kind"] == "add"


def test_im2col():
    k = tile_kernel()
    desc, bar, smem = barrier_and_tile(k, shape=(128, 128), mode="im2col")
    zero = k.number(0)
    offsets = [k.number(i, int16) for i in (1, 2)]
    k.emit(tma.load_im2col, desc, bar, smem, None, zero, zero, zero, zero, *offsets)
    op = only(lowered(k), tma.load_im2col)
    assert op.attrs["boxes"] == (((0, 0), 0), ((0, 64), 16384))
    assert len(op.operands) == 10


def test_im2col_of_too_many_pixels():
    k = tile_kernel()
    desc, bar, smem = barrier_and_tile(k, shape=(2048, 64), mode="im2col")
    zero = k.number(0)
    k.emit(tma.load_im2col, desc, bar, smem, None, zero, zero, zero, zero, k.number(0, int16), k.number(0, int16))
    with pytest.raises(CompilationError, match="2048 pixels") as caught:
        lowered(k)
    assert caught.value.code == "tma-im2col-pixels"


def made_descriptor(k, *, element=float16, block=(32, 64)):
    ptr = k.pointer_in(any_bits(k.rng, element, 64), element)
    sizes = [k.number_in(64) for _ in block]
    strides = [k.number_in(64, int64) for _ in block[:-1]]
    layout = NVMMASharedLayout.get_default_for(list(block), element)
    return k.emit(
        tma.make_descriptor, ptr, *sizes, *strides, k.number(1, int64), block_shape=block, layout=layout, padding="nan",
        name="desc",
    )  # fmt: skip


def stored(k, desc):
    smem = alloc(k, desc.type.element, desc.type.block_shape, desc.type.layout, "smem")
    k.emit(tma.store, desc, smem, k.number(0), k.number(0))


def test_descriptors_made_in_the_kernel():
    """Each has a place of its own in the workspace, and aligned room in shared memory where it is formed."""
    k = tile_kernel()
    for _ in range(2):
        stored(k, made_descriptor(k))
    made_descriptor(k)
    func = lowered(k)
    first, second = ops_of(func, tma.write_descriptor)
    assert [op.attrs["slot"] for op in (first, second)] == [0, 128]
    assert [op.attrs["again"] for op in (first, second)] == [False, False]
    assert func.attrs.workspace_bytes == 256, "what nobody uses is not made"
    assert first.attrs["padding"] == "nan" and first.attrs["block_shape"] == (32, 64)
    assert [op.operands[0] for op in ops_of(func, tma.store)] == [first.result, second.result]
    rooms = [op for op in ops_of(func, shared.scratch) if op.attrs["align"] == 128]
    assert [op.result for op in rooms] == [first.operands[0], second.operands[0]]
    assert [op.attrs["offset"] for op in ops_of(placed(func), shared.scratch) if op.attrs["align"] == 128] == [0, 0]


def placed(func):
    return allocate_scratch(func, TARGET)


def test_descriptors_made_in_a_loop():
    k = tile_kernel()
    with k.region([ScalarType(int32)], ["i"]) as body:
        stored(k, made_descriptor(k))
        k.emit(control.yield_)
    k.emit(control.for_, k.number(0), k.number(4), k.number(1), regions=(body.done,), descending=False)
    assert only(lowered(k), tma.write_descriptor).attrs["again"]


def test_a_debug_build_checks_descriptors():
    k = tile_kernel()
    stored(k, made_descriptor(k))
    func = lower_tiles(k.finished().with_attrs(debug=True), TARGET)
    messages = [op.attrs["message"] for op in ops_of(func, debug.assert_)]
    assert [message.partition(": ")[2] for message in messages] == [
        "the address is no multiple of 16 bytes", "extent 0 is below 1", "extent 1 is below 1",
        "stride 0 is no multiple of 16 bytes",
    ]  # fmt: skip


def test_descriptors_that_are_used_are_fetched_first():
    k = tile_kernel()
    desc, bar, smem = barrier_and_tile(k)
    unused = Value(desc.type, "unused")
    k.params = (*k.params, unused)
    k.facts.append(ParamFacts())
    k.emit(tma.load, desc, bar, smem, None, k.number(0), k.number(0))
    func = lowered(k)
    assert func.body.ops[0].kind is tma.prefetch
    assert only(func, tma.prefetch).operands == (func.params[0],)


@pytest.mark.parametrize("what", ["expect", "store", "fence", "make"])
def test_what_ampere_lacks(what):
    k = tile_kernel()
    desc, bar, smem = barrier_and_tile(k)
    if what == "expect":
        k.emit(mbarrier.expect, bar, None, bytes=128)
    elif what == "store":
        k.emit(tma.store, desc, smem, k.number(0), k.number(0))
    elif what == "make":
        made_descriptor(k)
    else:
        k.emit(sync.fence_async)
    with pytest.raises(CompilationError, match="sm_80") as caught:
        lowered(k, targets.get("sm_80"))
    assert caught.value.code == "lower-target"


def test_stages_in_a_loop():
    """Barriers and buffers of a ring are a multiplication each, and no handle is carried."""
    k = tile_kernel()
    layout = NVMMASharedLayout.get_default_for([32, 64], float16)
    desc = Value(DescriptorType(float16, (32, 64), layout), "desc")
    k.params = (desc,)
    k.facts.append(ParamFacts())
    bufs = alloc(k, float16, (4, 32, 64), layout, "bufs")
    bars = alloc(k, int64, (4, 1), MBarrierLayout(), "bars")
    with k.region([ScalarType(int32)], ["i"]) as body:
        (i,) = body.args
        bar, buf = k.emit(shared.index, bars, i, name="bar"), k.emit(shared.index, bufs, i, name="buf")
        k.emit(mbarrier.expect, bar, None, bytes=prod((32, 64)) * 2)
        k.emit(tma.load, desc, bar, buf, None, i, k.number(0))
        k.emit(control.yield_)
    k.emit(control.for_, k.number(0), k.number(4), k.number(1), regions=(body.done,), descending=False)
    func = lowered(k)
    assert [op.result.name for op in ops_of(func, shared.view)] == ["bar", "buf"]
    assert count(func, memory.addptr) == 0
    assert not only(func, control.for_).results
