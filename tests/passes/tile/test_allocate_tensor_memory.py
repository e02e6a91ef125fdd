"""Columns of tensor memory, the bill where they do not suffice, and how long operands of tcgen05 operations live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.passes.shared import TILE, SharedKernel
from tests.passes.tensor import ANSWER, COLUMNS, FLAT, INNER, ROWS, SM100, TensorKernel
from weft.errors import UserError
from weft.ir.core import Func, ParamFacts, Value, walk
from weft.ir.types import DescriptorType, float16, float32, int64, uint8
from weft.ir.verify import verify
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.ops import clc, shared, tcgen05, tensor_memory, tma
from weft.passes.tile.allocate_shared import allocate_shared
from weft.passes.tile.allocate_tensor_memory import allocate_tensor_memory
from weft.passes.tile.partition_plan import check_partitions
from weft.runtime.errors import OutOfResources

PAIR = TensorMemoryLayout([ROWS, COLUMNS], cga_layout=[[1, 0]], two_ctas=True)


def allocated(k: SharedKernel, target=SM100) -> Func:
    func = allocate_tensor_memory(k.finished(), target)
    verify(func)
    return func


def columns(func: Func) -> dict[str, int]:
    return {op.result.name: op.attrs["column"] for op in walk(func.body) if op.kind is tensor_memory.alloc}


def test_each_has_columns_of_its_own_and_wide_tiles_come_first():
    k = TensorKernel()
    k.tensor("scales", 64, 4, element=uint8, layout=TensorMemoryScalesLayout())
    k.tensor("others", 64, 4, element=uint8, layout=TensorMemoryScalesLayout())
    k.tensor("half", ROWS, COLUMNS, element=float16)
    k.tensor("wide", ROWS, 2 * COLUMNS)
    func = allocated(k)
    assert columns(func) == {"wide": 0, "accs": 128, "half": 256, "scales": 288, "others": 292}
    assert func.attrs.tensor_columns == 512
    assert not func.attrs.two_ctas


@pytest.mark.parametrize(("tiles", "total"), [(0, 128), (2, 256), (3, 512), (6, 512)])
def test_the_total_is_a_power_of_two(tiles, total):
    k = TensorKernel()
    if tiles:
        k.tensor("more", tiles, ROWS, COLUMNS)
    assert allocated(k).attrs.tensor_columns == total


def test_at_least_32():
    k = SharedKernel()
    layout = TensorMemoryLayout([ROWS, 16])
    k.emit(tensor_memory.alloc, element=float16, shape=(ROWS, 16), layout=layout, tag=1, name="a")
    assert allocated(k).attrs.tensor_columns == 32


def test_without_tensor_memory_nothing_changes():
    func = SharedKernel().finished()
    assert allocate_tensor_memory(func, SM100) is func


def test_two_blocks_that_multiply_together():
    pair = SharedKernel(num_ctas=2)
    pair.emit(tensor_memory.alloc, element=float16, shape=(2 * ROWS, COLUMNS), layout=PAIR, tag=1, name="a")
    scales = TensorMemoryScalesLayout([[0, 0]])
    pair.emit(tensor_memory.alloc, element=uint8, shape=(ROWS, 4), layout=scales, tag=2, name="s")
    func = allocated(pair)
    assert func.attrs.two_ctas is True
    assert columns(func) == {"a": 0, "s": 32}


# Mistakes


def test_the_bill():
    k = TensorKernel()
    k.tensor("wide", 3, ROWS, 2 * COLUMNS)
    k.tensor("", ROWS, COLUMNS, element=float16)
    with pytest.raises(OutOfResources) as caught:
        allocated(k)
    error = caught.value
    assert isinstance(error, UserError)
    assert error.code == "tensor-memory"
    assert error.loc is not None and error.loc.line == 9
    assert "needs 544 columns of tensor memory, but the target has 512 per block" in error.message
    wide, accs, unnamed = error.message.partition("per block: ")[2].split("; ")
    assert wide.startswith("wide takes 384 columns at k.py:9, [3, 128, 128] of float32 in TensorMemoryLayout(")
    assert accs.startswith("accs takes 128 columns at k.py:")
    assert unnamed.startswith("a buffer takes 32 columns at k.py:10, [128, 64] of float16")
    assert ".reinterpret" in error.fix and ".slice" in error.fix
    with pytest.raises(OutOfResources, match="the target has 64 per block"):
        allocated(TensorKernel(), replace(SM100, tensor_memory_columns=64))


def test_allocations_in_partitions_share_nothing():
    k = TensorKernel()
    k.partitions(lambda: k.tensor("a", ROWS, COLUMNS), lambda: k.tensor("b", ROWS, COLUMNS))
    func = allocated(k)
    assert columns(func) == {"accs": 0, "a": 2 * COLUMNS, "b": 3 * COLUMNS}


def test_one_kernel_has_one_kind_of_product():
    k = TensorKernel()
    k.tensor("pair", 2 * ROWS, COLUMNS, layout=PAIR)
    with pytest.raises(UserError) as caught:
        allocated(k)
    assert caught.value.code == "tmem-two-ctas-mixed"
    assert "write two_ctas=False" in caught.value.fix
    k = TensorKernel()
    k.emit(tensor_memory.reinterpret, k.acc(0), element=float16, shape=(2 * ROWS, COLUMNS), layout=PAIR)
    with pytest.raises(UserError, match="two blocks that multiply together"):
        allocated(k)


def test_threads_reach_tensor_memory_in_warpgroups():
    k = TensorKernel()
    k.partitions(k.doing("L T"), k.doing("M C"), lambda: k.take(k.acc(0), 8), warps=(1, 8))
    func = k.finished()
    assert check_partitions(func, SM100) is func
    k = TensorKernel()
    k.partitions(k.doing("M"), lambda: None, lambda: k.branch(lambda: k.take(k.acc(0))), warps=(4, 2))
    with pytest.raises(UserError) as caught:
        check_partitions(k.finished(), SM100)
    assert caught.value.code == "tensor-memory-warps"
    assert "tensor_memory.load is executed by worker 1, which has 2 warps" in caught.value.message
    assert "worker_num_warps=[4, 4]" in caught.value.fix
    k = TensorKernel(num_warps=2)
    k.put(k.acc(0), 4)
    with pytest.raises(UserError, match="executed by the kernel, which has 2 warps"):
        check_partitions(k.finished(), SM100)


# How long operands live


class Operands(TensorKernel):
    """`late` is used after the steps, and lies where `x` does if that is not in use any more."""

    def __init__(self, num_warps: int = 4) -> None:
        super().__init__(num_warps=num_warps)
        self.late = self.matrix("late", ROWS, 16)
        self.steps |= {
            "K": lambda: self.emit(tcgen05.copy, self.x, self.tensor("copied", ROWS, 16, element=float16, layout=OPERAND)),
            "[M": lambda: self.loop(lambda _: self.do("M")),
            "[MC": lambda: self.loop(lambda _: self.do("M C")),
            "[MCw": lambda: self.loop(lambda _: self.do("M C wait")),
            "[wMC": lambda: self.loop(lambda _: self.do("wait M C")),
            "?C": lambda: self.branch(self.doing("C")),
        }  # fmt: skip

    def shares(self) -> bool:
        self.write_matrix(self.late)
        self.emit(shared.keep_alive, self.y)
        func = allocate_shared(self.finished(), SM100)
        found = {op.result.name: op.attrs["offset"] for op in walk(func.body) if op.kind is shared.alloc}
        return found["late"] == found["x"]


OPERAND = TensorMemoryLayout([ROWS, 16])


@pytest.mark.parametrize(
    ("steps", "over"),
    [
        ("M C wait", True),
        ("K C wait", True),
        ("M", False),
        ("M C", False),
        ("M wait C", False),
        ("C M wait", False),
        ("M C wait2", False),
        ("M C2 wait2", True),
        ("M C2 wait", False),
        ("M C C2 wait", True),
        ("M M C wait", True),
        ("M C wait M C", False),
        ("M C M C wait", True),
        ("[M C wait", True),
        ("[MC wait", True),
        ("[wMC wait", True),
        ("[MCw", True),
        ("[wMC", False),
        ("M ?C wait", True),
    ],
)
def test_operands_live_until_a_commit_is_waited_for(steps, over):
    k = Operands()
    k.do(steps)
    assert k.shares() is over


def test_no_partition_waits_before_a_worker_s_products():
    k = Operands()
    k.partitions(k.doing("wait2"), k.doing("M C2"), warps=(1,))
    assert not k.shares()


@pytest.mark.parametrize("tcgen05_products", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_a_tile_of_results_lies_where_operands_were(tcgen05_products, outside):
    """A persistent kernel, whose products wait for the one before: as with products of warpgroups, or tcgen05's."""
    k = TensorKernel()
    made = [k.alloc("a", 2, length=2048)] if outside else []

    def product(i: Value, a: Value) -> None:
        if tcgen05_products:
            k.wait(k.other)
            seen = k.emit(shared.reinterpret, k.index(a, i), element=float16, shape=(ROWS, INNER), layout=FLAT)
            k.multiply(k.acc(0), seen)
            k.commit(k.other)
        else:
            k.product_wait()
            k.product(k.index(a, i), k.index(a, i))

    def one_tile(_: Value) -> None:
        a = made[0] if made else k.alloc("a", 2, length=2048)

        def step(i: Value) -> None:
            k.expect(k.bar)
            k.emit(tma.load, k.block, k.bar, k.index(a, i), None, k.zero)
            k.wait(k.bar)
            product(i, a)

        k.loop(step)
        product(k.n, a)
        k.wait(k.other) if tcgen05_products else k.product_wait()
        late = k.alloc("late", 2, length=2048)
        k.emit(shared.store, k.index(late, 0), k.splat(k.data_scalar(), k.arange(2048)))
        k.emit(tma.store, k.block, k.index(late, 0), k.zero)
        k.store_wait()

    k.block = Value(DescriptorType(float32, (2048,), TILE), "block")
    k.params = (*k.params, k.block)
    k.attrs["params"] = (ParamFacts(), ParamFacts(), ParamFacts(), ParamFacts())
    k.loop(one_tile)
    func = allocate_shared(k.finished(), SM100)
    found = {op.result.name: op.attrs["offset"] for op in walk(func.body) if op.kind is shared.alloc}
    assert (found["late"] == found["a"]) is not outside


def test_answers_of_cluster_launch_control_live_as_loads_do():
    for waited in (True, False):
        k = TensorKernel()
        late = k.alloc("late", layout=ANSWER, element=int64, length=2)
        k.do("ask")
        if waited:
            k.do("wait")
        k.emit(clc.load, late)
        func = allocate_shared(k.finished(), SM100)
        found = {op.result.name: op.attrs["offset"] for op in walk(func.body) if op.kind is shared.alloc}
        assert (found["late"] == found["answer"]) is waited
