"""Random programs on shared memory: with what `insert_sync` places, the simulator finds nothing. The two share no code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.passes.shared import LENGTH, TILE, Rules
from tests.sim.build import TARGET, buffer
from weft import sim
from weft.errors import Hazard
from weft.ir.core import Func
from weft.ir.types import float32
from weft.layout import BlockedLayout
from weft.ops import arith, mbarrier, shared, tma
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.tile.allocate_shared import allocate_shared

OTHER = BlockedLayout([1], [32], [4], [0])
ACCESSES = ("W", "R", "W1", "Wi", "Wb", "Rb", "f", "|", "store swait", "store1 swait", "copy cwait")
"""Steps that wait for what they start."""
PHASES = ("load", "arrive")
"""Steps that go through a phase of a barrier, so they stand in no loop."""

simple = st.sampled_from(ACCESSES)
several = st.lists(simple, min_size=1, max_size=4)
step = st.one_of(
    simple,
    st.sampled_from(PHASES),
    st.tuples(st.just("loop"), several),
    st.tuples(st.just("nest"), several, several),
    st.tuples(st.just("branch"), several, several),
)


class Program(Rules):
    """Steps that are right but for barriers and fences within the block. Threads read what other threads wrote."""

    def __init__(self, steps: list) -> None:
        super().__init__()
        self.prepare()
        self.phases = dict.fromkeys(PHASES, 0)
        last = self.emit(arith.sub, self.n, self.number(1))
        self.steps["Wi"] = lambda: self.write(self.index(self.a, last))
        self.do("W W1 Wb")
        for bar in (self.bar, self.other):
            self.init(bar)
        for one in steps:
            self.step(one)
        for bar in (self.bar, self.other):
            self.invalidate(bar)

    def prepare(self) -> None:
        """What else a program has to have first."""

    def tma_store(self, handle):
        """Beyond the end of the tensor: stores read shared memory and are nothing to each other."""
        self.emit(tma.store, self.desc, handle, self.number(LENGTH))

    def read(self, handle):
        self.emit(shared.load, handle, layout=OTHER)

    def step(self, one) -> None:
        match one:
            case ("loop", body):
                self.loop(lambda _: self.do(" ".join(body)))
            case ("nest", body, inner):
                self.loop(lambda _: (self.do(" ".join(body)), self.loop(lambda _: self.do(" ".join(inner)))))
            case ("branch", then, orelse):
                self.branch(self.doing(" ".join(then)), self.doing(" ".join(orelse)))
            case "load":
                self.expect(self.bar)
                self.tma_load(self.index(self.a, 0), self.bar)
                self.pass_phase("load", self.bar)
            case "arrive":
                self.arrive(self.other)
                self.pass_phase("arrive", self.other)
            case _:
                self.do(one)

    def pass_phase(self, name: str, bar) -> None:
        self.emit(mbarrier.wait, bar, self.number(self.phases[name] % 2), None)
        self.phases[name] += 1


def simulate(func: Func, seed: int) -> None:
    p, tensor = np.zeros(LENGTH, np.float32), np.zeros(LENGTH, np.float32)
    desc = sim.TensorMap(buffer("desc", tensor), float32, (LENGTH,), (4,), (LENGTH,), TILE)
    sim.run(func, (1, 1, 1), [2, buffer("p", p), desc], target=TARGET, seed=seed)


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(step, min_size=1, max_size=6), st.integers(0, 3))
def test_nothing_is_missing(steps, seed):
    simulate(Program(steps).result(), seed)


@pytest.mark.parametrize("steps", [["R"], ["store swait"], ["load"], ["copy cwait", "Rb", "R"], [("loop", ["R", "W"])]])
def test_without_the_pass_it_is(steps):
    func = allocate_shared(Program(steps).finished(), TARGET)
    with pytest.raises(Hazard) as error:
        simulate(func, 0)
    assert error.value.code in ("hazard-thread-race", "hazard-missing-fence")
    assert insert_sync(func) is not func
