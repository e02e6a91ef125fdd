"""Handles to tensor memory and operations of tcgen05 in passes that know nothing special of them, and in text."""

from __future__ import annotations

import pytest

from tests.passes.shared import shown
from tests.passes.tensor import ACC, ANSWER, COLUMNS, ROWS, SM100, TensorKernel
from tests.sim.build import Kernel
from weft import targets
from weft.analysis.scopes import scopes
from weft.errors import UserError
from weft.ir.compare import equivalent
from weft.ir.core import Func, walk
from weft.ir.parse import parse_func, parse_type
from weft.ir.text import format_func
from weft.ir.types import TensorType, float16, float32, int64, uint8
from weft.ir.verify import VerificationError, verify
from weft.layout import AutoLayout, BlockedLayout, CoalescedLayout, MBarrierLayout, SwizzledSharedLayout
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.layout.tensor_memory.load_store import register_layout
from weft.ops import arith, clc, control, mbarrier, program, regs, shared, sync, tcgen05, tensor_memory, tile
from weft.passes.check.blocks import check_blocks_of_threads
from weft.passes.check.clusters import check_blocks
from weft.passes.dce import dce
from weft.passes.pipeline import tile_pipeline
from weft.passes.simplify import simplify
from weft.passes.sync.cluster_sync import cluster_sync
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.sync.spread_arrivals import spread_arrivals
from weft.passes.sync.spread_requests import spread_requests
from weft.passes.tile.allocate_tensor_memory import allocate_tensor_memory
from weft.passes.tile.resolve_layouts import resolve_layouts
from weft.passes.tile.split_partitions import split_partitions

PAIR = TensorMemoryLayout([ROWS, COLUMNS], cga_layout=[[1, 0]], two_ctas=True)


def kinds(func: Func) -> list[str]:
    return [op.name for op in walk(func.body) if op.name.startswith(("tensor_memory", "tcgen05", "clc"))]


# Text


@pytest.mark.parametrize(
    "type",
    [
        TensorType(float32, (2, ROWS, COLUMNS), ACC, (ROWS, COLUMNS)),
        TensorType(float16, (ROWS, 32), ACC, (ROWS, COLUMNS)),
        TensorType(float32, (2 * ROWS, COLUMNS), PAIR, (2 * ROWS, COLUMNS)),
        TensorType(uint8, (ROWS, 8), TensorMemoryScalesLayout(), (ROWS, 8)),
        TensorType(uint8, (ROWS, 8), TensorMemoryScalesLayout([[0, 0]]), (ROWS, 8)),
    ],
)
def test_types_are_read_back(type):
    assert parse_type(str(type)) == type


def test_kernels_are_read_back():
    k = TensorKernel(num_warps=8)
    k.do("expect load wait M C2 wait2 L T ask wait told")
    k.partitions(k.doing("Li"), k.doing("Mi C"), warps=(1,))
    func = k.finished()
    for each in (func, tile_pipeline(func, SM100)):
        again = parse_func(format_func(each))
        verify(again)
        assert equivalent(again, each)


def test_handles_do_not_belong_into_the_lowered_stage():
    k = TensorKernel()
    func = k.finished().with_attrs(stage="lowered")
    with pytest.raises(VerificationError, match="does not belong into the lowered stage"):
        verify(func)


# Equal computations, and unused ones


def test_allocations_are_kept_apart_and_views_are_not():
    k = TensorKernel()
    k.tensor("other", 2, ROWS, COLUMNS)
    k.do("T T L L")
    found = kinds(simplify(k.finished()))
    assert [found.count(f"tensor_memory.{kind}") for kind in ("alloc", "index", "store", "load")] == [2, 1, 2, 2]


def test_what_is_dead_goes():
    k = TensorKernel()
    k.tensor("unused", ROWS, COLUMNS)
    k.do("L told")
    k.acc(1)
    assert kinds(dce(k.finished())) == []
    k = TensorKernel()
    k.do("L T M C ask")
    assert set(kinds(dce(k.finished()))) == {
        "tensor_memory.alloc", "tensor_memory.index", "tensor_memory.store", "tcgen05.mma", "tcgen05.commit", "clc.try_cancel"
    }  # fmt: skip


# Scopes


