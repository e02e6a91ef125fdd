"""Random programs with products of warpgroups, and arrivals of each warp, in the simulator: nothing missing, nor too much."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.passes.shared import SM90, SharedKernel
from tests.passes.sync.test_simulated import PHASES, Program, simulate
from weft.errors import Hazard
from weft.ir.core import Func, Op, Value, walk
from weft.ir.rebuild import rebuild
from weft.ir.verify import verify
from weft.ops import mbarrier, shared, sync
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.sync.spread_arrivals import spread_arrivals
from weft.passes.tile.allocate_shared import allocate_shared

PRODUCTS = (
    "P pwait",
    "P Wb pwait",
    "Pc W R pwait",
    "P Pc pwait1 W pwait",
    "Pc P Pc pwait1 W pwait",
    "P pwait1 R pwait",
)
"""Steps that wait for the products that they start, and until then write to no operand."""
ROUNDS = 3

simple = st.sampled_from((*PRODUCTS, "W", "R", "Wb", "store swait", "copy cwait"))
several = st.lists(simple, min_size=1, max_size=3)
step = st.one_of(
    simple,
    st.sampled_from(PHASES),
    st.tuples(st.just("loop"), several),
    st.tuples(st.just("branch"), several, several),
)


class Products(Program):
    """`P` multiplies `a[0]` by `c`, `Pc` multiplies `c` by itself."""

    def __init__(self, steps: list, num_warps: int) -> None:
        self.warps = num_warps
        super().__init__(steps)

    def prepare(self) -> None:
        self.attrs["num_warps"] = self.warps
        c = self.alloc("c")
        self.write(c)
        self.steps |= {
            "P": lambda: self.product(self.index(self.a, 0), c),
            "Pc": lambda: self.product(c, c),
            "pwait": self.product_wait,
            "pwait1": lambda: self.product_wait(1),
        }

    def result(self) -> Func:
        func = insert_sync(spread_arrivals(self.allocated()))
        verify(func)
        return func


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(step, min_size=1, max_size=6), st.integers(0, 3), st.sampled_from((4, 8)))
def test_nothing_is_missing(steps, seed, num_warps):
    simulate(Products(steps, num_warps).result(), seed)


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize(
    "steps",
    [
        ["P pwait", "W", "P pwait"],
        ["|", "copy cwait", "P pwait"],
        ["load", "P pwait", "load"],
        ["P Pc pwait1", "load", "pwait"],
        ["P pwait", "R", "arrive", "W"],
        [("loop", ["R", "P pwait", "W"])],
    ],
)
def test_nothing_is_too_much(steps, num_warps):
    """Without any one of the barriers and fences the simulator finds what it was for."""
    func = Products(steps, num_warps).result()
    kinds = sync.barrier, sync.fence_async
    made = [op for op in walk(func.body) if op.kind in kinds and op.attrs["reason"]]
    assert made
    for op in made:
        with pytest.raises(Hazard):
            simulate(without(func, op), 0)


def test_a_load_after_a_complete_product_waits_for_nobody_in_one_warpgroup():
    for num_warps, count in ((4, 0), (8, 1)):
        func = Products(["load", "P pwait", "load"], num_warps).result()
        ops = list(walk(func.body))
        first = next(i for i, op in enumerate(ops) if op.name == "mma.warpgroup_wait")
        last = [i for i, op in enumerate(ops) if op.kind is mbarrier.expect][-1]
        assert sum(op.kind is sync.barrier for op in ops[first:last]) == count
        simulate(func, 0)


# Partitions that hand buffers over


class HandOver(SharedKernel):
    """Three rounds through two buffers: one partition fills them, others read and multiply them, each with steps of its own.

    `R` reads a buffer, `P` starts to multiply it, `pwait` waits. Those with `late` give a buffer back one round later, when
    all products but the latest are complete."""

    def __init__(self, fill: str, consumers: list[tuple[str, bool]], num_warps: int) -> None:
        super().__init__(num_warps=num_warps)
        self.fill = fill
        self.a, self.c = self.alloc("a", 2), self.alloc("c")
        self.full, self.free = self.bars("full", 2), self.bars("free", 2)
        for slot in range(2):
            self.init(self.index(self.full, slot))
            self.emit(mbarrier.init, self.index(self.free, slot), count=len(consumers))
        self.write(self.c)
        bodies = [partial(self.consume, steps.split(), late) for steps, late in consumers]
        self.partitions(*bodies, self.produce, warps=(*[num_warps] * (len(bodies) - 1), 1 if fill == "load" else 4))
        for handle in (self.a, self.c, self.full, self.free):
            self.emit(shared.keep_alive, handle)

    def produce(self) -> None:
        for turn in range(ROUNDS):
            memory, full = (self.index(x, turn % 2) for x in (self.a, self.full))
            self.await_phase(self.free, turn, 1)
            if self.fill == "load":
                self.expect(full)
                self.tma_load(memory, full)
            else:
                self.write(memory)
                self.fence()
                self.arrive(full)

    def consume(self, steps: list[str], late: bool) -> None:
        for turn in range(ROUNDS):
            memory = self.index(self.a, turn % 2)
            does = {
                "R": lambda m=memory: self.read(m),
                "P": lambda m=memory: self.product(m, self.c),
                "pwait": self.product_wait,
            }
            self.await_phase(self.full, turn)
            for step in steps:
                does[step]()
            if late:
                self.product_wait(1)
            if "R" in steps:
                self.fence()
            if not late or turn:
                self.arrive(self.index(self.free, (turn - late) % 2))
        if late:
            self.product_wait()
            self.arrive(self.index(self.free, (ROUNDS - 1) % 2))

    def await_phase(self, bars: Value, turn: int, ahead: int = 0) -> None:
        self.emit(mbarrier.wait, self.index(bars, turn % 2), self.number(turn // 2 + ahead & 1), None)

    def result(self) -> Func:
        func = insert_sync(spread_arrivals(allocate_shared(self.finished(), SM90)))
        verify(func)
        return func


consumer = st.one_of(
    st.tuples(
        st.sampled_from(("R", "P pwait", "R P pwait", "P R pwait", "P P pwait R", "P pwait P pwait")), st.just(False)
    ),
    st.tuples(st.sampled_from(("P", "R P", "P R")), st.just(True)),
)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.sampled_from(("load", "write")),
    st.lists(consumer, min_size=1, max_size=2),
    st.sampled_from((4, 8)),
    st.integers(0, 3),
)
def test_nothing_is_missing_between_partitions(fill, consumers, num_warps, seed):
    func = HandOver(fill, consumers, num_warps).result()
    assert all(op.attrs["each_warp"] for op in walk(func.body) if op.kind is mbarrier.arrive)
    simulate(func, seed)


def test_a_buffer_given_back_before_its_product_is_complete():
    with pytest.raises(Hazard) as found:
        simulate(HandOver("load", [("P", False)], 4).result(), 0)
    assert found.value.code == "hazard-operand-reused"


def without(func: Func, victim: Op) -> Func:
    """A function less one operation."""
    return rebuild(func, lambda out, op, operands: () if op is victim else None)
