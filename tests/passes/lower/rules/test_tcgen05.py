"""Products, copies and commits of tcgen05 when lowered: which thread of which block does what, on what memory."""

from __future__ import annotations

import pytest

from tests.passes.lower.rules.test_shared import alloc
from tests.passes.lower.tensors import lowered, number, only, tensor, tensor_kernel
from tests.support import count, ops_of
from weft import targets
from weft.errors import CompilationError, LayoutError
from weft.ir.core import ParamFacts, Value, walk
from weft.ir.types import (
    DescriptorType,
    ScalarType,
    SharedArrayType,
    float8e4nv,
    float16,
    float32,
    int1,
    int32,
    int64,
    uint8,
)  # fmt: skip
from weft.layout import (
    MBarrierLayout,
    NVMMASharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
)
from weft.ops import cluster, control, mbarrier, shared, tcgen05, tensor_memory, tma
from weft.passes.lower import lower_tiles

PAIR = [[1, 0]]
"""Two blocks that have half of the rows each."""


def operand(k, shape, *, element=float16, cga=None, transposed=False, name="smem"):
    layout = NVMMASharedLayout.get_default_for(list(shape), element, transposed=transposed, cga_layout=cga)
    return alloc(k, element, shape, layout, name)


def barrier(k, *, layout=None, shape=(1,)):
    return alloc(k, int64, shape, layout or MBarrierLayout(), "bar")


def operands(k, n=64, depth=64):
    """a [128, depth] and b [depth, n], contiguous along k and along n."""
    return operand(k, (128, depth), name="a"), operand(k, (depth, n), name="b")


# Products


def test_a_product():
    """Four instructions of 16 along k; the first of them obeys use_acc."""
    k = tensor_kernel()
    a, b = operands(k)
    use, on = k.number_in(False, int1), k.number_in(True, int1)
    k.emit(tcgen05.mma, a, b, tensor(k, column=64), use, on)
    func = lowered(k)
    op = only(func, tcgen05.issue)
    left, right, acc, *scales, use_acc, pred = op.operands
    assert (left.type, right.type) == (SharedArrayType(float16, 128 * 64), SharedArrayType(float16, 64 * 64))
    assert number(func, acc, {}) == 64 and scales == [None, None]
    assert (use_acc, pred) == func.params
    assert op.attrs["kind"] == "f16" and not op.attrs["two_ctas"]
    assert op.attrs["left"].swizzle == op.attrs["right"].swizzle == 128
    assert (op.attrs["left"].transposed, op.attrs["right"].transposed) == (False, True)
    assert [step[:4] for step in op.attrs["steps"]] == [
        (0, 0, 0, True), (0, 32, 2048, False), (0, 64, 4096, False), (0, 96, 6144, False),
    ]  # fmt: skip
    assert op in func.body.ops, "in each block"


def test_a_product_in_a_loop_on_stages():
    """Buffers and the accumulator are chosen at run time; what instructions there are does not change."""
    k = tensor_kernel()
    layout = NVMMASharedLayout.get_default_for([128, 64], float16)
    a_bufs = alloc(k, float16, (3, 128, 64), layout, "a")
    b_bufs = alloc(k, float16, (3, 64, 128), layout, "b")
    bars = barrier(k, shape=(3, 1))
    accs = tensor(k, (2, 128, 128), layout=TensorMemoryLayout([128, 128], col_stride=1))
    turn = k.number_in(1)
    acc = k.emit(tensor_memory.index, accs, turn)
    with k.region([ScalarType(int32)]) as body:
        (i,) = body.args
        a, b = k.emit(shared.index, a_bufs, i), k.emit(shared.index, b_bufs, i)
        turned = k.emit(shared.permute, a, order=(1, 0), layout=NVMMASharedLayout(128, 16, transposed=True))
        back = k.emit(shared.permute, turned, order=(1, 0), layout=layout)
        bar = k.emit(shared.index, bars, i)
        k.emit(tcgen05.mma, back, b, acc, k.cmp("gt", i, k.number(0)), None)
        k.emit(tcgen05.commit, bar, None)
        k.emit(control.yield_)
    k.emit(control.for_, k.number(0), k.number(3), k.number(1), regions=(body.done,), descending=False)
    func = lowered(k)
    op = only(func, tcgen05.issue)
    counter = only(func, control.for_).regions[0].args[0]
    views = {each.result: each for each in ops_of(func, shared.view)}
    for memory, stride in ((op.operands[0], 16384), (op.operands[1], 16384)):
        assert number(func, views[memory].operands[1], {counter: 2}) == 2 * stride
    assert number(func, op.operands[2], {func.params[0]: 1}) == 128
    assert number(func, views[only(func, tcgen05.commit).operands[0]].operands[1], {counter: 2}) == 16
    assert len(op.attrs["steps"]) == 4