def test_which_tile_is_decided_by_all_threads():
    k = TensorKernel()
    scopes(k.finished())
    k = TensorKernel()
    k.take(k.acc(k.emit(program.warp_id)))
    with pytest.raises(UserError) as caught:
        scopes(k.finished())
    assert caught.value.code == "async-operand-scope"


@pytest.mark.parametrize("step", ["M", "C", "L", "T", "ask"])
def test_all_threads_come_to_what_is_done_once(step):
    k = TensorKernel()
    lane = k.cmp("lt", k.emit(program.lane_id), k.n)
    k.emit(control.if_, lane, regions=(k.inside(k.doing(step)), k.inside(lambda: None)))
    with pytest.raises(UserError) as caught:
        scopes(k.finished())
    assert caught.value.code in ("control-scope", "async-operand-scope")


def test_blocks_of_threads_need_whole_warps():
    k = TensorKernel()
    k.do("M")
    func = k.finished().with_attrs(block=(48,))
    with pytest.raises(UserError) as caught:
        check_blocks_of_threads(func)
    assert caught.value.code == "thread-block-warps"


# Layouts that are left to the compiler


@pytest.mark.parametrize("layout", [AutoLayout(), CoalescedLayout()])
@pytest.mark.parametrize("num_warps", [4, 8])
def test_a_tile_of_tensor_memory_lies_where_threads_reach_it(layout, num_warps):
    k = TensorKernel(num_warps=num_warps)
    loaded = k.emit(tensor_memory.load, k.acc(0), layout=layout)
    k.emit(tensor_memory.store, k.acc(1), k.emit(arith.add, loaded, loaded), None)
    zero = k.emit(tile.splat, k.data_scalar(), shape=(ROWS, COLUMNS), layout=layout)
    k.emit(tensor_memory.store, k.acc(0), zero, None)
    func = resolve_layouts(k.finished(), SM100)
    verify(func)
    wanted = register_layout(32, (ROWS, COLUMNS), ACC, num_warps).to_linear((ROWS, COLUMNS))
    held = [op.operands[1] for op in walk(func.body) if op.kind is tensor_memory.store]
    assert [value.type.linear for value in held] == [wanted, wanted]


def test_parts_of_tiles_do_too():
    k = TensorKernel()
    loaded = k.emit(tensor_memory.load, k.part(k.acc(0), 16, 16, 1), layout=AutoLayout())
    k.emit(tensor_memory.store, k.part(k.acc(1), 0, 16, 1), loaded, None)
    func = resolve_layouts(k.finished(), SM100)
    verify(func)
    (load,) = (op for op in walk(func.body) if op.kind is tensor_memory.load)
    assert load.result.type.linear.in_size("register") == 16


def test_the_author_s_layout_comes_first():
    k = TensorKernel()
    wanted = k.held(k.acc(0), 4)
    wide = register_layout(32, (ROWS, COLUMNS), ACC, 4, "16x256b")
    loaded = k.emit(tensor_memory.load, k.acc(0), layout=AutoLayout())
    k.emit(tensor_memory.store, k.acc(0), k.emit(tile.set_layout, loaded, layout=wide), None)
    converted = k.emit(tensor_memory.load, k.acc(0), layout=AutoLayout())
    k.emit(tensor_memory.store, k.acc(1), k.emit(tile.convert, converted, layout=wide), None)
    func = resolve_layouts(k.finished(), SM100)
    loads = [op.result.type.layout for op in walk(func.body) if op.kind is tensor_memory.load]
    assert loads == [wide, wanted]


def test_a_layout_that_does_not_exist_is_refused_at_the_line():
    k = TensorKernel(num_warps=2)
    k.emit(tensor_memory.load, k.acc(0), layout=AutoLayout())
    with pytest.raises(UserError) as caught:
        resolve_layouts(k.finished(), SM100)
    assert caught.value.code == "tmem-warps"
    assert caught.value.loc is not None


# Arrivals and requests


def test_barriers_that_commits_arrive_on_count_whole_arrivals():
    for committed in (True, False):
        k = TensorKernel(num_warps=8)
        k.do("init L arrive wait" + (" M C" if committed else ""))
        func = spread_arrivals(k.finished())
        (arrival,) = (op for op in walk(func.body) if op.kind is mbarrier.arrive)
        assert arrival.attrs["each_warp"] is not committed


