from __future__ import annotations

import pytest

from tests.passes.shared import Rules, SharedKernel
from weft import targets
from weft.ops import sync
from weft.passes.pipeline import tile_pipeline
from weft.passes.sync.insert_sync import unneeded
from weft.passes.sync.report import Sync, sync_report, synchronisation

SM90 = targets.get("sm_90a")


def kernel(sync: str = "auto") -> SharedKernel:
    k = SharedKernel(sync=sync)
    a = k.alloc("a")
    k.write(a)
    k.fence()
    k.tma_store(a)
    k.barrier()
    k.barrier()
    k.fence()
    k.store_wait()
    return k


def test_each_line_with_what_it_has():
    func = tile_pipeline(kernel().finished(), SM90)
    assert sync_report(func, func).splitlines() == [
        "k.py:3: fence.async, as written",
        "k.py:4: barrier, inserted before tma.store of a (written at line 2)",
        "k.py:5: barrier, as written, but it orders nothing",
        "k.py:6: barrier, as written, but it orders nothing",
        "k.py:7: fence.async, as written, but it orders nothing",
    ]


def test_the_same_as_data():
    func = tile_pipeline(kernel().finished(), SM90)
    found = synchronisation(func, func)
    assert [(s.kind, s.needed, bool(s.reason)) for s in found] == [
        ("fence.async", True, False),
        ("barrier", True, True),
        ("barrier", False, False),
        ("barrier", False, False),
        ("fence.async", False, False),
    ]
    assert str(Sync("barrier", None)) == "barrier, as written"


def test_where_nothing_is_inserted_nothing_is_called_needless():
    func = tile_pipeline(kernel("none").finished(), SM90)
    assert sync_report(func, func).splitlines() == [
        "k.py:3: fence.async, as written",
        "k.py:5: barrier, as written",
        "k.py:6: barrier, as written",
        "k.py:7: fence.async, as written",
    ]


def test_a_line_that_stands_for_several_is_listed_once_and_needed_if_one_is():
    k = SharedKernel()
    a = k.alloc("a")
    for used in (True, False):
        k.line = 10
        k.barrier()
        if used:
            k.write(a)
    k.line = 10
    k.barrier()
    func = tile_pipeline(k.finished(), SM90)
    assert sync_report(func, func) == "k.py:11: barrier, as written"


def test_a_kernel_without_any():
    func = tile_pipeline(SharedKernel().finished(), SM90)
    assert sync_report(func, func) == "kernel: no barriers"


@pytest.mark.parametrize(
    ("steps", "vain"),
    [
        ("W | R", ""),
        ("W | | R", "barrier"),
        ("| W", "barrier"),
        ("S |", ""),
        ("W f store", ""),
        ("Wb f", "fence"),
        ("R f store", "fence"),
        ("W f | f store", "fence"),
        ("wait f", "fence"),
        ("wait | expect", ""),
        ("store swait | W", ""),
        ("store | W", "barrier"),
    ],
)
def test_what_the_author_wrote_in_vain(steps, vain):
    k = Rules()
    k.do(steps)
    found = unneeded(k.result())
    names = {sync.barrier: "barrier", sync.fence_async: "fence"}
    assert " ".join(names[op.kind] for op in found) == vain


def test_in_a_loop_a_barrier_has_a_use_if_it_ever_has():
    k = Rules()
    k.loop(lambda _: k.do("| R | W"))
    assert unneeded(k.result()) == []


def test_a_fence_of_a_partition_may_be_for_another_one():
    k = Rules()
    k.partitions(k.doing("|"), k.doing("wait f store"))
    found = unneeded(k.result())
    assert [op.kind for op in found] == [sync.barrier]