def test_parts_of_operands():
    """Slices end in the steps; addresses are those of whole tiles."""
    k = tensor_kernel()
    a, b = operands(k, n=64, depth=128)
    a = k.emit(shared.slice, a, start=64, length=64, dim=1)
    b = k.emit(shared.slice, b, start=64, length=64, dim=0)
    acc = k.emit(
        tensor_memory.slice, tensor(k, (128, 128), layout=TensorMemoryLayout([128, 64])), start=64, length=64, dim=1
    )
    k.emit(tcgen05.mma, a, b, acc, None, None)
    func = lowered(k)
    op = only(func, tcgen05.issue)
    assert number(func, op.operands[2], {}) == 0
    assert op.attrs["steps"][0][:4] == (64, 128 * 128, 64 * 128, True)
    assert op.operands[-2:] == (None, None)


def test_a_left_operand_in_tensor_memory():
    """Its instructions begin at columns: 16 halves are 8."""
    k = tensor_kernel()
    acc = tensor(k)
    scores = k.emit(
        tensor_memory.reinterpret, tensor(k, column=64), element=float16, shape=(2, 128, 32),
        layout=TensorMemoryLayout([128, 32], col_stride=1),
    )  # fmt: skip
    i = k.number_in(1)
    a = k.emit(tensor_memory.index, scores, i)
    k.emit(tcgen05.mma, a, operand(k, (32, 64)), acc, None, None)
    func = lowered(k)
    op = only(func, tcgen05.issue)
    assert op.attrs["left"] is None
    assert number(func, op.operands[0], {func.params[0]: 1}) == 64 + 16
    assert [step[1] for step in op.attrs["steps"]] == [0, 8]


def test_several_blocks_of_the_accumulator():
    k = tensor_kernel(columns=256)
    a, b = operand(k, (256, 64)), operand(k, (64, 128))
    k.emit(tcgen05.mma, a, b, tensor(k, (256, 128), layout=TensorMemoryLayout([128, 64])), None, None)
    steps = only(lowered(k), tcgen05.issue).attrs["steps"]
    assert len(steps) == 2 * 2 * 4
    assert {(step[0], step[3]) for step in steps if step[3]} == {(0, True), (64, True), (128, True), (192, True)}


def scales(k, rows, columns, column, element=uint8):
    layout = TensorMemoryScalesLayout()
    return tensor(k, (rows, columns), layout=layout, element=element, column=column)


def test_a_product_with_scales():
    k = tensor_kernel(columns=128)
    a, b = operand(k, (128, 128), element=float8e4nv), operand(k, (64, 128), element=float8e4nv)
    turned = k.emit(shared.permute, b, order=(1, 0), layout=NVMMASharedLayout(128, 8, transposed=True))
    k.emit(
        tcgen05.mma_scaled, a, turned, tensor(k), scales(k, 128, 4, 64), scales(k, 64, 4, 68), k.number_in(True, int1),
        None, a_type="e4m3", b_type="e4m3",
    )  # fmt: skip
    func = lowered(k)
    op = only(func, tcgen05.issue)
    assert op.attrs["kind"] == "mxf8f6f4"
    assert [number(func, op.operands[i], {}) for i in (2, 3, 4)] == [0, 64, 68]
    assert op.operands[5] is func.params[0] and op.operands[6] is None
    assert len(op.attrs["steps"]) == 4 and {step[5:] for step in op.attrs["steps"]} == {(0, 0)}


