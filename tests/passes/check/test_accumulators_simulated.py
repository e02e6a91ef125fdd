"""Random programs with accumulators in flight: in what the compiler lets through the simulator finds nothing wrong.

Two accumulators go through products, waits, loops and branches. The compiler's rules (`weft.analysis.accumulators`) and the
simulator's share no code. What is accepted gives the same sums as it stands, with overlapped products, and lowered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.sim.build import TARGET, Kernel, run
from weft.errors import CompilationError
from weft.errors.hazard import AccumulatorInFlight
from weft.ir.core import Func, Region, Value
from weft.ir.types import Pointer, ScalarType, float16, float32, int32
from weft.ir.verify import verify
from weft.layout import NVMMASharedLayout
from weft.layout.distributed.mma import pick_wgmma_layout
from weft.ops import control, mma, shared, tile
from weft.passes.check.accumulators import check_accumulators
from weft.passes.pipeline import lower_pipeline, tile_pipeline
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.tile.allocate_shared import allocate_shared

M, N, K = 64, 8, 32
SUMS = pick_wgmma_layout(16, (M, N), 4)
FACTORS = (1.0, 3.0, 8.0)
"""What products add, so that a sum tells which ones are in it."""
READS = 4
"""Places for sums; a program that reads more often begins anew."""

slot = st.integers(0, 1)
factor = st.integers(0, 2)
use = st.sampled_from(("adds", "adds", "may add", "begins"))
simple = st.one_of(
    st.tuples(st.just("product"), slot, factor, use),
    st.tuples(st.just("product in parts"), slot, factor, use),
    st.tuples(st.just("complete product"), slot, factor),
    st.tuples(st.just("wait"), st.sampled_from((0, 1, 1, 4)), st.sampled_from(((0,), (1,), (0, 1)))),
    st.tuples(st.just("read"), slot),
    st.just(("swap",)),
)
straight = st.lists(simple, min_size=1, max_size=8)
some = st.lists(simple, max_size=4)
inside = st.lists(
    st.one_of(simple, st.tuples(st.just("loop"), some), st.tuples(st.just("branch"), some, some)), max_size=4
)
step = st.one_of(
    simple,
    st.tuples(st.just("loop"), inside),
    st.tuples(st.just("while"), some, some),
    st.tuples(st.just("branch"), inside, inside),
)
structured = st.lists(step, min_size=1, max_size=5)


class Sums(Kernel):
    """Steps on two accumulators, which are zeros first, and are waited for and read at the end."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__(("n", int32), ("flag", int32), ("out", Pointer(float32)))
        self.tags = self.reads = 0
        self.a = self.operand((M, K), 1.0)
        self.b = [self.operand((K, N), value) for value in FACTORS]
        zero = self.number(0.0, float32)
        self.accs: list[Value] = [self.emit(tile.splat, zero, shape=(M, N), layout=SUMS) for _ in range(2)]
        self.do([*steps, ("wait", 0, (0, 1)), ("read", 0), ("read", 1)])

    def result(self) -> Func:
        func = self.done()
        verify(func)
        return func

    def operand(self, shape: tuple[int, int], value: float) -> Value:
        self.tags += 1
        layout = NVMMASharedLayout.get_default_for(list(shape), float16)
        full = self.emit(tile.splat, self.number(value, float16), shape=shape, layout=SUMS)
        memory = self.emit(shared.alloc, element=float16, shape=shape, layout=layout, tag=self.tags, name="operand")
        self.emit(shared.store, memory, full)
        return memory

    def flag(self) -> Value:
        return self.cmp("ne", self.params[1], self.number(0))

    def do(self, steps: list[Any]) -> None:
        for kind, *rest in steps:
            getattr(self, kind.replace(" ", "_"))(*rest)

    def product(self, at: int, factor: int, use: str, max_imprecise: int = 0) -> None:
        use_acc = {"adds": lambda: None, "may add": self.flag, "begins": lambda: self.cmp("lt", *[self.number(0)] * 2)}
        operands = self.a, self.b[factor], self.accs[at], use_acc[use]()
        self.accs[at] = self.emit(mma.warpgroup, *operands, max_imprecise=max_imprecise)

    def product_in_parts(self, at: int, factor: int, use: str) -> None:
        self.product(at, factor, use, K // 2)

    def complete_product(self, at: int, factor: int) -> None:
        self.product(at, factor, "adds")
        self.wait(0, (at,))

    def wait(self, pendings: int, which: tuple[int, ...]) -> None:
        made = self.emit(mma.warpgroup_wait, *(self.accs[at] for at in which), pendings=pendings)
        for at, value in zip(which, made if isinstance(made, tuple) else (made,), strict=True):
            self.accs[at] = value

    def read(self, at: int) -> None:
        place = self.number(self.reads % READS * M * N)
        self.reads += 1
        offsets = self.grid_offsets((M, N), N, SUMS)
        self.store(self.params[2], self.add(offsets, self.splat(place, offsets)), self.accs[at])

    def swap(self) -> None:
        self.accs.reverse()

    def inside(self, body: list[Any]) -> None:
        self.do(body)
        self.emit(control.yield_, *self.accs)

    def loop(self, body: list[Any]) -> None:
        bounds, inits = (self.number(0), self.params[0], self.number(1)), self.accs
        with self.region([ScalarType(int32), *(acc.type for acc in inits)]) as opened:
            self.accs = list(opened.args[1:])
            self.inside(body)
        self.accs = list(self.emit(control.for_, *bounds, *inits, descending=False, regions=(opened.done,)))

    def branch(self, *sides: list[Any]) -> None:
        before, regions, on = self.accs, list[Region](), self.flag()
        for side in sides:
            self.accs = list(before)
            with self.region() as opened:
                self.inside(side)
            regions.append(opened.done)
        self.accs = list(self.emit(control.if_, on, regions=tuple(regions)))

    def __getattr__(self, name: str) -> Any:
        if name == "while":
            return self.repeat
        raise AttributeError(name)

    def repeat(self, condition: list[Any], body: list[Any]) -> None:
        """Steps before the condition and after it; one argument counts."""
        zero, inits, types = self.number(0), self.accs, [ScalarType(int32), *(acc.type for acc in self.accs)]
        with self.region(types) as before:
            count, *self.accs = before.args
            self.do(condition)
            self.emit(control.condition, self.cmp("lt", count, self.params[0]), count, *self.accs)
        with self.region(types) as after:
            count, *self.accs = after.args
            self.do(body)
            self.emit(control.yield_, self.add(count, self.number(1)), *self.accs)
        _, *self.accs = self.emit(control.while_, zero, *inits, regions=(before.done, after.done))


def refused(func: Func) -> str | None:
    """The code with which the compiler refuses a program."""
    try:
        check_accumulators(func, TARGET)
    except CompilationError as error:
        return error.code
    return None


def lowered(func: Func) -> list[Func]:
    """The lowered function, if each accumulator can stay in its registers."""
    try:
        return [lower_pipeline(func, TARGET)]
    except CompilationError as error:
        if error.code != "accumulator-moved":
            raise
        return []


def sums(func: Func, n: int, flag: int) -> np.ndarray:
    out = np.full(READS * M * N, np.nan, np.float32)
    run(func, n, flag, out)
    return out


@settings(deadline=None, max_examples=examples(100))
@given(straight)
def test_without_control_flow_both_say_the_same(steps):
    func = insert_sync(allocate_shared(Sums(steps).result(), TARGET))
    if refused(func) is None:
        sums(func, 1, 1)
        return
    with pytest.raises(AccumulatorInFlight):
        sums(func, 1, 1)


@settings(deadline=None, max_examples=examples(100))
@given(structured)
def test_what_is_accepted_is_right(steps):
    written = insert_sync(allocate_shared(Sums(steps).result(), TARGET))
    if refused(written) is not None:
        return
    func = tile_pipeline(written, TARGET)
    forms = [written, func, *lowered(func)]
    for n, flag in ((0, 0), (1, 1), (2, 0), (3, 1)):
        expected, *others = (sums(form, n, flag) for form in forms)
        for other in others:
            np.testing.assert_array_equal(expected, other)
