from __future__ import annotations

import pytest

from tests.passes.shared import SharedKernel, shown
from weft import targets
from weft.ir.core import Func, walk
from weft.ir.types import ScalarType, int1
from weft.ir.verify import verify
from weft.layout import MBarrierLayout
from weft.ops import arith, mbarrier
from weft.passes.pipeline import lower_pipeline, tile_pipeline
from weft.passes.sync.report import sync_report
from weft.passes.sync.spread_arrivals import spread_arrivals

SM90 = targets.get("sm_90a")


def spread(k: SharedKernel) -> Func:
    func = spread_arrivals(k.finished())
    verify(func)
    return func


def counts(func: Func) -> list[int]:
    return [op.attrs["count"] for op in walk(func.body) if op.kind is mbarrier.init]


def each(func: Func) -> list[bool]:
    return [op.attrs["each_warp"] for op in walk(func.body) if op.kind is mbarrier.arrive]


def test_every_warp_counts():
    k = SharedKernel()
    bars = k.bars("bars", 2)
    for i in range(2):
        k.emit(mbarrier.init, k.index(bars, i), count=2)
    on = k.emit(arith.constant, value=True, type=ScalarType(int1))
    k.emit(mbarrier.arrive, k.index(bars, k.n), on, count=2)
    k.wait(k.index(bars, 0))
    func = spread(k)
    assert counts(func) == [8, 8] and each(func) == [True]
    (arrival,) = (op for op in walk(func.body) if op.kind is mbarrier.arrive)
    assert arrival.attrs["count"] == 2 and arrival.operand("pred") is not None


def test_a_barrier_that_counts_bytes_stays():
    """And with it those of the same allocation; others do not."""
    k = SharedKernel()
    bars, other = k.bars("bars", 2), k.bars("other")
    for bar in (k.index(bars, 0), k.index(bars, 1), other):
        k.init(bar)
    k.expect(k.index(bars, 0))
    k.arrive(k.index(bars, 1))
    k.arrive(other)
    func = spread(k)
    assert counts(func) == [1, 1, 4] and each(func) == [False, True]


@pytest.mark.parametrize("how", ["tma", "copies", "cluster", "shared by blocks"])
def test_what_else_arrives(how):
    k = SharedKernel()
    a = k.alloc("a")
    bar = k.bars("bar", layout=MBarrierLayout([[0]]) if how == "shared by blocks" else MBarrierLayout())
    k.init(bar)
    k.emit(mbarrier.arrive, bar, None, shared_by=1 if how == "cluster" else 0)
    if how == "tma":
        k.tma_load(a, bar)
    if how == "copies":
        k.copy_arrive(bar)
    func = k.finished()
    assert spread_arrivals(func) is func


def test_partitions_of_one_size():
    k = SharedKernel()
    full, done = k.bars("full"), k.bars("done")
    for bar in (full, done):
        k.emit(mbarrier.init, bar, count=2)

    def body(*bars):
        return lambda: [k.arrive(bar) for bar in bars]

    k.partitions(body(full, done), body(full), body(done), warps=(4, 1))
    func = spread(k)
    assert counts(func) == [8, 2] and each(func) == [True, False, True, False]


@pytest.mark.parametrize(
    ("count", "default", "workers"),
    [
        # Two arrivals of one partition: a warp's third would count for the phase that others have not come to the end of.
        (2, [1], []),
        (2, [1, 1], []),
        (4, [1], [[1]]),
        (3, [1, 2], [[1]]),
        (2, [1], [[1], [1]]),
    ],
)
def test_a_partition_arrives_once_a_phase(count, default, workers):
    k = SharedKernel()
    bar = k.bars("bar")
    k.emit(mbarrier.init, bar, count=count)

    def body(arrivals):
        return lambda: [k.emit(mbarrier.arrive, bar, None, count=one) for one in arrivals]

    k.partitions(*map(body, (default, *workers)))
    func = k.finished()
    assert spread_arrivals(func) is func


def test_arrivals_that_add_up_and_some_at_two_places():
    """Partitions arrive at one place or another, the same number of times."""
    k = SharedKernel()
    bar = k.bars("bar")
    k.emit(mbarrier.init, bar, count=3)
    both = [lambda: k.emit(mbarrier.arrive, bar, None, count=2)] * 2
    k.partitions(lambda: k.branch(*both), lambda: k.arrive(bar))
    assert counts(spread(k)) == [12]


def test_one_warp_needs_nothing():
    k = SharedKernel(num_warps=1)
    bar = k.bars("bar")
    k.init(bar)
    k.arrive(bar)
    func = k.finished()
    assert spread_arrivals(func) is func


def test_handles_that_may_be_either_barrier():
    """What one operation may be about goes together."""
    for plain in (True, False):
        k = SharedKernel()
        a, b = k.bars("a"), k.bars("b")
        k.init(a)
        k.init(b)
        k.arrive(k.either(a, b))
        if not plain:
            k.expect(b)
        func = spread(k)
        assert counts(func) == ([4, 4] if plain else [1, 1]) and each(func) == [plain]


def test_counts_have_a_limit():
    k = SharedKernel()
    bar = k.bars("bar")
    k.emit(mbarrier.init, bar, count=mbarrier.COUNT_LIMIT)
    k.arrive(bar)
    func = k.finished()
    assert spread_arrivals(func) is func


def kernel(sync: str = "auto") -> SharedKernel:
    k = SharedKernel(sync=sync)
    a, bar = k.alloc("a"), k.bars("free")
    k.init(bar)
    k.write(a)
    k.arrive(bar)
    return k


def test_takes_no_barrier_and_is_reported():
    func = tile_pipeline(kernel().finished(), SM90)
    assert shown(func) == "init store !barrier arrive"
    lowered = lower_pipeline(func, SM90)
    assert sync_report(lowered, func).splitlines() == [
        "k.py:5: barrier, inserted before mbarrier.arrive of free (initialised at line 3)",
        "k.py:5: arrive on free, once by each of 4 warps",
    ]


def test_is_left_to_authors_who_synchronise():
    func = tile_pipeline(kernel("none").finished(), SM90)
    assert counts(func) == [1] and each(func) == [False]
