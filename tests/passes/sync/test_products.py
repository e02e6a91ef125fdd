"""What `insert_sync` places around asynchronous products of warpgroups, and around arrivals that each warp makes for itself."""

from __future__ import annotations

import pytest

from tests.passes.shared import Rules, inserted
from weft.ops import mbarrier, shared


class Products(Rules):
    """`P` multiplies `a[0]` by `c`, `Pi` some part of `a` by `c`; `pwait` waits for all products, `pwait1` for all but one."""

    def __init__(self, num_warps: int = 4, sync: str = "auto") -> None:
        super().__init__(sync, num_warps)
        self.c = self.alloc("c")
        self.steps |= {
            "P": lambda: self.product(self.index(self.a, 0), self.c),
            "Pi": lambda: self.product(self.index(self.a, self.n), self.c),
            "P2": lambda: self.product(self.index(self.a, 0), self.c, max_imprecise=32),
            "pwait": self.product_wait,
            "pwait1": lambda: self.product_wait(1),
            "loadi": lambda: self.tma_load(self.index(self.a, self.n), self.bar),
            "each": lambda: self.emit(mbarrier.arrive, self.bar, None, each_warp=True),
        }

    def shown(self) -> str:
        self.emit(shared.keep_alive, self.c)
        names = {"mma.warpgroup": "P", "mma.warpgroup_wait": "pwait", "arrive": "arrive"}
        return " ".join(names.get(word, word) for word in super().shown().split())


def after(steps: str, num_warps: int = 4) -> str:
    k = Products(num_warps)
    k.do(steps)
    return k.shown()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # What products read.
        ("W P", "W !f !| P"),
        ("W f P", "W f !| P"),
        ("W | f P", "W | f P"),
        ("W1 P", "W P"),
        ("R P", "R P"),
        ("load wait P", "load wait P"),
        ("copy cwait P", "copy cwait !f !| P"),
        ("copy carrive wait P", "copy carrive wait !f P"),
        ("store P", "store P"),
        # Who knows that they have read.
        ("P W", "P W"),
        ("P pwait W", "P pwait W"),
        ("P pwait load", "P pwait load"),
        ("P pwait arrive", "P pwait arrive"),
        ("P pwait R", "P pwait R"),
        ("P2 W", "P W"),
        # What they prove to be over: waits before them, nothing that threads did to memory.
        ("wait P pwait expect", "wait P pwait expect"),
        ("wait P pwait arrive", "wait P pwait arrive"),
        ("wait P expect", "wait P !| expect"),
        ("P wait pwait expect", "P wait pwait !| expect"),
        ("wait P pwait1 expect", "wait P pwait !| expect"),
        ("wait P P pwait1 expect", "wait P P pwait expect"),
        ("wait P P wait pwait1 expect", "wait P P wait pwait !| expect"),
        ("wait P pwait inval", "wait P pwait !| inval"),
        ("R P pwait arrive", "R P pwait !| arrive"),
        ("S P pwait arrive", "S P pwait !| arrive"),
    ],
)
def test_one_warpgroup(steps, expected):
    assert after(steps) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("W P", "W !f !| P"),
        ("P W", "P W"),
        ("P pwait W", "P pwait !| W"),
        ("P pwait | W", "P pwait | W"),
        ("P | pwait W", "P | pwait !| W"),
        ("P pwait W1", "P pwait W"),
        ("P pwait R", "P pwait R"),
        ("P pwait load", "P pwait !| load"),
        ("P pwait store", "P pwait store"),
        ("P pwait arrive", "P pwait !| arrive"),
        ("P pwait1 W", "P pwait W"),
        ("P P pwait1 load", "P P pwait !| load"),
        ("P Wb pwait | Pi pwait1 load", "P W pwait | P pwait load"),
        ("P2 W", "P !| W"),
        ("wait P pwait expect", "wait P pwait !| expect"),
    ],
)
def test_two_warpgroups(steps, expected):
    assert after(steps, num_warps=8) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("W each", "W arrive"),
        ("R S wait2 each", "R S wait arrive"),
        ("wait each", "wait arrive"),
        ("P pwait each", "P pwait arrive"),
        ("init each", "init !| arrive"),
        ("each inval", "arrive !| inval"),
        ("R each R arrive", "R arrive R !| arrive"),
    ],
)
def test_arrivals_of_each_warp(steps, expected):
    assert after(steps, num_warps=8) == expected


# Loops


def test_products_go_round():
    """A load into what the product before the last one read: with two warpgroups one barrier, with one none."""
    for num_warps, expected in ((4, "for [ load P pwait ]"), (8, "for [ !| load P pwait ]")):
        k = Products(num_warps)
        k.loop(lambda _, k=k: k.do("loadi Pi pwait1"))
        assert k.shown() == expected


def test_a_ring_needs_one_barrier_a_step():
    for num_warps in (4, 8):
        k = Products(num_warps)
        k.loop(lambda _, k=k: k.do("expect loadi wait pwait Pi"))
        assert k.shown() == "for [ !| expect load wait pwait P ]"


def test_a_ring_of_complete_products_needs_none_in_one_warpgroup():
    for num_warps, expected in (
        (4, "for [ expect load wait P pwait ]"),
        (8, "for [ !| expect load wait P pwait ]"),
    ):
        k = Products(num_warps)
        k.loop(lambda _, k=k: k.do("expect loadi wait Pi pwait"))
        assert k.shown() == expected


def test_a_consumer_needs_none():
    for num_warps in (4, 8):
        k = Products(num_warps)
        k.do("| P")
        k.loop(lambda _, k=k: k.do("wait Pi pwait1 each"))
        k.do("pwait each")
        assert k.shown() == "| P for [ wait P pwait arrive ] pwait arrive"


def test_partitions_have_numbers_of_warps_of_their_own():
    k = Products(8)
    k.partitions(k.doing("P pwait W"), k.doing("P pwait W"))
    assert k.shown() == "warp_specialize [ P pwait !| W ] [ P pwait W ]"


def test_what_is_complete_on_one_way_only():
    k = Products(8)
    k.do("P")
    k.branch(k.doing("pwait"))
    k.do("W")
    assert k.shown() == "P if [ pwait ] [ ] !| W"
    k = Products(4)
    k.do("wait P")
    k.branch(k.doing("pwait"))
    k.do("expect")
    assert k.shown() == "wait P if [ pwait ] [ ] !| expect"


# The elected thread's branch


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("R | expect load", "R | !f expect load"),
        ("R expect load", "R !f !| expect load"),
        ("R expect expect load", "R !f !| expect expect load"),
        ("W swait store", "W swait !f !| store"),
        ("R | expect S load", "R | expect S !f load"),
    ],
)
def test_what_it_does_in_a_row_stays_together(steps: str, expected: str):
    assert after(steps) == expected


def test_reasons_name_what_needs_them():
    k = Products()
    k.do("W | expect load")
    (text,) = inserted(k.result())
    assert text.startswith("fence_async before tma.load of a (written at line")
