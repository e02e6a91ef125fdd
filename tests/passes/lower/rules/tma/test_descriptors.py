"""Descriptors that a kernel makes when lowered, and what a target without TMA lacks."""

from __future__ import annotations

import pytest

from tests.passes.lower.rules.test_shared import TARGET, alloc, only
from tests.passes.lower.rules.tma.test_copies import barrier_and_tile, lowered
from tests.support import any_bits, ops_of, tile_kernel
from weft import targets
from weft.errors import CompilationError
from weft.ir.types import ScalarType, float16, int32, int64
from weft.layout import NVMMASharedLayout
from weft.ops import control, debug, mbarrier, shared, sync, tma
from weft.passes.lower import lower_tiles
from weft.passes.lowered.allocate_scratch import allocate_scratch


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