def test_an_fp4_product_with_scales_of_sixteen():
    k = tensor_kernel(columns=128)
    a, b = operand(k, (128, 128), element=uint8), operand(k, (64, 128), element=uint8)
    turned = k.emit(shared.permute, b, order=(1, 0), layout=NVMMASharedLayout(128, 8, transposed=True))
    k.emit(
        tcgen05.mma_scaled, a, turned, tensor(k), scales(k, 128, 16, 64, float8e4nv), scales(k, 64, 16, 80, float8e4nv),
        None, None, a_type="e2m1", b_type="e2m1",
    )  # fmt: skip
    op = only(lowered(k), tcgen05.issue)
    assert op.attrs["kind"] == "mxf4nvf4"
    assert [step[5:] for step in op.attrs["steps"]] == [(4 * i, 2 * i) for i in range(4)], "columns of four scales each"


# Two blocks


def pair(**attrs):
    return tensor_kernel(columns=64, two_ctas=True, num_ctas=2, **attrs)


def test_the_first_of_two_blocks_multiplies_for_both():
    k = pair()
    a, b = operand(k, (256, 64), cga=PAIR), operand(k, (64, 64), cga=[[0, 1]])
    layout = TensorMemoryLayout([128, 64], cga_layout=PAIR, two_ctas=True)
    acc = tensor(k, (256, 64), layout=layout)
    bar = barrier(k, layout=MBarrierLayout.multicta(2), shape=(2,))
    k.emit(tcgen05.mma, a, b, acc, None, None)
    k.emit(tcgen05.commit, bar, None, receivers=(1,))
    func = lowered(k)
    op = only(func, tcgen05.issue)
    assert op.attrs["two_ctas"]
    left, right = op.operands[:2]
    assert (left.type, right.type) == (SharedArrayType(float16, 128 * 64), SharedArrayType(float16, 64 * 32)), (
        "a block's own parts"
    )
    commit = only(func, tcgen05.commit)
    assert commit.attrs["receivers"] == (1,)
    for each in (op, commit):
        (test,) = (outer for outer in ops_of(func, control.if_) if each in outer.regions[0].ops)
        assert of_rank(func, test.operands[0]) == [True, False]


def of_rank(func, condition, blocks=2):
    """Whether a condition holds in each block."""
    (compare,) = (op for op in walk(func.body) if condition in op.results)
    ranks = [op.result for op in ops_of(func, cluster.rank)]
    first, second = compare.operands
    return [number(func, first, dict.fromkeys(ranks, rank)) == number(func, second, {}) for rank in range(blocks)]


def test_each_pair_of_a_cluster_has_a_first_block():
    k = tensor_kernel(columns=64, two_ctas=True, num_ctas=4)
    bar = barrier(k, layout=MBarrierLayout.multicta(4, two_cta=True), shape=(2,))
    k.emit(tcgen05.commit, bar, None)
    func = lowered(k)
    (test,) = ops_of(func, control.if_)
    assert of_rank(func, test.operands[0], 4) == [True, False, True, False]


def test_blocks_that_multiply_alone_do_it_each():
    k = tensor_kernel(num_ctas=2)
    a, b = operand(k, (256, 64), cga=PAIR), operand(k, (64, 64), cga=[[0, 0]])
    acc = tensor(k, (256, 64), layout=TensorMemoryLayout([128, 64], cga_layout=PAIR))
    k.emit(tcgen05.mma, a, b, acc, None, None)
    k.emit(tcgen05.commit, barrier(k, layout=MBarrierLayout.multicta(2), shape=(2,)), None)
    func = lowered(k)
    assert not count(func, control.if_)
    assert not only(func, tcgen05.issue).attrs["two_ctas"]


def test_a_barrier_of_two_blocks():
    """Both blocks' loads and expectations name the first one's barrier; only that block makes it and waits."""
    k = pair()
    layout = NVMMASharedLayout.get_default_for([256, 64], float16, cga_layout=PAIR)
    desc = Value(DescriptorType(float16, (256, 64), layout), "desc")
    k.params = (*k.params, desc)
    k.facts.append(ParamFacts())
    smem = alloc(k, float16, (256, 64), layout)
    bar = barrier(k, layout=MBarrierLayout.multicta(2, two_cta=True))
    k.emit(mbarrier.init, bar, count=1)
    k.emit(mbarrier.expect, bar, None, bytes=128 * 64 * 2, shared_by=1)
    k.emit(tma.load, desc, bar, smem, None, k.number(0), k.number(0), shared_by=1)
    k.emit(mbarrier.wait, bar, k.number(0), None)
    func = lowered(k)
    load = only(func, tma.load)
    assert load.attrs["shared_by"] == 1 and load in func.body.ops
    assert load.operand("bar") is only(func, mbarrier.expect).operands[0]
    inside = [op.kind for test in ops_of(func, control.if_) for op in test.regions[0].ops[:-1]]
    assert inside == [mbarrier.init, mbarrier.wait]
    assert only(func, mbarrier.init).attrs["count"] == 2


