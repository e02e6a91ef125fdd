"""Where `fence_tensor_memory` places fences of tcgen05, and where it does not."""

from __future__ import annotations

import pytest

from tests.passes.tensor import SM100, TensorKernel
from weft.ir.core import Func, walk
from weft.ir.types import ScalarType, int32
from weft.ir.verify import verify
from weft.ops import cluster, control, mbarrier, sync, tcgen05
from weft.passes.pipeline import tile_pipeline
from weft.passes.sync.fence_tensor_memory import fence_tensor_memory
from weft.passes.sync.report import sync_report


class Fenced(TensorKernel):
    """`b` and `a` are the author's fences, before and after; `carr` and `cwt` the cluster's barrier, `named` a barrier."""

    def __init__(self, mode: str = "auto") -> None:
        super().__init__(mode)
        self.steps |= {
            "b": lambda: self.emit(tcgen05.fence, before=True),
            "a": lambda: self.emit(tcgen05.fence, before=False),
            "carr": lambda: self.emit(cluster.arrive),
            "cwt": lambda: self.emit(cluster.wait),
            "named": lambda: self.emit(sync.named_barrier, number=1, warps=4),
            "come": lambda: self.emit(sync.named_barrier, number=1, warps=4, arrive=True),
            "each": lambda: self.emit(mbarrier.arrive, self.bar, None, each_warp=True),
        }

    def repeat(self, condition: str, body: str) -> None:
        with self.region([ScalarType(int32)]) as before:
            self.do(condition)
            self.emit(control.condition, self.cmp("lt", before.args[0], self.n), before.args[0])
        with self.region([ScalarType(int32)]) as after:
            self.do(body)
            self.emit(control.yield_, after.args[0])
        self.emit(control.while_, self.zero, regions=(before.done, after.done))

    def result(self) -> Func:
        func = fence_tensor_memory(self.finished())
        verify(func)
        return func

    def named(self, func: Func) -> str:
        names = {"cluster.arrive": "carr", "cluster.wait": "cwt", "sync.named": "named"}
        return " ".join(names.get(word, word) for word in super().named(func).split())


def after(steps: str) -> str:
    k = Fenced()
    k.do(steps)
    return k.shown()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Before threads are told.
        ("L arrive", "L !before arrive"),
        ("T arrive", "T !before arrive"),
        ("L each", "L !before arrive"),
        ("L expect", "L !before expect"),
        ("M arrive", "M !before arrive"),
        ("M C arrive", "M C arrive"),
        ("L M C arrive", "L M C !before arrive"),
        ("L |", "L !before |"),
        ("L named", "L !before named"),
        ("L come", "L !before named"),
        ("L carr cwt", "L !before carr cwt"),
        ("L arrive arrive", "L !before arrive arrive"),
        ("L arrive | L |", "L !before arrive | !after L !before |"),
        ("L b arrive", "L before arrive"),
        ("b L arrive", "before L !before arrive"),
        ("W arrive | R", "W arrive | R"),
        ("L W store load", "L W store load"),
        ("arrive L", "arrive L"),
        # After threads have waited.
        ("wait L", "wait !after L"),
        ("wait T", "wait !after T"),
        ("wait M", "wait !after M"),
        ("wait wait2 M", "wait wait !after M"),
        ("wait L M", "wait !after L M"),
        ("| M", "| !after M"),
        ("named M", "named !after M"),
        ("come M", "named M"),
        ("carr cwt M", "carr cwt !after M"),
        ("wait a M", "wait after M"),
        ("wait M a", "wait !after M after"),
        ("wait C", "wait C"),
        ("wait", "wait"),
        ("L", "L"),
        ("swait cwait L", "swait cwait L"),
        ("M C wait L | M", "M C wait !after L !before | !after M"),
    ],
)
def test_straight_code(steps, expected):
    assert after(steps) == expected


def test_branches():
    k = Fenced()
    k.branch(k.doing("L"))
    k.do("arrive wait")
    k.branch(k.doing("W"), k.doing("M"))
    k.branch(k.doing("L arrive"), k.doing("arrive"))
    k.do("arrive")
    assert k.shown() == (
        "if [ L ] [ ] !before arrive wait !after if [ W ] [ M ] if [ L !before arrive ] [ !before arrive ] arrive"
    )


