"""Loads whose requests several warps issue: which are marked, what they come after, and what the simulator says without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.passes.shared import BYTES, LENGTH, SM90, TILE, Rules, SharedKernel, inserted
from tests.passes.sync.test_simulated import Program, simulate, step
from tests.sim.build import TARGET, buffer
from weft import sim, targets
from weft.errors import Hazard
from weft.ir.core import Func, Op, ParamFacts, Region, Value, walk
from weft.ir.types import DescriptorType, ScalarType, float16, float32, int1, int64
from weft.ir.verify import verify
from weft.layout import NVMMASharedLayout
from weft.ops import arith, control, mbarrier, shared, tma
from weft.ops.check import TypingError
from weft.passes.pipeline import tile_pipeline
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.sync.spread_requests import spread_requests
from weft.passes.tile.allocate_shared import allocate_shared

SIDE = 64
ALONE = 113 * 1024 + 1
"""Bytes of shared memory with which a program is alone on its multiprocessor."""


class Blocks(SharedKernel):
    """Buffers for blocks of halves, 64 x 64 for each request that they take, and descriptors of them."""

    def __init__(self, **attrs) -> None:
        super().__init__(num_warps=attrs.pop("num_warps", 4), **{"shared_bytes": ALONE, **attrs})
        self.blocks: dict[Value, Value] = {}

    def block(self, name: str, requests: int) -> Value:
        shape = (SIDE, SIDE * requests)
        layout = NVMMASharedLayout.get_default_for(shape, float16)
        desc = Value(DescriptorType(float16, shape, layout), f"{name}_desc")
        self.params = (*self.params, desc)
        self.attrs["params"] = (ParamFacts(),) * len(self.params)
        self.tags += 1
        handle = self.emit(shared.alloc, element=float16, shape=shape, layout=layout, tag=self.tags, name=name)
        self.blocks[handle] = desc
        return handle

    def expect(self, bar: Value, size: int = BYTES) -> None:
        self.emit(mbarrier.expect, bar, None, bytes=size)

    def load(self, handle: Value, bar: Value, pred: Value | None = None) -> None:
        self.emit(tma.load, self.blocks[handle], bar, handle, pred, self.zero, self.zero)

    def save(self, handle: Value) -> None:
        """Beyond the end of the tensor, which is loaded from."""
        self.emit(tma.store, self.blocks[handle], handle, self.number(SIDE), self.zero)


def issuers(func: Func) -> list[tuple[int, int]]:
    return [(op.attrs["issuers"], op.attrs["first"]) for op in walk(func.body) if op.kind is tma.load]


def spread(k: SharedKernel) -> list[tuple[int, int]]:
    func = spread_requests(k.finished(), SM90)
    verify(func)
    return issuers(func)


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        ((1,), [(1, 0)]),
        ((2,), [(4, 0)]),
        ((1, 1), [(1, 0), (1, 0)]),
        ((1, 4), [(1, 0), (4, 1)]),
        ((2, 4), [(4, 0), (4, 2)]),
        ((4, 1), [(4, 0), (1, 0)]),
        ((2, 1), [(4, 0), (4, 2)]),
    ],
)
def test_loads_in_a_row_begin_where_others_end(requests, want):
    k = Blocks()
    bar = k.bars("bar")
    blocks = [k.block("abc"[i], count) for i, count in enumerate(requests)]
    k.expect(bar)
    for block in blocks:
        k.load(block, bar)
        k.number(7)
    assert spread(k) == want


def test_each_phase_begins_at_the_first_warp():
    k = Blocks(num_warps=8)
    bar, a, b = k.bars("bar"), k.block("a", 2), k.block("b", 4)
    on = k.emit(arith.constant, value=True, type=ScalarType(int1))
    for _ in range(2):
        k.expect(bar)
        k.load(a, bar, on)
        k.load(b, bar, on)
    assert spread(k) == [(8, 0), (8, 2)] * 2


def test_partitions_have_warps_of_their_own():
    k = Blocks(num_warps=4)
    bar, a = k.bars("bar"), k.block("a", 2)
    body = lambda: k.load(a, bar)  # noqa: E731 a statement of each partition
    k.partitions(body, body, body, warps=(2, 1))
    assert spread(k) == [(4, 0), (2, 0), (1, 0)]


@pytest.mark.parametrize("why", ["one warp", "a cluster", "a descriptor that the kernel makes", "a second program"])
def test_what_is_left_alone(why):
    k = Blocks(num_warps=1 if why == "one warp" else 4, shared_bytes=ALONE - (why == "a second program"))
    if why == "a cluster":
        k.attrs["num_ctas"] = 2
    bar, a = k.bars("bar"), k.block("a", 2)
    if "makes" in why:
        t = k.desc.type
        n, stride = k.number(64), k.emit(arith.constant, value=1, type=ScalarType(int64))
        made = {"block_shape": t.block_shape, "layout": t.layout, "padding": "zero"}
        k.emit(tma.make_descriptor, k.params[1], n, stride, **made)
    k.load(a, bar)
    func = k.finished()
    assert spread_requests(func, SM90) is func


def test_a_first_warp_is_one_of_those_that_issue():
    k = SharedKernel()
    a, bar = k.alloc("a"), k.bars("bar")
    with pytest.raises(TypingError, match="warp 4 of 4"):
        k.emit(tma.load, k.desc, bar, a, None, k.zero, issuers=4, first=4)


# What they come after


def test_a_barrier_between_the_making_of_an_mbarrier_and_others_requests():
    """It stands before what the other warps do, not between the operations of the elected thread."""
    k = Blocks()
    bars, a, b = k.bars("bars", 2), k.block("a", 1), k.block("b", 2)
    for i in range(2):
        k.init(k.index(bars, i))
    k.expect(k.index(bars, 0))
    for block in (a, b):
        k.load(block, k.index(bars, 0))
    k.wait(k.index(bars, 0))
    func = tile_pipeline(k.finished(), SM90)
    (found,) = inserted(func)
    assert "before tma.load of bars (initialised at" in found
    assert issuers(func) == [(1, 0), (4, 1)]
    ops = [op.name for op in func.body.ops if op.effects]
    row = ["mbarrier.init", "mbarrier.init", "mbarrier.expect", "tma.load", "sync.barrier", "tma.load", "mbarrier.wait"]
    assert ops == row


def ring(*before: str, ahead: bool = True) -> Func:
    """Blocks that are loaded, and stored from where they are; what comes `before` each load. With barriers and fences,
    one of the author's `ahead` of the loop."""
    k = Blocks()
    bar, a = k.bars("bar"), k.block("a", 2)
    steps = {"barrier": k.barrier, "store_wait": k.store_wait}
    k.init(bar)
    if ahead:
        k.barrier()

    def body(i: Value) -> None:
        for name in before:
            steps[name]()
        k.expect(bar, 64 * 128 * 2)
        k.load(a, bar)
        k.emit(mbarrier.wait, bar, k.emit(arith.and_, i, k.number(1)), None)
        k.save(a)

    k.loop(body)
    k.store_wait()
    return insert_sync(allocate_shared(spread_requests(k.finished(), SM90), SM90))