def test_requests_next_to_answers_stay():
    k = TensorKernel(num_warps=8)
    k.do("ask wait")
    func = k.finished()
    assert spread_requests(func, targets.get("sm_90a")) is func


# Partitions


def test_tensor_memory_is_allocated_before_all_partitions():
    k = TensorKernel()
    k.partitions(k.doing("L T"), k.doing("M C"), warps=(1,))
    func = split_partitions(allocate_tensor_memory(k.finished(), SM100), SM100)
    verify(func)
    assert [op.name for op in func.body.ops if op.kind is tensor_memory.alloc] == ["tensor_memory.alloc"]
    (whole,) = (op for op in func.body.ops if op.regions)
    inside = [
        op.name for region in whole.regions for op in walk(region) if op.name.startswith(("tensor_memory", "tcgen05"))
    ]
    assert inside == [
        "tensor_memory.index",
        "tensor_memory.load",
        "tensor_memory.index",
        "tensor_memory.store",
        "tensor_memory.index",
        "tcgen05.mma",
        "tcgen05.commit",
    ]


# Clusters


class Pair(Kernel):
    """Two blocks, with a barrier, operands and an accumulator that they share or do not."""

    def __init__(self, layout=PAIR, blocks: int = 2, bar=None) -> None:
        super().__init__(num_ctas=blocks, target="sm_100a")
        cga = [[1, 0]] * (blocks > 1)
        own = MBarrierLayout.multicta(blocks)
        self.bar = self.emit(shared.alloc, element=int64, shape=(blocks,), layout=bar or own, tag=1, name="bar")
        flat = SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=cga)
        self.x = self.emit(shared.alloc, element=float16, shape=(2 * ROWS, 16), layout=flat, tag=2, name="x")
        other = SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[0, 1]] * (blocks > 1))
        self.y = self.emit(shared.alloc, element=float16, shape=(16, COLUMNS), layout=other, tag=3, name="y")
        self.acc = self.emit(
            tensor_memory.alloc, element=float32, shape=(2 * ROWS, COLUMNS), layout=layout, tag=4, name="acc"
        )
        self.answer = self.emit(shared.alloc, element=int64, shape=(2,), layout=ANSWER, tag=5, name="answer")
        self.emit(mbarrier.init, self.bar, count=1)

    def met(self) -> int:
        func = cluster_sync(self.done())
        verify(func)
        return shown(func).count("cluster.wait")


APART = TensorMemoryLayout([ROWS, COLUMNS], cga_layout=[[1, 0]])


def test_blocks_that_multiply_together_meet():
    k = Pair()
    k.emit(tcgen05.mma, k.x, k.y, k.acc, None, None)
    assert k.met() == 2
    k = Pair(APART)
    k.emit(tcgen05.mma, k.x, k.y, k.acc, None, None)
    k.emit(tcgen05.commit, k.bar, None)
    assert k.met() == 0
    k = Pair()
    k.emit(tensor_memory.load, k.acc, layout=register_layout(32, (2 * ROWS, COLUMNS), PAIR, 4))
    assert k.met() == 0


@pytest.mark.parametrize(("receivers", "meetings"), [((), 0), ((1,), 2), ((1, 3), 2)])
def test_blocks_that_commits_tell_meet(receivers, meetings):
    k = Pair(APART)
    k.emit(tcgen05.commit, k.bar, None, receivers=receivers)
    assert k.met() == meetings


@pytest.mark.parametrize(("blocks", "multicast", "meetings"), [(2, False, 0), (2, True, 2), (1, True, 0)])
def test_blocks_that_get_an_answer_meet(blocks, multicast, meetings):
    k = Pair(APART if blocks == 2 else ACC, blocks)
    k.emit(clc.try_cancel, k.answer, k.bar, multicast=multicast)
    assert k.met() == meetings


def refused(k: Kernel) -> str:
    with pytest.raises(UserError) as caught:
        check_blocks(k.done())
    assert caught.value.code == "cluster-exchange"
    assert caught.value.loc is not None
    return caught.value.message


