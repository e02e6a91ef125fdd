"""Barriers and fences that `insert_sync` places in tile IR: each rule with and without."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.passes.shared import Rules, SharedKernel, inserted, shown
from weft import targets
from weft.errors import CompilationError
from weft.ir.core import walk
from weft.passes.sync.insert_sync import insert_sync
from weft.passes.tile.allocate_shared import allocate_shared

SM90 = targets.get("sm_90a")


def after(steps: str, sync: str = "auto") -> str:
    k = Rules(sync)
    k.do(steps)
    return k.shown()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # 1. Generic accesses.
        ("W R", "W !| R"),
        ("W W", "W !| W"),
        ("R W", "R !| W"),
        ("R R", "R R"),
        ("W | R", "W | R"),
        ("W Rb", "W R"),
        ("W W1", "W W"),
        ("W Wi", "W !| W"),
        ("Wi W1", "W !| W"),
        ("W f R", "W f !| R"),
        # 2. Generic accesses and the async proxy.
        ("W store", "W !f !| store"),
        ("W f store", "W f !| store"),
        ("W f | store", "W f | store"),
        ("W | f store", "W | f store"),
        ("W | store", "W | !f store"),
        ("R store", "R store"),
        ("R load", "R !f !| load"),
        ("R f | load", "R f | load"),
        ("W load", "W !f !| load"),
        ("W store1", "W store"),
        ("f W | store", "f W | !f store"),
        ("load wait R", "load wait R"),
        ("load wait W", "load wait W"),
        ("load R", "load R"),
        ("load wait store", "load wait store"),
        ("load wait R | f load", "load wait R | f load"),
        # 3. cp.async.
        ("copy R", "copy R"),
        ("copy cwait R", "copy cwait !| R"),
        ("copy cwait1 R", "copy cwait !| R"),
        ("copy cwait | R", "copy cwait | R"),
        ("copy cwait store", "copy cwait !f !| store"),
        ("copy | f cwait store", "copy | f cwait !f !| store"),
        ("R copy", "R !| copy"),
        ("copy cwait1 | cwait R", "copy cwait | cwait !| R"),
        ("copy cwait | cwait R", "copy cwait | cwait R"),
        ("copy carrive wait R", "copy carrive wait R"),
        ("copy carrive wait store", "copy carrive wait !f store"),
        ("copy carrive wait2 store", "copy carrive wait store"),
        # 4. TMA stores.
        ("store W", "store W"),
        ("store swait W", "store swait !| W"),
        ("store swait1 W", "store swait !| W"),
        ("store swait | W", "store swait | W"),
        ("store swait R", "store swait R"),
        ("store swait load", "store swait load"),
        ("store swait W1", "store swait W"),
        ("store | swait W", "store | swait !| W"),
        # 5. Barriers.
        ("init wait", "init !| wait"),
        ("init | wait", "init | wait"),
        ("init expect wait", "init expect !| wait"),
        ("init carrive", "init !| carrive"),
        ("wait inval", "wait !| inval"),
        ("wait | inval", "wait | inval"),
        ("wait wait", "wait wait"),
        ("wait expect", "wait !| expect"),
        ("wait | expect", "wait | expect"),
        ("wait2 expect", "wait !| expect"),
        ("expect wait", "expect wait"),
        ("expect expect", "expect expect"),
        ("wait load", "wait !| load"),
        ("init inval", "init inval"),
        # 6. What arrivals publish.
        ("W arrive", "W !| arrive"),
        ("R arrive", "R !| arrive"),
        ("R | arrive", "R | arrive"),
        ("S arrive", "S !| arrive"),
        ("S | arrive", "S | arrive"),
        ("wait2 arrive", "wait !| arrive"),
        ("copy cwait arrive", "copy cwait !| arrive"),
        ("copy arrive", "copy arrive"),
        ("arrive arrive", "arrive arrive"),
        ("init arrive", "init arrive"),
        ("store swait arrive", "store swait arrive"),
        ("expect arrive", "expect arrive"),
        ("W expect", "W !| expect"),
    ],
)
def test_rules(steps, expected):
    assert after(steps) == expected


def test_only_bytes_count():
    """Buffers that are never alive together meet in their bytes."""
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    k.write(a)
    k.write(b)
    func = insert_sync(allocate_shared(k.finished(), SM90))
    assert shown(func) == "store !barrier store"
    assert inserted(func) == ["barrier before shared.store of b (bytes of a, written at line 3)"]


# Control flow


def test_a_loop_meets_itself():
    k = Rules()
    k.loop(lambda _: k.do("R W"))
    assert k.shown() == "for [ !| R !| W ]"


def test_what_the_code_before_a_loop_needs_stands_before_it():
    k = Rules()
    k.do("init")
    k.loop(lambda _: k.do("expect load wait R f | "))
    assert k.shown() == "init !| for [ expect load wait R f | ]"
    k = Rules()
    k.do("W")
    k.loop(lambda _: k.do("store"))
    assert k.shown() == "W !f !| for [ store ]"


def test_but_not_where_the_loop_needs_it_too():
    k = Rules()
    k.do("W")
    k.loop(lambda _: k.do("store swait W"))
    assert k.shown() == "W for [ !f !| store swait !| W ]"


def test_stores_of_one_iteration_and_the_next():
    k = Rules()
    k.loop(lambda _: k.do("swait Rb f store"))
    assert k.shown() == "for [ swait R f store ]"
    k = Rules()
    k.loop(lambda _: k.do("swait W f store"))
    assert k.shown() == "for [ swait !| W f !| store ]"


def test_a_loop_in_a_loop():
    k = Rules()

    def outer(_: Any) -> None:
        k.do("W")
        k.loop(lambda _: k.do("R"))

    k.loop(outer)
    assert k.shown() == "for [ !| W !| for [ R ] ]"


def test_branches_join():
    k = Rules()
    k.do("W")
    k.branch(k.doing("|"))
    k.do("R")
    assert k.shown() == "W if [ | ] [ ] !| R"
    k = Rules()
    k.branch(k.doing("W f"), k.doing("W |"))
    k.do("store")
    assert k.shown() == "if [ W f ] [ W | ] !f !| store"


def test_branches_are_entered_alike():
    k = Rules()
    k.do("W")
    k.branch(k.doing("R"), k.doing("Rb"))
    assert k.shown() == "W if [ !| R ] [ R ]"


# Partitions


def test_partitions_know_what_came_before_and_nothing_of_each_other():
    k = Rules()
    k.do("W")
    k.partitions(k.doing("R"), k.doing("R"))
    k.do("W")
    assert k.shown() == "W warp_specialize [ R ] [ R ] W"
    k = Rules()
    k.partitions(k.doing("W"), k.doing("store"))
    assert k.shown() == "warp_specialize [ W ] [ store ]"


def test_partitions_have_barriers_of_their_own():
    k = Rules()
    k.partitions(k.doing("W R"), k.doing("Wb Rb arrive"))
    assert k.shown() == "warp_specialize [ W !| R ] [ W !| R !| arrive ]"


def test_partitions_fence_what_came_before():
    k = Rules()
    k.do("W")
    k.partitions(k.doing(""), k.doing("store"))
    assert k.shown() == "W warp_specialize [ ] [ !f store ]"


def test_what_partitions_did_is_fenced_after_them():
    k = Rules()
    k.partitions(k.doing(""), k.doing("W"))
    k.do("store")
    assert k.shown() == "warp_specialize [ ] [ W ] !f store"


def test_a_worker_does_not_wait_for_the_stores_of_others():
    k = Rules()
    k.do("store")
    k.partitions(k.doing("swait W"), k.doing("swait W"))
    assert k.shown() == "store warp_specialize [ swait !| W ] [ swait W ]"


# Modes and words


def test_explicit_fences_are_the_author_s():
    k = Rules("explicit")
    k.do("W store")
    with pytest.raises(CompilationError) as error:
        k.result()
    first, second = (
        next(op for op in walk(k.done().body) if op.name == name) for name in ("shared.store", "tma.store")
    )
    assert error.value.code == "sync-fence"
    assert error.value.loc == second.loc
    assert error.value.related == (("the access that the fence has to follow", first.loc),)
    assert first.loc is not None
    assert error.value.message.startswith(
        f"tma.store accesses a through the async proxy, but threads accessed it at line {first.loc.line}, "
    )
    assert "fence_async_shared()" in error.value.fix


def test_explicit_barriers_are_inserted():
    assert after("W f store swait W R", "explicit") == "W f !| store swait !| W !| R"


def test_explicit_fences_between_buffers_that_share_bytes_are_inserted():
    k = SharedKernel(sync="explicit")
    a, b, bar = k.alloc("a"), k.alloc("b"), k.bars("bar")
    k.init(bar)
    k.write(a)
    k.tma_load(b, bar)
    func = insert_sync(allocate_shared(k.finished(), SM90))
    assert shown(func) == "init store !fence !barrier tma.load"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("W R", ["barrier before shared.load of a (written at line N)"]),
        (
            "W store",
            [
                "fence_async before tma.store of a (written at line N)",
                "barrier before tma.store of a (written at line N)",
            ],
        ),
        ("store swait W", ["barrier before shared.store of a (read at line N)"]),
        ("copy cwait R", ["barrier before shared.load of a (copied to at line N)"]),
        ("init wait", ["barrier before mbarrier.wait of bar (initialised at line N)"]),
        ("wait inval", ["barrier before mbarrier.invalidate of bar (waited on at line N)"]),
        ("R arrive", ["barrier before mbarrier.arrive (after shared.load at line N)"]),
    ],
)
def test_says_why(steps, words):
    k = Rules()
    k.do(steps)
    assert [re.sub(r"line \d+", "line N", text) for text in inserted(k.result())] == words


def test_twice_is_once():
    """Lowered IR goes through the pass again; what is there counts."""
    k = Rules()
    k.do("init expect load wait R W store swait W inval")
    once = k.result()
    assert shown(insert_sync(once)) == shown(once)


def test_kernels_without_shared_memory_are_left_alone():
    k = SharedKernel()
    k.store_global()
    func = k.finished()
    assert insert_sync(func) is func
