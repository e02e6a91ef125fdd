"""Random programs with products of warpgroups, and arrivals of each warp, in the simulator: nothing missing, nor too much."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.test_sync_simulated import PHASES, Program, simulate
from weft.errors import Hazard
from weft.ir.core import Func, Op, walk
from weft.ir.rebuild import rebuild
from weft.ir.verify import verify
from weft.ops import mbarrier, program
from weft.passes.insert_sync import insert_sync
from weft.passes.spread_arrivals import spread_arrivals

PRODUCTS = (
    "P pwait",
    "P Wb pwait",
    "Pc W R pwait",
    "P Pc pwait1 W pwait",
    "Pc P Pc pwait1 W pwait",
    "P pwait1 R pwait",
)
"""Steps that wait for the products that they start, and until then write to no operand."""

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


@settings(deadline=None, max_examples=150)
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
    kinds = program.barrier, program.fence_async
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
        assert sum(op.kind is program.barrier for op in ops[first:last]) == count
        simulate(func, 0)


def without(func: Func, victim: Op) -> Func:
    """A function less one operation."""
    return rebuild(func, lambda out, op, operands: () if op is victim else None)