# Copies, commits, fences


def test_a_copy_of_scales():
    """128 rows of four scales are 512 bytes, 32 rows by 16 bytes, copied to all four quarters of the lanes."""
    k = tensor_kernel()
    layout = TensorMemoryScalesLayout()
    memory = lines_of_scales(k)
    acc = tensor(k, (128, 4), layout=layout, element=uint8, column=32)
    k.emit(tcgen05.copy, memory, acc)
    func = lowered(k)
    op = only(func, tcgen05.copy_shared)
    src, dst = op.operands
    assert src.type == SharedArrayType(uint8, 512) and number(func, dst, {}) == 32
    assert op.attrs["shape"] == "32x128b.warpx4" and op.attrs["steps"] == ((0, 0),)
    assert not op.attrs["two_ctas"]


def lines_of_scales(k):
    """Scales [128, 4] as a copy reads them: row r in line r % 32 of 16 bytes, in its r // 32-th word."""
    rows = [[0, 1], [0, 2], [32, 0], [64, 0], *[[1 << bit, 0] for bit in range(5)]]
    return alloc(k, uint8, (128, 4), SharedLinearLayout(rows), "scales")


def test_a_copy_of_a_tile():
    k = tensor_kernel()
    layout = NVMMASharedLayout.get_default_for([128, 64], float32)
    src = alloc(k, float32, (128, 64), layout)
    k.emit(tcgen05.copy, src, tensor(k))
    op = only(lowered(k), tcgen05.copy_shared)
    assert op.attrs["shape"] == "128x256b" and len(op.attrs["steps"]) == 8
    assert sorted(column for _, column in op.attrs["steps"]) == [8 * i for i in range(8)]


def test_a_commit_where_a_predicate_holds_and_fences_as_they_are():
    k = tensor_kernel()
    k.emit(tcgen05.fence, before=True, reason="ahead of an arrival")
    k.emit(tcgen05.commit, barrier(k), k.number_in(True, int1))
    k.emit(tcgen05.fence, before=False)
    func = lowered(k)
    bar, pred = only(func, tcgen05.commit).operands
    assert bar.type == SharedArrayType(int64, 1) and pred is func.params[0]
    assert [op.attrs["before"] for op in ops_of(func, tcgen05.fence)] == [True, False]
    assert ops_of(func, tcgen05.fence)[0].attrs["reason"] == "ahead of an arrival"


# What cannot be


def test_operands_that_no_instruction_reads():
    k = tensor_kernel()
    a = alloc(k, float16, (128, 64), SwizzledSharedLayout(1, 1, 1, [1, 0]))
    k.emit(tcgen05.mma, a, operand(k, (64, 64)), tensor(k), None, None)
    with pytest.raises(LayoutError) as caught:
        lowered(k)
    assert caught.value.code == "tcgen05-layouts" and caught.value.loc is not None


def test_a_copy_that_no_instruction_makes():
    k = tensor_kernel()
    src = alloc(k, float32, (128, 64), SwizzledSharedLayout(1, 1, 1, [1, 0]))
    k.emit(tcgen05.copy, src, tensor(k))
    with pytest.raises(LayoutError) as caught:
        lowered(k)
    assert caught.value.code == "tcgen05-copy-layouts" and caught.value.loc is not None


@pytest.mark.parametrize("what", ["commit", "fence"])
def test_what_hopper_lacks(what):
    k = tensor_kernel(columns=0)
    if what == "commit":
        k.emit(tcgen05.commit, barrier(k), None)
    else:
        k.emit(tcgen05.fence, before=True)
    with pytest.raises(CompilationError, match="sm_90a") as caught:
        lower_tiles(k.finished(), targets.get("sm_90a"))
    assert caught.value.code == "lower-target"