def test_tiles_and_tensor_memory_are_split_alike():
    shape = (2 * ROWS, COLUMNS)
    fits = register_layout(32, shape, PAIR, 4)
    columns = BlockedLayout([1, 1], [32, 1], [4, 1], [0, 1], cga_layout=[[0, 1]])
    k = Pair()
    loaded = k.emit(tensor_memory.load, k.acc, layout=fits)
    k.emit(tensor_memory.store, k.acc, loaded, None)
    check_blocks(k.done())
    k = Pair()
    k.emit(tensor_memory.load, k.acc, layout=columns)
    assert "those of the tile lie at [[0, 32]], but those of the tensor memory at [[128, 0]]" in refused(k)
    k = Pair()
    zero = k.emit(tile.splat, k.number(0.0, float32), shape=shape, layout=columns)
    k.emit(tensor_memory.store, k.acc, zero, None)
    assert "tensor_memory.store" in refused(k)


def test_blocks_that_hold_the_same_tile_hold_the_same_tensor_memory():
    k = Pair()
    everywhere = k.emit(
        tensor_memory.alloc, element=float32, shape=(ROWS, COLUMNS), layout=ACC, tag=9, name="everywhere"
    )
    k.emit(tensor_memory.load, everywhere, layout=register_layout(32, (ROWS, COLUMNS), ACC, 4, cga=((0, 0),)))
    check_blocks(k.done())


@pytest.mark.parametrize(("cga", "fits"), [([[1, 0]], True), ([[0, 1]], False), ([[0, 0]], False), ([], False)])
def test_copies_stay_in_their_block(cga, fits):
    k = Pair()
    layout = TensorMemoryLayout([ROWS, 8], cga_layout=cga)
    target = k.emit(tensor_memory.alloc, element=float16, shape=(2 * ROWS, 16), layout=layout, tag=9, name="t")
    k.emit(tcgen05.copy, k.x, target)
    if fits:
        check_blocks(k.done())
    else:
        assert "tcgen05.copy" in refused(k)


# Lowered IR


class Lowered(Kernel):
    """Words of a warp in tensor memory, scratch memory `s` that lowering took, and a barrier that tile IR had."""

    def __init__(self) -> None:
        super().__init__(stage="lowered", target="sm_100a")
        self.memory = self.emit(shared.scratch, dtype=float32, count=128, tag=1, offset=0, name="s")
        self.zero = self.number(0)
        self.words = self.emit(regs.splat, self.number(0.0, float32), count=4)
        self.steps = {
            "T": lambda: self.emit(
                tensor_memory.store_regs, self.zero, self.words, None, variant="32x32b", repeat=4, offsets=(0,),
                registers=((0, 1, 2, 3),),
            ),
            "L": lambda: self.emit(
                tensor_memory.load_regs, self.zero, element=float32, variant="32x32b", repeat=4, offsets=(0,),
                registers=((0, 1, 2, 3),),
            ),
            "Ws": lambda: self.emit(
                shared.store_regs, self.memory, self.zero, self.words, None, offsets=(0,), registers=((0, 1, 2, 3),), vec=4
            ),
            "Rs": lambda: self.emit(
                shared.load_regs, self.memory, self.zero, offsets=(0,), registers=((0, 1, 2, 3),), vec=4
            ),
            "b": lambda: self.emit(tcgen05.fence, before=True, reason="x"),
            "|": lambda: self.emit(sync.barrier, reason="before tcgen05.mma"),
        }  # fmt: skip

    def after(self, steps: str) -> str:
        for step in steps.split():
            self.steps[step]()
        func = insert_sync(self.done())
        verify(func)
        names = {
            "tensor_memory.store_regs": "T", "tensor_memory.load_regs": "L", "store_regs": "Ws", "load_regs": "Rs",
            "!barrier": "!|", "!before": "!b",
        }  # fmt: skip
        return " ".join(names.get(word, word) for word in shown(func).split())


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # A barrier for tensor memory stays, with the fence ahead of it, where lowering needs one before it.
        ("T Ws Rs b |", "T Ws !| Rs !b !|"),
        ("L Ws Rs b |", "L Ws !| Rs !b !|"),
        ("T b | Ws Rs |", "T !b !| Ws !| Rs"),
        ("Ws Rs |", "Ws !| Rs"),
        # Nothing is added for tensor memory itself.
        ("T L T", "T L T"),
    ],
)
def test_barriers_of_tensor_memory_stay_in_lowered_ir(steps, expected):
    assert Lowered().after(steps) == expected