def in_loop(func: Func) -> list[str]:
    (loop,) = (op for op in walk(func.body) if op.kind is control.for_)
    return [op.name for op in walk(loop.regions[0]) if op.effects]


def test_no_barrier_in_a_loop_is_for_the_sake_of_other_warps():
    """Only the thread that waited for the stores knows that they have been read: it issues the loads then."""
    func = ring("barrier", "store_wait")
    assert in_loop(func) == [
        "sync.barrier",
        "tma.store_wait",
        "mbarrier.expect",
        "tma.load",
        "mbarrier.wait",
        "tma.store",
    ]
    assert issuers(func) == [(1, 0)]


@pytest.mark.parametrize("before", [("store_wait",), ("store_wait", "barrier")])
def test_a_barrier_that_stands_there_anyway_is_enough(before):
    """All threads wait for the phase, so a barrier comes before the next one is expected."""
    func = ring(*before)
    assert in_loop(func) == [
        "tma.store_wait",
        "sync.barrier",
        "mbarrier.expect",
        "tma.load",
        "mbarrier.wait",
        "tma.store",
    ]
    assert issuers(func) == [(4, 0)]


def run(func: Func) -> None:
    block = func.params[-1].type
    given = np.ones((64, 128), np.float16)
    desc = sim.TensorMap(buffer("a_desc", given), float16, (64, 128), (256, 2), block.block_shape, block.layout)
    small = sim.TensorMap(buffer("desc", np.zeros(64, np.float32)), float32, (64,), (4,), (64,), TILE)
    sim.run(func, (1, 1, 1), [3, buffer("p", np.zeros(1, np.float32)), small, desc], target=TARGET)


