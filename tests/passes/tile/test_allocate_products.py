"""How long the operands of asynchronous products live, and what is allocated inside loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.passes.shared import SharedKernel
from weft import targets
from weft.ir.core import Value, walk
from weft.ir.verify import verify
from weft.ops import shared
from weft.passes.tile.allocate_shared import allocate_shared

SM90 = targets.get("sm_90a")


def offsets(k: SharedKernel) -> dict[str, int]:
    func = allocate_shared(k.finished(), SM90)
    verify(func)
    return {op.result.name: op.attrs["offset"] for op in walk(func.body) if op.kind is shared.alloc}


def shares(k: SharedKernel, name: str = "late") -> bool:
    """Whether a buffer that is used after the products lies where `a`, an operand of the first one, lies."""
    found = offsets(k)
    return found[name] == found["a"]


class Straight(SharedKernel):
    """`P` is the first product, of `a` and `other`, `Q` one of `other` alone, `w` and a digit a wait."""

    def __init__(self, steps: str) -> None:
        super().__init__()
        self.a, self.other, late = self.alloc("a"), self.alloc("other"), self.alloc("late")
        self.do(steps)
        self.write(late)
        self.product_wait()
        self.read(self.other)

    def do(self, steps: str) -> None:
        made: dict[str, Callable[[], None]] = {
            "P": lambda: self.product(self.a, self.other),
            "P!": lambda: self.product(self.a, self.other, max_imprecise=32),
            "Q": lambda: self.product(self.other, self.other),
            "[": lambda: self.loop(lambda _: self.product(self.other, self.other)),
            "?": lambda: self.branch(self.product_wait),
            **{f"w{n}": lambda n=n: self.product_wait(n) for n in range(3)},
        }
        for step in steps.split():
            made[step]()


@pytest.mark.parametrize(
    ("steps", "over"),
    [
        ("P", False),
        ("P!", True),
        ("P w0", True),
        ("P w1", False),
        ("P Q w1", True),
        ("P Q w2", False),
        ("P w1 Q", False),
        ("P Q Q w2", True),
        ("Q P w1", False),
        ("P [ w1", False),
        ("P ? Q", False),
    ],
)
def test_operands_live_until_their_product_is_complete(steps, over):
    """Products that a loop makes may not happen, nor waits in a branch."""
    assert shares(Straight(steps)) is over


def test_products_in_a_loop_are_complete_after_it():
    for pendings in (0, 1):
        k = SharedKernel()
        a, late = k.alloc("a", 2), k.alloc("late", 2)

        def body(i: Value, k: SharedKernel = k, a: Value = a) -> None:
            k.product(k.index(a, i), k.index(a, i))
            k.product_wait(1)

        k.loop(body)
        k.product_wait(pendings)
        k.write(k.index(late, 0))
        assert shares(k) is (pendings == 0)


def test_a_tile_of_results_lies_where_operands_were():
    """A persistent kernel: operands and results are made in the loop over tiles, one after the other."""
    k = SharedKernel()
    bar = k.bars("bar")
    k.init(bar)

    def one_tile(_: Value) -> None:
        a = k.alloc("a", 2)

        def step(i: Value) -> None:
            k.expect(bar)
            k.tma_load(k.index(a, i), bar)
            k.wait(bar)
            k.product_wait()
            k.product(k.index(a, i), k.index(a, i))

        k.loop(step)
        k.product_wait()
        late = k.alloc("late", 2)
        k.write(k.index(late, 0))
        k.tma_store(k.index(late, 0))
        k.store_wait()

    k.loop(one_tile)
    assert shares(k)


def test_not_where_stores_or_products_of_one_tile_reach_into_the_next():
    for stores in (True, False):
        k = SharedKernel()

        def one_tile(_: Value, k: SharedKernel = k, stores: bool = stores) -> None:
            a = k.alloc("a")
            k.product(a, a)
            if stores:
                k.product_wait()
            late = k.alloc("late")
            k.write(late)
            k.tma_store(late)
            if not stores:
                k.store_wait()

        k.loop(one_tile)
        k.store_wait()
        k.product_wait()
        assert not shares(k)


def test_rotating_stores_are_read_before_the_next_but_one():
    for number, over in ((1, False), (2, True)):
        k = SharedKernel()
        a, other, late = k.alloc("a"), k.alloc("other"), k.alloc("late")
        k.tma_store(a)
        for _ in range(number - 1):
            k.tma_store(other)
        k.store_wait(1)
        k.write(late)
        k.store_wait()
        k.read(other)
        assert shares(k) is over


def test_a_stolen_buffer_is_its_ring():
    """What another type is seen in may reach into the next stages, so all of the ring stays."""
    k = SharedKernel()
    ring, other = k.alloc("a", 4), k.alloc("late")
    k.product(k.index(ring, 0), k.index(ring, 1))
    k.product_wait()
    k.write(other)
    t = ring.type
    stolen = k.emit(shared.reinterpret, k.index(ring, k.n), element=t.element, shape=t.shape[1:], layout=t.layout)
    k.write(stolen)
    k.tma_store(stolen)
    k.store_wait()
    assert not shares(k)


def test_no_partition_waits_for_a_worker_s_products():
    k = SharedKernel()
    a, late = k.alloc("a"), k.alloc("late")
    k.partitions(lambda: None, lambda: k.product(a, a))
    k.product_wait()
    k.write(late)
    assert not shares(k)
