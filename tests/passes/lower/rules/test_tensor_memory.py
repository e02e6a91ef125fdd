"""Tensor memory when lowered: the kernel's columns, and accesses by warps."""

from __future__ import annotations

import pytest

from tests.passes.lower.tensors import (
    LANE,
    TARGET,
    WIDE,
    load,
    lowered,
    number,
    only,
    part,
    tensor,
    tensor_kernel,
    warps,
)
from tests.support import count, ops_of
from weft import targets
from weft.errors import CompilationError, LayoutError, Loc
from weft.ir.types import RegsType, ScalarType, SharedArrayType, float16, float32, int1, int32, uint8, uint32
from weft.ir.verify import verify
from weft.layout import BlockedLayout, TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import register_layout
from weft.ops import arith, cluster, control, program, shared, tensor_memory, tile
from weft.passes.lower import lower_tiles
from weft.passes.lowered.allocate_scratch import allocate_scratch

# The kernel's columns


def test_a_kernel_takes_its_columns_first_and_gives_them_back_last():
    k = tensor_kernel(columns=64)
    tensor(k)
    func = lowered(k)
    room, reserve, *_ = func.body.ops
    assert room.kind is shared.scratch and room.result.type == SharedArrayType(uint32, 1)
    assert reserve.kind is tensor_memory.reserve and reserve.operands[0] is room.result
    assert reserve.attrs == {"columns": 64, "two_ctas": False}
    release, end = func.body.ops[-2:]
    assert release.kind is tensor_memory.release and end.kind is control.return_
    assert release.operands[0] is reserve.result and release.attrs == reserve.attrs


def test_the_kernel_s_columns_have_the_line_of_its_first_allocation():
    """The columns of a program that ends early, for example, are reported there rather than at the `def`."""
    k = tensor_kernel(columns=64)
    lines = [Loc("kernel.py", line) for line in (3, 4)]
    for k.loc in lines:
        tensor(k, name="")
    func = lowered(k)
    assert [only(func, kind).loc for kind in (shared.scratch, tensor_memory.reserve)] == lines[:1] * 2


def test_nothing_else_lies_where_the_address_is_told():
    """Warps may read it late, when others convert tiles already."""
    k = tensor_kernel()
    tensor(k)
    x = k.input(float32, (128, 64), BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0]))
    k.output(k.emit(tile.convert, x, layout=BlockedLayout([8, 1], [8, 4], [1, 4], [0, 1])))
    func = allocate_scratch(lowered(k), TARGET)
    room, *others = [
        range(op.attrs["offset"], op.attrs["offset"] + op.result.type.count * 4) for op in ops_of(func, shared.scratch)
    ]
    assert others and not any(set(room) & set(other) for other in others)


def test_two_blocks_take_columns_together():
    k = tensor_kernel(two_ctas=True, num_ctas=2)
    k.emit(cluster.arrive, relaxed=False)
    k.emit(cluster.wait)
    func = lowered(k)
    assert only(func, tensor_memory.reserve).attrs["two_ctas"] and only(func, tensor_memory.release).attrs["two_ctas"]
    kinds = [op.kind for op in func.body.ops]
    assert kinds[-3:] == [cluster.wait, tensor_memory.release, control.return_], "the blocks have met before"


def test_a_kernel_without_tensor_memory_takes_none():
    func = lowered(tensor_kernel(columns=0))
    assert not count(func, tensor_memory.reserve, tensor_memory.release)


# Accesses