def without(func: Func, kind: str, number: int = 0) -> Func:
    """The function without the operation of a kind and a number."""
    (*_, gone) = [op for op in walk(func.body) if op.name == kind][: number + 1]

    def region(old: Region) -> Region:
        return Region(old.args, tuple(op_of(op) for op in old.ops if op is not gone))

    def op_of(op: Op) -> Op:
        return Op(op.kind, op.operands, op.attrs, op.results, tuple(map(region, op.regions)), op.loc)

    return Func(func.name, region(func.body), func.attrs, func.loc)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_simulator_misses_the_barrier(ahead):
    """After the mbarrier is made, and after the wait for stores, of which one thread knows."""
    func = ring("store_wait", "barrier", ahead=ahead)
    run(func)
    with pytest.raises(Hazard) as error:
        run(without(func, "sync.barrier", int(ahead)))
    assert (error.value.code, error.value.buffer) == ("hazard-thread-race", "a" if ahead else "bar")


class OneThread(Rules):
    """Stores go beyond the end of the tensor, which is loaded from."""

    def tma_store(self, handle: Value) -> None:
        self.emit(tma.store, self.desc, handle, self.number(LENGTH))


class ManyThreads(OneThread):
    """Several warps issue the requests of loads."""

    def tma_load(self, handle: Value, bar: Value) -> None:
        self.emit(tma.load, self.desc, bar, handle, None, self.zero, issuers=4, first=1)


@pytest.mark.parametrize("what", ["init", "store_wait"])
@pytest.mark.parametrize("several", [True, False])
def test_what_one_thread_knows(what, several):
    """The simulator alone: no pass places anything."""
    k = ManyThreads() if several else OneThread()
    k.do("init" if what == "init" else "W f init | store swait")
    k.expect(k.bar)
    k.do("load")
    k.barrier()
    k.wait(k.bar)
    func = k.allocated()
    if not several:
        simulate(func, 0)
        return
    with pytest.raises(Hazard) as error:
        simulate(func, 0)
    assert (error.value.code, error.value.buffer) == ("hazard-thread-race", "bar" if what == "init" else "a[0]")


class SpreadProgram(Program, ManyThreads):
    """Random steps with such loads."""


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(step, min_size=1, max_size=6), st.integers(0, 3))
def test_nothing_is_missing(steps, seed):
    simulate(SpreadProgram(steps).result(), seed)


def test_arrivals_do_not_wait_for_requests():
    """An arrival does not order copies in flight."""
    k = Rules()
    k.do("init | expect")
    k.emit(tma.load, k.desc, k.bar, k.index(k.a, 0), None, k.zero, issuers=4)
    k.arrive(k.other)
    assert "!barrier" not in k.shown()


def test_is_left_to_authors_who_synchronise():
    k = Blocks(sync="none")
    bar, a = k.bars("bar"), k.block("a", 2)
    k.load(a, bar)
    assert issuers(tile_pipeline(k.finished(), targets.get("sm_90a"))) == [(1, 0)]
