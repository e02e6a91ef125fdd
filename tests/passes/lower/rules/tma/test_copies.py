"""TMA loads and stores when lowered: boxes, im2col, rings in a loop."""

from __future__ import annotations

from math import prod

import pytest

from tests.passes.lower.rules.test_shared import TARGET, alloc, only
from tests.support import count, ops_of, tile_kernel
from weft.errors import CompilationError
from weft.ir.core import ParamFacts, Value
from weft.ir.types import DescriptorType, ScalarType, float16, int16, int32, int64
from weft.layout import MBarrierLayout, NVMMASharedLayout
from weft.ops import control, mbarrier, memory, shared, tma
from weft.passes.lower import lower_tiles


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
