"""Rows that TMA gathers and scatters when lowered: requests for four rows each, by a thread that knows all rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers
from tests.passes.lower.rules.test_shared import alloc
from tests.passes.lower.tensors import lowered, only, tensor_kernel
from tests.support import count, ops_of
from weft import targets
from weft.errors import CompilationError, LayoutError
from weft.ir.core import ParamFacts, Value
from weft.ir.types import DescriptorType, RegsType, SharedArrayType, float16, float32, int1, int32, int64, uint8
from weft.layout import BlockedLayout, DistributedLinearLayout, MBarrierLayout, NVMMASharedLayout, SliceLayout
from weft.layout.shared.sizes import allocation_bytes
from weft.layout.tensor_cores.shared_operands import swizzled
from weft.ops import arith, cluster, control, shared, tile, tma, warp
from weft.passes.lower import lower_tiles

LAW = settings(deadline=None, max_examples=examples(40))
LINE = BlockedLayout([1], [32], [4], [0])
ROWS = SliceLayout(1, BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0]))


def gathered(k, rows, shape, *, element=float16, swizzle=128, layout=LINE, cga=None, indices=None, pred=None):
    """A descriptor of single rows, a buffer, and row numbers: those given, or the first ones."""
    memory = NVMMASharedLayout(swizzle, element.bits, cga_layout=cga)
    desc = Value(DescriptorType(element, (1, shape[1]), memory), "desc")
    k.params = (*k.params, desc)
    k.facts.append(ParamFacts())
    smem = alloc(k, element, shape, memory)
    if indices is None:
        indices = k.load(k.pointer_in(k.rng.integers(0, 99, rows), int32), k.positions((rows,), layout))
    return desc, smem, indices


def gather(k, desc, smem, indices, column, pred=None, bars=None):
    bar = bars or alloc(k, int64, (1,), MBarrierLayout(), "bar")
    k.emit(tma.gather, desc, bar, smem, pred, indices, column)


def test_a_gather():
    """Two panels of 64 halves: their requests follow each other by rows."""
    k = tensor_kernel(columns=0)
    column, on = k.number_in(64), k.number_in(True, int1)
    gather(k, *gathered(k, 16, (16, 128)), column, on)
    func = lowered(k)
    op = only(func, tma.gather4)
    desc, bar, smem, pred, rows, at = op.operands
    assert desc is func.params[2] and (pred, at) == (func.params[1], func.params[0])
    assert bar.type == SharedArrayType(int64, 1) and smem.type == SharedArrayType(float16, 16 * 128)
    assert rows.type == RegsType(int32, 16)
    assert op.attrs["steps"] == (
        (0, 0, 0), (4, 0, 512), (8, 0, 1024), (12, 0, 1536),
        (0, 64, 2048), (4, 64, 2560), (8, 64, 3072), (12, 64, 3584),
    )  # fmt: skip
    assert op in func.body.ops


def test_a_scatter():
    k = tensor_kernel(columns=0)
    k.emit(tma.scatter, *gathered(k, 8, (8, 32), element=float32), k.number(0))
    op = only(lowered(k), tma.scatter4)
    assert op.attrs["steps"] == ((0, 0, 0), (4, 0, 512))
    assert op.operands[2].type == RegsType(int32, 8)


@LAW
@given(st.data(), st.sampled_from([uint8, float16, float32]))
def test_requests_bring_every_element_to_its_place(data, element):
    """Four rows of a request lie one after another, swizzled by their address as the hardware does."""
    swizzle = data.draw(st.sampled_from([0, 32, 64, 128]))
    least = max(swizzle, 32) // element.itemsize
    shape = 8 << data.draw(st.integers(0, 6)), least * data.draw(powers(3))
    k = tensor_kernel(columns=0)
    desc, smem, indices = gathered(k, shape[0], shape, element=element, swizzle=swizzle)
    gather(k, desc, smem, indices, k.number(0))
    steps = only(lowered(k), tma.gather4).attrs["steps"]
    linear = desc.type.layout.to_linear(shape)
    width = desc.type.layout.box((1, shape[1]))[1]
    place = {linear.coordinates(linear.flat(offset=at)): at for at in range(linear.in_size("offset"))}
    seen = {}
    for first, column, byte in steps:
        for row in range(4):
            for at in range(width):
                plain = byte + (row * width + at) * element.itemsize
                seen[first + row, column + at] = swizzled(plain, swizzle) // element.itemsize
    assert seen == place
    assert len(steps) * 4 * width * element.itemsize == allocation_bytes(desc.type.layout, shape, element.bits)


@pytest.mark.parametrize("layout", [LINE, ROWS, BlockedLayout([2], [32], [4], [0])])
def test_every_thread_has_all_rows(layout):
    """By shuffles, or through shared memory."""
    k = tensor_kernel(columns=0)
    desc, smem, indices = gathered(k, 32, (32, 64), layout=layout)
    k.emit(tma.scatter, desc, smem, indices, k.number(0))
    func = lowered(k)
    assert only(func, tma.scatter4).operands[2].type == RegsType(int32, 32)
    assert count(func, shared.store_regs, warp.shuffle_idx, warp.shuffle_xor) >= 1


def test_rows_that_every_thread_has_already():
    k = tensor_kernel(columns=0)
    whole = DistributedLinearLayout([[1], [2], [4]], [[0]] * 5, [[0]] * 2, [], [8])
    desc, smem, indices = gathered(k, 8, (8, 64), layout=whole)
    k.emit(tma.scatter, desc, smem, indices, k.number(0))
    k.emit(tma.scatter, desc, smem, k.emit(tile.splat, k.number_in(5), shape=(8,), layout=LINE), k.number(0))
    func = lowered(k)
    assert not count(func, shared.store_regs, warp.shuffle_idx, warp.shuffle_xor)
    assert len(ops_of(func, tma.scatter4)) == 2


# Clusters


def clustered(cga, rows_cga, num_ctas=2):
    k = tensor_kernel(columns=0, num_ctas=num_ctas)
    layout = BlockedLayout([1], [32], [4], [0], cga_layout=rows_cga)
    return k, gathered(k, 16, (16, 128), layout=layout, cga=cga)


def test_blocks_with_rows_each():
    k, given_ = clustered([[1, 0]], [[1]])
    gather(k, *given_, k.number_in(64), bars=alloc(k, int64, (2,), MBarrierLayout.multicta(2), "bar"))
    func = lowered(k)
    op = only(func, tma.gather4)
    assert op.operands[4].type == RegsType(int32, 8)
    assert len(op.attrs["steps"]) == 4 and op.operands[5] in func.params


def test_blocks_with_columns_each():
    """The second block's begin half of them further on."""
    k, given_ = clustered([[0, 1]], [[0]])
    gather(k, *given_, k.number_in(64), bars=alloc(k, int64, (2,), MBarrierLayout.multicta(2), "bar"))
    func = lowered(k)
    op = only(func, tma.gather4)
    assert op.operands[4].type == RegsType(int32, 16) and len(op.attrs["steps"]) == 4
    (added,) = (each for each in func.body.ops if op.operands[5] in each.results)
    assert added.kind is arith.add and count(func, cluster.rank) == 1


def test_of_blocks_with_copies_the_first_one_scatters():
    k, given_ = clustered([[0, 0]], [[0]])
    k.emit(tma.scatter, *given_, k.number(0))
    func = lowered(k)
    (test,) = ops_of(func, control.if_)
    assert test.regions[0].ops[-2].kind is tma.scatter4


def test_rows_that_another_block_has():
    k, given_ = clustered([[0, 1]], [[1]])
    k.emit(tma.scatter, *given_, k.number(0))
    with pytest.raises(LayoutError) as caught:
        lowered(k)
    assert caught.value.code == "convert-blocks" and caught.value.loc is not None


def test_what_hopper_lacks():
    k = tensor_kernel(columns=0)
    k.emit(tma.scatter, *gathered(k, 8, (8, 64)), k.number(0))
    with pytest.raises(CompilationError, match="sm_90a") as caught:
        lower_tiles(k.finished(), targets.get("sm_90a"))
    assert caught.value.code == "lower-target"