@pytest.mark.parametrize(("num_warps", "registers", "fifth"), [(4, 64, 0), (8, 32, 32)])
def test_a_load(num_warps, registers, fifth):
    """Four warps read all lanes; further ones the other columns."""
    k = tensor_kernel(num_warps=num_warps)
    load(k, tensor(k, column=64), num_warps=num_warps)
    func = lowered(k)
    op = only(func, tensor_memory.load_regs)
    assert op.result.type == RegsType(float32, registers)
    assert (op.attrs["variant"], op.attrs["repeat"], op.attrs["offsets"]) == ("32x32b", registers, (0,))
    assert op.attrs["registers"] == (tuple(range(registers)),)
    own = [number(func, op.operands[0], warps(func, warp)) for warp in range(num_warps)]
    assert own == [64 + warp % 4 * 32 * LANE + warp // 4 * fifth for warp in range(num_warps)]


def test_the_warps_own_address_is_formed_once_at_the_entry():
    k = tensor_kernel()
    acc = tensor(k)

    def body(i):
        load(k, acc)
        return ()

    with k.region([ScalarType(int32)]) as region:
        body(*region.args)
        k.emit(control.yield_)
    k.emit(control.for_, k.number(0), k.number(4), k.number(1), regions=(region.done,), descending=False)
    load(k, part(k, acc, 32))
    func = lowered(k)
    assert only(func, program.warp_id) in func.body.ops
    (op,) = (op for op in func.body.ops if op.kind is arith.mul)
    assert number(func, op.result, warps(func, 3)) == 96 * LANE


def test_a_store_where_a_predicate_holds():
    k = tensor_kernel()
    acc = tensor(k, column=64)
    layout = register_layout(32, (128, 64), WIDE, 4)
    x = k.emit(tile.splat, k.number(1, float32), shape=(128, 64), layout=layout)
    k.emit(tensor_memory.store, acc, x, k.number_in(True, int1))
    func = lowered(k)
    op = only(func, tensor_memory.store_regs)
    address, value, pred = op.operands
    assert number(func, address, warps(func, 1)) == 64 + 32 * LANE
    assert value.type == RegsType(float32, 64) and pred is func.params[0]
    assert (op.attrs["variant"], op.attrs["repeat"]) == ("32x32b", 64)


def test_a_store_without_predicate():
    k = tensor_kernel()
    x = k.emit(
        tile.splat, k.number(0, float32), shape=(128, 64), layout=register_layout(32, (128, 64), WIDE, 4, "16x256b")
    )
    k.emit(tensor_memory.store, tensor(k), x, None)
    op = only(lowered(k), tensor_memory.store_regs)
    assert op.attrs["variant"] == "16x256b" and op.operands[2] is None
    assert op.attrs["repeat"] == 8 and len(op.attrs["offsets"]) == 2, "the other 16 lanes are a second instruction"


def test_halves_that_have_a_column_each_are_packed():
    k = tensor_kernel()
    load(k, tensor(k, (128, 32), element=float16, layout=TensorMemoryLayout([128, 32], col_stride=2)))
    op = only(lowered(k), tensor_memory.load_regs)
    assert op.attrs["packed"] and op.result.type == RegsType(float16, 32)


def test_registers_that_repeat_others_are_loaded_once():
    """Scales: a tile of 32 rows and two columns in a layout that holds everything twice."""
    k = tensor_kernel()
    layout = TensorMemoryScalesLayout()
    acc = tensor(k, (128, 4), element=uint8, layout=layout)
    whole = register_layout(8, (128, 4), layout, 4)
    twice = type(whole)([[0, 0], *whole.reg_bases], whole.lane_bases, whole.warp_bases, whole.block_bases, whole.shape)
    value = k.emit(tensor_memory.load, acc, layout=twice)
    k.emit(tensor_memory.store, acc, value, None)
    func = lowered(k)
    op = only(func, tensor_memory.load_regs)
    distinct = whole.to_linear((128, 4)).in_size("register")
    assert op.result.type.count == distinct
    stored = only(func, tensor_memory.store_regs).operands[1]
    assert stored.type.count == 2 * distinct


# What cannot be


def test_a_layout_that_no_instruction_reads():
    k = tensor_kernel()
    k.emit(tensor_memory.load, tensor(k), layout=BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
    with pytest.raises(LayoutError) as caught:
        lowered(k)
    assert caught.value.code == "tmem-access" and caught.value.loc is not None
    assert "get_tmem_reg_layout" in caught.value.fix


def test_what_hopper_lacks():
    k = tensor_kernel()
    tensor(k)
    func = k.finished()
    verify(func)
    with pytest.raises(CompilationError, match="sm_90a") as caught:
        lower_tiles(func, targets.get("sm_90a"))
    assert caught.value.code == "lower-target"
    assert TARGET.has_tcgen05