def test_what_is_told_on_one_way_only():
    k = Fenced()
    k.do("L")
    k.branch(k.doing("arrive"))
    k.do("arrive")
    assert k.shown() == "L if [ !before arrive ] [ ] !before arrive"
    k = Fenced()
    k.do("wait")
    k.branch(k.doing("wait2"))
    k.do("L")
    assert k.shown() == "wait !after if [ wait !after ] [ ] L"


def test_loops():
    """The end of a loop comes before its begin."""
    k = Fenced()
    k.do("wait")
    k.loop(lambda _: k.do("L"))
    k.do("arrive")
    assert k.shown() == "wait !after for [ L ] !before arrive"
    k = Fenced()
    k.loop(lambda _: k.do("arrive L wait"))
    assert k.shown() == "for [ !before arrive L wait !after ]"
    k = Fenced()
    k.loop(lambda _: k.do("L wait"))
    assert k.shown() == "for [ L wait !after ]"
    k = Fenced()
    k.loop(lambda _: k.do("expect load wait M C wait2"))
    k.do("L")
    assert k.shown() == "for [ expect load wait !after M C wait !after ] L"


def test_loops_within_loops():
    k = Fenced()

    def tile(_: object) -> None:
        k.loop(lambda _: k.do("wait M C"))
        k.do("wait2 L")

    k.loop(tile)
    assert k.shown() == "for [ for [ wait !after M C ] wait !after L ]"
    k = Fenced()

    def other(_: object) -> None:
        k.do("arrive")
        k.loop(lambda _: k.do("L"))

    k.loop(other)
    assert k.shown() == "for [ !before arrive for [ L ] ]"


def test_loops_with_a_condition():
    k = Fenced()
    k.repeat("wait", "L arrive")
    assert k.shown() == "while [ wait !after ] [ L !before arrive ]"
    k = Fenced()
    k.repeat("L", "arrive wait")
    k.do("arrive")
    assert k.shown() == "while [ L ] [ !before arrive wait !after ] !before arrive"


def test_partitions_begin_and_end_together():
    k = Fenced()
    k.do("T")
    k.partitions(k.doing("L"), k.doing("wait M C"), k.doing("M C"), k.doing("W"), warps=(1, 1, 4))
    k.do("L")
    assert k.shown() == (
        "T !before warp_specialize [ !after L !before ] [ wait !after M C ] [ !after M C ] [ W ] !after L"
    )


def test_a_kernel_without_tensor_memory_is_left_alone():
    k = Fenced()
    k.do("W | R arrive wait")
    func = k.finished()
    assert fence_tensor_memory(func) is func


def test_reasons():
    k = Fenced()
    k.do("wait L arrive")
    func = k.result()
    after, before = (op for op in walk(func.body) if op.kind is tcgen05.fence)
    assert after.attrs["reason"] == f"behind mbarrier.wait, for tensor_memory.load at line {before.loc.line - 1}"
    assert (
        before.attrs["reason"] == f"ahead of mbarrier.arrive (after tensor_memory.load at line {before.loc.line - 1})"
    )


# In the pipeline


@pytest.mark.parametrize(("sync", "fences"), [("auto", 3), ("explicit", 3), ("none", 0)])
def test_the_author_writes_them_with_sync_none_only(sync, fences):
    k = Fenced(sync)
    k.do("M C wait T arrive | wait2 M C")
    func = tile_pipeline(k.finished(), SM100)
    verify(func)
    found = [op for op in walk(func.body) if op.kind is tcgen05.fence]
    assert len(found) == fences
    lines = [line.partition(": ")[2] for line in sync_report(func, func).splitlines()]
    assert [line.partition(", ")[0] for line in lines if line.startswith("tcgen05")] == [
        "tcgen05.fence after", "tcgen05.fence before", "tcgen05.fence after"
    ][:fences]  # fmt: skip


def test_barriers_that_are_inserted_have_their_fences():
    k = TensorKernel()
    k.do("T M C")
    func = tile_pipeline(k.finished(), SM100)
    assert k.named(func) == "T !before !| !after M C"


def test_what_the_author_wrote_is_listed_as_such():
    k = Fenced("none")
    k.do("T b arrive wait a T")
    func = tile_pipeline(k.finished(), SM100)
    assert [line.partition(": ")[2] for line in sync_report(func, func).splitlines()] == [
        "tcgen05.fence before, as written",
        "tcgen05.fence after, as written",
    ]
