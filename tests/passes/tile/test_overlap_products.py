"""Which waits go behind the product that follows them, and which stay where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.passes.shared import SIDE, SharedKernel
from weft.ir.core import Func, Value
from weft.ir.verify import verify
from weft.layout import SwizzledSharedLayout
from weft.ops import arith, debug, mma
from weft.passes.tile.overlap_products import overlap_products

FLAT = SwizzledSharedLayout(1, 1, 1, [1, 0])


class Products(SharedKernel):
    """Products of one 8x8 buffer by itself, on two accumulators."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = self.alloc("operand", SIDE, layout=FLAT, length=SIDE)
        self.x, self.y = self.accumulator(), self.accumulator()

    def start(self, acc: Value, max_imprecise: int = 0) -> Value:
        return self.emit(mma.warpgroup, self.memory, self.memory, acc, None, max_imprecise=max_imprecise)

    def waited(self, *accs: Value, pendings: int = 0) -> Value:
        return self.emit(mma.warpgroup_wait, *accs, pendings=pendings)

    def show(self, acc: Value) -> None:
        self.emit(debug.print_, acc, prefix="sum")


def order(func: Func) -> str:
    """Products, and waits with what they leave in flight: `P P w1 w0`."""
    names = {mma.warpgroup: lambda op: "P", mma.warpgroup_wait: lambda op: f"w{op.attrs['pendings']}"}
    return " ".join(names[op.kind](op) for op in func.body.ops if op.kind in names)


def overlapped(build: Callable[[Products], object]) -> str:
    k = Products()
    build(k)
    func = overlap_products(k.finished())
    verify(func)
    return order(func)


def test_products_of_one_accumulator():
    def build(k: Products) -> None:
        acc = k.x
        for _ in range(3):
            acc = k.waited(k.start(acc))
        k.show(acc)

    assert overlapped(build) == "P P w1 P w1 w0"


def test_what_a_wait_leaves_under_way_it_still_does():
    assert overlapped(lambda k: k.start(k.waited(k.start(k.x), pendings=2))) == "P P w3"


def test_a_wait_for_nobody_lets_another_accumulator_pass():
    """All that is complete after the wait and the product is complete after both in the other order."""
    assert overlapped(lambda k: (k.start(k.x), k.waited(k.y), k.start(k.y))) == "P P w1"


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        # The result of the wait is read.
        (lambda k: (w := k.waited(k.start(k.x)), k.start(w), k.show(w)), "P w0 P"),
        (lambda k: (w := k.waited(k.start(k.x)), k.emit(arith.add, w, w), k.start(w)), "P w0 P"),
        # The MMA adds to one of two accumulators, and the other is read.
        (lambda k: (w := k.waited(k.start(k.x), k.start(k.y)), k.start(w[0]), k.show(w[1])), "P P w0 P"),
        # What comes between may rely on the wait.
        (lambda k: (w := k.waited(k.start(k.x)), k.barrier(), k.start(w)), "P w0 P"),
        (lambda k: (w := k.waited(k.start(k.x)), k.branch(lambda: None), k.start(w)), "P w0 P"),
        # The threads themselves add to it.
        (lambda k: k.start(k.waited(k.start(k.x)), max_imprecise=32), "P w0 P"),
    ],
)
def test_waits_that_stay(build, expected):
    assert overlapped(build) == expected


def test_nothing_to_do():
    k = Products()
    k.show(k.waited(k.start(k.x)))
    func = k.finished()
    assert overlap_products(func) is func
